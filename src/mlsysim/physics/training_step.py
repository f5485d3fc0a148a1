"""Kernels of a calibrated training step: what attention, a stream of bytes and an overlap take.

    attention      t0 + F (1 + S0/S) / A
    stream         B / (e W)                                       norms, activations, conversions, the optimizer
    overlap        max(a, b) + kappa min(a, b)                     kappa 0: hidden for free; 1: nothing is gained

All are pure, closed and array-capable; :mod:`mlsysim.cases.train_layers` puts them together.
"""

from __future__ import annotations

from typing import Any

from mlsysim.units.kernel import Arg, kernel
from mlsysim.units.ops import maximum, minimum

__all__ = [
    "attention_time",
    "capped_rate",
    "overlapped",
    "stream_time",
]

_FLOPS = Arg("flop", 1e6, 1e15)
_BYTES = Arg("byte", 1e3, 1e12)
_RATE = Arg("flop/s", 1e12, 1e16)
_BANDWIDTH = Arg("byte/s", 1e10, 1e13)
_TIME = Arg("s", 1e-5, 10)
_START = Arg("s", 1e-7, 1e-4)
_SHARE = Arg("", 0.05, 1.0)


@kernel(
    inputs={
        "operations": _FLOPS,
        "tokens": Arg("", 16, 1e6),
        "rate": _RATE,
        "ramp": Arg("", 10, 3000),
        "start": _START,
    },
    outputs={"time": "s"},
)
def attention_time(operations: Any, tokens: Any, rate: Any, ramp: Any, start: Any) -> Any:
    """Fused attention; short sequences do not fill the chip."""
    return start + operations * (1 + ramp / tokens) / rate


@kernel(inputs={"moved": _BYTES, "bandwidth": _BANDWIDTH, "share": _SHARE}, outputs={"time": "s"})
def stream_time(moved: Any, bandwidth: Any, share: Any) -> Any:
    """Bytes at a share of the memory bandwidth."""
    return moved / (share * bandwidth)


@kernel(inputs={"a": _TIME, "b": _TIME, "kappa": Arg("", 0.01, 1.0)}, outputs={"time": "s"})
def overlapped(a: Any, b: Any, kappa: Any) -> Any:
    """Two activities at the same time, each of which slows the other: the longer, and a part of the shorter."""
    return maximum(a, b) + kappa * minimum(a, b)


@kernel(
    inputs={
        "rate": _RATE,
        "cap": Arg("W", 200, 1000),
        "full": Arg("W", 300, 1400),
        "fixed": Arg("W", 50, 150),
        "exponent": Arg("", 0.2, 1.0),
    },
    outputs={"rate": "flop/s"},
)
def capped_rate(rate: Any, cap: Any, full: Any, fixed: Any, exponent: Any) -> Any:
    """The rate under a power cap below the chip's own: dynamic power over its full value, to an exponent."""
    return rate * ((cap - fixed) / (full - fixed)) ** exponent
