"""Percentiles of the time that a request spends in a queue and in service, in units of the mean service time.

A request waits with probability C; the wait is then exponential with rate theta. Its service is gamma distributed with mean
1 and coefficient of variation cv, shape k = 1 / cv^2: exponential at cv = 1, where the answer for M/M/c is exact, and
constant at cv = 0. With x the time and Q the upper regularised incomplete gamma function,

    P(T > x) = Q(k, k x) + C * Int_0^x f(s) e^(-theta (x - s)) ds
    Q(k, y)  = y^k e^-y / Gamma(k) * Int_0^inf (1 + t)^(k-1) e^(-y t) dt
    Int      = (k x)^k e^(-theta x) / Gamma(k) * Int_0^1 v^(k-1) e^(-(k - theta) x v) dv

Both integrals have one peak, whose place and width are known, and are evaluated in log space around it. Percentiles invert
log P by bisection with Ridders' correction; log P falls almost linearly in x, so that it is a short search.

That a positive wait is exponential is exact for M/M/c and an approximation otherwise. Against simulation, the P99 of ten
servers with cv = 0 to 2 is within 5 % at rho = 0.5, 1 % at 0.8 and 3 % at 0.9; the P99 of one server with constant service
at rho = 0.5, the worst case found, comes out 13 % long.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from mlsysim.physics.queueing import exponential_tail, fewest, load, log_erlang_c, peaked_integral_nodes

_CONSTANT = 1e-4
"""Below this coefficient of variation a service time counts as constant."""

_SMALLEST = 1e-300
_PRECISION = 1e-12

_UPPER = peaked_integral_nodes(45, 30)
_LOWER = peaked_integral_nodes(90, 45)


class Sojourn:
    """Distribution of wait + service for c servers at load rho < 1; times in units of the mean service time."""

    __slots__ = ("cv", "drain", "wait_probability")

    def __init__(self, servers: float, rho: float, cv: float = 1.0) -> None:
        self.cv = cv
        self.wait_probability = math.exp(log_erlang_c(servers, rho))
        self.drain = 2 * servers * (1 - rho) / (1 + cv * cv)

    @property
    def mean_wait(self) -> float:
        """Mean wait over all requests."""
        return self.wait_probability / self.drain

    def wait_percentile(self, fraction: float) -> float:
        """The wait that ``fraction`` of the requests do not exceed; 0 where so many do not wait at all."""
        rest = 1 - fraction
        return math.log(self.wait_probability / rest) / self.drain if self.wait_probability > rest else 0.0

    def tail(self, x: float) -> float:
        """Probability that wait and service exceed ``x``."""
        if x <= 0:
            return 1.0
        if self.cv < _CONSTANT:
            return 1.0 if x < 1 else self.wait_probability * math.exp(-self.drain * (x - 1))
        if self.cv == 1:
            return float(exponential_tail(x, self.wait_probability, self.drain))
        return self._gamma_tail(x)

    def service_tail(self, x: float) -> float:
        """Probability that the service alone exceeds ``x``: what is left of the tail with servers without end."""
        if self.cv < _CONSTANT:
            return 1.0 if x < 1 else 0.0
        k = 1 / (self.cv * self.cv)
        return math.exp(_log_upper_gamma(k, k * x)) if x > 0 else 1.0

    def _gamma_tail(self, x: float) -> float:
        k = 1 / (self.cv * self.cv)
        tail = self.service_tail(x)
        if self.wait_probability > 0:
            scale = k * math.log(k * x) - math.lgamma(k) - self.drain * x
            tail += self.wait_probability * math.exp(scale + _log_moment(k, (k - self.drain) * x))
        return min(tail, 1.0)

    def percentile(self, fraction: float) -> float:
        """The time that ``fraction`` of the requests do not exceed."""
        rest = 1 - fraction
        if self.cv < _CONSTANT:
            return 1 + self.wait_percentile(fraction)
        target = math.log(rest)

        def excess(x: float) -> float:
            return math.log(max(self.tail(x), _SMALLEST)) - target

        low, high = 0.0, max(1.0, -target)
        above, below = -target, excess(high)
        while below > 0:
            low, above = high, below
            high *= 2
            below = excess(high)
        return _root(excess, low, high, above, below)


def _root(function: Callable[[float], float], low: float, high: float, above: float, below: float) -> float:
    """Where a falling function is zero, by Ridders' form of bisection: the bracket halves at least, usually far more."""
    while high - low > _PRECISION * high:
        middle = (low + high) / 2
        at_middle = function(middle)
        guess = middle + (middle - low) * at_middle / math.sqrt(at_middle * at_middle - above * below)
        at_guess = function(guess)
        for x, value in sorted(((middle, at_middle), (guess, at_guess))):
            if value > 0 and x > low:
                low, above = x, value
            elif value <= 0 and x < high:
                high, below = x, value
        if below == 0:
            return high
    return high


def _log_upper_gamma(k: float, y: float) -> float:
    """ln Q(k, y). In u = ln t the peak of t (1 + t)^(k-1) e^(-y t) lies at y t^2 - (k - y) t - 1 = 0."""
    spare = k - y
    root = math.sqrt(spare * spare + 4 * y)
    peak = (spare + root) / (2 * y) if spare >= 0 else 2 / (root - spare)
    centre = math.log(peak)
    highest = centre + (k - 1) * math.log1p(peak) - y * peak
    width = 1 / math.sqrt(1 + (k - 1) * (peak / (1 + peak)) ** 2)
    total = 0.0
    for x, weight in _UPPER:
        u = centre + width * x
        t = math.exp(u)
        total += weight * math.exp(u + (k - 1) * math.log1p(t) - y * t - highest)
    return k * math.log(y) - y - math.lgamma(k) + highest + math.log(width * total)


def _log_moment(k: float, y: float) -> float:
    """ln Int_0^1 v^(k-1) e^(-y v) dv for y of either sign.

    With v = 1 / (1 + e^-u) and w = 1 - v the integrand is v^k w e^(-y v); its peak solves k w - v = y v w, and there
    -h'' = k w^2 + v^2.
    """
    root = math.sqrt((y - k + 1) ** 2 + 4 * k)
    if y >= 0:
        v = 2 * k / (1 + k + y + root)
        w = 1 - v
    else:
        w = 2 / (1 + k - y + root)
        v = 1 - w
    centre = math.log(v / w)
    highest = k * math.log(v) + math.log(w) - y * v
    width = 1 / math.sqrt(k * w * w + v * v)
    total = 0.0
    for x, weight in _LOWER:
        u = centre + width * x
        # ln v and ln w without loss at either end.
        log_v = -math.log1p(math.exp(-u)) if u > 0 else u - math.log1p(math.exp(u))
        log_w = log_v - u
        total += weight * math.exp(k * log_v + log_w - y * math.exp(log_v) - highest)
    return highest + math.log(width * total)


def replicas_for_percentile(
    arrival_rate: float, service_time: float, cv: float, limit: float, fraction: float, slots: int = 1
) -> int | None:
    """The fewest replicas of ``slots`` servers with which ``fraction`` of the requests stay within ``limit``.

    None where the service alone takes longer than that, so that no number of replicas is enough.
    """
    rest, x, offered = 1 - fraction, limit / service_time, load(arrival_rate, service_time, 1)

    def enough(replicas: int) -> bool:
        servers = replicas * slots
        return offered < servers and Sojourn(servers, offered / servers, cv).tail(x) <= rest

    if Sojourn(slots, 0.5, cv).service_tail(x) > rest:
        return None
    return fewest(enough, int(offered // slots) + 1)
