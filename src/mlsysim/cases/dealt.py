"""Requests that come at random to a service and are dealt out to its replicas in turn: to each of k comes every k-th.

Gaps between those of one replica are sums of k exponential ones, c = 1/k their cv^2: Poisson for k = 1, a metronome for k without end. In a time in which x come on average

    after one, nobody    Q_k(x),   Q_a(x): more than kx of a gamma distribution of a
    nobody               Int_x Q_k = Q_(k + 1)(x) - x Q_k(x)
    others than one that comes in it        x + V/x - 1 = x - (1 - c) (1 - g),    g = (1 - e^-bx)/(bx),    b = 6/(1 + c)
    after one            half of the derivative of x times that,   x - (1 - c) (1 - e^-bx)/2
    one, in a time that follows one like it in which one came, over what chance has        1 + (V(2x) - 2 V(x))/(2 x^2) = 1 - (1 - c) b g^2/2

with the variance of counts V = c x + (1 - c) x g, exact for k of 1 and 2, and for all k where x is small or large: V - c x goes to (1 - c^2)/6 (Cox and Lewis
1966). Q by Wilson and Hilferty (1931), and the normal distribution by Page (1977).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from mlsysim.units.ops import exp, expm1, maximum, minimum, some, sqrt, where

_LEAST, _FAR = 1e-9, 30.0


class Dealt(NamedTuple):
    """What comes to one of ``among`` replicas; numbers or arrays."""

    among: Any = 1.0

    @property
    def varied(self) -> Any:
        """cv^2 of the gaps."""
        return 1.0 / self.among

    @property
    def random(self) -> bool:
        """Whether they come as if there were no other replica."""
        return not some(self.among != 1)

    def somebody(self, x: Any) -> Any:
        """The probability that somebody comes: no less than by chance, no more than x."""
        chance = -expm1(-x)
        if self.random:
            return chance
        nobody = _beyond(self.among + 1, self.among * x) - x * _beyond(self.among, self.among * x)
        return where(self.among == 1, chance, minimum(maximum(1 - nobody, chance), minimum(x, 1.0)))

    def nobody(self, x: Any) -> Any:
        """The probability that nobody comes."""
        return exp(-x) if self.random else 1 - self.somebody(x)

    def nobody_after(self, x: Any) -> Any:
        """The same after one, or before one."""
        return exp(-x) if self.random else where(self.among == 1, exp(-x), _beyond(self.among, self.among * x))

    def others(self, x: Any) -> Any:
        """How many more come in a time in which one comes."""
        if self.random:
            return x
        c, y = self._scaled(x)
        return maximum(x - (1 - c) * (1 + expm1(-y) / y), 0.0)

    def after(self, x: Any) -> Any:
        """How many come after one."""
        return x if self.random else maximum(x + (1 - self.varied) * expm1(-self._scaled(x)[1]) / 2, 0.0)

    def follows(self, x: Any) -> Any:
        """How many times as often as by chance one comes in a time that follows one like it in which somebody came."""
        if self.random:
            return 1.0
        c, y = self._scaled(x)
        return maximum(1 - (1 - c) * 3 / (1 + c) * (expm1(-y) / y) ** 2, 0.0)

    def queued(self, load: Any, spread: Any) -> Any:
        """c + spread of what a server takes of each, of a load near 1; of smaller ones by Kraemer and Langenbach-Belz (1976), as evenly as they come."""
        if self.random:
            return 1 + spread
        c, least = self.varied, maximum(load, _LEAST)
        return (c + spread) * exp(-2 * (1 - least) * (1 - c) ** 2 / (3 * least * (c + spread)))

    def _scaled(self, x: Any) -> tuple[Any, Any]:
        c = self.varied
        return c, maximum(6 * x / (1 + c), _LEAST)


ALONE = Dealt()
"""All that come."""


def _beyond(a: Any, x: Any) -> Any:
    """The share of a gamma distribution of ``a`` that is above ``x``: the third root of x/a is nearly normal, with mean 1 - 1/(9 a) and variance 1/(9 a)."""
    z = ((maximum(x, 0.0) / a) ** (1 / 3) - 1 + 1 / (9 * a)) * 3 * sqrt(a)
    return 1 / (1 + exp(maximum(minimum(z * (1.5976 + 0.07056 * z**2), _FAR), -_FAR)))
