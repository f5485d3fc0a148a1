"""Designs of a sweep for other programs and eyes: CSV or Parquet of every point, and values with their units.

Names of outputs say their unit (``latency_s``, ``usd_per_mtoken``); a column of an input that has one does so in brackets: ``bandwidth [byte/s]``.
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

from mlsysim.errors import unknown_name
from mlsysim.search.kinds import kind_named
from mlsysim.search.space import Space
from mlsysim.search.steps import SCALED, in_unit
from mlsysim.search.store import PointStore, parquet_of, parts
from mlsysim.zoo.writing import write_whole

ENDINGS = (".csv", ".parquet")


def unit_of(space: Space, name: str) -> str:
    """The unit of an input's numbers; of an output its name says it."""
    declared = kind_named(space.kind).inputs.get(name)
    return "" if declared is None else declared.unit


def title_of(space: Space, name: str) -> str:
    """A column with the unit of its numbers."""
    unit = unit_of(space, name)
    return f"{name} [{unit}]" if unit else name


def shown_unit(space: Space, name: str) -> str:
    """The unit of values as :func:`value_text` shows them: those that are scaled say theirs themselves."""
    unit = unit_of(space, name)
    return "" if unit in SCALED else unit


def header_of(space: Space, name: str) -> str:
    """The header of values as :func:`value_text` shows them."""
    return title_of(space, name) if shown_unit(space, name) else name


def value_text(space: Space, name: str, value: Any) -> str:
    """A value as a table shows it, large ones in a larger unit."""
    if value is None or isinstance(value, (str, bool)):
        return "-" if value is None else str(value)
    return in_unit(value, unit_of(space, name))


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
