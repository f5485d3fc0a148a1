"""What charts and gauges read off an answer: a metric as plain numbers, where its limit lies, the colour of a wall."""

from __future__ import annotations

from mlsysim.plans.answer import Answer
from mlsysim.plans.metrics import Metric
from mlsysim.units.registry import Quantity, to_si, unit_name, ureg

COLOURS = {1: 0, 2: 2, 3: 7, 14: 1, 4: 4, 5: 5, 7: 3}
"""Walls and the colours of the charts that they have on every page; the others share one."""
_OTHER = 6
_PERCENT = 100.0


def colour_of(wall: int | None) -> int:
    """The colour of a wall."""
    return COLOURS.get(wall or 0, _OTHER)


def figure_of(metric: Metric, unit: str = "") -> tuple[float, float | None, float | None, str]:
    """Value and ends of the interval of a metric as plain numbers, and their unit, where it is not said which; shares are in per cent."""
    if isinstance(metric.value, Quantity):
        unit = unit or unit_name(metric.value.units)
        value, low, high = (
            None if side is None else float(side.to(unit).magnitude) for side in (metric.value, metric.low, metric.high)
        )
        return value or 0.0, low, high, unit
    scale, unit = (_PERCENT, "percent") if metric.text.endswith("%") else (1.0, "")
    ends = (None if side is None else scale * float(side) for side in (metric.low, metric.high))
    return scale * float(metric.value), *ends, unit  # type: ignore[return-value]


def bound_of(answer: Answer, path: str) -> tuple[float | None, bool]:
    """Where the limit of a metric lies in the numbers of :func:`figure_of`, of memory its capacity, and whether it is a least value; None without one."""
    for check in answer.checks:
        if check.metric == path and check.bound is not None:
            share = figure_of(answer.metric(path))[3] == "percent"
            return check.bound * (_PERCENT if share else 1.0), check.least
    held = answer.held.get("memory")
    if held is None or held.path != path or answer.memory is None:
        return None, False
    return to_si(answer.memory.capacity * ureg.byte, figure_of(held)[3]), False


def shared_out(answer: Answer) -> str:
    """What is said beside the parts of a step whose two pools work at once, so that they add up to it and none has all that it takes; else nothing."""
    if answer.task != "rl" or not answer.layout.get("staleness"):
        return ""
    tail = answer.held.get("tail_time")
    such = (
        f": the long tail takes {tail.text} in its own"
        if tail is not None and tail.value and "latency" in answer.held
        else ""
    )
    return f"Two pools work at once, and a part has what it adds to the step, less than it takes in its pool{such}."
