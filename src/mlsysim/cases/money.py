"""What a run costs: its share of a purchase, electricity and upkeep, or the rent.

    TCO = CapEx + energy + maintenance                                          (Barroso, Hölzle, Ranganathan 2018)
    CapEx = purchase x min(t, L) / L + building x min(t, B) / B     linear over the lifetimes L and B, for the time t of the run
    energy = E x price;  maintenance = purchase x rate x t
    break-even utilisation: fixed / (rent - variable)

Renting pays for hours in use alone, owning for all of them, so ownership wins above the break-even utilisation. ``fixed`` is
what is paid at no use (share, maintenance, idle energy), ``variable`` the further energy at full use, ``rent`` the rent at full
use. Left out: the cost of money (10 % a year on what is not yet written off adds 15 % to a share over three years), staff, resale,
taxes, discounts.
"""

from __future__ import annotations

from typing import Any

from mlsysim.units.kernel import kernel
from mlsysim.units.ops import minimum
from mlsysim.units.records import dataclass
from mlsysim.units.registry import conversion_factor

_YEARS_IN_AN_HOUR = conversion_factor("h", "year")


@kernel("purchase: USD [1, 1e10], duration: year [0.01, 10], lifetime: year [1, 10] -> share: USD")
def amortised_share(purchase: Any, duration: Any, lifetime: Any) -> Any:
    """Part of a purchase that a run answers for when it is written off in equal parts; never more than the price."""
    return purchase * minimum(duration, lifetime) / lifetime


@kernel("purchase: USD [1, 1e10], rate: 1/year [0.01, 0.5], duration: year [0.01, 10] -> cost: USD")
def maintenance_cost(purchase: Any, rate: Any, duration: Any) -> Any:
    """Upkeep in proportion to the price and the time."""
    return purchase * rate * duration


@kernel("energy: kWh [1, 1e9], price: USD/kWh [0.01, 1] -> cost: USD")
def energy_cost(energy: Any, price: Any) -> Any:
    """Price of an energy."""
    return energy * price


@kernel("""
    unit_cost: USD, power: kW [1e-3, 20], devices whole, duration: h [1, 1e5], price: USD/kWh [0.01, 1] -> cost: USD
""")
def ownership_cost(unit_cost: Any, power: Any, devices: Any, duration: Any, price: Any) -> Any:
    """Purchase of devices and the electricity that they take in a time."""
    return devices * (unit_cost + power * duration * price)


@kernel("price: USD/h [0.1, 100], devices whole, duration: h [1, 1e5], utilisation [0.01, 1] -> cost: USD")
def rental_cost(price: Any, devices: Any, duration: Any, utilisation: Any) -> Any:
    """Rent of devices for the part of a time in which they are in use."""
    return price * devices * duration * utilisation


@kernel("total: USD [1, 1e10], devices whole, duration: h [1, 1e5], utilisation [0.01, 1] -> cost: USD/h")
def accelerator_hour_cost(total: Any, devices: Any, duration: Any, utilisation: Any) -> Any:
    """Cost of one accelerator for one hour in use."""
    return total / (devices * duration * utilisation)


@kernel("hourly: USD/h [0.1, 100], peak: PFLOPs/s [0.01, 20], mfu [0.01, 1] -> cost: USD/(PFLOPs*h/s)")
def useful_work_cost(hourly: Any, peak: Any, mfu: Any) -> Any:
    """Cost of an hour of useful arithmetic at one PFLOP/s."""
    return hourly / (peak * mfu)


@kernel("total: USD [1, 1e10], tokens: Mtoken [1, 1e8] -> cost: USD/Mtoken")
def token_cost(total: Any, tokens: Any) -> Any:
    """Cost of a million tokens."""
    return total / tokens


@kernel("fixed: USD [1, 1e10], variable: USD [1, 1e4], rent: USD [1e5, 1e10] -> utilisation")
def break_even_utilisation(fixed: Any, variable: Any, rent: Any) -> Any:
    """Utilisation u at which owning, fixed + variable u, costs as much as renting, rent u."""
    return fixed / (rent - variable)


@kernel("capacity: kW [1, 1e6], price: USD/kW [1e3, 1e5] -> building: USD")
def building_price(capacity: Any, price: Any) -> Any:
    """Price of a building with power and cooling for so much computing."""
    return capacity * price


@kernel("node: USD [1e3, 1e6], nodes whole [1, 1e5], multiplier [1, 3] -> purchase: USD")
def purchase_price(node: Any, nodes: Any, multiplier: Any) -> Any:
    """Price of nodes with the infrastructure around them."""
    return node * nodes * multiplier


@dataclass(frozen=True, slots=True)
class Prices:
    """What owning is paid by: the purchase of servers and network in USD, its lifetime in years, upkeep a year over it, USD for a kWh;
    the building in USD, where it counts, and its lifetime."""

    purchase: Any
    lifetime: Any
    maintenance: Any
    electricity: Any
    building: Any = 0.0
    building_life: Any = 1.0


@dataclass(frozen=True, slots=True)
class Bill:
    """What a run costs to own, item by item in USD."""

    hardware: Any
    energy: Any
    maintenance: Any
    building: Any = 0.0

    @property
    def capital(self) -> Any:
        """What was bought, servers and building."""
        return self.hardware + self.building

    @property
    def operation(self) -> Any:
        """Electricity and upkeep."""
        return self.energy + self.maintenance

    @property
    def total(self) -> Any:
        """All items."""
        return self.capital + self.energy + self.maintenance


def owning(prices: Prices, energy: Any, hours: Any) -> Bill:
    """The bill of a run of some hours that takes an energy (kWh, of the whole building)."""
    years = hours * _YEARS_IN_AN_HOUR
    return Bill(
        amortised_share(prices.purchase, years, prices.lifetime),
        energy_cost(energy, prices.electricity),
        maintenance_cost(prices.purchase, prices.maintenance, years),
        amortised_share(prices.building, years, prices.building_life),
    )


@dataclass(frozen=True, slots=True)
class Rent:
    """Renting against owning, in USD: rent of the hours in use and of all of them, owning unused, and what full use adds."""

    cost: Any
    rent: Any
    fixed: Any
    variable: Any

    @classmethod
    def of(cls, price: Any, devices: Any, hours: Any, utilisation: Any, quiet: Bill, busy: Bill) -> Rent:
        """The rent of devices against the bills of owning them unused and in full use."""
        used, whole = (rental_cost(price, devices, hours, share) for share in (utilisation, 1.0))
        return cls(used, whole, quiet.total, busy.energy - quiet.energy)

    @property
    def break_even(self) -> Any:
        """The utilisation above which owning is cheaper; None where it never is."""
        return break_even_utilisation(self.fixed, self.variable, self.rent) if self.rent > self.variable else None
