"""``Infra``: the infrastructure zoo, with ``Grids``, ``Facilities``, ``Racks`` and ``Prices``."""

from __future__ import annotations

from typing import Any

from mlsysim.infra.types import CloudPrice, Facility, GridProfile, Rack
from mlsysim.units.registry import Q_
from mlsysim.zoo.registry import Registry, builder, provenance

DEFAULT_FACILITY = "Industry_Average"


def build_grid(key: str, table: dict[str, Any]) -> GridProfile:
    """A grid from the fields of an entry."""
    table = dict(table)
    metadata = provenance(key, table)
    table["facility"] = Facilities.get(table.pop("facility", DEFAULT_FACILITY))
    table["carbon_intensity_g_kwh"] = Q_(table.pop("carbon_intensity")).to("gCO2e/kWh").magnitude
    return GridProfile(metadata=metadata, **table)


Facilities = Registry(
    "Facilities",
    "facility",
    "mlsysim.infra",
    ("facilities.toml",),
    builder(Facility),
    {"name": "name", "PUE": "pue", "WUE": "wue", "cooling": "cooling", "source": "metadata.kind"},
    kind=Facility,
)

Grids = Registry(
    "Grids",
    "grid",
    "mlsysim.infra",
    ("grids.toml",),
    build_grid,
    {
        "name": "name",
        "gCO2e/kWh": "carbon_intensity_g_kwh",
        "price": "electricity_price",
        "year": "year",
        "PUE": "pue",
        "source": "metadata.kind",
    },
    kind=GridProfile,
)

Racks = Registry(
    "Racks",
    "rack",
    "mlsysim.infra",
    ("racks.toml",),
    builder(Rack),
    {"name": "name", "power": "power", "cooling": "cooling", "source": "metadata.kind"},
    kind=Rack,
)

Prices = Registry(
    "Prices",
    "cloud price",
    "mlsysim.infra",
    ("prices.toml",),
    builder(CloudPrice),
    {
        "name": "name",
        "accelerator": "accelerator",
        "number": "accelerators",
        "price": "price",
        "date": "date",
        "source": "metadata.kind",
    },
    kind=CloudPrice,
)


class Infra:
    """The infrastructure zoo: grids, facilities, racks and prices."""

    Grids = Grids
    Facilities = Facilities
    Racks = Racks
    Prices = Prices
