"""Wall 18, sustainability: energy, carbon and water of a fleet at work.

    E_IT = N P t,  P = TDP (i + (1 - i) MFU)                                    (Barroso and Hölzle 2007, i = 0.3)
    E = E_IT x PUE
    CO2 = E x CI                                                               (Patterson et al. 2021)
    water = E_IT x WUE

N accelerators for a time t, on a grid of carbon intensity CI, in a facility of power usage effectiveness PUE. WUE is defined
per unit of computing energy (The Green Grid 2011, ISO/IEC 30134-9), so water is not multiplied by PUE. Embodied carbon is
written off in equal parts over the lifetime of the hardware, and kept apart from the carbon of operation.

Assumed: carbon intensity is a yearly average. Without a place, PUE is 1 and carbon and water stay unknown. By default only
accelerators draw power; ``include_host`` adds the rest of the node at its rating (a DGX H100 has 4.6 kW beside 5.6 kW of
GPUs, so 1.8 times). Left out: the measured shape of power (GPUs that only move memory draw 0.6 to 0.9 of TDP, so the linear
form is half of the truth for memory-bound work; ``memory_utilisation`` turns on the calibrated form and ``average_power`` sets a
measured figure), the hour of the day, the
marginal plant, and the water that power stations spend, which may exceed that of the site.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Annotated, Any, ClassVar

from mlsysim.errors import InputError
from mlsysim.infra.types import Datacenter, GridProfile
from mlsysim.physics.power import proportional_power
from mlsysim.systems.types import Fleet
from mlsysim.timing.power import Activity, power_of
from mlsysim.units.kernel import Arg, kernel
from mlsysim.units.ops import minimum
from mlsysim.units.registry import conversion_factor, quantity, to_si
from mlsysim.walls.base import OPERATIONS, Amount, Binding, Equation, Input, Power, Resolver, Result, Wall
from mlsysim.zoo.constants import constant

__all__ = [
    "AVERAGE_POWER",
    "CARDS",
    "DAYS_PER_YEAR",
    "DURATION_DAYS",
    "FLEET_INPUT",
    "HOST",
    "HOURS_PER_DAY",
    "MEMORY_UTILISATION",
    "MFU",
    "PLACE",
    "Site",
    "SustainabilityModel",
    "SustainabilityResult",
    "carbon_mass",
    "computing_energy",
    "embodied_share",
    "facility_energy",
    "fleet_draw",
    "fleet_power",
    "site_of",
    "water_volume",
]

CARDS = (
    Wall(
        18,
        "Sustainability",
        OPERATIONS,
        "SustainabilityModel",
        "energy, carbon and water",
        "CO2 = E_IT PUE CI",
        "Patterson et al. 2021",
        "How much energy and water does it take, and how much carbon does it emit?",
    ),
)

HOURS_PER_DAY = conversion_factor("day", "h")
DAYS_PER_YEAR = conversion_factor("year", "day")

_ENERGY = Arg("kWh", 1.0, 1e9)


@kernel(
    inputs={
        "device": Arg("kW", 1e-3, 20.0),
        "devices": Arg("", 1, 1e6, whole=True),
        "host": Arg("kW", 0.1, 20.0),
        "nodes": Arg("", 1, 1e5, whole=True),
    },
    outputs={"power": "kW"},
)
def fleet_power(device: Any, devices: Any, host: Any, nodes: Any) -> Any:
    """Power of all accelerators and of the hosts around them."""
    return device * devices + host * nodes


@kernel(inputs={"power": Arg("kW", 1e-3, 1e6), "duration": Arg("h", 1.0, 1e5)}, outputs={"energy": "kWh"})
def computing_energy(power: Any, duration: Any) -> Any:
    """Energy that the computers take."""
    return power * duration


@kernel(inputs={"computing": _ENERGY, "pue": Arg("", 1.0, 3.0)}, outputs={"energy": "kWh"})
def facility_energy(computing: Any, pue: Any) -> Any:
    """Energy that the building takes: computers, cooling, conversion."""
    return computing * pue


@kernel(inputs={"energy": _ENERGY, "intensity": Arg("kgCO2e/kWh", 0.01, 1.5)}, outputs={"carbon": "kgCO2e"})
def carbon_mass(energy: Any, intensity: Any) -> Any:
    """Carbon emitted to generate an energy."""
    return energy * intensity


@kernel(inputs={"computing": _ENERGY, "wue": Arg("L/kWh", 0.01, 5.0)}, outputs={"water": "L"})
def water_volume(computing: Any, wue: Any) -> Any:
    """Water that a site spends on cooling, from the energy of the computers alone."""
    return computing * wue


@kernel(
    inputs={"whole": Arg("kgCO2e", 1.0, 1e9), "duration": Arg("year", 0.01, 10.0), "lifetime": Arg("year", 1.0, 10.0)},
    outputs={"share": "kgCO2e"},
)
def embodied_share(whole: Any, duration: Any, lifetime: Any) -> Any:
    """Part of the carbon embodied in hardware that a run answers for; never more than all of it."""
    return whole * minimum(duration, lifetime) / lifetime


FLEET_INPUT = Input(
    "the fleet: an entry of Systems.Clusters, its name, or a Fleet", kind="fleet", example="Frontier_8K"
)
DURATION_DAYS = Input(
    "length of the run", kind="quantity", unit="day", plain_unit="day", low=0, low_open=True, example="30 day"
)
PLACE = Input(
    "where it runs: a grid, its name, or a Datacenter; the fleet's own place where none is given",
    kind="grid",
    default=None,
    example="Quebec",
)
MFU = Input("model FLOPs over peak FLOPs while it runs", low=0, high=1, default=1.0)
HOST = Input("add the rated power of the rest of each node", kind="flag", default=False)
AVERAGE_POWER = Input(
    "measured average power of one accelerator, instead of TDP and MFU",
    kind="quantity",
    unit="kW",
    plain_unit="W",
    low=0,
    low_open=True,
    default=None,
    example="330 W",
)
MEMORY_UTILISATION = Input(
    "share of the memory bandwidth in use; given, power is calibrated (running kernels, arithmetic, memory) and not in "
    "proportion to MFU alone",
    low=0,
    high=1,
    default=None,
)


@dataclass(frozen=True, slots=True)
class Site:
    """What a run needs to know about its place. Unknown values are None."""

    name: str
    pue: float
    wue: float | None = None
    carbon: float | None = None
    """kgCO2e/kWh"""
    price: float | None = None
    """USD/kWh"""


def site_of(place: GridProfile | Datacenter | None, fleet: Fleet, assumed: dict[str, str]) -> Site:
    """The place that was given, else the fleet's own, else nowhere: PUE 1 and carbon unknown, which is noted."""
    where = place if place is not None else (fleet.datacenter or fleet.region)
    if where is None:
        assumed["pue"] = "1.0 (no grid, datacenter or region is given, so carbon and water are unknown)"
        return Site("not given", 1.0)
    grid = where.grid if isinstance(where, Datacenter) else where
    if place is None:
        assumed["place"] = f"{grid.name}, the fleet's own"
    price = None if grid.electricity_price is None else to_si(grid.electricity_price, "USD/kWh")
    return Site(grid.name, where.pue, where.wue, grid.carbon_intensity_g_kwh / 1000, price)


