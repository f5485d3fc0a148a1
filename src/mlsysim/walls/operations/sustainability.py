"""Wall 18, sustainability: energy, carbon and water of a fleet at work.

    E_IT = N P t,  P = TDP (i + (1 - i) MFU)                                    (Barroso and Hölzle 2007, i = 0.3)
    E_IT = (N (f P + w) + K h) t with what stands around the accelerators
    E = E_IT x PUE
    CO2 = E x CI                                                               (Patterson et al. 2021)
    water = E_IT x WUE

N accelerators for a time t, on a grid of carbon intensity CI, in a facility of power usage effectiveness PUE. WUE is defined
per unit of computing energy (The Green Grid 2011, ISO/IEC 30134-9), so water is not multiplied by PUE. Embodied carbon is
written off in equal parts over the lifetime of the hardware, and kept apart from the carbon of operation.

Assumed: carbon intensity is a yearly average. Without a place carbon and water stay unknown, and PUE is 1. By default only
accelerators draw power, in proportion to MFU, as the documents have it. Measured accelerators do not: memory-bound work draws twice as
much. Plans hand on what accelerators do as ``average_power`` (:mod:`mlsysim.timing.power`), and ``include_host``, which adds hosts, fans
and conversion as measured (air: 1.41 kW + 1.21 x accelerators, liquid: 1.027 x (1.24 kW + accelerators), for eight of them), 116 W of network
an accelerator, and a stated PUE without a place. Left out: the hour of the day (plans that say when they start hand on a place as its hours are), the
marginal plant, and the water that power stations spend, which may exceed that of the site.
"""

from __future__ import annotations

from typing import Annotated, Any

from mlsysim.cases.assumptions import CHIP, UNKNOWN
from mlsysim.cases.footprint import Footprint, Site, embodied_share
from mlsysim.cases.run import Run, spent_by
from mlsysim.cases.run_inputs import around_of, device_draw, site_of
from mlsysim.units.registry import conversion_factor, to_si
from mlsysim.walls.base import Assumptions, Binding, Inputs, Resolver, declared, wall_says, written
from mlsysim.walls.result import Amount, Power, Result
from mlsysim.zoo.constants import constant

CARDS = """
18 Sustainability: energy, carbon and water
CO2 = E_IT PUE CI (Patterson et al. 2021)
How much energy and water does it take, and how much carbon does it emit?
"""

_HOURS_PER_DAY = conversion_factor("day", "h")
_DAYS_PER_YEAR = conversion_factor("year", "day")

EnergyKwh = Annotated[Any, Amount("kWh")]


class SustainabilityResult(Result):
    """Energy, carbon and water of a run. What is not known is None."""

    it_energy_kwh: Annotated[EnergyKwh, "spent.footprint.computing"]
    total_energy_kwh: Annotated[EnergyKwh, "spent.footprint.energy"]
    carbon_footprint_kg: Annotated[float | None, "spent.footprint.carbon"]
    water_usage_liters: Annotated[float | None, "spent.footprint.water"]
    pue: Annotated[float, "site.pue"]
    region_name: Annotated[str, "site.name"]
    power: Annotated[Annotated[Any, Amount("kW")], "spent.power"]
    power_per_accelerator: Power
    energy_by_scope: Annotated[dict[str, Annotated[Any, Amount("kWh")]], "spent.parts"]
    embodied_carbon_kg: float | None
    embodied_carbon_purchase_kg: float | None
    total_carbon_kg: float | None


