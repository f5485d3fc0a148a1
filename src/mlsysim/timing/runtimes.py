"""Runtimes of networks of fixed shape: the software that runs a convolutional network, a vision transformer, a denoiser.

A runtime is a name in ``data/software/runtimes.toml`` (table ``runtimes``) that says which fitted stack times a forward pass and
which a training step. Where nobody names one it is :data:`DEFAULT`: a compiled forward pass, an eager training step, and of denoisers
diffusers forward and compiled in training.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mlsysim.errors import InputError, unknown_name
from mlsysim.hardware.registry import Hardware
from mlsysim.hardware.types import HardwareNode
from mlsysim.models.base import Workload
from mlsysim.timing.profile import software_file
from mlsysim.timing.vision_time import constants
from mlsysim.zoo.intervals import Interval, interval, widest

ENGINE = "tensorrt"
DENOISING = "diffusion"
COMPILED_STEP = "compiled_train"
_DEFAULT = {"inference": "compiled", "training": "eager_nhwc"}
_DENOISER = "diffusers"
_COMPILED_STEPS = "vision compiled training"
_QUERY = 8
"""Samples of the largest query whose latency MLPerf asks for."""


@dataclass(frozen=True, slots=True)
class Runtime:
    """A runtime: its words, and its fitted stacks, where it has them."""

    name: str
    title: str
    inference: str | None = None
    training: str | None = None


def runtime(name: str) -> Runtime:
    """The runtime of a name, however it is spelled: ``TensorRT``, ``eager-nhwc``."""
    key = name.strip().lower().replace("-", "_").replace(" ", "_")
    table = constants()["runtimes"]
    if name in constants()["mcu"]["runtimes"]:
        raise InputError(
            f"{name} is the runtime of a microcontroller; leave it out, or name one of {', '.join(table)}.",
            field="runtime",
        )
    if key not in table:
        raise unknown_name("runtime", name, table, remedy=f"known are {', '.join(table)}.")
    return Runtime(key, **table[key])


def has_inventory(model: Workload, chip: HardwareNode) -> bool:
    """Whether the times of a network are those of its classes of operators: every fixed shape but look-ups in tables.

    Microcontrollers run none of these runtimes.
    """
    return model.fixed_shape and not model.looks_up and chip.family != "mcu"


def trained_by_runtime(model: Workload, chip: HardwareNode) -> bool:
    """Whether training steps of a network are timed by a runtime; none was measured on a CPU."""
    return has_inventory(model, chip) and chip.family != "cpu"


def training_runtimes() -> tuple[str, ...]:
    """Names of those whose training steps were measured."""
    return tuple(name for name, entry in software_file("runtimes")["runtimes"].items() if "training" in entry)


def runtime_for(model: Workload, phase: str, name: str | None) -> tuple[Runtime, str]:
    """The runtime of a pass, and the stack of it that times this phase."""
    training = phase == "training"
    kind = "training" if training else "inference"
    denoises = model.denoises and not training
    usual = _DEFAULT["inference" if model.denoises else kind]
    found = runtime(name or (_DENOISER if denoises else usual))
    stack = found.training if training else found.inference
    if stack is None:
        known = [each for each, entry in constants()["runtimes"].items() if kind in entry]
        raise InputError(f"No {kind} was measured with {found.name}; use {', '.join(known)}.", field="runtime")
    if stack == DENOISING and not denoises:
        raise InputError(f"{found.name} runs denoisers, which {model.name} is not.", field="runtime")
    return found, stack


def regime_of(stack: str, chip: HardwareNode, timed: bool = False) -> str:
    """What passes of a stack on a chip were scored under; ``timed`` where times were published and not rates."""
    if stack == COMPILED_STEP:
        return _COMPILED_STEPS
    name = "cpu" if chip.family == "cpu" else stack
    return f"vision {name}{' time' if timed else ''} on {chip.metadata.key}"


def band_of(stack: str, chip: HardwareNode, batch: float, arrivals: bool = False) -> tuple[Interval, str]:
    """The 90 % band of times of a stack on a chip, and what it rests on, in words.

    A chip without such passes gets the widest of the bands elsewhere and of a stack of the same kind whose coefficients were
    carried over to a chip that they were not fitted on. Another kind of chip was validated on nothing, and two CPUs cannot give
    the scale of a third.
    """
    where = constants()["measured"]["cpu" if chip.family == "cpu" else stack]
    key = chip.metadata.key
    if stack in (ENGINE, DENOISING, COMPILED_STEP):
        return _common(stack, chip, batch, arrivals)
    if key in where.get("times", ()) or key in where.get("rates", ()):
        band = _band(stack, chip, key in where.get("times", ()))
        if band.extrapolating:
            return band, "extrapolating: fewer than five passes were measured with this software on this chip"
        return band, f"90 % of {band.rows:,} passes measured with this software on this chip ({band.regime})"
    elsewhere = [(name, kind == "times") for kind in ("rates", "times") for name in where.get(kind, ())]
    bands = [_band(stack, Hardware.get(name), timed) for name, timed in elsewhere]
    if chip.family != "gpu":
        bands.append(interval("unvalidated", False))
    other = constants()["carried_over"][stack]
    bands += [_band(other, Hardware.get(name), True) for name in constants()["measured"][other]["times"]]
    named = _listed([name for name, _ in elsewhere])
    words = f"extrapolating: passes with this software were measured on {named}, none on this chip"
    return widest(bands, f"vision {stack}"), words


def _common(stack: str, chip: HardwareNode, batch: float, arrivals: bool) -> tuple[Interval, str]:
    """Bands that are one for all chips: those of TensorRT, offline and for small queries, of denoisers and of compiled training."""
    where = constants()["measured"][stack]
    if stack == DENOISING:
        regime, chips, rates = "diffusion", where["times"], False
    elif stack == COMPILED_STEP:
        regime, chips, rates = _COMPILED_STEPS, where["rates"], True
    elif arrivals:
        regime, chips, rates = "vision engine server", where["rates"], True
    elif batch <= _QUERY:
        regime, chips, rates = "vision engine latency", where["times"], False
    else:
        regime, chips, rates = "vision engine offline", where["rates"], True
    own = interval(regime, True)
    band = reciprocal(own) if rates else own
    if chip.metadata.key in chips:
        return band, f"90 % of {band.rows:,} passes measured with this software on this chip and on others ({regime})"
    # Coefficients of compiled steps were fitted on none of the chips with runs, so that another GPU of theirs is no further away.
    near = stack == COMPILED_STEP and chip.vendor == Hardware.get(chips[0]).vendor
    other = reciprocal(interval(regime, False)) if near else interval("unvalidated", False)
    return (
        widest([band, other], regime),
        f"extrapolating: passes with this software were measured on {_listed(chips)}, none on this chip",
    )


def _band(stack: str, chip: HardwareNode, timed: bool) -> Interval:
    regime = regime_of(stack, chip, timed)
    found = interval(regime, True)
    if found.extrapolating:
        return interval("unvalidated", False).model_copy(update={"regime": regime})
    return found if timed else reciprocal(found)


def reciprocal(band: Interval) -> Interval:
    """The band of times where rates were measured, and of rates where times were."""
    return band.model_copy(update={"low": 1 / band.high, "high": 1 / band.low})


def _listed(keys: Sequence[str]) -> str:
    names = [Hardware.get(key).name for key in keys]
    first, last = ", ".join(names[:-1]), names[-1]
    return f"{first} and {last}" if first else last