def fleet_draw(
    fleet: Fleet,
    utilisation: float,
    include_host: bool,
    average_power: float | None,
    assumed: dict[str, str],
    memory_utilisation: float | None = None,
) -> tuple[float, float]:
    """Power of one accelerator and of the whole fleet in kW, at a utilisation between 0 and 1."""
    node, chip = fleet.node, fleet.node.accelerator
    if average_power is not None:
        device = average_power
        assumed.pop("mfu", None)
    elif chip.tdp is None:
        raise InputError(
            f"{chip.name} has no published TDP; pass average_power=... (power of one accelerator, such as '330 W').",
            field="average_power",
        )
    elif memory_utilisation is not None:
        assumed["power"] = "calibrated: waiting, running kernels, and what arithmetic and memory add"
        device = power_of(chip, Activity(utilisation, memory_utilisation)) / 1000
    else:
        idle = constant("idle_power_fraction").number
        assumed["power"] = f"TDP x ({idle:g} + {1 - idle:g} x MFU)"
        device = proportional_power(to_si(chip.tdp, "kW"), idle, utilisation)
    host = 0.0
    if include_host:
        if node.host_power is None:
            raise InputError(
                f"{node.name} does not state its host power; give the Node a host_power, or leave include_host off.",
                field="include_host",
            )
        host = to_si(node.host_power, "kW")
    return device, fleet_power(device, fleet.total_accelerators, host, fleet.count)


