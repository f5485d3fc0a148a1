"""``Hardware``: the silicon zoo.

A chip of a TOML file, by the file's path in place of a name: ``mlsysim eval Llama3_8B chip.toml``, ``--on 8xchip.toml``.

The file is an entry as the zoo has them (``[My_Chip]``, docs/howto/add-a-chip.md), or the fields of one chip by themselves, its peaks by
format or as ``peak_flops`` and ``precision_flops``. It needs no ``source``: the file is the source. The path stays the chip's key, so that a
plan that names it can be asked again.
"""

from __future__ import annotations

import os
import tomllib
from functools import lru_cache
from pathlib import Path
from typing import Any

from mlsysim.errors import InputError
from mlsysim.hardware.slices import slice_of
from mlsysim.hardware.types import HardwareNode
from mlsysim.units.registry import Q_
from mlsysim.zoo.labels import Chips
from mlsysim.zoo.provenance import Metadata
from mlsysim.zoo.registry import Registry, provenance
from mlsysim.zoo.writing import files_allowed

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


def _beyond(name: str) -> HardwareNode | None:
    return chip_in_file(name, _chip) or slice_of(name, Hardware)


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
    beyond=_beyond,
    reads=Chips(),
)


ENDING = ".toml"
_LARGEST = 1_000_000


def chip_in_file(name: str, build: Any) -> HardwareNode | None:
    """The chip in a file; None where the name is not that of a TOML file that is there and may be read."""
    if not name.lower().endswith(ENDING) or not files_allowed() or "\0" in name or not os.path.isfile(name):
        return None
    stamp = os.stat(name)
    return _read(name, build, stamp.st_mtime_ns, stamp.st_size)


@lru_cache(maxsize=64)
def _read(path: str, build: Any, changed: int, size: int) -> HardwareNode:
    short = Path(path).name[:200]
    try:
        if size > _LARGEST:
            raise ValueError(f"larger than {_LARGEST:,} bytes")
        table = tomllib.loads(Path(path).read_text(encoding="utf-8"))
        return _alone(path, table, build)
    except (OSError, ValueError, RecursionError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        end = "" if reason.endswith((".", ".)")) else "."
        raise InputError(f"{short!r} is not a chip that can be read: {reason}{end}", field="on") from None


def _alone(path: str, table: dict[str, Any], build: Any) -> HardwareNode:
    if "workload" in table:
        raise ValueError("it is a plan, and is asked for with `mlsysim eval FILE`")
    if "memory" not in table:
        entries = {key: value for key, value in table.items() if isinstance(value, dict) and "memory" in value}
        if len(entries) != 1:
            found = f"it has {len(entries)}: {', '.join(entries)}" if entries else "it has none"
            raise ValueError(f"expected one chip with [compute] and [memory], and {found}")
        ((key, table),) = entries.items()
        table = {"name": key} | table
    fields = {name: value for name, value in table.items() if name not in ("namespace", "aliases", "override")}
    fields.setdefault("name", Path(path).stem)
    fields.pop("source", None)
    own = Metadata(key=path, source_title=f"{Path(path).name}, a file of your own", kind="user")
    compute = fields.get("compute")
    if isinstance(compute, dict) and "peak_flops" in compute:
        headline = compute.get("headline", "fp16")
        peaks = {headline: compute["peak_flops"]} | compute.get("precision_flops", {})
        fields["compute"] = {"headline": headline} | peaks
    return build(fields, own)
