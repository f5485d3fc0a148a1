"""Memory over a step: activations of every stage that rise with forward passes and fall with backward passes.

The schedule is simulated (:mod:`mlsysim.plot.schedule`); a micro-batch holds ``activations`` bytes on a stage from the
start of its forward pass until nothing needs them. State (weights, gradients, optimizer) lies below, unchanged. Left out:
buffers of communication, and what the allocator wastes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mlsysim.errors import InputError
from mlsysim.plot.amounts import read_amount
from mlsysim.plot.charts.timeline import TITLES, stage_names
from mlsysim.plot.figure import WIDE, Figure
from mlsysim.plot.frame import PAD, SMALL, KeyEntry, finish, heading, key, notes, x_axis, y_axis, y_ticks, y_title
from mlsysim.plot.scale import Linear, amount
from mlsysim.plot.schedule import Timeline, simulate
from mlsysim.plot.svg import Box, Drawing, measure

_PANELS = 8


@dataclass(frozen=True)
class _MemoryTimeline:
    title: str
    line: Timeline
    activations: float
    state: float
    capacity: float | None

    def shown(self) -> list[int]:
        """All devices, or some at even distance, the first and the last among them."""
        count = self.line.devices
        if count <= _PANELS:
            return list(range(count))
        return sorted({round(k * (count - 1) / (_PANELS - 1)) for k in range(_PANELS)})

    def peak(self, device: int) -> float:
        return self.state + self.activations * self.line.peak_held(device)

    @property
    def top(self) -> float:
        return max(
            [self.peak(device) for device in range(self.line.devices)] + ([self.capacity] if self.capacity else [])
        )

    def describe(self) -> str:
        peaks = "; ".join(f"stage {device} {amount(self.peak(device), 'B')}" for device in self.shown())
        over = [device for device in range(self.line.devices) if self.capacity and self.peak(device) > self.capacity]
        limit = f" Capacity is {amount(self.capacity, 'B')}; {len(over)} stages exceed it." if self.capacity else ""
        return f"Memory of each stage over one step of {TITLES[self.line.schedule]}; peaks: {peaks}.{limit}"

    def paint(self, width: float) -> Drawing:
        d, line = Drawing(width), self.line
        fullest = max(range(line.devices), key=lambda device: (self.peak(device), -device))
        y = heading(
            d,
            self.title,
            f"{line.devices} stages, {line.micro_batches} micro-batches; stage {fullest} is fullest with {amount(self.peak(fullest), 'B')}.",
        )
        entries = [KeyEntry("activations", 0, "wash")] + (
            [KeyEntry("weights, gradients, optimizer", 7, "wash")] if self.state else []
        )
        if self.capacity:
            entries.append(KeyEntry(f"capacity {amount(self.capacity, 'B')}", 0, "limit"))
        y = key(d, y, entries)
        height = 76.0
        values, texts, symbol, margin = y_ticks(lambda a, b: Linear(0.0, self.top * 1.05, a, b), "B", height)
        y = y_title(d, y, "Memory of one accelerator", symbol)
        names = stage_names(line)
        devices = self.shown()
        side = max(measure(f"peak {amount(self.peak(k), 'B')}", SMALL) for k in devices)
        beside = width >= 500
        right = width - PAD - (side + 10 if beside else 0)
        for position, device in enumerate(devices):
            y += 0 if beside else 16
            plot = Box(PAD + margin + 8, y, right, y + height)
            if beside:
                d.text(right + 10, y + height / 2 - 3, names[device], SMALL)
                d.text(right + 10, y + height / 2 + 12, f"peak {amount(self.peak(device), 'B')}", SMALL, "muted")
            else:
                d.text(plot.left, y - 5, f"{names[device]}, peak {amount(self.peak(device), 'B')}", SMALL)
            across = Linear(0.0, line.length, plot.left, plot.right)
            up = Linear(0.0, self.top * 1.05, plot.bottom, plot.top)
            y_axis(d, up, plot, values, texts)
            self._panel(d, device, plot, across, up)
            if position == len(devices) - 1:
                y = x_axis(d, across, plot, "Time, in times of one micro-batch on one stage", "", grid=False)
            else:
                d.line(plot.left, plot.bottom, plot.right, plot.bottom, "axis")
                y = plot.bottom + 14
        hidden = line.devices - len(devices)
        y = notes(d, y, [f"{hidden} stages between these are not shown."] if hidden else [])
        return finish(d, y)

    def _panel(self, d: Drawing, device: int, plot: Box, across: Linear, up: Linear) -> None:
        outline = [(across(0.0), up(self.state))]
        for time, held in self.line.held(device):
            outline += [(across(time), outline[-1][1]), (across(time), up(self.state + self.activations * held))]
        outline.append((across(self.line.length), outline[-1][1]))
        floor = up(self.state)
        if self.state:
            d.rect(
                plot.left,
                floor,
                plot.right - plot.left,
                plot.bottom - floor,
                "f7 wash",
                tip=f"state {amount(self.state, 'B')}",
            )
        d.polyline([*outline, (outline[-1][0], floor), (outline[0][0], floor)], "f0 wash", closed=True)
        d.polyline(outline, "l0")
        if self.capacity:
            d.line(plot.left, up(self.capacity), plot.right, up(self.capacity), "limit")

    def axes(self, ax: Any) -> None:
        for device in self.shown():
            steps = [(0.0, 0.0), *self.line.held(device)]
            ax.step(
                [time for time, _ in steps],
                [self.state + self.activations * held for _, held in steps],
                where="post",
                label=stage_names(self.line)[device],
            )
        if self.capacity:
            ax.axhline(self.capacity, linestyle="--", color="red", label="capacity")
        ax.set(
            xlabel="Time, in times of one micro-batch on one stage",
            ylabel="Memory of one accelerator (B)",
            ylim=(0, None),
        )
        ax.legend(fontsize="small")


def memory_timeline(
    schedule: str,
    stages: int,
    micro_batches: int,
    virtual_stages: int = 1,
    *,
    activations: Any,
    state: Any = "0 B",
    capacity: Any = None,
    title: str | None = None,
    width: int = WIDE,
) -> Figure:
    """Memory of each stage over a step. ``activations`` are those of one micro-batch on one stage, in bytes with a unit."""
    line = simulate(schedule, stages, micro_batches, virtual_stages)
    kept = _bytes(activations, "activations", zero=False)
    limit = None if capacity is None else _bytes(capacity, "capacity", zero=False)
    chart = _MemoryTimeline(
        title or f"Memory over a step: {TITLES[schedule]}", line, kept, _bytes(state, "state"), limit
    )
    return Figure(chart.title, chart.describe(), chart.paint, chart.axes, width)


def _bytes(value: Any, what: str, *, zero: bool = True) -> float:
    number, unit = read_amount(value, what, zero=zero)
    if unit != "B":
        raise InputError(f"The {what} must be in bytes such as '80 GB', got {value!s:.60}.", field=what)
    return number
