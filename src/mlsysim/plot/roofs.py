"""The picture of rooflines: slopes and flat roofs on logarithmic axes, ridge points, and where workloads operate."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from mlsysim.plot.figure import Figure
from mlsysim.plot.frame import BODY, SMALL, KeyEntry, key, notes, plane
from mlsysim.plot.labels import Placer
from mlsysim.plot.scale import amount, log_scale
from mlsysim.plot.svg import Box, Drawing, fit


class Roof(NamedTuple):
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


class OperatingPoint(NamedTuple):
    """A workload: its intensity (FLOP/B) and what it reaches (FLOP/s)."""

    label: str
    intensity: float
    performance: float

    @property
    def place(self) -> str:
        return f"{amount(self.performance, 'FLOP/s')} at {amount(self.intensity, 'FLOP/B')}"


@dataclass(frozen=True, kw_only=True, repr=False)
class RoofChart(Figure):
    """All that a roofline shows. ``ceiling`` is the fraction of the peak that was taken to be reachable."""

    x_title: str
    roofs: list[Roof]
    points: list[OperatingPoint]
    ceiling: float | None = None

    @property
    def alt(self) -> str:
        said = [f"Log-log chart of attainable FLOP/s over {self.x_title.lower()}."]
        said += [f"{roof.sentence}." for roof in self.roofs]
        first = self.roofs[0]
        for point in self.points:
            bound = "slope" if point.intensity < first.ridge else "flat roof"
            said.append(f"{point.label}: {point.place}, under the {bound} of {first.label}.")
        return " ".join(said)

    def _range(self) -> tuple[float, float, float, float]:
        ridges = [roof.ridge for roof in self.roofs]
        low = min([min(ridges) / 30, *(point.intensity / 3 for point in self.points)])
        high = max([max(ridges) * 12, *(point.intensity * 3 for point in self.points)])
        bottom = min([*(roof.at(low) for roof in self.roofs), *(point.performance / 2 for point in self.points)])
        top = max([*(roof.peak for roof in self.roofs), *(point.performance for point in self.points)]) * 3
        return low, high, bottom, top

    def body(self, d: Drawing, y: float) -> float:
        low, high, bottom, top = self._range()
        y = key(d, y, [KeyEntry(roof.sentence, k, "line") for k, roof in enumerate(self.roofs)])
        sides = (
            (partial(log_scale, low, high), self.x_title, "FLOP/B"),
            (partial(log_scale, bottom, top), "Performance", "FLOP/s"),
        )
        plot, across, up, y = plane(d, y + 2, 300.0 if d.narrow else 330.0, *sides)
        placer = Placer(Box(plot.left + 2, plot.top + 1, plot.right - 1, plot.bottom - 2))
        for k, roof in enumerate(self.roofs):
            corners = [(low, roof.at(low)), (roof.ridge, roof.peak), (high, roof.peak)]
            drawn = [(across(x), up(value)) for x, value in corners]
            d.polyline(drawn, f"l{k % 8}")
            placer.block_path(drawn)
        for k, roof in enumerate(self.roofs if self.ceiling is not None else ()):
            reachable = roof.peak * (self.ceiling or 1.0)
            ends = [(across(x), up(reachable)) for x in (reachable / roof.bandwidth, high)]
            d.line(*ends[0], *ends[1], f"l{k % 8} ceiling")
            placer.block_path(ends)
        where = [(across(point.intensity), up(point.performance)) for point in self.points]
        for k, (point, at) in enumerate(zip(self.points, where, strict=True)):
            d.marker(k, *at, 5, f"f{(k + len(self.roofs)) % 8} edge", f"{point.label}: {point.place}")
            placer.block(*at, 6)
        room = min(230.0, (plot.right - plot.left) * 0.6)
        missing = []
        for point, at in zip(self.points, where, strict=True):
            if not placer.label(d, *at, fit(point.label, BODY, room), BODY):
                missing.append(f"{point.label} ({point.place})")
        for roof in self.roofs:
            ridge, text = (across(roof.ridge), up(roof.peak)), f"ridge {amount(roof.ridge, 'FLOP/B')}"
            d.marker(3, *ridge, 3.5, "inkfill", f"{roof.label}: {text}")
            placer.label(d, *ridge, text, SMALL, "muted halo")
        return notes(d, y, ["Also shown: " + "; ".join(missing) + "."] if missing else [])

    def axes(self, ax: Any) -> None:
        low, high, bottom, top = self._range()
        for roof in self.roofs:
            xs = [low, roof.ridge, high]
            ax.plot(xs, [roof.at(x) for x in xs], label=roof.sentence)
        for k, point in enumerate(self.points):
            ax.plot([point.intensity], [point.performance], linestyle="none", marker="os^DvPX*"[k % 8])
            ax.annotate(point.label, point[1:], xytext=(6, 4), textcoords="offset points")
        ax.set(xscale="log", yscale="log", xlim=(low, high), ylim=(bottom, top))
        ax.set(xlabel=f"{self.x_title} (FLOP/B)", ylabel="Performance (FLOP/s)")
        ax.legend(loc="lower right", fontsize="small")


def check_ceiling(efficiency: Any) -> float | None:
    """The ceiling that an efficiency draws: none where it is calibrated, or all of the peak."""
    if isinstance(efficiency, (int, float)) and not isinstance(efficiency, bool) and math.isfinite(efficiency):
        return float(efficiency) if 0 < efficiency < 1 else None
    return None
