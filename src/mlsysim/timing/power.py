"""Power of a chip by what it does: one form for training, serving, vision and waiting; ``data/power.toml`` and, fitted, ``data/power_constants.toml`` have its constants.

The form is that of :mod:`mlsysim.physics.power`. What a device does is an :class:`Activity`: operations and bytes a second, the share
of the time in which kernels fill the chip (not: host gaps, exposed communication, bubbles), and how much of that is unfused vector
work. Operations of other formats count by their energy (:func:`equivalent`: an 8-bit one as 0.53 of a 16-bit one).

    J/token = P n / (tokens/s),      J/image = P n t / batch

Rates that were measured at the chip's own limit already contain the clock that it falls to there, so that without a lower
limit the clock is not needed: a wanted power above the limit says that it binds. A lower one (:func:`throttle`) is kept by the clock: first
the clock x_0 at which the rates draw what is drawn without it, then the clock x <= x_0 at which the stretched work draws the limit.

Constants belong to Hopper and Blackwell; another chip has shares of its TDP. Left out: what the data are (zeros halve the power of a
product), links, temperature.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from mlsysim.errors import InputError
from mlsysim.hardware.registry import Hardware
from mlsysim.hardware.types import HardwareNode
from mlsysim.physics.power import (
    clock_for,
    limited_power,
    running_power,
    streaming_time,
    stretched,
    voltage,
    waiting_power,
)
from mlsysim.physics.precision import compute_precision, is_narrow
from mlsysim.units.kernel import kernel
from mlsysim.units.ops import maximum, minimum, some, taken, where
from mlsysim.units.records import dataclass
from mlsysim.units.registry import Q_, to_si
from mlsysim.units.text import plainly
from mlsysim.zoo.files import fitted_over
from mlsysim.zoo.intervals import Interval, interval


@kernel("power: W [1, 2000], devices whole [1, 1e3], rate: 1/s [0.01, 1e6] -> energy: J")
def energy_per_item(power: Any, devices: Any, rate: Any) -> Any:
    """Energy for each token, image or request at a throughput of the whole group."""
    return power * devices / rate


@dataclass(frozen=True, slots=True)
class Activity:
    """What one device does: 16-bit operations and bytes a second, the share of the time in which kernels run, of which so much is
    unfused vector work, and its clock over the highest."""

    operations: Any
    moved: Any
    busy: Any = 1.0
    vector: Any = 0.0
    clock: Any = 1.0


class ChipPower(NamedTuple):
    """Constants of a chip in W, J/flop and J/byte; ``limit`` is the mean power that its own limit leaves it."""

    deep: float
    wait: float
    floor: float
    vector: float
    per_flop: float
    per_byte: float
    limit: float
    converting: float
    prepared: float
    slope: float
    least: float
    knee: float

    def floor_of(self, activity: Activity) -> Any:
        """Watts of running kernels."""
        return self.floor + self.vector * activity.vector

    def waiting(self, clock: Any = 1.0) -> Any:
        """Watts of a device that holds a program and runs nothing."""
        return waiting_power(self.deep, self.wait, clock, voltage(clock, self.slope, self.least))

    def wanted(self, a: Activity) -> Any:
        """Watts that an activity would take without a limit."""
        volts = voltage(a.clock, self.slope, self.least)
        return running_power(
            waiting_power(self.deep, self.wait, a.clock, volts),
            self.floor_of(a),
            a.busy,
            self.per_flop,
            a.operations,
            self.per_byte,
            a.moved,
            a.clock,
            volts,
        )


def power_constants() -> dict[str, Any]:
    """The tables of ``data/power.toml``, with what was fitted."""
    return fitted_over("mlsysim.data", "power.toml", "power_constants.toml")


_UNITS = {"deep": "W", "wait": "W", "floor": "W", "vector": "W", "per_flop": "J/flop", "per_byte": "J/byte"}
CONSTANTS = tuple(_UNITS)
"""Constants that a die was measured for; of another chip they are shares of its TDP."""
_KNOWN: dict[str, dict[str, float]] = {}


def _measured(name: str) -> dict[str, float]:
    """Constants of a die in SI units."""
    if name not in _KNOWN:
        table = power_constants()["chip"][name]
        _KNOWN[name] = {k: to_si(Q_(v), _UNITS[k]) if k in _UNITS else v for k, v in table.items()}
    return _KNOWN[name]


def die_constants(key: str | None) -> dict[str, float] | None:
    """Constants of the die of a chip: as measured, or shares of the TDP of its part with the highest limit; None of a die of its own that nobody measured."""
    tables = power_constants()
    die = tables["die"].get(key)
    if die is None and (key is None or key not in tables["chip"]):
        return None
    of, share = (die["of"], die["share"]) if die is not None else (str(key), 1.0)
    found = dict(_measured(of)) if of in tables["chip"] else _by_shares(Hardware.get(of))
    for name in ("deep", "wait", "floor", "vector"):
        found[name] *= share
    return found


def _by_shares(chip: HardwareNode) -> dict[str, float]:
    """Constants of a chip that was not measured."""
    found = chip_power(chip)._asdict()
    return {name: found[name] for name in (*CONSTANTS, "converting", "prepared")}


def power_from(known: dict[str, Any] | None, tdp: Any, peak: Any, bandwidth: Any) -> ChipPower:
    """Constants of a chip from those of its die, or as shares of its TDP; numbers or arrays."""
    tables = power_constants()
    limit, own = tables["limit"], known
    if own is None:
        own = dict(tables["chip"]["default"])
        scales = {"per_flop": tdp / peak, "per_byte": tdp / bandwidth}
        for name in CONSTANTS:
            own[name] = own[name] * scales.get(name, tdp)
    shared = {name: limit[name] for name in ("slope", "least", "knee")}
    return ChipPower(**own, **shared, limit=limit["mean"] * tdp)


def chip_power(chip: HardwareNode) -> ChipPower:
    """Constants of a chip: of its die where that was measured, else shares of its TDP."""
    if chip.tdp is None:
        raise InputError(
            f"{chip.name} has no published TDP, so that its power is not known; give tdp, such as '350 W'.", field="tdp"
        )
    bandwidth = maximum(to_si(chip.memory.bandwidth, "byte/s"), 1.0)
    return power_from(die_constants(chip.metadata.key), to_si(chip.tdp, "W"), wide_peak(chip), bandwidth)


def power_of(chip: HardwareNode | ChipPower, activity: Activity, cap: Any = None) -> Any:
    """Watts of one device; under a lower limit that ``activity``, at its clock, was throttled to."""
    known = chip if isinstance(chip, ChipPower) else chip_power(chip)
    wanted = known.wanted(activity)
    return limited_power(wanted, known.limit) if cap is None else minimum(wanted, minimum(cap, known.limit))


def mean_power(known: ChipPower, activity: Activity, cap: Any) -> Any:
    """Watts of one device over phases, at clocks over the usual ones; each phase keeps a lower limit by its clock."""
    usual = power_of(known, activity)
    return usual if cap is None else minimum(usual, cap)


def waiting_power_of(chip: HardwareNode, cap: Any = None) -> float:
    """Watts of one device that holds a program and runs nothing; a lower limit is kept while it waits, too."""
    wait = chip_power(chip).wait
    return wait if cap is None else min(wait, to_si(cap, "W"))


def power_interval(kind: str, chip: HardwareNode, watts: float, cap: Any = None) -> Interval:
    """How far the power of a device may be off, by the kind of work; no limit is exceeded."""
    known = chip.metadata.key in power_constants()["provenance"]["measured"]
    found = interval(kind, *() if known else ("chip",))
    most = to_si(chip.tdp, "W") if cap is None else min(cap, to_si(chip.tdp, "W"))
    return found.model_copy(update={"high": min(found.high, max(most / watts, 1.0))})


def _largest(value: Any) -> float:
    return float(value.max() if hasattr(value, "max") else value)


class Clock(NamedTuple):
    """A clock over the highest, and what takes how much longer than at the usual one: arithmetic, bytes."""

    clock: Any
    slower: Any
    streaming: Any

    def take(self, index: Any) -> Clock:
        """At some of many points."""
        return Clock(*(taken(value, index) for value in self))


class Clocks(NamedTuple):
    """Clocks of prompts and of answers, and the mean of a device that does both."""

    reading: Clock
    writing: Clock
    both: Clock

    def take(self, index: Any) -> Clocks:
        """At some of many points."""
        return Clocks(*(clock.take(index) for clock in self))


def throttle(chip: HardwareNode | ChipPower, activity: Activity, clocked: Any, streamed: Any, cap: Any) -> Clock:
    """The clock that keeps a limit, for work of which shares of the time follow the clock and wait for memory.

    ``activity`` is that without the limit. Nothing changes where it draws no more.
    """
    known = chip if isinstance(chip, ChipPower) else chip_power(chip)
    if some(cap <= known.deep):
        raise InputError(
            f"a power cap must be above {plainly(_largest(known.deep), 3)} W, which an accelerator draws without a program.",
            field="power_cap",
        )
    drawn = power_of(known, activity)

    def power_at(clock: Any, usual: Any) -> Any:
        """P(x) of the work that takes the time 1 at the usual clock."""
        volts, longer = voltage(clock, known.slope, known.least), streaming_time(clock, known.knee)
        longer = longer / streaming_time(usual, known.knee)
        both = maximum(clocked + streamed, 1e-300)
        running = activity.busy * (clocked * usual + streamed * clock * longer) / both
        dynamic = volts * volts * (known.floor_of(activity) * running + known.per_flop * activity.operations)
        time = stretched(clocked, streamed, usual / clock, longer)
        return waiting_power(known.deep, known.wait, clock, volts) + (dynamic + known.per_byte * activity.moved) / time

    usual = clock_for(drawn, lambda x: power_at(x, x))
    lower = clock_for(minimum(drawn, cap), lambda x: power_at(minimum(x, usual), usual))
    clock = where(drawn <= cap, usual, minimum(lower, usual))
    streaming = streaming_time(clock, known.knee) / streaming_time(usual, known.knee)
    return Clock(clock, usual / clock, streaming)


# --- what devices do --------------------------------------------------------------------------------------------------


def wide_format(chip: HardwareNode) -> str:
    """The 16-bit format of a chip, or its own where it has none."""
    return "bf16" if chip.compute.supports("bf16") else str(chip.compute.headline)


def wide_peak(chip: HardwareNode) -> float:
    """The dense 16-bit peak, or that of the chip's own format."""
    return to_si(chip.compute.peak(wide_format(chip)), "flop/s")


def equivalent(chip: HardwareNode, precision: str) -> float:
    """Energy of an operation over that of a 16-bit one (or of the chip's own format, where it has none)."""
    wanted = compute_precision(precision)
    if wanted == wide_format(chip) or not chip.compute.supports(wanted):
        return 1.0
    share = float(power_constants()["formats"].get(wanted, 1.0))
    return min(share, wide_peak(chip) / to_si(chip.compute.peak(wanted), "flop/s")) if share > 1 else share


def vector_share(work: str) -> float:
    """Share of busy time in unfused vector work, by what runs."""
    return float(power_constants()["vector"][work])


def host_share(chip: HardwareNode) -> float:
    """Share of the time in which a serving device works where the host prepares its inputs (video, images)."""
    return chip_power(chip).prepared


def expands(model: Any, precision: str) -> bool:
    """Whether kernels expand narrow experts as they run, which draws more than their bytes and operations show."""
    return is_narrow(precision) and model.active_parameter_count < 0.9 * model.parameter_count
