"""Wall 12, reasoning: an answer that is thought over costs as many tokens as the thoughts have.

    T = TTFT + sum over d t tokens of ITL(w sequences, context S + i)                       (after Snell et al. 2025)
    E = n TDP ( i T + (1 - i) F / (n Peak) )         the power i + (1 - i) MFU of the TDP over the whole query

A strategy writes w sequences side by side for d steps of t tokens each:

    chain_of_thought   w = 1, d = K          steps follow each other; the cache grows with all of them
    best_of_n          w = K, d = 1          K answers at once, the best is kept
    tree_search        w = branching, d = K  at each of K levels so many continuations, the best is kept

The paper writes T = K T_step with a constant step; here the context grows from S to S + d t and the sum is exact. The
prompt is read once. Costs are shared by the ``batch_size`` queries that are served together.

Assumed: all sequences of a query run in one batch; each reads its own cache, prompt included. Left out: the verifier or
reward model (a prefill of what was written: with a model of the same size, the cost of reading it, often 5 to 20 %);
idle accelerators; electricity and hosting, where the price is an amortised purchase.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

from mlsysim.cases.assumptions import Assumptions
from mlsysim.cases.deployment import build_replica, language_model
from mlsysim.cases.phases import Decoder, prefill_passes, sum_over_steps
from mlsysim.cases.replica import Replica
from mlsysim.units.kernel import Arg, kernel
from mlsysim.units.registry import quantity, to_si
from mlsysim.walls.base import (
    ALGORITHM,
    EFFICIENCY,
    HARDWARE,
    MODEL,
    PRECISION,
    Binding,
    Energy,
    Equation,
    Input,
    Inputs,
    Resolver,
    Result,
    Time,
    Wall,
    default_constant,
)
from mlsysim.walls.node.serving import ServingModel, ServingResult
from mlsysim.zoo.constants import constant

__all__ = ["CARDS", "InferenceScalingModel", "ReasoningResult", "query_cost", "query_energy"]

CARDS = (
    Wall(
        12,
        "Reasoning",
        ALGORITHM,
        "InferenceScalingModel",
        "inference-time compute",
        "T = K T_step(P, S)",
        "Snell et al. 2025",
        "What does it cost to let the model think?",
    ),
)

STRATEGIES = ("chain_of_thought", "best_of_n", "tree_search")

_TIME = Arg("s", 1e-3, 1e5)
_DEVICES = Arg("", 1, 1e4)


@kernel(
    inputs={
        "tdp": Arg("W", 0.01, 2e4),
        "idle_fraction": Arg("", 0.01, 0.99),
        "devices": _DEVICES,
        "time": _TIME,
        "operations": Arg("flop", 1e9, 1e20),
        "peak": Arg("flop/s", 1e9, 1e16),
    },
    outputs={"energy": "J"},
)
def query_energy(tdp: Any, idle_fraction: Any, devices: Any, time: Any, operations: Any, peak: Any) -> Any:
    """Energy of devices that draw i + (1 - i) MFU of their TDP: linear in MFU, so only the totals matter."""
    return tdp * (idle_fraction * devices * time + (1 - idle_fraction) * operations / peak)


@kernel(
    inputs={"price": Arg("USD/s", 1e-6, 1e-1), "devices": _DEVICES, "time": _TIME, "queries": Arg("", 1, 1e4)},
    outputs={"cost": "USD"},
)
def query_cost(price: Any, devices: Any, time: Any, queries: Any) -> Any:
    """A query's share of the accelerators while they serve it and its neighbours."""
    return price * devices * time / queries


class ReasoningResult(Result):
    """What one query costs. ``latency_multiplier`` compares with one step of one sequence."""

    total_reasoning_time: Time
    ttft: Time
    itl: Time
    tokens_generated: int
    reasoning_steps: int
    time_per_step: Time
    energy_per_query: Energy
    serving_detail: ServingResult
    strategy: str
    parallel_sequences: int
    final_context: int
    latency_multiplier: float
    compute_multiplier: float
    cost_per_query_usd: float | None = None
    accelerators_needed: int | None = None
    annual_cost_usd: float | None = None
    mfu: float


