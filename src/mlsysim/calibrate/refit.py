"""Refits every measured profile from tables: ``data/profiles/measured.toml``.

A folder holds ``operators.csv`` and, if measured anew, the six silicon tables; without the latter the H200 measurements that
ship with the package are used. The same tables give the same file, byte for byte.
"""

from __future__ import annotations

from collections import defaultdict
from importlib.resources import files
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from mlsysim.calibrate import operators as forms
from mlsysim.calibrate.fitting import Fit, fit, line, summary, table_of
from mlsysim.calibrate.measurements import Measurement, operators, silicon
from mlsysim.calibrate.residuals import Residual
from mlsysim.calibrate.write import digits
from mlsysim.hardware.registry import Hardware
from mlsysim.importers.markup import table_lines
from mlsysim.timing.profile import EVERY

SHIPPED = Path(str(files("mlsysim.data"))) / "profiles" / "measured.toml"
_TIMES = {"start", "chain", "quantise_start", "row_time", "decode_start", "graph_launch", "eager_launch"}
_OWN = "H200"
Profiles = dict[str, Any]
Errors = dict[str, dict[str, float]]


def write(folder: Path, out: Path | None = SHIPPED) -> list[Residual]:
    """Refit, write, and print the error of each fit."""
    profiles, errors = refit(folder)
    for name, found in sorted(errors.items()):
        print(f"{name:44s} {line(found)}")
    if out is not None:
        out.write_text(render(profiles), encoding="utf-8")
    return []


def refit(folder: Path | None) -> tuple[Profiles, Errors]:
    """Profiles by chip, and the error of each fit by what was fitted."""
    profiles: Profiles = defaultdict(dict)
    errors: Errors = {}
    _public(operators(folder), profiles, errors)
    micro, own = silicon(folder, "micro"), profiles[_OWN]
    _own_products((*micro, *silicon(folder, "extra")), micro, own, errors)
    _attention(own, micro, errors)
    _memory(own, micro, errors)
    experts = [r for table in ("llm", "extra2") for r in silicon(folder, table) if r.section in ("moe", "grouped_bf16")]
    grouped = forms.fit_grouped(_OWN, experts, own["products"]["bf16"])
    errors[f"{_OWN} grouped products"] = summary(grouped.errors)
    routing = _entry(forms.fit_routing(_OWN, experts, own["products"]["bf16"]), errors, f"{_OWN} routing")
    # Shares of what a product and the memory of a chip reach, which hold for others too.
    profiles[EVERY] = {
        "experts": {"torch": grouped.values},
        "memory_bound": {"kernels": {"experts_sum/torch": routing}},
    }
    found, depthwise = forms.fit_convolutions(_OWN, silicon(folder, "other"))
    own["convolution"] = _entry(found, errors, f"{_OWN} convolutions") | {"depthwise_share": depthwise}
    return dict(profiles), errors


def _entry(found: Fit, errors: Errors, what: str) -> dict[str, Any]:
    """The constants with the error of their fit, which is noted too."""
    errors[what] = summary(found.errors)
    return {**found.values, "fit_error_pct": errors[what]["median"], "points": errors[what]["points"]}


def _public(rows: list[dict[str, str]], profiles: Profiles, errors: Errors) -> None:
    tables: dict[tuple[str, str, str], list[tuple[float, ...]]] = defaultdict(list)
    for row in rows:
        chip, shape, seconds = Hardware.key_of(row["gpu"]), forms.shape_of(row["shape"]), float(row["value"]) * 1e-6
        if row["op"] == "gemm":
            if shape["m"]:
                tables["products", chip, row["dtype"]].append((shape["m"], shape["n"], shape["k"], seconds))
            continue
        group = shape["heads"] / shape["kv"]
        kind, length = "context", shape["isl"]
        if row["op"] != "context_attention":
            kind = "grouped" if 1 < group <= forms.GROUP_LIMITS[chip] else "single"
            length = shape["step"] + 1
        tables[kind, chip, row["dtype"]].append(
            (shape["batch"], length, shape["heads"], shape["kv"], shape["hd"], seconds)
        )
    for (kind, chip, label), table in sorted(tables.items()):
        columns: Any = np.asarray(table, float).T
        *sizes, times = columns
        if kind == "products":
            form = forms.FORMATS[label]
            found = forms.fit_products(chip, form, np.transpose(sizes), times)
            profiles[chip].setdefault(kind, {})[form.key] = _entry(found, errors, f"{chip} gemm {form.key}")
            continue
        key, (_, _, heads, kv, size) = forms.CACHE_FORMATS[label], sizes
        engine = profiles[chip].setdefault("engines", {}).setdefault("trtllm", {})
        engine["group_limit"] = forms.GROUP_LIMITS[chip]
        if kind == "context":
            bounds = forms.CONTEXT | (forms.HEADS if len(set(size.tolist())) > 1 else {})
            found = fit(forms.context(chip, forms.cache_bytes(key), *sizes), bounds, times)
            entry = {"head_exponent": 0.5} | _entry(found, errors, f"{chip} context attention {key}")
        else:
            bounds = forms.DECODE | (forms.REUSE if kind == "single" and (heads / kv > 1).any() else {})
            found = fit(forms.decode(chip, forms.cache_bytes(key), kind == "grouped", *sizes), bounds, times)
            entry = _entry(found, errors, f"{chip} decode attention, {kind} {key}")
        engine.setdefault(kind, {})[key] = entry
    for gemm in (profile.get("products", {}) for profile in profiles.values()):
        for entry in (entry for name, entry in gemm.items() if "quantise_share" in entry and name != "bf16"):
            # A converted product was timed with its conversion: what it starts later than a 16-bit one is the other kernel's.
            plain = gemm["bf16"]["start"]
            entry["quantise_start"] = max(entry["start"] - plain, 0.0)
            entry["start"] = min(entry["start"], plain)


