"""A user's own measurements: CSV rows of operator times or end-to-end times.

    op,m,n,k,batch,heads,kv_heads,head_dim,seq,context,bytes,dtype,seconds,mode
    gemm,1024,4096,4096,,,,,,,,bf16,5.1e-5,
    attention,,,,1,32,8,128,2048,,,bf16,9.4e-5,
    decode_attention,,,,16,32,8,128,,4096,,bf16,7.1e-5,
    copy,,,,,,,,,,268435456,,6.9e-5,

    model,phase,batch,seq_len,precision,seconds,mode
    Llama3_8B,decode,1,2048,bf16,4.6e-3,graph

One file may hold both kinds. ``bytes`` counts what is read and what is written. ``copy`` is one pass over memory,
``elementwise`` an unfused framework operator (a norm, an activation), ``optimizer`` a fused parameter update, ``launch`` the
cost of one empty operator. ``mode`` is ``graph`` (operators captured in a graph, or timed so that launches do not show),
``eager`` (launched one by one, elementwise chains not fused) or ``compiled`` (launched one by one, fused); without it
operators count as ``graph``, passes too, and training steps as ``eager``. An end-to-end row may give ``layers`` where only
part of the model was run; attention that is not causal says ``no`` in a column ``causal``.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from mlsysim.calibrate.measurements import given_table
from mlsysim.errors import InputError, MLSysError, unknown_name
from mlsysim.hardware.types import HardwareNode
from mlsysim.models.base import Workload
from mlsysim.models.graph import Operator
from mlsysim.models.passes import Pass, Sharding
from mlsysim.models.registry import Models
from mlsysim.models.template import Core
from mlsysim.physics.operators import memory_bound_time
from mlsysim.physics.precision import precision_name
from mlsysim.timing.kernels import Profile
from mlsysim.timing.operator_times import Execution, pass_time
from mlsysim.units.records import dataclass
from mlsysim.units.registry import to_si

FEWEST, MOST = 3, 50
OPERATORS = ("gemm", "attention", "decode_attention", "copy", "elementwise", "optimizer", "launch")
COLUMNS = (
    *("op", "m", "n", "k", "batch", "heads", "kv_heads", "head_dim", "seq", "context", "bytes", "dtype", "seconds"),
    "mode",
)
_PHASES = ("prefill", "decode", "train", "training", "inference")
_MODES = {"graph": (True, True), "eager": (False, False), "compiled": (False, True)}
_LARGEST_FILE = 1_000_000


@dataclass(frozen=True)
class Sample:
    """One measured time and what took it."""

    label: str
    seconds: float
    precision: str
    how: Execution
    operators: tuple[Operator, ...] = ()
    special: str = ""
    moved: float = 0.0

    def predict(self, chip: HardwareNode, profile: Profile) -> float:
        """Seconds with these constants."""
        bound = profile.memory_bound
        if self.special == "launch":
            return float(to_si(bound.graph_launch if self.how.graph else bound.eager_launch, "s"))
        if self.special == "optimizer":
            bandwidth = to_si(chip.memory.bandwidth, "byte/s")
            return float(memory_bound_time(self.moved, bandwidth, bound.optimizer_share, to_si(bound.start, "s")))
        return float(pass_time(self.operators, chip, profile, self.precision, self.how).total)


def read_samples(path: str | Path) -> list[Sample]:
    """The measurements of a CSV file; anything that cannot be used is refused with its line."""
    path = Path(path)
    header, rows = given_table(path, _LARGEST_FILE, f"; a calibration takes {FEWEST} to {MOST} rows")
    if "seconds" not in header or not {"op", "model"} & set(header):
        shown = ", ".join(header[:8]) or "nothing"
        raise InputError(f"{path} needs a column 'seconds' and a column 'op' or 'model'; its header has {shown}.")
    samples = []
    for number, row in enumerate(rows, 2):
        cells = {key: value.strip() for key, value in row.items()}
        if not any(cells.values()):
            continue
        try:
            samples.append(sample_of(cells))
        except MLSysError as error:
            raise InputError(f"{path}, line {number}: {error}", line=number) from None
    if not FEWEST <= len(samples) <= MOST:
        raise InputError(f"{path} has {len(samples)} measurements; a calibration takes {FEWEST} to {MOST}.")
    return samples


def sample_of(row: Mapping[str, str]) -> Sample:
    """The measurement that a row describes."""
    seconds = _number(row, "seconds")
    if row.get("op") and row.get("model"):
        raise InputError("a row is an operator ('op') or a pass of a model ('model'), not both.")
    if not row.get("op") and not row.get("model"):
        raise InputError("the row names neither an 'op' nor a 'model'.")
    return _operator_sample(row, seconds) if row.get("op") else _pass_sample(row, seconds)


def _operator_sample(row: Mapping[str, str], seconds: float) -> Sample:
    op = row["op"].lower()
    if op not in OPERATORS:
        raise unknown_name("operator", row["op"], OPERATORS, remedy=f"use one of {', '.join(OPERATORS)}.")
    graph, fused = _mode(row, "graph")
    how = Execution(graph=graph, fused=op == "copy" or (fused and op != "elementwise"), sustained=False)
    if op == "launch":
        return Sample(f"launch ({'graph' if graph else 'eager'})", seconds, "bf16", how, special=op)
    if op in ("copy", "elementwise", "optimizer"):
        moved = _number(row, "bytes")
        label = f"{op} {moved / 1e6:.4g} MB"
        if op == "optimizer":
            return Sample(label, seconds, "bf16", how, special=op, moved=moved)
        operator = Operator(op, "elementwise", op, input_bytes=moved / 2, output_bytes=moved / 2)
        return Sample(label, seconds, "bf16", how, (operator,))
    precision = precision_name(_text(row, "dtype"))
    if op == "gemm":
        m, n, k = (_number(row, name) for name in "mnk")
        return Sample(f"gemm {m:g}x{n:g}x{k:g} {precision}", seconds, precision, how, (product(m, n, k, precision),))
    batch, heads, head_dim = (_number(row, name) for name in ("batch", "heads", "head_dim"))
    kv_heads = _number(row, "kv_heads") if row.get("kv_heads") else heads
    length = _number(row, "seq" if op == "attention" else "context")
    phase, queries, past = ("prefill", length, 0.0) if op == "attention" else ("decode", 1.0, length - 1)
    causal = (row.get("causal") or "yes").lower() not in ("no", "false", "0")
    core = Core(heads, kv_heads, head_dim, head_dim, 2 * head_dim, causal=causal)
    operators = core.operators(Pass.of(phase, batch, queries, past, precision, Sharding()), None)
    label = f"{op} {batch:g}x{length:g} {heads:g}/{kv_heads:g} heads of {head_dim:g} {precision}"
    return Sample(label, seconds, precision, how, tuple(operators))


def product(m: float, n: float, k: float, precision: str) -> Operator:
    """A matrix product alone: inputs narrower than 16 bits come converted, as a kernel benchmark has them."""
    p = Pass.of("prefill", 1, m, 0, precision, Sharding())
    narrow = p.weight < 2
    sizes: Any = {"weight_bytes": n * k * p.weight, "input_bytes": m * k * p.activation}
    sizes["output_bytes"] = m * n * (2.0 if narrow else p.activation)
    kind = "batched_gemm" if narrow else "gemm"
    return Operator("gemm", kind, "gemm", m=m, n=n, k=k, flops=2 * m * n * k, **sizes)


def _pass_sample(row: Mapping[str, str], seconds: float) -> Sample:
    model: Workload = Models.get(row["model"])
    wanted = _text(row, "phase").lower()
    if wanted not in _PHASES:
        raise unknown_name("phase", wanted, _PHASES, remedy="use prefill, decode, training or inference.")
    phase = "training" if wanted == "train" else wanted
    precision = precision_name(_text(row, "precision" if row.get("precision") else "dtype"))
    batch = _number(row, "batch")
    if row.get("layers"):
        model = with_layers(model, int(_number(row, "layers")))
    graph, fused = _mode(row, "eager" if phase == "training" else "graph")
    sizes = {} if model.fixed_shape else {"seq_len": int(_number(row, "seq_len"))}
    operators = model.lower(phase, batch_size=batch, precision=precision, **sizes).operators
    how = Execution(graph=graph, fused=fused, sustained=True)
    label = f"{model.name} {phase} {batch:g}" + "".join(f"x{length}" for length in sizes.values())
    return Sample(label, seconds, precision, how, tuple(operators))


def with_layers(model: Any, layers: int) -> Any:
    """The same model with so many layers, its parameters counted anew."""
    if getattr(model, "layers", None) is None or not hasattr(model, "stack"):
        raise InputError(f"{model.name} has no stack of layers that could be shortened.")
    if not 1 <= layers <= model.layers:
        raise InputError(f"{model.name} has {model.layers} layers; take 1 to {model.layers}, not {layers}.")
    if layers == model.layers:
        return model
    fields = {name: getattr(model, name) for name in type(model).model_fields}
    counted = ("parameters", "active_parameters", "inference_flops", "training_ops")
    dropped: dict[str, Any] = {"layers": layers, **dict.fromkeys(counted)}
    if fields.get("dense_layers"):
        # As many of the layers without experts as of the whole, and one at least.
        dropped["dense_layers"] = max(1, round(fields["dense_layers"] * layers / model.layers))
    fields |= {name: value for name, value in dropped.items() if name in fields}
    if "ffn_dim" in fields and fields["ffn_dim"] is None and model._wants_dense_width():
        fields["ffn_dim"] = model.effective_ffn_dim
    return type(model)(**fields)


def write_samples(rows: Iterable[Mapping[str, Any]], path: str | Path) -> None:
    """Measured rows as the CSV that :func:`read_samples` reads."""
    with Path(path).open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, COLUMNS, restval="")
        writer.writeheader()
        writer.writerows(rows)


def _mode(row: Mapping[str, str], default: str) -> tuple[bool, bool]:
    mode = (row.get("mode") or default).lower()
    if mode not in _MODES:
        raise unknown_name("mode", mode, _MODES, remedy="use graph, eager or compiled.")
    return _MODES[mode]


def _text(row: Mapping[str, str], name: str) -> str:
    value = row.get(name, "")
    if not value:
        raise InputError(f"the column {name!r} is empty.")
    return value


def _number(row: Mapping[str, str], name: str) -> float:
    text = _text(row, name)
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value > 0):
        raise InputError(f"the column {name!r} must be a number above 0, got {text[:40]!r}.")
    return value
