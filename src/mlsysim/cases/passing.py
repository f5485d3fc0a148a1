"""A number of requests at a rate: how many of them a token meets, and the last answer.

R requests that come at a rate r, each in flight for T, fill the server for R/r and leave it as they came. Their number over time is a trapezoid (fluid limit) of height
H = min(r T, R), which rises and falls for the shorter of R/r and T and is flat until the longer is over: a share s = shorter/longer of the time that all of
them are in flight passes on the slopes. A step is a (1 + x N/H) long where N are in flight, and N tokens are written in it. The mean time of a token is that
of all requests over the tokens of all, so that short steps, which are more, count by their number:

    T/a = Int N dt / Int N/(1 + x N/H) dt = 1 / ((1 - s)/(1 + x) + 2 s (x - ln(1 + x))/x^2)

which is 1 + x (1 - s/3) where steps hardly grow, 1 + x of a steady state or a batch (s = 0), and H (T/a - 1)/x are those that a token meets. The last request
finds the height for as long as it is flat, then the others leave: over its answer the mean step is 1 / ((1 - l)/(1 + x) + l ln(1 + x)/x), with the
share l of its time in which they do.

R requests that begin together and whose answers have lengths L of mean O leave one by one: N(k) = R P(L > k) are in flight at token k, and with steps a + b N all
of them end after

    Sum a + b N(k) = a L_R + b R O = O (a + b R) + a (L_R - O)

the batch of equal answers, and the longest of them, L_R, alone for the rest of its way.

Left out: slopes are straight where answers take equally long, and bend where steps grow while the server fills.
"""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Any

from mlsysim.units.ops import log, maximum, minimum, where

_STRAIGHT, _HALVINGS = 1e-3, 50


def mean_step(grown: Any, share: Any) -> Any:
    """The mean step over tokens, over one alone, where that of the height is ``grown`` longer and such a ``share`` of the time is on slopes."""
    x = maximum(grown, _STRAIGHT)
    slope = where(grown > _STRAIGHT, 2 * (x - log(1 + x)) / x**2, 1 - 2 / 3 * grown)
    return 1 / ((1 - share) / (1 + grown) + share * slope)


def meets(sent: Any, rate: Any, length: Any, alone: Any, n: Any) -> Any:
    """Requests in flight that a token of so many meets, on average, where each takes ``length`` among n and ``alone`` by itself."""
    height, span = minimum(rate * length, sent), sent / rate
    share = minimum(span, length) / maximum(span, length)
    grown = maximum(length / alone - 1, 0.0) * height / n
    curved = maximum(grown, _STRAIGHT)
    return height * where(grown > _STRAIGHT, (mean_step(curved, share) - 1) / curved, 1 - share / 3)


def last_step(mean: float, alone: float, come: float, latency: float) -> float:
    """The mean step of the last answer, where that of all is ``mean``, requests come for so long and are in flight for ``latency``."""
    share, leaving = min(come, latency) / max(come, latency), min(come / latency, 1.0)
    low, high = max(mean / alone - 1, 0.0), max(mean / alone * (1 + share) - 1, 0.0)
    for _ in range(_HALVINGS):
        grown = (low + high) / 2
        low, high = (grown, high) if mean_step(grown, share) < mean / alone else (low, grown)
    slope = log(1 + high) / high if high > _STRAIGHT else 1 - high / 2
    return float(alone / ((1 - leaving) / (1 + high) + leaving * slope))


def longest(mean: float, cv: float, count: int) -> float:
    """The longest of so many lengths that are spread as a lognormal, in the median: Phi(z)^count is a half at z standard deviations. No
    shorter than the mean, which the largest of a few may be in the median.

    >>> longest(230, 0, 200), round(longest(230, 0.64, 200))
    (230.0, 943)
    """
    width = math.sqrt(math.log1p(cv**2))
    return mean * max(1.0, math.exp(width * NormalDist().inv_cdf(0.5 ** (1 / count)) - width**2 / 2))
