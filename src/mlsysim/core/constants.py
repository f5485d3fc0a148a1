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

_CONSTANTS = {
    "NVLINK_H100_BW": "nvlink_h100_bandwidth",
    "NVLINK_A100_BW": "nvlink_a100_bandwidth",
    "NVLINK_B200_BW": "nvlink_b200_bandwidth",
    "INFINIBAND_HDR_BW": "infiniband_hdr_bandwidth",
    "INFINIBAND_NDR_BW": "infiniband_ndr_bandwidth",
    "INFINIBAND_XDR_BW": "infiniband_xdr_bandwidth",
    "PCIE_GEN5_BW": "pcie_gen5_bandwidth",
}

_CHIPS = {
    "H100_MEM_BW": ("H100", "memory_bw"),
    "H100_MEM_CAPACITY": ("H100", "memory_capacity"),
    "H100_FLOPS_FP16_TENSOR": ("H100", "peak_flops"),
    "H100_TDP": ("H100", "tdp"),
    "A100_MEM_BW": ("A100", "memory_bw"),
    "A100_MEM_CAPACITY": ("A100", "memory_capacity"),
    "A100_FLOPS_FP16_TENSOR": ("A100", "peak_flops"),
    "A100_TDP": ("A100", "tdp"),
}


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
