"""What a row of a training table means: model, chip, software, layout and batch, and which settings it leaves to be inferred.

Settings that a row does not give follow the rules of ``docs/accuracy.md`` and are listed. The result is a :class:`Run`, from which
:mod:`mlsysim.calibrate.training_plans` makes a plan.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from mlsysim.calibrate.prediction import Skipped
from mlsysim.errors import MLSysError
from mlsysim.hardware.registry import Hardware
from mlsysim.hardware.types import HardwareNode
from mlsysim.models.registry import Models
from mlsysim.models.training_shape import TrainingShape, training_shape
from mlsysim.models.transformer import TransformerWorkload
from mlsysim.plans.plan_parts import DimensionsPart, WorkloadPart
from mlsysim.plans.resolve import workload_of
from mlsysim.timing.stacks import Recipe, Stack, nearest_stack, recipe, stack, stack_of_source
from mlsysim.timing.training_chip import constants
from mlsysim.units.registry import to_si

_GLOBAL_SEQUENCES = 2048
_MICRO_TOKENS = 16384
_STATE_SHARE = 0.55
_DECODER_SHARE = 0.25


@dataclass(frozen=True, slots=True)
class Run:
    """A row understood, and what was inferred."""

    row: Mapping[str, str]
    model: TransformerWorkload
    dimensions: dict[str, Any]
    shape: TrainingShape
    hardware: HardwareNode
    precision: str
    stack: Stack
    recipe: Recipe | None
    accelerators: int
    batch: float
    seq_len: int
    tp: int
    pp: int
    cp: int
    ep: int
    dp: int
    virtual_stages: int
    micro_batch: float
    zero: int
    recompute: str
    sequence_parallel: bool | None
    frozen: bool
    target_share: float
    adapter: float | None
    power_cap: float | None
    inferred: tuple[str, ...]


def whole(row: Mapping[str, str], name: str) -> int | None:
    """A whole number of a row, or None where it is not given."""
    text = (row.get(name) or "").strip()
    if not text:
        return None
    try:
        return int(float(text))
    except ValueError:
        raise Skipped(f"{name} is {text!r}, not a number") from None


def read_precision(label: str) -> str:
    """The arithmetic behind a label such as amp_bf16, FP8-CS, MXFP8 or NVFP4; unknown labels are refused."""
    folded = re.sub(r"[^a-z0-9]", "", label.lower())
    folded = folded.removeprefix("amp")
    for prefix, name in (
        ("mxfp8", "mxfp8"),
        ("nvfp4", "nvfp4"),
        ("fp8", "fp8"),
        ("float8", "fp8"),
        ("bf16", "bf16"),
        ("bfloat16", "bf16"),
        ("fp16", "fp16"),
        ("float16", "fp16"),
        ("tf32", "tf32"),
        ("fp32", "fp32"),
    ):
        if folded.startswith(prefix):
            return name
    raise Skipped(f"the precision {label!r} is unknown" if label else "no precision is given")


_DIMENSIONS = {
    "layers": "layers",
    "hidden": "hidden_dim",
    "heads": "heads",
    "kv_heads": "kv_heads",
    "vocab": "vocab_size",
    "ffn": "ffn_dim",
    "params": "parameters",
}


def read_dimensions(row: Mapping[str, str]) -> dict[str, Any]:
    """The row's dimensions where they differ from the zoo's; all of them where the zoo does not have the model."""
    given: dict[str, Any] = {field: value for name, field in _DIMENSIONS.items() if (value := whole(row, name))}
    known: Any = Models.get(row["model"], None)
    if known is not None and not isinstance(known, TransformerWorkload):
        raise Skipped(f"{row['model']} is not a transformer")
    if known is None:
        missing = [label for label in ("layers", "hidden", "heads") if _DIMENSIONS[label] not in given]
        if missing or ("ffn_dim" not in given and "parameters" not in given):
            raise Skipped(
                f"the model {row['model']!r} is not in the zoo and its row lacks {', '.join(missing) or 'ffn'}"
            )
        if "ffn_dim" in given:
            given.pop("parameters", None)
        return {**given, "gated_ffn": given.get("ffn_dim", 0) < 4 * given["hidden_dim"]}
    given.pop("parameters", None)
    if getattr(known, "experts", 1) > 1:
        # Rows give the width of one expert, or of the dense layers, in the same column.
        given.pop("ffn_dim", None)
    return {
        field: value
        for field, value in given.items()
        if value != getattr(known, field, None) and not (field == "kv_heads" and value == known.heads)
    }


def read_stack(row: Mapping[str, str], chip: HardwareNode, inferred: list[str]) -> Stack:
    """The software of a row, by the name of its source; for an unknown source the nearest in time."""
    source, notes = row.get("source") or "", row.get("notes") or ""
    found = stack_of_source(source)
    if found is None:
        year = _year(source + " " + notes) or (chip.release_year or 2023) + 1
        sharded = (row.get("zero_stage") or "").startswith(("3", "FSDP")) and (row.get("tp") or "1") == "1"
        found = nearest_stack(year, sharded)
        inferred.append(f"stack {found.name} by the year {year}")
    if found.name == "titan" and "no torch.compile" not in notes and re.search("compile|float8|AsyncTP", notes):
        found = stack("titanc")
    return found


def read_release(row: Mapping[str, str]) -> float:
    """The release in a source's name as a number: 26.04.01 is 26.0401."""
    found = re.search(r"(\d\d)\.(\d\d)(?:\.(\d\d))?", row.get("source") or "")
    return float(f"{found[1]}.{found[2]}{found[3] or ''}") if found else 0.0


