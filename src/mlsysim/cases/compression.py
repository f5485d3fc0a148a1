"""Passes of a model before and after its weights are compressed, by the roofline of each.

    compute = F_w / (P_w eta) + F_o / (P eta);  memory = (W / r + O) / BW;  T = max(compute, memory) + dispatch

Operations with weights (2 for each active parameter and token) run at the rate of their own number format, the others at the
dense rate of the baseline. Weights are read at 1/r of their bytes, activations shrink with their format, caches do not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mlsysim.cases.assumptions import Assumptions
from mlsysim.hardware.types import HardwareNode
from mlsysim.models.base import Workload
from mlsysim.models.multimodal import VisionLanguageWorkload
from mlsysim.models.transformer import TransformerWorkload
from mlsysim.units.kernel import kernel
from mlsysim.units.ops import maximum
from mlsysim.units.registry import to_si

BASELINES = {16: ("fp16", "bf16", "fp32"), 32: ("fp32",)}
"""Number formats of original weights, by their bits."""

_PREFILL_TOKENS = 2048


@kernel("bits [2, 16], sparsity [0.1, 0.9], scale_bits [0.01, 1], index_bits [0.1, 1] -> bits")
def kept_bits(bits: Any, sparsity: Any, scale_bits: Any, index_bits: Any) -> Any:
    """Bits that are stored for each weight of the original."""
    return (bits + scale_bits) * (1 - sparsity) + index_bits


@kernel("parameters [1e6, 1e13], element: byte [1, 8], ratio [1, 16] -> size: byte")
def weights_size(parameters: Any, element: Any, ratio: Any) -> Any:
    """Bytes of weights that are compressed by a ratio."""
    return parameters * element / ratio


@kernel("""
    weight_work: flop [1e9, 1e15], other_work: flop [1e6, 1e14], weight_bytes: byte [1e6, 1e12],
    other_bytes: byte [1e3, 1e11], ratio [1, 8], weight_peak: flop/s [1e12, 1e16], other_peak: flop/s [1e12, 1e16],
    efficiency [0.1, 1], bandwidth: byte/s [1e10, 1e13] -> compute: s, memory: s, time: s
""")
def compressed_pass_time(
    weight_work: Any,
    other_work: Any,
    weight_bytes: Any,
    other_bytes: Any,
    ratio: Any,
    weight_peak: Any,
    other_peak: Any,
    efficiency: Any,
    bandwidth: Any,
) -> Any:
    """Roofline of a pass whose weights are read at 1/ratio of their bytes and multiplied at a peak of their own."""
    compute = weight_work / (weight_peak * efficiency) + other_work / (other_peak * efficiency)
    memory = (weight_bytes / ratio + other_bytes) / bandwidth
    return compute, memory, maximum(compute, memory)


@dataclass(frozen=True, slots=True)
class Form:
    """How weights are kept: pattern and share of what is removed, bits, and by what factor fewer bytes are read.

    ``narrow`` is the kind of numbers ("int", "fp") that activations take too, None where they keep theirs.
    """

    pattern: str
    sparsity: float
    bits: float
    read: float
    narrow: str | None


@dataclass(frozen=True, slots=True)
class Pass:
    """Seconds of a pass before and after compression, what bounds it, its operations and tokens, and the dense peak."""

    before: float
    after: float
    bound_before: str
    bound_after: str
    flops: float
    tokens: float
    peak: float

    @property
    def speedup(self) -> float:
        return self.before / self.after

    @property
    def mfu(self) -> float:
        """Operations of the original over what the dense peak would do in the time after compression."""
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
) -> Mapping[str, Pass]:
    """Time before and after, for each kind of pass that the model has."""
    dense, name = _base_peak(chip, base, assumed)
    peak, width = _weight_peak(chip, form, base, dense, name, assumed)
    kept = 1 - form.sparsity if form.pattern == "structured" else 1.0
    bandwidth, dispatch = to_si(chip.memory.bandwidth, "byte/s"), to_si(chip.dispatch_tax, "s")
    found = {}
    for phase, new, context in _phases(model, seq_len, assumed):
        demand = model.demand(phase, batch_size=batch_size, seq_len=new, context=context, precision=name)
        weighted = demand.flops
        if phase != "inference":
            weighted = min(demand.flops, 2 * model.active_parameter_count * demand.tokens)
        sides: list[tuple[float, str]] = []
        for share, shrunk, read, rate in ((1.0, 1.0, 1.0, dense), (kept, width / base, form.read, peak)):
            moved = demand.activation_bytes * shrunk + demand.cache_bytes
            work, other = weighted * share, demand.flops - weighted
            compute, memory, time = compressed_pass_time(
                work, other, demand.weight_bytes, moved, read, rate, dense, efficiency, bandwidth
            )
            sides.append((time + dispatch, "Compute" if compute >= memory else "Memory"))
        (before, bound_before), (after, bound_after) = sides
        found[phase] = Pass(before, after, bound_before, bound_after, demand.flops, demand.tokens, dense)
    return found


def _phases(model: Workload, seq_len: int | None, assumed: Assumptions) -> tuple[tuple[str, Any, Any], ...]:
    """Kinds of passes of a model, with their new tokens and context."""
    towers = isinstance(model, VisionLanguageWorkload) and model.image_tokens == 0
    if model.fixed_shape or towers:
        return (("inference", None if model.fixed_shape else seq_len, 0),)
    new = seq_len
    if new is None:
        new = _PREFILL_TOKENS
        assumed["seq_len"] = f"prefill of {new} tokens, decode with an empty cache"
    if isinstance(model, TransformerWorkload) and model.structure == "encoder":
        return (("prefill", new, 0),)
    return (("decode", 1, seq_len or 0), ("prefill", new, 0))


def _base_peak(chip: HardwareNode, bits: int, assumed: Assumptions) -> tuple[float, str]:
    """The dense peak of the baseline's arithmetic and its name; the chip's headline where it has no such arithmetic."""
    for name in BASELINES[bits]:
        if chip.compute.supports(name):
            return to_si(chip.compute.peak(name), "flop/s"), name
    headline = chip.compute.headline
    assumed["baseline_arithmetic"] = f"at the rate of {headline}: {chip.name} has no {bits}-bit arithmetic"
    return to_si(chip.compute.peak_flops, "flop/s"), BASELINES[bits][0]


def _weight_peak(
    chip: HardwareNode, form: Form, base: int, dense: float, name: str, assumed: Assumptions
) -> tuple[float, float]:
    """Arithmetic rate of the multiplications with weights, and the bits of the activations that they take."""
    core, precision, width = chip.compute, name, float(base)
    if form.narrow is not None and form.bits < base:
        for bits in (4, 8):
            narrow = f"{form.narrow}{bits}"
            if bits >= form.bits and core.supports(narrow) and to_si(core.peak(narrow), "flop/s") >= dense:
                precision, width = narrow, float(bits)
                break
        wanted = f"{form.narrow}{form.bits:g}"
        if precision != wanted:
            assumed["arithmetic"] = f"in {precision}: {chip.name} has no faster {wanted} arithmetic"
    if form.pattern == "2:4":
        if precision in core.sparse_flops:
            return to_si(core.sparse_flops[precision], "flop/s"), width
        assumed["sparse_arithmetic"] = f"dense: {chip.name} states no 2:4 peak in {precision}"
    return (dense if precision == name else to_si(core.peak(precision), "flop/s")), width
