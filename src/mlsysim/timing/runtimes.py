"""Runtimes of networks of fixed shape: the software that runs a convolutional network, a vision transformer, a denoiser.

A runtime is a name in ``data/software/runtimes.toml`` (table ``runtimes``) that says which fitted stack times a forward pass and
which a training step. Where nobody names one it is :data:`DEFAULT`: a compiled forward pass, an eager training step, and of denoisers
diffusers forward and compiled in training. A denoiser's pass under ``compiled`` is that of compiled diffusers, under ``graph`` of captured ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from mlsysim.errors import InputError, unknown_name
from mlsysim.hardware.arithmetic import no_runs
from mlsysim.hardware.registry import Hardware
from mlsysim.hardware.types import HardwareNode
from mlsysim.models.base import Workload
from mlsysim.models.keeping import HALF, TEXTBOOK, Keeping
from mlsysim.physics.precision import format_of
from mlsysim.timing.profile import software_file
from mlsysim.timing.vision_time import UNFUSED, constants
from mlsysim.units.records import dataclass
from mlsysim.zoo.intervals import Interval, interval

ENGINE = "tensorrt"
DENOISING = tuple(stack for stack in software_file("runtimes")["denoising"] if stack != "every")
DIFFUSION = "diffusion"
"""What passes of denoisers were scored under, whatever launches their operators."""
SUBMITTED = "mlperf_train"
_DEFAULT = {"inference": "compiled", "training": "eager_nhwc"}
_DENOISER = "diffusers"
_SUBMITTEDS = "vision compiled training"
_AUTOCAST = Keeping(state="cast", buffered=False, norms=HALF)
_FUSED = replace(_AUTOCAST, fused=True)
_QUERY = 8
"""Samples of the largest query whose latency MLPerf asks for."""


@dataclass(frozen=True, slots=True)
class Runtime:
    """A runtime: its words, its fitted stacks, where it has them, and whether operators are ``launched`` one by one."""

    name: str
    title: str
    inference: str | None = None
    training: str | None = None
    denoising: str | None = None
    launched: bool = False
    compiled: bool = False

    @property
    def keeps(self) -> Keeping:
        """What a training step holds: products cast weights of single precision and keep the casts, norms of layers and groups read single precision, and
        gradients come while activations go. Of a step that is compiled norms keep what they read as it is. Of other software that of the textbook."""
        return _AUTOCAST if self.launched else _FUSED if self.compiled else TEXTBOOK


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
    stack = found.training if training else found.denoising if denoises else found.inference
    if stack is None:
        if found.denoising in DENOISING and not (found.inference or found.training or denoises):
            raise InputError(f"{found.name} runs denoisers, which {model.name} is not.", field="runtime")
        asked = "denoising" if denoises else kind
        known = [each for each, entry in constants()["runtimes"].items() if asked in entry]
        raise InputError(f"No {asked} was measured with {found.name}; use {', '.join(known)}.", field="runtime")
    return found, stack


def regime_of(stack: str, chip: HardwareNode) -> str:
    """What passes of a stack on a chip were scored under."""
    if stack == SUBMITTED:
        return _SUBMITTEDS
    return f"vision {'cpu' if chip.family == 'cpu' else stack.removesuffix(UNFUSED)} on {chip.metadata.key}"


def band_of(
    stack: str, chip: HardwareNode, batch: float, arrivals: bool = False, precision: str = "fp16"
) -> tuple[Interval, str]:
    """The 90 % band of times of a stack on a chip, and what it rests on, in words.

    TensorRT (offline, small queries, arrivals), denoisers and submissions to MLPerf have one for all chips, the others one for each. A chip whose passes
    the coefficients were not fitted on gets what leaving a chip out of the fit gives; one that is no GPU, of stacks of GPUs, runs other software too.
    """
    where = constants()["measured"]["cpu" if chip.family == "cpu" else stack]
    common = stack in (ENGINE, *DENOISING, SUBMITTED)
    # Of other stacks times are those of a chip that no coefficient was fitted on.
    rates, times = where.get("rates", ()), where.get("times", ())
    chips = [*rates, *times] if common else rates
    regime = regime_of(stack, chip)
    if stack in DENOISING:
        regime = DIFFUSION
    elif stack == ENGINE:
        regime = f"vision engine {'server' if arrivals else 'latency' if batch <= _QUERY else 'offline'}"
    unseen = [] if chip.metadata.key in chips else ["chip"]
    unseen += ["kernels"] if stack in DENOISING and format_of(precision).wide else []
    unseen += ["software"] if chip.family not in ("gpu", "cpu") else []
    band = interval(regime if common or not unseen else regime.partition(" on ")[0], *unseen)
    software = "diffusers or xDiT" if stack in DENOISING else "this software"
    lacks = (
        f"passes with this software were fitted on {_listed(chips)}, none on this chip"
        if chips
        else "no passes were fitted"
    )
    return band, band.resting_on(
        f"passes measured with {software} ({band.regime})", chip=lacks, kernels=no_runs(precision)
    )


def _listed(keys: Sequence[str]) -> str:
    names = [Hardware.get(key).name for key in keys]
    first, last = ", ".join(names[:-1]), names[-1]
    return f"{first} and {last}" if first else last
