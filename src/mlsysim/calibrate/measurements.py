"""Measured tables as records: our own H200 measurements, which ship with the package, and folders of tables.

    own_rows("micro")                rows of the shipped H200 table of that name (micro, llm, train, other, extra, extra2)
    own("micro")                     the same, as measurements
    silicon(FOLDER)                  the same six tables of a folder, or the shipped ones where it has none
    operators(FOLDER)                rows of operators.csv
    published(FOLDER)                where the published tables of a folder lie
    table_rows(FILE)                 rows of any table

A silicon row is (section, config, metric, median): one measured value of one configuration. Four more tables of an H200 have columns of their own:
"verify" (the passes of ``calibrate.suite``, PyTorch 2.11), "vision" (``benchmarks/measure_vision.py``), "serving" (``benchmarks/measure_serving.py``) and "loops"
(steps of five models in a loop of continuous batching: eight kernels a layer of which four are products, split-key decode attention in Triton,
FlashAttention 2, CUDA graphs where no prompt is read; medians from inputs on the host to tokens on the host). No constant is fitted to "verify".
"""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Iterable
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

from mlsysim.errors import InputError, refuse_address
from mlsysim.simulate.formats import separator
from mlsysim.zoo.files import shipped

OWN_TABLES = ("micro", "llm", "train", "other", "extra", "extra2")


def settings(name: str) -> dict[str, Any]:
    """A TOML file of this room's data."""
    return shipped("mlsysim.calibrate", f"data/{name}.toml")


class Measurement(NamedTuple):
    """One measured value."""

    section: str
    config: dict[str, Any]
    metric: str
    median: float


def table_rows(path: Path) -> list[dict[str, str]]:
    """Rows of a CSV table."""
    with path.open(newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def published(folder: Path) -> Path:
    """Where the published tables of a folder lie: in its ``truth``, or in the folder itself."""
    inner = folder / "truth"
    return inner if inner.is_dir() else folder


def given_table(path: Path, largest: int, remark: str = "") -> tuple[list[str], list[dict[str, str]]]:
    """Header and rows of a user's CSV file; what is no table is refused."""
    if not path.is_file():
        refuse_address(path)
        raise InputError(f"{path} is not a file.")
    if path.stat().st_size > largest:
        raise InputError(f"{path} is larger than {largest:,} bytes{remark}.")
    try:
        with path.open(newline="", encoding="utf-8-sig") as stream:
            first = stream.readline()
            stream.seek(0)
            reader = csv.DictReader(stream, skipinitialspace=True, delimiter=separator(first))
            header = [name.strip() for name in reader.fieldnames or ()]
            reader.fieldnames = header
            rows = [{key: (value or "").strip() for key, value in row.items() if key is not None} for row in reader]
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path} is not a CSV table: {error}.") from None
    if not any(header):
        raise InputError(
            f"{path} is empty; expected a line with the names of columns, and a line for each measurement."
        )
    return header, rows


def own_rows(table: str) -> list[dict[str, str]]:
    """Rows of a shipped table of H200 measurements."""
    data = files("mlsysim.calibrate").joinpath("data", f"h200_{table}.csv.gz").read_bytes()
    return list(csv.DictReader(io.StringIO(gzip.decompress(data).decode("utf-8"))))


def _read(rows: Iterable[dict[str, str]]) -> tuple[Measurement, ...]:
    return tuple(Measurement(r["section"], json.loads(r["config"]), r["metric"], float(r["median"])) for r in rows)


@cache
def own(table: str) -> tuple[Measurement, ...]:
    """A shipped table of H200 measurements."""
    return _read(own_rows(table))


def found_below(folder: Path | None, name: str) -> Path | None:
    """A file of that name, anywhere below the folder."""
    return next(iter(sorted(folder.rglob(name))), None) if folder else None


def silicon(folder: Path | None, table: str) -> tuple[Measurement, ...]:
    """A silicon table of the folder (anywhere below it), else the shipped one."""
    path = found_below(folder, f"{table}.csv")
    return _read(table_rows(path)) if path else own(table)


def operators(folder: Path | None) -> list[dict[str, str]]:
    """Rows of operators.csv, anywhere below the folder; none where there is no such file."""
    path = found_below(folder, "operators.csv")
    return table_rows(path) if path else []
