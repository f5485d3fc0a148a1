"""Published training runs: what a row of the table means, and which settings it leaves to be inferred.

The physics is :mod:`mlsysim.cases.train_layers`; this module finds model, chip, software and layout in the row.
Settings that a row does not give follow the rules of ``docs/accuracy.md`` and are listed with the prediction.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from mlsysim.calibrate.prediction import Excluded, Prediction, Skipped
from mlsysim.cases.job import Job, Overlap
from mlsysim.cases.layout import Layout
from mlsysim.cases.recompute import again
from mlsysim.cases.schedule import idle_time
from mlsysim.cases.stage_memory import layer_activations, stage_layers_in_flight, stage_state
from mlsysim.cases.train import Step
from mlsysim.cases.train_layers import calibrated
from mlsysim.errors import MLSysError
from mlsysim.hardware.arithmetic import arithmetic_peak
from mlsysim.hardware.registry import Hardware
from mlsysim.hardware.types import HardwareNode
from mlsysim.models.registry import Models
from mlsysim.models.training_shape import TrainingShape, training_regime, training_shape
from mlsysim.models.transformer import TransformerWorkload
from mlsysim.timing.stacks import Stack, nearest_stack, recipe, stack, stack_of_source
from mlsysim.timing.training_chip import Constants, TrainingChip, constants, training_chip
from mlsysim.units.registry import to_si

__all__ = ["COLUMNS", "Run", "predict", "read_run", "run_value"]

COLUMNS = ("model", "seq", "n_gpus", "tp", "pp", "microbatch", "global_batch", "recompute", "reported_metric", "value")

_GLOBAL_SEQUENCES = 2048
_MICRO_TOKENS = 16384
_STATE_SHARE = 0.55
_DECODER_SHARE = 0.25
_STATE_BYTES = 18.0
_NOT_MEASURED = ("chinchilla_optimal_params", "mfu_range")
_CAUSAL_SOURCES = ("llama3", "llama-3")


_ADAPTERS = 16
"""Rank of adapters where a row trains them; it has no effect on the time."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What a row says of its layout and of its software beyond the stack."""

    seq_len: Any
    micro_batch: Any
    micro_batches: Any
    tp: Any = 1
    pp: Any = 1
    cp: Any = 1
    ep: Any = 1
    dp: Any = 1
    virtual_stages: Any = 1
    zero: int = 1
    recompute: str = "none"
    frozen: bool = False
    sequence_parallel: bool | None = None
    tensor_exposed: float | None = None
    exchange_exposed: float | None = None
    fp8_attention: bool = False
    deduplicated: bool = True
    predicted_tokens: int = 0
    imbalance: Any = 1.0


@dataclass(frozen=True, slots=True)
class Run:
    """A row understood: everything that the step needs, and what was inferred."""

    row: Mapping[str, str]
    model: TransformerWorkload
    shape: TrainingShape
    hardware: HardwareNode
    precision: str
    stack: Stack
    job: Settings
    accelerators: int
    global_batch: float
    adapter: float | None
    power_cap: float | None
    inferred: tuple[str, ...]

    def chip(self) -> TrainingChip:
        return _chip(self.hardware, self.precision, self.adapter, self.power_cap)


@lru_cache(maxsize=4096)
def _chip_cached(key: str, precision: str, adapter: float | None, cap: float | None) -> TrainingChip:
    return training_chip(Hardware.get(key), precision, adapter=adapter, power_cap=cap)


def _chip(hardware: HardwareNode, precision: str, adapter: float | None, cap: float | None) -> TrainingChip:
    try:
        return _chip_cached(hardware.metadata.key or hardware.name, precision, adapter, cap)
    except MLSysError as error:
        raise Skipped(str(error)) from None


# --- reading -----------------------------------------------------------------------------------------------------------


def _whole(row: Mapping[str, str], name: str) -> int | None:
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
        ("fp16", "bf16"),
        ("float16", "bf16"),
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
}


