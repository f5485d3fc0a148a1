"""Calibrated time of a pass on one device: its operators, and what software adds around them.

    inference    operators of the lowered graph, position embedding, sampling of the next token
    training     of recommenders: forward, recomputed and backward operators, loss, casts of mixed precision, optimizer;
                 other models' steps are those of :mod:`mlsysim.cases.train`

Operators are timed by :mod:`mlsysim.timing.operator_times` with the constants of the chip's profile; the software
(:mod:`mlsysim.timing.stacks`) says what is fused and who launches. On one H200 the sum is within 1 to 3 % of
measured prefill and decode steps (median).

Assumed: operators follow one another without gaps or overlap; a model in a format below 16 bits keeps its output head in
16 bits and fuses the conversion of activations into the kernels before. Left out: host work of a serving engine (scheduling,
detokenising), paging of caches, data loading.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from mlsysim.errors import InputError
from mlsysim.hardware.arithmetic import arithmetic_peak
from mlsysim.hardware.types import HardwareNode
from mlsysim.models.base import Workload
from mlsysim.models.graph import Operator
from mlsysim.models.transformer import TransformerWorkload
from mlsysim.physics.operators import memory_bound_time, moving_time
from mlsysim.physics.precision import bytes_per_element, cache_format
from mlsysim.physics.training_memory import optimizer_bytes
from mlsysim.timing.kernels import Profile
from mlsysim.timing.operator_times import Execution, PassTime, pass_time, started
from mlsysim.timing.profile import profile
from mlsysim.timing.stacks import Software, software
from mlsysim.timing.tags import Tag, untagged
from mlsysim.units.ops import where
from mlsysim.units.records import dataclass
from mlsysim.units.registry import to_si

_HALF, _FULL = bytes_per_element("bf16"), bytes_per_element("fp32")


@dataclass(frozen=True, slots=True)
class DeviceTime:
    """Seconds of a pass, by what they go to."""

    total: Any
    device: Any
    regime: str
    software: str
    profile: Profile
    flops: float = 0.0
    moved: float = 0.0
    arithmetic: float = 0.0

    @property
    def waiting(self) -> Any:
        """Seconds in which the device waits for launches."""
        return self.total - self.device


def _wide(chip: HardwareNode) -> str:
    """The chip's 16-bit format, or its own where it has none."""
    for name in ("bf16", "fp16"):
        if chip.compute.supports(name):
            return name
    return chip.compute.headline


def _how(model: Workload, chosen: Software, attention: str | None, cache: str) -> Execution:
    turned = (
        isinstance(model, TransformerWorkload)
        and not model.position_embeddings
        and model.structure != "encoder-decoder"
    )
    return Execution(
        graph=chosen.graph,
        fused=chosen.fused,
        attention=attention or chosen.attention,
        fine=True,
        convert="fused",
        cache_precision=cache,
        rotary=turned,
        software=chosen,
    )


def _timed(
    operators: Sequence[Operator],
    chip: HardwareNode,
    shares: Profile,
    precision: str,
    how: Execution,
    tag: Tag = untagged,
) -> list[PassTime]:
    """Times of the operators, the output head in 16 bits where the rest is narrower."""
    if bytes_per_element(precision) >= _HALF:
        return [pass_time(operators, chip, shares, precision, how, tag)]
    wide = _wide(chip)
    head = [replace(op, weight_bytes=op.n * op.k * _HALF) for op in operators if op.layer == "head" and op.k]
    rest = [op for op in operators if op.layer != "head" or not op.k]
    parts = [pass_time(rest, chip, shares, precision, how, tag)]
    return parts + ([pass_time(head, chip, shares, wide, how, tag)] if head else [])


def inference_time(
    model: Workload,
    chip: HardwareNode,
    phase: str,
    batch: float,
    new: Any = None,
    context: Any = 0,
    precision: str = "fp16",
    cache_precision: str | None = None,
    software_name: str = "engine",
    attention: str | None = None,
    shares: Profile | None = None,
    tag: Tag = untagged,
) -> DeviceTime:
    """One forward pass: ``prefill`` of ``new`` tokens, ``decode`` of one token after ``context``, or ``inference``."""
    shares = shares if shares is not None else profile(chip)
    chosen = software(software_name)
    cache = cache_format(cache_precision, precision)
    sizes: dict[str, Any] = {"batch_size": batch, "precision": precision}
    if not model.fixed_shape:
        sizes["seq_len"] = context if phase == "decode" else new
        if isinstance(model, TransformerWorkload):
            if bytes_per_element(precision) < _HALF:
                sizes["activation_precision"] = _wide(chip)
            sizes["cache_precision"] = cache
            if phase == "prefill" and context:
                sizes["context"] = context
    graph = model.lower(phase, **sizes)
    how = _how(model, chosen, attention, cache)
    parts = _timed(graph.operators, chip, shares, precision, how, tag)
    sampling = _sampling(model, chip, shares, batch, tag) if phase in ("prefill", "decode") else 0.0
    return DeviceTime(
        total=sum(part.total for part in parts) + sampling,
        device=sum(part.device for part in parts) + sampling,
        regime=regime_of(model, phase, chosen),
        software=chosen.name,
        profile=shares,
    )


