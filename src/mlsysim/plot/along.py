"""A number of answers along a setting: its interval, its limit, what binds at each stop, and another design as a ghost.

Every point is read off the answer to the plan at that stop; where the plan does not fit, is overloaded or is refused, it is a gap with the
reason, or has the value that is left.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mlsysim.plans.answer import Answer
from mlsysim.plans.metrics import Metric
from mlsysim.plot.charts.curve import Curve, Stop, curve
from mlsysim.plot.readings import bound_of, colour_of, figure_of

Found = tuple[float, "Answer | str | None"]
"""A setting with the answer there, the sentence with which it was refused, or nothing where it is not known yet."""

_RATES = ("1 / second", "1 / s")
"""Units of counts a second, which labels name in words."""


def along(
    found: Sequence[Found], metric: str, *, here: int | None = None, ghost: Sequence[Found] = (), **shown: Any
) -> Curve:
    """The chart of a metric (its path) along a setting, ``shown`` as a curve is; the answer at ``here`` says what its limit is."""
    answers = [answer for _, answer in found if isinstance(answer, Answer)]
    at = found[here][1] if here is not None else None
    first = next((each for each in (at, *answers) if isinstance(each, Answer) and _held(each, metric)), None)
    told = None if first is None else _held(first, metric)
    limit, least = (None, False) if first is None or told is None else bound_of(first, metric)
    unit = "" if told is None else figure_of(told)[3]
    return curve(
        [_stop(x, answer, metric, unit) for x, answer in found],
        y_title=metric.rpartition(".")[2].replace("_", " ") if told is None else told.label,
        y_unit="" if unit in _RATES else unit,
        limit=limit,
        least=least,
        here=here,
        ghost=[_stop(x, answer, metric, unit) for x, answer in ghost if answer is not None],
        **shown,
    )


def _held(answer: Answer, path: str) -> Metric | None:
    return next((metric for metric in answer.metrics if metric.path == path), None)


def _stop(x: float, answer: Answer | str | None, path: str, unit: str) -> Stop:
    if answer is None:
        return Stop(x, None)
    if isinstance(answer, str):
        return Stop(x, None, binds="refused", reason=answer)
    metric = _held(answer, path)
    reason = "" if answer.feasible else answer.headline
    word = "overloaded" if answer.overloaded else "does not fit"
    binds = word if reason else answer.binding.name
    if metric is None:
        return Stop(x, None, binds=binds, reason=reason or f"{answer.subject} has no such number.")
    value, low, high, _ = figure_of(metric, unit)
    return Stop(x, value, low, high, binds, colour_of(answer.binding.wall), reason, metric.text)
