"""Cells of a row: numbers and names, or the reason why a row cannot be predicted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mlsysim.calibrate.measurements import settings
from mlsysim.calibrate.questions import Skipped
from mlsysim.errors import MLSysError
from mlsysim.hardware.registry import Hardware
from mlsysim.hardware.types import HardwareNode
from mlsysim.models.registry import Models
from mlsysim.models.transformer import TransformerWorkload
from mlsysim.physics.precision import precision_name


def cell(row: Mapping[str, str], name: str) -> str:
    """The text of a cell, empty where there is none."""
    return (row.get(name) or "").strip()


def number(row: Mapping[str, str], name: str, default: float | None = None) -> float:
    """A number; the default where the cell is empty."""
    text = cell(row, name)
    if not text:
        if default is None:
            raise Skipped(f"{name} is not given")
        return default
    try:
        return float(text)
    except ValueError:
        raise Skipped(f"{name} is {text[:40]!r}, not a number") from None


def whole(row: Mapping[str, str], name: str, default: int | None = None) -> int:
    """A whole number."""
    return int(number(row, name, default))


def chip_of(name: str) -> HardwareNode:
    """A chip of the zoo."""
    found: HardwareNode | None = Hardware.get(name, None)
    if found is None:
        raise Skipped(f"unknown chip: {name}")
    return found


def key_of(entry: Any) -> str:
    """What the zoo calls a chip or a model."""
    return str(entry.metadata.key or entry.name)


def model_of(name: str) -> TransformerWorkload:
    """A transformer of the zoo."""
    model = Models.get(name, None)
    if model is None:
        raise Skipped(f"unknown model: {name}")
    if not isinstance(model, TransformerWorkload) or not model.has_dimensions:
        raise Skipped(f"{name} has no public configuration")
    return model


def experts_of(model: Any) -> int:
    """Experts of a mixture; one where it is none."""
    return int(getattr(model, "experts", 1))


def format_of(name: str, model: str = "") -> str:
    """A number format; "fp4" is what the model is published in."""
    folded = name.lower()
    if folded == "fp4" and "gpt-oss" in model.lower():
        return "mxfp4"
    try:
        return settings("rows")["formats"].get(folded) or precision_name(name)
    except MLSysError:
        raise Skipped(f"unknown precision: {name}") from None
