"""``mlsysim.core.constants``: the registry, unit shorthands and named constants of the documents.

Values come from ``data/constants.toml`` and from the zoo, when they are first asked for.
"""

from __future__ import annotations

from typing import Any

from mlsysim.units.registry import Q_, Quantity, ureg
from mlsysim.zoo.constants import constant

__all__ = ["Q_", "Quantity", "ureg"]

_UNITS = [
    "byte", "bit", "flop", "second", "minute", "hour", "day", "year", "watt", "joule", "meter", "param", "token",
    "USD", "KB", "MB", "GB", "TB", "PB", "KiB", "MiB", "GiB", "TiB", "Gbps", "ms", "us", "ns", "kWh", "MWh", "TFLOPs",
    "GFLOPs", "PFLOPs", "EFLOP", "Mparam", "Bparam",
]  # fmt: skip

_LINKS = ("NVLINK_H100", "NVLINK_A100", "NVLINK_B200", "INFINIBAND_HDR", "INFINIBAND_NDR", "INFINIBAND_XDR")
_CONSTANTS = {f"{name}_BW": f"{name.lower()}_bandwidth" for name in (*_LINKS, "PCIE_GEN5")}
_FIGURES = {"MEM_BW": "memory_bw", "MEM_CAPACITY": "memory_capacity", "FLOPS_FP16_TENSOR": "peak_flops", "TDP": "tdp"}
_CHIPS = {f"{chip}_{name}": (chip, field) for chip in ("H100", "A100") for name, field in _FIGURES.items()}


def __getattr__(name: str) -> Any:
    if name in _CONSTANTS:
        return constant(_CONSTANTS[name]).quantity
    if name in _CHIPS:
        from mlsysim.hardware.registry import Hardware

        key, field = _CHIPS[name]
        return getattr(Hardware.get(key), field)
    if name in _UNITS:
        return ureg.parse_units(name)
    from mlsysim.errors import unknown_name

    raise unknown_name("constant", name, __dir__())


def __dir__() -> list[str]:
    return sorted([*__all__, *_UNITS, *_CONSTANTS, *_CHIPS])
