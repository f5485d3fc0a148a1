"""One run: so many devices that draw a power for some hours, at a place, at some prices.

    power      N (f p + w) + K h                        N accelerators of p with fans and losses f and network w, K hosts of h
    energy     power x hours, times PUE for the building         -> carbon, water     (:mod:`mlsysim.cases.footprint`)
    bill       the purchase's share, electricity, upkeep                              (:mod:`mlsysim.cases.money`)
    goodput    what failures and checkpoints leave of the hours                       (:mod:`mlsysim.cases.goodput`)
    time       of a given amount of work: work / (rate x goodput x utilisation)
    p          of the time the accelerators compute a share s, at the power of a step; while the run stands (checkpoints that stop it,
               restarts, nodes that lack) they wait: p = s p_step + (1 - s) p_wait

Written once, on numbers or arrays: walls 15, 17, 18 and 19, sweeps, plans and scenarios ask it. Training for a month, an hour of a
deployment and one pass of a chip are runs of different lengths. What a place or a price list does not say is None and stays so.
:mod:`mlsysim.cases.run_inputs` says where the inputs come from and which defaults hold.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mlsysim.cases.footprint import Footprint, Site, computing_energy, fleet_power, footprint
from mlsysim.cases.money import Bill, Prices, owning, token_cost
from mlsysim.units.kernel import kernel
from mlsysim.units.ops import maximum, minimum
from mlsysim.units.records import dataclass
from mlsysim.units.registry import conversion_factor

_MILLION = conversion_factor("token", "Mtoken")


@dataclass(frozen=True, slots=True)
class Around:
    """What stands around accelerators: kW of a host, the factor of fans and losses, kW of network for each accelerator, which of a node
    alone is none unless it is joined to others."""

    host: Any = 0.0
    factor: Any = 1.0
    network: Any = 0.0
    cooling: str = ""
    joined: Any = False


ALONE = Around()
"""Nothing: accelerators alone."""


@dataclass(frozen=True, slots=True)
class Run:
    """Hours, accelerators and kW of each, nodes and what stands around the accelerators."""

    hours: Any
    devices: Any
    device_power: Any
    nodes: Any = 1
    around: Around = ALONE

    @property
    def network(self) -> Any:
        """kW of network for each accelerator; a node alone has none."""
        return self.around.network * maximum(minimum(self.nodes - 1, 1), self.around.joined * 1)

    @property
    def power(self) -> Any:
        """kW of all."""
        a = self.around
        return fleet_power(self.device_power, self.devices, a.host, self.nodes, a.factor, self.network)

    def capacity(self, most: Any) -> Any:
        """kW of all where each accelerator draws the most that it may: what a building is made for."""
        return replace(self, device_power=most).power


@dataclass(frozen=True, slots=True)
class Spent:
    """What a run takes. ``bill`` is None where a price is not known."""

    power: Any
    footprint: Footprint
    bill: Bill | None
    run: Run
    site: Site

    @property
    def parts(self) -> dict[str, Any]:
        """kWh by scope, which add up to what the building takes."""
        run, whole = self.run, self.footprint.computing
        chips = computing_energy(run.device_power * run.devices, run.hours)
        network = computing_energy(run.network * run.devices, run.hours)
        facility = whole * (self.site.pue - 1)
        return {"accelerators": chips, "nodes": whole - chips - network, "network": network, "facility": facility}


def spent_by(run: Run, site: Site, prices: Prices | None) -> Spent:
    """Energy, carbon, water and money of a run."""
    power = run.power
    taken = footprint(computing_energy(power, run.hours), site)
    return Spent(power, taken, None if prices is None else owning(prices, taken.energy, run.hours), run, site)


@kernel("work: token [1e6, 1e14], rate: token/s [1, 1e7], goodput [0.01, 1], utilisation [0.01, 1] -> time: s")
def run_time(work: Any, rate: Any, goodput: Any, utilisation: Any) -> Any:
    """Time of an amount of work (tokens, samples), at a rate that holds while the run makes progress and is in use."""
    return work / (rate * goodput * utilisation)


@kernel("duration: s [1, 1e8], rate: token/s [1, 1e7], goodput [0.01, 1], utilisation [0.01, 1] -> work: token")
def run_work(duration: Any, rate: Any, goodput: Any, utilisation: Any) -> Any:
    """Work that is through in a time."""
    return duration * rate * goodput * utilisation


@kernel("computing: W [100, 1000], waiting: W [10, 100], share [0.1, 0.9] -> mean: W")
def run_power(computing: Any, waiting: Any, share: Any) -> Any:
    """Mean power of an accelerator that computes a share of the time and waits for the rest."""
    return waiting + (computing - waiting) * share


def per_million(amount: Any, work: Any) -> Any:
    """An amount for each million of what was made; None where it is not known."""
    return None if amount is None else token_cost(amount, work * _MILLION)
