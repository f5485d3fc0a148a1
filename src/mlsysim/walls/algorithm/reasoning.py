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

from typing import Any

from mlsysim.cases.deployment import Deployment, language_model
from mlsysim.cases.reasoning import Query, query_cost, query_energy
from mlsysim.units.registry import conversion_factor, quantity, to_si
from mlsysim.walls.base import Assumptions, Binding, Inputs, Resolver, declared, wall_says, written
from mlsysim.walls.node.serving import ServingModel, ServingResult
from mlsysim.walls.result import Energy, Result, Time
from mlsysim.zoo.constants import constant

CARDS = """
12 Reasoning: inference-time compute
T = K T_step(P, S) (Snell et al. 2025)
What does it cost to let the model think?
"""

_YEAR = conversion_factor("year", "s")
_HOUR = conversion_factor("h", "s")


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
    inputs = declared("""
        model, hardware
        reasoning_steps = 8 | whole [1, 1e5] | steps, samples or levels, by strategy
        context_length = 2048 | whole [1, 1e8] | tokens of the prompt
        precision, efficiency
        tokens_per_step = constant reasoning_tokens_per_step | whole [1, 1e7] | tokens of one step, sample or node
        strategy = chain_of_thought | one of chain_of_thought, best_of_n, tree_search | how the steps are arranged
        branching = constant search_branching | whole [1, 1e5] | continuations at each level of a tree search
        batch_size = 1 | whole [1, 1e6] | queries that are served together
        tp_size, pp_size, ep_size, cache_precision, bandwidth_efficiency, fabric
        price_per_accelerator_hour? | [0, inf) USD/s, plain USD/h | what an accelerator costs per hour | 2.5 USD/h
        amortization_years? | (0, 100] | years over which a purchased accelerator is paid off, where no price per hour is given
        queries_per_second? | (0, 1e9] | load, for the accelerators needed
    """)
    equations = written(r"""
        total_reasoning_time: T = TTFT + d t ITL, with ITL the mean over a growing context
            T = \mathrm{TTFT} + \sum_{i=0}^{d t - 1} \mathrm{ITL}(w, S + i)
            TTFT = ttft in s, d = depth, t = tokens_per_step, ITL = itl in s, w = parallel_sequences, S = context_length
        energy_per_query: E = TDP (i n T + (1 - i) F / Peak) / queries
            E = \mathrm{TDP} \left( i\,n\,T + (1 - i) \frac{F}{\mathrm{Peak}} \right) / q
            TDP = tdp in W, i = idle, n = devices, T = total_reasoning_time in s, F = operations in flop, Peak = peak in flop/s, queries = batch_size
        cost_per_query_usd: cost = price n T / queries
            c = \frac{p\,n\,T}{q}
            price = price in USD/s, n = devices, T = total_reasoning_time in s, queries = batch_size
    """)
    known_fallacies = (
        "Eight steps cost eight times one: the prompt is read once, but every step finds a longer cache.",
        "Best-of-N multiplies latency by N: at small batches the samples share the weights and take little longer than one.",
        "Thinking is free when accelerators are idle: energy and capacity are charged for every token.",
    )

    def _solve(self, x: Inputs, assumed: Assumptions) -> ReasoningResult:
        """Write all sequences of a query, step by step, and add up time, energy and cost."""
        width = {"best_of_n": x.reasoning_steps, "tree_search": x.branching}.get(x.strategy, 1)
        depth = 1 if x.strategy == "best_of_n" else x.reasoning_steps
        if x.strategy != "tree_search":
            assumed.pop("branching", None)
        model = language_model(x.model)
        names = ("precision", "cache_precision", "efficiency", "bandwidth_efficiency", "fabric")
        options, degrees = {name: getattr(x, name) for name in names}, ("tp", "pp", "ep")
        split = {degree: getattr(x, f"{degree}_size") for degree in degrees}
        replica = Deployment(model, x.hardware, **split, **options).replica(assumed)
        options |= {f"{degree}_size": split[degree] for degree in degrees}
        sizes = x.context_length, x.batch_size * width
        detail = ServingModel().solve(model, x.hardware, *sizes, output_len=depth * x.tokens_per_step, **options)
        itl = to_si(detail.itl, "s")
        query = Query(replica, x.batch_size, x.context_length, x.tokens_per_step, width, depth, itl)
        total, devices = query.total_reasoning_time, query.devices
        idle = constant("idle_power_fraction").number
        tdp = None if x.hardware.tdp is None else to_si(x.hardware.tdp, "W")
        energy = None
        if tdp is not None:
            energy = query_energy(tdp, idle, devices, total, query.operations, query.peak, x.batch_size)
        price = _price(x, assumed)
        needed = None if x.queries_per_second is None else query.devices_for(x.queries_per_second)
        return ReasoningResult.of(
            assumed,
            query,
            x,
            feasible=detail.feasible,
            binding=_binding(detail, query.latency_multiplier),
            energy_per_query=energy,
            serving_detail=detail,
            cost_per_query_usd=None if price is None else float(query_cost(price, devices, total, x.batch_size)),
            accelerators_needed=needed,
            annual_cost_usd=None if price is None or needed is None else query_cost(price, needed, _YEAR, 1),
            shown={"tdp": tdp, "idle": idle, "price": price},
        )


def _price(x: Any, assumed: Assumptions) -> float | None:
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
    assumed["price_per_accelerator_hour"] = (
        f"{rate * _HOUR:.3g} USD/h: {x.hardware.unit_cost:,.0f~P} over {period:g~P}, without electricity and hosting"
    )
    return rate


def _binding(detail: ServingResult, multiplier: float) -> Binding:
    if not detail.feasible:
        return Binding(detail.binding.wall, detail.binding.name, detail.binding.margin, detail.binding.sentence)
    waits = f"each token waits for {detail.decode_bottleneck.lower()}"
    said = f" binds: the query takes {multiplier:.3g} times as long as one step of one sequence; {waits}."
    return wall_says(12, multiplier, said)
