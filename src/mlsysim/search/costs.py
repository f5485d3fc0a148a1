"""What points cost in dollars, energy, carbon and water, on arrays: training runs, and a million tokens of a deployment.

The case is that of walls 15, 17, 18 and 19 (:mod:`mlsysim.cases.run`), and the defaults are those of every face
(:mod:`mlsysim.cases.run_inputs`): the inputs are read once, and a tile of points costs a few dozen array operations.

A training run has a given number of tokens (and lasts until they are through) or a given number of days; useful tokens are tokens
per second times goodput, and energy follows from what the point's accelerators do, how long they wait, and what stands around them. A deployment is counted by the hour, in use the
fraction ``utilization`` of the time:

    owning     share of the purchase (linear over its life), upkeep and electricity of every hour, over the tokens of those in use
    renting    the rent of the hours in use, over their tokens; electricity is in the rent

Its tokens are those of answers; a pool of readers and a pool of writers have chips, prices and power of their own.

What is not known stays away or is not a number: a chip without a price has no dollars, a fleet without a place no carbon. Where
the points are in many places, what some places do not publish is not a number there, and such points are not ranked by it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from mlsysim.cases import run_inputs
from mlsysim.cases.assumptions import Assumptions
from mlsysim.cases.checkpoint import Checkpoint
from mlsysim.cases.failures import Length, Said, kept_of
from mlsysim.cases.footprint import Site
from mlsysim.cases.money import Prices, rental_cost
from mlsysim.cases.rent import rent_of
from mlsysim.cases.run import Around, Run, Spent, per_million, run_power, run_time, run_work, spent_by
from mlsysim.cases.run_inputs import LOCAL, REGION, maintenance_rate, site_of
from mlsysim.errors import InputError, UnknownNameError
from mlsysim.infra.registry import Grids
from mlsysim.search.training_inputs import COST_INPUTS, FAILURE_INPUTS, INPUTS, RELIABILITY_INPUTS, Names
from mlsysim.timing.power import waiting_power_of
from mlsysim.units.records import dataclass
from mlsysim.units.registry import conversion_factor, to_si
from mlsysim.walls.inputs import read_input
from mlsysim.walls.operations.capital import EconomicsModel

_HOUR = conversion_factor("h", "s")
_DAY = conversion_factor("day", "h")
_IN_HOURS, _IN_DAYS = 1 / _HOUR, 1 / _DAY
_NAMED = 3
_AMOUNTS = ("usd", "kwh", "kgco2e", "litres")
_PUBLISHED = ("pue", "wue", "carbon", "price")


# --- places -----------------------------------------------------------------------------------------------------------


def sites_of(places: Sequence[Any], fleet: Any = None, around: bool = False) -> Site:
    """Places as one site of arrays: grids by name, grids and datacenters themselves, the fleet's own place where there is None.

    What some of them do not publish is not a number there, and None where none does.
    """
    sites = [site_of(Grids.get(p) if isinstance(p, str) else p, fleet, Assumptions(), around) for p in places]
    names = ", ".join(site.name for site in sites[:_NAMED]) + (" ..." if len(sites) > _NAMED else "")
    rows = {name: [getattr(site, name) for site in sites] for name in _PUBLISHED}
    known: dict[str, Any] = {n: np.array(r, dtype=np.float64) for n, r in rows.items() if any(v is not None for v in r)}
    return Site(names, **{"pue": None} | known)


def site_at(table: Site, places: Any) -> Site:
    """The site of each point, by its place in the table."""
    known = {name: row for name in _PUBLISHED if (row := getattr(table, name)) is not None}
    return Site(table.name, **{"pue": None} | {name: row[places] for name, row in known.items()})


def tariff(value: Any, site: Site) -> Any:
    """USD/kWh at each point: as given, or by the words for the price of its grid."""
    words = np.asarray(value.strip().lower() if isinstance(value, str) else value)
    if site.price is not None and words.dtype.kind == "U" and np.isin(words, (REGION, LOCAL)).all():
        return np.where((words == LOCAL) & np.isnan(site.price), run_inputs.fallback_price(), site.price)
    if isinstance(value, np.ndarray):
        return value
    return run_inputs.electricity_price("EconomicsModel", value, site, Assumptions())


def _amounts(spent: Spent, rent: Any = None) -> dict[str, Any]:
    """Dollars, kWh, kgCO2e and litres by the names of outputs."""
    taken, dollars = spent.footprint, rent if spent.bill is None else spent.bill.total
    return dict(zip(_AMOUNTS, (dollars, taken.energy, taken.carbon, taken.water), strict=True))


def per_mtoken(spent: Spent, work: Any, rent: Any = None) -> dict[str, Any]:
    """Outputs for a million tokens; not a number where unknown."""
    amounts = {name: np.nan if v is None else per_million(v, work) for name, v in _amounts(spent, rent).items()}
    return {f"{name}_per_mtoken": amount for name, amount in amounts.items()}


# --- training runs ----------------------------------------------------------------------------------------------------


class RunCosts:
    """Goodput, days, dollars, energy, carbon and water of a fleet's runs; ``unknown`` says why an output stays away."""

    def __init__(self, fleet: Any, fixed: Mapping[str, Any], saved: Checkpoint) -> None:
        """``saved`` is the checkpoint that the fleet's accelerators write."""
        self.fleet, self.saved = fleet, saved
        self.length = [name for name in ("duration_days", "tokens") if fixed.get(name) is not None]
        self._one_length(())
        self.inputs = {name: INPUTS[name].default for name in (*RELIABILITY_INPUTS, *FAILURE_INPUTS, *COST_INPUTS)}
        specs = INPUTS | {"average_power": EconomicsModel.inputs["average_power"]}
        for name in self.inputs:
            if fixed.get(name) is not None:
                self.inputs[name] = read_input("a training space", name, specs[name], fixed[name])
        x, chip = self.inputs, fleet.node.accelerator
        x["maintenance_fraction"] = maintenance_rate(x["maintenance_fraction"], Assumptions())
        self.waiting = None if chip.tdp is None else waiting_power_of(chip) / 1000
        self.around = run_inputs.around_of(fleet, x["include_host"], x["cooling"], Assumptions())
        given = {name: x[f"{name}_mtbf"] for name in ("accelerator", "nic", "psu")}
        own = None
        if any(value is not None for value in given.values()):
            # Rates of components take the place of the all-cause rate, which contains them.
            parts, _ = run_inputs.node_parts(fleet.node, Assumptions(), **given)
            own = parts.mtbf * fleet.node.accelerators_per_node
        spares = None if x["spares"] is None else int(x["spares"])
        mtbf = fleet.mtbf_hours if x["mtbf"] is None else x["mtbf"]
        self.said = Said(mtbf, own, spares=spares, repair=x["repair_time"])
        self._sites: dict[tuple[str | int, ...], tuple[Any, Site]] = {}
        self.unknown: dict[str, str] = {}

    def _one_length(self, columns: Iterable[str]) -> None:
        if len({*self.length, *(name for name in columns if name in ("duration_days", "tokens"))}) > 1:
            raise InputError("a run has a number of tokens or of duration_days, not both.", field="tokens")

    def of_run(
        self,
        columns: Mapping[str, Any],
        nodes: Any,
        watts: Any,
        tokens_per_second: Any,
        replicas: Any = 1,
        step: Any = 0.0,
    ) -> tuple[Any, dict[str, Any]]:
        """Whether any of the time is useful; the share that is, days, dollars, kWh, kgCO2e and litres of a run whose accelerators draw so
        many watts, and of a million of its useful tokens."""
        self._one_length(columns)
        x = self.inputs | dict(columns)
        node, self.unknown = self.fleet.node, {}
        count = nodes * node.accelerators_per_node
        saved = replace(self.saved, writers=count / replicas if self.saved.mode == "synchronous" else count)
        names = {"write": "checkpoint_time_s", "restart": "avg_recovery_time_s", "interval": "checkpoint_interval"}
        said = self.said._replace(**{name: x[key] for name, key in names.items()})
        used = x["utilization"]
        with np.errstate(divide="ignore"):
            if x["tokens"] is None:
                length = Length(lasts=x["duration_days"] * _DAY * _HOUR)
            else:
                length = Length(x["tokens"] / (tokens_per_second * used))
            useful = kept_of(node.accelerator, count, saved, said, step, length)
            goodput = useful.ratio
            # Without goodput a run never ends, or has no tokens, each of which costs infinitely much.
            if x["tokens"] is None:
                hours = x["duration_days"] * _DAY
                work = run_work(hours * _HOUR, tokens_per_second, goodput, used)
            else:
                work = x["tokens"]
                hours = run_time(work, tokens_per_second, goodput, used) * _IN_HOURS
            found = {"goodput_ratio": goodput, "run_days": hours * _IN_DAYS}
            if watts is None and x["average_power"] is None:
                self._leave_out(_AMOUNTS, f"{node.accelerator.name} has no published TDP; give average_power.")
                return useful.lasting, found
            site = self._site(x["datacenter"])
            power, owned = x["average_power"], nodes
            idle = power
            if power is None:
                power = watts / 1000
                idle = np.minimum(self.waiting or 0.0, power)
                power = run_power(power, idle, useful.computing * used)
            if said.spares and idle is not None:
                owned = nodes + said.spares
                power = (power * nodes + idle * said.spares) / owned
            run = Run(hours, owned * node.accelerators_per_node, power, owned, self.around)
            rent = prices = None
            if x["cloud_price"] is None:
                prices = self._prices(x, run, site)
            else:
                each = rents_of(x["cloud_price"], node.accelerator)
                rent = rental_cost(each, run.devices, hours, used)
            for name, amount in _amounts(spent_by(run, site, prices), rent).items():
                if amount is not None:
                    found[f"{name}_per_run"] = amount
                    found[f"{name}_per_mtoken"] = per_million(amount, work)
        if site.carbon is None:
            self._leave_out(("kgco2e", "litres"), "no grid, datacenter or region is given.")
        elif site.wue is None:
            self._leave_out(("litres",), f"no WUE is published for {site.name}.")
        return useful.lasting, found

    def _prices(self, x: Mapping[str, Any], run: Run, site: Site) -> Prices | None:
        """What is paid; None, with the reason kept, where a price is not known."""
        node, scope = self.fleet.node, x["cost_scope"]
        try:
            each = run_inputs.node_price(node, x["unit_cost"], x["node_cost"], Assumptions())
            paid = tariff(x["kwh_price"], site)
        except InputError as error:
            # A price that nobody knows is no mistake of the caller; anything else is.
            field = getattr(error, "field", None)
            word = x["kwh_price"].strip().lower() if isinstance(x["kwh_price"], str) else ""
            unpriced = field == "kwh_price" and site.price is None and word == REGION
            if field != "unit_cost" and not unpriced:
                raise
            self._leave_out(("usd",), str(error))
            return None
        own = (scope, x["infrastructure_multiplier"], run_inputs.hosted_share(node), run.nodes)
        beyond = run_inputs.beyond_accelerators(*own, run_inputs.ports_bought(self.fleet), x["node_cost"] is not None)
        purchase = each * run.nodes * beyond.multiplier
        chip = node.accelerator
        room = run.capacity(run.device_power if chip.tdp is None else to_si(chip.tdp, "kW"))
        lives = (x["amortization_years"], x["maintenance_fraction"])
        return Prices(purchase, *lives, paid, *run_inputs.building(scope, room))

    def _leave_out(self, names: tuple[str, ...], reason: str) -> None:
        self.unknown |= {f"{name}_per_{what}": reason for name in names for what in ("run", "mtoken")}

    def _site(self, place: Any) -> Site:
        """The place, or the places of all points."""
        if not isinstance(place, Names):
            return site_of(place, self.fleet, Assumptions(), self.inputs["include_host"])
        # Grids of one's own are told apart by identity and kept alive beside their key.
        key = tuple(name if isinstance(name, str) else id(name) for name in place.values)
        if key not in self._sites:
            self._sites[key] = place.values, sites_of(place.values, self.fleet, self.inputs["include_host"])
        return site_at(self._sites[key][1], place.places)


