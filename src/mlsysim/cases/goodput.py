"""What failures leave of a run: how often a fleet fails, how often to save, and the share of the time that is useful.

    1 / M = nodes x sum over components of (count / MTBF)                       failure rates add
    P(at least one failure in T) = 1 - exp(-T / M)
    tau = sqrt(2 delta M)                                                       (Young 1974)
    tau' = tau (1 + 1/3 (delta / 2M)^1/2 + 1/9 (delta / 2M)) - delta            (Daly 2006, for delta < 2M; else M)
    waste = delta / tau + tau / (2 M) + R / M

A fleet of MTBF M saves every tau (of computing) in delta seconds and needs R to be back after a failure. The three terms are
checkpoint writes, the work done again (half an interval on average) and restarts. At Young's interval the first two are equal,
sqrt(delta / 2M) each, and that is how they are computed there: the limits of no failures (M infinite) and of free checkpoints
(delta = 0) are then numbers. First order overstates the waste: by 0.03 points where it is 3 %, by 3 points where it is 30 %, and above 100 % (no progress) the exact
form still has some. Resolvers print it, as the documents do; plans, sweeps and scenarios use the exact form.

Exact, for exponential failures that may also strike while writing and restarting (Daly 2006, eq. 13), as shares of the time:

    useful     G = e^(-R/M) (tau / M) / (e^((tau + delta) / M) - 1)
    writes     G delta / tau
    restarts   1 - e^(-R/M)            a stretch is tried e^x times, x = (tau + delta) / M, and a restart takes M (e^(R/M) - 1) then
    rework     the rest

dG / dtau = 0 is 1 - y = e^(-y - delta/M) with y = tau / M, so that tau = M (1 + W(-e^(-1 - delta/M))) with Lambert's W and
G = e^(-R/M) (1 - y) there. A checkpoint that is written in the background for L seconds is no use until it is written: a failure
costs L more, as if restarts took it, and the next may not begin before (tau >= L). Checkpoints fall between steps (tau >= T).

A run that owns spare nodes waits while more are in repair (:mod:`mlsysim.cases.spares`): all shares above are of the time in which it does not.
Left out: running on with fewer nodes; whole steps between checkpoints, which move the interval by half a step at most and, being at its optimum, cost half the square of
that share of writes and rework.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mlsysim.units.kernel import kernel
from mlsysim.units.ops import exp, expm1, maximum, minimum, power, some, sqrt, where
from mlsysim.units.records import dataclass
from mlsysim.units.registry import conversion_factor

_HOUR = conversion_factor("h", "s")
_ROUNDS = 2
_LEAST = 1e-300
_SHORTEST = 1e-6
"""Seconds between two checkpoints that cost nothing."""
PATIENCE = 10.0
"""Times its work after which a run is said to have no end, predicted or played."""


@kernel("""
    accelerator_mtbf: h [1e3, 1e6], accelerators whole [1, 72], nic_mtbf: h [1e3, 1e6], nics whole [1, 16],
    psu_mtbf: h [1e3, 1e6], psus whole [1, 8] -> mtbf: h
