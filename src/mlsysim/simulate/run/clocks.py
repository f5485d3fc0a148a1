"""When something happens: times of a distribution, and failures of a whole fleet by cause and age.

    exponential  -m ln u        Weibull  m (-ln u)^(1/k) / Gamma(1 + 1/k)        gamma  m g(k) / k        lognormal  m exp(s z - s^2 / 2)

each with mean m and shape k (s for the last). Independent clocks of thousands of parts, each of which fails seldom, are together a Poisson
process of their summed rates whatever the distribution of one is (Palm, Khintchine), so that one clock has all of them and draws the cause
in proportion to the rates. What is left of age is how the sum changes while parts grow old: a part with a Weibull time of shape k
fails at age a at a rate in proportion to a^(k - 1), and

    L(t) = r a ((1 + t / a)^k - 1) / k                                          failures by t of a fleet of age a that has rate r now

so that the next one after t is where L has grown by an exponential time of mean 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from mlsysim.simulate.draws import Draws, exp, log

FAMILIES = ("exponential", "weibull", "gamma", "lognormal")


class Times(NamedTuple):
    """A distribution of times: its family, mean in seconds, and shape."""

    family: str
    mean: float
    shape: float = 1.0

    def draw(self, draws: Draws) -> float:
        """One of them."""
        if self.family == "weibull":
            return self.scale * exp(log(draws.exponential()) / self.shape)
        if self.family == "gamma":
            return self.mean / self.shape * draws.gamma(self.shape)
        if self.family == "lognormal":
            return self.mean * exp(self.shape * draws.normal() - 0.5 * self.shape * self.shape)
        return self.mean * draws.exponential()

    @property
    def scale(self) -> float:
        """Of a Weibull."""
        return self.mean / math.gamma(1.0 + 1.0 / self.shape)


class Cause(NamedTuple):
    """Something that fails: failures a second of the fleet, nodes that one takes away (sizes and how often each is), how long they are
    away, whether a crew has to come, and whether it is the run that stops, and not another job."""

    name: str
    rate: float
    sizes: Sequence[tuple[int, float]] = ()
    away: Times | None = None
    crew: bool = True
    stops: bool = True


class Clock:
    """Failures of all causes, one after another."""

    def __init__(self, causes: Sequence[Cause], draws: Draws, age: float | None = None, shape: float = 1.0) -> None:
        self.causes, self.draws = causes, draws
        self.rate = sum(cause.rate for cause in causes)
        self._age, self._shape = age, shape

    def after(self, t: float) -> float:
        """When the next one is, after some time."""
        if not self.rate > 0:
            return math.inf
        gap, age, k = self.draws.exponential() / self.rate, self._age, self._shape
        if age is None or k == 1.0:
            return t + gap
        grown = exp(k * log(1.0 + t / age)) + k * gap / age
        return age * (exp(log(grown) / k) - 1.0)

    def cause(self) -> Cause:
        """What it is."""
        left = self.draws.uniform() * self.rate
        for cause in self.causes:
            left -= cause.rate
            if left < 0:
                return cause
        return self.causes[-1]

    def size(self, cause: Cause) -> int:
        """Nodes that it takes away."""
        if len(cause.sizes) < 2:
            return cause.sizes[0][0] if cause.sizes else 0
        left = self.draws.uniform()
        for size, share in cause.sizes:
            left -= share
            if left < 0:
                return size
        return cause.sizes[-1][0]
