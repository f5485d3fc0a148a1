"""Wall 17, capital: what a run costs to own, and when it would be cheaper to rent.

    TCO = CapEx + energy + maintenance                                          (Barroso, Hölzle, Ranganathan 2018)
    CapEx = purchase x min(t, L) / L        linear over the lifetime L, for the time t of the run
    energy = E_IT x PUE x price;  maintenance = purchase x rate x t
    break-even utilisation: fixed / (rent - variable)

The purchase is accelerators x unit cost x infrastructure multiplier. It is kept beside the run's share: a run of 30 days
answers for 1/36.5 of three years. Past L the hardware is paid for; the share stays at the price, with a warning. Renting
pays for hours in use alone, owning for all of them, so ownership wins above the break-even utilisation. ``fixed`` is what is
paid at no use (share, maintenance, idle energy), ``variable`` the further energy at full use, ``rent`` the rent at full use.

An unknown price of an accelerator is an error, never zero. Energy is that of wall 18, with its defaults. Left out: the cost
of money (10 % a year on what is not yet written off adds 15 % to a share over three years), hosts, network and buildings
unless they are in the multiplier (a node of 350,000 USD with eight GPUs of 30,000 has 1.46), staff, resale, taxes, discounts.
"""

from __future__ import annotations

import warnings
from types import SimpleNamespace
from typing import Annotated, Any, ClassVar

from mlsysim.errors import DataWarning, InputError
from mlsysim.units.kernel import Arg, kernel
from mlsysim.units.ops import minimum
from mlsysim.units.registry import conversion_factor, quantity, to_si
from mlsysim.walls.base import OPERATIONS, Amount, Binding, Equation, Input, Resolver, Result, Wall
from mlsysim.walls.operations.prices import cloud_price, electricity_price, purchase_price
from mlsysim.walls.operations.sustainability import (
    AVERAGE_POWER,
    DAYS_PER_YEAR,
    DURATION_DAYS,
    FLEET_INPUT,
    HOST,
    HOURS_PER_DAY,
    MFU,
    PLACE,
    carbon_mass,
    computing_energy,
    facility_energy,
    fleet_draw,
    site_of,
    water_volume,
)
from mlsysim.zoo.constants import constant

__all__ = [
    "CARDS",
    "EconomicsModel",
    "EconomicsResult",
    "accelerator_hour_cost",
    "amortised_share",
    "break_even_utilisation",
    "energy_cost",
    "maintenance_cost",
    "ownership_cost",
    "rental_cost",
    "token_cost",
    "useful_work_cost",
]

CARDS = (
    Wall(
        17,
        "Capital",
        OPERATIONS,
        "EconomicsModel",
        "total cost of ownership",
        "TCO = CapEx + OpEx",
        "Barroso et al. 2018",
        "What does it cost, and is it cheaper to buy or to rent?",
    ),
)

_USD = Arg("USD", 1.0, 1e10)
_YEARS = Arg("year", 0.01, 10.0)
_DEVICES = Arg("", 1, 1e6, whole=True)
_HOURS = Arg("h", 1.0, 1e5)


@kernel(
    inputs={"purchase": _USD, "duration": _YEARS, "lifetime": Arg("year", 1.0, 10.0)},
    outputs={"share": "USD"},
)
def amortised_share(purchase: Any, duration: Any, lifetime: Any) -> Any:
    """Part of a purchase that a run answers for when it is written off in equal parts; never more than the price."""
    return purchase * minimum(duration, lifetime) / lifetime


@kernel(inputs={"purchase": _USD, "rate": Arg("1/year", 0.01, 0.5), "duration": _YEARS}, outputs={"cost": "USD"})
def maintenance_cost(purchase: Any, rate: Any, duration: Any) -> Any:
    """Upkeep in proportion to the price and the time."""
    return purchase * rate * duration


@kernel(inputs={"energy": Arg("kWh", 1.0, 1e9), "price": Arg("USD/kWh", 0.01, 1.0)}, outputs={"cost": "USD"})
def energy_cost(energy: Any, price: Any) -> Any:
    """Price of an energy."""
    return energy * price


