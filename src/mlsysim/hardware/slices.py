"""A slice of a GPU as a chip of its own: ``A100 MIG 3g.40gb``, ``H100-80GB-MIG-1g.10gb``, ``1g.5gb (A100)``.

A profile Ng.Mgb has N compute slices, of 14 of the 108 multiprocessors of an A100 (56 of an A30) and 16 of the 132 of an H100, and M GB, with as many
eighths of the bandwidth as of the memory (NVIDIA, Multi-Instance GPU User Guide, supported profiles). Nothing joins it to other slices. Power and prices are those of the
whole GPU, so that a slice has none.
"""

from __future__ import annotations

import re
from typing import Any

from mlsysim.hardware.types import HardwareNode

_PROFILE = re.compile(r"(?:\bmig[-_ ]*|(?<![\w.]))([1-7])g\.(\d{1,3})gb(?:\+(?:me|gfx)\b)?(?![\w.])", re.IGNORECASE)
_MEMORY = re.compile(r"[-_ ]*\d{2,3} ?gi?b\b", re.IGNORECASE)
_EIGHTHS = {1: (1, 2), 2: (2, 4), 3: (4,), 4: (4, 8), 7: (8,)}
"""Eighths of the memory that profiles of so many compute slices have."""
_SHARES = {"A30": 14 / 56, "Ampere": 14 / 108, "Hopper": 16 / 132, "Blackwell": 16 / 132, "Blackwell Ultra": 16 / 132}
"""A compute slice's share of the multiprocessors, by chip and by generation; Blackwell's is taken to be Hopper's."""


def slice_of(name: str, zoo: Any) -> HardwareNode | None:
    """The slice that a label means; None where it names none, or none of a chip that the ``zoo`` knows."""
    found = _PROFILE.search(name)
    if found is None:
        return None
    slices, memory = int(found[1]), int(found[2])
    rest = re.sub(r"\bmig\b|[()\[\],]", " ", name[: found.start()] + " " + name[found.end() :], flags=re.IGNORECASE)
    plain = _MEMORY.sub("", rest).strip(" -_")
    for eighths in _EIGHTHS.get(slices, ()):
        whole = zoo.get(f"{plain} {8 * memory // eighths}GB", None)
        if whole is not None and whole.vendor == "NVIDIA" and "HBM" in str(whole.memory.type):
            share = next((_SHARES[of] for of in (whole.metadata.key, whole.generation) if of in _SHARES), None)
            return None if share is None else _cut(whole, slices, memory, slices * share, eighths / 8)
    return None


def _cut(whole: HardwareNode, slices: int, memory: int, share: float, part: float) -> HardwareNode:
    peaks = whole.compute
    compute = peaks.model_copy(
        update={
            "peak_flops": peaks.peak_flops * share,
            "precision_flops": {name: rate * share for name, rate in peaks.precision_flops.items()},
            "sparse_flops": {name: rate * share for name, rate in peaks.sparse_flops.items()},
        }
    )
    held = whole.memory.model_copy(
        update={
            "capacity": whole.memory.capacity * part,
            "bandwidth": whole.memory.bandwidth * part,
        }
    )
    key = f"{whole.metadata.key}-MIG-{slices}g.{memory}gb"
    none = dict.fromkeys(("tdp", "unit_cost", "cost_date", "embodied_carbon_kg", "link"))
    named = {
        "name": f"{whole.name} MIG {slices}g.{memory}gb",
        "metadata": whole.metadata.model_copy(update={"key": key}),
    }
    return whole.model_copy(update={"compute": compute, "memory": held, **none, **named})
