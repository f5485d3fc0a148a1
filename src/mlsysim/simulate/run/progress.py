"""Work of a run, checkpoints of it, and what a failure takes back.

Work is counted in seconds at full speed. After every ``interval`` of it a checkpoint stops the run for ``write`` seconds and can be used ``lag``
seconds later; a failure goes back to the last that can. Whole cycles are jumped over, so that a day takes as long to play as a minute.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass
class Progress:
    """Work that is saved, that the checkpoint before had, and since the last; seconds of the write in hand, of all writes, and of computing."""

    interval: float
    write: float
    lag: float
    goal: float
    saved: float = 0.0
    before: float = 0.0
    since: float = 0.0
    wrote: float = 0.0
    usable: float = -math.inf
    writes: float = 0.0
    computing: float = 0.0
    executed: float = 0.0

    @property
    def done(self) -> float:
        """Work that is done, saved or not."""
        return self.saved + self.since

    def left(self, rate: float) -> float:
        """Seconds until the goal is reached where nothing happens."""
        rest = self.goal - self.saved - self.since
        if not rate > 0 or rest == math.inf:
            return math.inf
        writes = math.floor((self.since + rest) / self.interval * (1 - 1e-12)) if rest > 0 else 0
        return rest / rate + writes * self.write - self.wrote

    def advance(self, t: float, seconds: float, rate: float) -> None:
        """So many seconds from ``t`` on at a share of full speed."""
        interval, write = self.interval, self.write
        if self.since >= interval:
            need = write - self.wrote
            if seconds < need:
                self.wrote += seconds
                self.writes += seconds
                return
            t, seconds = t + need, seconds - need
            self.writes += need
            self._commit(t)
        if not rate > 0:
            return
        while True:
            need = (interval - self.since) / rate
            if seconds < need:
                self.since += seconds * rate
                self.computing += seconds
                self.executed += seconds * rate
                return
            if self.since == 0.0 and seconds >= (cycle := need + write):
                many = int(seconds / cycle)
                self.saved += many * interval
                self.before = self.saved - interval
                self.writes += many * write
                self.computing += many * need
                self.executed += many * interval
                t, seconds = t + many * cycle, max(0.0, seconds - many * cycle)
                self.usable = t + self.lag
                continue
            self.computing += need
            self.executed += interval - self.since
            self.since = interval
            t, seconds = t + need, seconds - need
            if seconds < write:
                self.wrote = seconds
                self.writes += seconds
                return
            t, seconds = t + write, seconds - write
            self.writes += write
            self._commit(t)

    def _commit(self, t: float) -> None:
        self.before, self.saved = self.saved, self.saved + self.since
        self.since = self.wrote = 0.0
        self.usable = t + self.lag

    def save(self, t: float) -> float:
        """A checkpoint out of turn, which is waited for; its seconds."""
        took = self.write - self.wrote
        self.writes += took
        self._commit(t + took)
        self.usable = t + took
        return took

    def fail(self, t: float, further: float = 0.0) -> tuple[float, float]:
        """Back to the last checkpoint that can be used, or ``further`` work before that; the work lost, and the write in hand."""
        kept, wrote = (self.saved if t >= self.usable else self.before), self.wrote
        kept = max(0.0, kept - further)
        lost = self.saved + self.since - kept
        self.saved = self.before = kept
        self.since = self.wrote = 0.0
        self.usable = -math.inf
        self.writes -= wrote
        return lost, wrote
