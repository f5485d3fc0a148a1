"""Operators of timm's networks (PyTorch Image Models) as they were counted: calls, operations and elements of each class, for one image of a size.

Our own count, by running each model on tensors that have a shape and no data. Tags of weights (``resnet50.a1_in1k``) make no difference. The table is
read when the first of them is asked for.
"""

from __future__ import annotations

import csv
import gzip
import io
from functools import cache
from importlib.resources import files
from typing import Any

from mlsysim.errors import InputError, unknown_name

PREFIX = "timm/"
_USUAL = 224


@cache
def _table() -> dict[str, dict[int, dict[str, str]]]:
    packed = files("mlsysim.models").joinpath("data", "timm.csv.gz").read_bytes()
    found: dict[str, dict[int, dict[str, str]]] = {}
    for row in csv.DictReader(io.StringIO(gzip.decompress(packed).decode())):
        found.setdefault(row["model"], {})[int(row["image"])] = row
    return found


@cache
def counted_sizes() -> dict[str, tuple[int, ...]]:
    """Image sizes that were counted, by the network's name."""
    return {name: tuple(sizes) for name, sizes in _table().items()}


def counts_of(name: str, image_size: int | None = None) -> tuple[str, int, float, dict[str, dict[str, float]]]:
    """A network's name, image size, parameters, and its calls, operations and elements by class; at the usual size where none is given."""
    plain = name.removeprefix(PREFIX).split(".")[0]
    if plain not in _table():
        raise unknown_name("timm network", plain, _table())
    sizes = _table()[plain]
    size = image_size or (_USUAL if _USUAL in sizes else min(sizes))
    if size not in sizes:
        known = ", ".join(str(each) for each in sorted(sizes))
        raise InputError(f"{PREFIX}{plain} was counted at {known} pixels, not at {size}.", field="image_size")
    row, counts = sizes[size], ("calls", "operations", "elements")
    found: dict[str, Any] = {what: {} for what in counts}
    for column, value in row.items():
        kind, _, what = column.rpartition("_")
        if what in found and value:
            found[what][kind] = float(value)
    return plain, size, float(row["parameters"]), found
