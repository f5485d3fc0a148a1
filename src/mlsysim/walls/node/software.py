"""Wall 3, software: the part of the peak arithmetic rate that programs reach.

    eta = FLOP/s achieved / FLOP/s peak                                              (Chowdhery et al. 2023)

eta cannot be derived from a data sheet, so it is given as classes of work with the range that publications report
(``data/efficiency.toml``). A stated ``efficiency`` takes the place of the class. Two things bend the class:

    FlashAttention   attention fused into one kernel keeps its scores on the chip. Its class lies 2 times above unfused
                     attention (0.30 to 0.62; up to 2.5 times with the best kernels, 0.75). For a whole transformer
                     layer the gain is diluted by the matrix products:  eta = F / (F_mm / eta_mm + F_att / eta_att)
    the roofline     decode at small batches cannot exceed intensity over ridge point, whatever the software

Assumed: one scalar for all operators of the class; dense peaks. Left out: shape effects (a product with a side below 512
can be 2 to 5 times below its class) and power limits (up to 20 % on cards that throttle).
"""

from __future__ import annotations

from typing import Any

from mlsysim.errors import InputError
from mlsysim.hardware.arithmetic import arithmetic_peak
from mlsysim.models.transformer import TransformerWorkload
from mlsysim.timing.efficiency import blended_efficiency, efficiency_class, roofline_limited
from mlsysim.units.registry import to_si
from mlsysim.walls.base import Assumptions, Binding, Inputs, Resolver, declared, wall_says, written
from mlsysim.walls.result import Result, WorkRate

CARDS = """
3 Software: achieved share of the peak (MFU)
eta = FLOP/s achieved / FLOP/s peak (Chowdhery et al. 2023)
How much of the peak does software reach?
"""


CLASSES = ("ffn", "gemm", "attention", "flash_attention", "transformer", "training", "prefill", "decode", "convolution")


class EfficiencyResult(Result):
    """What software makes of the peak. ``overhead_breakdown`` has the shares of the peak; they add to 1."""

    mfu: float
    achievable_flops: WorkRate
    peak_flops: WorkRate
    workload_type: str
    use_flash_attention: bool
    overhead_breakdown: dict[str, float]
    efficiency_low: float
    efficiency_high: float
    flash_attention_speedup: float | None = None
    sources: tuple[str, ...] = ()


class EfficiencyModel(Resolver[EfficiencyResult]):
    """Sustained arithmetic rate of a class of work on a chip, from published ranges."""

    walls = (3,)
    inputs = declared(f"""
        model, hardware
        workload_type = ffn | one of {", ".join(CLASSES)} | class of work
        use_flash_attention = no | flag | attention fused into one kernel
        precision
        efficiency? | (0, 1] | measured efficiency, in place of the class's
        batch_size = 1 | whole [1, 1e9] | sequences, for decode
        seq_len = 2048 | whole [1, 1e8] | tokens of a sequence, for a whole transformer
    """)
    equations = written(r"""
        mfu if intensity: eta = min(eta_class, I / I*)
            \eta = \min\left(\eta_{\mathrm{class}}, I / I^{*}\right)
            eta_class = class_efficiency, I = intensity in flop/B, I* = ridge in flop/B
        mfu if products: eta = F / (F_mm / eta_mm + F_att / eta_att)
            \eta = \frac{F}{F_{\mathrm{mm}} / \eta_{\mathrm{mm}} + F_{\mathrm{att}} / \eta_{\mathrm{att}}}
            F_mm = products in flop, eta_mm = products_efficiency, F_att = attention in flop, eta_att = attention_efficiency
        achievable_flops: FLOP/s = eta Peak
            \mathrm{FLOP/s} = \eta \cdot \mathrm{Peak}
            eta = mfu, Peak = peak_flops in flop/s
    """)
    known_fallacies = (
        "A newer chip is the remedy for a slow program: its gap between peak and achieved is often larger than the gap between chips.",
        "FlashAttention speeds up a model as much as it speeds up attention: only attention's share of the time shrinks.",
        "eta corrects for memory bandwidth too: it scales the arithmetic ceiling alone.",
    )

    def _solve(self, x: Inputs, assumed: Assumptions) -> EfficiencyResult:
        """Look up the class, apply FlashAttention and the roofline, and scale the peak."""
        kind = "flash_attention" if x.workload_type == "attention" and x.use_flash_attention else x.workload_type
        if kind == "flash_attention":
            x = x.but(use_flash_attention=True)
        elif x.use_flash_attention and kind != "transformer":
            assumed["use_flash_attention"] = f"without effect on {kind}: no attention in it, or already in the range"
        if kind != "decode":
            assumed.pop("batch_size", None)
        if kind != "transformer":
            assumed.pop("seq_len", None)
        peak, note = arithmetic_peak(x.hardware, x.precision)
        if note:
            assumed["arithmetic"] = note
        fused, unfused = efficiency_class("flash_attention"), efficiency_class("attention")
        shown: dict[str, Any] = {}
        speedup = None
        if kind == "transformer":
            (low, typical, high), cited, speedup = _blended(x, shown)
        else:
            found = efficiency_class(kind)
            low, typical, high = found.low, found.typical, found.high
            cited = tuple(source.title for source in found.sources)
            if kind in ("attention", "flash_attention") and x.efficiency is None:
                speedup = fused.typical / unfused.typical
        if x.efficiency is not None:
            low = typical = high = x.efficiency
            cited = ("given by the user",)
        else:
            assumed["efficiency"] = f"{typical:.3g}, published {low:.3g} to {high:.3g} for {kind}"
        mfu, breakdown = typical, {}
        if kind == "decode":
            mfu, ceiling = _decode(x, typical, peak, shown)
            low, high = min(low, mfu), min(high, max(mfu, ceiling))
            breakdown = {"waiting_for_memory": 1.0 - ceiling} if ceiling < 1 else {}
        if kind == "attention" and x.efficiency is None:
            breakdown["unfused_attention"] = fused.typical - mfu
        breakdown = {"useful": mfu, **breakdown}
        return EfficiencyResult.of(
            assumed,
            x,
            binding=_binding(kind, mfu, breakdown.get("waiting_for_memory", 0.0)),
            mfu=mfu,
            achievable_flops=peak * mfu,
            peak_flops=peak,
            overhead_breakdown={**breakdown, "software": max(0.0, 1.0 - sum(breakdown.values()))},
            efficiency_low=low,
            efficiency_high=high,
            flash_attention_speedup=speedup,
            sources=cited,
            shown={"class_efficiency": typical, **shown},
            cited={"efficiency": "; ".join(cited)},
        )


