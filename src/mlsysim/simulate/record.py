"""What requests saw: percentiles of their times, the share that kept limits, and how sure a sample of them is.

Times of up to ``EXACT`` requests are kept; more are counted in bins of a relative width of 2^(1/512) - 1 = 0.14 %, so that a week of
traffic takes no more memory than an hour. Percentile p of n sorted values is the one at index min(n - 1, int(p n)), without interpolation,
as serving benchmarks have it.

The sampling error of a mean or percentile is that of ``BATCHES`` batches of consecutive requests (batch means: requests near each other
share a queue, so that their times are not independent, and batches nearly are): 1.645 s/sqrt(m) for 90 %, s the spread of
the batches' own values. It says how far another hour of the same traffic could be off; how far the step times are off is the model's error, and is
said apart.
"""

from __future__ import annotations

import math
from array import array
from typing import Any, NamedTuple

EXACT, BATCHES = 200_000, 20
_FINE = 512.0
_NINETY = 1.645
LEVELS = (50.0, 90.0, 95.0, 99.0)


class Times:
    """Values of one kind, in order; percentiles of them."""

    __slots__ = ("_bins", "_exact", "_sorted", "_values", "count", "total", "weight")

    def __init__(self, exact: int = EXACT) -> None:
        self._exact = exact
        self._values = array("d")
        self._bins: dict[int, float] = {}
        self._sorted: Any = None
        self.count = 0
        self.weight = self.total = 0.0

    def add(self, value: float) -> None:
        self.count += 1
        self.weight += 1.0
        self.total += value
        if self.count <= self._exact:
            self._values.append(value)
        else:
            if self._values:
                for each in self._values:
                    self._bin(each, 1.0)
                self._values = array("d")
            self._bin(value, 1.0)

    def add_many(self, value: float, weight: float) -> None:
        """So many equal values, counted in bins."""
        self.count += 1
        self.weight += weight
        self.total += value * weight
        self._bin(value, weight)

    def join(self, other: Times) -> None:
        """The values of another, after these."""
        if self.count == len(self._values) and other.count == len(other._values) and self.count + other.count <= EXACT:
            self._values.extend(other._values)
        else:
            for each in (*self._values, *other._values):
                self._bin(each, 1.0)
            self._values = array("d")
            for key, weight in other._bins.items():
                self._bins[key] = self._bins.get(key, 0.0) + weight
        self.count += other.count
        self.weight += other.weight
        self.total += other.total

    def _bin(self, value: float, weight: float) -> None:
        key = math.floor(math.log2(value) * _FINE) if value > 0 else -(1 << 30)
        self._bins[key] = self._bins.get(key, 0.0) + weight

    @property
    def mean(self) -> float:
        return self.total / self.weight if self.weight else math.nan

    def at(self, level: float) -> float:
        """The percentile of that level."""
        if self._values:
            if self._sorted is None or len(self._sorted) != len(self._values):
                self._sorted = sorted(self._values)
            return float(self._sorted[min(len(self._sorted) - 1, int(level / 100 * len(self._sorted)))])
        rank, seen = level / 100 * self.weight, 0.0
        for key in sorted(self._bins):
            seen += self._bins[key]
            if seen > rank:
                break
        return 0.0 if key == -(1 << 30) else 2 ** ((key + 0.5) / _FINE)


class Percentiles(NamedTuple):
    """Of one kind of time: mean and percentiles in seconds, and the half width of the 90 % sampling error of each."""

    mean: float
    p50: float
    p90: float
    p95: float
    p99: float
    error: tuple[float, ...]
    """Of the mean, then of each percentile."""

    def at(self, name: str) -> float:
        """By name: mean, p50, p90, p95 or p99."""
        return float(getattr(self, name))


class Record:
    """Requests that were answered. ``ttft``, ``tpot``, ``e2e`` and ``queue`` in seconds; ``gaps`` between two tokens."""

    KINDS = ("ttft", "tpot", "e2e", "queue")

    def __init__(
        self, expected: int, limits: dict[str, float] | None = None, skip: float = 0.0, exact: int = EXACT
    ) -> None:
        self.all = {kind: Times(exact) for kind in self.KINDS}
        self._batches: list[dict[str, Times]] = [{kind: Times(exact) for kind in self.KINDS} for _ in range(BATCHES)]
        self._each = max(1, -(-expected // BATCHES))
        self.gaps = Times()
        self.limits, self.kept = limits or {}, 0
        self.skip = skip
        """Requests that come before this time warm the server up and are not counted."""
        self.count = self.prompts = self.answers = 0
        self.last = 0.0

    def gap(self, seconds: float, many: int) -> None:
        if many > 0:
            self.gaps.add_many(seconds, many)

    def done(self, arrival: float, begun: float, first: float, finish: float, prompt: int, answer: int) -> None:
        """A request was answered."""
        if finish > self.last:
            self.last = finish
        if arrival < self.skip:
            return
        ttft, e2e = first - arrival, finish - arrival
        batch = self._batches[min(self.count // self._each, BATCHES - 1)]
        self.count += 1
        self.prompts += prompt
        self.answers += answer
        for kind, value in (("ttft", ttft), ("e2e", e2e), ("queue", begun - arrival)):
            self.all[kind].add(value)
            batch[kind].add(value)
        tpot = 0.0
        if answer > 1:
            tpot = (finish - first) / (answer - 1)
            self.all["tpot"].add(tpot)
            batch["tpot"].add(tpot)
        limits = self.limits
        if limits and all(
            value <= limits.get(kind, math.inf) for kind, value in (("ttft", ttft), ("tpot", tpot), ("e2e", e2e))
        ):
            self.kept += 1

    def join(self, other: Record) -> None:
        """What another replica's requests saw at the same time."""
        mine = [self.all, {"itl": self.gaps}, *self._batches]
        for own, others in zip(mine, [other.all, {"itl": other.gaps}, *other._batches], strict=True):
            for kind, times in own.items():
                times.join(others[kind])
        self.kept, self.count = self.kept + other.kept, self.count + other.count
        self.prompts, self.answers = self.prompts + other.prompts, self.answers + other.answers
        self.last = max(self.last, other.last)

    def percentiles(self, kind: str) -> Percentiles:
        """Mean and percentiles of a kind, with their sampling error."""
        times = self.gaps if kind == "itl" else self.all[kind]
        if not times.count:
            return Percentiles(*(math.nan,) * 5, (math.nan,) * 5)
        values = [times.mean, *(times.at(level) for level in LEVELS)]
        parts = [batch[kind] for batch in self._batches if kind != "itl" and batch[kind].count]
        errors = []
        for index in range(len(values)):
            found = [part.mean if not index else part.at(LEVELS[index - 1]) for part in parts]
            errors.append(_half_width(found))
        return Percentiles._make((*values, tuple(errors)))


def _half_width(values: list[float]) -> float:
    """Half of the 90 % interval of the mean of so many batches; without a batch's worth nothing is known."""
    m = len(values)
    if m < 2:
        return math.nan
    mean = sum(values) / m
    spread = math.sqrt(sum((value - mean) ** 2 for value in values) / (m - 1))
    return _NINETY * spread / math.sqrt(m)
