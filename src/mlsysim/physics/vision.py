"""Times of networks of fixed shape: what bounds elementwise kernels, host-bound passes.

    bandwidth of elementwise kernels   1 / (1/W + i/V)        memory W and vector arithmetic V both take their share
    pass                               |device, launches|_p   a soft maximum; p = 1 adds, large p takes the larger

Elementwise, depthwise and norm kernels of a framework execute i operations of address arithmetic, conversion and predicates
for each byte. Where memory is fast beside the vector units (A100, H200), these bound them and not memory.
"""

from __future__ import annotations

from typing import Any

from mlsysim.physics.operators import soft_maximum
from mlsysim.units.kernel import kernel


@kernel("""
    bandwidth: byte/s [1e10, 1e13], vector_rate: flop/s [1e12, 2e14],
    intensity: flop/byte [0.1, 30] -> bandwidth: byte/s
""")
def elementwise_bandwidth(bandwidth: Any, vector_rate: Any, intensity: Any) -> Any:
    """Bytes a second of kernels that move memory and execute ``intensity`` vector operations for each byte."""
    return 1 / (1 / bandwidth + intensity / vector_rate)


@kernel("device: s [1e-5, 10], host: s [1e-5, 10], sharpness [1, 8] -> time: s")
def overlapped_time(device: Any, host: Any, sharpness: Any) -> Any:
    """Device work and launches side by side: the p-norm of both."""
    return soft_maximum(device, host, sharpness)
