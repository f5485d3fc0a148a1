"""Passes of a model before and after its weights are compressed: two passes of :mod:`mlsysim.cases.one_pass`.

Before, everything has the baseline's format. After, weights have a format of the table or one of so many bits that is made like them
(:class:`~mlsysim.physics.precision.Format`), which says what they take up, what products compute in and what expanding them costs.
Sparsity changes a pass as chips do: a 2:4 pattern has its own peak and half of the bytes, whole channels take their operations with them,
and without a pattern all weights are read and multiplied. What is no product with weights keeps the baseline's rate, and so do caches.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from mlsysim.cases.assumptions import Assumptions
from mlsysim.cases.one_pass import Device, Pass, Roofline, device_of, roofline, work_of
from mlsysim.hardware.arithmetic import arithmetic_peak, expansion_rate
from mlsysim.hardware.types import HardwareNode
from mlsysim.models.base import Workload
from mlsysim.models.multimodal import VisionLanguageWorkload
from mlsysim.models.transformer import TransformerWorkload
from mlsysim.physics.precision import Format
from mlsysim.units.kernel import kernel
from mlsysim.units.ops import maximum
from mlsysim.units.records import dataclass
from mlsysim.units.registry import to_si

BASELINES = {16: ("fp16", "bf16", "fp32"), 32: ("fp32",)}
"""Number formats of original weights, by their bits."""

_PREFILL_TOKENS = 2048


@kernel("bits [2, 16], sparsity [0.1, 0.9], scale_bits [0.01, 1], index_bits [0.1, 1] -> bits")
def kept_bits(bits: Any, sparsity: Any, scale_bits: Any, index_bits: Any) -> Any:
    """Bits that are stored for each weight of the original."""
    return (bits + scale_bits) * (1 - sparsity) + index_bits


@dataclass(frozen=True, slots=True)
class Form:
    """How weights are kept: pattern and share of what is removed, bits of a weight, those that are stored and those that a pass reads
    for each weight of the original.

    ``narrow`` is the kind of numbers ("int", "fp") that activations take too, None where they keep theirs; ``format`` an entry of the table
    that says all of it.
    """

    pattern: str
    sparsity: float
    bits: float
    stored: float
    read: float
    narrow: str | None
    format: Format | None = None


@dataclass(frozen=True, slots=True)
class Compared:
    """Seconds of a pass before and after compression, what bounds it and what memory holds, operations after it, tokens, and the peak that they
    have."""

    before: float
    after: float
    bound_before: str
    bound_after: str
    held: tuple[float, float]
    capacity: float
    flops: float
    tokens: float
    peak: float

    @property
    def speedup(self) -> float:
        return self.before / self.after

    @property
    def mfu(self) -> float:
        """Operations over what the peak of the format would do in the time after compression."""
        return self.flops / (self.after * self.peak)


def passes(
    model: Workload,
    chip: HardwareNode,
    form: Form,
    base: int,
    batch_size: int,
    seq_len: int | None,
    efficiency: float,
    assumed: Assumptions,
) -> Mapping[str, Compared]:
    """Time before and after, for each kind of pass that the model has."""
    wide = BASELINES[base][0]
    device, name = _base(chip, base, assumed)
    fast, kept = _compressed(chip, form, base, device, name, assumed)
    found = {}
    for phase, new, context in _phases(model, seq_len, assumed):
        before, after = (
            work_of(Pass(model, phase, batch_size, new, context, precision, wide)) for precision in (wide, kept)
        )
        if form.format is None:
            after = replace(after, weights=model.parameter_count * form.stored / 8)
        if form.pattern == "structured":
            gone = form.sparsity * after.products
            after = replace(after, hardware_flops=after.hardware_flops - gone, products=after.products - gone)
        after = replace(after, wide=maximum(after.hardware_flops - after.products, 0.0))
        slow, quick = roofline(before, device, efficiency), roofline(after, fast, efficiency)
        found[phase] = Compared(
            before=slow.seconds,
            after=quick.seconds,
            bound_before=_bound(slow),
            bound_after=_bound(quick),
            held=(slow.held, quick.held),
            capacity=quick.capacity,
            flops=after.hardware_flops,
            tokens=before.tokens,
            peak=fast.peak,
        )
    return found


def _bound(times: Roofline) -> str:
    return "Compute" if times.computing >= times.memory else "Memory"


def _phases(model: Workload, seq_len: int | None, assumed: Assumptions) -> tuple[tuple[str, Any, Any], ...]:
    """Kinds of passes of a model, with their new tokens and context."""
    towers = isinstance(model, VisionLanguageWorkload) and model.image_tokens == 0
    if model.fixed_shape or towers:
        return (("inference", None if model.fixed_shape else seq_len, 0),)
    new = seq_len
    if new is None:
        new = _PREFILL_TOKENS
        assumed["seq_len"] = f"prefill of {new:,} tokens, decode with an empty cache"
    if isinstance(model, TransformerWorkload) and model.structure == "encoder":
        return (("prefill", new, 0),)
    return (("decode", 1, seq_len or 0), ("prefill", new, 0))


def _base(chip: HardwareNode, bits: int, assumed: Assumptions) -> tuple[Device, str]:
    """The chip at the baseline's arithmetic and its name; at the chip's headline where it has no such arithmetic."""
    for name in BASELINES[bits]:
        if chip.compute.supports(name):
            return device_of(chip, name, 1.0, assumed), name
    headline = chip.compute.headline
    assumed["baseline_arithmetic"] = f"at the rate of {headline}: {chip.name} has no {bits}-bit arithmetic"
    return device_of(chip, headline, 1.0, assumed), BASELINES[bits][0]


def _compressed(
    chip: HardwareNode, form: Form, base: int, device: Device, name: str, assumed: Assumptions
) -> tuple[Device, Any]:
    """The chip at the arithmetic of compressed weights, and their format."""
    core, dense = chip.compute, device.peak
    if form.format is not None:
        found = device_of(chip, form.format.name, 1.0, assumed)
        # Weights that are expanded multiply as the original does.
        return (found if found.peak > dense else replace(device, expansion=found.expansion)), form.format
    narrow = None
    if form.narrow is not None and form.bits < base:
        wanted = f"{form.narrow}{form.bits:g}"
        for bits in (4, 8):
            other = f"{form.narrow}{bits}"
            if bits >= form.bits and core.supports(other) and to_si(core.peak(other), "flop/s") >= dense:
                narrow = other
                break
        if narrow != wanted:
            assumed["arithmetic"] = f"in {narrow or name}: {chip.name} has no faster {wanted} arithmetic"
    kept = Format(f"{form.bits:g} bits", form.read, () if narrow is None else (narrow,))
    if not form.bits < base:
        kept = Format(name, form.read, (name,))
    found = replace(device, expansion=expansion_rate(chip, kept), wide=dense)
    if narrow is not None:
        found = replace(found, peak=arithmetic_peak(chip, narrow)[0])
    if form.pattern == "2:4":
        units = narrow or name
        if units in core.sparse_flops:
            return replace(found, peak=to_si(core.sparse_flops[units], "flop/s")), kept
        assumed["sparse_arithmetic"] = f"dense: {chip.name} states no 2:4 peak in {units}"
    return found, kept
