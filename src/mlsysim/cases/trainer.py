"""A fleet under a software: what a training step is asked of, for one layout or for an array of them.

At first order a device is its datasheet at one efficiency and the network hierarchical; at calibrated fidelity a device is its
measured rates under a stack and the network a pipelined ring. Everything else is the same case.
"""

from __future__ import annotations

import math
from dataclasses import field, replace
from typing import Any

from mlsysim.cases.algebra import PLAIN, Algebra
from mlsysim.cases.assumptions import CHIP, SOFTWARE, Assumptions
from mlsysim.cases.job import Job
from mlsysim.cases.layout import Layout
from mlsysim.cases.offload import RESIDENT, HostTimes
from mlsysim.cases.train import Step
from mlsysim.cases.train_layers import calibrated
from mlsysim.cases.train_lookup import LookupSoftware
from mlsysim.cases.train_network import NetworkSoftware
from mlsysim.cases.train_whole import (
    Device,
)
from mlsysim.hardware.arithmetic import no_runs
from mlsysim.hardware.types import HardwareNode
from mlsysim.models.keeping import Keeping
from mlsysim.models.training_shape import TrainingShape, training_regime
from mlsysim.physics.precision import format_of
from mlsysim.timing.network import Hierarchical
from mlsysim.timing.profile import own_profile
from mlsysim.timing.stacks import Stack
from mlsysim.timing.stacks import stack as stack_of
from mlsysim.timing.training_chip import Constants, TrainingChip, constants
from mlsysim.units.records import dataclass
from mlsysim.zoo.intervals import Interval, interval, known

__all__ = ["Software", "Trainer"]


def say_stack(
    software: Stack, chip: HardwareNode, measured: TrainingChip, shape: TrainingShape, assumed: Assumptions
) -> None:
    """The stack of a calibrated step, what its constants rest on, and a vocabulary that makes it slow."""
    assumed.say("stack", software.name, SOFTWARE, f"{software.name}: {software.title} ({software.year})")
    if mine := own_profile(chip):
        assumed["own_profile"] = mine
    if not measured.kernels.passes_measured:
        text = f"{chip.name} has no measured training constants; those of its class are used"
        assumed.say("extrapolating", True, CHIP, text)
    slower = 1.0 if software.pads_vocabulary else measured.kernels.rows_of(shape.vocab, measured.element).slower(2)
    if shape.head and slower > 1:
        whole = 64 * math.ceil(shape.vocab / 64)
        text = f"{shape.vocab:,.0f} entries are no multiple of 8, so that products of the output head take {slower:.1f} times as long as of {whole:,}"
        assumed.say("vocabulary", shape.vocab, SOFTWARE, text)


def training_band(
    shape: TrainingShape, job: Job, chip: TrainingChip, stack: str, accelerators: int
) -> tuple[Interval, str]:
    """The 90 % band of rates, and what it rests on; no published run is on one accelerator."""
    seen = {
        "model": job.model.metadata.key in known("training", "models"),
        chip.unseen: chip.kernels.passes_measured,
        "software": stack in chip.kernels.stacks,
    }
    wide = format_of(job.precision).wide
    seen["kernels"] = seen.get("kernels", True) and not wide
    regime = f"{training_regime(shape, job.frozen)} {stack}"
    unseen = [kind for kind, was in seen.items() if not was]
    formats = [name for name in known("training", "formats") if name.startswith(f"{regime} ")]
    if formats and not {*unseen} - {"model"} and f"{regime} {chip.bits}" not in formats:
        unseen.append("format")
    alone = ", none of them on one accelerator" if accelerators == 1 else ""
    band, named = interval(regime, *unseen), f"{stack} ({stack_of(stack).title})"
    lacks = {
        "model": f"no run of {job.model.name} was measured",
        "chip": "no published run is on this chip",
        "kernels": "no published run is on this chip, and no kernel of its generation was measured (runs predicted with another generation's kernels show what that adds)",
        **({"kernels": no_runs(job.precision)} if wide and chip.unseen != "kernels" else {}),
        "cpu": "no published run is on a plain processor (published rates of serving on Xeons show what that adds)",
        "software": f"no published run of the stack {named} is on this chip",
        "format": f"no published run of the stack {named} computes in {chip.bits}, on this chip or another",
    }
    return band, band.resting_on(f"published runs of this kind{alone}", **lacks)


@dataclass(frozen=True, slots=True)
class Software:
    """What calibrated fidelity adds: the model's layers, the chip's measured rates, the stack, and what holds for every run."""

    shape: TrainingShape
    chip: TrainingChip
    stack: Stack
    constants: Constants = field(default_factory=constants)

    def congested(self, factor: Any) -> Software:
        """The same with a slower fabric."""
        return replace(self, chip=replace(self.chip, network=self.chip.network.congested(factor)))

    def band(self, job: Job, accelerators: int) -> tuple[Interval, str]:
        """The 90 % band of rates, and what it rests on."""
        return training_band(self.shape, job, self.chip, self.stack.name, accelerators)

    @property
    def keeps(self) -> Keeping:
        """What it holds in memory."""
        return self.stack.keeps

    def step(self, job: Job, layout: Layout, offload: HostTimes = RESIDENT, a: Algebra = PLAIN) -> Step:
        """One optimizer step on so many devices."""
        return calibrated(job, layout, self.shape, self.chip, self.stack, self.constants, offload, a)


Trained = Software | NetworkSoftware | LookupSoftware
"""What says how long a step takes, and how sure that is."""


@dataclass(frozen=True, slots=True)
class Trainer:
    """``software`` is None at first order. ``host_link`` is byte/s to the host, None where there is none, ``host_memory`` that of its memory where it
    updates; ``cap`` the limit of power in watts, where it is lower than that which the rates belong to."""

    device: Device
    net: Hierarchical
    capacity: float
    host_link: float | None
    software: Trained | None = None
    chip: HardwareNode | None = None
    cap: float | None = None
    host_memory: float | None = None

    @property
    def domain(self) -> Any:
        """Accelerators that share links."""
        return (self.software.chip.network if isinstance(self.software, Software) else self.net).domain

    def congested(self, factor: Any) -> Trainer:
        """The same with a slower fabric."""
        if isinstance(factor, (int, float)) and factor == 1:
            return self
        if self.software is None:
            return replace(self, net=self.net.congested(factor))
        return replace(self, software=self.software.congested(factor))
