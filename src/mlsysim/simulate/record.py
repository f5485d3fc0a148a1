"""What requests saw: percentiles of their times, and the share that kept limits.

Times of up to ``EXACT`` requests are kept; more are counted in bins (:mod:`mlsysim.simulate.bags`), so that a week of
traffic takes no more memory than an hour. Percentile p of n sorted values is the one at index min(n - 1, int(p n)), without interpolation,
as serving benchmarks have it. How sure a sample of so many requests is says :mod:`mlsysim.simulate.sampling`, of ``BATCHES`` of consecutive ones; how far
the step times are off is the model's error, and is said apart.
"""

from __future__ import annotations

import math
from array import array
from operator import sub

from mlsysim.simulate.bags import Bag, Gaps, binned, bins_of, packed, ranked, summed
from mlsysim.simulate.live import Done, Ended
from mlsysim.simulate.sampling import FEWEST, Percentiles, nothing, sampled

__all__ = ["BATCHES", "EXACT", "LEVELS", "Percentiles", "Record", "Times"]

EXACT, FOLDED, BATCHES = 200_000, 8_192, 20
"""Values that are kept, those of more that go to bins together, and batches."""
LEVELS = {"p50": 50.0, "p90": 90.0, "p95": 95.0, "p99": 99.0}
"""Percentiles that are always there, by name."""


class Times:
    """Values of one kind, in order: ``each`` consecutive ones are a batch, all beyond so many batches are of the last."""

    __slots__ = ("_bags", "_exact", "_sums", "each", "values")

    def __init__(self, each: int = 1 << 60, exact: int = EXACT) -> None:
        self.each, self._exact = each, exact
        self.values = array("d")
        """Those that are not in bags yet."""
        self._bags: list[Bag] | None = None
        self._sums = [0.0] * BATCHES, [0.0] * BATCHES

    @property
    def count(self) -> int:
        return len(self.values) + round(sum(self._sums[0]))

    @property
    def total(self) -> float:
        return math.fsum((*self.values, *self._sums[1]))

    @property
    def mean(self) -> float:
        return self.total / self.count if self.count else math.nan

    def extend(self, values: list[float]) -> None:
        """More values; they are counted in bins where there are more than are kept."""
        self.values += packed(values)
        if len(self.values) > self._exact:
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
                bag.update(bins_of(own))
            counts[number] += len(own)
            totals[number] += math.fsum(own)
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
        parts: int = 1,
    ) -> None:
        """``parts`` of the requests, as many of each, are independent of each other: batches are of whole ones, where there are enough."""
        whole = -(-parts // BATCHES) / parts if parts >= FEWEST else 1 / BATCHES
        each = max(1, math.ceil(expected * whole))
        exact = exact if expected <= exact else min(exact, FOLDED)
        self.all = {kind: Times(each, exact) for kind in self.KINDS}
        self._exact, self._levels = exact, levels
        self.gaps, self._ended = Gaps(), list[Ended]()
        self.limits, self.kept = limits or {}, 0
        self._most = tuple(self.limits.get(kind, math.inf) for kind in ("ttft", "tpot", "e2e"))
        self.skip = skip
        """Requests that come before this time warm the server up and are not counted."""
        self.count = self.prompts = self.answers = self.skipped = 0
        self.last = 0.0

    def teller(self) -> Done:
        """What is told of an answer that ended; it is booked when :meth:`settle` is asked to."""
        return self._ended.append

    def settle(self, fewest: int = 0) -> None:
        """Book what was told, where it is of so many answers."""
        ended = self._ended
        if len(ended) < fewest:
            return
        self.gaps.settle()
        if not ended:
            return
        self.last = max(self.last, max([each[3] for each in ended]))
        counted = [each for each in ended if each[0][0] >= self.skip] if self.skip else ended
        self.skipped += len(ended) - len(counted)
        if counted:
            asked, begun, first, finish = zip(*counted, strict=True)
            arrivals, prompts, answers, *_ = zip(*asked, strict=True)
            self.count += len(counted)
            self.prompts += sum(prompts)
            self.answers += sum(answers)
            ttft, e2e = list(map(sub, first, arrivals)), list(map(sub, finish, arrivals))
            tpot = [
                (z - a) / (many - 1) if many > 1 else 0.0 for a, z, many in zip(first, finish, answers, strict=True)
            ]
            if self.limits:
                near, further, whole = self._most
                each_of = zip(ttft, tpot, e2e, strict=True)
                self.kept += sum(a <= near and b <= further and c <= whole for a, b, c in each_of)
            if min(answers) == 1:
                tpot = [own for own, many in zip(tpot, answers, strict=True) if many > 1]
            queue = list(map(sub, begun, arrivals))
            for kind, values in zip(self.KINDS, (ttft, tpot, e2e, queue), strict=True):
                self.all[kind].extend(values)
        ended.clear()

    @property
    def answered(self) -> int:
        """Requests that were, counted or not."""
        self.settle()
        return self.count + self.skipped

    def join(self, other: Record) -> None:
        """What another replica's requests saw at the same time."""
        self.settle()
        other.settle()
        for kind, times in self.all.items():
            times.join(other.all[kind])
        self.gaps.join(other.gaps)
        self.kept, self.count = self.kept + other.kept, self.count + other.count
        self.skipped += other.skipped
        self.prompts, self.answers = self.prompts + other.prompts, self.answers + other.answers
        self.last = max(self.last, other.last)

    def percentiles(self, kind: str) -> Percentiles:
        """Mean and percentiles of a kind, with their sampling error, which gaps of tokens do not have."""
        self.settle()
        if kind != "itl":
            return self.all[kind].percentiles(self._levels)
        none, gaps = nothing(tuple(self._levels)), self.gaps
        if not (tokens := sum(gaps.bins.values())):
            return none
        mean = gaps.total / tokens
        values = dict(zip(self._levels, ranked(gaps.bins, self._levels.values()), strict=True))
        return none._replace(values={"mean": mean} | values)
