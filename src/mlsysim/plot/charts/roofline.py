"""Roofline: attainable FLOP/s over arithmetic intensity (Williams, Waterman, Patterson 2009).

    attainable(I) = min(P, I W),   ridge at I* = P / W

Chips at a precision are roofs, workloads are points: each at its own intensity, and as high as the engine says it gets.
A thin dashed line marks the fraction of the peak that the engine assumed to be reachable.

Distributed roofline: attainable FLOP/s of one accelerator over the work it has for each byte it synchronises.

    attainable(I) = min(P, I B),   I = operations of a step / bytes of gradient

B is the bandwidth of a large all-reduce over the whole fleet as the engine times it (latency vanishes for large
messages), so that a slope already contains the 2 (N - 1) / N passes of a ring and the two levels of links. The second
slope is the memory of the chip, on the same axis of bytes: where it lies above the network's, the network binds first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

from mlsysim.errors import InputError
from mlsysim.hardware.arithmetic import arithmetic_peak
from mlsysim.hardware.registry import Hardware
from mlsysim.hardware.types import HardwareNode
from mlsysim.models.base import Workload
from mlsysim.models.registry import Models
from mlsysim.plot.amounts import fields, read_amount, read_label, sequence
from mlsysim.plot.figure import WIDE, Figure
from mlsysim.plot.frame import SMALL, KeyEntry, key, note, plane
from mlsysim.plot.labels import Placer
from mlsysim.plot.scale import amount, log_scale
from mlsysim.plot.svg import Box, Drawing
from mlsysim.systems.registry import Clusters
from mlsysim.systems.types import Fleet
from mlsysim.timing.network import datasheet_network
from mlsysim.units.records import dataclass
from mlsysim.units.registry import quantity, to_si
from mlsysim.walls.fleet.network_roofline import NetworkRooflineModel
from mlsysim.walls.node.compute_memory import SingleNodeModel
from mlsysim.walls.node.performance import PerformanceProfile

# Long enough for the latency of any fleet to vanish.
_LARGE_MESSAGE = 1e18


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
        ridge = amount(self.ridge, "FLOP/B")
        return f"{self.label}: {amount(self.peak, 'FLOP/s')}, {amount(self.bandwidth, 'B/s')}, ridge at {ridge}"


class OperatingPoint(NamedTuple):
    """A workload: its intensity (FLOP/B) and what it reaches (FLOP/s)."""

    label: str
    intensity: float
    performance: float

    @property
    def place(self) -> str:
        return f"{amount(self.performance, 'FLOP/s')} at {amount(self.intensity, 'FLOP/B')}"


@dataclass(frozen=True, repr=False)
class _RoofChart(Figure):
    """All that a roofline shows. ``ceiling`` is the fraction of the peak that was taken to be reachable."""

    x_title: str
    roofs: list[Roof]
    points: list[OperatingPoint]
    ceiling: float | None

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

    def _body(self, d: Drawing, y: float) -> float:
        low, high, bottom, top = self._range()
        y = key(d, y, [KeyEntry(roof.sentence, k, "line") for k, roof in enumerate(self.roofs)])
        x_side = partial(log_scale, low, high), self.x_title, "FLOP/B"
        y_side = partial(log_scale, bottom, top), "Performance", "FLOP/s"
        plot, across, up, y = plane(d, y + 2, 300.0 if d.narrow else 330.0, x_side, y_side)
        placer = Placer(Box(plot.left + 2, plot.top + 1, plot.right - 1, plot.bottom - 2))
        for k, roof in enumerate(self.roofs):
            corners = [(low, roof.at(low)), (roof.ridge, roof.peak), (high, roof.peak)]
            drawn = [(across(x), up(value)) for x, value in corners]
            d.polyline(drawn, f"l{k % 8}")
            placer.block_path(drawn)
        for k, roof in enumerate(self.roofs if self.ceiling else ()):
            reachable = roof.peak * (self.ceiling or 1.0)
            ends = [(across(x), up(reachable)) for x in (reachable / roof.bandwidth, high)]
            d.line(*ends[0], *ends[1], f"l{k % 8} ceiling")
            placer.block_path(ends)
        where = [(across(point.intensity), up(point.performance)) for point in self.points]
        for k, (point, at) in enumerate(zip(self.points, where, strict=True)):
            d.marker(k, *at, 5, f"f{(k + len(self.roofs)) % 8} edge", f"{point.label}: {point.place}")
            placer.block(*at, 6)
        named = [(*at, p.label, f"{p.label} ({p.place})") for p, at in zip(self.points, where, strict=True)]
        missing = placer.labels(d, plot, named)
        for roof in self.roofs:
            ridge, text = (across(roof.ridge), up(roof.peak)), f"ridge {amount(roof.ridge, 'FLOP/B')}"
            d.marker(3, *ridge, 3.5, "inkfill", f"{roof.label}: {text}")
            placer.label(d, *ridge, text, SMALL, "muted halo")
        return note(d, y, f"Also shown: {missing}." if missing else "")

    def _axes(self, ax: Any) -> None:
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


def roofline(
    hardware: Any = None,
    workloads: Any = (),
    *,
    precision: str = "fp16",
    efficiency: float | str = 0.5,
    roofs: Any = (),
    points: Any = (),
    title: str | None = None,
    width: int = WIDE,
) -> Figure:
    """Rooflines of chips with workloads on them.

    ``hardware`` is a chip, its name, or a list of either. A workload is a model (or its name), a pair of it and options
    of ``SingleNodeModel.solve``, or a pair of a label and a result; it runs on the first chip. Plain data instead, or
    besides: ``roofs`` as (label, peak, bandwidth) and ``points`` as (label, intensity, performance), with units.
    """
    chips = [_chip(item) for item in _several(hardware)]
    peaks = [quantity(arithmetic_peak(chip, precision)[0], "flop/s") for chip in chips]
    data = [(chip.name, peak, chip.memory.bandwidth) for chip, peak in zip(chips, peaks, strict=True)]
    said, units = "A roof is (label, peak, bandwidth)", {"peak": "FLOP/s", "bandwidth": "B/s"}
    drawn = [Roof(*_labelled(item, said, "roofs", **units)) for item in (*data, *(roofs or ()))]
    if not drawn:
        raise InputError("A roofline needs a chip as 'hardware' or a roof (label, peak, bandwidth) in 'roofs'.")
    items = _several(workloads)
    if items and not chips:
        raise InputError("Workloads are placed on a chip; give it as 'hardware', or give 'points' instead.")

    def solve(model: Workload, **options: Any) -> tuple[PerformanceProfile, str]:
        profile = SingleNodeModel().solve(model, chips[0], **options)
        batch = f", batch {options['batch_size']}" if "batch_size" in options else ""
        return profile, f"{model.name}, {profile.phase}{batch}"

    where = _points(items, chips[0], solve, precision=precision, efficiency=efficiency) if items else []
    named = " and ".join(roof.label for roof in drawn[:2]) + (f" and {len(drawn) - 2} more" if len(drawn) > 2 else "")
    title = read_label(title) if title is not None else f"Roofline of {named}" + (f", {precision}" if chips else "")
    subtitle = "Below the slope memory binds, below the flat roof arithmetic does."
    ceiling = _ceiling(efficiency) if where else None
    where += [_plain_point(item) for item in points or ()]
    return _RoofChart(title, subtitle, width, "Arithmetic intensity", sequence(drawn, "roofs"), where, ceiling)


def plot_roofline(hw: Any, workloads: Any = (), **options: Any) -> Figure:
    """``roofline`` under the name that the documents print."""
    return roofline(hw, workloads, **options)


def _several(given: Any) -> list[Any]:
    """One or several: a pair of a label or model with a result or options is one."""
    if given is None:
        return []
    pair = isinstance(given, tuple) and len(given) == 2 and isinstance(given[1], (Mapping, PerformanceProfile))
    return list(given) if isinstance(given, (list, tuple)) and not pair else [given]


def _chip(item: Any) -> HardwareNode:
    chip = Hardware.get(item) if isinstance(item, str) else item
    if not isinstance(chip, HardwareNode):
        raise InputError(f"A roofline is drawn for a chip such as 'H100', got {item!r:.60}.", field="hardware")
    return chip


def _labelled(item: Any, said: str, field: str, **units: str) -> tuple[Any, ...]:
    """A label and two positive amounts, of what and in which unit ``units`` say."""
    name = read_label(fields(item, said, 3, field=field)[0])
    read = []
    for value, (what, unit) in zip(item[1:], units.items(), strict=True):
        number, symbol = read_amount(value, f"{what} of {name[:40]!r}", zero=False)
        if symbol != unit:
            raise InputError(f"The {what} of {name[:40]!r} must be in {unit}, got {value!s:.60}.")
        read.append(number)
    return name, *read


def _plain_point(item: Any) -> OperatingPoint:
    said = "A point is (label, intensity, performance)"
    return OperatingPoint(*_labelled(item, said, "points", intensity="FLOP/B", performance="FLOP/s"))


def _ceiling(efficiency: Any) -> float | None:
    """The fraction that an efficiency draws: none where it is calibrated, or all of the peak."""
    number = isinstance(efficiency, (int, float)) and not isinstance(efficiency, bool)
    return float(efficiency) if number and 0 < efficiency < 1 else None


def _points(
    items: Any, chip: HardwareNode, solve: Callable[..., tuple[PerformanceProfile, str]], **settings: Any
) -> list[OperatingPoint]:
    """Where workloads operate: what each computes in its time.

    A workload is a model, its name, a pair of either with options, a result, or a pair of a label and a result;
    ``solve`` gives the result of a model with ``settings`` and options, and what to call it.
    """
    points = []
    for item in _several(items):
        first, second = item if isinstance(item, tuple) and len(item) == 2 else (item, {})
        if isinstance(first, PerformanceProfile):
            first, second = first.phase, first
        options = {**settings, **(second if isinstance(second, Mapping) else {})}
        label = options.pop("label", None)
        if isinstance(second, PerformanceProfile):
            profile, name = second, first
        else:
            model = Models.get(first) if isinstance(first, str) else first
            if not isinstance(model, Workload) or not isinstance(second, Mapping):
                said = "A workload is a model, its name or a pair (label, result)"
                raise InputError(f"{said}, got {item!r:.60}.", field="workloads")
            profile, name = solve(model, **options)
        peak, _ = arithmetic_peak(chip, options["precision"])
        intensity = quantity(to_si(profile.arithmetic_intensity, "flop/byte"), "flop/byte")
        reached = quantity(profile.hfu * peak, "flop/s")
        points.append(_plain_point((name if label is None else label, intensity, reached)))
    return points


def distributed_roofline(
    fleet: Any,
    workloads: Any = (),
    *,
    precision: str = "fp16",
    efficiency: float = 0.5,
    points: Any = (),
    title: str | None = None,
    width: int = WIDE,
    **options: Any,
) -> Figure:
    """The roofline of a fleet with its network as the slope.

    A workload is a model or its name (a data-parallel step of it, with ``options`` of ``NetworkRooflineModel.solve`` such
    as ``batch_size``), a pair of it and options, or a pair of a label and a result. ``points`` are plain data:
    (label, FLOP per byte of network, FLOP/s).
    """
    cluster = Clusters.get(fleet) if isinstance(fleet, str) else fleet
    if not isinstance(cluster, Fleet):
        raise InputError(f"A distributed roofline is drawn for a fleet such as 'Frontier_8K', got {fleet!r:.60}.")
    chip = cluster.node.accelerator
    peak, _ = arithmetic_peak(chip, precision)
    ranks = cluster.total_accelerators
    if ranks < 2:
        raise InputError("A distributed roofline needs a fleet of at least two accelerators.", field="fleet")
    net = datasheet_network(cluster)
    slowest = net.all_reduce(_LARGE_MESSAGE, net.group(ranks))

    def solve(model: Workload, **given: Any) -> tuple[PerformanceProfile, str]:
        profile = NetworkRooflineModel().solve(model, cluster, **given)
        return profile, f"{model.name}, {given.get('batch_size', 1)} per accelerator"

    where = _points(workloads, chip, solve, precision=precision, efficiency=efficiency, **options)
    network = Roof(f"All-reduce over {ranks:,} accelerators", peak, _LARGE_MESSAGE / slowest)
    memory = Roof(f"Memory of {chip.name}", peak, to_si(chip.memory.bandwidth, "byte/s"))
    title = read_label(title) if title is not None else f"Distributed roofline of {cluster.name}, {precision}"
    subtitle = "Per accelerator: left of the first ridge the network binds, right of it arithmetic."
    ceiling = _ceiling(efficiency) if where else None
    where += [_plain_point(item) for item in points or ()]
    return _RoofChart(title, subtitle, width, "Operations per byte synchronised", [network, memory], where, ceiling)


def plot_distributed_roofline(fleet: Any, workloads: Any = (), **options: Any) -> Figure:
    """``distributed_roofline`` under the name that the documents print."""
    return distributed_roofline(fleet, workloads, **options)
