"""Random numbers that are the same to the last bit on every platform and in the browser.

Python's generator (Mersenne twister) gives the same uniform numbers everywhere, but logarithm and exponential come from the
platform's C library and may differ in the last bit; a long run makes another decision of it sooner or later. Here they are made of
sums, products, quotients and square roots, which IEEE 754 rounds in one way only. Where a number is rounded to whole tokens or to the spacing of a
clock that has run for a while, the C library's decides it, which is ten times as fast, unless it is so near to a change (``NEAR``, of libraries that are right to
1e-15) that the last bits matter: then the others are asked.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from math import floor, frexp, ldexp, sqrt
from random import Random

__all__ = ["LN2", "NEAR", "Draws", "exp", "log"]

LN2 = 0.6931471805599453
NEAR = 1e-12
"""The most that a number of the C library, or of a few operations on one, can be off, as a share: a thousand times what libraries are."""
_FAR = 1e5
"""Numbers up to this are off by less than it times ``NEAR``."""


def log(x: float) -> float:
    """Natural logarithm of a positive number: 2 artanh((m - 1) / (m + 1)) of the mantissa, whose series ends below 1e-17.

    >>> log(1.0), round(log(10.0), 12)
    (0.0, 2.302585092994)
    """
    m, e = frexp(x)
    if m < 0.7071067811865476:
        m += m
        e -= 1
    s = (m - 1.0) / (m + 1.0)
    z = s * s
    tail = 1 / 15 + z * (1 / 17 + z * (1 / 19 + z * (1 / 21)))
    series = 1.0 + z * (1 / 3 + z * (0.2 + z * (1 / 7 + z * (1 / 9 + z * (1 / 11 + z * (1 / 13 + z * tail))))))
    return 2.0 * s * series + e * LN2


def exp(x: float) -> float:
    """The exponential: a power of two and a Taylor series on half a binary octave.

    >>> exp(0.0), round(exp(1.0), 12), exp(-1e4)
    (1.0, 2.718281828459, 0.0)
    """
    k = floor(x * 1.4426950408889634 + 0.5)
    r = x - k * LN2
    tail = 1 / 5040 + r * (1 / 40320 + r * (1 / 362880 + r * (1 / 3628800 + r * (1 / 39916800 + r / 479001600))))
    series = 1.0 + r * (1.0 + r * (0.5 + r * (1 / 6 + r * (1 / 24 + r * (1 / 120 + r * (1 / 720 + r * tail))))))
    return ldexp(series, k)


class Draws:
    """One stream of random numbers, named by seed and purpose: other lengths do not change the arrivals of the same seed."""

    __slots__ = ("_spare", "uniform")

    def __init__(self, seed: int, purpose: str) -> None:
        self.uniform = Random(f"{seed} {purpose}").random
        self._spare: tuple[float, float] | None = None

    def exponential(self) -> float:
        """Of mean 1."""
        return -log(1.0 - self.uniform())

    def normal(self) -> float:
        """Of mean 0 and variance 1."""
        x, s = self._polar()
        return x * sqrt(-2.0 * log(s) / s)

    def _polar(self) -> tuple[float, float]:
        """x and s of a normal number x sqrt(-2 ln s / s), by Marsaglia's polar method: two at a time."""
        if (spare := self._spare) is not None:
            self._spare = None
            return spare
        uniform = self.uniform
        while True:
            x, y = 2.0 * uniform() - 1.0, 2.0 * uniform() - 1.0
            s = x * x + y * y
            if 0.0 < s < 1.0:
                self._spare = y, s
                return x, s

    def whole(self, mu: float, sigma: float) -> int:
        """exp(mu + sigma normal), up or down to a whole number by chance."""
        x, s = self._polar()
        above = math.exp(mu + sigma * (x * sqrt(-2.0 * math.log(s) / s)))
        chance = self.uniform()
        found = floor(above + chance)
        near = NEAR * (1.0 + above)
        if not near < above + chance - found < 1.0 - near:
            found = floor(exp(mu + sigma * (x * sqrt(-2.0 * log(s) / s))) + chance)
        return found

    def pairs(self, mu: float, sigma: float, other: float, spread: float) -> Iterator[int]:
        """1 and what calls of :meth:`whole` give for one and the other in turn, of the two normal numbers that are drawn together."""
        uniform, exponential, log2, twice = self.uniform, math.exp, math.log2, -2.0 * LN2
        low, high = _FAR * NEAR, 1.0 - _FAR * NEAR
        while True:
            s = 1.0
            while s >= 1.0 or s == 0.0:
                x, y = 2.0 * uniform() - 1.0, 2.0 * uniform() - 1.0
                s = x * x + y * y
            root = sqrt(twice * log2(s) / s)
            first, second = uniform(), uniform()
            one, two = exponential(mu + sigma * (x * root)) + first, exponential(other + spread * (y * root)) + second
            found, last = floor(one), floor(two)
            rest, more = one - found, two - last
            if one > _FAR or rest <= low or rest >= high:
                found = floor(exp(mu + sigma * (x * sqrt(-2.0 * log(s) / s))) + first)
            if two > _FAR or more <= low or more >= high:
                last = floor(exp(other + spread * (y * sqrt(-2.0 * log(s) / s))) + second)
            yield 1 + found
            yield 1 + last

    def gamma(self, shape: float) -> float:
        """Of mean and variance ``shape``. Marsaglia and Tsang (2000), https://doi.org/10.1145/358407.358414"""
        if shape < 1.0:
            return self.gamma(shape + 1.0) * exp(log(1.0 - self.uniform()) / shape)
        d = shape - 1 / 3
        c = 1.0 / sqrt(9.0 * d)
        while True:
            x = self.normal()
            v = 1.0 + c * x
            if v > 0.0:
                v = v * v * v
                if log(1.0 - self.uniform()) < 0.5 * x * x + d * (1.0 - v + log(v)):
                    return d * v
