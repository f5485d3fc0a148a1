"""Layer C: the types of infrastructure, without numbers.

A grid says how clean and how dear its electricity is; a facility says how much of it, and of water, is spent beside
computing. They are apart because they change apart: ``GridProfile`` refers to a default facility, ``Datacenter``
combines any grid with any facility. What is not known (a price, a water figure) is None and stays unknown.
"""

from typing import Any

from pydantic import Field

from mlsysim.errors import InputError
from mlsysim.units.fields import EnergyPrice, HourlyPrice, WaterIntensity, Watts
from mlsysim.units.registry import Q_, Quantity
from mlsysim.zoo.provenance import Entry, Metadata

__all__ = ["CloudPrice", "Datacenter", "Facility", "GridProfile", "Metadata", "Rack"]


class Facility(Entry):
    """A building: total over computing power (PUE), and water per unit of computing energy (WUE)."""

    name: str
    pue: float = Field(ge=1.0)
    wue: WaterIntensity | None = None
    cooling: str | None = None
    year: int | None = None
    metadata: Metadata = Field(default_factory=Metadata)


class GridProfile(Entry):
    """A region's electricity. ``pue`` and ``wue`` are those of its default facility."""

    name: str
    carbon_intensity_g_kwh: float = Field(ge=0)
    facility: Facility
    electricity_price: EnergyPrice | None = None
    zone: str | None = None
    """Whose hours it has (:mod:`mlsysim.infra.hours`)."""
    year: int | None = None
    price_year: int | None = None
    country: str | None = None
    primary_source: str | None = None
    renewable_pct: float | None = Field(default=None, ge=0, le=100)
    lat: float | None = Field(default=None, ge=-90, le=90)
    lon: float | None = Field(default=None, ge=-180, le=180)
    metadata: Metadata = Field(default_factory=Metadata)

    def __init__(self, **data: Any) -> None:
        # The paper gives PUE and WUE with the grid; they make a facility of their own.
        pue, wue = data.pop("pue", None), data.pop("wue", None)
        if pue is not None:
            if data.get("facility") is not None:
                raise InputError("GridProfile takes a facility or a pue, not both.")
            if isinstance(wue, (int, float)) and not isinstance(wue, bool):
                wue = Q_(wue, "L/kWh")
            data["facility"] = Facility(name=f"{data.get('name')} facility", pue=pue, wue=wue)
        elif wue is not None:
            raise InputError("GridProfile takes wue together with pue.")
        super().__init__(**data)

    @property
    def pue(self) -> float:
        return self.facility.pue

    @property
    def wue(self) -> float | None:
        """Litres for each kWh of computing energy, or None where it is not known."""
        return None if self.facility.wue is None else float(self.facility.wue.to("L/kWh").magnitude)

    @property
    def carbon_intensity(self) -> Any:
        """Carbon per energy as a quantity."""
        return Quantity(self.carbon_intensity_g_kwh, "gCO2e/kWh")

    def carbon_kg(self, kwh: Any) -> float:
        """Kilograms of CO2 equivalent for an energy (a number of kWh, or a quantity) taken from the grid."""
        energy = kwh if isinstance(kwh, Quantity) else Q_(kwh, "kWh")
        return float((energy * self.carbon_intensity).to("kgCO2e").magnitude)


class Rack(Entry):
    """What one rack may draw."""

    name: str
    power: Watts
    cooling: str | None = None
    metadata: Metadata = Field(default_factory=Metadata)


class Datacenter(Entry):
    """A facility on a grid."""

    name: str
    grid: GridProfile
    facility: Facility | None = None
    pue_override: float | None = Field(default=None, ge=1.0)
    rack: Rack | None = None
    metadata: Metadata = Field(default_factory=Metadata)

    @property
    def pue(self) -> float:
        """The override, else that of the facility, else that of the grid's default facility."""
        if self.pue_override is not None:
            return self.pue_override
        return self.facility.pue if self.facility is not None else self.grid.pue

    @property
    def wue(self) -> float | None:
        """Litres for each kWh of computing energy, or None where it is not known."""
        if self.facility is None:
            return self.grid.wue
        return None if self.facility.wue is None else float(self.facility.wue.to("L/kWh").magnitude)


class CloudPrice(Entry):
    """A rented instance: the price of all its accelerators together, per hour, with the date it was asked."""

    name: str
    provider: str
    accelerator: str
    accelerators: int = Field(gt=0)
    price: HourlyPrice
    date: str
    commitment: str = "on-demand"
    metadata: Metadata = Field(default_factory=Metadata)

    @property
    def price_per_accelerator(self) -> Any:
        return (self.price / self.accelerators).to("USD/h")
