"""What must hold of every grid, facility, rack and price."""

from __future__ import annotations

from mlsysim.infra.types import CloudPrice, Facility, GridProfile, Rack
from mlsysim.zoo.registry import Check, has_sources


def carbon_intensity_is_credible(grid: GridProfile) -> str | None:
    """Between all-renewable and all-lignite electricity."""
    if 5 <= grid.carbon_intensity_g_kwh <= 1300:
        return None
    return f"carbon intensity {grid.carbon_intensity_g_kwh} g/kWh is not credible"


def electricity_price_is_credible(grid: GridProfile) -> str | None:
    """Between subsidised and island electricity; absent when not known."""
    if grid.electricity_price is None:
        return None
    price = grid.electricity_price.to("USD/kWh").magnitude
    return None if 0.005 <= price <= 0.6 else f"electricity at {price} USD/kWh is not credible"


def years_are_stated(grid: GridProfile) -> str | None:
    """Carbon and price figures say which year they are for."""
    if grid.year is None:
        return "does not say the year of its carbon intensity"
    return "has a price without a year" if grid.electricity_price is not None and grid.price_year is None else None


def pue_is_credible(facility: Facility) -> str | None:
    """Between a perfect building and a machine room of the 2000s."""
    return None if 1.0 <= facility.pue <= 3.0 else f"PUE {facility.pue} is not credible"


def wue_is_credible(facility: Facility) -> str | None:
    """Between closed loops and wet cooling in a desert; absent when not known."""
    return None if facility.wue is None or 0 <= facility.wue.to("L/kWh").magnitude <= 10 else "WUE is not credible"


def rack_power_is_credible(rack: Rack) -> str | None:
    """Between an office rack and the densest announced ones."""
    return None if 1 <= rack.power.to("kW").magnitude <= 1000 else f"rack power {rack.power:~P} is not credible"


def price_is_credible(price: CloudPrice) -> str | None:
    """Between a spot T4 and a whole wafer."""
    each = price.price_per_accelerator.magnitude
    return None if 0.05 <= each <= 60 else f"{each:.2f} USD per accelerator-hour is not credible"


GRID_CHECKS: tuple[Check, ...] = (
    has_sources, carbon_intensity_is_credible, electricity_price_is_credible, years_are_stated
)  # fmt: skip
FACILITY_CHECKS: tuple[Check, ...] = (has_sources, pue_is_credible, wue_is_credible)
RACK_CHECKS: tuple[Check, ...] = (has_sources, rack_power_is_credible)
PRICE_CHECKS: tuple[Check, ...] = (has_sources, price_is_credible)
