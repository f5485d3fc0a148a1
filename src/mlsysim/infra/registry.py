"""``Infra``: the infrastructure zoo, with ``Grids``, ``Facilities``, ``Racks`` and ``Prices``."""

from __future__ import annotations

from typing import Any

from mlsysim.infra.types import CloudPrice, Facility, GridProfile, Rack
from mlsysim.units.registry import Q_
from mlsysim.zoo.registry import Registry, builder

DEFAULT_FACILITY = "Hyperscale_Air"
"""The building of a grid that says nothing of one, and of a plan without a region: to name a place changes its electricity alone."""


def _grid(**fields: Any) -> GridProfile:
    fields["facility"] = Facilities.get(fields.get("facility", DEFAULT_FACILITY))
    if "carbon_intensity" in fields:
        fields["carbon_intensity_g_kwh"] = Q_(fields.pop("carbon_intensity")).to("gCO2e/kWh").magnitude
    return GridProfile(**fields)


Facilities = Registry("Facilities", "facility", Facility, {"PUE": "pue", "WUE": "wue", "cooling": "cooling"})

Grids = Registry(
    "Grids",
    "grid",
    GridProfile,
    {"gCO2e/kWh": "carbon_intensity_g_kwh", "price": "electricity_price", "year": "year", "PUE": "pue"},
    builder(_grid),
)

Racks = Registry("Racks", "rack", Rack, {"power": "power", "cooling": "cooling"})

Prices = Registry(
    "Prices",
    "cloud price",
    CloudPrice,
    {"accelerator": "accelerator", "number": "accelerators", "price": "price", "date": "date"},
)


class Infra:
    """The infrastructure zoo: grids, facilities, racks and prices."""

    Grids = Grids
    Facilities = Facilities
    Racks = Racks
    Prices = Prices
