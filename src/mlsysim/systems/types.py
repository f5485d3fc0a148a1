"""Layer D: the types of systems, without numbers.

Fleet
├── Node               accelerators, the link between them, network adapters, power supplies, host power
│   └── HardwareNode
├── NetworkFabric      topology, bandwidth of a port, latency, oversubscription
└── GridProfile or Datacenter
"""

import math
from typing import Any, Literal

from pydantic import Field, field_validator

from mlsysim.errors import InputError, unknown_name
from mlsysim.hardware.registry import Hardware
from mlsysim.hardware.types import HardwareNode
from mlsysim.infra.registry import Grids
from mlsysim.infra.types import Datacenter, GridProfile
from mlsysim.physics.topology import INSIDE, TITLES, topology_key
from mlsysim.units.fields import Bandwidth, ByteRate, Dollars, Seconds, Watts
from mlsysim.units.text import many
from mlsysim.zoo.provenance import Entry, Metadata

__all__ = ["Fleet", "Metadata", "NetworkFabric", "Node"]
_BOARD = 8
"""Accelerators of a board: more of them under one link are a rack."""


class Node(Entry):
    """A server: accelerators joined by a fast link.

    ``intra_node_bw`` is per accelerator, both directions together, as vendors quote NVLink. ``nics_per_node`` counts
    adapters of the compute network; left at its default, every accelerator is taken to have the fabric's bandwidth to
    itself, while the failure rate counts one adapter. ``host_bandwidth`` is that of all memory of its processors.
    """

    name: str
    accelerator: HardwareNode
    accelerators_per_node: int = Field(default=8, gt=0)
    intra_node_bw: ByteRate
    nics_per_node: int = Field(default=1, gt=0)
    psus_per_node: int = Field(default=2, gt=0)
    nic_bandwidth: Bandwidth | None = None
    host_power: Watts | None = None
    host_bandwidth: ByteRate | None = None
    cooling: Literal["air", "liquid"] | None = None
    max_power: Watts | None = None
    unit_cost: Dollars | None = None
    cost_date: str | None = None
    metadata: Metadata = Field(default_factory=Metadata)

    @field_validator("accelerator", mode="before")
    @classmethod
    def _by_name(cls, value: Any) -> Any:
        return Hardware.get(value) if isinstance(value, str) else value

    @property
    def nics_given(self) -> bool:
        """Whether the number of adapters was stated rather than left at its default."""
        return "nics_per_node" in self.model_fields_set

    def part(self, each: int) -> "Node":
        """So many accelerators of the node, with their share of its host, adapters and price.

        Of a rack that is used in part the rest is no part of its link domain.
        """
        share, chip = each / self.accelerators_per_node, self.accelerator
        update: dict[str, Any] = {"name": f"{each} of {self.name}", "accelerators_per_node": each}
        if self.nics_given:
            update["nics_per_node"] = max(1, round(self.nics_per_node * share))
        update |= {
            f: getattr(self, f) * share
            for f in ("host_power", "host_bandwidth", "max_power", "unit_cost")
            if getattr(self, f)
        }
        if chip.link is not None and (chip.link.domain or 0) > _BOARD:
            update["accelerator"] = chip.model_copy(update={"link": chip.link.model_copy(update={"domain": each})})
        return self.model_copy(update=update)

    def with_chip(self, chip: HardwareNode) -> "Node":
        """The same node with another chip in it: of a node's price nothing is known where that of the chip differs."""
        own = self.accelerator
        if chip == own:
            return self
        update: dict[str, Any] = {"accelerator": chip}
        if chip.unit_cost != own.unit_cost:
            update["unit_cost"] = None
        if chip.link is not None and chip.link != own.link:
            update["intra_node_bw"] = chip.link.bandwidth_total
        return self.model_copy(update=update)

    def holding(self, accelerators: int) -> "tuple[Node, int] | None":
        """Nodes, or parts of them, that have so many accelerators in all: whole ones, a part of one, equal parts of racks (which
        are seldom used whole) of more than a board each, and of boards parts that fill them; None where there are none."""
        own = self.accelerators_per_node
        if accelerators % own == 0:
            return self, accelerators // own
        if own <= _BOARD and own < accelerators:
            each = math.gcd(own, accelerators)
            return (self.part(each), accelerators // each) if each > 1 else None
        each = max(d for d in range(1, min(own, accelerators) + 1) if accelerators % d == 0)
        return (self.part(each), accelerators // each) if accelerators < own or each > _BOARD else None


class NetworkFabric(Entry):
    """The network between nodes. ``bandwidth`` is that of one port in one direction."""

    name: str
    topology: str = "fat-tree"
    bandwidth: Bandwidth
    latency: Seconds | None = None
    oversubscription_ratio: float = Field(default=1.0, ge=1.0)
    technology: str | None = None
    metadata: Metadata = Field(default_factory=Metadata)

    @field_validator("topology")
    @classmethod
    def _known(cls, value: str) -> str:
        known = (*TITLES, *INSIDE)
        if topology_key(value) not in known:
            raise unknown_name("topology of a network", value, known, remedy=f"use one of {', '.join(known)}.")
        return value


class Fleet(Entry):
    """``count`` equal nodes on a fabric, somewhere; ``storage_bandwidth`` is what its file system takes from all of them together.

    Several ``sites`` have equal parts of it; ``wan_bandwidth`` is what each has to the others, in one direction, for all its nodes.
    One that is ``joined`` to others stands on a network even where it is a single node.
    """

    name: str
    node: Node
    count: int = Field(gt=0)
    fabric: NetworkFabric
    region: GridProfile | None = None
    datacenter: Datacenter | None = None
    mtbf_hours: float | None = Field(default=None, gt=0)
    storage_bandwidth: ByteRate | None = None
    sites: int = Field(default=1, ge=1)
    wan_bandwidth: Bandwidth | None = None
    wan_round_trip: Seconds | None = None
    joined: bool = False
    metadata: Metadata = Field(default_factory=Metadata)

    @field_validator("region", mode="before")
    @classmethod
    def _by_name(cls, value: Any) -> Any:
        return Grids.get(value) if isinstance(value, str) else value

    def model_post_init(self, context: Any) -> None:
        if self.region is not None and self.datacenter is not None and self.datacenter.grid != self.region:
            raise InputError(
                f"Fleet {self.name!r} has region {self.region.name!r} and a datacenter on {self.datacenter.grid.name!r}; give one of them."
            )

        wide = self.wan_bandwidth is None, self.wan_round_trip is None
        if self.sites > 1 and (any(wide) or self.count % self.sites):
            need = (
                "the bandwidth and the round trip of the link between them (wan_bandwidth, wan_round_trip)"
                if any(wide)
                else "the same number at each"
            )
            raise InputError(f"{self.sites} sites for {many(self.count, 'node')} need {need}.", field="sites")
        if self.sites == 1 and not all(wide):
            raise InputError("A link between sites needs sites of at least 2.", field="sites")

    def networked(self, **given: Any) -> "Fleet":
        """The same with another network: ``oversubscription``, ``rails`` (adapters of a node), ``sites`` and their WAN; None for as it is."""
        told = {name: value for name, value in given.items() if value is not None}
        if not told:
            return self
        fabric, node = self.fabric, self.node
        if "oversubscription" in told:
            fabric = fabric.model_copy(update={"oversubscription_ratio": told.pop("oversubscription")})
        if "rails" in told:
            node = node.model_copy(update={"nics_per_node": told.pop("rails")})
        fields = {name: getattr(self, name) for name in self.model_fields_set}
        return type(self)(**{**fields, "node": node, "fabric": fabric, **told})

    def sized(self, accelerators: int) -> "Fleet":
        """The same with so many accelerators, in whole nodes or equal parts of racks or nodes."""
        found, own = self.node.holding(accelerators), self.node.accelerators_per_node
        if found is None:
            low = accelerators - accelerators % own
            words = f"{accelerators:,} x {self.node.accelerator.name} do not fill nodes of {own} ({self.node.name})"
            raise InputError(f"{words}; use {low:,} or {low + own:,}.", field="accelerators")
        label = f"{accelerators:,} x {self.node.accelerator.name}"
        return self.model_copy(update={"node": found[0], "count": found[1], "name": label})

    @property
    def total_accelerators(self) -> int:
        return self.count * self.node.accelerators_per_node

    @property
    def grid(self) -> GridProfile | None:
        """Where the electricity comes from."""
        return self.datacenter.grid if self.datacenter is not None else self.region

    @property
    def effective_pue(self) -> float:
        """PUE of the datacenter, else of the region's default facility, else 1: computing power alone."""
        if self.datacenter is not None:
            return self.datacenter.pue
        return self.region.pue if self.region is not None else 1.0

    @property
    def adapters_per_accelerator(self) -> float:
        """Adapters of a node for each of its accelerators; one, unless the node states its adapters."""
        return self.node.nics_per_node / self.node.accelerators_per_node if self.node.nics_given else 1.0

    @property
    def bandwidth_per_accelerator(self) -> Any:
        """Fabric bandwidth that one accelerator has to itself, one direction: that of its adapters."""
        return self.fabric.bandwidth * self.adapters_per_accelerator
