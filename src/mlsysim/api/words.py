"""Answers in words, for who reads text: what is said first, then the figures. A document of the same answer stands beside them.

The sentences are those of the command line and of Python; settings in them are keys of a request (``"zero": 3``).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from mlsysim.launch.review import Review
from mlsysim.plans.answer import Answer
from mlsysim.plans.planned import Planned
from mlsysim.plans.schema import Leaf
from mlsysim.plans.varied import Point

_SHOWN = 8
_ALIKE = 1e-6
"""Rows of a list that are told; the document has all."""


class Said(NamedTuple):
    """What an operation answers: a document, and the same in words where a reader is told more by them."""

    document: dict[str, Any]
    words: str = ""


def as_a_key(leaf: Leaf, value: Any) -> str:
    """A setting as a key of a request: ``"zero": 3``."""
    return f'"{leaf.flat}"' if value is None else f'"{leaf.flat}": {json.dumps(value)}'


def of_answer(answer: Answer) -> str:
    """The sentences of an answer and its metrics."""
    listed = [metric for metric in answer.metrics if metric.listed]
    lines = (f"{m.label}: {m.text}" + (f" ({m.interval})" if m.interval else "") for m in listed)
    title = f"Figures (90 % intervals in brackets; costs in {answer.period}):"
    return "\n".join([str(answer), title, *lines])


def of_planned(found: Planned) -> str:
    """The least fleets in a table, and the whole answer of the best."""
    return str(found) if found.best is None else f"{found}\n\n{of_answer(found.best)}"


def of_review(found: Review) -> str:
    """What a launch file costs, and what to change in it."""
    return "\n".join(text for text, _ in found.sentences())


def of_points(points: Sequence[Point], over: Mapping[str, Sequence[Any]]) -> str:
    """A line for each combination, and the best of those that fit."""
    fits = [point for point in points if point.answer is not None and point.answer.feasible]

    def named(point: Point) -> str:
        return ", ".join(f"{name} {value}" for name, value in point.settings.items())

    def line(point: Point) -> str:
        if point.answer is None:
            return f"{named(point)}: refused. {point.sentence}"
        held = [point.answer.metric(point.answer.main), point.answer.paid] if point.answer.runs else []
        held += [point.answer.held.get("carbon_footprint")] if held else []
        when = f" in {point.answer.period}" if point.answer.paid is not None else ""
        figures = "; ".join(
            f"{metric.label[:1].lower()}{metric.label[1:]} {metric.text}{when if k else ''}"
            for k, metric in enumerate(held)
            if metric is not None
        )
        return f"{named(point)}: {point.sentence}" + (f" ({figures})" if figures else "")

    first, by = best_of(fits)
    best = "None of them fits." if not fits else f"Best by {by}: {named(first)}." if first else f"All alike in {by}."
    count = f"{len(points)} {'combination' if len(points) == 1 else 'combinations'} of {', '.join(over)}"
    return "\n".join([f"{count}, {len(fits)} fit. {best}", *map(line, points)])


def best_of(points: Sequence[Point]) -> tuple[Point | None, str | None]:
    """The one with the best main metric, of those that fit, and what that metric is called; no point where all are alike in it."""
    from mlsysim.plans.changes import score

    answers = [point.answer for point in points if point.answer is not None]
    if not answers:
        return None, None
    scores = [score(answer) for answer in answers]
    by = answers[0].metric(answers[0].main).label
    alike = len(scores) > 1 and max(scores) - min(scores) <= _ALIKE * max(scores)
    return None if alike else points[scores.index(max(scores))], f"{by[:1].lower()}{by[1:]}"


def of_best(sentence: str, result: Any) -> str:
    """What an optimizer found: a sentence, what binds, and the first candidates."""
    binding = [result.binding.sentence] if result.binding is not None else []
    rows = [_pairs(candidate) for candidate in result.top_candidates[:_SHOWN]]
    return "\n".join([sentence, *binding, *(["Candidates, best first:"] if rows else []), *rows])


def of_space(result: Mapping[str, Any]) -> str:
    """A swept space: how many points fit, the best, what stopped the others, what binds."""

    def counts() -> Iterator[str]:
        yield f"{result['points']:,} of {result['size']:,} points are valid, {result['feasible']:,} are feasible."
        if result["invalid"]:
            yield f"{result['invalid']:,} are no design: a degree does not divide what it splits, or a constraint rules it out."
        if result["infeasible_by_wall"]:
            yield "Stopped by " + ", ".join(f"{name} ({n:,})" for name, n in result["infeasible_by_wall"].items()) + "."

    rows = [f"{_pairs(point['inputs'])} -> {_pairs(point['outputs'])}" for point in result["best"][:_SHOWN]]
    why = (result.get("explanation") or {}).get("sentences", ())
    title = [f"Best first ({result['direction']} {result['objective']}):"] if rows else []
    return "\n".join([" ".join(counts()), *title, *rows, *why])


def _pairs(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {_number(value) if isinstance(value, (int, float)) else value}" for name, value in values.items())  # fmt: skip


def _number(value: float) -> str:
    """A number without a power of ten.

    >>> _number(144565.1), _number(0.0412), _number(8)
    ('144,565', '0.0412', '8')
    """
    return str(value) if isinstance(value, bool) else f"{value:,.0f}" if abs(value) >= 1e4 else f"{value:.4g}"
