"""What fails in a run of a plan, from the constants of :mod:`mlsysim.cases.failures`: one rate for all causes, split as they were counted."""

from __future__ import annotations

from mlsysim.cases.failures import components, fitted, groups
from mlsysim.simulate.run.clocks import Cause, Times
from mlsysim.simulate.run.nodes import Again

PREEMPTED, BESIDE = "preemption", "the job beside"
_HOUR = 3600.0


def causes_of(
    mtbf: float, nodes: int, repair: float | None = None, beside: float = 0.0, preempted: float | None = None
) -> tuple[Cause, ...]:
    """Causes of a run that is interrupted every ``mtbf`` hours on average, with repairs of so many hours. A job beside it has so many times its
    accelerators, and a node is taken back every ``preempted`` hours (spot)."""
    found, sizes = [], tuple((min(size, nodes), share) for size, share in groups())
    for each in components(repair):
        rate = each.share / (mtbf * _HOUR)
        away = None if each.repair is None else Times("weibull", each.repair[0] * _HOUR, each.repair[1])
        found.append(Cause(each.name, rate, sizes if away else (), away))
        if beside > 0 and away is not None:
            found.append(Cause(BESIDE, beside * rate, sizes, away, stops=False))
    if preempted is not None:
        gone = Times("exponential", fitted("preempted", "away", "h") * _HOUR)
        found.append(Cause(PREEMPTED, nodes / (preempted * _HOUR), ((1, 1.0),), gone, crew=False))
    return tuple(found)


def again() -> Again:
    """Repaired nodes that break again."""
    return Again(
        fitted("again", "share"), Times("gamma", fitted("again", "time", "h") * _HOUR, fitted("again", "shape"))
    )


def age_shape() -> float:
    """Weibull shape of the time to a node's first fault."""
    return fitted("age", "shape")


def persist_every() -> float:
    """Seconds between checkpoints in the file system beside those in memory."""
    return fitted("persist", "every", "s")
