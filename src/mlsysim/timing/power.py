"""Calibrated fidelity for power: three states, and energy for each token and each image at a given throughput.

    P = TDP min(cap, idle + floor busy^e + m MBU + a MFU)

A chip that waits draws ``idle`` (0.17 to 0.18 of TDP); while kernels run back to back it draws about 0.6 of TDP whatever they do;
bytes and operations move it from there to the cap. MFU is counted against the dense 16-bit peak (8-bit operations count half),
MBU is weights touched and caches over the bandwidth, ``busy`` the share of the time in which the device works.

    J/token = P n / (tokens/s),      J/image = P n t / batch

Constants by chip and kind of work: ``data/power.toml``. Left out: what the data are (zeros halve the power of a product), the host,
fans and conversion. The proportional form 0.3 + 0.7 MFU is wrong by half for serving.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from mlsysim.errors import InputError, unknown_name
from mlsysim.hardware.types import HardwareNode
from mlsysim.physics.power import running_power
from mlsysim.physics.precision import compute_precision, is_narrow
from mlsysim.units.kernel import kernel
from mlsysim.units.registry import to_si
from mlsysim.zoo.files import shipped


@kernel("power: W [1, 2000], devices whole [1, 1e3], rate: 1/s [0.01, 1e6] -> energy: J")
def energy_per_item(power: Any, devices: Any, rate: Any) -> Any:
    """Energy for each token, image or request at a throughput of the whole group."""
    return power * devices / rate


@dataclass(frozen=True, slots=True)
class Activity:
    """What one device does: shares of its 16-bit arithmetic and of its bandwidth, and of the time it works.

    ``converting`` says that kernels expand 8-bit experts as they run, which draws more than their bytes and operations show.
    """

    arithmetic: Any
    memory: Any
    busy: Any = 1.0
    converting: bool = False


def power_constants() -> dict[str, Any]:
    """The tables of ``data/power.toml``."""
    return shipped("mlsysim.data", "power.toml")


def _constants(chip: HardwareNode, work: str) -> dict[str, float]:
    tables = power_constants()
    if work not in tables["work"]:
        raise unknown_name("kind of work", work, tables["work"])
    if chip.tdp is None:
        raise InputError(f"{chip.name} has no published TDP.")
    kind = tables["work"][work]
    found: dict[str, float] = kind.get(chip.metadata.key, kind["default"])
    return found


class PowerTerms(NamedTuple):
    """Watts that a device draws waiting, and more of them: kernels running, all of the bandwidth in use, all of ``peak`` in use."""

    idle: float
    floor: float
    memory: float
    arithmetic: float
    peak: float


def power_terms(chip: HardwareNode, work: str = "serving") -> PowerTerms:
    """What the power of a kind of work is made of, below the cap."""
    c, tdp = _constants(chip, work), to_si(chip.tdp, "W")
    return PowerTerms(tdp * c["idle"], tdp * c["floor"], tdp * c["memory"], tdp * c["arithmetic"], wide_peak(chip))


def power_figures(chip: HardwareNode, activity: Activity, work: str = "serving") -> dict[str, Any]:
    """What the power of one device follows from: the inputs of :func:`~mlsysim.physics.power.running_power`."""
    c = _constants(chip, work)
    return {
        "tdp": to_si(chip.tdp, "W"),
        "idle": c["idle"],
        "floor": c["floor"] + (c.get("converting", 0.0) if activity.converting else 0.0),
        "busy": activity.busy,
        "exponent": c["exponent"],
        "memory": c["memory"],
        "memory_utilisation": activity.memory,
        "arithmetic": c["arithmetic"],
        "arithmetic_utilisation": activity.arithmetic,
        "cap": c["cap"],
    }


def power_of(chip: HardwareNode, activity: Activity, work: str = "serving") -> Any:
    """Watts of one device doing a kind of work: serving, diffusion, or kernels."""
    return running_power(**power_figures(chip, activity, work))


def waiting_share(chip: HardwareNode) -> float:
    """Share of the time in which a serving device works where the host prepares its inputs (video, images)."""
    tables = power_constants()["work"]["serving"]
    return float(tables.get(chip.metadata.key, tables["default"])["waiting"])


def wide_peak(chip: HardwareNode) -> float:
    """The dense 16-bit peak, or that of the chip's own format."""
    return to_si(chip.compute.peak("bf16" if chip.compute.supports("bf16") else chip.compute.headline), "flop/s")


def narrow_share(precision: str) -> float:
    """What an operation counts against the 16-bit peak: half where it is narrower."""
    return 0.5 if is_narrow(compute_precision(precision)) else 1.0


def serving_activity(
    model: Any,
    chip: HardwareNode,
    devices: int,
    batch_size: float,
    tokens_per_second: float,
    precision: str,
    prompt: float,
    output: float,
    busy: float = 1.0,
) -> Activity:
    """What each device does while a group of them serves a language model at a given rate of output tokens."""
    demand = model.demand("decode", batch_size=batch_size, seq_len=1, context=prompt + output / 2, precision=precision)
    narrow = narrow_share(precision)
    operations = 2 * model.active_parameter_count * tokens_per_second * (1 + prompt / output) * narrow
    moved = (demand.weight_bytes + demand.cache_bytes) * tokens_per_second / batch_size
    experts = model.active_parameter_count < 0.9 * model.parameter_count
    return Activity(
        operations / devices / wide_peak(chip),
        moved / devices / to_si(chip.memory.bandwidth, "byte/s"),
        busy,
        narrow < 1 and experts,
    )
