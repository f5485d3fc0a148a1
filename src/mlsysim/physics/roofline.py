"""The roofline: work divided by rate, and where the two ceilings meet.

A pass of F operations that moves B bytes takes at least F / (eta P) on arithmetic units with peak P, and at least
B / W over a memory of bandwidth W. The longer of the two binds. They are equal at the arithmetic intensity F/B = eta P / W;
with eta = 1 that is the ridge point P / W of the chip (Williams, Waterman and Patterson, CACM 52(4), 2009).
"""

from __future__ import annotations

from typing import Any

from mlsysim.units.kernel import kernel
from mlsysim.units.ops import maximum


@kernel("operations: flop [1e6, 1e18], peak: flop/s [1e9, 1e16], efficiency [0.01, 1] -> time: s")
def compute_time(operations: Any, peak: Any, efficiency: Any) -> Any:
    """Time of F operations at the fraction ``efficiency`` of the peak rate."""
    return operations / (peak * efficiency)


@kernel("moved: byte [1e3, 1e13], bandwidth: byte/s [1e6, 1e14] -> time: s")
def memory_time(moved: Any, bandwidth: Any) -> Any:
    """Time to move B bytes."""
    return moved / bandwidth


@kernel("""
    operations: flop [1e6, 1e18], moved: byte [1e3, 1e13], peak: flop/s [1e9, 1e16], bandwidth: byte/s [1e6, 1e14],
    efficiency [0.01, 1] -> time: s
""")
def roofline_time(operations: Any, moved: Any, peak: Any, bandwidth: Any, efficiency: Any) -> Any:
    """The longer of compute and memory time; perfect overlap of the two is assumed."""
    return maximum(compute_time(operations, peak, efficiency), memory_time(moved, bandwidth))


@kernel("compute: s [1e-6, 1e3], memory: s [1e-6, 1e3], dispatch: s [1e-6, 0.01] -> time: s")
def node_time(compute: Any, memory: Any, dispatch: Any) -> Any:
    """The longer of compute and memory, after the dispatch."""
    return maximum(compute, memory) + dispatch


@kernel("peak: flop/s [1e9, 1e16], bandwidth: byte/s [1e6, 1e14] -> intensity: flop/byte")
def ridge_point(peak: Any, bandwidth: Any) -> Any:
    """Arithmetic intensity above which the chip computes and below which it waits for memory."""
    return peak / bandwidth