def _year(text: str) -> int | None:
    paper = re.search(r"arXiv:? ?(\d\d)\d\d\.\d{4,5}", text)
    if paper:
        return 2000 + int(paper[1])
    plain = re.search(r"\b(20[12]\d)\b", text)
    return int(plain[1]) if plain else None


def read_cluster(row: Mapping[str, str]) -> tuple[float | None, float | None]:
    """Network adapter (bit/s per accelerator) and power cap (W), where the row states them."""
    notes = row.get("notes") or ""
    adapter = None
    found = re.search(r"(\d+)\s*Gb/s RDMA per GPU|RoCE (\d+)G|\dx[HN]DR(\d+)", notes)
    if found:
        adapter = float(next(group for group in found.groups() if group)) * 1e9
    cap = re.search(r"-(\d{3,4})W\b", row.get("gpu") or "") or re.search(r"\b(\d{3,4}) ?W cap", notes)
    return adapter, float(cap[1]) if cap else None


@lru_cache(maxsize=64)
def _hardware(label: str) -> HardwareNode:
    for name in (label, re.sub(r"-\d{3,4}W$", "", label)):
        found = Hardware.get(name, None)
        if found is not None:
            return found
    raise Skipped(f"the accelerator {label!r} is unknown")


def read_run(row: Mapping[str, str]) -> Run:
    """Model, chip, software, layout and batch of a row; what it does not give is inferred by rule."""
    try:
        return _read_run(row)
    except MLSysError as error:
        raise Skipped(str(error)) from None