# --- deployments ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CostedPool:
    """Devices of one chip: how many, dollars of each (not a number where unknown), the share of the peak in use, the rent by
    words, the kW of each by the share of the time in use, what stands around those of a node, how much of a host goes with them, and the
    most that one draws in kW."""

    devices: Any
    unit_cost: Any
    mfu: Any
    rents: Mapping[str, Any]
    power: Callable[[Any], Any]
    around: Around
    per_node: Any
    hosted: Any
    tdp: Any


def rents_of(given: Any, chip: Any) -> Any:
    """USD/h of a chip at each point: numbers as they are, words by what is listed for it."""
    if isinstance(given, np.ndarray):
        if given.dtype.kind != "U":
            return given
        words, which = np.unique(given, return_inverse=True)
        return np.array([listed_rent(str(word), chip.metadata.key) for word in words])[which]
    return rent_of(given, chip.metadata.key, chip.name).price


@cache
def listed_rent(words: str, chip: str | None) -> float:
    """USD/h that is listed for a chip; not a number where none is."""
    try:
        return rent_of(words, chip).price
    except UnknownNameError:
        raise
    except InputError:
        return float("nan")


def served_tokens(x: Mapping[str, Any], site: Site, pools: list[CostedPool], tokens_per_second: Any) -> dict[str, Any]:
    """Outputs for a million tokens of answers; ``x`` has the inputs that decide what they cost."""
    power: Any = 0.0
    rent: Any = 0.0
    purchase: Any = 0.0
    room: Any = 0.0
    # Pools of one node have its links.
    joined = (len(pools) > 1) & (sum(pool.devices / pool.per_node for pool in pools) > 1)
    for pool, own in zip(pools, (x["unit_cost"], x["decode_unit_cost"]), strict=False):
        each = pool.power(x["utilization"]) if x["average_power"] is None else x["average_power"] / 1000
        around = replace(pool.around, joined=joined)
        power = power + Run(1.0, pool.devices, each, pool.devices / pool.per_node, around).power
        if x["cloud_price"] is not None:
            rent = rent + rental_cost(_rent(x["cloud_price"], pool), pool.devices, 1.0, x["utilization"])
        price = pool.unit_cost if own is None else own
        nodes, scope = pool.devices / pool.per_node, x["cost_scope"]
        given = x["infrastructure_multiplier"]
        beyond = run_inputs.beyond_accelerators(scope, given, pool.hosted, nodes, joined=around.joined)
        purchase = purchase + price * pool.devices * beyond.multiplier
        room = room + Run(1.0, pool.devices, 0.0, nodes, around).capacity(pool.tdp)
    prices = None
    if x["cloud_price"] is None:
        upkeep = maintenance_rate(x["maintenance_fraction"], Assumptions())
        # Where no place has a price, there is none of the region.
        priced = replace(site, price=np.nan) if site.price is None else site
        paid = tariff(x["kwh_price"], priced)
        prices = Prices(purchase, x["amortization_years"], upkeep, paid, *run_inputs.building(x["cost_scope"], room))
    work = run_work(_HOUR, tokens_per_second, 1.0, x["utilization"])
    return per_mtoken(spent_by(Run(1.0, 1, power), site, prices), work, rent)


def _rent(given: Any, pool: CostedPool) -> Any:
    """USD/h of one device: a number, or what is listed for its chip."""
    if isinstance(given, str):
        return pool.rents[given]
    if np.asarray(given).dtype.kind != "U":
        return given
    return np.select([given == name for name in pool.rents], list(pool.rents.values()), np.nan)
