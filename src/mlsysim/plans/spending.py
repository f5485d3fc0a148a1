"""What a fleet takes for some days: money (wall 17), energy, carbon and water (wall 18)."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

from mlsysim.cases.assumptions import INFERRED
from mlsysim.cases.money import rental_cost
from mlsysim.cases.rent import Rent, lowest_rent
from mlsysim.cases.run_inputs import ACCELERATORS, ALL, LOCAL, joined_by_a_network, rent_price
from mlsysim.errors import DataWarning, InputError
from mlsysim.hardware.types import HardwareNode
from mlsysim.physics.power import voltage
from mlsysim.plans.metrics import kinds, value_text
from mlsysim.plans.pieces import Part
from mlsysim.plans.plan import Plan
from mlsysim.plans.resolve import find_region
from mlsysim.plans.sheet import Sheet
from mlsysim.systems.types import Fleet
from mlsysim.timing.power import Activity, ChipPower, power_constants, power_interval
from mlsysim.units.registry import Quantity, quantity, to_si
from mlsysim.units.text import money_text, period_text
from mlsysim.vocabulary import Setting, plain, worded
from mlsysim.walls.operations.capital import EconomicsModel
from mlsysim.walls.operations.sustainability import SustainabilityModel
from mlsysim.zoo.intervals import Factors, independent, to_power
from mlsysim.zoo.provenance import cite

TAKEN = ("tco", "electricity", "rent", "purchase", "power", "energy", "carbon_footprint", "water")
"""Metrics that are fields of the results of both walls, and that add up over fleets."""
_COST_PARTS = {
    "accelerators": "Accelerators",
    "hosts": "Hosts",
    "network": "Network between nodes",
    "building": "Building",
    "opex_maintenance_usd": "Upkeep",
    "opex_energy_usd": "Electricity",
}
_CARBON_PARTS = {"carbon_footprint_kg": "Electricity", "embodied_carbon_kg": "Making of the chips, their share"}


class Share(NamedTuple):
    """A fleet, its utilisation, and the power of one of its accelerators; None where its chip states no TDP."""

    fleet: Fleet
    power: float | None
    mfu: float = 0.0
    there: float = 1.0
    """Share of the time that it is there, and not somebody else's."""


def power_facts(known: ChipPower, activity: Activity, cap: float | None = None) -> dict[str, Any]:
    """What the equation of an accelerator's power shows."""
    held = {"limit": quantity(known.limit, "W")}
    if cap is not None:
        volts = voltage(activity.clock, known.slope, known.least)
        held = {"power_cap": quantity(cap, "W"), "clock": activity.clock, "volts": volts}
    return held | {
        "waiting": quantity(known.waiting(activity.clock), "W"),
        "running": quantity(known.floor_of(activity), "W"),
        "busy": activity.busy,
        "per_operation": quantity(known.per_flop, "J/flop"),
        "operation_rate": quantity(activity.operations, "flop/s"),
        "per_byte": quantity(known.per_byte, "J/byte"),
        "byte_rate": quantity(activity.moved, "byte/s"),
    }


def power_band(sheet: Sheet, kind: str, chip: HardwareNode, watts: float) -> Factors:
    """The interval of the power of an accelerator over it, by what runs, which is said."""
    cap = sheet.plan.hardware.power_cap
    found = power_interval(kind, chip, watts, None if cap is None else to_si(cap, "W"))
    lacks = f"the power of {chip.name} was not measured and is predicted by shares of its TDP"
    runs = found.resting_on(f"measured powers ({kind})", chip=lacks)
    words = f"{runs}; errors of power, of hosts, and of the time or rate are taken as independent"
    sheet.assumed.say("interval_of_energy", found.key, INFERRED, words)
    return found.factors