@kernel(
    inputs={
        "unit_cost": Arg("USD", 1.0, 1e6),
        "power": Arg("kW", 1e-3, 20.0),
        "devices": _DEVICES,
        "duration": _HOURS,
        "price": Arg("USD/kWh", 0.01, 1.0),
    },
    outputs={"cost": "USD"},
)
def ownership_cost(unit_cost: Any, power: Any, devices: Any, duration: Any, price: Any) -> Any:
    """Purchase of devices and the electricity that they take in a time."""
    return devices * (unit_cost + power * duration * price)


@kernel(
    inputs={
        "price": Arg("USD/h", 0.1, 100.0),
        "devices": _DEVICES,
        "duration": _HOURS,
        "utilisation": Arg("", 0.01, 1),
    },
    outputs={"cost": "USD"},
)
def rental_cost(price: Any, devices: Any, duration: Any, utilisation: Any) -> Any:
    """Rent of devices for the part of a time in which they are in use."""
    return price * devices * duration * utilisation


@kernel(
    inputs={"total": _USD, "devices": _DEVICES, "duration": _HOURS, "utilisation": Arg("", 0.01, 1)},
    outputs={"cost": "USD/h"},
)
def accelerator_hour_cost(total: Any, devices: Any, duration: Any, utilisation: Any) -> Any:
    """Cost of one accelerator for one hour in use."""
    return total / (devices * duration * utilisation)


@kernel(
    inputs={"hourly": Arg("USD/h", 0.1, 100.0), "peak": Arg("PFLOPs/s", 0.01, 20.0), "mfu": Arg("", 0.01, 1.0)},
    outputs={"cost": "USD/(PFLOPs*h/s)"},
)
def useful_work_cost(hourly: Any, peak: Any, mfu: Any) -> Any:
    """Cost of an hour of useful arithmetic at one PFLOP/s."""
    return hourly / (peak * mfu)


@kernel(inputs={"total": _USD, "tokens": Arg("Mtoken", 1.0, 1e8)}, outputs={"cost": "USD/Mtoken"})
def token_cost(total: Any, tokens: Any) -> Any:
    """Cost of a million tokens."""
    return total / tokens


@kernel(
    inputs={"fixed": _USD, "variable": Arg("USD", 1.0, 1e4), "rent": Arg("USD", 1e5, 1e10)},
    outputs={"utilisation": ""},
)
def break_even_utilisation(fixed: Any, variable: Any, rent: Any) -> Any:
    """Utilisation u at which owning, fixed + variable u, costs as much as renting, rent u."""
    return fixed / (rent - variable)


EnergyKwh = Annotated[Any, Amount("kWh")]


class EconomicsResult(Result):
    """What a run costs. Prices are plain US dollars; what is not known or was not asked is None."""

    capex_usd: float
    purchase_price_usd: float
    opex_energy_usd: float
    opex_maintenance_usd: float
    total_opex_usd: float
    tco_usd: float
    it_energy_kwh: EnergyKwh
    total_energy_kwh: EnergyKwh
    carbon_footprint_kg: float | None
    water_usage_liters: float | None
    pue: float
    region_name: str
    kwh_price_usd: float
    cost_per_accelerator_hour_usd: float
    cost_per_pflop_hour_usd: float | None
    cost_per_million_tokens_usd: float | None
    cloud_price_per_hour_usd: float | None
    cloud_cost_usd: float | None
    break_even_utilization: float | None


def _dollars(meaning: str, example: str) -> Input:
    return Input(meaning, kind="quantity", unit="USD", plain_unit="USD", low=0, default=None, example=example)


