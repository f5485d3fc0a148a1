"""The curve along the control that is being moved: the answer to the plan at each of its stops, those nearest to where one is first.

The page says what the plan is at each stop, as its control writes it, and asks again until nothing is left: a call computes for a moment only,
so that a newer question never waits for long. Every point is the same answer that the page shows for the plan itself; refusals are gaps.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from math import inf
from time import perf_counter

from mlsysim.errors import InputError
from mlsysim.labs.explorer import Document, answer_of, known
from mlsysim.labs.rpc import offer
from mlsysim.plans.answer import Answer
from mlsysim.plot.along import along
from mlsysim.plot.readings import figure_of
from mlsysim.units.registry import format_unit, ureg

_MOMENT = 0.15
"""Seconds that a call computes for, at least one answer."""
_MOST = 65
"""Stops of a curve."""
_GOALS = {
    "training": ("run_time", "tokens_per_second", "mfu", "latency"),
    "serving": ("ttft", "tpot", "latency", "tokens_per_second", "requests_per_second"),
    "inference": ("latency", "throughput"),
    "rl": ("latency",),
}
"""What a curve shows of a task, first what it shows unless a limit or a reader says otherwise."""
_ALSO = (
    *("usd_per_mtoken", "tco", "rent", "energy_per_token", "energy_per_sample", "carbon_footprint"),
    *("goodput", "memory"),
)


def goals_of(answer: Answer) -> list[Document]:
    """The metrics that a curve can show, first the one that it should: of a limit that is missed or in doubt, else of the task's goal.

    Where the load is what the limits allow, that is what a curve along them is for.
    """
    held = answer.held
    names = [name for name in (*_GOALS[answer.task], *_ALSO) if name in held]
    asked = answer.plan.serving if answer.task == "serving" else None
    allowed = asked is not None and asked.qps is None and asked.concurrency is None and asked.trace is None
    doubt = [check.metric for state in ("fails", "open") for check in answer.checks if check.state == state]
    limited = [check.metric for check in answer.checks]
    known = {metric.path: metric for metric in answer.metrics}
    most = [held["tokens_per_second"].path] if allowed and "tokens_per_second" in held else []
    paths = [path for path in (*most, *doubt, *(held[name].path for name in names), *limited) if path in known]
    usable = [path for path in dict.fromkeys(paths) if not isinstance(known[path].value, (str, bool))]
    return [{"path": path, "label": known[path].label} for path in usable]


def _found(plans: Sequence[Document], at: int, until: float, least: int) -> list[Answer | str | None]:
    """Answers at the stops or why there is none: where one is, what is kept, and nearest first what there is time for, or the least; None for the others."""
    found: list[Answer | str | None] = [None] * len(plans)
    fresh = 0
    for k in sorted(range(len(plans)), key=lambda k: (abs(k - at), k)):
        if k != at and not known(plans[k]):
            if fresh >= least and perf_counter() > until:
                continue
            fresh += 1
        try:
            found[k] = answer_of(plans[k])
        except InputError as error:
            found[k] = error.message
    return found


_SEEN = 1.05


@offer
def curve(
    values: list[float],
    plans: list[Document],
    at: int,
    title: str,
    unit: str = "",
    metric: str = "",
    ghosts: list[Document] | None = None,
    width: int = 720,
    moment: float = _MOMENT,
) -> Document:
    """The chart of a metric along a control: values of its stops, the plan at each, where one is, and the pinned plan at each.

    ``moment`` is how long a call computes, in seconds, at least one answer more than that of the plan where one is, unless it is 0; ``left`` is how many stops are still to be computed; ``places`` is where each is drawn, so that one can be dragged to.
    """
    _checked(values, plans)
    if not 0 <= at < len(values) or len(ghosts or values) != len(values):
        raise InputError("A curve needs to know where one is among its values, and a pinned plan for each or none.")
    until, least = perf_counter() + moment, 1 if moment else 0
    found = _found(plans, at, until, least)
    here = found[at]
    goals = goals_of(here) if isinstance(here, Answer) else []
    shadow = _found(ghosts, at, until, least) if ghosts and None not in found else []
    paths = [goal["path"] for goal in goals]
    wanted = (
        metric if metric in paths else next((path for path in paths if _moves(found, path)), next(iter(paths), metric))
    )
    left = found.count(None) + (len(ghosts) if ghosts and not shadow else shadow.count(None))
    told = {"metric": wanted, "metrics": goals, "left": left, "reasons": _texts(found)}
    if not wanted:
        return {"svg": "", "places": [], "plot": [], **told}
    stops, ghost = list(zip(values, found, strict=True)), list(zip(values, shadow, strict=False))
    figure = along(stops, wanted, x_title=title, x_unit=unit, here=at, ghost=ghost, width=width)
    svg, places, plot = figure.drawn()
    return {"svg": svg, "places": places, "plot": list(plot), **told}


@offer
def ahead(plans: list[Document], at: int) -> int:
    """One more of the stops, the nearest that is not known yet, so that a move to it is answered at once; how many are left."""
    return _found(plans, at, 0.0, 1).count(None)


@offer
def curve_csv(
    values: list[float], plans: list[Document], title: str, metric: str, unit: str = "", moment: float = 0.0
) -> str:
    """The stops of a curve as comma-separated values: the metric with its 90 % interval, what binds there, or why there is nothing."""
    _checked(values, plans)
    found = _found(plans, 0, inf, 0)
    held = [each.metric(metric) if isinstance(each, Answer) and _has(each, metric) else None for each in found]
    drawn = [None if each is None else figure_of(each) for each in held]
    units = next((each[3] for each in drawn if each is not None), "")
    label = next((each.label for each in held if each is not None), metric)
    symbol = format_unit(ureg.parse_units(units))
    rows: list[tuple[object, ...]] = [
        (_in_unit(title, unit), _in_unit(label, symbol), "low", "high", "binds", "reason")
    ]
    for value, answer, told, reason in zip(values, found, held, _texts(found), strict=True):
        shown = ("", "", "") if told is None else figure_of(told, units if units != "percent" else "")[:3]
        binds = answer.binding.sentence if isinstance(answer, Answer) and told is not None else ""
        rows.append((value, *("" if each is None else each for each in shown), binds, reason))
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(rows)
    return out.getvalue()


def _moves(found: Sequence[Answer | str | None], path: str) -> bool:
    """Whether a metric is another at one of the stops by what an eye sees: a flat line is not what a control is moved for."""
    values = [
        each.metric(path).value for each in found if isinstance(each, Answer) and each.feasible and _has(each, path)
    ]
    return bool(values) and max(values) > min(values) * _SEEN


def _has(answer: Answer, path: str) -> bool:
    return any(metric.path == path for metric in answer.metrics)


def _in_unit(label: str, unit: str) -> str:
    return f"{label} [{unit}]" if unit else label


def _checked(values: list[float], plans: list[Document]) -> None:
    if not 0 < len(values) == len(plans) <= _MOST:
        raise InputError(f"A curve needs 1 to {_MOST} values and a plan for each.")


def _texts(found: Sequence[Answer | str | None]) -> list[str]:
    """Of each stop, why there is nothing to show, or nothing."""
    return [each if isinstance(each, str) else "" if each is None or each.feasible else each.headline for each in found]
