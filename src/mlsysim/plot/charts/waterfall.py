"""Waterfall: parts that add up to a whole, each bar beginning where the one before it ended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mlsysim.errors import InputError
from mlsysim.plans.parts import time_parts
from mlsysim.plot.amounts import Amounts, read_label, read_parts
from mlsysim.plot.bars import Row, paint_rows
from mlsysim.plot.figure import WIDE, Figure
from mlsysim.plot.frame import finish, heading
from mlsysim.plot.scale import amount
from mlsysim.plot.svg import Drawing
from mlsysim.units.registry import quantity
from mlsysim.walls.fleet.communication import DistributedResult
from mlsysim.walls.result import Result


@dataclass(frozen=True)
class _Waterfall:
    title: str
    subtitle: str
    parts: Amounts
    total_label: str
    total_text: str

    @property
    def total(self) -> float:
        return sum(self.parts.values)

    @property
    def whole(self) -> str:
        """The sum as it is printed; the digits of the metric that it is, where that is known."""
        return self.total_text or amount(self.total, self.parts.unit)

    def _axis(self) -> str:
        return "Time" if self.parts.unit == "s" else "Cumulated"

    def rows(self) -> list[Row]:
        rows, before = [], 0.0
        for k, (label, value) in enumerate(zip(self.parts.labels, self.parts.values, strict=True)):
            share = f", {value / self.total:.0%}" if self.total else ""
            rows.append(Row(label, before, before + value, amount(value, self.parts.unit) + share, k % 7))
            before += value
        rows.append(Row(self.total_label, 0.0, before, self.whole, 7, bold=True, hatched=False))
        return rows

    def describe(self) -> str:
        named = "; ".join(
            f"{label} {amount(value, self.parts.unit)}"
            for label, value in zip(self.parts.labels, self.parts.values, strict=True)
        )
        return f"Waterfall of {len(self.parts.labels)} parts: {named}; {self.total_label} {self.whole}."

    def paint(self, width: float) -> Drawing:
        d = Drawing(width)
        y = heading(d, self.title, self.subtitle)
        y = paint_rows(d, y, self.rows(), self._axis(), self.parts.unit, linked=True)
        return finish(d, y)

    def axes(self, ax: Any) -> None:
        rows = self.rows()
        ax.barh([row.label for row in rows], [row.high - row.low for row in rows], left=[row.low for row in rows])
        ax.invert_yaxis()
        ax.set_xlabel(f"{self._axis()} ({self.parts.unit})" if self.parts.unit else self._axis())


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
    read = read_parts(parts)
    title = read_label(title or "What the whole consists of")
    chart = _Waterfall(title, subtitle, read, read_label(total_label), total_text)
    return Figure(chart.title, chart.describe(), chart.paint, chart.axes, width)
