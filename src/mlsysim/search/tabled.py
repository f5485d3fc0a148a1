"""Designs of a sweep for other programs and eyes: CSV or Parquet of every point, a chart, and values with their units.

Names of outputs say their unit (``latency_s``, ``usd_per_mtoken``); a column of an input that has one does so in brackets: ``bandwidth [byte/s]``.
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

from mlsysim.errors import InputError, unknown_name
from mlsysim.search.kinds import kind_named
from mlsysim.search.space import Space
from mlsysim.search.store import PointStore, parquet_of, parts
from mlsysim.units.registry import Q_
from mlsysim.zoo.writing import write_whole

ENDINGS = (".csv", ".parquet")
_SCALED = ("flop/s", "byte/s", "byte", "W")


def unit_of(space: Space, name: str) -> str:
    """The unit of an input's numbers; of an output its name says it."""
    declared = kind_named(space.kind).inputs.get(name)
    return "" if declared is None else declared.unit


def title_of(space: Space, name: str) -> str:
    """A column with the unit of its numbers."""
    unit = unit_of(space, name)
    return f"{name} [{unit}]" if unit else name


def header_of(space: Space, name: str) -> str:
    """The header of values as :func:`value_text` shows them: those that are scaled say their unit themselves."""
    return name if unit_of(space, name) in _SCALED else title_of(space, name)


def value_text(space: Space, name: str, value: Any) -> str:
    """A value as a table shows it, large ones in a larger unit."""
    if value is None or isinstance(value, (str, bool)):
        return "-" if value is None else str(value)
    unit = unit_of(space, name)
    if unit in _SCALED:
        return f"{Q_(value, unit).to_compact():.4g~P}"
    return f"{value:,.6g}" if abs(value) < 1e15 else f"{value:.4g}"


def ending_of(path: str | Path) -> str:
    """The ending of a file for points, checked before anything is computed."""
    ending = Path(path).suffix.lower()
    if ending not in ENDINGS:
        raise unknown_name("form of points", ending or str(path), ENDINGS, "a file of points ends in .csv or .parquet.")
    return ending


def write_points(space: Space, folder: str | Path, path: str | Path) -> int:
    """Write every point of a store to one file, whole or not at all; returns how many."""
    target, ending = Path(path), ending_of(path)
    if ending == ".parquet":
        return parquet_of(PointStore.existing(folder).folder, target, lambda name: title_of(space, name))
    count = 0

    def rows(beside: Path) -> None:
        nonlocal count
        with beside.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            for columns in parts(folder, partial=True):
                if not columns:
                    continue
                if not count:
                    writer.writerow([title_of(space, name) for name in columns])
                listed = [[_cell(value) for value in values.tolist()] for values in columns.values()]
                writer.writerows(zip(*listed, strict=True))
                count += len(listed[0])

    write_whole(target, rows)
    return count


def _cell(value: Any) -> Any:
    # What is not known has an empty cell.
    return "" if isinstance(value, float) and value != value else value


def chart_of(space: Space, result: Any) -> Any:
    """The trade-off of the front's first two outputs, else the best objective that each value of the longest axis allows."""
    from mlsysim.plot.charts.lines import lines
    from mlsysim.plot.charts.pareto import pareto

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
