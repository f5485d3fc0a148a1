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

from functools import cache, lru_cache
from importlib.resources import files
from typing import Any, ClassVar

from mlsysim.cases.assumptions import Assumptions
from mlsysim.errors import InputError, unknown_name
from mlsysim.hardware.arithmetic import arithmetic_peak
from mlsysim.models.transformer import TransformerWorkload
from mlsysim.units.fields import Record
from mlsysim.units.kernel import kernel
from mlsysim.units.ops import minimum
from mlsysim.units.registry import to_si
from mlsysim.walls.base import Resolver
from mlsysim.walls.binding import Binding
from mlsysim.walls.explanation import written
from mlsysim.walls.inputs import HARDWARE, MODEL, PRECISION, Input, Inputs
from mlsysim.walls.result import Result, WorkRate
from mlsysim.zoo.files import Slice, parse_slice, slices
from mlsysim.zoo.provenance import Source

CARDS = """
3 Software: achieved share of the peak (MFU)
eta = FLOP/s achieved / FLOP/s peak (Chowdhery et al. 2023)
How much of the peak does software reach?
"""


@kernel("peak: flop/s [1e9, 1e16], efficiency [0.01, 1] -> rate: flop/s")
def achieved_rate(peak: Any, efficiency: Any) -> Any:
    """What is left of the peak."""
    return peak * efficiency


@kernel("""
    efficiency [0.01, 1], operations: flop [1e6, 1e18], moved: byte [1e3, 1e13], peak: flop/s [1e9, 1e16],
    bandwidth: byte/s [1e6, 1e14] -> efficiency
""")
def roofline_limited(efficiency: Any, operations: Any, moved: Any, peak: Any, bandwidth: Any) -> Any:
    """The class's efficiency, or arithmetic intensity over ridge point where that is less."""
    return minimum(efficiency, (operations / moved) * (bandwidth / peak))


@kernel("""
    products: flop [1e6, 1e18], products_efficiency [0.01, 1], attention: flop [1e6, 1e18],
    attention_efficiency [0.01, 1] -> efficiency
""")
def blended_efficiency(products: Any, products_efficiency: Any, attention: Any, attention_efficiency: Any) -> Any:
    """Efficiency of work in two parts that run one after the other: the times add, so the inverses do."""
    return (products + attention) / (products / products_efficiency + attention / attention_efficiency)


class EfficiencyClass(Record):
    """A class of work: the range of eta that publications report and a value to start from."""

    name: str
    meaning: str
    low: float
    typical: float
    high: float
    sources: tuple[Source, ...]


@lru_cache(maxsize=1)
def _index() -> dict[str, Slice]:
    text = files("mlsysim.data").joinpath("efficiency.toml").read_text(encoding="utf-8")
    return {piece.key: piece for piece in slices("efficiency.toml", text)}


def efficiency_classes() -> list[str]:
    """Names of all classes."""
    return list(_index())


@cache
def efficiency_class(name: str) -> EfficiencyClass:
    """The class of that name."""
    index = _index()
    if name not in index:
        raise unknown_name("class of work", name, index)
    return EfficiencyClass(name=name, **parse_slice(index[name]))


