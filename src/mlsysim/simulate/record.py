"""What requests saw: percentiles of their times, and the share that kept limits.

Times of up to ``EXACT`` requests are kept; more are counted in bins (:mod:`mlsysim.simulate.bags`), so that a week of
traffic takes no more memory than an hour. Percentile p of n sorted values is the one at index min(n - 1, int(p n)), without interpolation,
as serving benchmarks have it. How sure a sample of so many requests is says :mod:`mlsysim.simulate.sampling`, of ``BATCHES`` of consecutive ones; how far
the step times are off is the model's error, and is said apart.
"""

from __future__ import annotations

import math
from array import array
from collections import defaultdict
from math import frexp

from mlsysim.simulate.bags import FINE, Bag, binned, ranked, summed
from mlsysim.simulate.sampling import Percentiles, nothing, sampled

__all__ = ["BATCHES", "EXACT", "LEVELS", "Percentiles", "Record", "Times"]

EXACT, BATCHES = 200_000, 20
_TWICE = 2 * FINE
LEVELS = {"p50": 50.0, "p90": 90.0, "p95": 95.0, "p99": 99.0}
"""Percentiles that are always there, by name."""


class Times:
    """Values of one kind, in order: ``each`` consecutive ones are a batch, all beyond so many batches are of the last."""

    __slots__ = ("_bags", "_exact", "_sums", "each", "values")

    def __init__(self, each: int = 1 << 60, exact: int = EXACT) -> None:
        self.each, self._exact = each, exact
        self.values = array("d")
        """Those that are not in bags yet; ``add`` is their ``append``, with a look at ``full`` now and then."""
        self._bags: list[Bag] | None = None
        self._sums = [0.0] * BATCHES, [0.0] * BATCHES

    @property
    def count(self) -> int:
        return len(self.values) + round(sum(self._sums[0]))

    @property
    def total(self) -> float:
        return sum(self.values) + sum(self._sums[1])

    @property
    def mean(self) -> float:
        return self.total / self.count if self.count else math.nan

    def full(self) -> None:
        """Count values in bins where there are more than are kept."""
        if len(self.values) >= self._exact:
            self._fold()
            self._bags = [binned(bag) for bag in self._bags or ()]

    def _fold(self) -> None:
        """Values go into the bags of their batches."""
        bags, (counts, totals) = self._bags or [array("d") for _ in range(BATCHES)], self._sums
        at, place = round(sum(counts)), 0
        while place < len(self.values):
            number = min(at // self.each, BATCHES - 1)
            stop = len(self.values) if number == BATCHES - 1 else place + (number + 1) * self.each - at
            own, bag = self.values[place:stop], bags[number]
            if isinstance(bag, array):
                bag.extend(own)
            else:
                for key, weight in binned(own).items():
                    bag[key] = bag.get(key, 0.0) + weight
            counts[number] += len(own)
            totals[number] += sum(own)
            at, place = at + len(own), place + len(own)
        self._bags, self.values = bags, array("d")

    def batches(self) -> list[Bag]:
        """All values, by batch."""
        self._fold()
        assert self._bags is not None
        return self._bags

    def join(self, other: Times) -> None:
        """The values of another replica, batch by batch: those were at the same time."""
        mine, theirs = self.batches(), other.batches()
        exact = self.count + other.count <= EXACT
        kept = exact and all(isinstance(bag, array) for bag in (*mine, *theirs))
        for number, (own, more) in enumerate(zip(mine, theirs, strict=True)):
            mine[number] = own + more if kept else summed(binned(own), binned(more))  # type: ignore[operator]
            for sums, others in zip(self._sums, other._sums, strict=True):
                sums[number] += others[number]

    def percentiles(self, levels: dict[str, float]) -> Percentiles:
        """Mean and percentiles, with their sampling error."""
        if not self.count:
            return nothing(tuple(levels))
        bags = zip(self.batches(), self._sums[1], strict=True)
        held, totals = zip(*(both for both in bags if both[0]), strict=True)
        return sampled(held, totals, levels)


class Record:
    """Requests that were answered. ``ttft``, ``tpot``, ``e2e`` and ``queue`` in seconds; ``gaps`` between two tokens by bin."""

    KINDS = ("ttft", "tpot", "e2e", "queue")

    def __init__(
        self,
        expected: int,
        limits: dict[str, float] | None = None,
        skip: float = 0.0,
        exact: int = EXACT,
        levels: dict[str, float] = LEVELS,
    ) -> None:
        each = max(1, -(-expected // BATCHES))
        self.all = {kind: Times(each, exact) for kind in self.KINDS}
        self._exact, self._levels = exact, levels
        self.gaps: dict[int, float] = defaultdict(float)
        self._between = 0.0
        self.limits, self.kept = limits or {}, 0
        self._most = tuple(self.limits.get(kind, math.inf) for kind in ("ttft", "tpot", "e2e"))
        self.skip = skip
        """Requests that come before this time warm the server up and are not counted."""
        self.count = self.prompts = self.answers = self.skipped = 0
        self.last = 0.0
        self._append()

    def _append(self) -> None:
        self._adds = tuple(self.all[kind].values.append for kind in self.KINDS)

    def gap(self, seconds: float, many: int) -> None:
        """So many tokens came this long after the ones before."""
        share, exponent = frexp(seconds)
        self.gaps[exponent * FINE + int(share * _TWICE)] += many
        self._between += seconds * many

    def done(self, arrival: float, begun: float, first: float, finish: float, prompt: int, answer: int) -> None:
        """A request was answered."""
        if finish > self.last:
            self.last = finish
        if arrival < self.skip:
            self.skipped += 1
            return
        ttft, e2e, tpot = first - arrival, finish - arrival, 0.0
        self.count += 1
        self.prompts += prompt
        self.answers += answer
        add_first, add_further, add_whole, add_wait = self._adds
        add_first(ttft)
        add_whole(e2e)
        add_wait(begun - arrival)
        if answer > 1:
            tpot = (finish - first) / (answer - 1)
            add_further(tpot)
        if not self.count % self._exact:
            for times in self.all.values():
                times.full()
            self._append()
        if self.limits and ttft <= self._most[0] and tpot <= self._most[1] and e2e <= self._most[2]:
            self.kept += 1

    @property
    def answered(self) -> int:
        """Requests that were, counted or not."""
        return self.count + self.skipped

    def join(self, other: Record) -> None:
        """What another replica's requests saw at the same time."""
        for kind, times in self.all.items():
            times.join(other.all[kind])
        self._append()
        self.gaps, self._between = defaultdict(float, summed(self.gaps, other.gaps)), self._between + other._between
        self.kept, self.count = self.kept + other.kept, self.count + other.count
        self.skipped += other.skipped
        self.prompts, self.answers = self.prompts + other.prompts, self.answers + other.answers
        self.last = max(self.last, other.last)

    def percentiles(self, kind: str) -> Percentiles:
        """Mean and percentiles of a kind, with their sampling error, which gaps of tokens do not have."""
        if kind != "itl":
            found = self.all[kind].percentiles(self._levels)
            self._append()
            return found
        none = nothing(tuple(self._levels))
        if not self.gaps:
            return none
        mean = self._between / sum(self.gaps.values())
        values = dict(zip(self._levels, ranked(self.gaps, self._levels.values()), strict=True))
        return none._replace(values={"mean": mean} | values)
