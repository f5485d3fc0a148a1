"""Fleets that change: units that fail and come back, and an autoscaler."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from functools import partial

from mlsysim.simulate.draws import Draws
from mlsysim.simulate.fleet import DOWN, DRAINING, FAILED, STARTING, UP, Fleet, Pool
from mlsysim.simulate.live import NEVER
from mlsysim.simulate.settings import Failures, Scaling

_TOLERANCE = 0.1
"""Of the ratio of load and target, in which nothing is changed: Kubernetes' default."""
_LOOKS = 4
"""Intervals over which a rate is counted: a minute, with Kubernetes' 15 s."""


class Failing:
    """Units of a pool that fail at random while they are up."""

    def __init__(self, fleet: Fleet, pool: Pool, failures: Failures, seed: int, name: str) -> None:
        self.fleet, self.pool, self.failures = fleet, pool, failures
        for unit in range(len(pool.units)):
            draws = Draws(seed, f"failures {name} {unit}")
            fleet.at(failures.every * draws.exponential(), self._fail(unit, draws))

    def _fail(self, unit: int, draws: Draws) -> Callable[[float], None]:
        def fail(when: float) -> None:
            # One that is not there does not fail.
            repair = 0.0
            if self.pool.state[unit] in (UP, DRAINING):
                self.fleet.fails(self.pool, unit, when)
                repair = self.failures.repair
                self.fleet.at(when + repair, partial(self.pool.repaired, unit))
            self.fleet.at(when + repair + self.failures.every * draws.exponential(), fail)

        return fail


class Growing:
    """A pool whose units follow its load. Who looks at one where nothing has come for as long as it looks back, sleeps until somebody comes: a service
    that is asked once in hours is played as soon as another."""

    def __init__(self, fleet: Fleet, pool: Pool, scaling: Scaling, start: float) -> None:
        self.fleet, self.pool, self.scaling, self.start = fleet, pool, scaling, start
        self.wanted: deque[tuple[float, int]] = deque()
        self.came: deque[int] = deque([0], _LOOKS + 1)
        """Requests that had come at the last looks."""
        fleet.at(scaling.interval, self._look)

    def load(self, at: float) -> float:
        """Of a unit that is up."""
        pool, many = self.pool, max(len(self.pool.counted(UP)), 1)
        up = [pool.replicas[each] for each in pool.up]
        if self.scaling.by == "rate":
            return (self.came[-1] - self.came[0]) / (self.scaling.interval * (len(self.came) - 1)) / many
        if self.scaling.by == "requests":
            return (sum(each.outstanding for each in up) + len(pool.homeless)) / many
        if self.scaling.by == "queue":
            return (sum(len(each.waiting) for each in up) + len(pool.homeless)) / many
        shares = [max(each.taken(at), each.n / each.scheduling.slots) for each in up]
        return math.fsum(shares) / len(shares) if shares else NEVER

    def _look(self, at: float) -> None:
        pool, chosen = self.pool, self.scaling
        self.came.append(pool.came)
        draining = pool.counted(DRAINING)
        for unit in draining:
            if not pool.outstanding(unit):
                pool.set(unit, DOWN, at)
        up, coming = pool.counted(UP), pool.counted(STARTING, FAILED)
        there = len(up) + len(coming)
        ratio = self.load(at) / chosen.target
        want = there if abs(ratio - 1) <= _TOLERANCE else math.ceil(min(max(len(up), 1) * ratio, chosen.most))
        want = min(max(want, chosen.least), chosen.most)
        self.wanted.append((at, want))
        while self.wanted[0][0] < at - chosen.settle:
            self.wanted.popleft()
        if want > there:
            self._more(want - there, at)
        else:
            fewer = there - max(each for _, each in self.wanted)
            for unit in sorted(up, key=pool.outstanding)[: max(fewer, 0)]:
                if len(pool.counted(UP)) > 1:
                    pool.set(unit, DRAINING, at)
        changes = draining or coming or want != there or len({each for _, each in self.wanted}) > 1
        if changes or len(self.came) <= _LOOKS or self.load(at) or self.fleet.busy():
            self.fleet.at(at + chosen.interval, self._look)
        else:
            self.fleet.front.asleep.append(partial(self._woken, at))

    def _woken(self, last: float, at: float) -> None:
        """Look when it would have been time to, after a look at nothing."""
        every = self.scaling.interval
        self.fleet.at(last + every * (math.floor((at - last) / every) + 1), self._look)

    def _more(self, many: int, at: float) -> None:
        """Those that still answer are kept; others start."""
        pool = self.pool
        kept = pool.counted(DRAINING)[:many]
        for unit in kept:
            pool.set(unit, UP, at)
        for unit in pool.counted(DOWN)[: many - len(kept)]:
            pool.set(unit, STARTING, at)
            self.fleet.at(at + self.start, partial(pool.set, unit, UP))
