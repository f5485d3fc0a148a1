"""What requests saw: percentiles of their times, the share that kept limits, and how sure a sample of them is.

Times of up to ``EXACT`` requests are kept; more are counted in 512 bins between two powers of two (0.1 to 0.2 % wide), so that a week of
traffic takes no more memory than an hour. Percentile p of n sorted values is the one at index min(n - 1, int(p n)), without interpolation,
as serving benchmarks have it.

The sampling error of a mean or percentile is that of batches of consecutive requests (batch means: requests near each other
share a queue, so that their times are not independent, and batches nearly are): t s/sqrt(m) for 90 %, s the spread of the values of m batches,
t Student's for m - 1, and no less than that of as many independent requests (two batches may be alike by chance). There are ``BATCHES``, or fewer and larger ones, so that each has ``ABOVE`` requests above a percentile: those come
from a few busy moments, and a batch without one says nothing about them. Where there are not two such batches nothing is said. Near saturation
neighbouring batches are alike too: with r the correlation of the means of two neighbours, they forget in 1 / -ln r of them, and batches are
``FORGETS`` times that long, ``FEWEST`` of them at least. A percentile of few requests is too low there, since its busiest moments are rare:
with a bias that falls as 1/sqrt(n), those of m batches are below that of all by sqrt(m) - 1 times the latter's, which is added to its error. (Of
samples of 10,000 waits of M/M/1 at a load of 0.9 the interval has the true mean in 86 %, the p95 in 75 %, the p99 in 59 %, where plain batches had
78, 42 and 31 %; at 0.6 in 90 %. What is rarer than a sample is not known from it: play more.) It says how far another hour of the same traffic could be off; how far the step times are off is the model's error, and is
said apart.
"""

from __future__ import annotations

import math
from array import array
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from math import frexp
from typing import NamedTuple

from mlsysim.units.uncertain import STUDENT

EXACT, BATCHES, ABOVE, FORGETS, FEWEST = 200_000, 20, 10, 4.0, 3
_FINE = 512
_TWICE = 2 * _FINE
_NORMAL = 1.645
LEVELS = {"p50": 50.0, "p90": 90.0, "p95": 95.0, "p99": 99.0}
"""Percentiles that are always there, by name."""


class Percentiles(NamedTuple):
    """Of one kind of time: mean and percentiles in seconds by name, and the half width of the 90 % sampling error of each."""

    values: dict[str, float]
    error: tuple[float, ...]

    @property
    def mean(self) -> float:
        return self.values["mean"]

    @property
    def p90(self) -> float:
        return self.values["p90"]

    @property
    def p99(self) -> float:
        return self.values["p99"]


def _nothing(levels: Iterable[str]) -> Percentiles:
    values = dict.fromkeys(("mean", *levels), math.nan)
    return Percentiles(values, (math.nan,) * len(values))


Bag = array | dict[int, float]
"""Values as they are, or how many there are in each bin."""


def _bin(value: float) -> int:
    """The bin of a value: by its exponent, and linear between two powers of two."""
    share, exponent = math.frexp(value)
    return exponent * _FINE + int(share * 2 * _FINE)


def _middle(key: int) -> float:
    exponent, place = divmod(key, _FINE)
    return math.ldexp((place + _FINE + 0.5) / (2 * _FINE), exponent - 1)


def _binned(bag: Bag) -> dict[int, float]:
    if isinstance(bag, dict):
        return bag
    found: dict[int, float] = {}
    for value in bag:
        key = _bin(value)
        found[key] = found.get(key, 0.0) + 1.0
    return found


