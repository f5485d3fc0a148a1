"""Power of an accelerator, at first order and from what its arithmetic and its memory do.

First order is a fixed idle share and the rest in proportion to utilisation.

P = TDP (i + (1 - i) MFU) with i = 0.3 (Barroso and Hölzle, 2007). Measured accelerators are far from proportional: an
H200 that only moves memory draws 0.6 to 0.9 of its TDP at an MFU of zero, so this form understates memory-bound work
by up to three times. :func:`utilised_power` adds what arithmetic and memory draw, each in proportion to its own
utilisation, and stops at the power cap; its shares are fitted to a chip. :func:`running_power` has a third state between
waiting and the cap: kernels that run back to back draw 0.6 of TDP even where they move and compute little. Under a cap P below the
chip's own a training step runs at R ((P - P_0) / (P_full - P_0))^e.
"""

from __future__ import annotations

from typing import Any

from mlsysim.units.kernel import kernel
from mlsysim.units.ops import minimum, power


@kernel("tdp: W [0.01, 2e4], idle_fraction [0.01, 1], utilisation [1e-3, 1] -> power: W")
def proportional_power(tdp: Any, idle_fraction: Any, utilisation: Any) -> Any:
    """Power at a utilisation between 0 and 1."""
    return tdp * (idle_fraction + (1 - idle_fraction) * utilisation)


_CORNER = 16


@kernel("""
    tdp: W [0.01, 2e4], idle [0.05, 1], arithmetic [0.1, 2], memory [0.1, 1], cap [0.05, 1],
    arithmetic_utilisation [1e-3, 0.4], memory_utilisation [1e-3, 0.4] -> power: W
""")
def utilised_power(
    tdp: Any, idle: Any, arithmetic: Any, memory: Any, cap: Any, arithmetic_utilisation: Any, memory_utilisation: Any
) -> Any:
    """Power of a running chip: waiting, plus arithmetic and memory at their utilisation, up to the cap."""
    return tdp * minimum(idle + arithmetic * arithmetic_utilisation + memory * memory_utilisation, cap)


@kernel("""
    tdp: W [0.01, 2e4], idle [0.05, 1], floor [0.05, 1], busy [0.05, 1], exponent [0.1, 1], memory [0.05, 1],
    memory_utilisation [1e-3, 0.4], arithmetic [0.1, 2], arithmetic_utilisation [1e-3, 0.4], cap [0.05, 1] -> power: W
""")
def running_power(
    tdp: Any,
    idle: Any,
    floor: Any,
    busy: Any,
    exponent: Any,
    memory: Any,
    memory_utilisation: Any,
    arithmetic: Any,
    arithmetic_utilisation: Any,
    cap: Any,
) -> Any:
    """Waiting, kernels running for a share ``busy`` of the time, and what memory and arithmetic add, up to the cap.

    The cap is approached and not hit at once (a 16-norm): the mean over phases above and below it lies below it.
    """
    running = floor * power(busy, exponent)
    wanted = idle + running + memory * memory_utilisation + arithmetic * arithmetic_utilisation
    return tdp * wanted / power(1 + power(wanted / cap, _CORNER), 1 / _CORNER)


@kernel("""
    rate: flop/s [1e12, 1e16], cap: W [200, 1e3], full: W [300, 1400], fixed: W [50, 150],
    exponent [0.2, 1] -> rate: flop/s
""")
def capped_rate(rate: Any, cap: Any, full: Any, fixed: Any, exponent: Any) -> Any:
    """The rate under a power cap below the chip's own: dynamic power over its full value, to an exponent."""
    return rate * ((cap - fixed) / (full - fixed)) ** exponent
