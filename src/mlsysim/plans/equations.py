"""An equation for every number of an answer, with the values that went into it.

A metric that a resolver gives has the resolver's equation. A time and a memory are the sums of their parts. Everything else is
one line of :data:`FORMULAS`, whose symbols are other metrics, facts that the evaluation knows, or values of the resolvers that it
asked. The value is the text of the metric, so that an explanation ends in the digits that were printed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from mlsysim.plans.answer import Equation, MemoryBar, Metric, Part, value_text
from mlsysim.units.registry import Quantity, quantity
from mlsysim.units.text import byte_unit, time_unit
from mlsysim.walls import explanation
from mlsysim.walls.catalog import TITLES
from mlsysim.walls.explanation import filled, number, written
from mlsysim.walls.result import Result

FIELDS = {
    "scaling_efficiency": "scaling_efficiency",
    "bubble": "bubble_fraction",
    "mtbf": "fleet_mtbf",
    "goodput": "goodput_ratio",
    "checkpoint_time": "write_time_seconds",
    "checkpoint_interval": "optimal_checkpoint_interval",
    "tco": "tco_usd",
    "purchase": "purchase_price_usd",
    "rent": "cloud_cost_usd",
    "power": "power",
    "energy": "total_energy_kwh",
    "carbon_footprint": "carbon_footprint_kg",
    "water": "water_usage_liters",
    "data_utilization": "utilization",
    "kv_cache": "kv_cache_size",
    "max_batch": "max_batch_size",
    "longest_context": "longest_context",
}
"""Metrics that are fields of resolvers with an equation of their own."""


FORMULAS = written(r"""
    memory_capacity: C = max(1, u) C_0, what the driver offers of the datasheet's or more
        C = \max(1, u)\,C_0
        C_0 = memory_stated, u = memory_offered
    memory_capacity: C, of the datasheet
        C
        C = memory_stated
    flash_capacity: C, of the datasheet
        C
        C = flash_stated
    flash: W = P b
        W = P\,b
        P = parameters, b = weight_bytes
    model_state: M_W + M_G + M_O
        M_W + M_G + M_O
        M_W = weights, M_G = gradients, M_O = optimizer_state
    activations: M_A = L m + r + V + c
        M_A = L\,m + r + V + c
        L = layers_kept, m = bytes_a_layer_keeps, r = bytes_of_the_layer_computed_again, V = bytes_of_the_logits, c = bytes_of_cast_weights
    activations: M_A = B m
        M_A = B\,m
        B = samples_on_a_device, m = bytes_a_sample_keeps
    mfu: MFU = F / (N T P)
        \mathrm{MFU} = \frac{F}{N\,T\,P}
        F = model_operations, N = accelerators, T = latency, P = peak
    mfu: MFU = F / (T C)
        \mathrm{MFU} = \frac{F}{T\,C}
        F = model_operations, T = latency, C = peak_of_all_groups
    hfu: HFU = F / (N T P), recomputed operations counted too
        \mathrm{HFU} = \frac{F}{N\,T\,P}
        F = hardware_operations, N = accelerators, T = latency, P = peak
    bubble: T_idle / T
        T_{\mathrm{idle}} / T
        T_idle = pipeline_bubble_latency in s, T = latency
    throughput: X = B / T
        X = \frac{B}{T}
        B = samples, T = latency
    arithmetic_intensity: I = F / B
        I = \frac{F}{B}
        F = operations, B = bytes_moved
    bottleneck: the wall with most of the time
        \arg\max_i t_i
        of = time_by_wall
    energy_per_sample: e = E / B
        e = E / B
        E = energy_of_the_pass, B = samples
    carbon_per_million: CO2 = 10^6 e PUE CI
        \mathrm{CO_2} = 10^6\,e\,\mathrm{PUE}\,\mathrm{CI}
        e = energy_per_sample, PUE = pue, CI = carbon_of_the_grid
    samples_per_charge: C / e
        C / e
        C = battery, e = energy_per_sample
    tokens_per_second: X = n / T
        X = \frac{n}{T}
        n = work_of_a_step, T = latency
    tokens_per_second: X = r n
        X = r\,n
        r = requests_per_second, n = tokens_of_an_answer
    tokens_per_second_per_device: X / N
        X / N
        X = tokens_per_second, N = devices_that_serve
    requests_per_second: r = X / n, at the rate that was measured
        r = X / n
        X = measured_rate, n = tokens_of_an_answer
    requests_per_second: r = R / (R / min(c / T, r_come) + T), until the last answer
        r = \frac{R}{R / \min(c / T, r_{\mathrm{come}}) + T}
        R = requests_in_all, c = requests_in_flight, T = latency, r_come = requests_that_come
    requests_per_second: r = min(c / T, r_come)
        r = \min(c / T, r_{\mathrm{come}})
        c = requests_in_flight, T = latency, r_come = requests_that_come
    requests_per_second: r = c / T
        r = \frac{c}{T}
        c = requests_in_flight, T = latency
    user_rate: 1 / TPOT
        1 / \mathrm{TPOT}
        TPOT = tpot
    accelerator_power: p = TDP w / (1 + (w / k)^16)^(1/16), with w = i + f b^e + m u + a v
        p = \mathrm{TDP}\,\frac{w}{(1 + (w/k)^{16})^{1/16}},\quad w = i + f\,b^e + m\,u + a\,v
        TDP = tdp, i = idle, f = floor, b = busy, e = exponent, m = memory_share, u = memory_utilisation, a = arithmetic, v = arithmetic_utilisation, k = cap
    accelerator_power: p = TDP (i + (1 - i) MFU)
        p = \mathrm{TDP}\,(i + (1 - i)\,\mathrm{MFU})
        TDP = tdp, i = idle, MFU = used
    energy_per_token: e = E / D
        e = E / D
        E = energy, D = work_of_the_run
    carbon_per_mtoken: c = 10^6 CO2 / D
        c = 10^6\,\mathrm{CO_2} / D
        CO2 = carbon_footprint, D = work_of_the_run
    run_time: t = D / (X G)
        t = \frac{D}{X\,G}
        D = work_of_the_run, X = tokens_per_second, G = goodput
    tokens: D = X G t
        D = X\,G\,t
        X = tokens_per_second, G = goodput, t = duration
    expected_failures: n = t / M
        n = \frac{t}{M}
        t = duration, M = mtbf
    mtbf: M, as the plan says
        M
        M = mtbf_given
    goodput: goodput = 1 - (delta / tau + tau / (2 M) + R / M)
        G = 1 - \left(\frac{\delta}{\tau} + \frac{\tau}{2M} + \frac{R}{M}\right)
        delta = checkpoint_written, tau = checkpoint_interval, M = mtbf, R = recovery
    checkpoint_interval: tau = sqrt(2 delta M)
        \tau = \sqrt{2\,\delta\,M}
        delta = checkpoint_written, M = mtbf
    checkpoint_time: delta, as the plan says
        \delta
        delta = checkpoint_given
    tokens_per_parameter: D / P
        D / P
        D = work_of_the_run, P = parameters
    purchase: c, of the zoo
        c
        c = price_stated
    rent: rent = N c t
        C = N\,c\,t
        N = accelerators, c = hourly_price, t = duration
    usd_per_mtoken: c = 10^6 cost / D
        c = 10^6\,C / D
        cost = cost, D = work_of_the_run
