"""Refits every measured profile from tables and writes them as one TOML file.

    python -m mlsysim.calibrate FOLDER [--out FILE]

FOLDER holds ``operators.csv`` and, if measured anew, the five silicon tables; without the latter the H200 measurements that
ship with the package are used. Chips whose table is missing keep the constants that they have. The same tables give the same
file, byte for byte.
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from statistics import median
from typing import Any

from mlsysim.calibrate.fitting import Fit, summary
from mlsysim.calibrate.measurements import Measurement, operators, silicon
from mlsysim.calibrate.operators import (
    CACHE_FORMATS,
    CHIPS,
    FORMATS,
    GROUP_LIMITS,
    fit_context,
    fit_convolutions,
    fit_decode,
    fit_library,
    fit_library_decode,
    fit_memory_bound,
    fit_products,
    shape_of,
    speeds,
)
from mlsysim.physics.precision import bytes_per_element

_TIMES = {"start", "chain", "quantise_start", "row_time", "decode_start", "graph_launch", "eager_launch"}
_OWN = "H200"
_KERNELS = (
    "rms_norm_hf",
    "cast_bf16_f32",
    "softmax_vocab",
    "rms_norm",
    "add",
    "add_rms",
    "layer_norm",
    "swiglu",
    "gelu",
    "rope",
    "embedding",
    "cross_entropy_fwd",
    "argmax_vocab",
)

PUBLIC = {
    "title": "aiconfigurator operator tables (NVIDIA ai-dynamo), a random sample of measured TensorRT-LLM kernels",
    "url": "https://github.com/ai-dynamo/aiconfigurator",
    "checked": "2026-11-15",
    "kind": "measured",
    "fields": ["products", "engines"],
}
OURS = {
    "title": "Our own measurements on one H200 with PyTorch 2.11, in mlsysim.calibrate.measurements",
    "url": "https://github.com/mlsysim/mlsysim",
    "checked": "2026-11-15",
    "kind": "measured",
    "fields": ["products", "attention", "memory_bound", "convolution"],
}
KEPT = {
    "title": "Constants that this fit leaves alone: roofs, attention of libraries, memory-bound operators, links, power",
    "url": "https://github.com/ai-dynamo/aiconfigurator",
    "checked": "2026-11-15",
    "kind": "estimate",
    "note": "estimate from a study of the same kernel tables and of our H200 runs; attention, memory-bound operators and "
    "convolutions of H100 are those of H200, convolutions of A100 and B200 are guesses",
}


def refit(folder: Path | None) -> tuple[dict[str, Any], dict[str, dict[str, float]]]:
    """Profiles by chip, and the error of each fit by what was fitted."""
    profiles: dict[str, Any] = {}
    errors: dict[str, dict[str, float]] = {}
    _public(operators(folder), profiles, errors)
    _own(silicon(folder, "micro"), silicon(folder, "extra"), profiles, errors)
    convolutions, depthwise = fit_convolutions(_OWN, silicon(folder, "other"))
    _chip(profiles, _OWN)["convolution"] = _entry(convolutions) | {"depthwise_share": depthwise}
    errors[f"{_OWN} convolutions"] = summary(convolutions.errors)
    return profiles, errors


def _public(rows: list[dict[str, str]], profiles: dict[str, Any], errors: dict[str, dict[str, float]]) -> None:
    products: dict[tuple[str, str], list[tuple[float, ...]]] = defaultdict(list)
    contexts: dict[tuple[str, str], list[tuple[float, ...]]] = defaultdict(list)
    decodes: dict[tuple[str, str, bool], list[tuple[float, ...]]] = defaultdict(list)
    for row in rows:
        chip, shape, seconds = CHIPS[row["gpu"]], shape_of(row["shape"]), float(row["value"]) * 1e-6
        if row["op"] == "gemm":
            if shape["m"]:
                products[chip, row["dtype"]].append((shape["m"], shape["n"], shape["k"], seconds))
            continue
        batch, heads, kv, size = shape["batch"], shape["heads"], shape["kv"], shape["hd"]
        if row["op"] == "context_attention":
            contexts[chip, row["dtype"]].append((batch, shape["isl"], heads, kv, size, seconds))
        else:
            grouped = 1 < heads / kv <= GROUP_LIMITS[chip]
            decodes[chip, row["dtype"], grouped].append((batch, shape["step"] + 1, heads, kv, size, seconds))
    for (chip, label), table in sorted(products.items()):
        form = FORMATS[label]
        found = fit_products(chip, form, [r[:-1] for r in table], [r[-1] for r in table])
        _chip(profiles, chip).setdefault("products", {})[form.key] = _entry(found)
        errors[f"{chip} gemm {form.key}"] = summary(found.errors)
    for chip in {chip for chip, _ in products}:
        _split_conversion(profiles[chip]["products"])
    for (chip, label), table in sorted(contexts.items()):
        key = CACHE_FORMATS[label]
        found = fit_context(chip, _cache_bytes(key), [r[:-1] for r in table], [r[-1] for r in table])
        entry = {"head_exponent": 0.5} | _entry(found)
        _engine(profiles, chip).setdefault("context", {})[key] = entry
        errors[f"{chip} context attention {key}"] = summary(found.errors)
    for (chip, label, grouped), table in sorted(decodes.items()):
        key = CACHE_FORMATS[label]
        found = fit_decode(chip, _cache_bytes(key), grouped, [r[:-1] for r in table], [r[-1] for r in table])
        kind = "grouped" if grouped else "single"
        _engine(profiles, chip).setdefault(kind, {})[key] = _entry(found)
        errors[f"{chip} decode attention, {kind} {key}"] = summary(found.errors)


def _split_conversion(gemm: dict[str, Any]) -> None:
    """A converted product was timed with its conversion: what it starts later than a 16-bit one is the other kernel's."""
    plain = gemm["bf16"]["start"]
    for name, entry in gemm.items():
        if "quantise_share" in entry and name != "bf16":
            entry["quantise_start"] = max(entry["start"] - plain, 0.0)
            entry["start"] = min(entry["start"], plain)


