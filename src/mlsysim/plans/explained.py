"""Where a number comes from: its equation, the equations of what stands in it, and the sources and assumptions behind these."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import Any

from pydantic import Field

from mlsysim.cases.assumptions import DEFAULT, Assumption
from mlsysim.plans.metrics import Metric, kinds
from mlsysim.units.fields import Record
from mlsysim.walls.explanation import UNITS


class Equation(Record):
    """An equation with its numbers: texts of its symbols, what they mean, what they are called, and the names of the sources behind
    them."""

    gives: str
    text: str
    latex: str
    inputs: dict[str, str]
    symbols: dict[str, str] = Field(default_factory=dict)
    names: dict[str, str] = Field(default_factory=dict)
    value: str
    resolver: str = ""
    sources: tuple[str, ...] = ()

    def lines(self, called: str) -> Iterator[str]:
        """The equation, a line for each symbol with its value and meaning, and what it gives."""
        yield f"{called}: {self.text}" if called else self.text
        widths = [max(map(len, each), default=0) for each in (self.inputs, self.inputs.values())]
        for symbol, value in self.inputs.items():
            meaning = self.symbols.get(symbol, "")
            known = f"   {meaning}" if meaning not in ("", symbol, f"of {symbol}") else ""
            yield f"    {symbol.ljust(widths[0])} = {value.ljust(widths[1])}{known}".rstrip()
        yield f"    gives {self.value}"


class Explained(tuple[Equation, ...]):
    """Equations in the order in which one reads them: that of a metric, then those of its symbols, and of theirs."""

    metric: Metric | None
    labels: dict[str, str]
    sources: dict[str, str]
    assumptions: dict[str, str]

    def lines(self) -> Iterator[str]:
        """What ``mlsysim explain`` prints."""
        if self.metric is not None:
            found = self.metric
            yield f"{found.label}: {found.text}" + (f" ({found.interval})" if found.interval else "")
        for equation in self:
            own = self.metric is not None and equation.gives == self.metric.name
            yield from equation.lines(
                "" if own else self.labels.get(equation.gives) or _capital(worded(equation.gives))
            )
        if self.sources:
            yield "Sources: " + "; ".join(f"{worded(name)}: {text}" for name, text in self.sources.items())
        if self.assumptions:
            yield "Assumed: " + "; ".join(f"{name} = {text}" for name, text in self.assumptions.items())

    def __str__(self) -> str:
        return "\n".join(self.lines())

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"


def explained(
    wanted: Sequence[str],
    equations: Sequence[Equation],
    metrics: Mapping[str, Metric],
    sources: Mapping[str, str],
    assumed: Iterable[Assumption],
) -> Explained:
    """The explanation of some metrics (one, or all) out of the equations of an answer."""
    found = list(_reached(wanted, equations))
    made = Explained(found)
    made.metric = metrics[wanted[0]] if len(wanted) == 1 else None
    made.labels = {name: metric.label for name, metric in metrics.items()}
    cited = {name for equation in found for name in (*equation.sources, *equation.names.values())}
    made.sources = {name: text for name, text in sources.items() if name in cited}
    made.assumptions = {each.name: each.text for each in _behind(found, equations, list(assumed), wanted, metrics)}
    return made


def _reached(wanted: Sequence[str], equations: Sequence[Equation]) -> Iterator[Equation]:
    """The equations of some names, of what their kinds are made from, and of their symbols, each once, nearest first."""
    asked, done = list(wanted), set[str]()
    metrics = {kind.field: name for name, kind in kinds().items() if kind.field}
    while asked:
        name = asked.pop(0)
        name = metrics.get(name, name)
        if name in done:
            continue
        done.add(name)
        for equation in equations:
            if equation.gives == name:
                yield equation
                asked += equation.names.values()
        if name in kinds():
            asked += kinds()[name].made_from


def _behind(
    found: Sequence[Equation],
    equations: Sequence[Equation],
    assumed: list[Assumption],
    wanted: Sequence[str],
    metrics: Mapping[str, Metric],
) -> Iterator[Assumption]:
    """Assumptions that some equations rest on: of what stands in them under its own name, and of the resolvers that gave them what stands
    in no other equation. Defaults that change nothing (no, 0, a factor of 1) are left out."""
    by = {equation.resolver for equation in found if equation.resolver}
    names, others = (
        {_plainly(name) for equation in some for name in (equation.gives, *equation.names.values())}
        for some in (found, equations)
    )
    banded = any(metrics[name].interval for name in wanted)
    for each in assumed:
        neutral = each.origin == DEFAULT and each.value in (None, False, 0, 1)
        behind = each.by in by if each.name != "interval" else banded
        symbols = _STANDS_IN.get(each.name, {_plainly(each.name)})
        if symbols & names or (behind and not neutral and each.name not in _STANDS_IN and not symbols & others):
            yield each


_STANDS_IN = {
    "unit_cost": {"node_price"},
    "maintenance_fraction": {"maintenance"},
    "embodied_carbon_per_device": {"embodied"},
    "around the accelerators": {"multiplier", "factor", "host"},
}
"""Symbols that assumptions stand in equations by, where these have other names."""


def _plainly(name: str) -> str:
    """A name without the unit at its end."""
    head, _, last = name.rpartition("_")
    return head if head and last in UNITS else name


def _capital(words: str) -> str:
    return words[:1].upper() + words[1:]


def worded(name: str) -> str:
    """A name as words, without the unit at its end.

    >>> worded("opex_energy_usd"), worded("building_life_years"), worded("mfu")
    ('cost of energy', 'building life', 'MFU')
    """
    plain = _plainly(name)
    return _SPOKEN.get(plain, plain.replace("_", " "))


_SPOKEN = {
    "tco": "cost of owning",
    "capex": "part of the purchase that the period uses up",
    "opex_energy": "cost of energy",
    "opex_maintenance": "cost of maintenance",
    "maintenance": "maintenance, as a share of the purchase",
    "amortization": "time in which the purchase is written off",
    "multiplier": "infrastructure around the nodes",
    "factor": "fans and losses",
    "it_energy": "energy of the machines without the facility",
    "kwh_price": "price of electricity",
    "pue": "power usage effectiveness",
    "wue": "water usage effectiveness",
    "latency_compute": "time of the arithmetic",
    "latency_memory": "time of the memory",
    "latency_overhead": "time of the host and of kernel starts",
    **{name: name.upper() for name in ("hfu", "itl", "mfu", "mtbf", "tdp", "ttft")},
}
"""Names that are no words by themselves."""


def as_document(found: Explained, **more: Any) -> dict[str, Any]:
    """An explanation as JSON."""
    return {
        "metric": None if found.metric is None else found.metric.to_dict(),
        "equations": [equation.model_dump() for equation in found],
        "assumptions": found.assumptions,
        "sources": found.sources,
        **more,
    }
