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

from collections.abc import Mapping
from typing import Annotated, Any

from mlsysim.cases.accuracy import accuracy_change
from mlsysim.cases.compression import BASELINES, Form, Pass, kept_bits, passes, weights_size
from mlsysim.errors import InputError
from mlsysim.models.footprint import inference_bytes
from mlsysim.units.registry import to_si
from mlsysim.walls.base import Assumptions, Binding, Inputs, Resolver, declared, wall_says, written
from mlsysim.walls.result import Amount, Memory, Result, Time

CARDS = """
13 Fidelity: accuracy against efficiency
r = b_base / b;  r = 1 / (1 - s) (Han et al. 2016)
What does compression save and speed up, and what does it cost in accuracy?
"""

_SCALE_BITS = 16


class CompressionResult(Result):
    """Sizes, speeds and accuracy of a compressed model. Speed-ups are ratios of times; what is not known is None.

    ``latency``, ``tokens`` and ``mfu`` are of the pass that ``inference_speedup`` speaks of, after compression; the MFU counts the
    operations of the original against its dense peak. ``memory`` is what weights and cache take up.
    """

    original_size_gb: Annotated[Any, Amount("GB", "byte")]
    compressed_size_gb: Annotated[Any, Amount("GB", "byte")]
    compression_ratio: float
    memory_savings_pct: float
    inference_speedup: Annotated[float, "speedup"]
    decode_speedup: Annotated[float | None, "decode.speedup"]
    prefill_speedup: Annotated[float | None, "prefill.speedup"]
    estimated_accuracy_delta: Annotated[float | None, "accuracy.middle"]
    accuracy_delta_range: Annotated[tuple[float, float] | None, "accuracy.range"]
    accuracy_source: Annotated[str | None, "accuracy.source"]
    bound_before: str
    bound_after: str
    fits_before: bool
    latency_before: Annotated[Time, "before"]
    latency: Annotated[Time, "after"]
    tokens: float
    mfu: float
    memory: Memory