def regime_of(model: Workload, phase: str, chosen: Software) -> str:
    """What passes of this kind were scored under: phase of a language model, encoder or look-ups, how it is launched, and whether by PyTorch's own kernels."""
    launched = "graph" if chosen.graph else "eager"
    if model.fixed_shape:
        return f"lookup {launched}"
    encoder = isinstance(model, TransformerWorkload) and model.structure == "encoder"
    return f"{'' if chosen.fused else 'torch '}{'encoder' if encoder else phase} {launched}"


def _sampling(model: Workload, chip: HardwareNode, shares: Profile, batch: float, tag: Tag) -> Any:
    """The choice of the next token from the logits of each sequence."""
    vocabulary = getattr(model, "vocab_size", None)
    if not vocabulary or getattr(model, "structure", "decoder") == "encoder":
        return 0.0
    bound = shares.memory_bound
    known = bound.kernels.get("argmax_vocab/eager")
    share, start = (known.share, to_si(known.start, "s")) if known else (bound.eager_share, bound.times[0])
    moved = _HALF * batch * vocabulary
    reading = moved / (share * to_si(chip.memory.bandwidth, "byte/s"))
    return moving_time(tag("sampling", 2, "bandwidth", "t = B / (e W)", reading, moved=moved), started(start, tag))


def lookup_training_time(
    model: Workload,
    chip: HardwareNode,
    batch: Any,
    precision: str,
    recompute: Any,
    optimizer: str,
    frozen: bool,
    devices: Any = 1,
) -> DeviceTime:
    """One training step of a recommender; fp32 parameters stand beside 16-bit arithmetic, and ``frozen`` ones are not updated. ``recompute`` is a mode,
    or an array of modes that compares with names: without attention only a full one computes again. A row that several samples of all ``devices``
    look up is read, scattered to and updated once, by the device that holds it."""
    mixed = bytes_per_element(precision) <= _HALF
    shares, chosen = profile(chip), software("hugectr")
    graph = model.lower("training", batch_size=batch, precision=precision, recompute="full")
    how = _how(model, chosen, None, _wide(chip))

    often = {"forward": 1.0, "recompute": where(recompute == "full", 1.0, 0.0), "backward": 1.0}
    distinct = model.distinct_share(batch * devices)
    operators = [
        replace(op, input_bytes=op.input_bytes * distinct) if op.kind == "embedding" else op
        for op in graph.operators
        if not (frozen and op.settles)
    ]
    passes = {
        way: _timed([op for op in operators if op.direction == way], chip, shares, precision, how) for way in often
    }

    def summed(name: str) -> Any:
        return sum(times * getattr(part, name) for way, times in often.items() for part in passes[way])

    bandwidth, bound = to_si(chip.memory.bandwidth, "byte/s"), shares.memory_bound
    count = (model.derived_parameters or model.parameter_count) - model.table_parameters
    # The loss of a click reads next to nothing.
    around = memory_bound_time(0.0, bandwidth, bound.eager_share, bound.times[0])
    around += chosen.cast_bytes * count / (bound.eager_share * bandwidth) if mixed else 0.0
    if not frozen:
        around += _update(count, optimizer, mixed, bound, bandwidth)
        # Of tables the rows that were read are read again and their states with them; writing the rows is their backward pass.
        rows = distinct * model.looked_up_parameters * batch * (_FULL + 2 * optimizer_bytes(optimizer, _FULL))
        around = around + rows / (bound.optimizer_share * bandwidth)
    device = summed("device") + around
    return DeviceTime(
        total=device + chosen.step,
        device=device,
        arithmetic=summed("arithmetic"),
        flops=summed("flops"),
        moved=summed("moved"),
        regime="lookup training",
        software=chosen.name,
        profile=shares,
    )


def _update(count: float, optimizer: str, mixed: bool, bound: Any, bandwidth: float) -> float:
    """The optimizer reads gradient, parameter and moments and writes the last two back."""
    width = 4.0 if mixed else _HALF
    moments = optimizer_bytes(optimizer, 4.0) * width / 4.0
    share = bound.optimizer_share if mixed else bound.optimizer_share_16bit
    return float(count * (width + 2 * (width + moments)) / (share * bandwidth))


def check_known(model: Workload, chip: HardwareNode, precision: str) -> None:
    """Refuse what the calibrated sum cannot express, with one sentence."""
    if not model.has_layers:
        raise InputError(f"{model.name} is known by its totals only; calibrated times need its layers.")
    if chip.family == "mcu" and not model.fixed_shape:
        words = f"{chip.name} is a microcontroller: calibrated times on it are of networks of fixed shape, not of {model.name}."
        raise InputError(words, field="hardware")
    arithmetic_peak(chip, precision)
