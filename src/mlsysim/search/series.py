"""Sums over a growing context, at many points at once: what :func:`mlsysim.cases.phases.sum_over_steps` does for one.

A stretch whose inner points lie on its chord is summed as an arithmetic series. One that bends is cut in two, first where
the straight lines of its ends meet (a roofline bends once, so both parts are straight), then in the middle, in turns; the
parts of all points go on together.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mlsysim.cases.phases import INNER_POINTS, ON_CHORD

Time = Callable[[Any, Any], Any]
"""Time at a context, at all points (None) or at those of an index."""


def sums_over_steps(size: int) -> Callable[..., Any]:
    """How :mod:`mlsysim.cases.serve` takes sums over a growing context at ``size`` points at once."""

    def total(make: Any, machine: Any, traffic: Any, first: Any, steps: Any, stride: Any = 1.0) -> np.ndarray:
        everywhere = make(machine, traffic)

        def time(context: Any, index: Any) -> Any:
            return everywhere(context) if index is None else make(machine.take(index), traffic.take(index))(context)

        return sum_over_steps(time, first, steps, stride, size=size)

    return total


def sum_over_steps(time: Time, first: Any, steps: Any, stride: Any = 1.0, *, size: int) -> np.ndarray:
    """The sums of ``time(context)`` over ``steps`` contexts first, first + stride, ... at each of ``size`` points."""
    start = np.broadcast_to(time(first, None), (size,))
    longest = np.max(steps)
    if longest <= 1:
        return np.where(steps > 0, start, 0.0)
    end = np.broadcast_to(time(first + np.maximum(steps - 1, 0) * stride, None), (size,))
    total: np.ndarray = steps * (start + end) / 2
    if longest <= 2:
        return total
    bent = _bent(time, None, first, steps, stride, start, end)
    if not bent.any():
        return total
    index = np.flatnonzero(bent)
    total[index] = 0.0
    first, steps, stride = (
        np.broadcast_to(np.asarray(v, dtype=np.float64), (size,))[index] for v in (first, steps, stride)
    )
    start, end, middle = start[index], end[index], False
    while index.size:
        at = np.floor(steps / 2) if middle else _meeting(time, index, first, steps, stride, start, end)
        left, right = time(first + (at - 1) * stride, index), time(first + at * stride, index)
        index = np.concatenate([index, index])
        first, steps = np.concatenate([first, first + at * stride]), np.concatenate([at, steps - at])
        stride = np.concatenate([stride, stride])
        start, end = np.concatenate([start, right]), np.concatenate([left, end])
        bent = _bent(time, index, first, steps, stride, start, end)
        done = ~bent
        np.add.at(total, index[done], steps[done] * (start[done] + end[done]) / 2)
        index, first, steps, stride, start, end = (v[bent] for v in (index, first, steps, stride, start, end))
        middle = not middle
    return total


def _bent(time: Time, index: Any, first: Any, steps: Any, stride: Any, start: Any, end: Any) -> Any:
    """Where a stretch of more than two steps leaves its chord."""
    span = np.maximum(steps - 1, 1)
    slope, tolerance = (end - start) / span, ON_CHORD * end + 1e-300
    found: Any = False
    for share in INNER_POINTS:
        at = np.maximum(1.0, np.floor(span * share))
        found = found | (np.abs(time(first + at * stride, index) - (start + slope * at)) > tolerance)
    return found & (steps > 2)


def _meeting(time: Time, index: Any, first: Any, steps: Any, stride: Any, start: Any, end: Any) -> Any:
    """The step before which to cut: the first one past the place where the lines at both ends meet, or the middle."""
    span = steps - 1
    rise = time(first + stride, index) - start
    fall = end - time(first + (span - 1) * stride, index)
    turn = fall - rise
    with np.errstate(divide="ignore", invalid="ignore"):
        place = np.floor((start - end + fall * span) / turn) + 1
    inside = np.isfinite(place) & (place >= 1) & (place <= span)
    return np.where(inside, place, np.floor(steps / 2))