""")
def node_mtbf(accelerator_mtbf: Any, accelerators: Any, nic_mtbf: Any, nics: Any, psu_mtbf: Any, psus: Any) -> Any:
    """Mean time between failures of a node whose components fail independently: their rates add."""
    return 1 / (accelerators / accelerator_mtbf + nics / nic_mtbf + psus / psu_mtbf)


@kernel("mtbf: h [1e3, 1e6], count whole [1, 1e5] -> fleet: h")
def cluster_mtbf(mtbf: Any, count: Any) -> Any:
    """Mean time between failures of ``count`` equal parts."""
    return mtbf / count


@kernel("duration: h [1, 1e4], mtbf: h [1, 1e5] -> failures")
def expected_failures(duration: Any, mtbf: Any) -> Any:
    """Failures to expect in a time."""
    return duration / mtbf


@kernel("duration: h [1, 1e3], mtbf: h [10, 1e5] -> probability")
def failure_probability(duration: Any, mtbf: Any) -> Any:
    """Probability of at least one failure in a time."""
    return -expm1(-(duration / mtbf))


@kernel("write: s [1, 1e3], mtbf: s [1e4, 1e7] -> interval: s")
def young_interval(write: Any, mtbf: Any) -> Any:
    """Time of computing between two checkpoints that wastes least, at first order."""
    return sqrt(2 * write * mtbf)


@kernel("write: s [1, 1e3], mtbf: s [1e4, 1e7] -> interval: s")
def daly_interval(write: Any, mtbf: Any) -> Any:
    """The same to higher order: the minimum of the exact form to better than a per cent."""
    ratio = write / (2 * mtbf)
    root = sqrt(ratio)
    expanded = sqrt(2 * write * mtbf) * (1 + root / 3 + ratio / 9) - write
    return where(write < 2 * mtbf, expanded, mtbf)


@kernel("""
    write: s [1, 1e3], interval: s [100, 1e5], mtbf: s [1e4, 1e7], recovery: s [1, 1e4] -> writes, rework, restarts
""")
def checkpoint_waste(write: Any, interval: Any, mtbf: Any, recovery: Any) -> Any:
    """Shares of the time that go to writing, to work done again, and to restarts, at first order."""
    return write / interval, interval / (2 * mtbf), recovery / mtbf


@kernel("write: s [1, 1e3], mtbf: s [1e4, 1e7], recovery: s [1, 1e4] -> writes, rework, restarts")
def optimal_waste(write: Any, mtbf: Any, recovery: Any) -> Any:
    """The same at Young's interval, where writes and work done again take equal shares."""
    share = sqrt(write / (2 * mtbf))
    return share, share, recovery / mtbf


@kernel("write: s [1, 1e3], interval: s [100, 1e4], mtbf: s [1e4, 1e7], recovery: s [1, 1e3] -> goodput")
def exact_goodput(write: Any, interval: Any, mtbf: Any, recovery: Any) -> Any:
    """Useful over wall-clock time for exponential failures that may also strike while writing and restarting.

    The exponents stop at 600, where the goodput is below 1e-250 and a float would overflow.
    """
    exposed = minimum((interval + write) / mtbf, 600.0)
    return interval / (mtbf * exp(minimum(recovery / mtbf, 600.0)) * expm1(exposed))


@kernel("write: s [1, 1e3], mtbf: s [1e4, 1e7] -> interval: s")
def exact_interval(write: Any, mtbf: Any) -> Any:
    """Time of computing between two checkpoints at which the exact goodput is largest: M (1 + W(-exp(-1 - delta / M))).

    With y = 1 - e^(-s) the condition is s + e^(-s) - 1 = delta / M: convex, so that Newton's steps from the series converge anywhere.
    """
    ratio = write / mtbf
    s = sqrt(2 * ratio) + ratio / 3
    for _ in range(_ROUNDS):
        left = expm1(-s)
        s = s - (s + left - ratio) / maximum(-left, _LEAST)
    return -expm1(-s) * mtbf


@kernel("""
    write: s [1, 1e3], interval: s [1e3, 1e4], mtbf: s [1e4, 1e5], recovery: s [1, 1e3],
    lag: s [1, 1e3] -> writes, rework, restarts
""")
def exact_waste(write: Any, interval: Any, mtbf: Any, recovery: Any, lag: Any) -> Any:
    """Shares of the time that go to writing, to work done again, and to restarts; the rest is useful."""
    useful = exact_goodput(write, interval, mtbf, recovery + lag)
    writes, restarts = useful * (write / interval), -expm1(-(recovery / mtbf))
    return writes, 1 - useful - writes - restarts, restarts


