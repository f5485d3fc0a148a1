"""An equation for every number of an answer, with the values that went into it.

A metric that a resolver gives has the resolver's equation. A time and a memory are the sums of their parts. Everything else has
a formula of ``data/metrics.toml``, whose symbols are other metrics, facts that the evaluation knows, or values of the resolvers
that it asked. The value is the text of the metric, so that an explanation ends in the digits that were printed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any, NamedTuple

from mlsysim.plans.explained import Equation, worded
from mlsysim.plans.metrics import Metric, kinds, readable, value_text
from mlsysim.plans.pieces import MemoryBar, Part
from mlsysim.units.registry import Quantity
from mlsysim.units.text import number
from mlsysim.walls import explanation
from mlsysim.walls.catalog import TITLES
from mlsysim.walls.explanation import filled
from mlsysim.walls.result import Result

_told = ContextVar("equations are told", default=True)


@contextmanager
def numbers_alone() -> Iterator[None]:
    """Answers made here have no equations: those of plans that are only compared, of which nobody asks where a number is from."""
    token = _told.set(False)
    try:
        yield
    finally:
        _told.reset(token)


class Together(NamedTuple):
    """How a metric of several groups follows from those of each: text, LaTeX, and the texts by group."""

    text: str
    latex: str
    each: dict[str, str]


def summed(each: dict[str, str], what: str = "groups") -> Together:
    """A metric that is the sum of those of some groups."""
    return Together(f"sum over {what}", r"\sum_i x_i", each)


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
    if not _told.get():
        return ()
    kept = list(results)
    told = [(result, equation, inputs, value) for result in kept for equation, inputs, value in filled(result)]
    named = {metric.name: metric for metric in metrics}
    found: list[Equation] = []
    used = {kinds()[metric.name].field for metric in metrics}
    for metric in metrics:
        field = kinds()[metric.name].field
        own = [each for each in told if each[1].gives == field]
        if len(own) == 1 and kinds()[metric.name].formulas and _like(metric, getattr(own[0][0], field)) != metric.value:
            own = []  # what is known of one of several fleets
        if metric.name == "latency" and time_parts:
            found.append(_of_ledger(_sum(metric, "T", "parts on the critical path", time_parts, "s"), kept))
            found.extend(_formula(metric, named, facts, kept))
        elif metric.name in together:
            found.append(_of_ledger(_together(metric, together[metric.name]), kept))
        elif metric.name == "memory" and memory is not None:
            found.append(_of_ledger(_sum(metric, "M", "what is held", memory.parts, "byte"), kept))
        elif own:
            if len(own) == 1:
                result, equation, inputs, _ = own[0]
                found.append(_of_result(result, equation, inputs, metric.text, metric.name))
                continue
            values = [_like(metric, getattr(result, field)) for result, *_ in own]
            parts = {f"fleet {place}": value_text(metric.name, value) for place, value in enumerate(values, 1)}
            found.append(_together(metric, summed(parts, "fleets")))
        else:
            found.extend(_formula(metric, named, facts, kept))
    for result, equation, inputs, value in told:
        same = named.get(equation.gives)
        if equation.gives not in used and (same is None or getattr(result, equation.gives) == same.value):
            text = value if same is None else same.text
            found.append(_of_result(result, equation, inputs, text, equation.gives))
    return tuple(found)


def _of_result(
    result: Result, equation: explanation.Equation, inputs: dict[str, str], value: str, gives: str
) -> Equation:
    names = {symbol: equation.name_of(symbol) for symbol in inputs}
    return Equation(
        gives=gives,
        text=equation.text,
        latex=equation.latex,
        inputs=inputs,
        symbols={symbol: worded(equation.name_of(symbol)) for symbol in inputs},
        names=names,
        value=value,
        resolver=result._facts.resolver,
        sources=tuple(name for name in result._facts.sources if name not in _OF_PLACES),
    )


def _like(metric: Metric, value: Any) -> Any:
    """A plain number in the unit of a metric."""
    plain = isinstance(metric.value, Quantity) and not isinstance(value, Quantity)
    return value * metric.value.units if plain else value


def texts_of(parts: Sequence[Part], unit: str = "s", share: float = 1.0) -> dict[str, str]:
    """Parts, or a share of each, as equations show them; without those that are too small for any digit of the sum."""
    least = 1e-6 * sum(part.value for part in parts)
    return {part.label: number(readable(share * part.value, unit)) for part in parts if part.value >= least}


def _sum(metric: Metric, symbol: str, what: str, parts: Sequence[Part], unit: str) -> Equation:
    meanings = {part.label: f"wall {part.wall}, {TITLES[part.wall][0]}" if part.wall else "" for part in parts}
    latex = rf"{symbol} = \sum_i {'t' if unit == 's' else 'm'}_i"
    return _plain(metric, f"{symbol} = sum of {what}", latex, texts_of(parts, unit), meanings)


def _of_ledger(found: Equation, results: Sequence[Result]) -> Equation:
    """An equation of parts of the ledger: that of the resolver that was asked first."""
    by = {"resolver": results[0]._facts.resolver, "sources": ("model", "hardware")} if results else {}
    return found.model_copy(update=by)


def _together(metric: Metric, how: Together) -> Equation:
    return _plain(metric, *how, {name: f"of {name}" for name in how.each})


def _plain(
    metric: Metric, text: str, latex: str, inputs: dict[str, str], meanings: dict[str, str], **more: Any
) -> Equation:
    return Equation(
        gives=metric.name, text=text, latex=latex, inputs=inputs, symbols=meanings, value=metric.text, **more
    )


_OF_PLACES = frozenset({"intensity", "pue", "wue", "kwh_price_usd"})
"""Figures with a source of their own, which speaks for the equations that they stand in."""

_CITED = {"model_operations": "model", "parameters": "model", "peak": "hardware", "memory_stated": "hardware"}
"""Facts that are figures of the model or of the chip, and so rest on its source."""


def _formula(
    metric: Metric, metrics: Mapping[str, Metric], facts: Mapping[str, Any], results: Sequence[Result]
) -> Iterator[Equation]:
    """The first formula of a metric whose symbols are all known: facts, metrics as they are printed, values of results."""

    def text(name: str, unit: str) -> str | None:
        if name in facts:
            known = facts[name]
            return None if known is None else value_text(name, known) if name in kinds() else number(known)
        if name in metrics:
            return metrics[name].amount
        values = (result.named(name, unit) for result in results)
        return next((number(value, unit) for value in values if value is not None), None)

    def meaning(name: str) -> str:
        return metrics[name].label.lower() if name in metrics and name not in facts else worded(name)

    for formula in kinds()[metric.name].equations:
        inputs = {symbol: found for symbol, where in formula.symbols.items() if (found := text(*where)) is not None}
        if len(inputs) == len(formula.symbols):
            meanings = {symbol: meaning(where[0]) for symbol, where in formula.symbols.items()}
            names = {symbol: where[0] for symbol, where in formula.symbols.items()}
            cited = tuple(dict.fromkeys(_CITED[name] for name in names.values() if name in _CITED))
            yield _plain(metric, formula.text, formula.latex, inputs, meanings, names=names, sources=cited)
            return
