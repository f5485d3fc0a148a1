"""Kernels of a calibrated training step: what attention, a stream of bytes and an overlap take.

    attention      t0 + F (1 + S0/S) / A
    stream         B / (e W)                                       norms, activations, conversions, the optimizer
    overlap        max(a, b) + kappa min(a, b)                     kappa 0: hidden for free; 1: nothing is gained

All are pure, closed and array-capable; :mod:`mlsysim.cases.train_layers` puts them together.
"""

from __future__ import annotations

from typing import Any

from mlsysim.units.kernel import kernel
from mlsysim.units.ops import maximum, minimum


@kernel("""
    operations: flop [1e6, 1e15], tokens [16, 1e6], rate: flop/s [1e12, 1e16], ramp [10, 3000],
    start: s [1e-7, 1e-4] -> time: s
""")
def attention_time(operations: Any, tokens: Any, rate: Any, ramp: Any, start: Any) -> Any:
    """Fused attention; short sequences do not fill the chip."""
    return start + operations * (1 + ramp / tokens) / rate


@kernel("moved: byte [1e3, 1e12], bandwidth: byte/s [1e10, 1e13], share [0.05, 1] -> time: s")
def stream_time(moved: Any, bandwidth: Any, share: Any) -> Any:
    """Bytes at a share of the memory bandwidth."""
    return moved / (share * bandwidth)


@kernel("a: s [1e-5, 10], b: s [1e-5, 10], kappa [0.01, 1] -> time: s")
def overlapped(a: Any, b: Any, kappa: Any) -> Any:
    """Two activities at the same time, each of which slows the other: the longer, and a part of the shorter."""
    return maximum(a, b) + kappa * minimum(a, b)


@kernel("""
    rate: flop/s [1e12, 1e16], cap: W [200, 1e3], full: W [300, 1400], fixed: W [50, 150],
    exponent [0.2, 1] -> rate: flop/s
""")
def capped_rate(rate: Any, cap: Any, full: Any, fixed: Any, exponent: Any) -> Any:
    """The rate under a power cap below the chip's own: dynamic power over its full value, to an exponent."""
    return rate * ((cap - fixed) / (full - fixed)) ** exponent
