"""What is paid per unit: electricity, accelerators, rent. Given, or from the zoo; a price that nobody knows is an error."""

from __future__ import annotations

from typing import Any

from mlsysim.errors import InputError
from mlsysim.infra.registry import Prices
from mlsysim.infra.types import CloudPrice
from mlsysim.systems.types import Fleet
from mlsysim.units.fields import quantity_from
from mlsysim.units.registry import to_si
from mlsysim.walls.operations.sustainability import Site
from mlsysim.zoo.constants import constant

__all__ = ["cloud_price", "electricity_price", "purchase_price"]


_MOST = 1e9
"""USD for a kWh or an hour beyond which nothing is a price."""


def electricity_price(resolver: str, value: Any, site: Site, assumed: dict[str, str]) -> float:
    """USD/kWh: a number or quantity as given, the grid's for 'region', else the default, which is noted."""
    if value is None:
        entry = constant("electricity_price")
        assumed["kwh_price"] = str(entry.value)
        return to_si(entry.quantity, "USD/kWh")
    if isinstance(value, str) and value.strip().lower() == "region":
        if site.price is None:
            raise InputError(
                f"{resolver}: there is no electricity price for {site.name!r}; pass kwh_price=... in USD/kWh, "
                "or a grid that has one.",
                field="kwh_price",
            )
        assumed["kwh_price"] = f"{site.price:g} USD/kWh, the price of {site.name}"
        return site.price
    if isinstance(value, str) and not any(ch.isdigit() for ch in value):
        raise InputError(
            f"The 'kwh_price' input of {resolver} must be a price such as '0.12 USD/kWh', or 'region', got {value[:40]!r}.",
            field="kwh_price",
        )
    return _rate(resolver, "kwh_price", value, "USD/kWh", "0.12 USD/kWh")


def purchase_price(fleet: Fleet, unit_cost: float | None, node_cost: float | None, assumed: dict[str, str]) -> float:
    """Price of a fleet's accelerators, or of its nodes where ``node_cost`` is given. Unknown is an error."""
    node, chip = fleet.node, fleet.node.accelerator
    if unit_cost is not None and node_cost is not None:
        raise InputError("give the price of an accelerator (unit_cost) or of a node (node_cost), not both.")
    if node_cost is not None:
        return node_cost * fleet.count
    listed = None if node.unit_cost is None else to_si(node.unit_cost, "USD")
    if unit_cost is None:
        if chip.unit_cost is None:
            hint = "" if listed is None else f", or node_cost='{listed:g} USD' for whole nodes as listed"
            raise InputError(
                f"the price of {chip.name} is not known, and unknown is not free; pass unit_cost='... USD'{hint}.",
                field="unit_cost",
            )
        unit_cost = to_si(chip.unit_cost, "USD")
        when = f", {chip.cost_date}" if chip.cost_date else ""
        assumed["unit_cost"] = f"{unit_cost:g} USD ({chip.name}{when})"
    if listed is not None:
        assumed["node_cost"] = (
            f"not used: accelerators alone are priced, though the node is listed at {listed:g} USD; pass node_cost= to use it"
        )
    return unit_cost * fleet.total_accelerators


def _rate(resolver: str, name: str, value: Any, unit: str, example: str) -> float:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        number = float(value)
    else:
        number = to_si(quantity_from(value, unit, example, name), unit)
    if not 0 <= number <= _MOST:
        raise InputError(
            f"The {name!r} input of {resolver} must be a number of at least 0 and at most {_MOST:g} {unit}, got {number:g}.",
            field=name,
        )
    return number


def cloud_price(value: Any, fleet: Fleet, assumed: dict[str, str]) -> float | None:
    """USD/h of one rented accelerator: a number or quantity as given, or that of an entry of Infra.Prices."""
    if value is None:
        return None
    named = isinstance(value, str) and not value.strip()[:1].isdigit()
    if named or isinstance(value, CloudPrice):
        entry = Prices.get(value)
        chip = fleet.node.accelerator
        note = f"{entry.name}, {entry.commitment}, {entry.date}"
        if chip.metadata.key is not None and entry.accelerator != chip.metadata.key:
            note += f"; it rents {entry.accelerator}, the fleet has {chip.metadata.key}"
        assumed["cloud_price"] = note
        return to_si(entry.price_per_accelerator, "USD/h")
    return _rate("EconomicsModel", "cloud_price", value, "USD/h", "4 USD/h")