class EconomicsModel(Resolver[EconomicsResult]):
    """Cost of a run on a fleet that is owned, and the comparison with renting it."""

    walls = (17,)
    result = EconomicsResult
    inputs: ClassVar[dict[str, Input]] = {
        "fleet": FLEET_INPUT,
        "duration_days": DURATION_DAYS,
        "kwh_price": Input(
            "price of electricity in USD/kWh, or 'region' for the price of the grid",
            kind="object",
            unit="USD/kWh",
            default=None,
            example="0.12 USD/kWh",
        ),
        "datacenter": PLACE,
        "grid": Input("the same as datacenter", kind="grid", default=None, example="Quebec"),
        "mfu": MFU,
        "amortization_years": Input(
            "time over which the purchase is written off",
            kind="quantity",
            unit="year",
            plain_unit="year",
            low=0,
            low_open=True,
            default=to_si(constant("amortization_period").quantity, "year"),
            example="3 year",
        ),
        "infrastructure_multiplier": Input(
            "purchase with servers, network and storage over that of the accelerators alone",
            low=1,
            high=100,
            default=1.0,
        ),
        "unit_cost": _dollars("price of one accelerator; the chip's own where none is given", "30000 USD"),
        "node_cost": _dollars("price of one whole node, instead of its accelerators", "350000 USD"),
        "maintenance_fraction": Input("maintenance in a year over the purchase", low=0, high=1, default=None),
        "utilization": Input(
            "fraction of the time in which the fleet is in use", low=0, low_open=True, high=1, default=1.0
        ),
        "cloud_price": Input(
            "rent of one accelerator in USD/h, or an entry of Infra.Prices",
            kind="object",
            unit="USD/h",
            default=None,
            example="4 USD/h",
        ),
        "tokens": Input("tokens that the run makes or consumes", low=0, low_open=True, default=None),
        "throughput": Input(
            "tokens per second while in use, instead of tokens",
            kind="quantity",
            unit="1/s",
            plain_unit="1/s",
            low=0,
            low_open=True,
            default=None,
            example="10000 1/s",
        ),
        "include_host": HOST,
        "average_power": AVERAGE_POWER,
    }
    equations = (
        Equation(
            "capex_usd",
            "CapEx = purchase min(t, L) / L",
            r"\mathrm{CapEx} = C\,\frac{\min(t, L)}{L}",
            {"purchase": ("purchase", "USD"), "t": ("years", "year"), "L": ("lifetime", "year")},
        ),
        Equation(
            "opex_energy_usd",
            "energy = E price",
            r"\mathrm{OpEx_{energy}} = E \times p_{\mathrm{kWh}}",
            {"E": ("energy", "kWh"), "price": ("price", "USD/kWh")},
        ),
        Equation(
            "opex_maintenance_usd",
            "maintenance = purchase rate t",
            r"\mathrm{OpEx_{maint}} = C\,m\,t",
            {"purchase": ("purchase", "USD"), "rate": ("maintenance", "1/year"), "t": ("years", "year")},
        ),
        Equation(
            "tco_usd",
            "TCO = CapEx + energy + maintenance",
            r"\mathrm{TCO} = \mathrm{CapEx} + \mathrm{OpEx_{energy}} + \mathrm{OpEx_{maint}}",
            {"CapEx": ("capex", "USD"), "energy": ("bill", "USD"), "maintenance": ("upkeep", "USD")},
        ),
        Equation(
            "break_even_utilization",
            "u = fixed / (rent - variable)",
            r"u^{*} = \frac{C_{\mathrm{fixed}}}{C_{\mathrm{rent}} - C_{\mathrm{variable}}}",
            {"fixed": ("fixed", "USD"), "rent": ("rent", "USD"), "variable": ("variable", "USD")},
        ),
    )
    known_fallacies = (
        "The purchase price is the cost of a run: a run answers for its share of the hardware's life.",
        "Electricity decides where to train: it is a few per cent of the cost; idle hardware costs more.",
        "The cheaper accelerator-hour is the cheaper run: compare the cost of useful arithmetic.",
        "A price that is not published is zero.",
    )

    def _solve(self, x: SimpleNamespace, assumed: dict[str, str]) -> EconomicsResult:
        """Cost of a run on a fleet."""
        fleet, chip = x.fleet, x.fleet.node.accelerator
        if x.grid is not None and x.datacenter is not None:
            raise InputError("EconomicsModel takes a grid or a datacenter, not both; they say the same.", field="grid")
        site = site_of(x.datacenter if x.datacenter is not None else x.grid, fleet, assumed)
        price = electricity_price("EconomicsModel", x.kwh_price, site, assumed)
        purchase = purchase_price(fleet, x.unit_cost, x.node_cost, assumed) * x.infrastructure_multiplier
        rate = x.maintenance_fraction
        if rate is None:
            rate = to_si(constant("maintenance_rate").quantity, "1/year")
            assumed["maintenance_fraction"] = f"{rate:g} per year"
        devices = fleet.total_accelerators
        hours, years = x.duration_days * HOURS_PER_DAY, x.duration_days / DAYS_PER_YEAR
        _device, power = fleet_draw(fleet, x.mfu * x.utilization, x.include_host, x.average_power, assumed)
        computing = computing_energy(power, hours)
        energy = facility_energy(computing, site.pue)
        capex = amortised_share(purchase, years, x.amortization_years)
        bill = energy_cost(energy, price)
        upkeep = maintenance_cost(purchase, rate, years)
        total = capex + bill + upkeep
        if years > x.amortization_years:
            warnings.warn(
                f"{x.duration_days:,.0f} days are longer than the {x.amortization_years:g} years of amortization; the share "
                "of the purchase is capped at its price.",
                DataWarning,
                stacklevel=4,
            )
            assumed["capex"] = "capped at the purchase price: the run outlasts the amortization"
        hourly = accelerator_hour_cost(total, devices, hours, x.utilization)
        context = {
            "purchase": purchase,
            "years": years,
            "lifetime": x.amortization_years,
            "maintenance": rate,
            "energy": energy,
            "price": price,
            "capex": capex,
            "bill": bill,
            "upkeep": upkeep,
        }
        rent_price = cloud_price(x.cloud_price, fleet, assumed)
        rent = break_even = None
        if rent_price is not None:
            quiet = fleet_draw(fleet, 0.0, x.include_host, x.average_power, {})[1]
            busy = fleet_draw(fleet, x.mfu, x.include_host, x.average_power, {})[1]
            idle_bill = energy_cost(facility_energy(computing_energy(quiet, hours), site.pue), price)
            variable = energy_cost(facility_energy(computing_energy(busy, hours), site.pue), price) - idle_bill
            fixed = capex + upkeep + idle_bill
            whole = rental_cost(rent_price, devices, hours, 1.0)
            rent = rental_cost(rent_price, devices, hours, x.utilization)
            break_even = break_even_utilisation(fixed, variable, whole) if whole > variable else None
            context |= {"fixed": fixed, "variable": variable, "rent": whole}
        outcome = EconomicsResult(
            assumptions=assumed,
            binding=_binding(capex, bill, upkeep, total, rent, break_even, x.utilization),
            capex_usd=capex,
            purchase_price_usd=purchase,
            opex_energy_usd=bill,
            opex_maintenance_usd=upkeep,
            total_opex_usd=bill + upkeep,
            tco_usd=total,
            it_energy_kwh=quantity(computing, "kWh"),
            total_energy_kwh=quantity(energy, "kWh"),
            carbon_footprint_kg=None if site.carbon is None else carbon_mass(energy, site.carbon),
            water_usage_liters=None if site.wue is None else water_volume(computing, site.wue),
            pue=site.pue,
            region_name=site.name,
            kwh_price_usd=price,
            cost_per_accelerator_hour_usd=hourly,
            cost_per_pflop_hour_usd=(
                useful_work_cost(hourly, to_si(chip.compute.peak_flops, "PFLOPs/s"), x.mfu) if x.mfu > 0 else None
            ),
            cost_per_million_tokens_usd=_per_million(x, total, hours),
            cloud_price_per_hour_usd=rent_price,
            cloud_cost_usd=rent,
            break_even_utilization=break_even,
        )
        outcome._context = context
        outcome._sources = {"hardware": chip.metadata.source_title or "given by the user"}
        return outcome


