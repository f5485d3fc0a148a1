"""Times of networks of fixed shape: what bounds elementwise kernels, power-limited clocks, host-bound passes.

    bandwidth of elementwise kernels   1 / (1/W + i/V)        memory W and vector arithmetic V both take their share
    clock under a power limit          min(1, r / r0)^a       r watts for each unit of vector rate, r0 that of the generation
    pass                               |device, launches|_p   a soft maximum; p = 1 adds, large p takes the larger

Elementwise, depthwise and norm kernels of a framework execute i operations of address arithmetic, conversion and predicates
for each byte. Where memory is fast beside the vector units (A100, H200), these bound them and not memory.
"""

from __future__ import annotations

from typing import Any

from mlsysim.physics.operators import soft_maximum
from mlsysim.units.kernel import kernel
from mlsysim.units.ops import minimum, power


@kernel("""
    bandwidth: byte/s [1e10, 1e13], vector_rate: flop/s [1e12, 2e14],
    intensity: flop/byte [0.1, 30] -> bandwidth: byte/s
""")
def elementwise_bandwidth(bandwidth: Any, vector_rate: Any, intensity: Any) -> Any:
    """Bytes a second of kernels that move memory and execute ``intensity`` vector operations for each byte."""
    return 1 / (1 / bandwidth + intensity / vector_rate)


@kernel("""
    limit: W [10, 2000], vector_rate: flop/s [1e12, 2e14], usual: J/flop [1e-12, 3e-11], exponent [0.1, 1] -> share
""")
def clock_share(limit: Any, vector_rate: Any, usual: Any, exponent: Any) -> Any:
    """Clock of a card whose power limit is low for its rate, over the clock of its datasheet."""
    return power(minimum(limit / (vector_rate * usual), 1.0), exponent)


@kernel("device: s [1e-5, 10], host: s [1e-5, 10], sharpness [1, 8] -> time: s")
def overlapped_time(device: Any, host: Any, sharpness: Any) -> Any:
    """Device work and launches side by side: the p-norm of both."""
    return soft_maximum(device, host, sharpness)
