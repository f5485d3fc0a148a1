"""The op inventory of timm models: our own count, by running each model on tensors that have a shape and no data."""

from __future__ import annotations

import csv
import gzip
import io
from functools import cache
from importlib.resources import files

from mlsysim.models.inventory import CLASSES, Inventory

__all__ = ["timm_inventory", "timm_sizes"]


@cache
def _table() -> dict[tuple[str, int], dict[str, str]]:
    packed = files("mlsysim.calibrate").joinpath("data", "timm_ops.csv.gz").read_bytes()
    rows = csv.DictReader(io.StringIO(gzip.decompress(packed).decode()))
    return {(row["model"], int(row["image"])): row for row in rows}


def timm_sizes() -> list[tuple[str, int]]:
    """Models and image sizes that were counted."""
    return list(_table())


@cache
def timm_inventory(model: str, image: int) -> Inventory | None:
    """What a timm model is made of at an image size, or None where it was not counted."""
    row = _table().get((model.split(".")[0], image))
    if row is None:
        return None
    calls = {c: float(row[f"{c}_calls"]) for c in CLASSES if row[f"{c}_calls"]}
    operations = {c: float(row[f"{c}_operations"]) for c in CLASSES if row.get(f"{c}_operations")}
    elements = {c: float(row[f"{c}_elements"]) for c in CLASSES if row[f"{c}_elements"]}
    return Inventory(model, float(row["parameters"]), calls, operations, elements)