def _bands(sheet: Sheet, spent: dict[str, float | None], slower: Factors | None, draws: Factors | None) -> Any:
    """The factors of each metric, of which ``draws`` are those of an accelerator's power: what is bought by the hour goes with the time, where the work is given and not the days; energy
    with time and power; owning with time, and its electricity with power."""
    lasts = slower if sheet.plan.workload.tokens is not None or sheet.task == "rl" else None
    draws = draws and independent(draws, power_constants()["node"]["interval"])
    energy = independent(lasts, draws)
    electric = (spent["electricity"] or 0.0) / (spent["tco"] or 1.0)
    bill = to_power(draws, electric)
    rented = paid(sheet.plan, spent["tco"], spent["rent"]) != spent["tco"]
    million = slower if rented else independent(slower, bill)
    by_energy = dict.fromkeys(("electricity", "energy", "carbon_footprint", "water"), energy)
    by_time = {"tco": independent(lasts, bill), "rent": lasts, "usd_per_mtoken": million}
    return {"power": draws, "node_power": draws, **by_time, **by_energy}


def spend(
    sheet: Sheet,
    days: float,
    work: float,
    *shares: Share,
    slower: Factors | None = None,
    draws: Factors | None = None,
    seen: tuple[Any, Any] | None = None,
) -> dict[str, float | None]:
    """What fleets take that work for some days, by metric; None where it is not known of one of them. Of ``work``, tokens or
    samples, a million is priced. The sheet learns what is not known.

    ``slower`` is the interval of the time that the work takes, over it, and ``draws`` that of an accelerator's power. PUE, prices and the
    carbon of a grid are taken as certain. ``seen`` are the region and the price of electricity as the run saw them, by the hour.
    """
    region, price_seen = (find_region(sheet.plan.ops, shares[0].fleet), None) if seen is None else seen
    bills, footprints, each = [], [], []
    rents = _rents(sheet, [share.fleet for share in shares])
    if joined_by_a_network([share.fleet for share in shares]):
        shares = tuple(each._replace(fleet=each.fleet.model_copy(update={"joined": True})) for each in shares)
    for share, rent in zip(shares, rents, strict=True):
        bill, footprint = _solved(sheet, share, region, days, rent, price_seen)
        bills += [bill] if bill is not None else []
        footprints += [footprint] if footprint is not None else []
        each.append(_taken(share.fleet, days * share.there, bill, footprint, rent))
    if len(footprints) < len(shares):
        # What one fleet takes says nothing of all.
        footprints = []
    named = sheet.plan.ops.region
    if (
        named is not None
        and region is not None
        and plain(named) not in map(plain, (region.name, str(region.metadata.key)))
    ):
        sheet.assumed["region"] = f"{named} is on the grid of {region.name}"
    if region is None:
        unknown = "No region is given, so carbon and water are not known; give one, such as "
        sheet.note(worded(unknown, Setting("region", "Quebec"), "."))
    spent = {name: _sum([taken[name] for taken in each]) for name in each[0]}
    bands = _bands(sheet, spent, slower, draws)
    for name, value in spent.items():
        sheet.add(name, value, times(value, bands.get(name)))
    _score(sheet, spent, sum(bill.capex_usd for bill in bills), region)
    _itemise(sheet, bills, spent)
    sheet.shown["carbon_parts"] = _parts(_CARBON_PARTS, footprints, getattr)
    kwh = _parts(_SCOPES, footprints, lambda each, scope: to_si(each.energy_by_scope[scope], "kWh"))
    sheet.shown["energy_parts"] = tuple(part for part in kwh if part.value > 0)
    if footprints:
        # Of the first fleet, without network and facility.
        scopes = [to_si(footprints[0].energy_by_scope[name], "kWh") for name in ("accelerators", "nodes")]
        first, around = shares[0].fleet, footprints[0]._facts.context["around"]
        sheet.facts |= {
            "host_power": quantity(around.host * 1000, "W"),
            "power_factor": around.factor,
            "accelerators_of_a_node": first.node.accelerators_per_node,
        }
        of_node = sum(scopes) * 1000 / (days * shares[0].there * 24 * first.count)
        sheet.add("node_power", of_node, times(of_node, bands["node_power"]))
    price = paid(sheet.plan, spent["tco"], spent["rent"])
    if price is not None and work > 0:
        each_million = price / work * 1e6
        sheet.add("usd_per_mtoken", each_million, times(each_million, bands["usd_per_mtoken"]))
    return spent


