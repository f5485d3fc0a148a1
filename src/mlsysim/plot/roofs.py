"""The picture of rooflines: slopes and flat roofs on logarithmic axes, ridge points, and where workloads operate."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from mlsysim.plot.figure import Figure
from mlsysim.plot.frame import (
    BODY,
    PAD,
    SMALL,
    KeyEntry,
    finish,
    heading,
    key,
    log_scale,
    notes,
    x_axis,
    y_axis,
    y_ticks,
    y_title,
)
from mlsysim.plot.labels import Placer
from mlsysim.plot.scale import amount
from mlsysim.plot.svg import Box, Drawing, fit


@dataclass(frozen=True, slots=True)
class Roof:
    """A flat roof (FLOP/s) and the slope that leads up to it (B/s)."""

    label: str
    peak: float
    bandwidth: float

    @property
    def ridge(self) -> float:
        """Intensity at which both meet (FLOP/B)."""
        return self.peak / self.bandwidth

    def at(self, intensity: float) -> float:
        """The most that can be computed at an intensity (FLOP/s)."""
        return min(self.peak, intensity * self.bandwidth)

    @property
    def sentence(self) -> str:
        """Both roofs and the ridge in words."""
        return (
            f"{self.label}: {amount(self.peak, 'FLOP/s')}, {amount(self.bandwidth, 'B/s')}, "
            f"ridge at {amount(self.ridge, 'FLOP/B')}"
        )


@dataclass(frozen=True, slots=True)
class OperatingPoint:
    """A workload: its intensity (FLOP/B) and what it reaches (FLOP/s)."""

    label: str
    intensity: float
    performance: float


@dataclass(frozen=True)
class RoofChart:
    """All that a roofline shows. ``ceiling`` is the fraction of the peak that was taken to be reachable."""

    title: str
    subtitle: str
    x_title: str
    roofs: tuple[Roof, ...]
    points: tuple[OperatingPoint, ...]
    ceiling: float | None = None

    def figure(self, width: int) -> Figure:
        """The chart as a figure."""
        return Figure(self.title, self.describe(), self.paint, self.axes, width)

    def describe(self) -> str:
        """The chart in words."""
        said = [
            f"Log-log chart of attainable FLOP/s over {self.x_title.lower()}.",
            *(f"{r.sentence}." for r in self.roofs),
        ]
        for point in self.points:
            roof = self.roofs[0]
            bound = "slope" if point.intensity < roof.ridge else "flat roof"
            said.append(
                f"{point.label}: {amount(point.performance, 'FLOP/s')} at {amount(point.intensity, 'FLOP/B')}, "
                f"under the {bound} of {roof.label}."
            )
        return " ".join(said)

    def _range(self) -> tuple[float, float, float, float]:
        ridges = [roof.ridge for roof in self.roofs]
        intensities = [point.intensity for point in self.points]
        low = min([min(ridges) / 30, *(value / 3 for value in intensities)])
        high = max([max(ridges) * 12, *(value * 3 for value in intensities)])
        reached = [point.performance for point in self.points]
        bottom = min([*(roof.at(low) for roof in self.roofs), *(value / 2 for value in reached)])
        top = max([*(roof.peak for roof in self.roofs), *reached]) * 3
        return low, high, bottom, top

    def paint(self, width: float) -> Drawing:
        """Lay the chart out for a width."""
        d = Drawing(width)
        low, high, bottom, top = self._range()
        y = heading(d, self.title, self.subtitle)
        y = key(d, y, [KeyEntry(roof.sentence, k, "line") for k, roof in enumerate(self.roofs)])
        y = y_title(d, y + 2, "Performance", "FLOP/s")
        height = 300.0 if width < 500 else 330.0
        values, texts, _, margin = y_ticks(lambda a, b: log_scale(bottom, top, a, b), "", height)
        plot = Box(PAD + margin + 8, y, width - PAD, y + height)
        across = log_scale(low, high, plot.left, plot.right)
        up = log_scale(bottom, top, plot.bottom, plot.top)
        y = x_axis(d, across, plot, self.x_title, "FLOP/B")
        y_axis(d, up, plot, values, texts)
        placer = Placer(Box(plot.left + 2, plot.top + 1, plot.right - 1, plot.bottom - 2))
        for k, roof in enumerate(self.roofs):
            corners = [(low, roof.at(low)), (roof.ridge, roof.peak), (high, roof.peak)]
            drawn = [(across(x), up(value)) for x, value in corners]
            d.polyline(drawn, f"l{k % 8}")
            for one, other in pairwise(drawn):
                placer.block_line(*one, *other)
        if self.ceiling is not None:
            self._ceiling(d, across, up, high, placer)
        for k, point in enumerate(self.points):
            px, py = across(point.intensity), up(point.performance)
            tip = f"{point.label}: {amount(point.performance, 'FLOP/s')} at {amount(point.intensity, 'FLOP/B')}"
            d.marker(k, px, py, 5, f"f{(k + len(self.roofs)) % 8} edge", tip)
            placer.block(Box(px - 6, py - 6, px + 6, py + 6))
        missing = self._point_labels(d, across, up, placer, plot)
        self._ridge_labels(d, across, up, placer)
        y = notes(d, y, ["Also shown: " + "; ".join(missing) + "."] if missing else [])
        return finish(d, y)

    def _ceiling(self, d: Drawing, across: Any, up: Any, high: float, placer: Placer) -> None:
        assert self.ceiling is not None
        for k, roof in enumerate(self.roofs):
            reachable = roof.peak * self.ceiling
            start = across(reachable / roof.bandwidth), up(reachable)
            end = across(high), up(reachable)
            d.line(*start, *end, f"l{k % 8} ceiling")
            placer.block_line(*start, *end)

    def _point_labels(self, d: Drawing, across: Any, up: Any, placer: Placer, plot: Box) -> list[str]:
        missing = []
        for point in self.points:
            shown = fit(point.label, BODY, min(230.0, (plot.right - plot.left) * 0.6))
            px, py = across(point.intensity), up(point.performance)
            place = placer.place(px, py, shown, BODY)
            if place is None:
                missing.append(
                    f"{point.label} ({amount(point.performance, 'FLOP/s')} at {amount(point.intensity, 'FLOP/B')})"
                )
                continue
            if place.leader:
                d.line(px, py, *place.leader, "leader")
            d.text(place.x, place.baseline, shown, BODY, "ink halo")
        return missing

    def _ridge_labels(self, d: Drawing, across: Any, up: Any, placer: Placer) -> None:
        for roof in self.roofs:
            x, y = across(roof.ridge), up(roof.peak)
            text = f"ridge {amount(roof.ridge, 'FLOP/B')}"
            place = placer.place(x, y, text, SMALL)
            d.marker(3, x, y, 3.5, "inkfill", f"{roof.label}: {text}")
            if place is not None:
                if place.leader:
                    d.line(x, y, *place.leader, "leader")
                d.text(place.x, place.baseline, text, SMALL, "muted halo")

    def axes(self, ax: Any) -> None:
        """The same on Matplotlib axes."""
        low, high, bottom, top = self._range()
        for roof in self.roofs:
            xs = [low, roof.ridge, high]
            ax.plot(xs, [roof.at(x) for x in xs], label=roof.sentence)
        for k, point in enumerate(self.points):
            ax.plot([point.intensity], [point.performance], linestyle="none", marker="os^DvPX*"[k % 8])
            ax.annotate(point.label, (point.intensity, point.performance), xytext=(6, 4), textcoords="offset points")
        ax.set(xscale="log", yscale="log", xlim=(low, high), ylim=(bottom, top))
        ax.set(xlabel=f"{self.x_title} (FLOP/B)", ylabel="Performance (FLOP/s)")
        ax.legend(loc="lower right", fontsize="small")


def check_ceiling(efficiency: Any) -> float | None:
    """The ceiling that an efficiency draws: none where it is calibrated, or all of the peak."""
    if isinstance(efficiency, (int, float)) and not isinstance(efficiency, bool) and math.isfinite(efficiency):
        return float(efficiency) if 0 < efficiency < 1 else None
    return None
