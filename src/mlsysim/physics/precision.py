"""Bytes per element of every number format, and the names people use for them.

An unknown precision raises; there is no default. Block-scaled formats carry their scales: MXFP8 and MXFP4 share
one 8-bit exponent among 32 values (8.25 and 4.25 bits each), NVFP4 one 8-bit scale among 16 (4.5 bits each) [1, 2].

[1] OCP Microscaling Formats (MX) Specification v1.0, 2023.
[2] NVIDIA, "Introducing NVFP4 for Efficient and Accurate Low-Precision Inference", 2025.
"""

from __future__ import annotations

from mlsysim.errors import unknown_name

BYTES_PER_ELEMENT: dict[str, float] = {
    "fp64": 8.0, "fp32": 4.0, "tf32": 4.0, "fp16": 2.0, "bf16": 2.0, "fp8": 1.0, "mxfp8": 1.03125, "int8": 1.0,
    "fp6": 0.75, "fp4": 0.5, "int4": 0.5, "mxfp4": 0.53125, "nvfp4": 0.5625,
}  # fmt: skip

_ALIASES = {
    "float64": "fp64", "double": "fp64", "float32": "fp32", "float": "fp32", "single": "fp32", "float16": "fp16",
    "half": "fp16", "bfloat16": "bf16", "float8": "fp8", "fp8e4m3": "fp8", "fp8e5m2": "fp8", "e4m3": "fp8",
    "float4": "fp4", "w4a16": "int4",
}  # fmt: skip

_COMPUTES_AS = {"mxfp8": "fp8", "mxfp4": "fp4", "nvfp4": "fp4"}


def precision_name(name: str) -> str:
    """The canonical name of a precision; raises with the nearest valid one."""
    if isinstance(name, str):
        if name in BYTES_PER_ELEMENT:
            return name
        key = name.lower().replace("-", "").replace("_", "").replace(" ", "")
        key = _ALIASES.get(key, key)
        if key in BYTES_PER_ELEMENT:
            return key
    raise unknown_name("precision", name, BYTES_PER_ELEMENT, remedy="use one of " + ", ".join(BYTES_PER_ELEMENT) + ".")


def bytes_per_element(name: str) -> float:
    """Bytes of one element, scales included.

    >>> bytes_per_element("bf16"), bytes_per_element("int4")
    (2.0, 0.5)
    """
    size = BYTES_PER_ELEMENT.get(name) if isinstance(name, str) else None
    return size or BYTES_PER_ELEMENT[precision_name(name)]


def is_narrow(name: str) -> bool:
    """Whether a format has fewer than 16 bits."""
    return bytes_per_element(name) < bytes_per_element("bf16")


def compute_precision(name: str) -> str:
    """The precision whose arithmetic rate applies: a block-scaled format computes at the rate of its elements."""
    canonical = precision_name(name)
    return _COMPUTES_AS.get(canonical, canonical)
