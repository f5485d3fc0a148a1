"""Wall 17, capital: what a run costs to own, and when it would be cheaper to rent.

    TCO = CapEx + energy + maintenance                                          (Barroso, Hölzle, Ranganathan 2018)
    CapEx = purchase x min(t, L) / L + building x min(t, B) / B     linear over the lifetimes L and B, for the time t of the run
    energy = E_IT x PUE x price;  maintenance = purchase x rate x t
    break-even utilisation: fixed / (rent - variable)

The purchase is accelerators x unit cost x infrastructure multiplier. It is kept beside the run's share: a run of 30 days
answers for 1/36.5 of three years. ``cost_scope`` "all", which plans and sweeps have, counts hosts and network by their usual share of
such clusters, and the building by the watts that it is made for; the resolver alone has "accelerators", as the documents do. Past L the hardware is paid for; the share stays at the price, with a warning. Renting
pays for hours in use alone, owning for all of them, so ownership wins above the break-even utilisation. ``fixed`` is what is
paid at no use (share, maintenance, idle energy), ``variable`` the further energy at full use, ``rent`` the rent at full use.

An unknown price of an accelerator is an error, never zero. Energy is that of wall 18, with its defaults. Left out: the cost
of money (10 % a year on what is not yet written off adds 15 % to a share over three years), storage, staff, resale, taxes, discounts.
"""

from __future__ import annotations

import warnings
from typing import Annotated, Any

from mlsysim.cases import run_inputs
from mlsysim.cases.assumptions import INFERRED
from mlsysim.cases.money import Bill, Prices, Rent, accelerator_hour_cost, purchase_price, useful_work_cost
from mlsysim.cases.run import Run, Spent, per_million, run_work, spent_by
from mlsysim.errors import DataWarning, InputError
from mlsysim.units.registry import conversion_factor, to_si
from mlsysim.walls.base import Assumptions, Binding, Inputs, Resolver, declared, wall_says, written
from mlsysim.walls.operations.sustainability import EnergyKwh
from mlsysim.walls.result import Result

CARDS = """
17 Capital: total cost of ownership
TCO = CapEx + OpEx (Barroso et al. 2018)
What does it cost, and is it cheaper to buy or to rent?
"""

_HOURS_PER_DAY = conversion_factor("day", "h")
_DAYS_PER_YEAR = conversion_factor("year", "day")
_HOUR = conversion_factor("h", "s")


class EconomicsResult(Result):
    """What a run costs. Prices are plain US dollars; what is not known or was not asked is None."""

    capex_usd: Annotated[float, "spent.bill.capital"]
    capex_parts_usd: dict[str, float]
    purchase_price_usd: Annotated[float, "prices.purchase"]
    building_price_usd: Annotated[float, "prices.building"]
    opex_energy_usd: Annotated[float, "spent.bill.energy"]
    opex_maintenance_usd: Annotated[float, "spent.bill.maintenance"]
    total_opex_usd: Annotated[float, "spent.bill.operation"]
    tco_usd: Annotated[float, "spent.bill.total"]
    it_energy_kwh: Annotated[EnergyKwh, "spent.footprint.computing"]
    total_energy_kwh: Annotated[EnergyKwh, "spent.footprint.energy"]
    carbon_footprint_kg: Annotated[float | None, "spent.footprint.carbon"]
    water_usage_liters: Annotated[float | None, "spent.footprint.water"]
    pue: float
    region_name: Annotated[str, "site.name"]
    kwh_price_usd: Annotated[float, "prices.electricity"]
    cost_per_accelerator_hour_usd: float
    cost_per_pflop_hour_usd: float | None
    cost_per_million_tokens_usd: float | None
    cloud_price_per_hour_usd: float | None
    cloud_cost_usd: Annotated[float | None, "rent.cost"]
    break_even_utilization: Annotated[float | None, "rent.break_even"]


