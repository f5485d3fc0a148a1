"""The charts and tables of a lab, of what its scope computes; drawn by :mod:`mlsysim.plot`."""

from __future__ import annotations

from typing import Any

from mlsysim.errors import InputError
from mlsysim.labs.lab import Chart, Column
from mlsysim.labs.scope import Scope, as_unit, shown
from mlsysim.plans.answer import Answer
from mlsysim.plot import heat_map, memory_bar, pareto, regime_map, roofline, timeline, tornado, waterfall
from mlsysim.plot.answers import memory_of, roofline_of, scorecard_of, time_of
from mlsysim.units.registry import Quantity


def draw(scope: Scope, chart: Chart, width: int) -> dict[str, Any]:
    """A chart as SVG with its description, or a table as rows; what there is no data for says so."""
    if chart.kind == "table":
        return {"kind": "table", "title": chart.title, **table(scope, chart)}
    figure = _DRAWN[chart.kind](scope, chart, width)
    if figure is None:
        raise InputError(f"The chart {chart.title!r} has nothing to show of this plan.")
    return {"kind": "chart", "title": chart.title, "svg": figure.svg(), "alt": figure.alt}


def table(scope: Scope, chart: Chart) -> dict[str, Any]:
    """A row for each value of a parameter, and which row is the student's own."""
    if chart.rows is None:
        raise InputError(f"The table {chart.title!r} needs 'rows'.")
    axis = chart.rows
    rows = []
    for value in axis.values:
        inner = scope.changed({axis.parameter: value})
        rows.append([shown(value, ""), *(shown(inner.evaluate(column.of), column.unit) for column in chart.cells)])
    here = [value == scope[axis.parameter] for value in axis.values]
    return {"head": [axis.label, *(column.label for column in chart.cells)], "rows": rows, "here": here}


def _computed(scope: Scope, chart: Chart) -> list[tuple[str, Any]]:
    labels = chart.labels or [name.replace("_", " ") for name in chart.of]
    return [(scope.text(label), scope[name]) for label, name in zip(labels, chart.of, strict=True)]


def _parts(scope: Scope, columns: list[Column]) -> list[tuple[str, Any]]:
    return [(scope.text(column.label), as_unit(scope.evaluate(column.of), column.unit)) for column in columns]


def _answers(scope: Scope, chart: Chart) -> list[tuple[str, Any]]:
    """What was computed, where it is answers to plans; their names where there are several."""
    computed = _computed(scope, chart)
    answers = [(label, found) for label, found in computed if isinstance(found, Answer)]
    return answers if len(answers) > 1 else [("", found) for _, found in answers]


def _roofline(scope: Scope, chart: Chart, width: int) -> Any:
    answers = _answers(scope, chart)
    if answers:
        return roofline_of(answers, title=chart.title, width=width)
    chips = [scope.evaluate(text) for text in chart.chips]
    return roofline(hardware=chips, workloads=_computed(scope, chart), title=chart.title, width=width)


def _waterfall(scope: Scope, chart: Chart, width: int) -> Any:
    if chart.parts:
        return waterfall(_parts(scope, chart.parts), title=chart.title, width=width)
    result = _computed(scope, chart)[0][1]
    if isinstance(result, Answer):
        return time_of(result, title=chart.title, width=width)
    return waterfall(result, title=chart.title, width=width)


def _memory(scope: Scope, chart: Chart, width: int) -> Any:
    if chart.parts:
        capacity = scope.evaluate(chart.capacity) if chart.capacity else None
        name = scope.text(chart.labels[0]) if chart.labels else chart.title
        return memory_bar(_parts(scope, chart.parts), capacity, name=name, title=chart.title, width=width)
    computed = _computed(scope, chart)
    if _answers(scope, chart):
        return memory_of(computed, title=chart.title, width=width)
    return memory_bar(computed, title=chart.title, width=width)


def _tornado(scope: Scope, chart: Chart, width: int) -> Any:
    return tornado(_computed(scope, chart)[0][1], title=chart.title, width=width)


def _scorecard(scope: Scope, chart: Chart, width: int) -> Any:
    return scorecard_of(_computed(scope, chart)[0][1], title=chart.title, width=width)


def _grid(scope: Scope, chart: Chart) -> tuple[list[str], list[str], list[list[Any]]]:
    if chart.rows is None or chart.columns is None or len(chart.cells) != 1:
        raise InputError(f"The map {chart.title!r} needs 'rows', 'columns' and one cell.")
    across, down, cell = chart.columns, chart.rows, chart.cells[0]
    values = [
        [scope.changed({across.parameter: x, down.parameter: y}).evaluate(cell.of) for x in across.values]
        for y in down.values
    ]
    return [shown(x, "") for x in across.values], [shown(y, "") for y in down.values], values


def _heat_map(scope: Scope, chart: Chart, width: int) -> Any:
    x, y, values = _grid(scope, chart)
    cell = chart.cells[0]
    # Of a percentage the number, of the rest base units, for which the chart chooses prefixes.
    numbers = [[_number(value, cell.unit) for value in row] for row in values]
    assert chart.rows is not None and chart.columns is not None
    titles = {"x_title": chart.columns.label, "y_title": chart.rows.label, "value_title": cell.label}
    return heat_map(x, y, numbers, unit=cell.unit, title=chart.title, width=width, **titles)


def _number(value: Any, unit: str) -> float:
    made = as_unit(value, unit)
    return float(made.magnitude) if isinstance(made, Quantity) else float(made)


def _regime_map(scope: Scope, chart: Chart, width: int) -> Any:
    x, y, values = _grid(scope, chart)
    assert chart.rows is not None and chart.columns is not None
    titles = {"x_title": chart.columns.label, "y_title": chart.rows.label}
    return regime_map(x, y, values, title=chart.title, width=width, **titles)


def _pareto(scope: Scope, chart: Chart, width: int) -> Any:
    if chart.rows is None or len(chart.cells) != 2:
        raise InputError(f"The front {chart.title!r} needs 'rows' and two cells.")
    across, down = chart.cells
    points = []
    for value in chart.rows.values:
        inner = scope.changed({chart.rows.parameter: value})
        points.append((shown(value, ""), *(as_unit(inner.evaluate(cell.of), cell.unit) for cell in (across, down))))
    return pareto(points, x_title=across.label, y_title=down.label, title=chart.title, width=width)


def _timeline(scope: Scope, chart: Chart, width: int) -> Any:
    said = {
        name: scope.evaluate(text[1:]) if str(text).startswith("=") else text for name, text in chart.schedule.items()
    }
    return timeline(**said, title=chart.title, width=width)


_DRAWN = {
    "roofline": _roofline, "waterfall": _waterfall, "memory": _memory, "tornado": _tornado, "scorecard": _scorecard,
    "heat_map": _heat_map, "regime_map": _regime_map, "pareto": _pareto, "timeline": _timeline,
}  # fmt: skip