EnergyKwh = Annotated[Any, Amount("kWh")]


class SustainabilityResult(Result):
    """Energy, carbon and water of a run. What is not known is None."""

    it_energy_kwh: EnergyKwh
    total_energy_kwh: EnergyKwh
    carbon_footprint_kg: float | None
    water_usage_liters: float | None
    pue: float
    region_name: str
    power: Power
    power_per_accelerator: Power
    embodied_carbon_kg: float | None
    embodied_carbon_purchase_kg: float | None
    total_carbon_kg: float | None


class SustainabilityModel(Resolver[SustainabilityResult]):
    """Energy, carbon and water of a fleet at work, and the share of its embodied carbon."""

    walls = (18,)
    result = SustainabilityResult
    inputs: ClassVar[dict[str, Input]] = {
        "fleet": FLEET_INPUT,
        "duration_days": DURATION_DAYS,
        "datacenter": PLACE,
        "mfu": MFU,
        "embodied_carbon_per_device": Input(
            "carbon embodied in one accelerator; the chip's own figure where none is given",
            kind="quantity",
            unit="kgCO2e",
            plain_unit="kgCO2e",
            low=0,
            default=None,
            example="164 kgCO2e",
        ),
        "lifetime_years": Input(
            "lifetime over which embodied carbon is written off",
            kind="quantity",
            unit="year",
            plain_unit="year",
            low=0,
            low_open=True,
            default=to_si(constant("amortization_period").quantity, "year"),
            example="3 year",
        ),
        "include_host": HOST,
        "average_power": AVERAGE_POWER,
        "memory_utilisation": MEMORY_UTILISATION,
    }
    equations = (
        Equation(
            "it_energy_kwh",
            "E_IT = (N p + K h) t, with p = TDP (i + (1 - i) MFU)",
            r"E_{\mathrm{IT}} = (N\,p + K\,h)\,t,\quad p = \mathrm{TDP}\,(i + (1-i)\,\mathrm{MFU})",
            {
                "N": ("devices", ""),
                "p": ("device_power", "kW"),
                "K": ("hosts", ""),
                "h": ("host_power", "kW"),
                "t": ("hours", "h"),
                "MFU": ("mfu", ""),
            },
        ),
        Equation(
            "total_energy_kwh",
            "E = E_IT PUE",
            r"E = E_{\mathrm{IT}} \times \mathrm{PUE}",
            {"E_IT": ("computing", "kWh"), "PUE": ("pue", "")},
        ),
        Equation(
            "carbon_footprint_kg",
            "CO2 = E CI",
            r"\mathrm{CO_2} = E \times \mathrm{CI}",
            {"E": ("energy", "kWh"), "CI": ("intensity", "kgCO2e/kWh")},
        ),
        Equation(
            "water_usage_liters",
            "water = E_IT WUE",
            r"\mathrm{H_2O} = E_{\mathrm{IT}} \times \mathrm{WUE}",
            {"E_IT": ("computing", "kWh"), "WUE": ("wue", "L/kWh")},
        ),
        Equation(
            "embodied_carbon_kg",
            "embodied share = N c t / L",
            r"\mathrm{CO_2^{emb}} = N\,c\,\frac{t}{L}",
            {
                "N": ("devices", ""),
                "c": ("embodied", "kgCO2e"),
                "t": ("years", "year"),
                "L": ("lifetime", "year"),
            },
        ),
    )
    known_fallacies = (
        "Water follows carbon: it follows the cooling of the site, and clean grids may have thirsty sites.",
        "On a clean grid a run has next to no carbon: the share embodied in the hardware may exceed that of operation.",
        "Two regions differ by their carbon intensities alone: their buildings' PUE multiplies it.",
    )

    def _solve(self, x: SimpleNamespace, assumed: dict[str, str]) -> SustainabilityResult:
        """Energy, carbon and water of a run on a fleet."""
        fleet, chip = x.fleet, x.fleet.node.accelerator
        site = site_of(x.datacenter, fleet, assumed)
        device, power = fleet_draw(fleet, x.mfu, x.include_host, x.average_power, assumed, x.memory_utilisation)
        hours, years = x.duration_days * HOURS_PER_DAY, x.duration_days / DAYS_PER_YEAR
        computing = computing_energy(power, hours)
        energy = facility_energy(computing, site.pue)
        carbon = None if site.carbon is None else carbon_mass(energy, site.carbon)
        water = None if site.wue is None else water_volume(computing, site.wue)
        if site.wue is None and site.carbon is not None:
            assumed["water"] = f"unknown: no WUE is published for {site.name}"
        embodied = x.embodied_carbon_per_device
        if embodied is None:
            embodied = chip.embodied_carbon_kg
            assumed["embodied_carbon_per_device"] = (
                f"unknown: none is published for {chip.name}"
                if embodied is None
                else f"{embodied:g} kgCO2e ({chip.name})"
            )
            if embodied is None:
                assumed.pop("lifetime_years", None)
        purchase = None if embodied is None else embodied * fleet.total_accelerators
        share = None if purchase is None else embodied_share(purchase, years, x.lifetime_years)
        outcome = SustainabilityResult(
            assumptions=assumed,
            binding=_binding(site, carbon, share, energy),
            it_energy_kwh=quantity(computing, "kWh"),
            total_energy_kwh=quantity(energy, "kWh"),
            carbon_footprint_kg=carbon,
            water_usage_liters=water,
            pue=site.pue,
            region_name=site.name,
            power=quantity(power, "kW"),
            power_per_accelerator=quantity(device * 1000, "W"),
            embodied_carbon_kg=share,
            embodied_carbon_purchase_kg=purchase,
            total_carbon_kg=None if carbon is None or share is None else carbon + share,
        )
        outcome._context = {
            "devices": fleet.total_accelerators,
            "hosts": fleet.count if x.include_host else None,
            "host_power": to_si(fleet.node.host_power, "kW") if x.include_host else None,
            "device_power": device,
            "hours": hours,
            "years": years,
            "mfu": x.mfu if x.average_power is None else None,
            "computing": computing,
            "energy": energy,
            "pue": site.pue,
            "intensity": site.carbon,
            "wue": site.wue,
            "embodied": embodied,
            "lifetime": x.lifetime_years,
        }
        outcome._sources = {"hardware": chip.metadata.source_title or "given by the user"}
        return outcome


def _binding(site: Site, carbon: float | None, share: float | None, energy: float) -> Binding:
    if carbon is None:
        sentence = f"Wall 18 (Sustainability): {energy:,.0f} kWh; carbon is unknown until a grid is given."
        return Binding(18, "Sustainability", None, sentence)
    sentence = f"Wall 18 (Sustainability): {energy:,.0f} kWh in {site.name} emit {carbon:,.0f} kgCO2e"
    margin = None
    if share:
        margin = carbon / share if carbon >= share else share / carbon if carbon else None
        sentence += f", beside {share:,.0f} kgCO2e embodied in the hardware"
    return Binding(18, "Sustainability", margin, sentence + ".")
