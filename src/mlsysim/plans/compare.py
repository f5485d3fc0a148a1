"""Two answers side by side: every metric that both have, the factor between them, and which wall binds in each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from html import escape
from typing import Any

from mlsysim.errors import InputError
from mlsysim.plans.answer import Answer
from mlsysim.plans.changes import LOWER_IS_BETTER
from mlsysim.plans.likely import of_one_task
from mlsysim.plans.plan import Plan
from mlsysim.plans.plan_parts import ServingPart
from mlsysim.plans.serving_load import is_limited
from mlsysim.units.records import dataclass
from mlsysim.units.registry import Quantity, factor_between, format_unit
from mlsysim.units.text import html_of, lines_of, plainly
from mlsysim.walls.document import Document

_TRAFFIC = ("concurrency", "qps", "trace", "requests", "backlog")


@dataclass(frozen=True)
class Row:
    """A metric of both answers."""

    name: str
    label: str
    first: str
    second: str
    factor: float | None

    @property
    def factor_text(self) -> str:
        return "" if self.factor is None else f"{plainly(self.factor, 3)} x"


@dataclass(frozen=True)
class Comparison(Document):
    """What changes from one answer to another."""

    rows: tuple[Row, ...]
    sentences: tuple[str, ...]
    first: Answer
    second: Answer

    @property
    def headline(self) -> str:
        return " ".join(self.sentences)

    def to_dict(self) -> dict[str, Any]:
        """Everything as JSON; rows by the metric's path."""
        told = super().to_dict()
        return {"changes": {row.pop("name"): row for row in told.pop("rows")}} | told

    def bare(self) -> list[list[Any]]:
        """For other programs: path, label and unit of each metric, both as plain numbers in it, and the factor."""
        found = []
        for row in self.rows:
            one, two = (answer.metric(row.name.rpartition(".")[2]).value for answer in (self.first, self.second))
            unit = ""
            if isinstance(one, Quantity):
                unit, one, two = format_unit(one.units), one.magnitude, two.to(one.units).magnitude
            found.append([row.name, row.label, unit, one, two, row.factor])
        return found

    def plot(self, kind: str = "time") -> Any:
        """A chart of both answers on one scale: ``time``, ``memory`` or ``roofline``."""
        return self.first.plot(kind, beside=self.second)

    def __str__(self) -> str:
        first, *rest = self._cells()
        return "\n".join([*self.sentences, "", *lines_of(first, rest)])

    __repr__ = __str__

    def _cells(self) -> list[tuple[str, str, str, str]]:
        return [(row.label, row.first, row.second, row.factor_text) for row in self.rows]

    def _repr_html_(self) -> str:
        words = "".join(f"<p>{escape(text)}</p>" for text in self.sentences)
        return words + html_of((), self._cells())

    @classmethod
    def _fields_of(cls, document: Mapping[str, Any]) -> Mapping[str, Any]:
        rest = {name: value for name, value in document.items() if name != "changes"}
        return rest | {"rows": [{"name": name, **row} for name, row in document.get("changes", {}).items()]}


def compare_plans(first: Plan, second: Plan) -> Comparison:
    """Both plans answered, with one task and one load: a service whose plan says nothing of its traffic has more requests in flight the larger it is."""
    from mlsysim.plans.evaluate import evaluate

    answers = [evaluate(plan, change=False) for plan in of_one_task(first, second)]
    load = _one_load(answers)
    if load is None:
        return compare_answers(*answers)
    plans = [answer.plan.replacing(serving={"concurrency": load}) for answer in answers]
    found = compare_answers(*(evaluate(plan, change=False) for plan in plans))
    said = f"Neither plan says its traffic, so both have {load:,} requests in flight."
    return replace(found, sentences=(said, *found.sentences))


def _one_load(answers: list[Answer]) -> int | None:
    """The larger of two loads that nobody stated, as far as both have room for it; None where they are equal or a plan decides them."""
    if not all(answer.runs and answer.layout.get("concurrency") for answer in answers):
        return None
    loads = [int(answer.layout["concurrency"]) for answer in answers]
    if loads[0] == loads[1]:
        return None
    for plan in (answer.plan for answer in answers):
        part = plan.serving or ServingPart()
        if plan.workload.batch_size or is_limited(part) or any(getattr(part, name) is not None for name in _TRAFFIC):
            return None
    return min(max(loads), *(int(a.value("max_batch")) * a.layout["replicas"] for a in answers))


def compare_answers(first: Answer, second: Answer) -> Comparison:
    """The metrics of two answers to the same task."""
    if first.task != second.task:
        raise InputError(f"Two answers of one task compare, got {first.task} and {second.task}.", field="task")
    other = {metric.path: metric for metric in second.metrics}
    pairs = [(metric, other[metric.path]) for metric in first.metrics if metric.path in other]
    rows = tuple(Row(a.path, a.label, a.text, b.text, factor_between(a.value, b.value)) for a, b in pairs)
    return Comparison(rows, _sentences(first, second), first, second)


def _sentences(first: Answer, second: Answer) -> tuple[str, ...]:
    lines = []
    # Two plans for one model on one fleet have the same subject, which tells neither from the other.
    same = first.subject == second.subject
    names = ("the first", "the second") if same else (first.subject, second.subject)
    if first.feasible != second.feasible:
        fits, other = (names[0], second) if first.feasible else (names[1], first)
        lines.append(f"Only {fits} fits. {other.headline}")
    elif first.runs and first.main == second.main:
        main = first.metric(first.main)
        factor = factor_between(main.value, second.value(first.main))
        if factor is not None:
            speed = 1 / factor if main.name in LOWER_IS_BETTER else factor
            better = names[1] if speed > 1 else names[0]
            lines.append(
                f"{better[0].upper()}{better[1:]} is {max(speed, 1 / speed):.2f} times as fast ({main.label.lower()})."
            )
    for name, answer in zip(names, (first, second), strict=True):
        if not answer.feasible and not answer.overloaded and "latency" in answer.held:
            lines.append(f"Times, rates and energies of {name} are with the rest streamed from the host.")
    loads = [answer.layout.get("concurrency") for answer in (first, second)]
    rates = [(answer.plan.serving or ServingPart()).qps for answer in (first, second)]
    if None not in loads and loads[0] != loads[1] and (None in rates or rates[0] != rates[1]):
        lines.append(f"Their loads differ: {loads[0]:,} and {loads[1]:,} requests in flight.")
    one, two = first.binding, second.binding
    if one.wall == two.wall:
        lines.append(f"The same wall binds in both: {one.wall} ({one.name}).")
    else:
        lines.append(f"The binding wall moves from {one.wall} ({one.name}) to {two.wall} ({two.name}): {two.sentence}")
    return tuple(lines)
