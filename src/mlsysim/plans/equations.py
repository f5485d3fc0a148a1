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
from mlsysim.units.registry import quantity
from mlsysim.walls import explanation
from mlsysim.walls.catalog import TITLES
from mlsysim.walls.explanation import filled, number
from mlsysim.walls.result import Result

__all__ = ["FIELDS", "FORMULAS", "Together", "equations_of"]

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
}
"""Metrics that are fields of resolvers with an equation of their own."""


def _formula(gives: str, text: str, latex: str, **symbols: str) -> explanation.Equation:
    return explanation.Equation(gives, text, latex, {symbol: _named(where) for symbol, where in symbols.items()})


def _named(where: str) -> tuple[str, str]:
    name, _, unit = where.partition(" in ")
    return name, unit


FORMULAS = (
    _formula("memory_capacity", "C, of the datasheet", "C", chip="chip"),
    _formula(
        "model_state",
        "weights + gradients + optimizer state",
        r"M_W + M_G + M_O",
        weights="weights",
        gradients="gradients",
        optimizer="optimizer_state",
    ),
    _formula("activations", "what the backward pass keeps, as much as the schedule has in flight", r"M_A", M_A="activations"),
    _formula(
        "mfu",
        "MFU = F / (N T P)",
        r"\mathrm{MFU} = \frac{F}{N\,T\,P}",
        F="model_operations",
        N="accelerators",
        T="latency",
        P="peak",
    ),
    _formula(
        "mfu",
        "MFU = F / (T C)",
        r"\mathrm{MFU} = \frac{F}{T\,C}",
        F="model_operations",
        T="latency",
        C="peak_of_all_groups",
    ),
    _formula(
        "hfu",
        "HFU = F / (N T P), recomputed operations counted too",
        r"\mathrm{HFU} = \frac{F}{N\,T\,P}",
        F="hardware_operations",
        N="accelerators",
        T="latency",
        P="peak",
    ),
    _formula("bubble", "T_idle / T", r"T_{\mathrm{idle}} / T", T_idle="pipeline_bubble_latency in s", T="latency"),
    _formula("throughput", "X = B / T", r"X = \frac{B}{T}", B="samples", T="latency"),
    _formula("arithmetic_intensity", "I = F / B", r"I = \frac{F}{B}", F="operations", B="bytes_moved"),
    _formula(
        "bottleneck",
        "the longer of T_compute and T_memory",
        r"\max(T_{\mathrm{compute}}, T_{\mathrm{memory}})",
        T_compute="latency_compute in s",
        T_memory="latency_memory in s",
    ),
    _formula("energy_per_sample", "E / B", "E / B", E="energy_of_the_pass", B="samples"),
    _formula(
        "carbon_per_million",
        "CO2 = 10^6 E PUE CI",
        r"\mathrm{CO_2} = 10^6\,E\,\mathrm{PUE}\,\mathrm{CI}",
        E="energy_per_sample",
        PUE="pue",
        CI="carbon_of_the_grid",
    ),
    _formula("samples_per_charge", "C / E", "C / E", C="battery", E="energy_per_sample"),
    _formula("flash", "W, the weights", "W", W="flash"),
    _formula("flash_capacity", "C, of the datasheet", "C", chip="chip"),
    _formula("tokens_per_second", "X = n / T", r"X = \frac{n}{T}", n="work_of_a_step", T="latency"),
    _formula("tokens_per_second", "X = r n", r"X = r\,n", r="requests_per_second", n="tokens_of_an_answer"),
    _formula("tokens_per_second_per_device", "X / N", "X / N", X="tokens_per_second", N="devices_that_serve"),
    _formula(
        "requests_per_second",
        "r = min(r_most, r_come)",
        r"r = \min(r_{\mathrm{most}}, r_{\mathrm{come}})",
        r_most="most_requests_a_second",
        r_come="requests_that_come",
    ),
    _formula(
        "requests_per_second",
        "r = c / (TTFT + n TPOT), of c requests that begin and end together",
        r"r = \frac{c}{\mathrm{TTFT} + n\,\mathrm{TPOT}}",
        c="requests_together",
        n="tokens_of_an_answer",
        TTFT="ttft",
        TPOT="tpot",
    ),
    _formula(
        "requests_per_second", "r = c / T, of c in flight", r"r = \frac{c}{T}", c="requests_in_flight", T="latency"
    ),
    _formula("user_rate", "1 / TPOT", r"1 / \mathrm{TPOT}", TPOT="tpot"),
    _formula(
        "accelerator_power",
        "p = a TDP, with a the share that this load draws",
        r"p = a\,\mathrm{TDP}",
        a="share_of_the_tdp",
        TDP="tdp",
    ),
    _formula("energy_per_token", "e = E / D", r"e = E / D", E="energy", D="work_of_the_run"),
    _formula(
        "carbon_per_mtoken", "c = CO2 / D", r"c = \mathrm{CO_2} / D", CO2="carbon_footprint", D="work_of_the_run"
    ),
    _formula("run_time", "t = D / (X G)", r"t = \frac{D}{X\,G}", D="work_of_the_run", X="tokens_per_second", G="goodput"),
    _formula("tokens", "D = X G t", r"D = X\,G\,t", X="tokens_per_second", G="goodput", t="duration"),
    _formula("expected_failures", "n = t / M", r"n = \frac{t}{M}", t="duration", M="mtbf"),
    _formula("mtbf", "M, as the plan says", "M", M="mtbf_given"),
    _formula(
        "goodput",
        "goodput = 1 - (delta / tau + tau / (2 M) + R / M)",
        r"G = 1 - \left(\frac{\delta}{\tau} + \frac{\tau}{2M} + \frac{R}{M}\right)",
        delta="checkpoint_written",
        tau="checkpoint_interval",
        M="mtbf",
        R="recovery",
    ),
    _formula(
        "checkpoint_interval",
        "tau = sqrt(2 delta M)",
        r"\tau = \sqrt{2\,\delta\,M}",
        delta="checkpoint_written",
        M="mtbf",
    ),
    _formula("checkpoint_time", "delta, as the plan says", r"\delta", delta="checkpoint_given"),
    _formula("tokens_per_parameter", "D / P", "D / P", D="work_of_the_run", P="parameters"),
    _formula("purchase", "c, of the zoo", "c", chip="chip"),
    _formula("rent", "rent = N c t", r"C = N\,c\,t", N="accelerators", c="hourly_price", t="duration"),
    _formula("usd_per_mtoken", "c = cost / D", r"c = C / D", cost="cost", D="work_of_the_run"),
)  # fmt: skip
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
            parts = {f"fleet {place}": value for place, (_, _, _, value) in enumerate(own, 1)}
            found.append(
                _plain(metric, "sum over fleets", r"\sum_i x_i", parts, {name: f"of {name}" for name in parts})
            )
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
        resolver=result._resolver,
        sources=tuple(result._sources),
    )


def _sum(metric: Metric, symbol: str, what: str, parts: Sequence[Part], unit: str) -> Equation:
    inputs = {part.label: number(_readable(part.value, unit)) for part in parts}
    meanings = {part.label: f"wall {part.wall}, {TITLES[part.wall][0]}" if part.wall else "" for part in parts}
    latex = rf"{symbol} = \sum_i {'t' if unit == 's' else 'm'}_i"
    return _plain(metric, f"{symbol} = sum of {what}", latex, inputs, meanings)


def _readable(value: float, unit: str) -> Any:
    sizes = {
        "s": ((1.0, "s"), (1e-3, "ms"), (0.0, "us")),
        "byte": ((1e9, "GB"), (1e6, "MB"), (0.0, "kB")),
    }
    chosen = next(name for least, name in sizes[unit] if value >= least)
    return quantity(value, unit).to(chosen)


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
            return (
                value_text(name, self._facts[name]) if isinstance(self._facts[name], str) else number(self._facts[name])
            )
        if name in self._metrics:
            return self._metrics[name].text
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
