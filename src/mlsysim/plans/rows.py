"""Rows for other programs: CSV, a data frame."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from importlib import import_module
from io import StringIO
from os import PathLike
from pathlib import Path
from typing import Any

from mlsysim.errors import InputError
from mlsysim.zoo.writing import write_whole

Rows = Sequence[Mapping[str, Any]]


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
