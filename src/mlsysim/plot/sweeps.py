"""A chart of a sweep: its Pareto front, or the best that each value of an axis allows."""

from __future__ import annotations

from typing import Any

from mlsysim.errors import InputError
from mlsysim.plot.charts.lines import lines
from mlsysim.plot.charts.pareto import pareto
from mlsysim.plot.figure import Figure
from mlsysim.search.space import Space
from mlsysim.search.tabled import header_of, value_text


def chart_of(space: Space, result: Any) -> Figure:
    """The trade-off of the front's first two outputs, else the best objective that each value of the longest axis allows."""
    if result.pareto and len(space.pareto) > 1:
        first, second = space.pareto[:2]
        points = [
            (_label(space, point["inputs"]), point["outputs"][first.output], point["outputs"][second.output])
            for point in result.pareto
            if None not in (point["outputs"][first.output], point["outputs"][second.output])
        ]
        goals = ("high" if first.larger else "low", "high" if second.larger else "low")
        return pareto(
            points, x_title=first.output, y_title=second.output, goals=goals, title=f"{result.name}: the front"
        )
    known = {axis: [each for each in held if each["best"] is not None] for axis, held in result.marginals.items()}
    axis = max(known, key=lambda name: len(known[name]), default=None)
    if axis is None or not known[axis]:
        raise InputError("No design is feasible, so there is nothing to draw.")
    names = [
        ", ".join(value_text(space, k, v) for k, v in each.items() if k not in ("best", "feasible")) for each in known[axis]
    ]  # fmt: skip
    series = [("best", [(float(k), each["best"]) for k, each in enumerate(known[axis])])]
    return lines(
        series, x_title=header_of(space, axis), y_title=result.objective, names=names, title=f"{result.name}: {result.direction} {result.objective}"
    )  # fmt: skip


def _label(space: Space, inputs: dict[str, Any]) -> str:
    return ", ".join(value_text(space, name, value) for name, value in inputs.items())[:80]
