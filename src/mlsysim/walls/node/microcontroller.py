"""Calibrated fidelity for microcontrollers: cycles for each multiply-add, and one active power for each board.

    t = MACs / (r_core s_shape u_runtime f),      E = P_board t

r is what a core reaches (multiply-adds a cycle in 8 bit), s depends on whether the network is made of dense convolutions,
depthwise-separable ones or fully connected layers, u on the runtime, f is the clock. Active power does not depend on the model
(within 5 %). The spread inside one core is a factor of two with the compiler and library; that is the error bar.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mlsysim.errors import unknown_name
from mlsysim.models.vision import RowWorkload
from mlsysim.units.kernel import Arg, kernel
from mlsysim.units.registry import Q_, to_si
from mlsysim.walls.node.vision_time import constants

__all__ = ["Board", "board", "inference_energy", "inference_time", "shape_of"]


@kernel(
    inputs={"macs": Arg("", 1e4, 1e9), "per_cycle": Arg("", 0.05, 100.0), "clock": Arg("1/s", 1e7, 4e9)},
    outputs={"time": "s"},
)
def cycle_time(macs: Any, per_cycle: Any, clock: Any) -> Any:
    """Seconds of so many multiply-adds."""
    return macs / (per_cycle * clock)


@kernel(inputs={"power": Arg("W", 1e-3, 10.0), "time": Arg("s", 1e-5, 10.0)}, outputs={"energy": "J"})
def active_energy(power: Any, time: Any) -> Any:
    """Energy of an inference at constant active power."""
    return power * time


@dataclass(frozen=True, slots=True)
class Board:
    """A board with its core, clock (Hz) and active power (W), where it is known."""

    name: str
    core: str
    clock: float
    power: float | None


def board(name: str) -> Board:
    """A board by its name."""
    boards = constants()["mcu"]["boards"]
    if name not in boards:
        raise unknown_name("microcontroller board", name, boards)
    entry = boards[name]
    power = None if "power" not in entry else to_si(Q_(entry["power"]), "W")
    return Board(name, entry["core"], to_si(Q_(entry["clock"]), "1/s"), power)


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
        raise unknown_name("microcontroller runtime", runtime, table["runtimes"])
    rate = table["cores"][target.core] * table["shapes"][shape_of(model)] * table["runtimes"][runtime]
    rate *= table["float_share"].get(target.core, table["float_share"]["default"]) if arithmetic == "float" else 1.0
    return float(cycle_time(model.flops_per_sample / 2, rate, target.clock))


def inference_energy(model: RowWorkload, target: Board, runtime: str = "default") -> float | None:
    """Joules of one inference, or None where the board's power is not known."""
    return None if target.power is None else float(active_energy(target.power, inference_time(model, target, runtime)))
