"""How sure a mean or percentile is of the requests that were played: how far off another hour of the same traffic could be.

Requests near each other share a queue, so that their times are alike, and n of them say as much as n / tau independent ones. The share of the
requests above a value is a mean, and has a batch means estimate: with f_j that of batch j of consecutive requests, f that of all, s the spread of
m batches and t Student's for m - 1,

    z = t s / sqrt(m f (1 - f)),    which is 1.645 sqrt(tau / n) of many batches, and no less than 1.645 / sqrt(n)

Near saturation neighbouring batches are alike too: with r the correlation of two neighbours, they forget in 1 / -ln r of them, and ``FORGETS``
times as many are one batch, of which there are ``FEWEST`` at least. The odds (1 - p) / p of being above percentile p are then known to a factor
e^(+-z / sqrt(p (1 - p))) (delta method on their logarithm, since a share lies between none and all), and the lower end of the interval is the sample's own value at
the larger ones (Woodruff 1952). The upper end lies as far above the value, as a ratio, as the lower one below it, or where the sample has the smaller odds, if
that is further: the tail that a sample lacks is what it is most wrong about, and near saturation waits are all too long or too short by a common
factor. The half width that is stated is that to the upper end.

The z of a percentile is the largest of those of the levels up to it: the requests above a p99 come from a few busy moments, and a sample
that has none of them shows no spread there, while that of lower levels, whose tau is smaller or the same, is seen. (Of M/M/1 at a load of 0.9
tau is 107, 248, 278 and 280 at the p50, p90, p95 and p99.) The mean is held against the levels up to the p90.

What is not known to a factor of two (a half width above the value) is not known: no error is stated, and ``enough`` says after how many requests
one would be, z falling as 1/sqrt(n) and the sample's own tail as it is. Of 200 samples of waits of M/M/1, those whose interval misses the true
p99: at a load of 0.6 4 % of samples of 10,000 requests, 6 % of 40,000; at 0.9 14 and 13 % (54 and 12 % state none), at 0.95 14 and 18 % (81 and 52 % state none). Times
between busy periods, after which a queue begins anew, would do for one server; a replica that answers dozens of requests at a time is never empty.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from mlsysim.simulate.bags import Bag, above, ranked, together, variance
from mlsysim.simulate.draws import exp, log
from mlsysim.units.uncertain import STUDENT

FORGETS, FEWEST = 4.0, 3
_NORMAL, _TWICE = 1.645, 2.0
_LIKE_THE_MEAN = 90.0
"""Percentiles up to this level have about the tau of the mean."""


class Percentiles(NamedTuple):
    """Of one kind of time: mean and percentiles in seconds by name, and the half width of the 90 % sampling error of each."""

    values: dict[str, float]
    error: tuple[float, ...]
    enough: tuple[float, ...] = ()
    """Requests of which each would be known to a factor of two."""

    @property
    def mean(self) -> float:
        return self.values["mean"]

    @property
    def p90(self) -> float:
        return self.values["p90"]

    @property
    def p99(self) -> float:
        return self.values["p99"]


def sampled(batches: Sequence[Bag], totals: Sequence[float], levels: dict[str, float]) -> Percentiles:
    """Mean and percentiles of batches of consecutive values, whose sums are given, with their sampling error."""
    bags = [sorted(bag) if isinstance(bag, array) else bag for bag in batches]
    counts = [float(len(bag)) if isinstance(bag, list) else sum(bag.values()) for bag in bags]
    whole, count = together(bags), sum(counts)
    mean, values = math.fsum(totals) / count, ranked(whole, levels.values())
    unlike = [_NORMAL / math.sqrt(count)]
    of_mean, errors, enough = unlike[0], list[float](), list[float]()
    for value, level in zip(values, levels.values(), strict=True):
        share = above(whole, value) / count
        if share:
            shares = [above(bag, value) / many for bag, many in zip(bags, counts, strict=True)]
            unlike.append(_away(shares) / math.sqrt(share * (1 - share)))
        if level <= _LIKE_THE_MEAN:
            of_mean = max(unlike)
        p = level / 100
        odds, factor = (1 - p) / p, max(unlike) / math.sqrt(p * (1 - p))
        most = min(factor, 99.0)
        larger, smaller = odds * exp(most), odds * exp(-most)
        low, high = ranked(whole, (100 / (1 + larger), 100 / (1 + smaller)))
        errors.append(max(_upwards(value, low), high - value) if factor < math.inf else factor)
        rest = above(whole, value / _TWICE) / count
        within = log(rest / (1 - rest) / odds) if 0 < rest < 1 else rest and math.inf
        enough.append(count * (factor / within) ** 2 if within > 0 else math.inf)
    spread = math.sqrt(variance(whole, mean))
    away = max(_away([total / many for total, many in zip(totals, counts, strict=True)]), of_mean * spread)
    widths = [_upwards(mean, mean - away), *errors]
    needed = [count * (away / (mean * (1 - 1 / _TWICE))) ** 2 if mean else 0.0, *enough]
    found = {"mean": mean} | dict(zip(levels, values, strict=True))
    # One request says nothing of others.
    stated = [
        width if width <= value and count > 1 else math.nan for width, value in zip(widths, found.values(), strict=True)
    ]
    return Percentiles(found, tuple(stated), tuple(needed))


def nothing(levels: Sequence[str]) -> Percentiles:
    """Of no requests."""
    values = dict.fromkeys(("mean", *levels), math.nan)
    return Percentiles(values, (math.nan,) * len(values))


def _upwards(value: float, low: float) -> float:
    """To an upper end whose ratio to the value is that of the value to the lower end."""
    if value == low:
        return 0.0
    return (value - low) * value / low if low > 0 else math.inf


def _away(values: Sequence[float]) -> float:
    """Half of the 90 % interval of the mean of so many batches; one batch says nothing."""
    many = _longer(values)
    values = [math.fsum(values[at : at + many]) / many for at in range(0, len(values) - many + 1, many)]
    m = len(values)
    if m < 2:
        return math.inf
    mean = math.fsum(values) / m
    spread = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (m - 1))
    return STUDENT[m - 2] * spread / math.sqrt(m)


def _longer(values: Sequence[float]) -> int:
    """Batches that make one whose neighbours are not like it, by the correlation of two neighbours."""
    middle = math.fsum(values) / len(values)
    away = [each - middle for each in values]
    square = math.fsum(each * each for each in away)
    alike = math.fsum(a * b for a, b in pairwise(away)) / square + 1 / len(values) if square else 0.0
    if alike <= 0:
        return 1
    return max(1, min(len(values) // FEWEST, math.ceil(FORGETS / -log(min(alike, 0.99)))))