def _own(
    micro: tuple[Measurement, ...],
    extra: tuple[Measurement, ...],
    profiles: dict[str, Any],
    errors: dict[str, dict[str, float]],
) -> None:
    own = _chip(profiles, _OWN)
    gemm: dict[str, Any] = own.setdefault("products", {})
    for label in ("bf16", "fp8"):
        table = [
            (r.config["M"], r.config["N"], r.config["K"], r.median)
            for r in (*micro, *extra)
            if r.section in ("gemm", "gemm_random", "gemm_sweep", "gemm_random2")
            and r.metric == "time"
            and r.config["dtype"] == label
        ]
        form = FORMATS[label]
        # Inputs were converted beforehand, so the product is timed alone.
        found = fit_products(_OWN, form, [r[:-1] for r in table], [r[-1] for r in table], converts=False)
        gemm[form.key] = _entry(found)
        errors[f"{_OWN} gemm {form.key}"] = summary(found.errors)
    for key in ("bf16", "fp8"):
        gemm[key]["sustained"] = _sustained(micro, key, gemm[key]["rate_share"])
    for key in ("tf32", "fp32"):
        peak, _ = speeds(_OWN, key)
        rates = [r.median for r in micro if r.section == "gemm_ceiling" and r.metric == "rate" and _is(r, key, 8192)]
        gemm[key] = {**gemm["bf16"], "rate_share": max(rates) / peak, "sustained": min(rates) / max(rates)}
        gemm[key]["points"] = len(rates)
    _attention(own, micro, errors)
    _memory(own, micro, errors)


def _is(r: Measurement, label: str, size: int) -> bool:
    return r.config.get("dtype") == label and r.config.get("n") == size


def _sustained(micro: tuple[Measurement, ...], label: str, share: float) -> float:
    """Rate of large products over seconds, over the rate of the short windows that the table was measured in."""
    peak, _ = speeds(_OWN, label)
    rates = [
        r.median
        for r in micro
        if r.section == "gemm_ceiling"
        and r.metric == "rate"
        and str(r.config.get("mode", "")).startswith("sustained")
        and r.config.get("dtype") == ("fp8_fast" if label == "fp8" else label)
        and r.config.get("n", 0) >= 8192
    ]
    return min(1.0, median(rates) / (share * peak))


def _attention(own: dict[str, Any], micro: tuple[Measurement, ...], errors: dict[str, dict[str, float]]) -> None:
    forward = fit_library(_OWN, "cudnn", micro)
    decode = fit_library_decode(_OWN, micro)
    values = _entry(forward) | decode.values
    values["backward_share"] = _backward(micro, forward.values)
    own["attention"] = values
    errors[f"{_OWN} attention, forward"] = summary(forward.errors)
    errors[f"{_OWN} attention, decode"] = summary(decode.errors)


