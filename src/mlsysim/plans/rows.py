"""Rows for other programs and eyes: lines of text, a table of a page, CSV, a data frame."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from html import escape
from importlib import import_module
from io import StringIO
from os import PathLike
from pathlib import Path
from typing import Any

from mlsysim.errors import InputError
from mlsysim.zoo.writing import write_whole

Rows = Sequence[Mapping[str, Any]]


def lines_of(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A table as text."""
    table = [headers, *rows]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table]


def html_of(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of a page."""

    def row(cells: Sequence[str], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells) + "</tr>"

    return f"<table>{row(headers, 'th')}{''.join(row(cells, 'td') for cells in rows)}</table>"


def frame_of(rows: Rows) -> Any:
    """A data frame of pandas, or of polars where pandas is not installed."""
    for library in ("pandas", "polars"):
        try:
            return import_module(library).DataFrame(rows)
        except ImportError:
            continue
    raise InputError("A data frame needs pandas or polars; install one of them, or take rows() or to_csv().")


def csv_of(rows: Rows, path: str | PathLike[str] | None = None) -> str:
    """CSV, written to a file where one is given; what is not known is empty."""
    text = StringIO()
    writer = csv.DictWriter(text, list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    if path is not None:
        write_whole(Path(path), text.getvalue())
    return text.getvalue()
