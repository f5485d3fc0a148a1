"""Kernels of a calibrated training step beside those of its operators (:mod:`mlsysim.physics.operators`).

overlap        max(a, b) + kappa min(a, b)                     kappa 0: hidden for free; 1: nothing is gained
power cap      R ((P - P_0) / (P_full - P_0))^e
"""

from __future__ import annotations

from typing import Any

from mlsysim.units.kernel import kernel
from mlsysim.units.ops import maximum, minimum


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