class CompressionModel(Resolver[CompressionResult]):
    """Quantisation and pruning: size, speed of decode and prefill, and accuracy where it has been measured."""

    walls = (13,)
    inputs = declared("""
        model, hardware
        method = quantization | one of quantization, pruning, both | what is done to the weights
        target_bitwidth = 8 | [1, 32] | bits of a quantised weight
        sparsity = 0.0 | [0, 0.999] | fraction of the weights that is removed
        sparsity_type = unstructured | one of unstructured, 2:4, structured_2_4, structured | pattern of the removed weights
        quantize_activations = no | flag | activations take the narrow format too
        number_format = int | one of int, fp | integers or floating point
        baseline_bitwidth = 16 | whole [16, 32] | bits of the original weights, 16 or 32
        batch_size = 1 | whole [1, 1e9] | sequences or samples in a pass
        seq_len? | whole [1, 1e8] | tokens of the prefill, and context of the decode
        efficiency
        group_size? | whole [1, 1e9] | weights that share one 16-bit scale
        count_indices = no | flag | count the positions of the kept weights in the size
        accuracy_curve? | object | (bits, change) points of your own, or (sparsity, change) for pruning
    """)
    equations = written(r"""
        compression_ratio: r = b_base / (b (1 - s))
            r = \frac{b_{\mathrm{base}}}{b\,(1 - s)}
            b_base = baseline_bitwidth in bit, b = bits in bit, s = form.sparsity
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
        form, ratio = _form(x, assumed)
        found = passes(x.model, x.hardware, form, x.baseline_bitwidth, x.batch_size, x.seq_len, x.efficiency, assumed)
        main = found.get("decode") or found.get("prefill") or found["inference"]
        if "decode" in found:
            assumed["inference_speedup"] = "that of a decode step"
        capacity, cache = to_si(x.hardware.memory.capacity, "byte"), _cache(x)
        original, compressed = (weights_size(x.model.parameter_count, x.baseline_bitwidth / 8, r) for r in (1.0, ratio))
        accuracy = accuracy_change(x, form, assumed)
        return CompressionResult.of(
            assumed,
            main,
            form,
            x,
            feasible=compressed + cache <= capacity,
            binding=_binding(x, ratio, found, main, compressed + cache, capacity),
            original_size_gb=original,
            compressed_size_gb=compressed,
            compression_ratio=ratio,
            memory_savings_pct=100 * (1 - 1 / ratio),
            fits_before=original + cache <= capacity,
            memory=compressed + cache,
            shown={"form": form, "accuracy": accuracy, "decode": found.get("decode"), "prefill": found.get("prefill")},
            cited={"accuracy": accuracy.source} if accuracy.source else None,
        )


def _form(x: Any, assumed: Assumptions) -> tuple[Form, float]:
    """How the weights are kept, and by what factor they are smaller."""
    pattern, sparsity = _pattern(x, assumed)
    bits, base = _bits(x, assumed), x.baseline_bitwidth
    scale = _SCALE_BITS / x.group_size if x.group_size is not None and bits < base else 0.0
    index = 1.0 if x.count_indices and sparsity > 0 and pattern != "structured" else 0.0
    ratio = base / kept_bits(bits, sparsity, scale, index)
    # Without a pattern the weights are expanded and read in full: no kernel for matrix units skips them.
    read = base / (bits + scale) if pattern == "unstructured" else ratio
    narrow = x.number_format if x.method != "pruning" and x.quantize_activations else None
    return Form(pattern, sparsity, bits, read, narrow), ratio


def _bits(x: Any, assumed: Assumptions) -> float:
    base: float = x.baseline_bitwidth
    if base not in BASELINES:
        words = f"The 'baseline_bitwidth' input of CompressionModel must be 16 or 32, got {base:g}."
        raise InputError(words, field="baseline_bitwidth")
    if x.method == "pruning":
        if "target_bitwidth" in assumed.given and x.target_bitwidth != base:
            words = "CompressionModel: 'target_bitwidth' goes with method='quantization' or 'both'."
            raise InputError(words, field="target_bitwidth")
        for name in ("target_bitwidth", "number_format", "quantize_activations"):
            assumed.pop(name, None)
        return base
    if x.target_bitwidth > base:
        words = f"CompressionModel: {x.target_bitwidth:g} bits are more than the {base:g} of the original."
        raise InputError(words, field="target_bitwidth")
    return float(x.target_bitwidth)


def _pattern(x: Any, assumed: Assumptions) -> tuple[str, float]:
    if x.method == "quantization":
        if x.sparsity > 0:
            raise InputError("CompressionModel: 'sparsity' goes with method='pruning' or 'both'.", field="sparsity")
        for name in ("sparsity", "sparsity_type", "count_indices"):
            assumed.pop(name, None)
        return "none", 0.0
    if x.sparsity_type not in ("2:4", "structured_2_4"):
        return x.sparsity_type, x.sparsity
    if "sparsity" not in assumed.given:
        assumed["sparsity"] = "0.5, given by the pattern"
    elif x.sparsity != 0.5:
        raise InputError(f"CompressionModel: 2:4 sparsity is 0.5, got {x.sparsity:g}.", field="sparsity")
    return "2:4", 0.5


def _cache(x: Any) -> float:
    """Bytes of the cache in 16 bits."""
    if x.model.fixed_shape or x.seq_len is None:
        return 0.0
    with_cache, weights = (inference_bytes(x.model, x.batch_size, length, "fp16", None) for length in (x.seq_len, 0))
    return with_cache - weights


def _binding(x: Any, ratio: float, found: Mapping[str, Pass], main: Pass, needed: float, available: float) -> Binding:
    if needed > available:
        asked = f"{x.model.name} needs {needed / 1e9:.1f} GB after compression"
        there = f"{x.hardware.name} has {available / 1e9:.1f} GB"
        return wall_says(2, needed / available, f" still binds: {asked} and {there}.")
    gains = " and ".join(f"{phase} {each.speedup:.3g} times as fast" for phase, each in found.items())
    return wall_says(13, main.speedup, f": {ratio:.3g} times smaller, {gains}.")
