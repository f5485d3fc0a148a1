"""``Infra``: the infrastructure zoo, with ``Grids``, ``Facilities``, ``Racks`` and ``Prices``."""

from __future__ import annotations

from typing import Any

from mlsysim.infra.types import CloudPrice, Facility, GridProfile, Rack
from mlsysim.units.registry import Q_
from mlsysim.zoo.registry import Registry, builder

DEFAULT_FACILITY = "Hyperscale_Air"
"""The building of a plan without a region. One of a grid that says nothing of its buildings has that PUE too, so that to name a place changes its
electricity alone; the water that it takes is not known."""


def _grid(**fields: Any) -> GridProfile:
    own = fields.get("facility")
    fields["facility"] = Facilities.get(own or DEFAULT_FACILITY)
    if own is None:
        fields["facility"] = fields["facility"].model_copy(update={"wue": None})
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