class InferenceScalingModel(Resolver[ReasoningResult]):
    """Time, energy and cost of a query that reasons in steps, samples several answers or searches a tree."""

    walls = (12,)
    result = ReasoningResult
    inputs: ClassVar[dict[str, Input]] = {
        "model": MODEL,
        "hardware": HARDWARE,
        "reasoning_steps": Input("steps, samples or levels, by strategy", low=1, high=1e5, whole=True, default=8),
        "context_length": Input("tokens of the prompt", low=1, high=1e8, whole=True, default=2048),
        "precision": PRECISION,
        "efficiency": EFFICIENCY,
        "tokens_per_step": Input(
            "tokens of one step, sample or node",
            low=1,
            high=1e7,
            whole=True,
            default=int(default_constant("reasoning_tokens_per_step")),
        ),
        "strategy": Input("how the steps are arranged", kind="choice", choices=STRATEGIES, default="chain_of_thought"),
        "branching": Input(
            "continuations at each level of a tree search",
            low=1,
            high=1e5,
            whole=True,
            default=int(default_constant("search_branching")),
        ),
        "batch_size": Input("queries that are served together", low=1, high=1e6, whole=True, default=1),
        "tp_size": Input("tensor-parallel devices of a replica", low=1, high=1e4, whole=True, default=1),
        "pp_size": Input("pipeline stages of a replica", low=1, high=1e4, whole=True, default=1),
        "ep_size": Input("devices that share the experts of a mixture", low=1, high=1e4, whole=True, default=1),
        "cache_precision": Input("number format of the cache", kind="precision", default=None),
        "bandwidth_efficiency": Input(
            "fraction of the memory bandwidth that is reached", low=0, low_open=True, high=1, default=1.0
        ),
        "fabric": Input(
            "network between nodes, for groups wider than the chip's own links", kind="fabric", default=None
        ),
        "price_per_accelerator_hour": Input(
            "what an accelerator costs per hour",
            kind="quantity",
            unit="USD/s",
            low=0,
            default=None,
            plain_unit="USD/h",
            example="2.5 USD/h",
        ),
        "amortization_years": Input(
            "years over which a purchased accelerator is paid off, where no price per hour is given",
            low=0,
            low_open=True,
            high=100,
            default=None,
        ),
        "queries_per_second": Input("load, for the accelerators needed", low=0, low_open=True, high=1e9, default=None),
    }
    equations = (
        Equation(
            "total_reasoning_time",
            "T = TTFT + d t ITL, with ITL the mean over a growing context",
            r"T = \mathrm{TTFT} + \sum_{i=0}^{d t - 1} \mathrm{ITL}(w, S + i)",
            {
                "TTFT": ("ttft", "s"),
                "d": ("depth", ""),
                "t": ("tokens_per_step", ""),
                "ITL": ("itl", "s"),
                "w": ("parallel_sequences", ""),
                "S": ("context_length", ""),
            },
        ),
        Equation(
            "energy_per_query",
            "E = TDP (i n T + (1 - i) F / Peak) / queries",
            r"E = \mathrm{TDP} \left( i\,n\,T + (1 - i) \frac{F}{\mathrm{Peak}} \right) / q",
            {
                "TDP": ("tdp", "W"),
                "i": ("idle", ""),
                "n": ("devices", ""),
                "T": ("total_reasoning_time", "s"),
                "F": ("operations", "flop"),
                "Peak": ("peak", "flop/s"),
                "queries": ("batch_size", ""),
            },
        ),
        Equation(
            "cost_per_query_usd",
            "cost = price n T / queries",
            r"c = \frac{p\,n\,T}{q}",
            {
                "price": ("price", "USD/s"),
                "n": ("devices", ""),
                "T": ("total_reasoning_time", "s"),
                "queries": ("batch_size", ""),
            },
        ),
    )
    known_fallacies = (
        "Eight steps cost eight times one: the prompt is read once, but every step finds a longer cache.",
        "Best-of-N multiplies latency by N: at small batches the samples share the weights and take little longer than one.",
        "Thinking is free when accelerators are idle: energy and capacity are charged for every token.",
    )

    def _solve(self, x: Inputs, assumed: Assumptions) -> ReasoningResult:
        """Write all sequences of a query, step by step, and add up time, energy and cost."""
        width, depth = _shape(x)
        if x.strategy != "tree_search":
            assumed.pop("branching", None)
        steps = depth * x.tokens_per_step
        model = language_model(x.model, "InferenceScalingModel")
        options = {
            "precision": x.precision,
            "cache_precision": x.cache_precision,
            "efficiency": x.efficiency,
            "bandwidth_efficiency": x.bandwidth_efficiency,
            "fabric": x.fabric,
        }
        replica = build_replica(model, x.hardware, assumed, tp=x.tp_size, pp=x.pp_size, ep=x.ep_size, **options)
        detail = ServingModel().solve(
            model,
            x.hardware,
            x.context_length,
            x.batch_size * width,
            output_len=steps,
            tp_size=x.tp_size,
            pp_size=x.pp_size,
            ep_size=x.ep_size,
            **options,
        )
        reading = prefill_passes(replica, x.batch_size, x.context_length)(0)
        writing = to_si(detail.itl, "s") * steps
        total = reading + writing
        operations = _operations(replica, x.batch_size * width, x.context_length, steps) + _prompt_operations(x)
        single = reading + _written(replica, x.batch_size, x.context_length, x.tokens_per_step)
        single_operations = _operations(
            replica, x.batch_size, x.context_length, x.tokens_per_step
        ) + _prompt_operations(x)

        idle = constant("idle_power_fraction").number
        tdp = None if x.hardware.tdp is None else to_si(x.hardware.tdp, "W")
        energy = None
        if tdp is not None:
            energy = query_energy(tdp, idle, replica.devices, total, operations, replica.peak) / x.batch_size
        price = self._price(x, assumed)
        cost = None if price is None else float(query_cost(price, replica.devices, total, x.batch_size))
        needed = None
        if x.queries_per_second is not None:
            needed = math.ceil(x.queries_per_second * total / x.batch_size) * replica.devices
        year = to_si(quantity(1.0, "year"), "s")
        return ReasoningResult.of(
            assumed,
            feasible=detail.feasible,
            binding=_binding(detail, total / single),
            total_reasoning_time=total,
            ttft=reading,
            itl=writing / steps,
            tokens_generated=width * steps,
            reasoning_steps=x.reasoning_steps,
            time_per_step=writing / depth,
            energy_per_query=energy,
            serving_detail=detail,
            strategy=x.strategy,
            parallel_sequences=width,
            final_context=x.context_length + steps,
            latency_multiplier=total / single,
            compute_multiplier=operations / single_operations,
            cost_per_query_usd=cost,
            accelerators_needed=needed,
            annual_cost_usd=None if price is None or needed is None else price * needed * year,
            mfu=operations / (total * replica.devices * replica.peak),
            shown={
                "depth": depth,
                "tdp": tdp,
                "idle": idle,
                "devices": replica.devices,
                "operations": operations,
                "peak": replica.peak,
                "price": price,
            },
            cited={"model": x.model, "hardware": x.hardware},
        )

    @staticmethod
    def _price(x: Any, assumed: dict[str, str]) -> float | None:
        """USD per accelerator and second: as given, else the amortised purchase price; None where neither is known."""
        if x.price_per_accelerator_hour is not None:
            return float(x.price_per_accelerator_hour)
        if x.hardware.unit_cost is None:
            assumed["cost"] = f"not known: {x.hardware.name} has no price; give price_per_accelerator_hour"
            return None
        period = constant("amortization_period").quantity
        if x.amortization_years is not None:
            period = quantity(x.amortization_years, "year")
        rate = to_si(x.hardware.unit_cost, "USD") / to_si(period, "s")
        hourly = rate * to_si(quantity(1.0, "hour"), "s")
        assumed["price_per_accelerator_hour"] = (
            f"{hourly:.3g} USD/h: {x.hardware.unit_cost:,.0f~P} over {period:g~P}, without electricity and hosting"
        )
        return rate