def times(value: float | None, factors: Factors | None) -> tuple[float, float] | None:
    """The interval of a value; None where either is not known."""
    return None if not value or factors is None else (value * factors[0], value * factors[1])


def paid(plan: Plan, owning: Any, renting: Any) -> Any:
    """What a plan pays: the rent where it gives one, else the cost of owning."""
    rented = renting is not None and (plan.ops.price is not None or owning is None)
    return renting if rented else owning


def _itemise(sheet: Sheet, bills: list[Any], spent: dict[str, float | None]) -> None:
    """The parts of what is paid, which add up to it, and in words what owning covers."""
    held = [bill.capex_parts_usd | {name: getattr(bill, name) for name in _COST_PARTS if "_" in name} for bill in bills]
    known = held if spent["tco"] is not None else []
    sums = {label: sum(each[name] for each in known) for name, label in _COST_PARTS.items()}
    if known:
        prices = bills[0]._facts.context["prices"]
        building = f", the building over {prices.building_life:g}" if sums["Building"] else ""
        alone = "accelerators only" if sheet.plan.ops.cost_scope == ACCELERATORS else "servers"
        sheet.owned = f"{alone} over {prices.lifetime:g} years{building}"
    if sheet.rented and spent["rent"] is not None:
        sums = {"Rent": spent["rent"]}
    sheet.shown["cost_parts"] = tuple(Part(label=name, value=v, wall=17) for name, v in sums.items() if v > 0)


def _noun(fleets: list[Fleet]) -> str:
    return "GPU" if {fleet.node.accelerator.vendor for fleet in fleets} <= {"NVIDIA", "AMD"} else "chip"


def _rents(sheet: Sheet, fleets: list[Fleet]) -> list[Rent | None]:
    """What an accelerator of each fleet rents for; None where the plan owns them."""
    found = [rent_price(sheet.plan.ops.price, fleet.node.accelerator, sheet.assumed) for fleet in fleets]
    rents = [rent for rent in found if rent is not None]
    if rents:
        counts = [fleet.total_accelerators for fleet in fleets]
        mean = sum(rent.price * count for rent, count in zip(rents, counts, strict=True)) / sum(counts)
        sheet.facts |= {"hourly_price": quantity(mean, "USD/h"), "rented_accelerators": sum(counts)}
        sheet.rented = " and ".join(dict.fromkeys(rent.sentence(_noun(fleets)) for rent in rents))
    for rent in rents:
        if rent.entry is not None:
            sheet.sources[f"price of {rent.entry.name}"] = cite(rent.entry.metadata)
    return found


def _solved(
    sheet: Sheet, share: Share, region: Any, days: float, rent: Rent | None, price_seen: Any = None
) -> tuple[Any, Any]:
    """What both walls say of a fleet; None for one that lacks a figure, which is noted."""
    ops = sheet.plan.ops
    options: dict[str, Any] = {
        "duration_days": days * share.there,
        "mfu": min(max(share.mfu, 0.0), 1.0),
        "include_host": True,
    }
    if sheet.plan.hardware.cooling is not None:
        options["cooling"] = sheet.plan.hardware.cooling
    if share.power is not None:
        options["average_power"] = quantity(share.power, "W")
    prices = {"kwh_price": LOCAL if ops.electricity is None else ops.electricity, "cost_scope": ops.cost_scope or ALL}
    if price_seen is not None:
        prices["kwh_price"] = price_seen
    prices["cloud_price"] = None if rent is None else rent.price
    bill = footprint = None
    try:
        with warnings.catch_warnings(record=True) as noticed:
            warnings.simplefilter("always", DataWarning)
            bill = sheet.keep(EconomicsModel().solve(share.fleet, grid=region, **prices, **options))
        for warning in noticed:
            sheet.note(str(warning.message))
    except InputError as error:
        if error.details.get("field") != "unit_cost":
            sheet.note(_unknown(error))
        elif rent is None:
            listed = lowest_rent(share.fleet.node.accelerator.metadata.key)
            cloud, much = "2.5", ""
            if listed is not None:
                cloud, much = listed[0], f" (${listed[1].price:,.2f} a {_noun([share.fleet])}-hour on demand)"
            asks = worded(_unknown(error)[:-1], "; give what you pay an hour, such as ", Setting("price", cloud))
            sheet.note(worded(asks, f"{much}."))
    try:
        footprint = sheet.keep(SustainabilityModel().solve(share.fleet, datacenter=region, **options))
    except InputError as error:
        sheet.note(_unknown(error))
    return bill, footprint