class EconomicsModel(Resolver[EconomicsResult]):
    """Cost of a run on a fleet that is owned, and the comparison with renting it."""

    walls = (17,)
    inputs = declared("""
        fleet, duration_days
        kwh_price? | object USD/kWh | price of electricity in USD/kWh; 'region' for the price of the grid, which must have one, \
            'local' for it or else a default | 0.12 USD/kWh
        datacenter
        grid? | grid | the same as datacenter | Quebec
        mfu
        amortization_years = constant amortization_period | (0, inf) year, plain | time over which the purchase is written off | 3 year
        cost_scope = accelerators | one of all, accelerators | what is bought: accelerators, or with hosts, network and building
        infrastructure_multiplier? | [1, 100] | purchase with hosts and network over that of the accelerators; by cost_scope | 1.5
        unit_cost? | [0, inf) USD, plain | price of one accelerator; the chip's own where none is given | 30000 USD
        node_cost? | [0, inf) USD, plain | price of one whole node, instead of its accelerators | 350000 USD
        maintenance_fraction? | [0, 1] | maintenance in a year over the purchase
        utilization = 1.0 | (0, 1] | fraction of the time in which the fleet is in use
        cloud_price? | object USD/h | rent of one accelerator in USD/h, or a listed one: a cloud and 'on-demand', 'spot' or 'reserved' | aws spot
        tokens? | (0, inf) | tokens that the run makes or consumes
        throughput? | (0, inf) 1/s, plain | tokens per second while in use, instead of tokens | 10000 1/s
        include_host, cooling, average_power
    """)
    equations = written(r"""
        purchase_price_usd: purchase = K c i, with i the infrastructure around the nodes
            C = K\,c\,i
            K = nodes, c = node_price in USD, i = beyond.multiplier
        cloud_cost_usd: rent = N c t u
            C_{\mathrm{rent}} = N\,c\,t\,u
            N = devices, c = cloud_price_per_hour_usd in USD/h, t = duration_days in h, u = utilization
        capex_usd: CapEx = purchase min(t, L) / L + building min(t, B) / B
            \mathrm{CapEx} = C\,\frac{\min(t, L)}{L} + H\,\frac{\min(t, B)}{B}
            purchase = purchase_price_usd in USD, t = duration_days in year, L = amortization_years in year, building = building_price_usd in USD, B = prices.building_life in year
        opex_energy_usd: energy = E price
            \mathrm{OpEx_{energy}} = E \times p_{\mathrm{kWh}}
            E = total_energy_kwh in kWh, price = kwh_price_usd in USD/kWh
        opex_maintenance_usd: maintenance = purchase rate t
            \mathrm{OpEx_{maint}} = C\,m\,t
            purchase = purchase_price_usd in USD, rate = prices.maintenance in 1/year, t = duration_days in year
        tco_usd: TCO = CapEx + energy + maintenance
            \mathrm{TCO} = \mathrm{CapEx} + \mathrm{OpEx_{energy}} + \mathrm{OpEx_{maint}}
            CapEx = capex_usd in USD, energy = opex_energy_usd in USD, maintenance = opex_maintenance_usd in USD
        break_even_utilization: u = fixed / (rent - variable)
            u^{*} = \frac{C_{\mathrm{fixed}}}{C_{\mathrm{rent}} - C_{\mathrm{variable}}}
            fixed = rent.fixed in USD, rent = rent.rent in USD, variable = rent.variable in USD
    """)
    known_fallacies = (
        "The purchase price is the cost of a run: a run answers for its share of the hardware's life.",
        "Electricity decides where to train: it is a few per cent of the cost; idle hardware costs more.",
        "The cheaper accelerator-hour is the cheaper run: compare the cost of useful arithmetic.",
        "A price that is not published is zero: it is unknown, and so is the total until you state the price (`unit_cost`).",
    )

    def _solve(self, x: Inputs, assumed: Assumptions) -> EconomicsResult:
        """Cost of a run on a fleet."""
        fleet, node, chip = x.fleet, x.fleet.node, x.fleet.node.accelerator
        if x.grid is not None and x.datacenter is not None:
            raise InputError("EconomicsModel takes a grid or a datacenter, not both; they say the same.", field="grid")
        site = run_inputs.site_of(x.datacenter if x.datacenter is not None else x.grid, fleet, assumed, x.include_host)
        electricity = run_inputs.electricity_price("EconomicsModel", x.kwh_price, site, assumed)
        price = run_inputs.node_price(node, x.unit_cost, x.node_cost, assumed, x.cost_scope)
        ports = run_inputs.ports_bought(fleet)
        beyond = run_inputs.beyond_accelerators(
            *(x.cost_scope, x.infrastructure_multiplier, run_inputs.hosted_share(node), fleet.count),
            *(ports, x.node_cost is not None, fleet.joined),
        )
        if beyond.network and ports != 1:
            words = f"{ports:.0%} of what it costs as it is sold, by the ports of switches that are built"
            assumed.say("network_price", ports, INFERRED, words)
        purchase = purchase_price(price, fleet.count, beyond.multiplier)
        maintenance = run_inputs.maintenance_rate(x.maintenance_fraction, assumed)
        devices, hours = fleet.total_accelerators, x.duration_days * _HOURS_PER_DAY
        around = run_inputs.around_of(fleet, x.include_host, x.cooling, assumed)
        most = x.average_power if chip.tdp is None else to_si(chip.tdp, "kW")
        room = Run(hours, devices, 0.0, fleet.count, around).capacity(0.0 if most is None else most)
        prices = Prices(
            purchase, x.amortization_years, maintenance, electricity, *run_inputs.building(x.cost_scope, room)
        )

        def at(utilisation: float, notes: Assumptions) -> Spent:
            device = run_inputs.device_draw(chip, utilisation, x.average_power, notes)
            return spent_by(Run(hours, devices, device, fleet.count, around), site, prices)

        spent = at(x.mfu * x.utilization, assumed)
        bill = spent.bill
        assert bill is not None
        if x.duration_days / _DAYS_PER_YEAR > x.amortization_years:
            longer = f"{x.duration_days:,.0f} days are longer than the {x.amortization_years:g} years of amortization"
            warnings.warn(f"{longer}; the share of the purchase is capped at its price.", DataWarning, stacklevel=4)
            words = "capped at the purchase price: the run outlasts the amortization"
            assumed.say("capex", bill.hardware, INFERRED, words)
        hourly = accelerator_hour_cost(bill.total, devices, hours, x.utilization)
        priced, rent = run_inputs.rent_price(x.cloud_price, chip, assumed), None
        if priced is not None:
            quiet, busy = (at(share, Assumptions()).bill for share in (0.0, x.mfu))
            assert quiet is not None and busy is not None
            rent = Rent.of(priced.price, devices, hours, x.utilization, quiet, busy)
        peak = to_si(chip.compute.peak_flops, "PFLOPs/s")
        return EconomicsResult.of(
            assumed,
            site,
            binding=_binding(bill, rent, x.utilization),
            cost_per_accelerator_hour_usd=hourly,
            cost_per_pflop_hour_usd=useful_work_cost(hourly, peak, x.mfu) if x.mfu > 0 else None,
            cost_per_million_tokens_usd=_per_million(x, bill.total, hours),
            capex_parts_usd=_capital(bill, beyond),
            cloud_price_per_hour_usd=None if priced is None else priced.price,
            shown={
                "spent": spent,
                "site": site,
                "prices": prices,
                "rent": rent,
                "nodes": fleet.count,
                "node_price": price,
                "beyond": beyond,
                "devices": devices,
            },
            cited={"hardware": chip, **run_inputs.cited(x.kwh_price, site)},
        )


