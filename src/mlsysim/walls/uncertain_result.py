"""The answer to uncertain inputs: percentiles of each output, how often each wall binds, and whose doubt matters."""

from __future__ import annotations

import html
import math
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from pydantic import PrivateAttr

from mlsysim.errors import InputError, unknown_name
from mlsysim.units.records import dataclass
from mlsysim.units.registry import Quantity, format_unit
from mlsysim.units.text import format_value, html_of, lines_of
from mlsysim.walls.binding import Binding
from mlsysim.walls.document import Document
from mlsysim.walls.explanation import STYLES, sentence
from mlsysim.walls.inputs import Input, read_input
from mlsysim.walls.result import Result

PERCENTILES = (5, 25, 50, 75, 95)
_STATISTICS = (*(f"p{share}" for share in PERCENTILES), "mean")
_MOST_SHARES = 20


@dataclass(frozen=True)
class Percentiles(Document):
    """Where an output lies: numbers or quantities, over the draws that gave it, of which ``known`` is the share."""

    p5: Any
    p25: Any
    p50: Any
    p75: Any
    p95: Any
    mean: Any
    known: float = 1.0

    @classmethod
    def of(cls, values: list[Any], units: Any) -> Percentiles:
        """The percentiles of draws, None where one is not known."""
        known = sorted(value for value in values if value is not None)
        numbers = [*(percentile(known, share) for share in PERCENTILES), _mean(known)]
        measured = numbers if units is None else [Quantity(number, units) for number in numbers]
        return cls(*[*measured, len(known) / len(values)])

    def to(self, unit: str) -> Percentiles:
        """The same in another unit."""
        return replace(self, **{name: getattr(self, name).to(unit) for name in _STATISTICS})

    def __str__(self) -> str:
        return f"{format_value(self.p50)} ({format_value(self.p5)} to {format_value(self.p95)})"


class UncertainResult(Result):
    """Percentiles of every numeric output, as attributes too; shares of the rest; how often each wall binds.

    ``feasible`` is true when every draw is; ``binding`` is the wall that binds most often.
    """

    resolver: str
    samples: int
    seed: int
    distributions: dict[str, str]
    outputs: dict[str, Percentiles]
    shares: dict[str, dict[str, float]]
    binding_probability: dict[str, float]
    feasible_probability: float

    _draws: dict[str, list[Any]] = PrivateAttr(default_factory=dict)
    _inputs: dict[str, list[Any]] = PrivateAttr(default_factory=dict)

    @classmethod
    def of_draws(
        cls, outcomes: Iterable[Result], samples: int, inputs: dict[str, list[Any]], **fields: Any
    ) -> UncertainResult:
        """What the results of all draws have in common; they are read one by one and not kept."""
        columns: dict[str, list[Any]] = {}
        units: dict[str, Any] = {}
        assumptions: dict[str, str] = {}
        walls: Counter[tuple[str, int | None]] = Counter()
        feasible = 0
        for place, outcome in enumerate(outcomes):
            for name, text in outcome.assumptions.items():
                if assumptions.get(name) != text:
                    assumptions[name] = "varies with the draw" if place else text
            feasible += bool(outcome.feasible)
            walls[("not known", None) if outcome.binding is None else (outcome.binding.name, outcome.binding.wall)] += 1
            for name, value in _outputs(outcome):
                if isinstance(value, Quantity):
                    unit = units.setdefault(name, value.units)
                    value = value.magnitude if value._units == unit._units else value.to(unit).magnitude
                if value == value:
                    columns.setdefault(name, [None] * samples)[place] = value
        worded = {name: values for name, values in columns.items() if any(isinstance(v, (bool, str)) for v in values)}
        numbers = {name: values for name, values in columns.items() if name not in worded}
        counts = {name: Counter(_word(v) for v in values if v is not None) for name, values in worded.items()}
        (wall, number), count = walls.most_common(1)[0]
        words = f"Wall {number} ({wall}) binds in {count / samples:.1%} of {samples:,} draws."
        found = cls(
            feasible=feasible == samples,
            assumptions=assumptions | fields["distributions"],
            binding=None if number is None else Binding(number, wall, None, words),
            samples=samples,
            outputs={name: Percentiles.of(values, units.get(name)) for name, values in numbers.items()},
            shares={name: _shares(each, samples) for name, each in counts.items() if len(each) <= _MOST_SHARES},
            binding_probability={name: share for (name, _), share in _shares(walls, samples).items()},
            feasible_probability=feasible / samples,
            **fields,
        )
        found._facts.resolver = found.resolver
        found._draws, found._inputs = numbers, inputs
        return found

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            return super().__getattr__(name)  # type: ignore[misc]
        outputs = self.__dict__.get("outputs", {})
        if name in outputs:
            return outputs[name]
        raise unknown_name(f"output of {self.__dict__.get('resolver')} with numbers", name, outputs)

    def probability(self, output: str, at_most: Any) -> float:
        """The share of draws in which an output is known and not above a limit."""
        draws = self._drawn(output)
        middle = self.outputs[output].p50
        spec = Input("limit", "quantity", format_unit(middle.units)) if isinstance(middle, Quantity) else Input("limit")
        limit = read_input(self.resolver, "at_most", spec, at_most)
        return sum(1 for value in draws if value is not None and value <= limit) / self.samples

    def drivers(self, output: str) -> dict[str, float]:
        """Rank correlation of an output with each uncertain number, strongest first: whose doubt matters?"""
        draws = self._drawn(output)
        known = [place for place, value in enumerate(draws) if value is not None]
        numbers = {name: values for name, values in self._inputs.items() if not isinstance(values[0], str)}
        seen = [draws[i] for i in known]
        found = {name: _rank_correlation([values[i] for i in known], seen) for name, values in numbers.items()}
        return dict(sorted(found.items(), key=lambda item: -abs(item[1])))

    def _drawn(self, output: str) -> list[Any]:
        if not self._draws:
            raise InputError("The draws behind this result were not written with it; solve again to ask about them.")
        if output not in self._draws:
            raise unknown_name(f"output of {self.resolver} with numbers", output, self._draws)
        return self._draws[output]

    def explain(self, style: str = "text") -> str:
        """The percentiles as a table, what binds how often, what was drawn and what was assumed."""
        if style not in STYLES:
            raise unknown_name("style of explanation", style, STYLES)

        def escaped(text: str) -> str:
            return text.replace("_", r"\_").replace("%", r"\%") if style == "latex" else text

        rows = [tuple(map(escaped, row)) for row in _rows(self)]
        notes = (sentence(title, escaped(text), style) for title, text in _notes(self))
        return "\n".join([*_table(escaped(_title(self)), rows, style), *notes])

    def __str__(self) -> str:
        return self.explain()

    def _repr_html_(self) -> str:
        notes = "".join(f"<p>{html.escape(f'{title}: {text}')}</p>" for title, text in _notes(self))
        return f"<div>{html_of((), _rows(self), _title(self))}{notes}</div>"