WORKLOAD_TYPES = (
    "ffn",
    "gemm",
    "attention",
    "flash_attention",
    "transformer",
    "training",
    "prefill",
    "decode",
    "convolution",
)


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
    result = EfficiencyResult
    inputs: ClassVar[dict[str, Input]] = {
        "model": MODEL,
        "hardware": HARDWARE,
        "workload_type": Input.of("class of work", WORKLOAD_TYPES, "ffn"),
        "use_flash_attention": Input.of("attention fused into one kernel", "flag", False),
        "precision": PRECISION,
        "efficiency": Input(
            "measured efficiency, in place of the class's",
            kind="efficiency",
            low=0.0,
            high=1.0,
            low_open=True,
            default=None,
        ),
        "batch_size": Input.of("sequences, for decode", "whole [1, 1e9]", 1),
        "seq_len": Input.of("tokens of a sequence, for a whole transformer", "whole [1, 1e8]", 2048),
    }
    equations = written(r"""
        mfu if decode: eta = min(eta_class, I / I*)
            \eta = \min\left(\eta_{\mathrm{class}}, I / I^{*}\right)
            eta_class = class_efficiency, I = intensity in flop/B, I* = ridge in flop/B
        mfu if blended: eta = F / (F_mm / eta_mm + F_att / eta_att)
            \eta = \frac{F}{F_{\mathrm{mm}} / \eta_{\mathrm{mm}} + F_{\mathrm{att}} / \eta_{\mathrm{att}}}
            F_mm = products in flop, eta_mm = products_efficiency, F_att = attention in flop, eta_att = attention_efficiency
        achievable_flops: FLOP/s = eta Peak
            \mathrm{FLOP/s} = \eta \cdot \mathrm{Peak}
            eta = mfu, Peak = peak_flops in flop/s
    """)
    known_fallacies = (
        "A newer chip is the remedy for a slow program: the gap between peak and achieved is often the larger one.",
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
        context: dict[str, Any] = {}
        low, typical, high, cited = self._range(x, kind, context)
        if x.efficiency is not None:
            low = typical = high = x.efficiency
            cited = ("given by the user",)
            context["blended"] = False
        else:
            assumed["efficiency"] = f"{typical:.3g}, published {low:.3g} to {high:.3g} for {kind}"
        mfu, waiting = typical, 0.0
        if kind == "decode":
            mfu, waiting = self._decode(x, typical, peak, context)
            low, high = min(low, mfu), min(high, max(mfu, 1 - waiting))
        fusion = efficiency_class("flash_attention").typical / efficiency_class("attention").typical
        breakdown = {"useful": mfu}
        if waiting:
            breakdown["waiting_for_memory"] = waiting
        if kind == "attention" and x.efficiency is None:
            breakdown["unfused_attention"] = efficiency_class("flash_attention").typical - mfu
        breakdown["software"] = max(0.0, 1.0 - sum(breakdown.values()))
        attention = kind in ("attention", "flash_attention") and x.efficiency is None
        return EfficiencyResult.of(
            assumed,
            binding=self._binding(kind, mfu, waiting),
            mfu=mfu,
            achievable_flops=achieved_rate(peak, mfu),
            peak_flops=peak,
            workload_type=x.workload_type,
            use_flash_attention=x.use_flash_attention,
            overhead_breakdown=breakdown,
            efficiency_low=low,
            efficiency_high=high,
            flash_attention_speedup=fusion if attention else context.get("speedup"),
            sources=cited,
            shown=context | {"class_efficiency": typical, "decode": kind == "decode"},
            cited={"hardware": x.hardware, "efficiency": "; ".join(cited)},
        )

    @staticmethod
    def _range(x: Any, kind: str, context: dict[str, Any]) -> tuple[float, float, float, tuple[str, ...]]:
        """Low, typical and high efficiency of the class, and their sources."""
        if kind != "transformer":
            found = efficiency_class(kind)
            return found.low, found.typical, found.high, tuple(source.title for source in found.sources)
        model = x.model
        if (
            not isinstance(model, TransformerWorkload)
            or not model.has_dimensions
            or model.structure == "encoder-decoder"
        ):
            raise InputError(
                f"workload_type='transformer' needs a transformer of one stack with layers, hidden_dim and heads, and "
                f"{model.name} is none; name a class of work such as 'ffn'.",
                field="workload_type",
            )
        demand = model.demand("prefill", seq_len=x.seq_len, precision=x.precision)
        attention = model.totals.attention_operations("prefill", x.seq_len, 0)
        products = demand.flops - attention
        matrix, plain, fused = (efficiency_class(name) for name in ("ffn", "attention", "flash_attention"))
        inner = fused if x.use_flash_attention else plain
        low, typical, high = (
            float(blended_efficiency(products, getattr(matrix, end), attention, getattr(inner, end)))
            for end in ("low", "typical", "high")
        )
        unfused = blended_efficiency(products, matrix.typical, attention, plain.typical)
        with_fusion = blended_efficiency(products, matrix.typical, attention, fused.typical)
        context |= {
            "blended": True,
            "products": products,
            "products_efficiency": matrix.typical,
            "attention": attention,
            "attention_efficiency": inner.typical,
            "speedup": float(with_fusion / unfused),
        }
        return low, typical, high, tuple(source.title for part in (matrix, inner) for source in part.sources)

    @staticmethod
    def _decode(x: Any, typical: float, peak: float, context: dict[str, Any]) -> tuple[float, float]:
        """Efficiency of one decode pass, and the share of the peak that waits for memory."""
        if not isinstance(x.model, TransformerWorkload):
            raise InputError(
                f"{x.model.name} does not decode token by token; use another class of work.", field="model"
            )
        demand = x.model.demand("decode", batch_size=x.batch_size, precision=x.precision)
        bandwidth = to_si(x.hardware.memory.bandwidth, "byte/s")
        mfu = float(roofline_limited(typical, demand.flops, demand.bytes, peak, bandwidth))
        ceiling = float(roofline_limited(1.0, demand.flops, demand.bytes, peak, bandwidth))
        context |= {"intensity": demand.flops / demand.bytes, "ridge": peak / bandwidth}
        return mfu, 1.0 - ceiling

    @staticmethod
    def _binding(kind: str, mfu: float, waiting: float) -> Binding:
        if waiting and abs(1.0 - waiting - mfu) < 1e-12:
            sentence = f"Wall 2 (Memory) binds: at this batch no software lifts decode above {mfu:.3g} of the peak."
            return Binding(2, "Memory", 1 / mfu, sentence)
        sentence = f"Wall 3 (Software) binds: {kind} leaves {1 - mfu:.0%} of the peak unused."
        return Binding(3, "Software", 1 / mfu, sentence)