@lru_cache(maxsize=1024)
def _model(name: str, dimensions: tuple[tuple[str, int], ...]) -> TransformerWorkload:
    """The zoo's model, with the row's dimensions where they differ; an unlisted model from the row's dimensions alone."""
    given = dict(dimensions)
    try:
        known: Any = Models.get(name)
    except MLSysError:
        known = None
    if known is not None and not isinstance(known, TransformerWorkload):
        raise Skipped(f"{name} is not a transformer")
    if known is None:
        missing = [label for label in ("layers", "hidden", "heads") if _DIMENSIONS[label] not in given]
        if missing or ("ffn_dim" not in given and "parameters" not in given):
            raise Skipped(f"the model {name!r} is not in the zoo and its row lacks {', '.join(missing) or 'ffn'}")
        given.pop("parameters", None) if "ffn_dim" in given else None
        gated = given.get("ffn_dim", 0) < 4 * given["hidden_dim"]
        return TransformerWorkload(name=name, gated_ffn=gated, **given)  # type: ignore[arg-type]
    given.pop("parameters", None)
    changed = {
        field: value
        for field, value in given.items()
        if value != getattr(known, field, None) and not (field == "kv_heads" and value == known.heads)
    }
    if getattr(known, "experts", 1) > 1:
        # Rows give the width of one expert, or of the dense layers, in the same column.
        changed.pop("ffn_dim", None)
    if not changed:
        return known
    fields = {
        field: getattr(known, field)
        for field in type(known).model_fields
        if field in known.model_fields_set and field not in ("parameters", "active_parameters", "metadata")
    }
    return type(known)(**{**fields, **changed})


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
    """Network adapter (byte/s per accelerator) and power cap (W), where the row states them."""
    notes = row.get("notes") or ""
    adapter = None
    found = re.search(r"(\d+)\s*Gb/s RDMA per GPU|RoCE (\d+)G|\dx[HN]DR(\d+)", notes)
    if found:
        adapter = float(next(group for group in found.groups() if group)) * 1e9 / 8
    cap = re.search(r"-(\d{3,4})W\b", row.get("gpu") or "") or re.search(r"\b(\d{3,4}) ?W cap", notes)
    return adapter, float(cap[1]) if cap else None


@lru_cache(maxsize=64)
def _hardware(label: str) -> HardwareNode:
    for name in (label, re.sub(r"-\d{3,4}W$", "", label)):
        try:
            return Hardware.get(name)
        except MLSysError:
            continue
    raise Skipped(f"the accelerator {label!r} is unknown")


def _shape(model: TransformerWorkload, share: float) -> TrainingShape:
    try:
        return training_shape(model, share)
    except MLSysError as error:
        raise Skipped(str(error)) from None


