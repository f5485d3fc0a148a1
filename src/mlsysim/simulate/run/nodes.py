"""Nodes in repair, spares that stand in for them, crews that repair, and nodes that break again.

Nodes of the run and of a job beside it that break are replaced by a spare, and where none is left they lack one; the first that lacks gets the
first that comes back. A crew repairs one node at a time; without a number of crews nobody waits for one.

A repair does not always help: with probability p the node breaks again after a time of its own (:class:`Again`), and takes others along as often as any fault does. The rate of
a cause counts these too, so that failures of other nodes are fewer by as many as come again:

    r (1 - p n F(t))        n nodes of a failure, F(t) the probability that repair and time to the next are below t

which together with those that come again is r at any time, as for a fleet that has run long before. F is that of a thousand drawn pairs.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from heapq import heappop, heappush
from typing import NamedTuple

from mlsysim.simulate.draws import Draws
from mlsysim.simulate.run.clocks import Cause, Times

_PAIRS = 1000


class Again(NamedTuple):
    """With which probability a repaired node breaks again, and how long after the repair."""

    share: float
    after: Times


class Nodes:
    """What is away and what stands by. ``spares`` None: another node is always at hand from outside, and nothing comes back."""

    def __init__(self, spares: int | None, crews: int | None, again: Again | None, draws: Draws) -> None:
        self._spares, self._again, self._draws = spares, again, draws
        self.broken = self.lacking = self.most = 0
        """Nodes in repair or waiting for it, those that the run lacks, and the most that were broken at once."""
        self._lack: deque[bool] = deque()
        self._free = math.inf if crews is None else crews
        self._waiting: deque[tuple[float, Cause]] = deque()
        self._back: list[tuple[float, int, Cause]] = []
        self._fails: list[tuple[float, int, Cause]] = []
        self._count = 0
        self.next = math.inf
        """When a node comes back, or breaks again."""

    def breaks(self, t: float, cause: Cause, many: int) -> None:
        """So many nodes are away from now on."""
        if self._spares is None or cause.away is None:
            return
        for _ in range(many):
            self.broken += 1
            if self.broken > self._spares:
                self._lack.append(cause.stops)
                self.lacking += cause.stops
            length = cause.away.draw(self._draws)
            if not cause.crew or self._free > 0:
                self._free -= cause.crew
                self._begin(t, length, cause)
            else:
                self._waiting.append((length, cause))
        self.most = max(self.most, self.broken)

    def _begin(self, t: float, length: float, cause: Cause) -> None:
        self._count += 1
        heappush(self._back, (t + length, self._count, cause))
        self.next = min(self.next, t + length)

    def happens(self, t: float) -> Cause | None:
        """What is due now: a node comes back (None), or one that came back breaks again, for the same cause."""
        back = self._back[0][0] if self._back else math.inf
        if self._fails and self._fails[0][0] < back:
            found: Cause | None = heappop(self._fails)[2]
        else:
            found = None
            self._comes_back(t, heappop(self._back)[2])
        ahead = [rows[0][0] for rows in (self._back, self._fails) if rows]
        self.next = min(ahead, default=math.inf)
        return found

    def _comes_back(self, t: float, cause: Cause) -> None:
        self.broken -= 1
        if self._lack:
            self.lacking -= self._lack.popleft()
        if not cause.crew:
            return
        self._free += 1
        if self._waiting:
            self._free -= 1
            self._begin(t, *self._waiting.popleft())
        again = self._again
        if again is not None and cause.stops and self._draws.uniform() < again.share:
            self._count += 1
            heappush(self._fails, (t + again.after.draw(self._draws), self._count, cause))


class Returning:
    """How many of the failures at some time are nodes that break again, of each cause that takes nodes away."""

    def __init__(self, causes: Sequence[Cause], again: Again | None) -> None:
        draws, own = (
            Draws(0, "pairs"),
            [cause for cause in causes if cause.crew and cause.away is not None and cause.stops],
        )
        whole = sum(cause.rate for cause in own)
        nodes = sum(cause.rate * sum(size * share for size, share in cause.sizes) for cause in own)
        self._pairs: list[float] = []
        if again is None or not whole > 0:
            return
        self._share = min(again.share * nodes / whole, 1.0)
        for cause in own:
            away = cause.away or again.after
            many = round(_PAIRS * cause.rate / whole)
            self._pairs += [away.draw(draws) + again.after.draw(draws) for _ in range(many)]
        self._pairs.sort()

    def share(self, t: float) -> float:
        """Of failures at a time."""
        return self._share * bisect_right(self._pairs, t) / len(self._pairs) if self._pairs else 0.0
