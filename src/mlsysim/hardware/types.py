"""Layer B: the types of hardware, without numbers.

    HardwareNode
    ├── ComputeCore         dense peak per precision; structured-sparse peaks apart
    ├── MemoryHierarchy     main memory, on-chip SRAM, flash, further tiers
    ├── StorageHierarchy    what feeds it data
    ├── IOInterconnect      the link to the host, per direction
    ├── ChipLink            the link to other chips, per direction and in total
    └── Reliability         mean time between failures

Peaks are dense and count a multiply-add as two operations. An unknown value is absent (None), never zero.
"""

import warnings
from typing import Annotated, Any

from pydantic import Field, PrivateAttr, field_validator, model_validator

from mlsysim.errors import DataWarning, UnknownNameError
from mlsysim.physics.precision import arithmetic_formats, compute_precision, precision_name
from mlsysim.physics.roofline import ridge_point
from mlsysim.units.fields import (
    ByteRate,
    Bytes,
    Capacity,
    Dollars,
    FlopRate,
    Joules,
    QuantityField,
    Record,
    Seconds,
    Watts,
    quantity_from,
)
from mlsysim.units.registry import Q_, Quantity
from mlsysim.zoo.constants import constant
from mlsysim.zoo.provenance import Entry, Metadata

__all__ = [
    "ChipLink", "ComputeCore", "HardwareNode", "IOInterconnect", "MemoryHierarchy", "MemoryTier", "Metadata",
    "Reliability", "StorageHierarchy",
]  # fmt: skip


def _arithmetic(precision: str) -> str:
    """The arithmetic of a format; that of its own name where chips have it (int4 is stored by weights and multiplied by few)."""
    name = precision_name(precision)
    return name if name in arithmetic_formats() else compute_precision(name)


class ComputeCore(Record):
    """Arithmetic: the headline peak, in ``headline`` precision, and the dense peak of every other precision."""

    peak_flops: FlopRate
    precision_flops: dict[str, FlopRate] = Field(default_factory=dict)
    sparse_flops: dict[str, FlopRate] = Field(default_factory=dict)
    headline: str = "fp16"

    @field_validator("precision_flops", "sparse_flops", mode="before")
    @classmethod
    def _named(cls, value: Any) -> Any:
        return {precision_name(name): rate for name, rate in value.items()} if isinstance(value, dict) else value

    @field_validator("headline")
    @classmethod
    def _canonical(cls, value: str) -> str:
        return precision_name(value)

    @property
    def precisions(self) -> dict[str, Any]:
        """Dense peaks by precision, the headline included."""
        return {self.headline: self.peak_flops, **self.precision_flops}

    def peak(self, precision: str) -> Any:
        """The dense peak at a precision; raises where the chip has no such arithmetic."""
        wanted = _arithmetic(precision)
        found = self.precision_flops.get(wanted)
        if found is None and wanted == self.headline:
            found = self.peak_flops
        if found is None:
            known = ", ".join(self.precisions)
            words = f"There is no {wanted} arithmetic on this chip for {precision!r}; its peaks are given for {known}."
            raise UnknownNameError(words, kind="arithmetic", name=str(precision), suggestions=())
        return found

    def supports(self, precision: str) -> bool:
        """Whether the chip has a peak at this precision."""
        wanted = _arithmetic(precision)
        return wanted in self.precision_flops or wanted == self.headline


class MemoryTier(Record):
    """A further level of memory, such as LPDDR beside HBM."""

    name: str
    capacity: Capacity
    bandwidth: ByteRate


