"""One run: so many devices that draw a power for some hours, at a place, at some prices.

    power      N p + K h                                N accelerators of p, K hosts of h
    energy     power x hours, times PUE for the building         -> carbon, water     (:mod:`mlsysim.cases.footprint`)
    bill       the purchase's share, electricity, upkeep                              (:mod:`mlsysim.cases.money`)
    goodput    what failures and checkpoints leave of the hours                       (:mod:`mlsysim.cases.goodput`)
    time       of a given amount of work: work / (rate x goodput x utilisation)

Written once, on numbers or arrays: walls 15, 17, 18 and 19, sweeps, plans and scenarios ask it. Training for a month, an hour of a
deployment and one pass of a chip are runs of different lengths. What a place or a price list does not say is None and stays so.
:mod:`mlsysim.cases.run_inputs` says where the inputs come from and which defaults hold.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mlsysim.cases.footprint import Footprint, Site, computing_energy, fleet_power, footprint
from mlsysim.cases.money import Bill, Prices, owning, token_cost
from mlsysim.units.kernel import kernel
from mlsysim.units.registry import conversion_factor

_MILLION = conversion_factor("token", "Mtoken")


@dataclass(frozen=True, slots=True)
class Run:
    """Hours, accelerators and kW of each, hosts and kW of each."""

    hours: Any
    devices: Any
    device_power: Any
    nodes: Any = 1
    host_power: Any = 0.0

    @property
    def power(self) -> Any:
        """kW of all."""
        return fleet_power(self.device_power, self.devices, self.host_power, self.nodes)


@dataclass(frozen=True, slots=True)
class Spent:
    """What a run takes. ``bill`` is None where a price is not known."""

    power: Any
    footprint: Footprint
    bill: Bill | None


def spent_by(run: Run, site: Site, prices: Prices | None) -> Spent:
    """Energy, carbon, water and money of a run."""
    power = run.power
    taken = footprint(computing_energy(power, run.hours), site)
    return Spent(power, taken, None if prices is None else owning(prices, taken.energy, run.hours))


@kernel("work: token [1e6, 1e14], rate: token/s [1, 1e7], goodput [0.01, 1], utilisation [0.01, 1] -> time: s")
def run_time(work: Any, rate: Any, goodput: Any, utilisation: Any) -> Any:
    """Time of an amount of work (tokens, samples), at a rate that holds while the run makes progress and is in use."""
    return work / (rate * goodput * utilisation)


@kernel("duration: s [1, 1e8], rate: token/s [1, 1e7], goodput [0.01, 1], utilisation [0.01, 1] -> work: token")
def run_work(duration: Any, rate: Any, goodput: Any, utilisation: Any) -> Any:
    """Work that is through in a time."""
    return duration * rate * goodput * utilisation


def per_million(amount: Any, work: Any) -> Any:
    """An amount for each million of what was made; None where it is not known."""
    return None if amount is None else token_cost(amount, work * _MILLION)