def _unknown(error: InputError) -> str:
    """A resolver's complaint about a figure that is missing, without the argument of Python that would give it."""
    sentence = str(error.details.get("reason", error.message)).rstrip(".")
    return f"{sentence[:1].upper()}{sentence[1:]}."


def _taken(fleet: Fleet, days: float, bill: Any, footprint: Any, rent: Rent | None) -> dict[str, float | None]:
    """What one fleet takes; its rent also where the cost of owning is not known."""
    taken: dict[str, float | None] = {}
    for kind in (kinds()[name] for name in TAKEN):
        value = getattr(bill if kind.wall == 17 else footprint, kind.field, None)
        taken[kind.name] = to_si(value, kind.unit) if isinstance(value, Quantity) else value
    if bill is None and rent is not None:
        taken["rent"] = float(rental_cost(rent.price, fleet.total_accelerators, days * 24.0, 1.0))
    return taken


def _sum(values: list[Any]) -> Any:
    return None if any(value is None for value in values) else sum(values)


def _score(sheet: Sheet, spent: dict[str, Any], hardware: float, region: Any) -> None:
    if spent["tco"] is not None:
        sheet.score(17, money_text(spent["tco"]), note=f"of which {money_text(hardware)} hardware")
    elif spent["rent"] is not None:
        sheet.score(17, f"{money_text(spent['rent'])} of rent")
    if spent["carbon_footprint"] is not None:
        sheet.score(18, sheet.text("carbon_footprint"), note=region.name if region else "")
    elif spent["energy"] is not None:
        sheet.score(18, sheet.text("energy"))


def cost_sentence(sheet: Sheet, days: float, what: str) -> list[str]:
    """What is paid for so many days, and by which price or for which parts."""
    held, period = sheet.metrics, period_text(days)
    if sheet.rented and "rent" in held:
        beside = f"; to own the same would cost {sheet.text('tco')} ({sheet.owned})" if "tco" in held else ""
        return [f"{what} costs {sheet.text('rent')} to rent for {period}, at {sheet.rented}{beside}."]
    if "tco" in held:
        parts = ", ".join(
            f"{part.label.lower()} {value_text('tco', quantity(part.value, 'USD'))}"
            for part in sheet.shown["cost_parts"]
        )
        return [f"{what} costs {sheet.text('tco')} to own for {period} ({sheet.owned}: {parts})."]
    return []


def energy_sentence(sheet: Sheet) -> list[str]:
    """Where the energy goes, from the chips to the building."""
    parts = sheet.shown.get("energy_parts", ())
    whole = sum(part.value for part in parts)
    shares = [f"{part.label.lower().replace('pue', 'PUE')} {part.value / whole:.0%}" for part in parts]
    return [f"Where the energy goes: {'; '.join(shares)}."] if shares else []


_SCOPES = {
    "accelerators": "Accelerators",
    "nodes": "Hosts, fans and conversion",
    "network": "Network between nodes",
    "facility": "Facility (PUE)",
}


def _parts(named: dict[str, str], results: list[Any], read: Callable[[Any, str], Any]) -> tuple[Part, ...]:
    """Parts of all fleets; nothing where one is not known."""
    sums = {label: _sum([read(each, name) for each in results]) for name, label in named.items()}
    if not results or None in sums.values():
        return ()
    return tuple(Part(label=label, value=value, wall=18) for label, value in sums.items())