def ranked(bag: Bag, levels: Iterable[float]) -> list[float]:
    """Percentiles of a bag."""
    if isinstance(bag, array):
        ordered = sorted(bag)
        return [ordered[min(len(ordered) - 1, int(level / 100 * len(ordered)))] for level in levels]
    keys, total, found = sorted(bag), sum(bag.values()), []
    for level in levels:
        seen, key = 0.0, keys[0]
        for key in keys:
            seen += bag[key]
            if seen > level / 100 * total:
                break
        found.append(_middle(key))
    return found


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
            self._bags = [_binned(bag) for bag in self._bags or ()]

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
                for key, weight in _binned(own).items():
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
            mine[number] = own + more if kept else _summed(_binned(own), _binned(more))  # type: ignore[operator]
            for sums, others in zip(self._sums, other._sums, strict=True):
                sums[number] += others[number]

    def percentiles(self, levels: dict[str, float]) -> Percentiles:
        """Mean and percentiles, with their sampling error."""
        if not self.count:
            return _nothing(levels)
        bags = [bag for bag in self.batches() if bag]
        means = [total / count for count, total in zip(*self._sums, strict=True) if count]
        bags = [array("d", sorted(bag)) if isinstance(bag, array) else bag for bag in bags]
        whole = _together(bags)
        values, longer = _named(self.mean, whole, levels), _longer(means)
        least_errors = _independent(whole, self.count, levels.values())
        errors, known = [_half_width(_merged(means, longer), self.mean)], dict[int, list[list[float]]]()
        for place, (name, level) in enumerate(levels.items()):
            least = math.ceil(ABOVE / (1 - level / 100) / (self.count / len(bags)))
            many = max(least, longer)
            if many not in known:
                larger = [_together(bags[at : at + many]) for at in range(0, len(bags) - many + 1, many)]
                known[many] = [ranked(bag, levels.values()) for bag in larger]
            width = _half_width([found[place] for found in known[many]], values[name])
            errors.append(width if math.isnan(width) else max(width, least_errors[place]))
        return Percentiles(values, tuple(errors))


def _independent(bag: Bag, count: int, levels: Iterable[float]) -> list[float]:
    """Half of the 90 % interval of each percentile, were requests independent: between the ranks n p -+ z sqrt(n p (1 - p)) of all."""
    held = [(level, 100 * _NORMAL * math.sqrt(level / 100 * (1 - level / 100) / count)) for level in levels]
    lows = ranked(bag, [max(level - away, 0.0) for level, away in held])
    highs = ranked(bag, [min(level + away, 100.0) for level, away in held])
    return [(high - low) / 2 for low, high in zip(lows, highs, strict=True)]


def _longer(means: Sequence[float]) -> int:
    """Batches that make one whose neighbours are not like it, by the correlation of their means."""
    middle = sum(means) / len(means)
    away = [each - middle for each in means]
    square = sum(each * each for each in away)
    alike = sum(a * b for a, b in pairwise(away)) / square + 1 / len(means) if square else 0.0
    if alike <= 0:
        return 1
    return max(1, min(len(means) // FEWEST, math.ceil(FORGETS / -math.log(min(alike, 0.99)))))


def _merged(means: Sequence[float], many: int) -> list[float]:
    return [sum(means[at : at + many]) / many for at in range(0, len(means) - many + 1, many)]


def _named(mean: float, bag: Bag, levels: dict[str, float]) -> dict[str, float]:
    return {"mean": mean} | dict(zip(levels, ranked(bag, levels.values()), strict=True))


def _together(bags: Sequence[Bag]) -> Bag:
    if len(bags) == 1:
        return bags[0]
    if all(isinstance(bag, array) for bag in bags):
        joined = array("d")
        for bag in bags:
            joined.extend(bag)
        return joined
    whole: dict[int, float] = {}
    for bag in bags:
        whole = _summed(whole, _binned(bag))
    return whole


def _summed(a: dict[int, float], b: dict[int, float]) -> dict[int, float]:
    found = dict(a)
    for key, weight in b.items():
        found[key] = found.get(key, 0.0) + weight
    return found


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
        self.gaps[exponent * _FINE + int(share * _TWICE)] += many
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
        self.gaps, self._between = defaultdict(float, _summed(self.gaps, other.gaps)), self._between + other._between
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
        nothing = _nothing(self._levels)
        if not self.gaps:
            return nothing
        mean = self._between / sum(self.gaps.values())
        return nothing._replace(values=_named(mean, self.gaps, self._levels))


def _half_width(values: Sequence[float], whole: float) -> float:
    """Half of the 90 % interval of the mean of so many batches, and the bias that they show; without a batch's worth nothing is known."""
    m = len(values)
    if m < 2:
        return math.nan
    mean = sum(values) / m
    spread = math.sqrt(sum((value - mean) ** 2 for value in values) / (m - 1))
    return STUDENT[m - 2] * spread / math.sqrt(m) + max(whole - mean, 0.0) / (math.sqrt(m) - 1)
