"""Joules on a ledger: the energy of a device over the time of a case, part by part.

A device draws ``idle`` watts whatever it does. On top come what an operation takes (J/FLOP), what a byte takes (J/byte) and what
running kernels take for every second in which there are any (W). Every form of power in use is of this kind:

    first order      P = TDP (i + (1 - i) MFU)                       (1 - i) TDP / peak for an operation, nothing else
    kernels          P = TDP min(cap, i + a MFU + m MBU)             a TDP / peak for an operation, m TDP / bandwidth for a byte
    running          P = TDP min(cap, i + f busy + a MFU + m MBU)    and f TDP for every second of running kernels

Over a time T, with MFU T = FLOP / peak and MBU T = bytes / bandwidth, the sum is

    P T = idle T + sum over parts of (J/FLOP flop + J/byte moved + W seconds)

so that a part has its own joules, and what no part causes is a line of its own, ``idle``. A cap, a clipped utilisation or an exponent on
``busy`` makes P T smaller than the sum: what is above ``idle T`` is then shared in the same proportions. Where nothing is known of what
the parts do, it is shared by their seconds on the critical path. Either way the joules add up to P T, the energy that an answer
prints. Kernels run in parts that wait for arithmetic, memory, start-up or a network; a loss and the host leave the device idle.

Left out: that a byte sent takes more than one moved at home, and the host, fans and conversion, which are other lines of a run.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from mlsysim.cases.ledger import Ledger, Part
from mlsysim.hardware.types import HardwareNode
from mlsysim.physics.power import proportional_power, utilised_power
from mlsysim.timing.power import power_terms
from mlsysim.timing.profile import profile
from mlsysim.units.kernel import kernel
from mlsysim.units.ops import maximum, minimum
from mlsysim.units.registry import to_si
from mlsysim.zoo.constants import constant

IDLE = "idle"
_WALL = 18
_RUNNING = frozenset(("peak", "vector", "bandwidth", "start", "link", "fabric"))
"""Resources of parts in which the device runs kernels."""


@kernel("""
    flop: flop [1e9, 1e18], moved: byte [1e6, 1e15], running: s [1e-3, 1e3], per_flop: J/flop [1e-13, 1e-10],
    per_byte: J/byte [1e-12, 1e-9], floor: W [1, 1e3] -> energy: J
""")
def dynamic_energy(flop: Any, moved: Any, running: Any, per_flop: Any, per_byte: Any, floor: Any) -> Any:
    """Energy of operations, bytes and running kernels, beside what the device draws anyway."""
    return per_flop * flop + per_byte * moved + floor * running


@dataclass(frozen=True, slots=True)
class Draw:
    """Mean watts of one device over a time, and what they are made of: idle watts, J/FLOP, J/byte, watts of running kernels."""

    watts: Any
    idle: Any
    per_flop: Any
    per_byte: Any = 0.0
    floor: Any = 0.0

    def of(self, part: Part) -> Any:
        """Joules of a part before they are made to add up."""
        running = part.exposed if part.resource in _RUNNING else 0.0
        return dynamic_energy(part.flop, part.moved, running, self.per_flop, self.per_byte, self.floor)


def with_joules(ledger: Ledger, power: Draw) -> Ledger:
    """The ledger with the joules of one device on each part, and a line for those that no part causes."""
    idle = minimum(power.idle, power.watts) * ledger.seconds
    rest = maximum(power.watts * ledger.seconds - idle, 0.0)
    weights = [power.of(part) for part in ledger.parts]
    if not sum(weights) > 0:
        weights = [part.exposed for part in ledger.parts]
    whole = sum(weights)
    if not whole > 0:
        idle, whole = idle + rest, 1.0
    parts = [replace(part, joules=rest * (weight / whole)) for part, weight in zip(ledger.parts, weights, strict=True)]
    line = Part(IDLE, _WALL, "", "E = P_idle T", exposed=0.0, joules=idle)
    return replace(ledger, parts=(*parts, line))


def watts_at(chip: HardwareNode, utilisation: float) -> float | None:
    """Power of a device at a share of its arithmetic, as every face takes it of a run; None where it states no TDP."""
    if chip.tdp is None:
        return None
    idle = constant("idle_power_fraction").number
    return float(proportional_power(to_si(chip.tdp, "W"), idle, min(utilisation, 1.0)))


def at_utilisation(ledger: Ledger, chip: HardwareNode, utilisation: float, peak: float) -> Ledger:
    """The ledger with the joules of that power; as it is where the chip states no TDP."""
    watts = watts_at(chip, utilisation)
    return ledger if watts is None else with_joules(ledger, proportional_draw(chip, watts, peak))


def proportional_draw(chip: HardwareNode, watts: Any, peak: float) -> Draw:
    """First order: idle power, and the rest in proportion to operations. ``watts`` is the power that the answer has."""
    tdp, idle = to_si(chip.tdp, "W"), constant("idle_power_fraction").number
    return Draw(watts, tdp * idle, tdp * (1 - idle) / peak)


def profiled_draw(
    chip: HardwareNode, seconds: float, flop: float, moved: float, peak: float, bandwidth: float
) -> Draw | None:
    """Calibrated kernels: idle power, operations and bytes, with the shares of the chip's profile; None without a TDP."""
    if chip.tdp is None:
        return None
    tdp, p = to_si(chip.tdp, "W"), profile(chip).power
    busy, moving = min(flop / (seconds * peak), 1.0), min(moved / (seconds * bandwidth), 1.0)
    watts = utilised_power(tdp, p.idle, p.arithmetic, p.memory, p.cap, busy, moving)
    return Draw(float(watts), tdp * p.idle, tdp * p.arithmetic / peak, tdp * p.memory / bandwidth)


def running_draw(chip: HardwareNode, watts: Any, work: str = "serving") -> Draw:
    """Calibrated: idle power, running kernels, operations and bytes, with the constants of a kind of work."""
    terms = power_terms(chip, work)
    bandwidth = to_si(chip.memory.bandwidth, "byte/s")
    return Draw(watts, terms.idle, terms.arithmetic / terms.peak, terms.memory / bandwidth, terms.floor)
