"""Timeline of a pipeline schedule: what every stage does when, and where it waits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mlsysim.plot.figure import WIDE, Figure
from mlsysim.plot.frame import PAD, SMALL, KeyEntry, key, notes, x_axis
from mlsysim.plot.scale import Linear
from mlsysim.plot.schedule import BACKWARD, FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT, Slot, Timeline, simulate
from mlsysim.plot.svg import Box, Drawing, measure

TITLES = {
    "gpipe": "GPipe", "1f1b": "1F1B", "interleaved": "Interleaved 1F1B", "zero_bubble": "Zero bubble (H1)",
    "dualpipe": "DualPipe",
}  # fmt: skip
_SERIES = {FORWARD: 0, BACKWARD: 1, INPUT_GRADIENT: 4, WEIGHT_GRADIENT: 2}
_SMALLEST_TEXT = 8.0
_SHORTER = {
    "interleaved": "Lower blocks are passes through every second chunk of layers of a stage.",
    "dualpipe": "Lower blocks are passes of the micro-batches that enter at the far end of the pipeline.",
}


TIME = "Time, in times of one micro-batch on one stage"


def stage_names(line: Timeline) -> list[str]:
    """What the rows of a timeline are called."""
    return [f"Stage {device}" for device in range(line.devices)]


@dataclass(frozen=True, kw_only=True, repr=False)
class _TimelineChart(Figure):
    line: Timeline

    @property
    def alt(self) -> str:
        return (
            f"Timeline of the pipeline schedule {TITLES[self.line.schedule]}. {self.subtitle} Each row is a stage; each "
            "block a pass of one micro-batch; gaps are the bubble."
        )

    def body(self, d: Drawing, y: float) -> float:
        line = self.line
        kinds = [kind for kind in _SERIES if any(slot.kind == kind for slot in line.slots)]
        entries = [KeyEntry(f"{kind} pass" if kind in (FORWARD, BACKWARD) else kind, _SERIES[kind]) for kind in kinds]
        if line.bubble_fraction > 1e-12:
            entries.append(KeyEntry("waiting (bubble)", 0, "void"))
        y = key(d, y, entries) + 2
        names = [name.removeprefix("Stage ") if d.narrow else name for name in stage_names(line)]
        margin = max(measure(name, SMALL) for name in names)
        row = 26.0 if line.devices <= 10 else 18.0
        plot = Box(PAD + margin + 8, y, d.width - PAD, y + row * line.devices + 2)
        scale = Linear(0.0, line.length, plot.left, plot.right)
        after = x_axis(d, scale, plot, TIME, "", grid=False)
        # A size at which the number of every micro-batch fits its block, if there is one.
        widest = max(measure(str(k), 1.0) for k in range(line.micro_batches))
        shortest = min(slot.end - slot.start for slot in line.slots)
        size = min((scale(shortest) - scale(0.0) - 3) / widest, SMALL - 1)
        for device, name in enumerate(names):
            top = plot.top + device * row
            d.text(plot.left - 7, top + row / 2 + 4, name, SMALL, "muted", anchor="end")
            d.rect(plot.left, top + 1, plot.right - plot.left, row - 3, "void")
            for slot in line.of(device):
                self._slot(d, slot, scale, top, row, size if size >= _SMALLEST_TEXT else None)
        return notes(d, after, [_SHORTER[line.schedule]] if self._has_chunks() else [])

    def _has_chunks(self) -> bool:
        return self.line.virtual_stages > 1 or self.line.schedule == "dualpipe"

    def _slot(self, d: Drawing, slot: Slot, scale: Linear, top: float, row: float, size: float | None) -> None:
        left, right = scale(slot.start), scale(slot.end)
        series = _SERIES[slot.kind]
        # Chunks beyond the first are told apart by their height.
        inset = 3.0 if slot.chunk % 2 else 0.0
        chunk = f", chunk {slot.chunk}" if self._has_chunks() else ""
        tip = f"{slot.kind}, micro-batch {slot.micro_batch}{chunk}: {slot.start:.4g} to {slot.end:.4g}"
        hatch = 0 if size is not None or right - left < 6 else series
        d.rect(left, top + 1 + inset, right - left, row - 3 - inset, f"f{series} edge", hatch=hatch, tip=tip)
        if size is not None:
            middle = top + 1 + inset + (row - 3 - inset) / 2
            d.text((left + right) / 2, middle + size * 0.36, str(slot.micro_batch), size, "on", anchor="middle")

    def axes(self, ax: Any) -> None:
        for kind in _SERIES:
            slots = [slot for slot in self.line.slots if slot.kind == kind]
            if slots:
                devices, starts = [slot.device for slot in slots], [slot.start for slot in slots]
                ax.barh(devices, [s.end - s.start for s in slots], left=starts, edgecolor="white", label=kind)
        ax.set_yticks(range(self.line.devices), stage_names(self.line))
        ax.invert_yaxis()
        ax.set_xlabel(TIME)
        ax.legend(fontsize="small")


def timeline(
    schedule: str,
    stages: int,
    micro_batches: int,
    virtual_stages: int = 1,
    *,
    title: str | None = None,
    width: int = WIDE,
) -> Figure:
    """The slots of gpipe, 1f1b, interleaved, zero_bubble or dualpipe, by simulation (:mod:`mlsysim.plot.schedule`)."""
    line = simulate(schedule, stages, micro_batches, virtual_stages)
    chunks = f", {virtual_stages} virtual stages each" if virtual_stages > 1 else ""
    subtitle = (
        f"{stages} stages{chunks}, {micro_batches} micro-batches: {line.length:.4g} micro-batch times, "
        f"of which a stage waits {line.bubble_fraction:.1%}."
    )
    title = title or f"Pipeline schedule: {TITLES[schedule]}"
    return _TimelineChart(title=title, subtitle=subtitle, width=width, line=line)