def _read_run(row: Mapping[str, str]) -> Run:
    inferred: list[str] = []
    dimensions = read_dimensions(row)
    found = workload_of(
        WorkloadPart(model=row["model"], dimensions=DimensionsPart(**dimensions) if dimensions else None)
    )
    assert isinstance(found, TransformerWorkload)
    model = found
    hardware = _hardware((row.get("gpu") or "").strip())
    precision = read_precision(row.get("precision") or "")
    seq_len, accelerators = whole(row, "seq"), whole(row, "n_gpus")
    if not seq_len:
        raise Skipped("no sequence length is given")
    if not accelerators:
        raise Skipped("the number of accelerators is not given")
    if precision == "nvfp4" and any(kind.scan for kind in training_shape(model, 1.0).kinds):
        # Published hybrids keep mixers and latent projections in wider formats; MXFP8 and NVFP4 runs are equally fast.
        precision = "mxfp8"
        inferred.append("products in MXFP8 where the hybrid says NVFP4")
    share = _DECODER_SHARE if model.structure == "encoder-decoder" else 1.0
    if share != 1.0:
        inferred.append("decoder length a quarter of the encoder's")
    shape = training_shape(model, share)
    software = read_stack(row, hardware, inferred)
    known = recipe(software.name, model.metadata.key or "", hardware.metadata.key or "", read_release(row))
    if known is not None and known.stack:
        software = stack(known.stack)
    adapter, cap = read_cluster(row)
    zero = read_zero(row, software)
    notes = row.get("notes") or ""
    tp, pp, cp, ep = (whole(row, name) for name in ("tp", "pp", "cp", "ep"))
    cp, ep = cp or 1, ep or 1
    if known is not None and (tp is None or pp is None) and known.tp is not None:
        tp, pp = tp or known.tp, pp or known.pp
        inferred.append(f"TP {tp}, PP {pp} by the published recipe")
    if tp is None or pp is None:
        capacity = to_si(hardware.memory.capacity, "byte")
        tp, pp = infer_layout(shape, software, zero, accelerators, capacity, tp, pp)
        inferred.append(f"layout TP {tp}, PP {pp}")
    dp = max(accelerators // (tp * pp * cp), 1)
    batch = whole(row, "global_batch")
    if batch is None:
        batch = (known.global_batch if known else None) or _GLOBAL_SEQUENCES
        inferred.append(f"global batch {batch} sequences")
    virtual = whole(row, "virtual_stages")
    if virtual is None:
        virtual = 1
        if pp > 1:
            virtual = (known.virtual_stages if known else None) or infer_virtual_stages(
                software, notes, shape.layers, pp
            )
            inferred.append(f"{virtual} virtual stages")
    micro: float | None = whole(row, "microbatch")
    local = max(batch / dp, 1.0)
    if micro is None and known is not None and known.micro_batch is not None:
        micro = min(known.micro_batch, local)
        inferred.append(f"micro-batch {micro} by the published recipe")
    if micro is None:
        micro = infer_micro_batch(software, local, seq_len, pp, virtual)
        inferred.append(f"micro-batch {micro}")
    mode = read_recompute((row.get("recompute") or "").strip(), software)
    parallel = known.sequence_parallel if known else None
    if "seqpar" in (row.get("recompute") or ""):
        parallel = "no seqpar" not in (row.get("recompute") or "")
    elif mode == "none" and "memory" in (row.get("reported_metric") or ""):
        # Tables of memory count savings against tensor parallelism alone.
        parallel = False
    if software.name == "megatron22" and mode == "full":
        parallel = False
    if mode is None and known is not None and known.recompute:
        mode = known.recompute
        inferred.append(f"recompute {mode} by the published recipe")
    run = Run(
        row=row,
        model=model,
        dimensions=dimensions,
        shape=shape,
        hardware=hardware,
        precision=precision,
        stack=software,
        recipe=known,
        accelerators=accelerators,
        batch=batch,
        seq_len=seq_len,
        tp=tp,
        pp=pp,
        cp=cp,
        ep=ep,
        dp=dp,
        virtual_stages=virtual,
        micro_batch=micro,
        zero=zero,
        recompute=mode or "",
        sequence_parallel=parallel,
        frozen="lora" in notes.lower() or "lora" in (row.get("model") or "").lower(),
        target_share=share,
        adapter=adapter,
        power_cap=cap,
        inferred=tuple(inferred),
    )
    return run if mode is not None else _with_recompute(run)


def read_zero(row: Mapping[str, str], software: Stack) -> int:
    """The ZeRO stage: the digit in the label, or the stack's habit."""
    label = row.get("zero_stage") or ""
    digit = re.search(r"[0-3]", label)
    if label and digit is None:
        if "fsdp" in label.lower():
            return 3
        raise Skipped(f"the ZeRO stage {label!r} is unknown")
    return int(digit[0]) if digit else software.zero


def read_recompute(label: str, software: Stack) -> str | None:
    """What is recomputed, or None where the row does not say."""
    folded = label.lower()
    if not folded:
        return None
    if folded.startswith("full"):
        return "full"
    if folded.startswith("selective"):
        return software.recompute if software.recompute in ("half", "modules") else "selective"
    if folded.startswith("none"):
        return "none"
    raise Skipped(f"the recompute mode {label!r} is unknown")


def infer_layout(
    shape: TrainingShape,
    software: Stack,
    zero: int,
    accelerators: int,
    capacity: float,
    tp: int | None,
    pp: int | None,
) -> tuple[int, int]:
    """The smallest tensor-parallel degree up to 8, then the fewest stages, whose state fills at most 55 % of memory."""
    if zero >= 3:
        return tp or 1, pp or 1
    parameters = shape.dense_parameters + shape.embedding + shape.expert_parameters
    choices = [(t, p) for p in (1, 2, 4, 8, 16, 32, 64) for t in (1, 2, 4, 8)]
    choices = [(t, p) for t, p in choices if (p == 1 or t == 8) and t * p <= accelerators]
    choices = [(t, p) for t, p in choices if tp in (None, t) and pp in (None, p)] or [(tp or 1, pp or 1)]
    for t, p in choices:
        dp = max(accelerators // (t * p), 1)
        state = parameters / (t * p) * (2 + software.gradient_bytes + 12 / (dp if zero else 1))
        if state < _STATE_SHARE * capacity:
            return t, p
    return choices[-1]


def infer_virtual_stages(software: Stack, notes: str, layers: float, pp: int) -> int:
    """Chunks per stage where none are given: one, one per layer, or two for an interleaved schedule."""
    if software.virtual_stages == "layer":
        return max(int(-(-layers // pp)), 1)
    return 2 if "Interleaved" in notes else 1


def infer_micro_batch(software: Stack, local: float, seq_len: int, pp: int, virtual: int) -> float:
    """Sequences of a micro-batch where none are given."""
    if pp > 1:
        return max(local / (pp * virtual), 1.0) if software.name.startswith("titan") else 1
    return max(min(local, _MICRO_TOKENS // seq_len), 1)


def _with_recompute(run: Run) -> Run:
    """What a stack recomputes when nobody says: its default, or the least that makes the state fit."""
    software, k = run.stack, constants()
    if software.recompute_in_pipeline and run.pp > 1:
        mode = software.recompute_in_pipeline
    elif software.recompute != "fit":
        mode = software.recompute
    else:
        room = k.usable_memory * to_si(run.hardware.memory.capacity, "byte") - k.state_bytes_reserve
        mode = "none" if _state_and_activations(run) < room else "modules"
    return replace(run, recompute=mode, inferred=(*run.inferred, f"recompute {mode}"))


def _state_and_activations(run: Run) -> float:
    """Bytes on the fullest device without recomputation: 16-bit weights, fp32 gradients, sharded Adam, activations."""
    shape, software = run.shape, run.stack
    dense = (shape.dense_parameters + shape.embedding) / (run.tp * run.pp)
    experts = shape.expert_parameters / (run.ep * run.pp)
    group = run.dp * run.cp
    expert_group = max(group * run.tp / run.ep, 1.0)
    weights = 2 + software.gradient_bytes if run.zero < 3 else (2 + software.gradient_bytes) / group
    state = dense * (weights + 12 / group) + experts * (weights + 12 / expert_group)
    kept, split = run.model.stack.saved_elements
    count = max(max(run.batch / run.dp, 1.0) / run.micro_batch, 1.0)
    flight = min(run.pp + (run.pp - 1) / run.virtual_stages, count)
    tokens = run.micro_batch * run.seq_len / run.cp
    return float(state + 2 * tokens * (kept + split) / run.tp * shape.layers / run.pp * flight)
