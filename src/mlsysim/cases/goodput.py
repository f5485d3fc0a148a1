"""What failures leave of a run: how often a fleet fails, how often to save, and the share of the time that is useful.

    1 / M = nodes x sum over components of (count / MTBF)                       failure rates add
    P(at least one failure in T) = 1 - exp(-T / M)
    tau = sqrt(2 delta M)                                                       (Young 1974)
    tau' = tau (1 + 1/3 (delta / 2M)^1/2 + 1/9 (delta / 2M)) - delta            (Daly 2006, for delta < 2M; else M)
    waste = delta / tau + tau / (2 M) + R / M

A fleet of MTBF M saves every tau (of computing) in delta seconds and needs R to be back after a failure. The three terms are
checkpoint writes, the work done again (half an interval on average) and restarts. At Young's interval the first two are equal,
sqrt(delta / 2M) each, and that is how they are computed there: the limits of no failures (M infinite) and of free checkpoints
(delta = 0) are then numbers. The exact form for exponential failures, also during writes and restarts (Daly 2006, eq. 13), is
tau / (M e^(R/M) (e^((tau+delta)/M) - 1)). First order overstates the waste: by 0.03 points where it is 3 %, by 3 points where it is
30 %, and above 100 % (no progress) the exact form still has some.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mlsysim.units.kernel import kernel
from mlsysim.units.ops import exp, expm1, maximum, minimum, power, sqrt, where
from mlsysim.units.registry import conversion_factor

_HOUR = conversion_factor("h", "s")


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
    """Seconds that a checkpoint stops the run, to be back after a failure, and between checkpoints (None: Young's)."""

    write: Any
    recovery: Any
    interval: Any = None


@dataclass(frozen=True, slots=True)
class Goodput:
    """Failures of a fleet and what they cost: MTBF in hours, intervals in seconds, shares of the time."""

    mtbf: Any
    best_interval: Any
    interval: Any
    writes: Any
    rework: Any
    restarts: Any

    @property
    def waste(self) -> Any:
        """Share of the time that goes to writes, to work done again and to restarts."""
        return self.writes + self.rework + self.restarts

    @property
    def ratio(self) -> Any:
        """Share of the time that is useful; none where the waste is all of it."""
        return maximum(0.0, 1 - self.waste)

    @property
    def lasting(self) -> Any:
        """Whether the run makes progress."""
        return self.waste < 1


def goodput_of(mtbf: Any, saving: Saving) -> Goodput:
    """What failures leave to a fleet of this MTBF (hours)."""
    seconds = mtbf * _HOUR
    best = young_interval(saving.write, seconds)
    if saving.interval is None:
        return Goodput(mtbf, best, best, *optimal_waste(saving.write, seconds, saving.recovery))
    waste = checkpoint_waste(saving.write, saving.interval, seconds, saving.recovery)
    return Goodput(mtbf, best, saving.interval, *waste)