def _shape(x: Any) -> tuple[int, int]:
    """Sequences side by side, and steps one after the other."""
    if x.strategy == "best_of_n":
        return x.reasoning_steps, 1
    return (x.branching if x.strategy == "tree_search" else 1), x.reasoning_steps


def _operations(replica: Replica, sequences: int, context: int, steps: int) -> float:
    """Operations of writing ``steps`` tokens in each sequence."""

    def one(length: float) -> float:
        return float(
            replica.model.demand("decode", batch_size=sequences, context=length, precision=replica.precision).flops
        )

    return float(sum_over_steps(lambda *_: one, None, None, context, steps))


def _written(replica: Replica, sequences: int, context: int, steps: int) -> float:
    """Time to write ``steps`` tokens in each sequence."""
    return float(sum_over_steps(lambda *_: Decoder(replica, sequences).time_per_token, None, None, context, steps))


def _prompt_operations(x: Any) -> float:
    demand = x.model.demand("prefill", batch_size=x.batch_size, seq_len=x.context_length, precision=x.precision)
    return float(demand.flops)


def _binding(detail: ServingResult, multiplier: float) -> Binding:
    if not detail.feasible:
        return Binding(detail.binding.wall, detail.binding.name, detail.binding.margin, detail.binding.sentence)
    sentence = (
        f"Wall 12 (Reasoning) binds: the query takes {multiplier:.3g} times as long as one step of one sequence; "
        f"each token waits for {detail.decode_bottleneck.lower()}."
    )
    return Binding(12, "Reasoning", multiplier, sentence)
