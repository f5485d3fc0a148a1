"""What a training run at a point loses to failures and costs in dollars, energy and carbon, on arrays.

The kernels are those of walls 15, 17 and 18, and so are the defaults: the inputs are read once, as their resolvers read
them, and a tile of points costs a few dozen array operations. Useful tokens are tokens per second times goodput.
Energy follows from the point's MFU while it runs. What is not known stays away: a chip without a price has no
``usd_per_mtoken``, a fleet without a place no ``kgco2e_per_mtoken``; ``unknown`` says why.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np

from mlsysim.errors import InputError
from mlsysim.infra.registry import Grids
from mlsysim.search.training_inputs import COST_INPUTS, DURATION_DAYS, RELIABILITY_INPUTS, Names
from mlsysim.units.ops import maximum
from mlsysim.units.registry import conversion_factor, to_si
from mlsysim.walls.fleet.fragility import ReliabilityModel, checkpoint_waste, cluster_mtbf, young_interval
from mlsysim.walls.inputs import read_input
from mlsysim.walls.operations.capital import (
    EconomicsModel,
    amortised_share,
    energy_cost,
    maintenance_cost,
    token_cost,
)
from mlsysim.walls.operations.prices import electricity_price, purchase_price
from mlsysim.walls.operations.sustainability import (
    DAYS_PER_YEAR,
    HOURS_PER_DAY,
    Site,
    carbon_mass,
    computing_energy,
    facility_energy,
    fleet_draw,
    site_of,
)
from mlsysim.zoo.constants import constant

__all__ = ["RunCosts"]

_HOUR = conversion_factor("h", "s")
_MILLION = conversion_factor("token", "Mtoken")


class RunCosts:
    """Goodput, dollars, energy and carbon of a fleet's runs."""

    def __init__(self, fleet: Any, fixed: Mapping[str, Any]) -> None:
        self.fleet = fleet
        reliability = {name: fixed[name] for name in RELIABILITY_INPUTS if name in fixed}
        self.node_mtbf = to_si(
            ReliabilityModel().solve(fleet=fleet, job_duration_hours=1.0, **reliability).node_mtbf, "h"
        )
        self.inputs: dict[str, Any] = {"duration_days": DURATION_DAYS}
        for resolver, names in ((ReliabilityModel, RELIABILITY_INPUTS), (EconomicsModel, COST_INPUTS)):
            for name in names:
                spec = resolver.inputs[name]
                if fixed.get(name) is not None:
                    self.inputs[name] = read_input(resolver.__name__, name, spec, fixed[name])
                elif name not in self.inputs:
                    self.inputs[name] = spec.default
        if self.inputs["maintenance_fraction"] is None:
            self.inputs["maintenance_fraction"] = to_si(constant("maintenance_rate").quantity, "1/year")
        self._sites: dict[tuple[str, ...], Site] = {}
        self.unknown: dict[str, str] = {}

    def goodput(self, columns: Mapping[str, Any], nodes: Any) -> tuple[Any, Any]:
        """Share of the time that is useful, and whether any is."""
        x = SimpleNamespace(**(self.inputs | dict(columns)))
        stated = self.fleet.mtbf_hours
        mtbf = float(stated) if stated is not None else cluster_mtbf(self.node_mtbf, nodes)
        seconds = mtbf * _HOUR
        interval = x.checkpoint_interval
        if interval is None:
            interval = young_interval(x.checkpoint_time_s, seconds)
        writes, rework, restarts = checkpoint_waste(x.checkpoint_time_s, interval, seconds, x.avg_recovery_time_s)
        waste = writes + rework + restarts
        return maximum(0.0, 1 - waste), waste < 1

    def per_million(
        self, columns: Mapping[str, Any], nodes: Any, mfu: Any, tokens_per_second: Any, goodput: Any
    ) -> dict[str, Any]:
        """Dollars, kWh and kgCO2e for a million useful tokens."""
        x = SimpleNamespace(**(self.inputs | dict(columns)))
        chip = self.fleet.node.accelerator
        if chip.tdp is None and x.average_power is None:
            reason = f"{chip.name} has no published TDP; give average_power."
            self.unknown = dict.fromkeys(("kwh_per_mtoken", "kgco2e_per_mtoken", "usd_per_mtoken"), reason)
            return {}
        fleet = self._counted(nodes)
        site = self._site(x.datacenter, fleet)
        hours, years = x.duration_days * HOURS_PER_DAY, x.duration_days / DAYS_PER_YEAR
        _device, power = fleet_draw(fleet, mfu * x.utilization, x.include_host, x.average_power, {})
        energy = facility_energy(computing_energy(power, hours), site.pue)
        useful = tokens_per_second * goodput * _HOUR * hours * x.utilization
        with np.errstate(divide="ignore"):
            # Without goodput there are no tokens, and each costs infinitely much.
            found = {"kwh_per_mtoken": token_cost(energy, useful * _MILLION)}
            if site.carbon is None:
                self.unknown["kgco2e_per_mtoken"] = "no grid, datacenter or region is given."
            else:
                found["kgco2e_per_mtoken"] = token_cost(carbon_mass(energy, site.carbon), useful * _MILLION)
            try:
                price = purchase_price(fleet, x.unit_cost, x.node_cost, {})
            except InputError as error:
                if error.field != "unit_cost":
                    raise
                self.unknown["usd_per_mtoken"] = str(error)
                return found
            purchase = price * x.infrastructure_multiplier
            tariff = _tariff(x.kwh_price, site)
            capex = amortised_share(purchase, years, x.amortization_years)
            bill = energy_cost(energy, tariff)
            upkeep = maintenance_cost(purchase, x.maintenance_fraction, years)
            found["usd_per_mtoken"] = token_cost(capex + bill + upkeep, useful * _MILLION)
        return found

    def _counted(self, nodes: Any) -> Any:
        """The fleet with another number of nodes, which may be an array."""
        fleet = self.fleet
        if not isinstance(nodes, np.ndarray) and nodes == fleet.count:
            return fleet
        return SimpleNamespace(
            node=fleet.node,
            count=nodes,
            total_accelerators=nodes * fleet.node.accelerators_per_node,
            datacenter=fleet.datacenter,
            region=fleet.region,
        )

    def _site(self, place: Any, fleet: Any) -> Site:
        """The place, or the places of all points as one site of arrays."""
        if not isinstance(place, Names):
            return site_of(place, fleet, {})
        if place.values not in self._sites:
            sites = [site_of(Grids.get(name), fleet, {}) for name in place.values]
            prices = [site.price for site in sites]
            self._sites[place.values] = Site(
                next((site.name for site in sites if site.price is None), sites[0].name),
                _numbers([site.pue for site in sites]),
                None,
                _numbers([site.carbon for site in sites]),
                None if None in prices else _numbers(prices),
            )
        table, at = self._sites[place.values], place.places
        price = None if table.price is None else _at(table.price, at)
        return Site(table.name, _at(table.pue, at), None, _at(table.carbon, at), price)


def _tariff(value: Any, site: Site) -> Any:
    """USD/kWh at each point: a column, the price of each point's grid, or one for all."""
    if isinstance(value, np.ndarray):
        return value
    if isinstance(site.price, np.ndarray) and isinstance(value, str) and value.strip().lower() == "region":
        return site.price
    return electricity_price("EconomicsModel", value, site, {})


def _numbers(values: list[Any]) -> Any:
    return np.array(values, dtype=np.float64)


def _at(table: Any, places: np.ndarray) -> Any:
    return table.take(places)
