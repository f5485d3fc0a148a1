"""Wall 13, fidelity: what compression saves, what it speeds up, and what it may cost in accuracy.

    r_quant = b_base / b_target,   r_prune = 1 / (1 - s)                     (Han et al. 2016; Gholami et al. 2021)

The baseline has 16 bits. What becomes faster follows from the roofline of each pass, before and after:

    weights alone quantised    fewer bytes, the same arithmetic: decode gains up to r, a compute-bound prefill nothing
    activations too            arithmetic of the narrow format as well, where the chip has it: prefill gains too
    2:4 sparsity               half the bytes and the chip's sparse peak, where it has one
    unstructured sparsity      a smaller file; kernels still read and multiply the zeros
    structured sparsity        whole channels go, and with them bytes and arithmetic, on any chip

Attention between activations keeps 16 bits and its dense arithmetic, and caches keep their bytes. Activations shrink with
their format.

Assumed: all weights are compressed, embeddings included (in practice they stay at 16 bits: 1 to 13 % of the weights).
Left out: unpacking narrow weights (free while memory binds, 10 to 30 % of a compute-bound pass), scales (``group_size``
counts them: 16 bits for 128 weights are 3 % at 4 bits), positions of the kept weights (``count_indices``: 1 bit
for each original weight, 12 % of what is kept at half sparsity), and sparse kernels that reach less of their peak than dense ones.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from mlsysim.cases.assumptions import Assumptions
from mlsysim.cases.capacity import inference_bytes
from mlsysim.errors import InputError
from mlsysim.models.base import Workload
from mlsysim.models.multimodal import VisionLanguageWorkload
from mlsysim.models.transformer import TransformerWorkload
from mlsysim.units.kernel import kernel
from mlsysim.units.ops import maximum
from mlsysim.units.registry import to_si
from mlsysim.walls.algorithm.accuracy import accuracy_change
from mlsysim.walls.base import Resolver
from mlsysim.walls.binding import Binding
from mlsysim.walls.explanation import written
from mlsysim.walls.inputs import EFFICIENCY, HARDWARE, MODEL, Input, Inputs
from mlsysim.walls.result import Amount, Memory, Result, Time

__all__ = ["CARDS", "CompressionModel", "CompressionResult", "compressed_pass_time", "kept_bits"]

CARDS = """
13 Fidelity: accuracy against efficiency
r = b_base / b;  r = 1 / (1 - s) (Han et al. 2016)
What does compression save and speed up, and what does it cost in accuracy?
"""

_BASELINES = {16: ("fp16", "bf16", "fp32"), 32: ("fp32",)}
_SCALE_BITS = 16
_PREFILL_TOKENS = 2048


@kernel("bits [2, 16], sparsity [0.1, 0.9], scale_bits [0.01, 1], index_bits [0.1, 1] -> bits")
def kept_bits(bits: Any, sparsity: Any, scale_bits: Any, index_bits: Any) -> Any:
    """Bits that are stored for each weight of the original."""
    return (bits + scale_bits) * (1 - sparsity) + index_bits


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


class CompressionResult(Result):
    """Sizes, speeds and accuracy of a compressed model. Speed-ups are ratios of times; what is not known is None.

    ``latency``, ``tokens`` and ``mfu`` are of the pass that ``inference_speedup`` speaks of, after compression; the MFU counts the
    operations of the original against its dense peak. ``memory`` is what weights and cache take up.
    """

    original_size_gb: Annotated[Any, Amount("GB", "byte")]
    compressed_size_gb: Annotated[Any, Amount("GB", "byte")]
    compression_ratio: float
    memory_savings_pct: float
    inference_speedup: float
    decode_speedup: float | None
    prefill_speedup: float | None
    estimated_accuracy_delta: float | None
    accuracy_delta_range: tuple[float, float] | None
    accuracy_source: str | None
    bound_before: str
    bound_after: str
    fits_before: bool
    latency_before: Time
    latency: Time
    tokens: float
    mfu: float
    memory: Memory


class CompressionModel(Resolver[CompressionResult]):
    """Quantisation and pruning: size, speed of decode and prefill, and accuracy where it has been measured."""

    walls = (13,)
    result = CompressionResult
    inputs: ClassVar[dict[str, Input]] = {
        "model": MODEL,
        "hardware": HARDWARE,
        "method": Input.of("what is done to the weights", ("quantization", "pruning", "both"), "quantization"),
        "target_bitwidth": Input.of("bits of a quantised weight", "[1, 32]", 8),
        "sparsity": Input.of("fraction of the weights that is removed", "[0, 0.999]", 0.0),
        "sparsity_type": Input.of(
            "pattern of the removed weights", ("unstructured", "2:4", "structured_2_4", "structured"), "unstructured"
        ),
        "quantize_activations": Input.of("activations take the narrow format too", "flag", False),
        "number_format": Input.of("integers or floating point", ("int", "fp"), "int"),
        "baseline_bitwidth": Input.of("bits of the original weights, 16 or 32", "whole [16, 32]", 16),
        "batch_size": Input.of("sequences or samples in a pass", "whole [1, 1e9]", 1),
        "seq_len": Input.of("tokens of the prefill, and context of the decode", "whole [1, 1e8]", None),
        "efficiency": EFFICIENCY,
        "group_size": Input.of("weights that share one 16-bit scale", "whole [1, 1e9]", None),
        "count_indices": Input.of("count the positions of the kept weights in the size", "flag", False),
        "accuracy_curve": Input.of(
            "(bits, change) points of your own, or (sparsity, change) for pruning", "object", None
        ),
    }
    equations = written(r"""
        compression_ratio: r = b_base / (b (1 - s))
            r = \frac{b_{\mathrm{base}}}{b\,(1 - s)}
            b_base = baseline_bitwidth in bit, b = bits in bit, s = sparsity
        inference_speedup: speed-up = T_before / T_after, T = max(F / (P eta), (W / r + O) / BW) + dispatch
            \frac{T_{\mathrm{before}}}{T_{\mathrm{after}}},\quad T = \max\left(\frac{F}{P\,\eta}, \frac{W/r + O}{BW}\right) + T_{\mathrm{dispatch}}
            T_before = latency_before in s, T_after = latency in s
    """)
    known_fallacies = (
        "Four-bit weights make everything four times faster: they speed up what waits for memory; prefill and training compute.",
        "Quantisation never helps compute-bound work: with narrow activations too, the arithmetic peak doubles.",
        "Pruning 90 % of the weights makes inference ten times faster: without a pattern that the chip knows, nothing gets faster.",
    )

    def _solve(self, x: Inputs, assumed: Assumptions) -> CompressionResult:
        """Compare the model before and after compression."""
        pattern, sparsity = self._pattern(x, assumed)
        bits = self._bits(x, assumed)
        base = x.baseline_bitwidth
        scale = _SCALE_BITS / x.group_size if x.group_size is not None and bits < base else 0.0
        index = 1.0 if x.count_indices and sparsity > 0 and pattern != "structured" else 0.0
        ratio = base / kept_bits(bits, sparsity, scale, index)
        parameters = x.model.parameter_count
        original = parameters * base / 8
        compressed = original / ratio
        # Without a pattern the weights are expanded and read in full: no kernel for matrix units skips them.
        read = base / (bits + scale) if pattern == "unstructured" else ratio
        passes = self._passes(x, assumed, pattern, sparsity, bits, read)
        main = passes.get("decode") or passes.get("prefill") or passes["inference"]
        if "decode" in passes:
            assumed["inference_speedup"] = "that of a decode step"
        speedup = main["before"] / main["after"]
        capacity = to_si(x.hardware.memory.capacity, "byte")
        cache = self._cache(x)
        fits, fitted = compressed + cache <= capacity, original + cache <= capacity
        accuracy = accuracy_change(x, pattern, sparsity, bits, assumed)
        return CompressionResult.of(
            assumed,
            feasible=fits,
            binding=self._binding(x, ratio, speedup, passes, compressed + cache, capacity),
            original_size_gb=original,
            compressed_size_gb=compressed,
            compression_ratio=ratio,
            memory_savings_pct=100 * (1 - 1 / ratio),
            inference_speedup=speedup,
            decode_speedup=_ratio(passes.get("decode")),
            prefill_speedup=_ratio(passes.get("prefill")),
            estimated_accuracy_delta=accuracy.middle,
            accuracy_delta_range=accuracy.range,
            accuracy_source=accuracy.source,
            bound_before=main["bound_before"],
            bound_after=main["bound_after"],
            fits_before=fitted,
            latency_before=main["before"],
            latency=main["after"],
            tokens=main["tokens"],
            mfu=main["flops"] / (main["after"] * main["peak"]),
            memory=compressed + cache,
            shown={"bits": bits, "sparsity": sparsity},
            cited={"model": x.model, "hardware": x.hardware}
            | ({"accuracy": accuracy.source} if accuracy.source else {}),
        )

    @staticmethod
    def _bits(x: Any, assumed: dict[str, str]) -> float:
        base: float = x.baseline_bitwidth
        if base not in _BASELINES:
            raise InputError(
                f"The 'baseline_bitwidth' input of CompressionModel must be 16 or 32, got {base:g}.",
                field="baseline_bitwidth",
            )
        if x.method == "pruning":
            if "target_bitwidth" not in assumed and x.target_bitwidth != base:
                raise InputError(
                    "CompressionModel: 'target_bitwidth' goes with method='quantization' or 'both'.",
                    field="target_bitwidth",
                )
            for name in ("target_bitwidth", "number_format", "quantize_activations"):
                assumed.pop(name, None)
            return base
        if x.target_bitwidth > base:
            raise InputError(
                f"CompressionModel: {x.target_bitwidth:g} bits are more than the {base:g} of the original.",
                field="target_bitwidth",
            )
        return float(x.target_bitwidth)

    @staticmethod
    def _pattern(x: Any, assumed: dict[str, str]) -> tuple[str, float]:
        if x.method == "quantization":
            if x.sparsity > 0:
                raise InputError("CompressionModel: 'sparsity' goes with method='pruning' or 'both'.", field="sparsity")
            for name in ("sparsity", "sparsity_type", "count_indices"):
                assumed.pop(name, None)
            return "none", 0.0
        if x.sparsity_type not in ("2:4", "structured_2_4"):
            return x.sparsity_type, x.sparsity
        if "sparsity" in assumed:
            assumed["sparsity"] = "0.5, given by the pattern"
        elif x.sparsity != 0.5:
            raise InputError(f"CompressionModel: 2:4 sparsity is 0.5, got {x.sparsity:g}.", field="sparsity")
        return "2:4", 0.5

    def _passes(
        self, x: Any, assumed: dict[str, str], pattern: str, sparsity: float, bits: float, read: float
    ) -> dict[str, dict[str, Any]]:
        """Time before and after, for each kind of pass that the model has."""
        model, chip = x.model, x.hardware
        dense, name = _base_peak(chip, x.baseline_bitwidth, assumed)
        narrow, width = self._weight_peak(x, assumed, pattern, bits, dense, name)
        kept = 1 - sparsity if pattern == "structured" else 1.0
        bandwidth, dispatch = to_si(chip.memory.bandwidth, "byte/s"), to_si(chip.dispatch_tax, "s")
        found: dict[str, dict[str, Any]] = {}
        for phase, new, context in _phases(model, x.seq_len, assumed):
            demand = model.demand(phase, batch_size=x.batch_size, seq_len=new, context=context, precision=name)
            weighted = demand.flops
            if phase != "inference":
                weighted = min(demand.flops, 2 * model.active_parameter_count * demand.tokens)
            other = demand.flops - weighted
            moved = demand.activation_bytes + demand.cache_bytes
            moved_after = demand.activation_bytes * width / x.baseline_bitwidth + demand.cache_bytes
            c0, m0, t0 = compressed_pass_time(
                weighted, other, demand.weight_bytes, moved, 1.0, dense, dense, x.efficiency, bandwidth
            )
            c1, m1, t1 = compressed_pass_time(
                weighted * kept, other, demand.weight_bytes, moved_after, read, narrow, dense, x.efficiency, bandwidth
            )
            found[phase] = {
                "before": t0 + dispatch,
                "after": t1 + dispatch,
                "bound_before": "Compute" if c0 >= m0 else "Memory",
                "bound_after": "Compute" if c1 >= m1 else "Memory",
                "flops": demand.flops,
                "tokens": demand.tokens,
                "peak": dense,
            }
        return found

    @staticmethod
    def _weight_peak(
        x: Any, assumed: dict[str, str], pattern: str, bits: float, dense: float, name: str
    ) -> tuple[float, float]:
        """Arithmetic rate of the multiplications with weights, and the bits of the activations that they take."""
        core, kind = x.hardware.compute, x.number_format
        precision, width = name, float(x.baseline_bitwidth)
        if x.method != "pruning" and x.quantize_activations and bits < x.baseline_bitwidth:
            for bits_of_format in (4, 8):
                narrow = f"{kind}{bits_of_format}"
                if bits_of_format >= bits and core.supports(narrow) and to_si(core.peak(narrow), "flop/s") >= dense:
                    precision, width = narrow, float(bits_of_format)
                    break
            if precision != f"{kind}{bits:g}":
                assumed["arithmetic"] = f"in {precision}: {x.hardware.name} has no faster {kind}{bits:g} arithmetic"
        if pattern == "2:4":
            if precision in core.sparse_flops:
                return to_si(core.sparse_flops[precision], "flop/s"), width
            assumed["sparse_arithmetic"] = f"dense: {x.hardware.name} states no 2:4 peak in {precision}"
        return (dense if precision == name else to_si(core.peak(precision), "flop/s")), width

    @staticmethod
    def _cache(x: Any) -> float:
        if x.model.fixed_shape or x.seq_len is None:
            return 0.0
        weights = inference_bytes(x.model, x.batch_size, 0, "fp16", None)
        return inference_bytes(x.model, x.batch_size, x.seq_len, "fp16", None) - weights

    @staticmethod
    def _binding(
        x: Any, ratio: float, speedup: float, passes: dict[str, Any], needed: float, available: float
    ) -> Binding:
        if needed > available:
            sentence = (
                f"Wall 2 (Memory) still binds: {x.model.name} needs {needed / 1e9:.1f} GB after compression and "
                f"{x.hardware.name} has {available / 1e9:.1f} GB."
            )
            return Binding(2, "Memory", needed / available, sentence)
        gains = " and ".join(f"{phase} {_ratio(times):.3g} times as fast" for phase, times in passes.items())
        return Binding(13, "Fidelity", speedup, f"Wall 13 (Fidelity): {ratio:.3g} times smaller, {gains}.")


def _ratio(times: dict[str, Any] | None) -> float | None:
    return None if times is None else times["before"] / times["after"]


def _phases(model: Workload, seq_len: int | None, assumed: dict[str, str]) -> tuple[tuple[str, Any, Any], ...]:
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


def _base_peak(chip: Any, bits: int, assumed: dict[str, str]) -> tuple[float, str]:
    """The dense peak of the baseline's arithmetic and its name; the chip's headline where it has no such arithmetic."""
    for name in _BASELINES[bits]:
        if chip.compute.supports(name):
            return to_si(chip.compute.peak(name), "flop/s"), name
    headline = chip.compute.headline
    assumed["baseline_arithmetic"] = f"at the rate of {headline}: {chip.name} has no {bits}-bit arithmetic"
    return to_si(chip.compute.peak_flops, "flop/s"), _BASELINES[bits][0]
