"""What a training run at a point loses to failures and costs in days, dollars, energy, carbon and water, on arrays.

The case is that of walls 15, 17, 18 and 19 on arrays (:mod:`mlsysim.cases.run`), and the defaults are those of every face
(:mod:`mlsysim.cases.run_inputs`): the inputs are read once, and a tile of points costs a few dozen array operations. Useful tokens are tokens per second times goodput.
A run has a given number of tokens (and lasts until they are through) or a given number of days. Energy follows from
the point's MFU while it runs. What is not known stays away: a chip without a price has no ``usd_per_run``, a fleet without
a place no ``kgco2e_per_run``; ``unknown`` says why. Where the points are in many places, what some places do not publish
is not a number there, and such points are not ranked by it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from mlsysim.cases.assumptions import Assumptions
from mlsysim.cases.checkpoint import Checkpoint
from mlsysim.cases.footprint import Site
from mlsysim.cases.goodput import Saving, cluster_mtbf, goodput_of
from mlsysim.cases.money import Prices
from mlsysim.cases.run import Run, per_million, run_time, run_work, spent_by
from mlsysim.cases.run_inputs import (
    LOCAL,
    REGION,
    device_draw,
    electricity_price,
    fallback_price,
    host_draw,
    maintenance_rate,
    node_parts,
    node_price,
    site_of,
)
from mlsysim.errors import InputError
from mlsysim.search.sites import sites_of
from mlsysim.search.training_inputs import COST_INPUTS, DURATION_DAYS, RELIABILITY_INPUTS, Names
from mlsysim.units.registry import conversion_factor
from mlsysim.walls.fleet.fragility import ReliabilityModel
from mlsysim.walls.inputs import read_input
from mlsysim.walls.operations.capital import EconomicsModel

_HOUR = conversion_factor("h", "s")
_DAY = conversion_factor("day", "h")
_IN_HOURS, _IN_DAYS = 1 / _HOUR, 1 / _DAY
_NAMED = 3
_AMOUNTS = ("usd", "kwh", "kgco2e", "litres")


class RunCosts:
    """Goodput, days, dollars, energy, carbon and water of a fleet's runs."""

    def __init__(self, fleet: Any, fixed: Mapping[str, Any], saved: Checkpoint) -> None:
        """``saved`` is the checkpoint that the fleet's accelerators write."""
        self.fleet, self.saved = fleet, saved
        self.length = [name for name in ("duration_days", "tokens") if fixed.get(name) is not None]
        self._one_length(())
        self.inputs: dict[str, Any] = {"duration_days": DURATION_DAYS, "kwh_price": LOCAL, "checkpoint_time_s": None}
        for resolver, names in ((ReliabilityModel, RELIABILITY_INPUTS), (EconomicsModel, COST_INPUTS)):
            for name in names:
                spec = resolver.inputs[name]
                if fixed.get(name) is not None:
                    self.inputs[name] = read_input(resolver.__name__, name, spec, fixed[name])
                elif name not in self.inputs:
                    self.inputs[name] = spec.default
        self.inputs["maintenance_fraction"] = maintenance_rate(self.inputs["maintenance_fraction"], Assumptions())
        given = {name: self.inputs[f"{name}_mtbf"] for name in ("accelerator", "nic", "psu")}
        self.node_mtbf = node_parts(fleet.node, Assumptions(), **given)[0].mtbf
        self._sites: dict[tuple[str | int, ...], Site] = {}
        self._grids: list[tuple[Any, ...]] = []
        self.unknown: dict[str, str] = {}

    def _one_length(self, columns: Iterable[str]) -> None:
        if len({*self.length, *(name for name in columns if name in ("duration_days", "tokens"))}) > 1:
            raise InputError("a run has a number of tokens or of duration_days, not both.", field="tokens")

    def goodput(self, columns: Mapping[str, Any], nodes: Any) -> tuple[Any, Any]:
        """Share of the time that is useful, and whether any is."""
        x = self.inputs | dict(columns)
        stated = self.fleet.mtbf_hours
        mtbf = float(stated) if stated is not None else cluster_mtbf(self.node_mtbf, nodes)
        write = x["checkpoint_time_s"]
        if write is None:
            write = replace(self.saved, writers=nodes * self.fleet.node.accelerators_per_node).write
        saving = Saving(write, x["avg_recovery_time_s"], x["checkpoint_interval"])
        found = goodput_of(mtbf, saving)
        return found.ratio, found.lasting

    def of_run(
        self, columns: Mapping[str, Any], nodes: Any, mfu: Any, tokens_per_second: Any, goodput: Any
    ) -> dict[str, Any]:
        """Days, dollars, kWh, kgCO2e and litres of a run, and of a million of its useful tokens."""
        self._one_length(columns)
        x = self.inputs | dict(columns)
        node, self.unknown = self.fleet.node, {}
        used = x["utilization"]
        with np.errstate(divide="ignore"):
            # Without goodput a run never ends, or has no tokens, each of which costs infinitely much.
            if x["tokens"] is None:
                hours = x["duration_days"] * _DAY
                work = run_work(hours * _HOUR, tokens_per_second, goodput, used)
            else:
                work = x["tokens"]
                hours = run_time(work, tokens_per_second, goodput, used) * _IN_HOURS
            found = {"run_days": hours * _IN_DAYS}
            if node.accelerator.tdp is None and x["average_power"] is None:
                self._leave_out(_AMOUNTS, f"{node.accelerator.name} has no published TDP; give average_power.")
                return found
            site = self._site(x["datacenter"])
            run = Run(
                hours,
                nodes * node.accelerators_per_node,
                device_draw(node.accelerator, mfu * used, x["average_power"], Assumptions()),
                nodes,
                host_draw(node, x["include_host"]),
            )
            spent = spent_by(run, site, self._prices(x, nodes, site))
            taken, bill = spent.footprint, spent.bill
            amounts = (None if bill is None else bill.total, taken.energy, taken.carbon, taken.water)
            for name, amount in zip(_AMOUNTS, amounts, strict=True):
                if amount is not None:
                    found[f"{name}_per_run"] = amount
                    found[f"{name}_per_mtoken"] = per_million(amount, work)
        if site.carbon is None:
            self._leave_out(("kgco2e", "litres"), "no grid, datacenter or region is given.")
        elif site.wue is None:
            self._leave_out(("litres",), f"no WUE is published for {site.name}.")
        return found

    def _prices(self, x: Mapping[str, Any], nodes: Any, site: Site) -> Prices | None:
        """What is paid; None, with the reason kept, where a price is not known."""
        try:
            each = node_price(self.fleet.node, x["unit_cost"], x["node_cost"], Assumptions())
            tariff = _tariff(x["kwh_price"], site)
        except InputError as error:
            # A price that nobody knows is no mistake of the caller; anything else is.
            field = getattr(error, "field", None)
            unpriced = field == "kwh_price" and site.price is None and _word(x["kwh_price"]) == REGION
            if field != "unit_cost" and not unpriced:
                raise
            self._leave_out(("usd",), str(error))
            return None
        purchase = each * nodes * x["infrastructure_multiplier"]
        return Prices(purchase, x["amortization_years"], x["maintenance_fraction"], tariff)

    def _leave_out(self, names: tuple[str, ...], reason: str) -> None:
        self.unknown |= {f"{name}_per_{what}": reason for name in names for what in ("run", "mtoken")}

    def _site(self, place: Any) -> Site:
        """The place, or the places of all points as one site of arrays; what some of them lack is not a number there."""
        if not isinstance(place, Names):
            return site_of(place, self.fleet, Assumptions())
        key = tuple(name if isinstance(name, str) else id(name) for name in place.values)
        if key not in self._sites:
            # Grids of one's own are told apart by identity and kept alive beside their key.
            self._grids.append(place.values)
            sites = sites_of(place.values, self.fleet)
            names = ", ".join(site.name for site in sites[:_NAMED]) + (" ..." if len(sites) > _NAMED else "")
            columns = ([getattr(site, field) for site in sites] for field in ("pue", "wue", "carbon", "price"))
            self._sites[key] = Site(names, *map(_numbers, columns))
        table = self._sites[key]
        wue, carbon, price = (
            None if values is None else values.take(place.places) for values in (table.wue, table.carbon, table.price)
        )
        return Site(table.name, table.pue.take(place.places), wue, carbon, price)


def _word(value: Any) -> str:
    return value.strip().lower() if isinstance(value, str) else ""


def _tariff(value: Any, site: Site) -> Any:
    """USD/kWh at each point: a column, the price of each point's grid, or one for all."""
    if isinstance(value, np.ndarray):
        return value
    if isinstance(site.price, np.ndarray) and _word(value) in (REGION, LOCAL):
        known = site.price
        return known if _word(value) == REGION else np.where(np.isnan(known), fallback_price(), known)
    return electricity_price("EconomicsModel", value, site, Assumptions())


def _numbers(values: list[Any]) -> Any:
    """An array, with what is unknown not a number; None where nothing is known."""
    if all(value is None for value in values):
        return None
    return np.array(values, dtype=np.float64)