class MemoryHierarchy(Record):
    """Main memory and what lies around it. Bandwidths are those of the datasheet."""

    capacity: Capacity
    bandwidth: ByteRate
    type: str | None = None
    sram_capacity: Bytes | None = None
    sram_bandwidth: ByteRate | None = None
    flash_capacity: Bytes | None = None
    flash_bandwidth: ByteRate | None = None
    bus_width_bits: int | None = Field(default=None, gt=0)
    data_rate: ByteRate | None = None
    tiers: tuple[MemoryTier, ...] = ()
    _stray_tdp: Any = PrivateAttr(default=None)

    def __init__(self, **data: Any) -> None:
        stray = data.pop("tdp", None)
        super().__init__(**data)
        if stray is not None:
            warnings.warn(
                "MemoryHierarchy got 'tdp', which belongs to HardwareNode (a closing parenthesis too late?); it is handed on.",
                DataWarning,
                stacklevel=2,
            )
            self._stray_tdp = quantity_from(stray, "W", "700 W", "tdp")


class StorageHierarchy(Record):
    """Storage that feeds the chip."""

    bandwidth: ByteRate
    capacity: Bytes | None = None
    latency: Seconds | None = None


class IOInterconnect(Record):
    """The link to the host; ``bandwidth`` is that of one direction."""

    name: str
    bandwidth: ByteRate
    latency: Seconds | None = None


class ChipLink(Record):
    """The link to other chips. ``domain`` is how many chips reach each other at this rate."""

    name: str
    bandwidth_total: ByteRate
    bandwidth_per_direction: ByteRate
    links: int | None = Field(default=None, gt=0)
    domain: int | None = Field(default=None, gt=0)
    latency: Seconds | None = None

    @model_validator(mode="after")
    def _directions(self) -> "ChipLink":
        if not 0.98 < (self.bandwidth_total / self.bandwidth_per_direction).to("").magnitude / 2 < 1.02:
            both, one = f"{self.bandwidth_total:~P}", f"{self.bandwidth_per_direction:~P}"
            raise ValueError(
                f"the link {self.name!r} has {both} in both directions and {one} in each, which is not its half."
            )
        return self


class Reliability(Record):
    """Mean time between failures of a component."""

    mtbf: Annotated[Any, QuantityField("s", "50000 h", zero=False)]


class HardwareNode(Entry):
    """One accelerator, processor or microcontroller."""

    name: str
    release_year: int | None = None
    compute: ComputeCore
    memory: MemoryHierarchy
    storage: StorageHierarchy | None = None
    interconnect: IOInterconnect | None = None
    link: ChipLink | None = None
    tdp: Watts | None = None
    battery_capacity: Joules | None = None
    unit_cost: Dollars | None = None
    cost_date: str | None = None
    embodied_carbon_kg: float | None = Field(default=None, ge=0)
    dispatch_tax: Seconds = Field(default_factory=lambda: constant("dispatch_tax").quantity)
    reliability: Reliability | None = None
    vendor: str | None = None
    family: str | None = None
    generation: str | None = None
    metadata: Metadata = Field(default_factory=Metadata)

    @model_validator(mode="before")
    @classmethod
    def _adopt_stray_tdp(cls, data: Any) -> Any:
        if isinstance(data, dict) and data.get("tdp") is None:
            stray = getattr(data.get("memory"), "_stray_tdp", None)
            if stray is not None:
                return {**data, "tdp": stray}
        return data

    def ridge_point(self, precision: str | None = None) -> Any:
        """Arithmetic intensity at which compute and memory take equally long (flop/byte)."""
        peak = self.compute.peak(precision) if precision else self.compute.peak_flops
        flops, bandwidth = peak.to("flop/s").magnitude, self.memory.bandwidth.to("byte/s").magnitude
        return Quantity(ridge_point(flops, bandwidth), "flop/byte")

    peak_flops = property(lambda self: self.compute.peak_flops)
    memory_bw = property(lambda self: self.memory.bandwidth)
    memory_capacity = ram = property(lambda self: self.memory.capacity)
    power_budget = property(lambda self: self.tdp)

    @property
    def alone(self) -> bool:
        """Whether nothing joins it to others of its kind, so that they cannot share a model."""
        return self.link is None and self.interconnect is None

    @property
    def embodied_carbon(self) -> Any:
        """Embodied carbon as a quantity, or None where it is not published."""
        return None if self.embodied_carbon_kg is None else Q_(self.embodied_carbon_kg, "kgCO2e")
