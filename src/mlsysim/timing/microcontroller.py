"""Calibrated fidelity for microcontrollers: cycles for each multiply-add, and one active power for each board.

    t = MACs / (r_core s_shape u_runtime f),      E = P_board t

r is what a core reaches (multiply-adds a cycle in 8 bit), s depends on whether the network is made of dense convolutions,
depthwise-separable ones or fully connected layers, u on the runtime, f is the clock. Active power does not depend on the model
(within 5 %). The spread inside one core is a factor of two with the compiler and library; that is the error bar.

The table was measured board by board (MLPerf Tiny), with the runtime of each submission known. A board that nobody submitted has
its core's rate at its own clock and says that it extrapolates. Cycles include the loads of their operands, so no time of memory
stands apart; samples of a batch follow one another. Left out: sensing and features before the network, sleep between inferences.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from mlsysim.errors import InputError, unknown_name
from mlsysim.hardware.registry import Hardware
from mlsysim.hardware.types import HardwareNode
from mlsysim.timing.vision_time import constants
from mlsysim.units.kernel import kernel
from mlsysim.units.records import dataclass
from mlsysim.units.registry import Q_, to_si
from mlsysim.units.text import count_text
from mlsysim.zoo.intervals import interval

if TYPE_CHECKING:
    from mlsysim.models.vision import RowWorkload

_ARITHMETIC = {"int8": "int8", "fp32": "float"}


@kernel("macs [1e4, 1e9], per_cycle [0.05, 100], clock: 1/s [1e7, 4e9] -> time: s")
def cycle_time(macs: Any, per_cycle: Any, clock: Any) -> Any:
    """Seconds of so many multiply-adds."""
    return macs / (per_cycle * clock)


@kernel("power: W [1e-3, 10], time: s [1e-5, 10] -> energy: J")
def active_energy(power: Any, time: Any) -> Any:
    """Energy of an inference at constant active power."""
    return power * time


@dataclass(frozen=True, slots=True)
class Board:
    """A board with its core, clock (Hz) and active power (W), where it is known.

    ``measured`` where MLPerf Tiny has results of it; ``runtime`` the one that its core's rate belongs to, where that is not the
    table's default.
    """

    name: str
    core: str
    clock: float
    power: float | None
    measured: bool = False
    runtime: str | None = None


def board(name: str) -> Board:
    """A board by its name."""
    boards = constants()["mcu"]["boards"]
    if name not in boards:
        raise unknown_name("microcontroller board", name, boards)
    entry = boards[name]
    power = None if "power" not in entry else to_si(Q_(entry["power"]), "W")
    measured = entry.get("measured", True)
    return Board(name, entry["core"], to_si(Q_(entry["clock"]), "1/s"), power, measured, entry.get("runtime"))


def board_of_chip(chip: HardwareNode) -> Board | None:
    """The board of a chip of the zoo, or None where its core is not known.

    Peaks of microcontrollers are clock times operations a cycle: a chip with another peak is the board at another clock. Its
    active power follows the clock, as it does at one voltage.
    """
    key = chip.metadata.key
    if key is None or key not in constants()["mcu"]["boards"] or key not in Hardware:
        return None
    known = board(key)
    ratio = to_si(chip.compute.peak_flops, "flop/s") / to_si(Hardware.get(key).compute.peak_flops, "flop/s")
    if ratio == 1.0:
        return known
    power = None if known.power is None else known.power * ratio
    return replace(known, clock=known.clock * ratio, power=power)


def shape_of(model: RowWorkload) -> str:
    """What a small network is made of: depthwise, dense convolutions, or fully connected layers."""
    kinds = {layer.kind for layer in model.network}
    return "depthwise" if "dwconv" in kinds else "dense" if "conv" in kinds else "connected"


def inference_time(model: RowWorkload, target: Board, runtime: str = "default", arithmetic: str = "int8") -> float:
    """Seconds of one inference."""
    table = constants()["mcu"]
    if target.core not in table["cores"]:
        raise unknown_name("microcontroller core", target.core, table["cores"])
    if runtime not in table["runtimes"]:
        known = ", ".join(table["runtimes"])
        raise unknown_name("microcontroller runtime", runtime, table["runtimes"], remedy=f"known are {known}.")
    rate = table["cores"][target.core] * table["shapes"][shape_of(model)] * table["runtimes"][runtime]
    rate *= table["float_share"].get(target.core, table["float_share"]["default"]) if arithmetic == "float" else 1.0
    return float(cycle_time(model.flops_per_sample / 2, rate, target.clock))


@dataclass(frozen=True, slots=True)
class MicrocontrollerPass:
    """A batch on a microcontroller: seconds with their 90 % band, joules where the power is known, and what was assumed."""

    time: float
    low: float
    high: float
    energy: float | None
    energy_band: tuple[float, float] | None
    macs: float
    per_cycle: float
    clock: float
    assumptions: dict[str, str]
    source: str
    regime: str


def microcontroller_pass(
    model: RowWorkload, chip: HardwareNode, target: Board, batch: int, precision: str, runtime: str | None = None
) -> MicrocontrollerPass:
    """Time and energy of ``batch`` inferences, one after the other.

    Bands of rates become bands of times by their reciprocal. They are those of a known runtime: where none is named, the band
    reaches from the slowest to the fastest of the table. Networks far from the sizes that were measured, and boards that
    were not, get the band of what was never validated.
    """
    if precision not in _ARITHMETIC:
        raise InputError(
            f"Microcontrollers were measured in int8 and fp32, not in {precision}; set the precision to one of these.",
            field="precision",
        )
    table = constants()["mcu"]
    if runtime is not None and target.runtime is not None:
        raise InputError(f"On {chip.name} only {target.runtime} is known; leave the runtime out.", field="runtime")
    chosen = runtime or "default"
    each = inference_time(model, target, chosen, _ARITHMETIC[precision])
    macs = model.flops_per_sample / 2
    smallest, largest = table["measured_macs"]
    usual = smallest / 2 <= macs <= 2 * largest
    validated = target.measured and usual
    unseen = [kind for kind, known in (("chip", target.measured), ("model", usual)) if not known]
    band = interval("microcontroller time", *unseen)
    time = each * batch
    notes = {
        "fidelity": f"calibrated: cycles of a multiply-add on {target.core} at {target.clock / 1e6:.4g} MHz",
        "runtime": runtime or target.runtime or _default_runtime(table["runtimes"]),
    }
    known = "their own runtimes" if runtime else "any of the known runtimes (none is named here)"
    notes["interval"] = band.resting_on(
        f"MLPerf Tiny results with {known}",
        chip=f"no results of MLPerf Tiny on {chip.name}; its core's rate is of other boards or of one network",
        model=f"networks of {count_text(smallest)} to {count_text(largest)} multiply-adds were measured",
    )
    power, spread = target.power, None
    if power is not None:
        spread = interval("microcontroller energy", *() if target.measured else ("chip",))
        notes["power"] = (
            f"{power * 1e3:.3g} mW while it computes, of MLPerf Tiny's energy runs (energies lay between {spread.low:.2g} and "
            f"{spread.high:.2g} times these)"
        )
    elif chip.tdp is not None:
        power = to_si(chip.tdp, "W")
        notes["power"] = (
            f"{power * 1e3:.3g} mW while it computes, of the datasheet; measured boards took 1.1 to 2.5 times theirs"
        )
    energy = None if power is None else float(active_energy(power, time))
    shares = [table["runtimes"][chosen]] if runtime or not validated else list(table["runtimes"].values())
    low, high = (
        time * table["runtimes"][chosen] / share for share in (band.high * max(shares), band.low * min(shares))
    )
    source = table["boards"][target.name].get("source", table["source"])["title"]
    rate = macs / (each * target.clock)
    around = None if energy is None or spread is None else spread.around(energy)
    return MicrocontrollerPass(
        time, low, high, energy, around, macs * batch, rate, target.clock, notes, source, band.regime
    )


def _default_runtime(runtimes: dict[str, float]) -> str:
    """The rate that most submissions reached, and how far named runtimes are from it."""
    named = {name: share for name, share in runtimes.items() if share != runtimes["default"]}
    others = ", ".join(f"{name} {share:.2g}" for name, share in named.items())
    return f"default, the rate of most submissions and of TensorFlow Lite Micro (times its rate: {others})"
