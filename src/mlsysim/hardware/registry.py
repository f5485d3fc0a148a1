"""``Hardware``: the silicon zoo."""

from __future__ import annotations

from typing import Any

from mlsysim.errors import InputError
from mlsysim.hardware.chip_file import chip_in_file
from mlsysim.hardware.types import HardwareNode
from mlsysim.units.registry import Q_
from mlsysim.zoo.labels import Chips
from mlsysim.zoo.provenance import Metadata
from mlsysim.zoo.registry import Registry, provenance

FILES = (
    "nvidia.toml", "amd_intel.toml", "tpu_aws.toml", "specialised.toml", "cpu.toml", "apple_mobile.toml",
    "micro.toml",
)  # fmt: skip


def build(key: str, table: dict[str, Any]) -> HardwareNode:
    """A chip from the fields of an entry."""
    table = {name: value for name, value in table.items() if name != "namespace"}
    return _chip(table, provenance(key, table))


def _chip(table: dict[str, Any], metadata: Metadata) -> HardwareNode:
    table = dict(table)
    peaks = dict(table.pop("compute", {}))
    headline = peaks.pop("headline", "fp16")
    if headline not in peaks:
        raise InputError(f"the headline precision {headline!r} has no peak.")
    table["compute"] = {
        "peak_flops": peaks[headline],
        "precision_flops": peaks,
        "sparse_flops": table.pop("sparse", {}),
        "headline": headline,
    }
    if "host_link" in table:
        table["interconnect"] = table.pop("host_link")
    if "embodied_carbon" in table:
        table["embodied_carbon_kg"] = Q_(table.pop("embodied_carbon")).to("kgCO2e").magnitude
    return HardwareNode(metadata=metadata, **table)


def _of_file(name: str) -> HardwareNode | None:
    return chip_in_file(name, _chip)


Hardware = Registry(
    "Hardware",
    "hardware",
    HardwareNode,
    {
        "year": "release_year",
        "peak": "compute.peak_flops",
        "precision": "compute.headline",
        "memory": "memory.capacity",
        "bandwidth": "memory.bandwidth",
        "TDP": "tdp",
    },
    build,
    names=FILES,
    namespaces=("Cloud", "Workstation", "Mobile", "Edge", "Tiny"),
    beyond=_of_file,
    reads=Chips(),
)