def _own_products(
    rows: tuple[Measurement, ...], micro: tuple[Measurement, ...], own: dict[str, Any], errors: Errors
) -> None:
    gemm: dict[str, Any] = own.setdefault("products", {})
    sections = ("gemm", "gemm_random", "gemm_sweep", "gemm_random2")
    ceilings = [(r.config, r.median) for r in micro if r.section == "gemm_ceiling" and r.metric == "rate"]
    for key in ("bf16", "fp8"):
        chosen = [r._replace(section="gemm") for r in rows if r.section in sections]
        *shape, times = forms.timed(chosen, "gemm", "M", "N", "K", dtype=key)
        # Inputs were converted beforehand, so the product is timed alone.
        found = forms.fit_products(_OWN, forms.FORMATS[key], np.transpose(shape), times, converts=False)
        gemm[key] = _entry(found, errors, f"{_OWN} gemm {key}")
        # The rate of large products over seconds, over the rate of the short windows that the table was measured in.
        label = "fp8_fast" if key == "fp8" else key
        long = [(c, rate) for c, rate in ceilings if str(c.get("mode", "")).startswith("sustained")]
        rates = [rate for c, rate in long if c.get("dtype") == label and c.get("n", 0) >= 8192]
        gemm[key]["sustained"] = min(1.0, median(rates) / (gemm[key]["rate_share"] * forms.speeds(_OWN, key)[0]))
    for key in ("tf32", "fp32"):
        rates = [rate for c, rate in ceilings if c.get("dtype") == key and c.get("n") == 8192]
        share, kept = max(rates) / forms.speeds(_OWN, key)[0], min(rates) / max(rates)
        gemm[key] = {**gemm["bf16"], "rate_share": share, "sustained": kept, "points": len(rates)}


def _attention(own: dict[str, Any], micro: tuple[Measurement, ...], errors: Errors) -> None:
    *shape, times = forms.timed(micro, "attn_fwd", "B", "S", "H", "D", "causal", backend="cudnn")
    found = fit(forms.library(_OWN, *shape), forms.LIBRARY, times)
    forward = _entry(found, errors, f"{_OWN} attention, forward")
    decode = forms.fit_library_decode(_OWN, micro)
    errors[f"{_OWN} attention, decode"] = summary(decode.errors)
    own["attention"] = forward | decode.values | {"backward_share": _backward(micro)}


def _backward(micro: tuple[Measurement, ...]) -> float:
    """Rate of the backward kernel (2.5 times the work) over the forward kernel's, over long sequences."""
    alone, both = (
        {tuple(shape): time for *shape, time in forms.timed(micro, section, *"BSHD", backend="cudnn").T.tolist()}
        for section in ("attn_fwd", "attn_fwdbwd")
    )
    long = [shape for shape, time in both.items() if shape in alone and shape[1] >= 2048 and time > 1e-3]
    return min(1.0, median(2.5 * alone[shape] / (both[shape] - alone[shape]) for shape in long))


def _memory(own: dict[str, Any], micro: tuple[Measurement, ...], errors: Errors) -> None:
    kernels: dict[str, Any] = {}
    for mode, name in product(("eager", "compile"), table_of("memory_kernels")["names"]):
        table = forms.timed(micro, "memop", "bytes", op=name, mode=mode)
        if len(set(table[:1].ravel())) >= 3:
            found = forms.fit_memory_bound(_OWN, *table)
            kernels[f"{name}/{mode}"] = _entry(found, errors, f"{_OWN} {name}, {mode}")
    launch = {
        (r.config["kind"], r.config["op"], r.config.get("nodes")): r.median for r in micro if r.section == "launch"
    }

    def updating(dtype: str) -> float:
        """Share of the bandwidth of a fused optimizer."""
        moved, time = forms.timed(micro, "memop", "bytes", op="adamw", mode="fused", dtype=dtype)[:, -1].tolist()
        return float(moved / time / forms.speeds(_OWN)[1])

    own["memory_bound"] = {
        "kernels": kernels,
        "graph_launch": launch["graph_node", "add_", 1000],
        "eager_launch": launch["eager_throughput", "add_", None],
        "optimizer_share": updating("float32"),
        "optimizer_share_16bit": updating("bfloat16"),
    }


def render(profiles: dict[str, Any]) -> str:
    """The profiles as TOML, four significant digits."""
    lines = [
        "# Constants of measured kernels, with the median error of each fit and the number of points behind it.",
        "# Written by `python -m mlsysim.calibrate FOLDER`; what was not fitted stands in the other files of this folder.",
    ]
    for chip, profile in sorted(profiles.items()):
        source, own = table_of("source"), chip == _OWN
        head: Profiles = {"source": [source["ours" if own else "public"], source["kept"]]} if chip != EVERY else {}
        head |= {"passes_measured": True} if own else {}
        lines += table_lines(chip, head | _rounded(profile), digits)
    return "\n".join(lines) + "\n"


def _rounded(table: dict[str, Any]) -> dict[str, Any]:
    """Numbers as they are written, then the tables inside by name."""
    found: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, float):
            found[key] = f"{float(f'{value * 1e6:.4g}'):g} us" if key in _TIMES else float(f"{value:.4g}")
        elif not isinstance(value, dict):
            found[key] = value
    return found | {key: _rounded(value) for key, value in sorted(table.items()) if isinstance(value, dict)}
