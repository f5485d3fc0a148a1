"""What a training run at a point loses to failures and costs in days, dollars, energy, carbon and water, on arrays.

The kernels are those of walls 15, 17 and 18, and so are the defaults: the inputs are read once, as their resolvers read
them, and a tile of points costs a few dozen array operations. Useful tokens are tokens per second times goodput.
A run has a given number of tokens (and lasts until they are through) or a given number of days. Energy follows from
the point's MFU while it runs. What is not known stays away: a chip without a price has no ``usd_per_run``, a fleet without
a place no ``kgco2e_per_run``; ``unknown`` says why. Where the points are in many places, what some places do not publish
is not a number there, and such points are not ranked by it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np

from mlsysim.errors import InputError
from mlsysim.search.sites import sites_of
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
    water_volume,
)
from mlsysim.zoo.constants import constant

__all__ = ["RunCosts"]

_HOUR = conversion_factor("h", "s")
_MILLION = conversion_factor("token", "Mtoken")
_NAMED = 3


class RunCosts:
    """Goodput, days, dollars, energy, carbon and water of a fleet's runs."""

    def __init__(self, fleet: Any, fixed: Mapping[str, Any]) -> None:
        self.fleet = fleet
        self.length = [name for name in ("duration_days", "tokens") if fixed.get(name) is not None]
        self._one_length(())
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
        self._sites: dict[tuple[str | int, ...], Site] = {}
        self._grids: list[tuple[Any, ...]] = []
        self.unknown: dict[str, str] = {}

    def _one_length(self, columns: Iterable[str]) -> None:
        if len({*self.length, *(name for name in columns if name in ("duration_days", "tokens"))}) > 1:
            raise InputError("a run has a number of tokens or of duration_days, not both.", field="tokens")

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

    def of_run(
        self, columns: Mapping[str, Any], nodes: Any, mfu: Any, tokens_per_second: Any, goodput: Any
    ) -> dict[str, Any]:
        """Days, dollars, kWh, kgCO2e and litres of a run, and of a million of its useful tokens."""
        self._one_length(columns)
        x = SimpleNamespace(**(self.inputs | dict(columns)))
        chip = self.fleet.node.accelerator
        self.unknown = {}
        useful = tokens_per_second * goodput * _HOUR * HOURS_PER_DAY * x.utilization
        with np.errstate(divide="ignore"):
            # Without goodput a run never ends, or has no tokens, each of which costs infinitely much.
            if x.tokens is None:
                days, million = x.duration_days, useful * x.duration_days * _MILLION
            else:
                days, million = x.tokens / useful, x.tokens * _MILLION
            found = {"run_days": days}
            if chip.tdp is None and x.average_power is None:
                self._leave_out(
                    ("usd", "kwh", "kgco2e", "litres"), f"{chip.name} has no published TDP; give average_power."
                )
                return found
            fleet = self._counted(nodes)
            site = self._site(x.datacenter, fleet)
            _device, power = fleet_draw(fleet, mfu * x.utilization, x.include_host, x.average_power, {})
            computing = computing_energy(power, days * HOURS_PER_DAY)
            energy = facility_energy(computing, site.pue)
            amounts = {
                "usd": self._dollars(x, fleet, site, energy, days / DAYS_PER_YEAR),
                "kwh": energy,
                "kgco2e": None if site.carbon is None else carbon_mass(energy, site.carbon),
                "litres": None if site.wue is None else water_volume(computing, site.wue),
            }
            for name, amount in amounts.items():
                if amount is not None:
                    found[f"{name}_per_run"] = amount
                    found[f"{name}_per_mtoken"] = token_cost(amount, million)
        if site.carbon is None:
            self._leave_out(("kgco2e", "litres"), "no grid, datacenter or region is given.")
        elif site.wue is None:
            self._leave_out(("litres",), f"no WUE is published for {site.name}.")
        return found

    def _dollars(self, x: Any, fleet: Any, site: Site, energy: Any, years: Any) -> Any:
        """Share of the purchase, electricity and upkeep; None, with the reason kept, where a price is not known."""
        try:
            purchase = purchase_price(fleet, x.unit_cost, x.node_cost, {}) * x.infrastructure_multiplier
            tariff = _tariff(x.kwh_price, site)
        except InputError as error:
            # A price that nobody knows is no mistake of the caller; anything else is.
            field = getattr(error, "field", None)
            unpriced = field == "kwh_price" and site.price is None and _by_region(x.kwh_price)
            if field != "unit_cost" and not unpriced:
                raise
            self._leave_out(("usd",), str(error))
            return None
        capex = amortised_share(purchase, years, x.amortization_years)
        return capex + energy_cost(energy, tariff) + maintenance_cost(purchase, x.maintenance_fraction, years)

    def _leave_out(self, names: tuple[str, ...], reason: str) -> None:
        self.unknown |= {f"{name}_per_{what}": reason for name in names for what in ("run", "mtoken")}

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
        """The place, or the places of all points as one site of arrays; what some of them lack is not a number there."""
        if not isinstance(place, Names):
            return site_of(place, fleet, {})
        key = tuple(name if isinstance(name, str) else id(name) for name in place.values)
        if key not in self._sites:
            # Grids of one's own are told apart by identity and kept alive beside their key.
            self._grids.append(place.values)
            sites = sites_of(place.values, fleet)
            names = ", ".join(site.name for site in sites[:_NAMED]) + (" ..." if len(sites) > _NAMED else "")
            columns = ([getattr(site, field) for site in sites] for field in ("pue", "wue", "carbon", "price"))
            self._sites[key] = Site(names, *map(_numbers, columns))
        table = self._sites[key]
        wue, carbon, price = (
            None if values is None else _at(values, place.places) for values in (table.wue, table.carbon, table.price)
        )
        return Site(table.name, _at(table.pue, place.places), wue, carbon, price)


def _at(table: Any, places: np.ndarray) -> Any:
    return table.take(places)


def _by_region(value: Any) -> bool:
    return isinstance(value, str) and value.strip().lower() == "region"


def _tariff(value: Any, site: Site) -> Any:
    """USD/kWh at each point: a column, the price of each point's grid, or one for all."""
    if isinstance(value, np.ndarray):
        return value
    if isinstance(site.price, np.ndarray) and _by_region(value):
        return site.price
    return electricity_price("EconomicsModel", value, site, {})


def _numbers(values: list[Any]) -> Any:
    """An array, with what is unknown not a number; None where nothing is known."""
    if all(value is None for value in values):
        return None
    return np.array(values, dtype=np.float64)