def _capital(bill: Bill, beyond: run_inputs.Beyond) -> dict[str, float]:
    """The run's share of what was bought, item by item."""
    each = bill.hardware / beyond.multiplier
    return {
        "accelerators": each,
        "hosts": each * beyond.hosts,
        "network": each * beyond.network,
        "building": bill.building,
    }


def _per_million(x: Any, total: float, hours: float) -> float | None:
    if x.tokens is not None and x.throughput is not None:
        raise InputError("EconomicsModel takes tokens or throughput, not both.", field="tokens")
    tokens = x.tokens if x.throughput is None else run_work(hours * _HOUR, x.throughput, 1.0, x.utilization)
    return None if tokens is None else float(per_million(total, tokens))


def _binding(bill: Bill, rent: Rent | None, utilization: float) -> Binding:
    parts = {"the hardware's share": bill.capital, "energy": bill.energy, "maintenance": bill.maintenance}
    (name, largest), (_, second), _ = sorted(parts.items(), key=lambda item: item[1], reverse=True)
    total = bill.total
    said = f": {total:,.0f} USD, of which {name} is {largest / total if total > 0 else 0.0:.0%}"
    if rent is not None:
        cheaper = "renting" if rent.cost < total else "owning"
        pays = rent.break_even is not None and rent.break_even <= 1
        when = f"pays from {rent.break_even:.0%}" if pays else "never pays at this rent"
        said += f"; {cheaper} is cheaper at {utilization:.0%} utilisation, and owning {when}"
    return wall_says(17, largest / second if second > 0 else None, f"{said}.")
