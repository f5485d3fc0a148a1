"""Roofline: attainable FLOP/s over arithmetic intensity (Williams, Waterman, Patterson 2009).

    attainable(I) = min(P, I W),   ridge at I* = P / W

Chips at a precision are roofs, workloads are points: each at its own intensity, and as high as the engine says it gets.
A thin dashed line marks the fraction of the peak that the engine assumed to be reachable.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mlsysim.errors import InputError
from mlsysim.hardware.arithmetic import arithmetic_peak
from mlsysim.hardware.registry import Hardware
from mlsysim.hardware.types import HardwareNode
from mlsysim.models.base import Workload
from mlsysim.models.registry import Models
from mlsysim.plot.amounts import read_amount, read_label, sequence
from mlsysim.plot.figure import WIDE, Figure
from mlsysim.plot.roofs import OperatingPoint, Roof, RoofChart, check_ceiling
from mlsysim.units.registry import quantity, to_si
from mlsysim.walls.node.compute_memory import SingleNodeModel
from mlsysim.walls.node.performance import PerformanceProfile


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
    drawn = [_roof_of(chip, precision) for chip in chips] + [_plain_roof(item) for item in roofs or ()]
    if not drawn:
        raise InputError("A roofline needs a chip as 'hardware' or a roof (label, peak, bandwidth) in 'roofs'.")
    where = [_workload_point(item, chips, precision, efficiency) for item in _several(workloads)]
    where += [plain_point(item) for item in points or ()]
    named = " and ".join(roof.label for roof in drawn[:2]) + (f" and {len(drawn) - 2} more" if len(drawn) > 2 else "")
    chart = RoofChart(
        title=read_label(title) if title is not None else f"Roofline of {named}" + (f", {precision}" if chips else ""),
        subtitle="Below the slope memory binds, below the flat roof arithmetic does.",
        x_title="Arithmetic intensity",
        roofs=tuple(sequence(drawn, "roofs")),
        points=tuple(where),
        ceiling=check_ceiling(efficiency) if chips and workloads else None,
    )
    return chart.figure(width)


def plot_roofline(hw: Any, workloads: Any = (), **options: Any) -> Figure:
    """``roofline`` under the name that the documents print."""
    return roofline(hw, workloads, **options)


def _several(given: Any) -> list[Any]:
    if given is None:
        return []
    return list(given) if isinstance(given, list) or (isinstance(given, tuple) and not _is_pair(given)) else [given]


def _is_pair(given: tuple[Any, ...]) -> bool:
    return len(given) == 2 and isinstance(given[1], (Mapping, PerformanceProfile))


def _chip(item: Any) -> HardwareNode:
    chip = Hardware.get(item) if isinstance(item, str) else item
    if not isinstance(chip, HardwareNode):
        raise InputError(f"A roofline is drawn for a chip such as 'H100', got {item!r:.60}.", field="hardware")
    return chip


def _roof_of(chip: HardwareNode, precision: str) -> Roof:
    peak, _ = arithmetic_peak(chip, precision)
    return _checked(chip.name, quantity(peak, "flop/s"), chip.memory.bandwidth)


def _plain_roof(item: Any) -> Roof:
    if not isinstance(item, (tuple, list)) or len(item) != 3:
        raise InputError(f"A roof is (label, peak, bandwidth), got {item!r:.60}.", field="roofs")
    return _checked(item[0], item[1], item[2])


def _checked(label: str, peak: Any, bandwidth: Any) -> Roof:
    name = read_label(label)
    return Roof(
        name,
        in_unit(peak, f"peak of {name[:40]!r}", "FLOP/s"),
        in_unit(bandwidth, f"bandwidth of {name[:40]!r}", "B/s"),
    )


def in_unit(value: Any, what: str, unit: str) -> float:
    """A positive amount of that unit."""
    number, symbol = read_amount(value, what, zero=False)
    if symbol != unit:
        raise InputError(f"The {what} must be in {unit}, got {value!s:.60}.")
    return number


def plain_point(item: Any) -> OperatingPoint:
    """A point given as (label, intensity, performance)."""
    if not isinstance(item, (tuple, list)) or len(item) != 3:
        raise InputError(f"A point is (label, intensity, performance), got {item!r:.60}.", field="points")
    name = read_label(item[0])
    return OperatingPoint(
        name,
        in_unit(item[1], f"intensity of {name[:40]!r}", "FLOP/B"),
        in_unit(item[2], f"performance of {name[:40]!r}", "FLOP/s"),
    )


def _workload_point(item: Any, chips: list[HardwareNode], precision: str, efficiency: Any) -> OperatingPoint:
    if not chips:
        raise InputError("Workloads are placed on a chip; give it as 'hardware', or give 'points' instead.")
    chip = chips[0]
    options: dict[str, Any] = {}
    label = ""
    if isinstance(item, tuple) and len(item) == 2:
        first, second = item
        if isinstance(second, PerformanceProfile):
            return point_of(read_label(first), second, arithmetic_peak(chip, precision)[0])
        if isinstance(second, Mapping):
            item, options = first, dict(second)
            label = read_label(options.pop("label")) if "label" in options else ""
    if isinstance(item, PerformanceProfile):
        return point_of(item.phase, item, arithmetic_peak(chip, precision)[0])
    model = Models.get(item) if isinstance(item, str) else item
    if not isinstance(model, Workload):
        raise InputError(
            f"A workload is a model, its name or a pair (label, result), got {item!r:.60}.", field="workloads"
        )
    settings = {"precision": precision, "efficiency": efficiency, **options}
    profile = SingleNodeModel().solve(model, chip, **settings)
    if not label:
        label = f"{model.name}, {profile.phase}" + (
            f", batch {options['batch_size']}" if "batch_size" in options else ""
        )
    return point_of(label, profile, arithmetic_peak(chip, settings["precision"])[0])


def point_of(label: str, profile: PerformanceProfile, peak: float) -> OperatingPoint:
    """Where a result operates: what it computes in its time."""
    intensity = to_si(profile.arithmetic_intensity, "flop/byte")
    return plain_point((label, quantity(intensity, "flop/byte"), quantity(profile.hfu * peak, "flop/s")))
