"""Waterfall: parts that add up to a whole, each bar beginning where the one before it ended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mlsysim.errors import InputError
from mlsysim.plans.parts import time_parts
from mlsysim.plot.amounts import Parts, read_label, read_parts
from mlsysim.plot.bars import Row, paint_rows
from mlsysim.plot.figure import WIDE, Figure
from mlsysim.plot.frame import with_unit
from mlsysim.plot.scale import amount
from mlsysim.plot.svg import Drawing
from mlsysim.units.registry import quantity
from mlsysim.walls.fleet.communication import DistributedResult
from mlsysim.walls.result import Result


@dataclass(frozen=True, kw_only=True, repr=False)
class _Waterfall(Figure):
    parts: Parts
    unit: str
    total_label: str
    total_text: str
    """The sum as it is printed; the digits of the metric that it is, where that is known."""

    def _axis(self) -> str:
        return "Time" if self.unit == "s" else "Cumulated"

    def rows(self) -> list[Row]:
        total = sum(value for _, value in self.parts)
        rows, before = [], 0.0
        for k, (label, value) in enumerate(self.parts):
            share = f", {value / total:.0%}" if total else ""
            rows.append(Row(label, amount(value, self.unit) + share, [(before, before + value, k % 7)]))
            before += value
        return [*rows, Row(self.total_label, self.total_text, [(0.0, before, 7)], bold=True)]

    @property
    def alt(self) -> str:
        named = "; ".join(f"{label} {amount(value, self.unit)}" for label, value in self.parts)
        return f"Waterfall of {len(self.parts)} parts: {named}; {self.total_label} {self.total_text}."

    def body(self, d: Drawing, y: float) -> float:
        return paint_rows(d, y, self.rows(), self._axis(), self.unit, linked=True)

    def axes(self, ax: Any) -> None:
        rows = self.rows()
        starts, ends, _ = zip(*(row.bars[0] for row in rows), strict=True)
        ax.barh([row.label for row in rows], [b - a for a, b in zip(starts, ends, strict=True)], left=starts)
        ax.invert_yaxis()
        ax.set_xlabel(with_unit(self._axis(), self.unit))


def step_parts(result: Any) -> list[tuple[str, Any]]:
    """What a result's time consists of, as its ledger has it; the parts add up to the whole."""
    ledger = result.ledger if isinstance(result, Result) else None
    if ledger is None:
        raise InputError(f"A waterfall is drawn of parts, a step or a pass, got {type(result).__name__}.")
    return [(part.label, quantity(part.value, "s")) for part in time_parts(ledger)]


def waterfall(
    parts: Any,
    *,
    total_label: str = "Total",
    total_text: str = "",
    title: str | None = None,
    subtitle: str = "",
    width: int = WIDE,
) -> Figure:
    """Parts (label, amount) or (label, number, unit) in their order, or the result of a training step or a pass.

    >>> waterfall([("compute", "5 s"), ("bubble", 600, "ms")]).alt
    'Waterfall of 2 parts: compute 5 s; bubble 600 ms; Total 5.6 s.'
    """
    if isinstance(parts, Result):
        step = isinstance(parts, DistributedResult)
        title = title or ("Where the time of a training step goes" if step else "Where the time of a pass goes")
        total_label = "Step" if step and total_label == "Total" else total_label
        if not subtitle and parts.binding is not None:
            subtitle = parts.binding.sentence
        parts = step_parts(parts)
    read, unit = read_parts(parts)
    return _Waterfall(
        title=read_label(title or "What the whole consists of"),
        subtitle=subtitle,
        width=width,
        parts=read,
        unit=unit,
        total_label=read_label(total_label),
        total_text=total_text or amount(sum(value for _, value in read), unit),
    )
