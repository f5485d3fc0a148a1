"""I2: does it matter for the climate where a cluster stands?

256 H100 for 30 days at full power, in Iowa and in Quebec, with the paper's intensities (680 and 17 g/kWh) and PUE 1.1.
"""

from __future__ import annotations

from typing import Any

from mlsysim import Datacenter, GridProfile, Grids, SustainabilityModel
from mlsysim.examples._beside import beside_paper, in_unit
from mlsysim.show import banner

FLEET = "Research_256"
DAYS = 30


def run(place: Any, mfu: float = 1.0) -> Any:
    return SustainabilityModel().solve(FLEET, duration_days=DAYS, datacenter=place, mfu=mfu)


def papers_quebec() -> GridProfile:
    """The paper's grid of 17 g/kWh; the zoo's has 20 g/kWh and PUE 1.06."""
    return Grids.Quebec.model_copy(update={"carbon_intensity_g_kwh": 17.0})


def at_pue(grid: GridProfile, pue: float) -> Datacenter:
    return Datacenter(name=grid.name, grid=grid, pue_override=pue)


def tonnes(result: Any) -> str:
    return f"{result.carbon_footprint_kg / 1e3:.2f}"


def water(result: Any) -> str:
    return f"{result.water_usage_liters / 1e3:.0f}"


def main() -> None:
    iowa, quebec = run(at_pue(Grids.Iowa, 1.1)), run(at_pue(papers_quebec(), 1.1))
    busy, zoo = run(at_pue(Grids.Iowa, 1.1), mfu=0.4), run(Grids.Quebec)
    banner("I2: 256 H100 for 30 days")
    energy, ratio = in_unit(iowa.total_energy_kwh, "MWh", 1), iowa.carbon_footprint_kg / quebec.carbon_footprint_kg
    beside_paper(
        ("energy [MWh]", "", energy, "256 x 700 W x 720 h x 1.1; 412 t would need 606 MWh"),
        ("Iowa [t CO2]", "412", tonnes(iowa), "142 MWh x 680 g/kWh"),
        ("Iowa at MFU 0.4 [t CO2]", "", tonnes(busy), "power is 0.3 + 0.7 MFU of TDP"),
        ("Quebec, 17 g/kWh [t CO2]", "10.3", tonnes(quebec), "the same energy"),
        ("Quebec, zoo: 20 g/kWh, PUE 1.06 [t CO2]", "", tonnes(zoo), "sourced intensity and facility"),
        ("ratio", "40", f"{ratio:.0f}", "that of the intensities"),
        ("Iowa, water [kL]", "231", water(iowa), "1.8 L for each kWh of the computers"),
        ("Quebec, water [kL]", "5.8", water(quebec), "water follows cooling (WUE), not carbon"),
    )


if __name__ == "__main__":
    main()
