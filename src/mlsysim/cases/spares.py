"""Waiting for spares: the share of a run in which no more nodes are in repair than stand by.

A run begins with all nodes whole. They break at rate r from then on, in the run's stops too, each for a time R of any distribution, so that those in repair are the
customers of M/G/infinity that began empty (Takacs 1962): at time t their number is Poisson with mean

    m(t) = r E[min(R, t)] = r integral_0^t P(R > u) du         0 at first, r E[R] in the long run
    A(t) = integral_0^t P(number at u <= k) du                 time with all nodes there, k spares

A run that needs w hours with all nodes ends at A(T) = w; one that lasts T has A(T). P falls with t, so that A / T is between the long-run share and 1; it grows with k and
falls with r and with repairs that are longer. Of repairs with a Weibull time of mean E, shape q and scale c, with P the regularised incomplete gamma function,

    E[min(R, t)] = E P(1/q, (t/c)^q)                           E (1 - exp(-t/E)) for q = 1

Nodes that break again and again do not matter: each is in repair or not, so that the number of those that are stays Poisson. P is taken at fixed times over the mean repair,
5 % apart, and as linear between them: A within 0.1 %.

T is where the mean of the time with all nodes is w, which is between the run in the middle and the mean over runs. Left out: faults that take several nodes at once count by their
mean, which where a run waits most of its time makes it up to a tenth longer; hours in which a run pauses while repairs go on.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from mlsysim.units.ops import exp, log, maximum, minimum, some, sqrt

Back = tuple[tuple[float, float], ...]
"""Times over the mean repair, and the share of the mean repair that lies before each: E[min(R, t)] / E[R]."""
_LEAST, _MOST = 1e-300, 1e15
_FIRST, _LAST, _APART = 1e-6, 1e5, 1.05
_CLOSE = 1e-12


def repaired(time: float, shape: float) -> float:
    """The share of a Weibull repair's mean that lies before a ``time`` over that mean: P(1/q, (t/c)^q), by its series."""
    a = 1 / shape
    x = min((time * math.gamma(1 + a)) ** shape, 60.0)
    total = term = x**a * math.exp(-x) / math.gamma(1 + a)
    n = 0
    while term > _CLOSE * total:
        n += 1
        term *= x / (a + n)
        total += term
    return min(total, 1.0)


@lru_cache(8)
def backs(repairs: tuple[tuple[float, float, float], ...]) -> Back:
    """Of repairs, as weight, mean and Weibull shape of each kind."""
    mean = sum(weight * hours for weight, hours, _ in repairs)
    steps = math.ceil(math.log(_LAST / _FIRST) / math.log(_APART))
    times = [_FIRST * _APART**i for i in range(steps + 1)]
    return tuple(
        (t, sum(weight * hours * repaired(t * mean / hours, shape) for weight, hours, shape in repairs) / mean)
        for t in times
    )


def all_there(broken: Any, spares: int) -> Any:
    """Probability that no more nodes are in repair than there are spares: Poisson, ``broken`` on average."""
    mean = maximum(broken, _LEAST)
    wide = 9 * sqrt(mean)
    if not some(mean + wide + 30 > spares):
        return mean * 0 + 1.0
    if not some(mean - wide - 30 < spares):
        return mean * 0
    scale = log(mean)
    terms = (exp(maximum(i * scale - mean - math.lgamma(i + 1.0), -700.0)) for i in range(spares + 1))
    return minimum(sum(terms), 1.0)


def present(broken: Sequence[Any], spares: int, back: Back, work: Any, most: Any) -> Any:
    """Share of the time in which all nodes are there, of a run that needs ``work`` such times (over the mean repair) and takes at ``most`` some. ``broken`` are the nodes of
    each group, with spares of its own, that are in repair in the long run."""

    def there(share: float) -> Any:
        return math.prod(all_there(each * share, spares) for each in broken)

    most = minimum(most, _MOST)
    begin, before, done, taken = 0.0, 1.0, minimum(work, 0.0), minimum(work, 0.0)
    for end, share in (*back, (_MOST, 1.0)):
        if not some((done < work) & (taken < most)):
            break
        now = there(share)
        rate = (before + now) / 2 if end < _MOST else now
        lasts = maximum(minimum(minimum(end, most) - begin, (work - done) / maximum(rate, _LEAST)), 0.0)
        done, taken, begin, before = done + lasts * rate, taken + lasts, end, now
    return done / maximum(taken, _LEAST)