class SustainabilityModel(Resolver[SustainabilityResult]):
    """Energy, carbon and water of a fleet at work, and the share of its embodied carbon."""

    walls = (18,)
    inputs = declared("""
        fleet, duration_days, datacenter, mfu
        embodied_carbon_per_device? | [0, inf) kgCO2e, plain | carbon embodied in one accelerator; the chip's own figure where \
            none is given | 164 kgCO2e
        lifetime_years = constant amortization_period | (0, inf) year, plain | lifetime over which embodied carbon is written \
            off | 3 year
        include_host, cooling, average_power
        memory_utilisation? | [0, 1] | share of the memory bandwidth in use; given, power is calibrated (running kernels, \
            arithmetic, memory) and not in proportion to MFU alone
    """)
    equations = written(r"""
        power if hosts: power = N (f p + w) + K h, with f for fans and losses, w of network, h of a host
            P = N\,(f\,p + w) + K\,h
            N = devices, p = power_per_accelerator in kW, f = around.factor, w = network in kW, K = hosts, h = around.host in kW
        power if accelerators_alone: power = N p
            P = N\,p
            N = devices, p = power_per_accelerator in kW
        power_per_accelerator if proportional: p = TDP (i + (1 - i) MFU)
            p = \mathrm{TDP}\,(i + (1-i)\,\mathrm{MFU})
            TDP = tdp in W, i = idle, MFU = mfu
        it_energy_kwh: E_IT = P t
            E_{\mathrm{IT}} = P\,t
            P = power in kW, t = duration_days in h
        total_energy_kwh: E = E_IT PUE
            E = E_{\mathrm{IT}} \times \mathrm{PUE}
            E_IT = it_energy_kwh in kWh, PUE = pue
        carbon_footprint_kg: CO2 = E CI
            \mathrm{CO_2} = E \times \mathrm{CI}
            E = total_energy_kwh in kWh, CI = intensity in kgCO2e/kWh
        water_usage_liters: water = E_IT WUE
            \mathrm{H_2O} = E_{\mathrm{IT}} \times \mathrm{WUE}
            E_IT = it_energy_kwh in kWh, WUE = site.wue in L/kWh
        embodied_carbon_kg: embodied share = N c min(t / L, 1)
            \mathrm{CO_2^{emb}} = N\,c\,\min\left(\frac{t}{L}, 1\right)
            N = devices, c = embodied in kgCO2e, t = duration_days in year, L = lifetime_years in year
    """)
    known_fallacies = (
        "Water follows carbon: it follows the cooling of the site, and clean grids may have thirsty sites.",
        "On a clean grid a run has next to no carbon: the share embodied in the hardware may exceed that of operation.",
        "Two regions differ by their carbon intensities alone: the PUE of their buildings differs too, and multiplies it.",
    )

    def _solve(self, x: Inputs, assumed: Assumptions) -> SustainabilityResult:
        """Energy, carbon and water of a run on a fleet."""
        fleet, chip = x.fleet, x.fleet.node.accelerator
        site = site_of(x.datacenter, fleet, assumed, x.include_host)
        device = device_draw(chip, x.mfu, x.average_power, assumed, x.memory_utilisation)
        around = around_of(fleet, x.include_host, x.cooling, assumed)
        run = Run(x.duration_days * _HOURS_PER_DAY, fleet.total_accelerators, device, fleet.count, around)
        spent = spent_by(run, site, None)
        taken, years = spent.footprint, x.duration_days / _DAYS_PER_YEAR
        if site.wue is None and site.carbon is not None:
            assumed.say("water", None, UNKNOWN, f"unknown: no WUE is published for {site.name}")
        embodied = x.embodied_carbon_per_device
        if embodied is None:
            embodied = chip.embodied_carbon_kg
            words = f"unknown: none is published for {chip.name}"
            if embodied is not None:
                words = f"{embodied:g} kgCO2e ({chip.name})"
            else:
                assumed.pop("lifetime_years", None)
            assumed.say("embodied_carbon_per_device", embodied, CHIP if embodied is not None else UNKNOWN, words)
        purchase = None if embodied is None else embodied * fleet.total_accelerators
        share = None if purchase is None else embodied_share(purchase, years, x.lifetime_years)
        return SustainabilityResult.of(
            assumed,
            binding=_binding(site, taken, share),
            power_per_accelerator=device * 1000,
            embodied_carbon_kg=share,
            embodied_carbon_purchase_kg=purchase,
            total_carbon_kg=None if taken.carbon is None or share is None else taken.carbon + share,
            shown={
                "site": site,
                "spent": spent,
                "devices": fleet.total_accelerators,
                "hosts": fleet.count if x.include_host else None,
                "around": around,
                "network": run.network,
                "accelerators_alone": not x.include_host,
                "proportional": x.average_power is None and x.memory_utilisation is None,
                "tdp": None if chip.tdp is None else to_si(chip.tdp, "W"),
                "idle": constant("idle_power_fraction").number,
                "intensity": site.carbon,
                "embodied": embodied,
            },
            cited={"hardware": chip, **site.cited},
        )


def _binding(site: Site, taken: Footprint, share: float | None) -> Binding:
    energy, carbon = taken.energy, taken.carbon
    if carbon is None:
        return wall_says(18, None, f": {energy:,.0f} kWh; carbon is unknown until a grid is given.")
    said, margin = f": {energy:,.0f} kWh in {site.name} emit {carbon:,.0f} kgCO2e", None
    if share:
        margin = carbon / share if carbon >= share else share / carbon if carbon else None
        said += f", beside {share:,.0f} kgCO2e embodied in the hardware"
    return wall_says(18, margin, f"{said}.")