def _backward(micro: tuple[Measurement, ...], forward: dict[str, float]) -> float:
    """Rate of the backward kernel (2.5 times the work) over the forward kernel's, over long sequences."""
    times = {
        (r.section, *(r.config[k] for k in ("B", "S", "H", "D"))): r.median
        for r in micro
        if r.section in ("attn_fwd", "attn_fwdbwd") and r.metric == "time" and r.config["backend"] == "cudnn"
    }
    shares = []
    for (section, *shape), both in times.items():
        alone = times.get(("attn_fwd", *shape))
        if section == "attn_fwdbwd" and alone is not None and shape[1] >= 2048 and both > 1e-3:
            shares.append(2.5 * alone / (both - alone))
    return min(1.0, median(shares))


def _memory(own: dict[str, Any], micro: tuple[Measurement, ...], errors: dict[str, dict[str, float]]) -> None:
    kernels: dict[str, Any] = {}
    for mode in ("eager", "compile"):
        for name in _KERNELS:
            rows = [r for r in micro if r.section == "memop" and r.config["op"] == name and r.config["mode"] == mode]
            if len({r.config["bytes"] for r in rows}) < 3:
                continue
            found = fit_memory_bound(_OWN, micro, (name,), mode)
            kernels[f"{name}/{mode}"] = _entry(found)
            errors[f"{_OWN} {name}, {mode}"] = summary(found.errors)
    launch = {
        (r.config["kind"], r.config["op"], r.config.get("nodes")): r.median for r in micro if r.section == "launch"
    }
    _, bandwidth = speeds(_OWN)
    adam = [r for r in micro if r.section == "memop" and r.config["op"] == "adamw" and r.config["mode"] == "fused"]
    rates = {r.config["dtype"]: r.config["bytes"] / r.median for r in adam if r.metric == "time"}
    own["memory_bound"] = {
        "kernels": kernels,
        "graph_launch": launch["graph_node", "add_", 1000],
        "eager_launch": launch["eager_throughput", "add_", None],
        "optimizer_share": rates["float32"] / bandwidth,
        "optimizer_share_16bit": rates["bfloat16"] / bandwidth,
    }


def _cache_bytes(key: str) -> float:
    return bytes_per_element(key.split("/")[1])


def _chip(profiles: dict[str, Any], chip: str) -> dict[str, Any]:
    found: dict[str, Any] = profiles.setdefault(chip, {})
    return found


def _engine(profiles: dict[str, Any], chip: str) -> dict[str, Any]:
    engines: dict[str, Any] = _chip(profiles, chip).setdefault("engines", {})
    found: dict[str, Any] = engines.setdefault("trtllm", {"group_limit": GROUP_LIMITS[chip]})
    return found


def _entry(found: Fit) -> dict[str, Any]:
    return {**found.values, "fit_error_pct": found.median_pct, "points": found.points}


# --- writing ------------------------------------------------------------------------------------------------------


def render(profiles: dict[str, Any]) -> str:
    """The profiles as TOML, four significant digits."""
    lines = [
        "# Constants of measured kernels, with the median error of each fit and the number of points behind it.",
        "# Written by `python -m mlsysim.calibrate FOLDER`; what was not fitted stands in the other files of this folder.",
    ]
    for chip, profile in sorted(profiles.items()):
        lines += ["", f"[{chip}]", f"source = [{_inline(OURS if chip == _OWN else PUBLIC)}, {_inline(KEPT)}]"]
        if chip == _OWN:
            lines.append("passes_measured = true")
        _tables(lines, chip, profile)
    return "\n".join(lines) + "\n"


def _tables(lines: list[str], path: str, table: dict[str, Any]) -> None:
    plain = {key: value for key, value in table.items() if not isinstance(value, dict)}
    if plain and "." in path:
        lines += ["", f"[{path}]", *(f"{key} = {_number(key, value)}" for key, value in plain.items())]
    for key, value in sorted(table.items()):
        if isinstance(value, dict):
            _tables(lines, f"{path}.{key if key.isidentifier() else chr(34) + key + chr(34)}", value)


def _number(key: str, value: float | int) -> str:
    if isinstance(value, int):
        return str(value)
    if key in _TIMES:
        return f'"{float(f"{value * 1e6:.4g}"):g} us"'
    return repr(float(f"{value:.4g}"))


def _inline(table: dict[str, Any]) -> str:
    # A JSON string or list of strings is a TOML one.
    return "{" + ", ".join(f"{key} = {json.dumps(value)}" for key, value in table.items()) + "}"