def _blended(x: Any, shown: dict[str, Any]) -> tuple[tuple[float, ...], tuple[str, ...], float]:
    """Low, typical and high efficiency of a whole transformer layer, their sources, and what FlashAttention gains."""
    model = x.model
    if not isinstance(model, TransformerWorkload) or not model.has_dimensions or model.structure == "encoder-decoder":
        needs = "needs a transformer of one stack with layers, hidden_dim and heads"
        words = f"{needs}, and {model.name} is none; name a class of work such as 'ffn'"
        raise InputError(f"workload_type='transformer' {words}.", field="workload_type")
    attention = model.totals.attention_operations("prefill", x.seq_len, 0)
    products = model.demand("prefill", seq_len=x.seq_len, precision=x.precision).flops - attention
    matrix, plain, fused = (efficiency_class(name) for name in ("ffn", "attention", "flash_attention"))
    inner = fused if x.use_flash_attention else plain
    ends = tuple(
        float(blended_efficiency(products, getattr(matrix, end), attention, getattr(inner, end)))
        for end in ("low", "typical", "high")
    )
    before, after = (blended_efficiency(products, matrix.typical, attention, each.typical) for each in (plain, fused))
    if x.efficiency is None:
        shown |= {"products": products, "products_efficiency": matrix.typical}
        shown |= {"attention": attention, "attention_efficiency": inner.typical}
    return ends, tuple(source.title for part in (matrix, inner) for source in part.sources), float(after / before)


def _decode(x: Any, typical: float, peak: float, shown: dict[str, Any]) -> tuple[float, float]:
    """Efficiency of one decode pass, and what the roofline allows."""
    if not isinstance(x.model, TransformerWorkload):
        raise InputError(f"{x.model.name} does not decode token by token; use another class of work.", field="model")
    demand = x.model.demand("decode", batch_size=x.batch_size, precision=x.precision)
    bandwidth = to_si(x.hardware.memory.bandwidth, "byte/s")
    mfu, ceiling = (float(roofline_limited(e, demand.flops, demand.bytes, peak, bandwidth)) for e in (typical, 1.0))
    shown |= {"intensity": demand.flops / demand.bytes, "ridge": peak / bandwidth}
    return mfu, ceiling


def _binding(kind: str, mfu: float, waiting: float) -> Binding:
    if waiting and abs(1.0 - waiting - mfu) < 1e-12:
        return wall_says(2, 1 / mfu, f" binds: at this batch no software lifts decode above {mfu:.3g} of the peak.")
    return wall_says(3, 1 / mfu, f" binds: {kind} leaves {1 - mfu:.0%} of the peak unused.")
