"""Plain-text display: ``banner``, ``info`` and ``table``, as the tutorial prints them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mlsysim.errors import InputError
from mlsysim.units.text import format_value

__all__ = ["banner", "format_value", "info", "table"]

_RULE = "─"
_HEADER_WIDTH = 44


def banner(title: str) -> None:
    """Print a heading with an empty line before it."""
    print(f"\n=== {title} ===")


def info(title: str | None = None, /, **fields: Any) -> None:
    """Print named values, one a line, under an optional heading. Underscores in names become spaces."""
    if title is not None:
        print(f"{_RULE * 2} {title} ".ljust(_HEADER_WIDTH, _RULE))
    if not fields:
        return
    labels = [name.replace("_", " ") + ":" for name in fields]
    width = max(len(label) for label in labels)
    for label, value in zip(labels, fields.values(), strict=True):
        print(f"{label:<{width}}  {format_value(value)}")


def table(headers: Sequence[str], rows: Sequence[Sequence[Any]], align: str | None = None) -> None:
    """Print a table. ``align`` has ``<`` or ``>`` for each column; the first is left and the rest right by default."""
    columns = len(headers)
    align = "<".ljust(columns, ">") if align is None else align.ljust(columns, ">")
    cells = [[format_value(cell) for cell in row] for row in rows]
    for number, row in enumerate(cells, 1):
        if len(row) != columns:
            raise InputError(f"row {number} has {len(row)} cells, but the table has {columns} columns.")
    widths = [max(len(str(headers[i])), *(len(row[i]) for row in cells), 0) for i in range(columns)]

    def line(row: Sequence[str]) -> str:
        return "  ".join(f"{cell:{align[i]}{widths[i]}}" for i, cell in enumerate(row))

    heading = line([str(header) for header in headers])
    print(heading)
    print(_RULE * len(heading))
    for row in cells:
        print(line(row))
