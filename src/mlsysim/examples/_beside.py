"""A case study beside the paper: what it prints, what comes out here, and why they differ."""

from __future__ import annotations

from typing import Any

from mlsysim.show import table


def beside_paper(*rows: tuple[Any, ...], what: str = "") -> None:
    table([what, "paper", "ours", "why they differ"], rows, "<>><")


def in_unit(value: Any, unit: str, digits: int = 0) -> str:
    return f"{value.to(unit).magnitude:,.{digits}f}"
