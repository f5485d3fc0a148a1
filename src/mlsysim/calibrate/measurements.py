"""Measured tables as records: our own H200 measurements, which ship with the package, and folders of tables.

    own_rows("micro")                rows of the shipped H200 table of that name (micro, llm, train, other, extra)
    own("micro")                     the same, as measurements
    silicon(FOLDER)                  the same five tables of a folder, or the shipped ones where it has none
    operators(FOLDER)                rows of operators.csv

A silicon row is (section, config, metric, median): one measured value of one configuration.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

OWN_TABLES = ("micro", "llm", "train", "other", "extra")


@dataclass(frozen=True, slots=True)
class Measurement:
    """One measured value."""

    section: str
    config: dict[str, Any]
    metric: str
    median: float


def _read(rows: Iterable[dict[str, str]]) -> Iterator[Measurement]:
    for row in rows:
        yield Measurement(row["section"], json.loads(row["config"]), row["metric"], float(row["median"]))


def own_rows(table: str) -> list[dict[str, str]]:
    """Rows of a shipped table of H200 measurements."""
    data = files("mlsysim.calibrate").joinpath("data", f"h200_{table}.csv.gz").read_bytes()
    return list(csv.DictReader(io.StringIO(gzip.decompress(data).decode("utf-8"))))


@cache
def own(table: str) -> tuple[Measurement, ...]:
    """A shipped table of H200 measurements."""
    return tuple(_read(own_rows(table)))


def _find(folder: Path | None, name: str) -> Path | None:
    if folder is None:
        return None
    found = sorted(folder.rglob(name))
    return found[0] if found else None


def silicon(folder: Path | None, table: str) -> tuple[Measurement, ...]:
    """A silicon table of the folder (anywhere below it), else the shipped one."""
    path = _find(folder, f"{table}.csv")
    if path is None:
        return own(table)
    with path.open(newline="", encoding="utf-8") as stream:
        return tuple(_read(csv.DictReader(stream)))


def operators(folder: Path | None) -> list[dict[str, str]]:
    """Rows of operators.csv, anywhere below the folder; none where there is no such file."""
    path = _find(folder, "operators.csv")
    if path is None:
        return []
    with path.open(newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))
