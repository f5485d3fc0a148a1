"""The charts and tables of a lab, of what its scope computes; drawn by :mod:`mlsysim.plot`."""

from __future__ import annotations

from typing import Any

from mlsysim.errors import InputError
from mlsysim.labs.lab import Axis, Chart
from mlsysim.labs.question import Column
from mlsysim.labs.scope import Scope, as_unit, shown
from mlsysim.plans.answer import Answer
from mlsysim.plot import heat_map, memory_bar, pareto, regime_map, roofline, timeline, tornado, waterfall
from mlsysim.plot.answers import memory_of, roofline_of, scorecard_of, time_of
from mlsysim.units.registry import Quantity


def draw(scope: Scope, chart: Chart, width: int) -> dict[str, Any]:
    """A chart as SVG with its description, or a table as rows; what there is no data for says so."""
    if chart.kind == "table":
        return {"kind": "table", "title": chart.title, **table(scope, chart)}
    figure = _figure(scope, chart, title=chart.title, width=width)
    if figure is None:
        raise InputError(f"The chart {chart.title!r} has nothing to show of this plan.")
    return {"kind": "chart", "title": chart.title, "svg": figure.svg(), "alt": figure.alt}


def table(scope: Scope, chart: Chart) -> dict[str, Any]:
    """A row for each value of a parameter, and which row is the student's own."""
    if chart.rows is None:
        raise InputError(f"The table {chart.title!r} needs 'rows'.")
    rows = [
        [name, *(shown(inner.evaluate(column.of), column.unit) for column in chart.cells)]
        for name, inner in _along(scope, chart.rows)
    ]
    here = [value == scope[chart.rows.parameter] for value in chart.rows.values]
    return {"head": [chart.rows.label, *(column.label for column in chart.cells)], "rows": rows, "here": here}


def _along(scope: Scope, axis: Axis) -> list[tuple[str, Scope]]:
    """The name of each value of an axis, and what is computed there."""
    return [(shown(value, ""), scope.changed({axis.parameter: value})) for value in axis.values]


def _value(scope: Scope, column: Column) -> Any:
    return as_unit(scope.evaluate(column.of), column.unit)


def _figure(scope: Scope, chart: Chart, **look: Any) -> Any:
    labels = chart.labels or [name.replace("_", " ") for name in chart.of]
    computed = [] if chart.parts else [(scope.text(a), scope[b]) for a, b in zip(labels, chart.of, strict=True)]
    answers = [(label, found) for label, found in computed if isinstance(found, Answer)]
    first: Any = computed[0][1] if computed else None
    parts = [(scope.text(column.label), _value(scope, column)) for column in chart.parts]
    match chart.kind:
        case "roofline" if answers:
            return roofline_of(answers if len(answers) > 1 else [("", answers[0][1])], **look)
        case "roofline":
            return roofline([scope.evaluate(text) for text in chart.chips], computed, **look)
        case "waterfall":
            return time_of(first, **look) if isinstance(first, Answer) else waterfall(parts or first, **look)
        case "memory" if parts:
            capacity = scope.evaluate(chart.capacity) if chart.capacity else None
            name = scope.text(chart.labels[0]) if chart.labels else chart.title
            return memory_bar(parts, capacity, name=name, **look)
        case "memory":
            return (memory_of if answers else memory_bar)(computed, **look)
        case "tornado":
            return tornado(first, **look)
        case "scorecard":
            return scorecard_of(first, **look)
        case "timeline":
            said = {k: scope.evaluate(v[1:]) if str(v).startswith("=") else v for k, v in chart.schedule.items()}
            return timeline(**said, **look)
        case "pareto":
            return _pareto(scope, chart, **look)
    return _map(scope, chart, **look)


def _pareto(scope: Scope, chart: Chart, **look: Any) -> Any:
    if chart.rows is None or len(chart.cells) != 2:
        raise InputError(f"The front {chart.title!r} needs 'rows' and two cells.")
    across, down = chart.cells
    points = [(name, _value(inner, across), _value(inner, down)) for name, inner in _along(scope, chart.rows)]
    return pareto(points, x_title=across.label, y_title=down.label, **look)


def _map(scope: Scope, chart: Chart, **look: Any) -> Any:
    if chart.rows is None or chart.columns is None or len(chart.cells) != 1:
        raise InputError(f"The map {chart.title!r} needs 'rows', 'columns' and one cell.")
    cell, rows = chart.cells[0], _along(scope, chart.rows)
    grid = [[inside for _, inside in _along(inner, chart.columns)] for _, inner in rows]
    names = [shown(value, "") for value in chart.columns.values], [name for name, _ in rows]
    look |= {"x_title": chart.columns.label, "y_title": chart.rows.label}
    if chart.kind == "regime_map":
        return regime_map(*names, [[inside.evaluate(cell.of) for inside in row] for row in grid], **look)
    # Of a percentage the number, of the rest base units, for which the chart chooses prefixes.
    made = [[_value(inside, cell) for inside in row] for row in grid]
    numbers = [[float(value.magnitude if isinstance(value, Quantity) else value) for value in row] for row in made]
    return heat_map(*names, numbers, unit=cell.unit, value_title=cell.label, **look)