@kernel("peak: flop/s [1e12, 1e16], efficiency [0.1, 1], scaling [0.1, 1], goodput [0.1, 1] -> rate: flop/s")
def effective_rate(peak: Any, efficiency: Any, scaling: Any, goodput: Any) -> Any:
    """Useful arithmetic of a fleet. ``efficiency`` is that of the kernels: a published MFU contains ``scaling`` already."""
    return peak * efficiency * scaling * goodput


@kernel("availability [0.5, 0.999], replicas whole [1, 10] -> availability")
def stacked_availability(availability: Any, replicas: Any) -> Any:
    """Probability that at least one of several independent replicas is up."""
    return 1 - power(1 - availability, replicas)


@dataclass(frozen=True, slots=True)
class NodeParts:
    """What of a node fails: how many of each, and the hours between two failures of one."""

    accelerators: Any
    accelerator_mtbf: Any
    nics: Any
    nic_mtbf: Any
    psus: Any
    psu_mtbf: Any

    @property
    def mtbf(self) -> Any:
        """Hours between two failures of the node."""
        return node_mtbf(self.accelerator_mtbf, self.accelerators, self.nic_mtbf, self.nics, self.psu_mtbf, self.psus)


@dataclass(frozen=True, slots=True)
class Saving:
    """Seconds that a checkpoint stops the run, to be back after a failure, between checkpoints (None: the best), until a checkpoint that is
    written in the background can be used, and of a step, between two of which it is taken."""

    write: Any
    recovery: Any
    interval: Any = None
    lag: Any = 0.0
    step: Any = 0.0


@dataclass(frozen=True, slots=True)
class Goodput:
    """Failures of a fleet and what they cost: MTBF in hours, intervals in seconds, shares of the time."""

    mtbf: Any
    best_interval: Any
    interval: Any
    writes: Any
    rework: Any
    restarts: Any
    waiting: Any = 0.0
    saving: Saving = Saving(0.0, 0.0)

    @property
    def waste(self) -> Any:
        """Share of the time that goes to writes, to work done again, to restarts and to waiting for repairs."""
        return self.writes + self.rework + self.restarts + self.waiting

    @property
    def ratio(self) -> Any:
        """Share of the time that is useful; none where the waste is all of it."""
        return maximum(0.0, 1 - self.waste)

    @property
    def computing(self) -> Any:
        """Share of the time in which accelerators compute, also what is done again; for the rest they wait."""
        return maximum(0.0, 1 - self.writes - self.restarts - self.waiting)

    def waiting_for(self, present: Any) -> Goodput:
        """The same of a run that goes on for the share of the time in which all nodes are ``present``."""
        writes, rework, restarts = (share * present for share in (self.writes, self.rework, self.restarts))
        return replace(self, writes=writes, rework=rework, restarts=restarts, waiting=1 - present)

    @property
    def lasting(self) -> Any:
        """Whether the run ends, within as many times its work as anybody waits."""
        return self.ratio * PATIENCE > 1


def goodput_of(mtbf: Any, saving: Saving) -> Goodput:
    """What failures leave to a fleet of this MTBF (hours)."""
    seconds = mtbf * _HOUR
    best = young_interval(saving.write, seconds)
    if saving.interval is None:
        return Goodput(mtbf, best, best, *optimal_waste(saving.write, seconds, saving.recovery))
    waste = checkpoint_waste(saving.write, saving.interval, seconds, saving.recovery)
    return Goodput(mtbf, best, saving.interval, *waste)


def exact_goodput_of(mtbf: Any, saving: Saving) -> Goodput:
    """The same by the exact form."""
    seconds = mtbf * _HOUR
    least = maximum(saving.lag, _SHORTEST)
    best = maximum(exact_interval(saving.write, seconds), least)
    interval = best if saving.interval is None else maximum(saving.interval, least)
    if some(saving.step > interval):
        # Seldom, so that an array of steps is not one of intervals.
        interval = maximum(interval, saving.step)
    writes, rework, restarts = exact_waste(saving.write, interval, seconds, saving.recovery, saving.lag)
    return Goodput(mtbf, best, interval, writes, rework, restarts, 0.0, saving)