def _outputs(outcome: Result) -> Iterator[tuple[str, Any]]:
    """Numbers, quantities, flags and words of a result; those of a table as ``table.name``."""
    for name in type(outcome).model_fields:
        if name in Result.model_fields:
            continue
        value = getattr(outcome, name)
        if isinstance(value, (bool, int, float, str, Quantity)):
            yield name, value
        elif isinstance(value, Mapping):
            for key, item in value.items():
                if isinstance(item, (int, float, Quantity)) and not isinstance(item, bool):
                    yield f"{name}.{key}", item


def _word(value: Any) -> str:
    return ("yes" if value else "no") if isinstance(value, bool) else str(value)


def _shares(counts: Counter[Any], samples: int) -> dict[Any, float]:
    return {name: count / samples for name, count in counts.most_common()}


def percentile(ordered: list[Any], share: float) -> Any:
    """The percentile of sorted numbers, interpolated between neighbours."""
    place = (len(ordered) - 1) * share / 100
    first = math.floor(place)
    low, high = ordered[first], ordered[min(first + 1, len(ordered) - 1)]
    part = place - first
    # Equal neighbours come back as they are, and infinite ones do not become NaN.
    if low == high or part == 0:
        return low
    return high if math.isinf(high) or math.isinf(low) else low + (high - low) * part


def _mean(values: list[Any]) -> Any:
    low, high = values[0], values[-1]
    if low == high:
        return low
    return high if math.isinf(high) else low if math.isinf(low) else math.fsum(values) / len(values)


def _rank_correlation(xs: list[Any], ys: list[Any]) -> float:
    """Spearman's coefficient; zero where one of them does not vary."""
    a, b = _ranks(xs), _ranks(ys)
    middle = (len(a) - 1) / 2
    product = math.fsum((p - middle) * (q - middle) for p, q in zip(a, b, strict=True))
    spread = math.sqrt(math.fsum((p - middle) ** 2 for p in a) * math.fsum((q - middle) ** 2 for q in b))
    return product / spread if spread else 0.0


def _ranks(values: list[Any]) -> list[float]:
    """Places in order; equal values share the mean of theirs."""
    ordered = sorted(values)
    return [(bisect_left(ordered, value) + bisect_right(ordered, value) - 1) / 2 for value in values]


def _title(result: UncertainResult) -> str:
    return f"{result.resolver}, {result.samples:,} draws (Latin hypercube, seed {result.seed})"


def _rows(result: UncertainResult) -> list[tuple[str, ...]]:
    """Name, 5th, 50th and 95th percentile, mean, unit."""
    rows: list[tuple[str, ...]] = [("", "p5", "p50", "p95", "mean", "")]
    for name, spread in result.outputs.items():
        values = (spread.p5, spread.p50, spread.p95, spread.mean)
        unit = format_unit(spread.p50.units) if isinstance(spread.p50, Quantity) else ""
        numbers = (f"{value.magnitude if isinstance(value, Quantity) else value:,.4g}" for value in values)
        rows.append((name, *numbers, unit))
    return rows


def _notes(result: UncertainResult) -> Iterator[tuple[str, str]]:
    yield "What binds", ", ".join(f"{name} {share:.1%}" for name, share in result.binding_probability.items())
    yield "Feasible", f"{result.feasible_probability:.1%} of draws"
    yield "Uncertain", "; ".join(f"{name} = {text}" for name, text in result.distributions.items())
    assumed = {name: text for name, text in result.assumptions.items() if name not in result.distributions}
    if assumed:
        yield "Assumed", "; ".join(f"{name} = {text}" for name, text in assumed.items())


def _table(title: str, rows: list[tuple[str, ...]], style: str) -> list[str]:
    if style == "markdown":
        head, *body = ("| " + " | ".join(row) + " |" for row in rows)
        return [f"**{title}**", "", head, "|---|---:|---:|---:|---:|---|", *body, ""]
    if style == "latex":
        return [title, r"\begin{tabular}{lrrrrl}", *(" & ".join(row) + r" \\" for row in rows), r"\end{tabular}"]
    return [title, *lines_of(rows[0], rows[1:], "<>>>>")]
