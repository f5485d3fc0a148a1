"""Wall 13, fidelity: what compression saves, what it speeds up, and what it may cost in accuracy.

    r_quant = b_base / b_target,   r_prune = 1 / (1 - s)                     (Han et al. 2016; Gholami et al. 2021)

The baseline has 16 bits. What becomes faster follows from the roofline of each pass, before and after:

    weights alone quantised    fewer bytes, the same arithmetic: decode gains up to r, a compute-bound prefill nothing
    activations too            arithmetic of the narrow format as well, where the chip has it: prefill gains too
    2:4 sparsity               half the bytes and the chip's sparse peak, where it has one
    unstructured sparsity      a smaller file; kernels still read and multiply the zeros
    structured sparsity        whole channels go, and with them bytes and arithmetic, on any chip

Both are passes of walls 1 and 2 (:mod:`mlsysim.cases.one_pass`), so that narrow weights are expanded there as everywhere, and what does not
fit is streamed. ``format`` takes an entry of the table of formats (AWQ, NF4, Q4_K_M ...) with its bits, scales and the parts that it leaves
wide. Attention between activations keeps 16 bits and its dense arithmetic, and caches keep their bytes.

Assumed of plain bits: all weights are compressed, embeddings included (a format says which are).
Left out of them: scales (``group_size`` counts them: 16 bits for 128 weights are 3 % at 4 bits), positions of the kept weights
(``count_indices``: 1 bit for each original weight, 12 % of what is kept at half sparsity); of both, sparse kernels that reach less of their
peak than dense ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from mlsysim.cases.accuracy import accuracy_change
from mlsysim.cases.compression import BASELINES, Compared, Form, kept_bits, passes
from mlsysim.errors import InputError
from mlsysim.models.storage import stored
from mlsysim.physics.precision import format_of
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

    ``latency``, ``tokens`` and ``mfu`` are of the pass that ``inference_speedup`` speaks of, after compression; the MFU counts
    operations against the peak of their format. ``memory`` is what weights and cache take up.
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
        format? | precision | format of the table, in place of bits, numbers and activations | awq
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
        inference_speedup: speed-up = T_before / T_after, T = max(F / (P eta), T_expand, (W / r + O) / BW) + dispatch
            \frac{T_{\mathrm{before}}}{T_{\mathrm{after}}},\quad T = \max\left(\frac{F}{P\,\eta}, T_{\mathrm{expand}}, \frac{W/r + O}{BW}\right) + T_{\mathrm{dispatch}}
            T_before = latency_before in s, T_after = latency in s
    """)
    known_fallacies = (
        "Four-bit weights make everything four times faster: they speed up what waits for memory; prefill and training wait for arithmetic.",
        "Quantisation never helps compute-bound work: with narrow activations too, the arithmetic peak doubles.",
        "Pruning 90 % of the weights makes inference ten times faster: without a sparsity pattern that the chip supports, nothing gets faster.",
    )

    def _solve(self, x: Inputs, assumed: Assumptions) -> CompressionResult:
        """Compare the model before and after compression."""
        form, ratio = _form(x, assumed)
        found = passes(x.model, x.hardware, form, x.baseline_bitwidth, x.batch_size, x.seq_len, x.efficiency, assumed)
        main = found.get("decode") or found.get("prefill") or found["inference"]
        if "decode" in found:
            assumed["inference_speedup"] = "that of a decode step"
        original = x.model.parameter_count * x.baseline_bitwidth / 8
        accuracy = accuracy_change(x, form, assumed)
        return CompressionResult.of(
            assumed,
            main,
            form,
            x,
            feasible=main.held[1] <= main.capacity,
            binding=_binding(x, ratio, found, main),
            original_size_gb=original,
            compressed_size_gb=original / ratio,
            compression_ratio=ratio,
            memory_savings_pct=100 * (1 - 1 / ratio),
            fits_before=main.held[0] <= main.capacity,
            memory=main.held[1],
            shown={"form": form, "accuracy": accuracy, "decode": found.get("decode"), "prefill": found.get("prefill")},
            cited={"accuracy": accuracy.source} if accuracy.source else None,
        )


def _form(x: Any, assumed: Assumptions) -> tuple[Form, float]:
    """How the weights are kept, and by what factor they are smaller."""
    pattern, sparsity = _pattern(x, assumed)
    if x.format is not None:
        return _named(x, assumed)
    bits, base = _bits(x, assumed), x.baseline_bitwidth
    scale = _SCALE_BITS / x.group_size if x.group_size is not None and bits < base else 0.0
    index = 1.0 if x.count_indices and sparsity > 0 and pattern != "structured" else 0.0
    kept = kept_bits(bits, sparsity, scale, index)
    # Without a pattern the weights are expanded and read in full: no kernel for matrix units skips them.
    read = bits + scale if pattern == "unstructured" else kept
    narrow = x.number_format if x.method != "pruning" and x.quantize_activations else None
    return Form(pattern, sparsity, bits, kept, read, narrow), base / kept


def _named(x: Any, assumed: Assumptions) -> tuple[Form, float]:
    """Weights in a format of the table."""
    names = ("target_bitwidth", "number_format", "quantize_activations", "group_size")
    other = next((name for name in names if name in assumed.given and getattr(x, name) is not None), None)
    if x.method != "quantization" or other:
        words = f"CompressionModel: 'format' says how weights are quantised; leave out {other or 'method'!r}."
        raise InputError(words, field=other or "method")
    for name in names:
        assumed.pop(name, None)
    bits = 8 * stored(x.model, x.format).mean
    if bits > x.baseline_bitwidth:
        raise InputError(f"CompressionModel: {x.format} has more bits than the original.", field="format")
    return Form("none", 0.0, bits, bits, bits, None, format_of(x.format)), x.baseline_bitwidth / bits


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


def _binding(x: Any, ratio: float, found: Mapping[str, Compared], main: Compared) -> Binding:
    needed, available = main.held[1], main.capacity
    if needed > available:
        asked = f"{x.model.name} needs {needed / 1e9:.1f} GB after compression"
        there = f"{x.hardware.name} has {available / 1e9:.1f} GB"
        return wall_says(2, needed / available, f" still binds: {asked} and {there}.")
    gains = " and ".join(f"{phase} {each.speedup:.3g} times as fast" for phase, each in found.items())
    return wall_says(13, main.speedup, f": {ratio:.3g} times smaller, {gains}.")
