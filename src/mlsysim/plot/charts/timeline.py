"""Pipeline schedules as charts: what every stage does when and where it waits, and the memory that each holds meanwhile.

Schedules are simulated (:mod:`mlsysim.plot.schedule`). In the chart of memory, activations rise with forward passes and
fall with backward passes: a micro-batch holds ``activations`` bytes on a stage from the start of its forward pass until
nothing needs them. State (weights, gradients, optimizer) lies below, unchanged. Left out: buffers of communication, and
what the allocator wastes.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import accumulate
from typing import Any, NamedTuple

from mlsysim.errors import InputError
from mlsysim.physics.pipeline import CHUNKED, FOLDED
from mlsysim.plot.amounts import read_amount
from mlsysim.plot.figure import WIDE, Figure
from mlsysim.plot.frame import PAD, SMALL, KeyEntry, axis_title, key, note, with_unit, x_axis, y_axis, y_ticks
from mlsysim.plot.orders import BACKWARD, FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT
from mlsysim.plot.scale import Linear, amount, axis_unit
from mlsysim.plot.schedule import Passes, Slot, Timeline, simulate
from mlsysim.plot.svg import Box, Drawing, measure
from mlsysim.units.records import dataclass

_TITLES = {
    "gpipe": "GPipe", "1f1b": "1F1B", "interleaved": "Interleaved 1F1B", "breadth_first": "Breadth first",
    "zero_bubble": "Zero bubble (H1)", "zb_h2": "Zero bubble (H2)", "zb_v": "Zero bubble (V)",
    "dualpipe": "DualPipe", "dualpipe_v": "DualPipeV",
}  # fmt: skip
_SERIES = {FORWARD: 0, BACKWARD: 1, INPUT_GRADIENT: 4, WEIGHT_GRADIENT: 2}
_SMALLEST_TEXT = 8.0
_SHORTER = {
    **dict.fromkeys(CHUNKED, "Lower blocks are passes through every second chunk of layers of a stage."),
    **dict.fromkeys(
        FOLDED, "Lower blocks are passes through the second half of the layers, on the way back to stage 0."
    ),
    "dualpipe": "Lower blocks are passes of the micro-batches that enter at the far end of the pipeline.",
}
_PANELS = 8
_LEAST, _GAP = 4.0, 26.0
"""Pixels of the shortest block that has to be seen, and between the beginning and the end of a step."""
_SLIVERS = 0.05
"""Share of the work that may be in shorter blocks: a chunk at an end of the model may hold little but a table."""


@dataclass(frozen=True, repr=False)
class _Schedule(Figure):
    """What both charts share: the slots, and seconds of a micro-batch on a stage, where they are known."""

    line: Timeline
    seconds: float | None

    def clock(self) -> tuple[float, str, str]:
        """Factor of times on the axis, their unit, and the title of the axis."""
        if self.seconds is None:
            return 1.0, "", "Time, in times of one micro-batch on one stage"
        factor, symbol = axis_unit(self.line.length * self.seconds, "s")
        return factor * self.seconds, symbol, "Time"

    def took(self, times: float) -> str:
        """So many micro-batch times in words."""
        return f"{times:.4g} micro-batch times" if self.seconds is None else amount(times * self.seconds, "s")


class _Window(NamedTuple):
    """A stretch of the step, in micro-batch times, and where it is on the page."""

    start: float
    end: float
    scale: Linear


@dataclass(frozen=True, repr=False)
class _TimelineChart(_Schedule):
    @property
    def alt(self) -> str:
        return (
            f"Timeline of the pipeline schedule {_TITLES[self.line.schedule]}. {self.subtitle} Each row is a stage; each "
            "block a pass of one micro-batch; gaps are the bubble."
        )

    def _shortest(self, left_out: float = 0.0) -> float:
        """The length of the shortest block, but for a share of all work in still shorter ones."""
        lengths = sorted(slot.end - slot.start for slot in self.line.slots if slot.end > slot.start)
        few = left_out * sum(lengths)
        return next(length for length, done in zip(lengths, accumulate(lengths), strict=True) if done > few)

    def _windows(self, left: float, right: float) -> list[_Window]:
        """The whole step; where its blocks would be too small to see, its beginning and its end."""
        line, shortest = self.line, self._shortest(_SLIVERS)
        if (right - left) * shortest >= _LEAST * line.length * (1 - 1e-9):
            return [_Window(0.0, line.length, Linear(0.0, line.length, left, right))]
        half = (right - left - _GAP) / 2
        span = half * shortest / _LEAST
        ends = (0.0, left), (line.length - span, right - half)
        return [_Window(start, start + span, Linear(start, start + span, at, at + half)) for start, at in ends]

    def _body(self, d: Drawing, y: float) -> float:
        line, (factor, symbol, title) = self.line, self.clock()
        kinds = [kind for kind in _SERIES if any(slot.kind == kind for slot in line.slots)]
        named = {kind: f"{kind} pass" if kind in (FORWARD, BACKWARD) else kind for kind in kinds}
        entries = [KeyEntry(words, _SERIES[kind], "plain") for kind, words in named.items()]
        if line.bubble_fraction > 1e-12:
            entries.append(KeyEntry("waiting (bubble)", 0, "faint"))
        y = key(d, y, entries) + 2
        row = 26.0 if line.devices <= 10 else 18.0 if line.devices <= 24 else 10.0
        every = 1 if row > 12 else 2
        names = [str(device) if d.narrow else f"Stage {device}" for device in range(line.devices)]
        plot = Box(PAD + max(measure(name, SMALL) for name in names) + 8, y, d.width - PAD, y + row * line.devices + 2)
        windows = self._windows(plot.left, plot.right)
        for window in windows:
            shown = Linear(window.start * factor, window.end * factor, window.scale.start, window.scale.end)
            x_axis(d, shown, Box(shown.start, plot.top, shown.end, plot.bottom), "", "", grid=False)
        after = axis_title(d, plot.bottom + 22, title, symbol, plot)
        # A size at which the number of every micro-batch fits its block, if there is one.
        widest = max(measure(str(k), 1.0) for k in range(line.micro_batches))
        scale = windows[0].scale
        size = min((scale(scale.low + self._shortest()) - scale.start - 3) / widest, SMALL - 1) if row > 12 else 0.0
        by_device: dict[int, list[Slot]] = {}
        for slot in line.slots:
            by_device.setdefault(slot.device, []).append(slot)
        for device, name in enumerate(names):
            top = plot.top + device * row
            if device % every == 0:
                d.text(plot.left - 7, top + row / 2 + 4, name, SMALL, "muted", anchor="end")
            for window in windows:
                d.rect(window.scale.start, top + 1, window.scale.end - window.scale.start, row - 3, "faint")
                self._row(d, by_device[device], window, top, row, size if size >= _SMALLEST_TEXT else None)
        return note(d, after, " ".join(filter(None, (self._chunk_words(), self._left_out(windows)))))

    def _chunk_words(self) -> str:
        return _SHORTER[self.line.schedule] if self._has_chunks() else ""

    def _left_out(self, windows: list[_Window]) -> str:
        """What is between the beginning and the end."""
        if len(windows) == 1:
            return ""
        first, last = windows
        begun = {slot.micro_batch for slot in self.line.slots if slot.device == 0 and slot.start < first.end}
        many, said = self.line.micro_batches, "between the beginning and the end are left out"
        goes_on = f": they go on as the first {len(begun)} of {many:,} micro-batches do" if len(begun) < many else ""
        return f"The {self.took(last.start - first.end)} {said}{goes_on}."

    def _has_chunks(self) -> bool:
        return self.line.virtual_stages > 1 or self.line.schedule == "dualpipe"

    def _row(self, d: Drawing, slots: list[Slot], window: _Window, top: float, row: float, size: float | None) -> None:
        """The blocks of a device in a window: with numbers where these fit, else all of one kind as one shape."""
        many: dict[str, list[tuple[float, float, float, float]]] = {}
        for slot in slots:
            start, end = max(slot.start, window.start), min(slot.end, window.end)
            if end - start <= 1e-9:
                continue
            left, right = window.scale(start), window.scale(end)
            # Chunks beyond the first are told apart by their height.
            inset = (3.0 if row > 12 else 2.0) if slot.chunk % 2 else 0.0
            place = left, top + 1 + inset, right - left, row - 3 - inset
            if size is None:
                many.setdefault(slot.kind, []).append((place[0], place[1], max(place[2] - 0.6, 0.6), place[3]))
                continue
            chunk = f", chunk {slot.chunk}" if self._has_chunks() else ""
            d.rect(*place, f"f{_SERIES[slot.kind]} edge", tip=f"{slot.kind}, micro-batch {slot.micro_batch}{chunk}")
            middle = place[1] + place[3] / 2
            d.text((left + right) / 2, middle + size * 0.36, str(slot.micro_batch), size, "on", anchor="middle")
        for kind, places in many.items():
            d.blocks(places, f"f{_SERIES[kind]}")

    def _axes(self, ax: Any) -> None:
        factor, symbol, title = self.clock()
        for kind in _SERIES:
            slots = [slot for slot in self.line.slots if slot.kind == kind]
            if slots:
                devices, starts = [slot.device for slot in slots], [slot.start * factor for slot in slots]
                lengths = [(s.end - s.start) * factor for s in slots]
                ax.barh(devices, lengths, left=starts, edgecolor="white", label=kind)
        ax.set_yticks(range(self.line.devices), [f"Stage {device}" for device in range(self.line.devices)])
        ax.invert_yaxis()
        ax.set_xlabel(with_unit(title, symbol))
        ax.legend(fontsize="small")


def timeline(
    schedule: str,
    stages: int,
    micro_batches: int,
    virtual_stages: int = 1,
    group: int | None = None,
    *,
    passes: Passes | None = None,
    seconds: float | None = None,
    title: str | None = None,
    width: int = WIDE,
) -> Figure:
    """The slots of a pipeline schedule, by simulation (:mod:`mlsysim.plot.schedule`), with ``passes`` of that length; in seconds where those of a
    micro-batch on a stage are given. Of a step with too many blocks for the page the beginning and the end are drawn."""
    line = simulate(schedule, stages, micro_batches, virtual_stages, group, passes or Passes())
    chunks = f", {line.virtual_stages} virtual stages each" if line.virtual_stages > 1 else ""
    figure = _TimelineChart(title or f"Pipeline schedule: {_TITLES[schedule]}", "", width, line, seconds)
    subtitle = (
        f"{stages} stages{chunks}, {micro_batches:,} micro-batches: {figure.took(line.length)}, of which the longest stage waits "
        f"{figure.took(line.bubble)} ({line.bubble / line.length:.1%})."
    )
    return replace(figure, subtitle=subtitle)


@dataclass(frozen=True, repr=False)
class _MemoryTimeline(_Schedule):
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
        return f"Memory of each stage over one step of {_TITLES[self.line.schedule]}; peaks: {peaks}.{limit}"

    def _body(self, d: Drawing, y: float) -> float:
        line, height, (factor, clock, title) = self.line, 76.0, self.clock()
        entries = [KeyEntry("activations", 0, "wash")]
        if self.state:
            entries.append(KeyEntry("weights, gradients, optimizer", 7, "wash"))
        if self.capacity:
            entries.append(KeyEntry(f"capacity {amount(self.capacity, 'B')}", 0, "limit"))
        y = key(d, y, entries)
        up_of = partial(Linear, 0.0, max([*self.peaks, self.capacity or 0.0]) * 1.05)
        values, texts, symbol, left = y_ticks(up_of, "B", height)
        y = axis_title(d, y, "Memory of one accelerator", symbol)
        devices = self.shown()
        said = {device: f"peak {amount(self.peaks[device], 'B')}" for device in devices}
        right = d.width - PAD - (0 if d.narrow else max(measure(text, SMALL) for text in said.values()) + 10)
        for device in devices:
            y += 16 if d.narrow else 0
            plot = Box(left, y, right, y + height)
            if d.narrow:
                d.text(plot.left, y - 5, f"Stage {device}, {said[device]}", SMALL)
            else:
                d.text(right + 10, y + height / 2 - 3, f"Stage {device}", SMALL)
                d.text(right + 10, y + height / 2 + 12, said[device], SMALL, "muted")
            across, up = Linear(0.0, line.length, plot.left, plot.right), up_of(plot.bottom, plot.top)
            y_axis(d, up, plot, values, texts)
            self._panel(d, device, plot, across, up)
            if device == devices[-1]:
                shown = Linear(0.0, line.length * factor, plot.left, plot.right)
                y = x_axis(d, shown, plot, with_unit(title, clock), "", grid=False)
            else:
                d.line(plot.left, plot.bottom, plot.right, plot.bottom, "axis")
                y = plot.bottom + 14
        hidden = line.devices - len(devices)
        return note(d, y, f"{hidden} stages between these are not shown." if hidden else "")

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

    def _axes(self, ax: Any) -> None:
        factor, symbol, title = self.clock()
        for device in self.shown():
            times, held = zip((0.0, 0.0), *self.line.held(device), strict=True)
            levels = [self.state + self.activations * each for each in held]
            ax.step([time * factor for time in times], levels, where="post", label=f"Stage {device}")
        if self.capacity:
            ax.axhline(self.capacity, linestyle="--", color="red", label="capacity")
        ax.set(xlabel=with_unit(title, symbol), ylabel="Memory of one accelerator (B)", ylim=(0, None))
        ax.legend(fontsize="small")


def memory_timeline(
    schedule: str,
    stages: int,
    micro_batches: int,
    virtual_stages: int = 1,
    group: int | None = None,
    *,
    activations: Any,
    state: Any = "0 B",
    capacity: Any = None,
    passes: Passes | None = None,
    seconds: float | None = None,
    title: str | None = None,
    width: int = WIDE,
) -> Figure:
    """Memory of each stage over a step. ``activations`` are those of one micro-batch on one stage, in bytes with a unit."""
    line = simulate(schedule, stages, micro_batches, virtual_stages, group, passes or Passes())
    kept = _bytes(activations, "activations", zero=False)
    limit = None if capacity is None else _bytes(capacity, "capacity", zero=False)
    below = _bytes(state, "state")
    peaks = [below + kept * line.peak_held(device) for device in range(stages)]
    fullest = f"stage {peaks.index(max(peaks))} is fullest with {amount(max(peaks), 'B')}"
    title = title or f"Memory over a step: {_TITLES[schedule]}"
    subtitle = f"{stages} stages, {micro_batches:,} micro-batches; {fullest}."
    return _MemoryTimeline(title, subtitle, width, line, seconds, kept, below, limit, peaks)


def _bytes(value: Any, what: str, *, zero: bool = True) -> float:
    number, unit = read_amount(value, what, zero=zero)
    if unit != "B":
        raise InputError(f"The {what} must be in bytes such as '80 GB', got {value!s:.60}.", field=what)
    return number