def read_run(row: Mapping[str, str]) -> Run:
    """Model, chip, software, layout and batch of a row; what it does not give is inferred by rule."""
    inferred: list[str] = []
    dimensions = []
    for column, field in {**_DIMENSIONS, "ffn": "ffn_dim", "params": "parameters"}.items():
        value = _whole(row, column)
        if value:
            dimensions.append((field, value))
    try:
        model = _model(row["model"], tuple(dimensions))
    except MLSysError as error:
        raise Skipped(str(error)) from None
    hardware = _hardware((row.get("gpu") or "").strip())
    precision = read_precision(row.get("precision") or "")
    seq_len = _whole(row, "seq")
    if not seq_len:
        raise Skipped("no sequence length is given")
    accelerators = _whole(row, "n_gpus")
    if not accelerators:
        raise Skipped("the number of accelerators is not given")
    if precision == "nvfp4" and any(kind.scan for kind in _shape(model, 1.0).kinds):
        # Published hybrids keep mixers and latent projections in wider formats; MXFP8 and NVFP4 runs are equally fast.
        precision = "mxfp8"
        inferred.append("products in MXFP8 where the hybrid says NVFP4")
    share = _DECODER_SHARE if model.structure == "encoder-decoder" else 1.0
    if share != 1.0:
        inferred.append("decoder length a quarter of the encoder's")
    shape = _shape(model, share)
    software = read_stack(row, hardware, inferred)
    known = recipe(software.name, model.metadata.key or "", hardware.metadata.key or "", read_release(row))
    if known is not None and known.stack:
        software = stack(known.stack)
    adapter, cap = read_cluster(row)
    zero = read_zero(row, software)
    notes = row.get("notes") or ""
    frozen = "lora" in notes.lower() or "lora" in (row.get("model") or "").lower()
    capacity = to_si(hardware.memory.capacity, "byte")
    tp, pp, cp, ep = (_whole(row, name) for name in ("tp", "pp", "cp", "ep"))
    cp, ep = cp or 1, ep or 1
    if known is not None and (tp is None or pp is None) and known.tp is not None:
        tp, pp = tp or known.tp, pp or known.pp
        inferred.append(f"TP {tp}, PP {pp} by the published recipe")
    if tp is None or pp is None:
        tp, pp = infer_layout(shape, software, zero, accelerators, capacity, tp, pp)
        inferred.append(f"layout TP {tp}, PP {pp}")
    dp = max(accelerators // (tp * pp * cp), 1)
    batch = _whole(row, "global_batch")
    if batch is None:
        batch = (known.global_batch if known else None) or _GLOBAL_SEQUENCES
        inferred.append(f"global batch {batch} sequences")
    virtual = _whole(row, "virtual_stages")
    if virtual is None:
        virtual = 1
        if pp > 1:
            virtual = (known.virtual_stages if known else None) or infer_virtual_stages(
                software, notes, shape.layers, pp
            )
            inferred.append(f"{virtual} virtual stages")
    micro: float | None = _whole(row, "microbatch")
    local = max(batch / dp, 1.0)
    if micro is None and known is not None and known.micro_batch is not None:
        micro = min(known.micro_batch, local)
        inferred.append(f"micro-batch {micro} by the published recipe")
    if micro is None:
        micro = infer_micro_batch(software, local, seq_len, pp, virtual)
        inferred.append(f"micro-batch {micro}")
    count = max(local / micro, 1.0)
    job = Settings(
        seq_len=seq_len,
        micro_batch=micro,
        micro_batches=count,
        tp=tp,
        pp=pp,
        cp=cp,
        ep=ep,
        dp=dp,
        virtual_stages=virtual,
        zero=zero,
        frozen=frozen,
        tensor_exposed=stack("bridge").tensor_exposed if "AsyncTP" in notes else None,
        exchange_exposed=constants().overlapped_exchange if known and known.exchange_overlapped else None,
        deduplicated=known.deduplicated if known else True,
        fp8_attention=known.fp8_attention if known else False,
        predicted_tokens=known.predicted_tokens if known else 0,
    )
    label = (row.get("recompute") or "").strip()
    mode = read_recompute(label, software)
    parallel = known.sequence_parallel if known else None
    if software.name == "megatron22" and mode == "full":
        parallel = False
    if mode is None and known is not None and known.recompute:
        mode = known.recompute
        inferred.append(f"recompute {mode} by the published recipe")
    if mode is None:
        needed = state_and_activations(model, shape, software, job)
        mode = chosen_recompute(software, needed, capacity, pp, constants())
        inferred.append(f"recompute {mode}")
    job = replace(job, recompute=mode, sequence_parallel=parallel)
    return Run(
        row, model, shape, hardware, precision, software, job, accelerators, batch, adapter, cap, tuple(inferred)
    )


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
    if "Interleaved" in notes:
        return 2
    return 1


def infer_micro_batch(software: Stack, local: float, seq_len: int, pp: int, virtual: int) -> float:
    """Sequences of a micro-batch where none are given."""
    if pp > 1:
        if software.name.startswith("titan"):
            return max(local / (pp * virtual), 1.0)
        return 1
    return max(min(local, _MICRO_TOKENS // seq_len), 1)


def state_and_activations(model: TransformerWorkload, shape: TrainingShape, software: Stack, job: Settings) -> float:
    """Bytes on the fullest device without recomputation: 16-bit weights, fp32 gradients, sharded Adam, activations."""
    dense = (shape.dense_parameters + shape.embedding) / (job.tp * job.pp)
    experts = shape.expert_parameters / (job.ep * job.pp)
    group = job.dp * job.cp
    expert_group = max(group * job.tp / job.ep, 1.0)
    weights = 2 + software.gradient_bytes if job.zero < 3 else (2 + software.gradient_bytes) / group
    state = dense * (weights + 12 / group) + experts * (weights + 12 / expert_group)
    whole, split = model.stack.saved_elements
    layers = shape.layers / job.pp
    flight = min(job.pp + (job.pp - 1) / job.virtual_stages, job.micro_batches)
    tokens = job.micro_batch * job.seq_len / job.cp
    return float(state + 2 * tokens * (whole + split) / job.tp * layers * flight)


# --- predicting --------------------------------------------------------------------------------------------------------


def step_of(run: Run, k: Constants | None = None) -> Step:
    """The predicted step of a run."""
    j, software = run.job, run.stack
    hides = 1 - software.kappa
    layout = Layout(
        j.dp,
        j.tp,
        j.pp,
        j.ep,
        j.cp,
        j.micro_batches,
        j.micro_batch * j.micro_batches,
        j.virtual_stages,
        software.schedule,
    )
    job = Job(
        model=run.model,
        precision=run.precision,
        seq_len=j.seq_len,
        again=again(j.recompute),
        zero=j.zero,
        lora_rank=_ADAPTERS if j.frozen else None,
        sequence_parallel=software.sequence_parallel if j.sequence_parallel is None else j.sequence_parallel,
        overlap=Overlap(
            tensor=1 - (software.tensor_exposed if j.tensor_exposed is None else j.tensor_exposed),
            expert=1 - (software.exchange_exposed if j.exchange_exposed is None else j.exchange_exposed),
            context=hides,
            context_room=hides,
            pipeline=1.0,
            data=hides if software.data_overlap else 0.0,
            data_room=hides,
            gathers=hides,
        ),
        fp8_attention=j.fp8_attention,
        deduplicated=j.deduplicated,
        predicted_tokens=j.predicted_tokens,
    )
    return calibrated(job, layout, run.shape, run.chip(), software, k or constants(), idle_time(layout))


def run_value(run: Run, seconds: float) -> float:
    """A step time in the row's own metric."""
    row, job = run.row, run.job
    tokens = job.dp * job.micro_batch * job.micro_batches * job.seq_len
    metric = row["reported_metric"]
    rate = tokens / seconds
    each = rate / run.accelerators
    if metric == "tokens_per_s_per_gpu":
        return each
    if metric == "tokens_per_s":
        return rate
    if metric in ("iteration_time", "step_time"):
        return seconds * (1e3 if row.get("unit") == "ms" else 1.0)
    if metric == "samples_per_s":
        return rate / job.seq_len
    if metric == "samples_per_s_per_gpu":
        return each / job.seq_len
    if metric == "gpu_hours_per_trillion_tokens":
        return 1e12 / each / 3600
    causal = any(part in (row.get("source") or "").lower() for part in _CAUSAL_SOURCES)
    hardware = metric.startswith(("hw", "hfu"))
    recompute = job.recompute if hardware else "none"
    operations = run.shape.operations_per_token(job.seq_len, causal, recompute) * each
    if metric in ("hw_tflops_per_gpu", "model_tflops_per_gpu", "tflops_per_gpu"):
        return operations / 1e12
    if metric in ("mfu", "hfu"):
        chip = run.hardware
        peak, _ = arithmetic_peak(chip, "bf16" if chip.compute.supports("bf16") else chip.compute.headline)
        return operations / peak * (100.0 if "%" in (row.get("unit") or "") else 1.0)
    raise Skipped(f"the metric {metric!r} is unknown")


def predict(row: Mapping[str, str]) -> list[Prediction]:
    """The predicted value of a row, beside the measured one."""
    metric = row.get("reported_metric") or ""
    if metric in _NOT_MEASURED or (row.get("source") or "").startswith("seed"):
        raise Excluded("not a measurement")
    try:
        measured = float(row["value"])
    except ValueError:
        raise Excluded(f"the value {row['value']!r} is not a number") from None
    if "memory" in metric:
        return [_memory(row, metric, measured)]
    run = read_run(row)
    seconds = float(step_of(run).seconds)
    value = run_value(run, seconds)
    return [
        Prediction(
            metric=metric,
            measured=measured,
            predicted=value,
            regime=_regime(run),
            chip_measured=run.chip().measured,
            inferred=run.inferred,
        )
    ]


def _regime(run: Run) -> str:
    guessed = any(text.startswith(("layout", "stack")) for text in run.inferred)
    return training_regime(run.shape, run.job.frozen) + (", layout inferred" if guessed else "")


def _memory(row: Mapping[str, str], metric: str, measured: float) -> Prediction:
    run = read_run(row)
    job, shape = run.job, run.shape
    layers = shape.layers
    cores = [core for kind in shape.kinds for core in kind.cores]
    scores = cores[0].heads * job.seq_len / shape.hidden
    tokens = job.micro_batch * job.seq_len
    alone, sequence, selective, both, full = layer_activations(tokens, shape.hidden, scores, job.tp, 1.0)
    label = (row.get("recompute") or "").lower()
    if metric == "activation_memory_pct_of_tp_baseline":
        kept = {
            "none+seqpar": sequence,
            "selective no seqpar": selective,
            "selective+seqpar": both,
            "selective": both,
            "full": full,
            "none": alone,
        }
        if label not in kept:
            raise Skipped(f"the recompute mode {label!r} is unknown")
        value = 100 * kept[label] / alone
    elif metric == "memory_activations":
        flight = stage_layers_in_flight(layers, job.pp, job.virtual_stages)
        per_layer = {"none": alone, "selective": both, "full": full}.get(label)
        if per_layer is None:
            raise Skipped(f"the recompute mode {label!r} is unknown")
        value = per_layer * flight / 2**30
    elif metric == "memory_params_grads_optimizer":
        longest = -(-layers // job.pp) * job.pp / layers
        value = stage_state(shape.dense_parameters * longest, job.tp * job.pp, _STATE_BYTES) / 2**30
    else:
        raise Skipped(f"the metric {metric!r} is unknown")
    return Prediction(metric, measured, float(value), "training memory", True, run.inferred)


def chosen_recompute(stack: Stack, needed: float, capacity: float, pp: int, k: Constants) -> str:
    """What a stack recomputes when nobody says: its default, or the least that makes the state fit."""
    if stack.recompute_in_pipeline and pp > 1:
        return stack.recompute_in_pipeline
    if stack.recompute != "fit":
        return stack.recompute
    return "none" if needed < k.usable_memory * capacity - k.state_bytes_reserve else "modules"
