"""A plan with some of its keys at several values: every combination, answered or refused with its sentence.

This is the sweep of what only whole answers have: runs that are simulated or counted by the hour, steps of post-training, services with percentiles.
A space (:mod:`mlsysim.search.space`) sweeps millions of points of what has a closed form on arrays.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from math import prod
from os import PathLike
from typing import Any, NamedTuple

from mlsysim.errors import InputError, UnitError, unknown_name
from mlsysim.plans.answer import Answer
from mlsysim.plans.evaluate import evaluate_plainly
from mlsysim.plans.likely import with_task
from mlsysim.plans.metrics import kinds
from mlsysim.plans.plan import Plan
from mlsysim.plans.rows import csv_of, frame_of
from mlsysim.plans.schema import Write, key_named, read_number, spoken
from mlsysim.plans.sheet import percentile_texts
from mlsysim.units.registry import Quantity, to_si
from mlsysim.units.text import html_of, lines_of

_MOST = 1000
_SPENT = ("energy", "carbon_footprint")
_TOLD = {
    "training": ("run_time", "goodput", "deadline_kept", *_SPENT),
    "step": ("latency", "mfu", "tokens_per_second", "goodput"),
    "serving": ("ttft", "tpot", "attained", "tokens_per_second", "usd_per_mtoken"),
    "inference": ("latency", "throughput", "mfu", "energy_per_sample"),
    "rl": ("latency", "rollout_time", "tail_time", "training_time", "tokens_per_second_per_device"),
}
"""Metrics of a table, by task, and of training without a number of tokens, of which the step is asked; the cost and what binds stand in all."""


class Point(NamedTuple):
    """One combination: its settings, and its answer or why there is none."""

    settings: dict[str, Any]
    answer: Answer | None
    refused: str = ""

    @property
    def feasible(self) -> bool:
        """Whether it is answered and fits."""
        return self.answer is not None and self.answer.feasible

    @property
    def ends(self) -> bool:
        """Whether a run of so many tokens ends; what has no end has no cost either."""
        answer = self.answer
        given = answer is not None and answer.task == "training" and answer.plan.workload.tokens is not None
        return self.feasible and not (given and answer is not None and "run_time" not in answer.held)

    @property
    def sentence(self) -> str:
        """What is said of it first."""
        return self.refused if self.answer is None else str(self.answer.headline)

    def in_words(self, write: Write) -> Point:
        """The same with the settings in its sentences as a face writes them."""
        answer = self.answer and self.answer.in_words(write)
        return self._replace(answer=answer, refused=spoken(self.refused, write, Plan.leaves()))

    def value(self, name: str) -> float | None:
        """A metric as a plain number; None where it is not known. What does not fit has its memory alone."""
        held = self.answer.held.get(name) if self.answer is not None and (self.ends or not self.feasible) else None
        if held is None:
            return None
        return float(to_si(held.value, kinds()[name].unit) if isinstance(held.value, Quantity) else held.value)

    def document(self) -> dict[str, Any]:
        """As JSON: settings, and what was found."""
        if self.answer is None:
            return {"settings": self.settings, "feasible": False, "headline": self.sentence}
        told = self.answer.to_dict()
        kept = ("feasible", "headline", "metrics", "binding", "layout", "percentiles")
        return {"settings": self.settings, **{name: told[name] for name in kept if name in told}}


class Varied(NamedTuple):
    """The keys with their values, and what was found at every combination."""

    axes: dict[str, list[Any]]
    points: list[Point]

    @property
    def feasible(self) -> list[Point]:
        """Those that are answered and fit."""
        return [point for point in self.points if point.feasible]

    def in_words(self, write: Write) -> Varied:
        """The same with the settings in its sentences as a face writes them."""
        return self._replace(points=[point.in_words(write) for point in self.points])

    def ranked(self, metric: str, larger: bool = False) -> Varied:
        """The same, best first by a metric; what has none of it or does not fit last."""
        if metric not in kinds():
            raise unknown_name("metric", metric, list(kinds()))
        sign = -1.0 if larger else 1.0

        def rank(point: Point) -> tuple[bool, float]:
            value = point.value(metric)
            return value is None or not point.feasible, sign * (value or 0.0)

        return self._replace(points=sorted(self.points, key=rank))

    def to_dict(self) -> dict[str, Any]:
        return {"axes": self.axes, "points": [point.document() for point in self.points]}

    def rows(self) -> list[dict[str, Any]]:
        """Settings and metrics of every combination as plain numbers, with units in their names; what is not known is None."""
        answers = [point.answer for point in self.points if point.answer is not None]
        names = dict.fromkeys(
            name for answer in answers for name, held in answer.held.items() if _is_number(held.value)
        )
        titles = {name: f"{name} [{kinds()[name].unit}]" if kinds()[name].unit else name for name in names}
        settings = [_bare_axis(name, values, answers) for name, values in self.axes.items()]
        return [
            {title: bare(point.settings[name]) for name, (title, bare) in zip(self.axes, settings, strict=True)}
            | {"fits": point.feasible}
            | {title: point.value(name) for name, title in titles.items()}
            | {"binds": point.answer.binding.name if point.answer is not None and point.feasible else None}
            for point in self.points
        ]

    def to_csv(self, path: str | PathLike[str] | None = None) -> str:
        """The rows as CSV, written to a file where one is given."""
        return csv_of(self.rows(), path)

    def to_dataframe(self) -> Any:
        """The rows as a data frame of pandas, or of polars where pandas is not installed."""
        return frame_of(self.rows())

    def __repr__(self) -> str:
        refused = dict.fromkeys(point.sentence for point in self.points if not point.feasible)
        return "\n".join([*lines_of(*self.table()), *refused])

    def _repr_html_(self) -> str:
        return html_of(*self.table())

    def table(self) -> tuple[list[str], list[list[str]]]:
        """Headers and rows of texts: settings, metrics that the task is asked for, the latest of nine in ten simulated runs, cost, what binds."""
        answers = [point.answer for point in self.feasible if point.answer is not None]
        told = dict.fromkeys(
            "step" if a.task == "training" and a.plan.workload.tokens is None else a.task for a in answers
        )
        names = [name for what in told for name in _TOLD[what]]
        names = [name for name in dict.fromkeys(names) if any(name in answer.held for answer in answers)]
        labels = [next(a.held[name].label for a in answers if name in a.held) for name in names]
        late = any("run_time" in answer.percentiles for answer in answers)
        periods = {answer.period for answer in answers if answer.paid is not None}
        cost = f"Cost of {periods.pop()}" if len(periods) == 1 else "Cost"
        headers = [*self.axes, *labels, *(["Nine in ten within"] if late else []), cost, "Binds"]
        return headers, [list(self._row(point, names, late)) for point in self.points]

    def _row(self, point: Point, names: list[str], late: bool) -> Iterator[str]:
        yield from map(str, point.settings.values())
        answer = point.answer
        if answer is None or not answer.feasible:
            yield from [""] * (len(names) + late + 1)
            yield "refused" if answer is None else "does not fit"
            return
        if not point.ends:
            yield from ("no end" if name == "run_time" else "" for name in names)
            yield from ["no end"] * late
            yield from ("", answer.binding.name)
            return
        yield from (answer.held[name].text if name in answer.held else "" for name in names)
        if late:
            held = answer.percentiles.get("run_time")
            yield "" if held is None else percentile_texts("run_time", held)[-1]
        yield "" if answer.paid is None else answer.paid.text
        yield answer.binding.name


def _bare_axis(name: str, values: Sequence[Any], answers: Sequence[Answer]) -> tuple[str, Callable[[Any], Any]]:
    """The title of a varied key with its unit, and what gives the number in a value of it; words, and what is refused, stay as they are."""
    known = Plan.leaves()
    key = key_named(name, known, answers[0].task if answers else None)
    kind = None if key is None else known[key].quantity
    if kind is None:
        return name, read_number
    try:
        numbers = [to_si(kind.read(value, name), kind.unit) for value in values]
    except UnitError:
        return name, read_number
    return f"{name} [{kind.unit}]", lambda value: numbers[values.index(value)]


def _is_number(value: Any) -> bool:
    return isinstance(value, Quantity | int | float) and not isinstance(value, bool)


def axes_of(texts: Sequence[str]) -> dict[str, list[str]]:
    """Keys and values in texts such as ``staleness=1,2,4``."""
    found: dict[str, list[str]] = {}
    for text in texts:
        name, mark, values = text.partition("=")
        values = values.strip()[1:-1] if re.fullmatch(r"\s*[\[({].*[\])}]\s*", values) else values
        if re.search(r"\w\(|;", values):
            raise InputError(
                f"Values are listed one by one, such as {name.strip()}=1,2,4, got {values[:60]!r}.", field=name
            )
        listed = [value.strip() for value in values.split(",") if value.strip()]
        if not mark and found and text.strip(" ,").replace(".", "").isalnum():
            last = next(reversed(found))
            whole = ",".join([*found[last], text.strip(" ,")])
            raise InputError(f"The values of a key are one word, without spaces: {last}={whole[:60]}.", field=last)
        if not mark or not listed or name.strip() in found:
            one_word = f"{text.strip()}=1,2,4" if not mark and text.strip().isidentifier() else "staleness=1,2,4"
            raise InputError(
                f"A key and its values are one word, such as {one_word}, each key once, got {text[:60]!r}."
            )
        for value in listed:
            _refuse_range(name.strip(), value)
        unit = re.fullmatch(r"[\d.]+ ?([A-Za-z]+(?:/[a-z]+)?)", listed[-1])
        if unit and all(re.fullmatch(r"[\d.]+", value) for value in listed[:-1]) and _has_units(name.strip()):
            listed = [*(f"{value} {unit[1]}" for value in listed[:-1]), listed[-1]]
        found[name.strip()] = listed
    return found


def _has_units(name: str) -> bool:
    """Whether the values of a key are quantities, of which a plain number is none."""
    key = key_named(name, Plan.leaves())
    return key is not None and Plan.leaves()[key].quantity is not None


def _refuse_range(name: str, value: str) -> None:
    """Refuse two numbers with a sign between them, which leave open what lies there."""
    ends = re.fullmatch(r"(\d{1,9})(?::|-|\.\.)(\d{1,9})(?::\d{1,9})?", value)
    if ends is None:
        return
    first, last = max(1, int(ends[1])), int(ends[2])
    doubled = [str(first << k) for k in range(6) if first << k <= last] or [ends[1]]
    raise InputError(
        f"Values are listed one by one, such as {name}={','.join(doubled)}; {value!r} is a range.", field=name
    )


def _unvalued(point: Point) -> str:
    """Why a point is refused, without its values."""
    said = point.refused
    for value in point.settings.values():
        said = said.replace(f"got {value}", "got").replace(f"such as '{value}", "such as '")
    return said


def varied(plan: Plan, axes: Mapping[str, Sequence[Any]]) -> Varied:
    """Every combination of the values, in order; refused where all are, for the same reason."""
    listed = {name: [values] if isinstance(values, str) else list(values) for name, values in axes.items()}
    if not listed or not all(listed.values()):
        raise InputError("A sweep of a plan needs keys at one value or more, such as staleness=1,2,4.")
    if prod(map(len, listed.values())) > _MOST:
        raise InputError(f"At most {_MOST:,} combinations are tried; give fewer values.")
    for name, values in listed.items():
        _refuse_words(plan, name, values)
    plan = _of_one_task(plan, {name: values[0] for name, values in listed.items()})
    points, refused = [], None
    for chosen in product(*listed.values()):
        settings = dict(zip(listed, chosen, strict=True))
        try:
            points.append(Point(settings, evaluate_plainly(plan.with_settings(settings)).of_what_runs()))
        except InputError as error:
            refused = error
            points.append(Point(settings, None, _by_its_key(error)))
    if refused is not None and len({_unvalued(point) for point in points}) == 1:
        # What is wrong is the same whatever the values: it is the plan's, or of what they all lack.
        raise type(refused)(_by_its_key(refused), **refused.details)
    return Varied(listed, points)


def _of_one_task(plan: Plan, first: Mapping[str, Any]) -> Plan:
    """The plan, with the task that its first point means where it says none."""
    try:
        return plan.replacing(task=with_task(plan.with_settings(first)).task)
    except InputError:
        # What is wrong is said where the points are answered.
        return plan


def _refuse_words(plan: Plan, name: str, values: Sequence[Any]) -> None:
    """Refuse a word that a key does not take where it stands among numbers: it is mistyped, and nothing is answered before it is said."""
    words = [value for value in values if isinstance(read_number(value), str)]
    for value in words if len(words) < len(values) and not _has_units(name) else ():
        try:
            plan.with_settings({name: value})
        except InputError as error:
            raise type(error)(_by_its_key(error), **error.details) from None


def _by_its_key(error: InputError) -> str:
    """What an error says, with the key in place of its path in a plan."""
    path = str(error.details.get("field"))
    said = error.message.replace(f"The {path!r} field", path.rpartition(".")[2])
    return error.message if said == error.message else said
