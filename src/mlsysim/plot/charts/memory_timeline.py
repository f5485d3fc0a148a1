"""Memory over a step: activations of every stage that rise with forward passes and fall with backward passes.

The schedule is simulated (:mod:`mlsysim.plot.schedule`); a micro-batch holds ``activations`` bytes on a stage from the
start of its forward pass until nothing needs them. State (weights, gradients, optimizer) lies below, unchanged. Left out:
buffers of communication, and what the allocator wastes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from mlsysim.errors import InputError
from mlsysim.plot.amounts import read_amount
from mlsysim.plot.charts.timeline import TIME, TITLES, stage_names
from mlsysim.plot.figure import WIDE, Figure
from mlsysim.plot.frame import PAD, SMALL, KeyEntry, axis_title, key, notes, x_axis, y_axis, y_ticks
from mlsysim.plot.scale import Linear, amount
from mlsysim.plot.schedule import Timeline, simulate
from mlsysim.plot.svg import Box, Drawing, measure

_PANELS = 8


@dataclass(frozen=True, kw_only=True, repr=False)
class _MemoryTimeline(Figure):
    line: Timeline
    activations: float
    state: float
    capacity: float | None
    peaks: list[float]
    """The most that each stage holds."""

    def shown(self) -> list[int]:
        """All devices, or some at even distance, the first and the last among them."""
        count = self.line.devices
        if count <= _PANELS:
            return list(range(count))
        return sorted({round(k * (count - 1) / (_PANELS - 1)) for k in range(_PANELS)})

    @property
    def alt(self) -> str:
        peaks = "; ".join(f"stage {device} {amount(self.peaks[device], 'B')}" for device in self.shown())
        limit = ""
        if self.capacity:
            over = sum(peak > self.capacity for peak in self.peaks)
            limit = f" Capacity is {amount(self.capacity, 'B')}; {over} stages exceed it."
        return f"Memory of each stage over one step of {TITLES[self.line.schedule]}; peaks: {peaks}.{limit}"

    def body(self, d: Drawing, y: float) -> float:
        line, height = self.line, 76.0
        entries = [KeyEntry("activations", 0, "wash")]
        if self.state:
            entries.append(KeyEntry("weights, gradients, optimizer", 7, "wash"))
        if self.capacity:
            entries.append(KeyEntry(f"capacity {amount(self.capacity, 'B')}", 0, "limit"))
        y = key(d, y, entries)
        up_of = partial(Linear, 0.0, max([*self.peaks, self.capacity or 0.0]) * 1.05)
        values, texts, symbol, left = y_ticks(up_of, "B", height)
        y = axis_title(d, y, "Memory of one accelerator", symbol)
        names, devices = stage_names(line), self.shown()
        said = {device: f"peak {amount(self.peaks[device], 'B')}" for device in devices}
        right = d.width - PAD - (0 if d.narrow else max(measure(text, SMALL) for text in said.values()) + 10)
        for device in devices:
            y += 16 if d.narrow else 0
            plot = Box(left, y, right, y + height)
            if d.narrow:
                d.text(plot.left, y - 5, f"{names[device]}, {said[device]}", SMALL)
            else:
                d.text(right + 10, y + height / 2 - 3, names[device], SMALL)
                d.text(right + 10, y + height / 2 + 12, said[device], SMALL, "muted")
            across, up = Linear(0.0, line.length, plot.left, plot.right), up_of(plot.bottom, plot.top)
            y_axis(d, up, plot, values, texts)
            self._panel(d, device, plot, across, up)
            if device == devices[-1]:
                y = x_axis(d, across, plot, TIME, "", grid=False)
            else:
                d.line(plot.left, plot.bottom, plot.right, plot.bottom, "axis")
                y = plot.bottom + 14
        hidden = line.devices - len(devices)
        return notes(d, y, [f"{hidden} stages between these are not shown."] if hidden else [])

    def _panel(self, d: Drawing, device: int, plot: Box, across: Linear, up: Linear) -> None:
        floor = up(self.state)
        outline = [(across(0.0), floor)]
        for time, held in self.line.held(device):
            outline += [(across(time), outline[-1][1]), (across(time), up(self.state + self.activations * held))]
        outline.append((across(self.line.length), outline[-1][1]))
        if self.state:
            place = plot.left, floor, plot.right - plot.left, plot.bottom - floor
            d.rect(*place, "f7 wash", tip=f"state {amount(self.state, 'B')}")
        d.polyline([*outline, (outline[-1][0], floor), (outline[0][0], floor)], "f0 wash", closed=True)
        d.polyline(outline, "l0")
        if self.capacity:
            d.line(plot.left, up(self.capacity), plot.right, up(self.capacity), "limit")

    def axes(self, ax: Any) -> None:
        for device in self.shown():
            times, held = zip((0.0, 0.0), *self.line.held(device), strict=True)
            levels = [self.state + self.activations * each for each in held]
            ax.step(times, levels, where="post", label=stage_names(self.line)[device])
        if self.capacity:
            ax.axhline(self.capacity, linestyle="--", color="red", label="capacity")
        ax.set(xlabel=TIME, ylabel="Memory of one accelerator (B)", ylim=(0, None))
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
    below = _bytes(state, "state")
    peaks = [below + kept * line.peak_held(device) for device in range(stages)]
    fullest = f"stage {peaks.index(max(peaks))} is fullest with {amount(max(peaks), 'B')}"
    return _MemoryTimeline(
        title=title or f"Memory over a step: {TITLES[schedule]}",
        subtitle=f"{stages} stages, {micro_batches} micro-batches; {fullest}.",
        width=width,
        line=line,
        activations=kept,
        state=below,
        capacity=limit,
        peaks=peaks,
    )


def _bytes(value: Any, what: str, *, zero: bool = True) -> float:
    number, unit = read_amount(value, what, zero=zero)
    if unit != "B":
        raise InputError(f"The {what} must be in bytes such as '80 GB', got {value!s:.60}.", field=what)
    return number