""")
"""Equations of metrics that no resolver gives; the first of a name whose symbols are all known is taken."""


class Together(NamedTuple):
    """How a metric of several groups follows from those of each: text, LaTeX, and the texts by group."""

    text: str
    latex: str
    each: dict[str, str]


def equations_of(
    metrics: Sequence[Metric],
    results: Iterable[Result],
    facts: Mapping[str, Any],
    time_parts: Sequence[Part],
    memory: MemoryBar | None,
    together: Mapping[str, Together] = MappingProxyType({}),
) -> tuple[Equation, ...]:
    """The equations of all metrics, then those of the results that metrics were made from. A result's own number under the name of a
    metric that has another value (a batch alone beside one under load) is left out.

    ``together`` has metrics of several groups that are put together from those of each.
    """
    kept = list(results)
    told = [(result, equation, inputs, value) for result in kept for equation, inputs, value in filled(result)]
    known = _Known(metrics, facts, kept)
    found: list[Equation] = []
    used: set[str] = set()
    for metric in metrics:
        own = [each for each in told if each[1].gives == FIELDS.get(metric.name)]
        if metric.name == "latency" and time_parts:
            found.append(_sum(metric, "T", "parts on the critical path", time_parts, "s"))
        elif metric.name in together:
            text, latex, each = together[metric.name]
            found.append(_plain(metric, text, latex, each, {name: f"of {name}" for name in each}))
        elif metric.name == "memory" and memory is not None:
            found.append(_sum(metric, "M", "what is held", memory.parts, "byte"))
        elif len(own) == 1:
            result, equation, inputs, _ = own[0]
            used.add(equation.gives)
            found.append(_of_result(result, equation, inputs, metric.text, metric.name))
        elif own:
            used.add(own[0][1].gives)
            values = [_like(metric, getattr(result, equation.gives)) for result, equation, _, _ in own]
            parts = {f"fleet {place}": value_text(metric.name, value) for place, value in enumerate(values, 1)}
            meanings = {name: f"of {name}" for name in parts}
            found.append(_plain(metric, "sum over fleets", r"\sum_i x_i", parts, meanings))
        else:
            found.extend(known.equation(metric))
    named = {metric.name: metric for metric in metrics}
    for result, equation, inputs, value in told:
        if equation.gives in used:
            continue
        same = named.get(equation.gives)
        if same is None or getattr(result, equation.gives) == same.value:
            text = value if same is None else same.text
            found.append(_of_result(result, equation, inputs, text, equation.gives))
    return tuple(found)


def _of_result(
    result: Result, equation: explanation.Equation, inputs: dict[str, str], value: str, gives: str
) -> Equation:
    return Equation(
        gives=gives,
        text=equation.text,
        latex=equation.latex,
        inputs=inputs,
        symbols={symbol: equation.symbols[symbol][0].replace("_", " ") for symbol in inputs},
        value=value,
        resolver=result._facts.resolver,
        sources=tuple(result._facts.sources),
    )


def _like(metric: Metric, value: Any) -> Any:
    """A plain number in the unit of a metric."""
    return (
        value if isinstance(value, Quantity) or not isinstance(metric.value, Quantity) else value * metric.value.units
    )


def texts_of(parts: Sequence[Part], unit: str = "s", share: float = 1.0) -> dict[str, str]:
    """Parts, or a share of each, as equations show them."""
    return {part.label: number(_readable(share * part.value, unit)) for part in parts}


def _sum(metric: Metric, symbol: str, what: str, parts: Sequence[Part], unit: str) -> Equation:
    inputs = texts_of(parts, unit)
    meanings = {part.label: f"wall {part.wall}, {TITLES[part.wall][0]}" if part.wall else "" for part in parts}
    latex = rf"{symbol} = \sum_i {'t' if unit == 's' else 'm'}_i"
    return _plain(metric, f"{symbol} = sum of {what}", latex, inputs, meanings)


def _readable(value: float, unit: str) -> Any:
    return quantity(value, unit).to(time_unit(value) if unit == "s" else byte_unit(value))


def _plain(
    metric: Metric, text: str, latex: str, inputs: dict[str, str], meanings: dict[str, str], cited: tuple[str, ...] = ()
) -> Equation:
    return Equation(
        gives=metric.name,
        text=text,
        latex=latex,
        inputs=inputs,
        symbols=meanings,
        value=metric.text,
        sources=cited or ("model", "hardware"),
    )


class _Known:
    """Values by name: metrics as they are printed, facts of the evaluation, and values of the results."""

    def __init__(self, metrics: Sequence[Metric], facts: Mapping[str, Any], results: Sequence[Result]) -> None:
        self._metrics = {metric.name: metric for metric in metrics}
        self._facts, self._results = facts, results

    def text(self, name: str, unit: str) -> str | None:
        if name in self._facts:
            return None if self._facts[name] is None else number(self._facts[name])
        if name in self._metrics:
            return self._metrics[name].amount
        for result in self._results:
            value = result.named(name, unit)
            if value is not None:
                return number(value, unit)
        return None

    def meaning(self, name: str) -> str:
        metric = self._metrics.get(name)
        return name.replace("_", " ") if metric is None or name in self._facts else metric.label.lower()

    def equation(self, metric: Metric) -> Iterator[Equation]:
        """The formula of a metric whose symbols are all known."""
        for formula in FORMULAS:
            if formula.gives != metric.name:
                continue
            texts = {symbol: self.text(*where) for symbol, where in formula.symbols.items()}
            inputs = {symbol: text for symbol, text in texts.items() if text is not None}
            if len(inputs) < len(texts):
                continue
            meanings = {symbol: self.meaning(formula.symbols[symbol][0]) for symbol in inputs}
            yield _plain(metric, formula.text, formula.latex, inputs, meanings)
            return
