"""A map of regimes: a plan at several values of two of its keys, and the wall that binds at each, from the answers themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mlsysim.errors import InputError
from mlsysim.plans.answer import Answer
from mlsysim.plans.plan import Plan
from mlsysim.plans.varied import Point, varied
from mlsysim.plot.charts.heat_map import regime_map
from mlsysim.plot.figure import WIDE, Figure
from mlsysim.plot.titles import title_of_key

_UNFIT = "does not fit"


def regimes_of(
    answer: Answer, over: Mapping[str, Sequence[Any]], *, title: str | None = None, width: int = WIDE
) -> Figure:
    """What binds over two keys of the plan; a ring where the plan is. Combinations that have no meaning stay empty."""
    if len(over) != 2 or any(isinstance(values, str) or len(values) < 2 for values in over.values()):
        raise InputError("A map of regimes is over two keys of a plan, each at two values or more.", field="over")
    (across, columns), (up, rows) = over.items()
    points = varied(answer.plan, {up: rows, across: columns}).points
    grid = [[_regime(points[r * len(columns) + c]) for c in range(len(columns))] for r in range(len(rows))]
    if all(cell is None for row in grid for cell in row):
        raise InputError(f"No combination of {across} and {up} can be answered: {points[0].sentence}")
    here = next((k for k, point in enumerate(points) if point.answer and point.answer.plan == answer.plan), None)
    titles = [_title(answer.plan, key) for key in (across, up)]
    return regime_map(
        [_value(value) for value in columns],
        [_value(value) for value in rows],
        grid,
        x_title=titles[0],
        y_title=titles[1],
        here=None if here is None else (here % len(columns), here // len(columns)),
        title=title or "What binds where",
        subtitle=answer.subject,
        width=width,
    )


def _regime(point: Point) -> str | None:
    if point.answer is None:
        return None
    return point.answer.binding.name if point.answer.runs else _UNFIT


def _value(value: Any) -> Any:
    """A number that a command line gave as text, as a number."""
    try:
        return int(value) if isinstance(value, str) else value
    except ValueError:
        return str(value)


def _title(plan: Plan, key: str) -> str:
    flat = next((leaf.flat for leaf in plan.leaves().values() if key in (leaf.key, *leaf.names)), key)
    return title_of_key(flat)
