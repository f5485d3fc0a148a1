"""Power of an accelerator from what it does, and its clock under a limit.

    x   clock over its highest;   v(x) = max(v_min, 1 - s (1 - x))                         relative voltage
    P(x) = deep + (wait - deep) x v^2                        clocks up, nothing runs
         + v^2 [ b A x + e_F F ]                             kernels run for a share b of the time; operations a second
         + e_B B                                             bytes a second, whose memory has a voltage of its own

Switching a capacitance C at a voltage V costs C V^2, so that energy for an operation goes with v^2 and what runs with the
clock with x v^2; the lowest voltage that still switches is v_min. Measured accelerators are far from proportional to use: kernels
that run back to back draw 0.3 of the TDP whatever they do (A), on top of 0.18 for waiting. A limit is kept by lowering x, so
that power is not clipped but traded for time. With a share t_c of the time that follows the clock, t_m that waits for memory
and the rest that does neither, all at the usual clock x_0,

    T(x) = t_c x_0 / x + t_m m(x) / m(x_0) + 1 - t_c - t_m,       m(x) = max(1, x_m / x)
    P(x) = deep + (wait - deep) x v^2 + { v^2 [ A b (w_c x_0 + w_m x m(x) / m(x_0)) + e_F F ] + e_B B } / T(x)

with w the shares of t_c and t_m in their sum. What is done in a step does not change, hence the numerator; bandwidth holds
down to x_m. The numerator rises and T falls with x, so P rises with x: there is one clock for a limit, a lower limit never is
faster and never draws more. Left out: temperature (chips differ by about 10 % at the same load), what the data are (zeros halve
the energy of a product), and links, whose power cannot be told from zero (below 30 W a chip).

:func:`proportional_power` is the first-order form of the documents, TDP (i + (1 - i) MFU) with i = 0.3 (Barroso and Hölzle, 2007),
which is wrong by half for serving; walls 17 and 18 take it where they are told no power.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mlsysim.units.kernel import kernel
from mlsysim.units.ops import maximum, sqrt, where


@kernel("tdp: W [0.01, 2e4], idle_fraction [0.01, 1], utilisation [1e-3, 1] -> power: W")
def proportional_power(tdp: Any, idle_fraction: Any, utilisation: Any) -> Any:
    """Power at a utilisation between 0 and 1."""
    return tdp * (idle_fraction + (1 - idle_fraction) * utilisation)


@kernel("clock [0.05, 1], slope [0.1, 1], least [0.3, 1] -> voltage")
def voltage(clock: Any, slope: Any, least: Any) -> Any:
    """Voltage over that of the highest clock."""
    return maximum(least, 1 - slope * (1 - clock))


@kernel("deep: W [1, 100], wait: W [100, 200], clock [0.05, 1], volts [0.3, 1] -> power: W")
def waiting_power(deep: Any, wait: Any, clock: Any, volts: Any) -> Any:
    """Power of a device that holds a program and waits, at a clock and a voltage."""
    return deep + (wait - deep) * clock * volts * volts


@kernel("""
    waiting: W [1, 200], floor: W [50, 500], busy [0.05, 1], per_flop: J/flop [1e-13, 1e-11], rate: flop/s [1e12, 1e15],
    per_byte: J/byte [1e-12, 1e-10], moved: byte/s [1e9, 1e13], clock [0.05, 1], volts [0.3, 1] -> power: W
""")
def running_power(
    waiting: Any,
    floor: Any,
    busy: Any,
    per_flop: Any,
    rate: Any,
    per_byte: Any,
    moved: Any,
    clock: Any,
    volts: Any,
) -> Any:
    """Power that a device would draw at a clock: waiting, running kernels, operations and bytes."""
    return waiting + volts * volts * (floor * busy * clock + per_flop * rate) + per_byte * moved


_DOUBLINGS = 4


@kernel("wanted: W [1, 2e3], limit: W [1, 2e3] -> power: W")
def limited_power(wanted: Any, limit: Any) -> Any:
    """Mean power under a limit, which is approached and not hit at once (a 16-norm): phases above it and below it are mixed."""
    ratio = wanted / limit
    for _ in range(_DOUBLINGS):
        ratio = ratio * ratio
    root = 1 + ratio
    for _ in range(_DOUBLINGS):
        root = sqrt(root)
    return wanted / root


@kernel("clock [0.05, 1], knee [0.1, 1] -> slower")
def streaming_time(clock: Any, knee: Any) -> Any:
    """Time of bytes over that at the highest clock: bandwidth holds down to the knee."""
    return maximum(1.0, knee / clock)


@kernel("clocked [0, 1], streamed [0, 1], slower [1, 20], streaming [1, 20] -> longer")
def stretched(clocked: Any, streamed: Any, slower: Any, streaming: Any) -> Any:
    """Time over that at the usual clock: of what follows the clock, of what waits for memory, and the rest."""
    return clocked * slower + streamed * streaming + (1 - clocked - streamed)


_HALVINGS, _SLOWEST = 50, 1e-9
"""Clocks that nobody would run at are found too, so that every limit above ``deep`` is kept and none is clipped."""


def clock_for(target: Any, drawn: Callable[[Any], Any]) -> Any:
    """The highest clock at most 1 whose power, which rises with it, is at most the target; numbers or arrays."""
    low: Any = _SLOWEST + 0.0 * target
    high: Any = 1.0 + 0.0 * target
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        above = drawn(middle) > target
        low, high = where(above, low, middle), where(above, middle, high)
    return where(drawn(1.0 + 0.0 * target) > target, low, high)