def _per_million(x: Any, total: float, hours: float) -> float | None:
    if x.tokens is not None and x.throughput is not None:
        raise InputError("EconomicsModel takes tokens or throughput, not both.", field="tokens")
    tokens = x.tokens
    if x.throughput is not None:
        tokens = x.throughput * conversion_factor("h", "s") * hours * x.utilization
    return None if tokens is None else float(token_cost(total, tokens * conversion_factor("token", "Mtoken")))


def _binding(
    capex: float,
    bill: float,
    upkeep: float,
    total: float,
    rent: float | None,
    break_even: float | None,
    utilization: float,
) -> Binding:
    parts = {"the hardware's share": capex, "energy": bill, "maintenance": upkeep}
    (name, largest), (_, second), _ = sorted(parts.items(), key=lambda item: item[1], reverse=True)
    share = largest / total if total > 0 else 0.0
    sentence = f"Wall 17 (Capital): {total:,.0f} USD, of which {name} is {share:.0%}"
    if rent is not None:
        cheaper = "renting" if rent < total else "owning"
        sentence += f"; {cheaper} is cheaper at {utilization:.0%} utilisation, and owning "
        pays = break_even is not None and break_even <= 1
        sentence += f"pays from {break_even:.0%}" if pays else "never pays at this rent"
    return Binding(17, "Capital", largest / second if second > 0 else None, sentence + ".")
