"""Joules on a ledger: the energy of a device over the time of a case, part by part.

A device draws ``idle`` watts whatever it does. On top come what an operation takes (J/FLOP), what a byte takes (J/byte) and what
running kernels take for every second in which there are any (W): the terms of :mod:`mlsysim.physics.power`. Over a time T

    P T = idle T + sum over parts of (J/FLOP flop + J/byte moved + W seconds)

so that a part has its own joules, and what no part causes is a line of its own, ``idle``. A limit makes P T smaller than the sum: what
is above ``idle T`` is then shared in the same proportions. Where nothing is known of what the parts do, it is shared by their seconds on the
critical path. Either way the joules add up to P T, the energy of the device that an answer prints. Kernels fill the device in parts that wait
for arithmetic, memory or the start of kernels; a loss, a message that nothing hides and the host leave it waiting.

A lower limit is kept by the clock (:func:`throttled`): the case is asked without it, its ledger says what follows the clock and what waits for
memory, and the same case is asked again with slower arithmetic (:class:`mlsysim.cases.algebra.Clocked`).

Left out: that a byte sent takes more than one moved at home. Host, fans, conversion, network and building are other lines of a run.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mlsysim.cases.ledger import Ledger, Part
from mlsysim.hardware.types import HardwareNode
from mlsysim.timing.power import Activity, ChipPower, Clock, chip_power, power_interval, power_of, throttle
from mlsysim.units.kernel import kernel
from mlsysim.units.ops import maximum, minimum
from mlsysim.units.records import dataclass
from mlsysim.zoo.intervals import independent

IDLE = "idle"
_WALL = 18
_CLOCKED, _STREAMED = ("peak", "vector", "start"), "bandwidth"
_RUNNING = frozenset((*_CLOCKED, _STREAMED))
"""Resources of parts in which kernels fill the device."""


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


def with_joules(ledger: Ledger, power: Draw | None) -> Ledger:
    """The ledger with the joules of one device on each part, and a line for those that no part causes; as it is without a power."""
    if power is None:
        return ledger
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


def draw_of(chip: HardwareNode, activity: Activity, cap: Any = None) -> Draw | None:
    """The power of an activity and what it is made of; None where the chip states no TDP."""
    if chip.tdp is None:
        return None
    known = chip_power(chip)
    return parts_of(known, activity, power_of(known, activity, cap))


def parts_of(known: ChipPower, activity: Activity, watts: Any) -> Draw:
    """What watts are made of."""
    return Draw(watts, known.waiting(activity.clock), known.per_flop, known.per_byte, known.floor_of(activity))


OF_A_PASS = "energy of a pass"
"""A kind of power that nobody measured; it has the widest interval of those that somebody did."""


def energy_band(
    timed: Any, chip: HardwareNode, kind: str, cap: Any, devices: int = 1, over: float | None = None
) -> tuple[float, float] | None:
    """The interval of the energy of a pass: those of its power and of its time, as independent; of its power alone where the time
    that it takes is given (``over``)."""
    if timed.energy is None or timed.band is None:
        return None
    longer = (timed.band[0] / timed.seconds, timed.band[1] / timed.seconds) if over is None else None
    watts = timed.energy / (devices * (timed.seconds if over is None else over))
    factors = independent(longer, power_interval(kind, chip, watts, cap).factors)
    return factors and (timed.energy * factors[0], timed.energy * factors[1])


def activity_of(ledger: Ledger, share: Any, vector: Any, clock: Any = 1.0) -> Activity:
    """What a device does by its ledger, in the time of it; an operation counts as ``share`` of a 16-bit one."""
    time = ledger.seconds
    running = sum((part.exposed for part in ledger.parts if part.resource in _RUNNING), 0.0)
    busy = minimum(running / time, 1.0)
    return Activity(share * ledger.total("flop") / time, ledger.total("moved") / time, busy, vector, clock)


def throttled(chip: HardwareNode | ChipPower, activity: Activity, ledger: Ledger, cap: Any) -> Clock:
    """The clock under a limit of work that has this ledger without it."""
    clocked, streamed = (ledger.elastic(*names) / ledger.seconds for names in (_CLOCKED, (_STREAMED,)))
    return throttle(chip, activity, clocked, streamed, cap)
