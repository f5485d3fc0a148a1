"""What the time of a run went on, by cause, and many runs together.

    T = useful + checkpoint writes + sum over causes of (work done again + restarts + waiting for nodes + stops) + what slow hours add

Every second of a run is in one part, so that parts add up to its length.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

USEFUL, WRITES = "useful work", "checkpoint writes"
AGAIN, RESTARTS, WAITING, STOPPED, SLOWER = (
    "work done again",
    "restarts",
    "waiting for nodes",
    "stopped",
    "slower steps",
)
PAUSE, CAPPED = "pause", "power cap"
"""Causes that the run gives way to on purpose, by the hour."""
LEVELS = {"p10": 0.10, "p50": 0.50, "p90": 0.90}
_NORMAL = 1.645


class Span(NamedTuple):
    """A stretch of a run: seconds from and to, its state (training, or one of the kinds above), nodes at work, and the cause."""

    start: float
    end: float
    state: str
    nodes: int
    cause: str = ""


class Played(NamedTuple):
    """One run: whether it ended, its seconds, seconds of work that are done, seconds by (cause, kind), seconds of computing, unexpected
    interruptions by cause, planned stops, and the most nodes that were broken at once."""

    ended: bool
    seconds: float
    work: float
    lost: dict[tuple[str, str], float]
    computing: float
    interruptions: dict[str, int]
    stops: int
    broken: int = 0

    @property
    def parts(self) -> dict[tuple[str, str], float]:
        """All of its seconds."""
        return {("", USEFUL): self.work} | self.lost

    @property
    def gives_way(self) -> float:
        """Seconds that it gives way to hours: held, or at less power."""
        return sum(seconds for (cause, _), seconds in self.lost.items() if cause in (PAUSE, CAPPED))

    @property
    def goodput(self) -> float:
        """Useful work over the time in which it does not give way."""
        own = self.seconds - self.gives_way
        return self.work / own if own > 0 else 1.0

    def by(self, place: int) -> dict[str, float]:
        """Seconds that were lost, by cause (0) or kind (1); what has no cause is its kind."""
        found: dict[str, float] = {}
        for key, seconds in self.lost.items():
            name = key[place] or key[1]
            found[name] = found.get(name, 0.0) + seconds
        return found


class Many(NamedTuple):
    """The mean of many runs, values at some levels, and half of the 90 % interval of each, the mean first, that so few runs leave."""

    mean: float
    levels: dict[str, float]
    errors: dict[str, float]


def many(values: Sequence[float], falls: bool = False) -> Many:
    """Percentiles of some values: that of p is the one at place floor(p n) of n in order. Of what ``falls`` as runs get longer it is the one that has as
    many above it, ceil(p n) - 1, so that the run in the middle by time is in the middle by this too."""
    ordered, n = sorted(values), len(values)

    def at(share: float) -> float:
        place = math.ceil(share * n) - 1 if falls else math.floor(share * n)
        return ordered[min(n - 1, max(0, place))]

    away = {name: _NORMAL * math.sqrt(p * (1 - p) / n) for name, p in LEVELS.items()}
    errors = {
        name: (at(p + away[name]) - at(p - away[name])) / 2 if math.isfinite(at(p + away[name])) else math.inf
        for name, p in LEVELS.items()
    }
    mean = sum(ordered) / n
    spread = math.inf if math.isinf(mean) or n < 2 else math.sqrt(sum((x - mean) ** 2 for x in ordered) / (n - 1))
    of_mean = {"mean": _NORMAL * spread / math.sqrt(n)}
    return Many(mean, {name: at(p) for name, p in LEVELS.items()}, of_mean | errors)


class Runs:
    """Runs of the same plan with other seeds."""

    def __init__(self, runs: Sequence[Played]) -> None:
        self.runs = tuple(runs)

    @cached_property
    def middle(self) -> int:
        """The seed whose run is in the middle: by length, or by work where all last as long."""
        order = sorted(range(len(self.runs)), key=lambda seed: (self.runs[seed].seconds, -self.runs[seed].work))
        return order[len(order) // 2]

    @property
    def median(self) -> Played:
        """The run in the middle."""
        return self.runs[self.middle]

    @cached_property
    def seconds(self) -> Many:
        """Of the runs; one that never ends has no end."""
        return many([run.seconds if run.ended else math.inf for run in self.runs])

    @cached_property
    def goodput(self) -> Many:
        """Useful work over the time; worst first."""
        return many([run.goodput for run in self.runs], falls=True)

    def within(self, seconds: float) -> float:
        """Share of the runs that end by then."""
        return sum(run.ended and run.seconds <= seconds for run in self.runs) / len(self.runs)
