"""Waterfall: parts that add up to a whole, each bar beginning where the one before it ended."""

from __future__ import annotations

from collections.abc import Sequence
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
from mlsysim.units.registry import quantity, to_si
from mlsysim.walls.fleet.communication import DistributedResult
from mlsysim.walls.node.compute_memory import PerformanceProfile

__all__ = ["step_parts", "waterfall"]

# Parts of a sum that are smaller than this share of it are rounding.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class _Waterfall:
    title: str
    subtitle: str
    parts: Amounts
    total_label: str

    @property
    def total(self) -> float:
        return sum(self.parts.values)

    def _axis(self) -> str:
        return "Time" if self.parts.unit == "s" else "Cumulated"

    def rows(self) -> list[Row]:
        rows, before = [], 0.0
        for k, (label, value) in enumerate(zip(self.parts.labels, self.parts.values, strict=True)):
            share = f", {value / self.total:.0%}" if self.total else ""
            rows.append(Row(label, before, before + value, amount(value, self.parts.unit) + share, k % 7))
            before += value
        rows.append(Row(self.total_label, 0.0, before, amount(before, self.parts.unit), 7, bold=True, hatched=False))
        return rows

    def describe(self) -> str:
        named = "; ".join(
            f"{label} {amount(value, self.parts.unit)}"
            for label, value in zip(self.parts.labels, self.parts.values, strict=True)
        )
        return f"Waterfall of {len(self.parts.labels)} parts: {named}; {self.total_label} {amount(self.total, self.parts.unit)}."

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
    """What a result's time consists of, in the order in which it is spent; the parts add up to the whole."""
    if isinstance(result, DistributedResult):
        compute = to_si(result.compute_latency, "s")
        bubble = to_si(result.pipeline_bubble_latency, "s")
        gradients = to_si(result.dp_exposed_latency, "s")
        whole = to_si(result.step_latency_total, "s")
        rest = max(whole - compute - bubble - gradients, 0.0)
        named = [
            ("Compute", compute),
            ("Exposed model-parallel communication", rest),
            ("Pipeline bubble", bubble),
            ("Exposed gradient sync", gradients),
        ]
        if "stack" in result.assumptions or result.step_interval is not None:
            named[1] = ("Model-parallel communication, optimizer, fixed time", rest)
    elif isinstance(result, PerformanceProfile):
        whole = to_si(result.latency, "s")
        if result.ledger is not None:
            named = [(part.label[:1].upper() + part.label[1:], part.value) for part in time_parts(result.ledger)]
        else:
            overhead = to_si(result.latency_overhead, "s")
            named = [(f"{result.bottleneck} (the longer of both)", whole - overhead), ("Dispatch", overhead)]
    else:
        raise InputError(f"A waterfall is drawn of parts, a step or a pass, got {type(result).__name__}.")
    return [(label, quantity(value, "s")) for label, value in named if value > _ROUNDING * whole]


def waterfall(
    parts: Any, *, total_label: str = "Total", title: str | None = None, subtitle: str = "", width: int = WIDE
) -> Figure:
    """Parts (label, amount) or (label, number, unit) in their order, or the result of a training step or a pass.

    >>> waterfall([("compute", "5 s"), ("bubble", 600, "ms")]).alt
    'Waterfall of 2 parts: compute 5 s; bubble 600 ms; Total 5.6 s.'
    """
    if isinstance(parts, (DistributedResult, PerformanceProfile)):
        step = isinstance(parts, DistributedResult)
        title = title or ("Where the time of a training step goes" if step else "Where the time of a pass goes")
        total_label = "Step" if step and total_label == "Total" else total_label
        if not subtitle and parts.binding is not None:
            subtitle = parts.binding.sentence
        parts = step_parts(parts)
    elif not isinstance(parts, (Sequence, dict)):
        parts = step_parts(parts) if hasattr(parts, "binding") else parts
    read = read_parts(parts)
    chart = _Waterfall(read_label(title or "What the whole consists of"), subtitle, read, read_label(total_label))
    return Figure(chart.title, chart.describe(), chart.paint, chart.axes, width)
