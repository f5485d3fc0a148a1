"""Roofline: attainable FLOP/s over arithmetic intensity (Williams, Waterman, Patterson 2009).

    attainable(I) = min(P, I W),   ridge at I* = P / W

Chips at a precision are roofs, workloads are points: each at its own intensity, and as high as the engine says it gets.
A thin dashed line marks the fraction of the peak that the engine assumed to be reachable.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from mlsysim.errors import InputError
from mlsysim.hardware.arithmetic import arithmetic_peak
from mlsysim.hardware.registry import Hardware
from mlsysim.hardware.types import HardwareNode
from mlsysim.models.base import Workload
from mlsysim.models.registry import Models
from mlsysim.plot.amounts import fields, read_amount, read_label, sequence
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
    data = [
        (chip.name, quantity(arithmetic_peak(chip, precision)[0], "flop/s"), chip.memory.bandwidth) for chip in chips
    ]
    drawn = [
        Roof(*_labelled(item, "A roof is (label, peak, bandwidth)", "roofs", peak="FLOP/s", bandwidth="B/s"))
        for item in (*data, *(roofs or ()))
    ]
    if not drawn:
        raise InputError("A roofline needs a chip as 'hardware' or a roof (label, peak, bandwidth) in 'roofs'.")
    items = _several(workloads)
    if items and not chips:
        raise InputError("Workloads are placed on a chip; give it as 'hardware', or give 'points' instead.")

    def solve(model: Workload, **options: Any) -> tuple[PerformanceProfile, str]:
        profile = SingleNodeModel().solve(model, chips[0], **options)
        batch = f", batch {options['batch_size']}" if "batch_size" in options else ""
        return profile, f"{model.name}, {profile.phase}{batch}"

    where = operating_points(items, chips[0], solve, precision=precision, efficiency=efficiency) if items else []
    named = " and ".join(roof.label for roof in drawn[:2]) + (f" and {len(drawn) - 2} more" if len(drawn) > 2 else "")
    return RoofChart(
        title=read_label(title) if title is not None else f"Roofline of {named}" + (f", {precision}" if chips else ""),
        subtitle="Below the slope memory binds, below the flat roof arithmetic does.",
        width=width,
        x_title="Arithmetic intensity",
        roofs=sequence(drawn, "roofs"),
        points=[*where, *(plain_point(item) for item in points or ())],
        ceiling=check_ceiling(efficiency) if items else None,
    )


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


def plain_point(item: Any) -> OperatingPoint:
    """A point given as (label, intensity, performance)."""
    said = "A point is (label, intensity, performance)"
    return OperatingPoint(*_labelled(item, said, "points", intensity="FLOP/B", performance="FLOP/s"))


def operating_points(
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
        points.append(
            plain_point((name if label is None else label, intensity, quantity(profile.hfu * peak, "flop/s")))
        )
    return points
