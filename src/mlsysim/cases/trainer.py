"""A fleet under a software: what a training step is asked of, for one layout or for an array of them.

At first order a device is its datasheet at one efficiency and the network hierarchical; at calibrated fidelity a device is its
measured rates under a stack and the network a pipelined ring. Everything else is the same case.
"""

from __future__ import annotations

import math
from dataclasses import field, replace
from typing import Any

from mlsysim.cases.algebra import PLAIN, Algebra, Clocked, ledger_of
from mlsysim.cases.assumptions import CHIP, SOFTWARE, Assumptions
from mlsysim.cases.job import Job
from mlsysim.cases.joules import Draw, parts_of, throttled
from mlsysim.cases.layout import Layout
from mlsysim.cases.ledger import Held, Ledger
from mlsysim.cases.offload import HostTimes, beside_computing, host_round_trip, updated_by_host
from mlsysim.cases.train import Step
from mlsysim.cases.train_layers import calibrated
from mlsysim.cases.train_lookup import LookupSoftware, lookup_step
from mlsysim.cases.train_network import NetworkSoftware, network_step
from mlsysim.cases.train_whole import (
    Device,
    first_order,
    first_order_amounts,
    narrow_share,
    repeated_share,
    weights_read,
)
from mlsysim.cases.training_memory import training_held, with_host
from mlsysim.hardware.arithmetic import no_runs
from mlsysim.hardware.types import HardwareNode
from mlsysim.models.demand import Demand
from mlsysim.models.keeping import HALF
from mlsysim.models.recompute import parts_of as recomputed_parts
from mlsysim.models.training_shape import TrainingShape, training_regime
from mlsysim.physics.precision import format_of
from mlsysim.timing.network import Hierarchical
from mlsysim.timing.power import Activity, ChipPower, Clock, chip_power, equivalent, power_of, vector_share
from mlsysim.timing.profile import own_profile
from mlsysim.timing.stacks import Stack
from mlsysim.timing.stacks import stack as stack_of
from mlsysim.timing.training_chip import Constants, TrainingChip, constants
from mlsysim.units.ops import some, where
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


@dataclass(frozen=True, slots=True)
class Trainer:
    """``software`` is None at first order. ``host_link`` is byte/s to the host, None where there is none, ``host_memory`` that of its memory where it
    updates; ``cap`` the limit of power in watts, where it is lower than that which the rates belong to, and ``clock`` what keeps it (:meth:`limited`)."""

    device: Device
    net: Hierarchical
    capacity: float
    host_link: float | None
    software: Software | NetworkSoftware | LookupSoftware | None = None
    chip: HardwareNode | None = None
    cap: float | None = None
    clock: Clock | None = None
    host_memory: float | None = None

    @property
    def domain(self) -> Any:
        """Accelerators that share links."""
        return (self.software.chip.network if isinstance(self.software, Software) else self.net).domain

    def congested(self, factor: Any) -> Trainer:
        """The same with a slower fabric."""
        if self.software is None:
            return replace(self, net=self.net.congested(factor))
        return replace(self, software=self.software.congested(factor))

    def demand(self, job: Job, layout: Layout) -> Demand:
        """Operations, bytes and tokens of one micro-batch of a replica, counted as models are; what is recomputed counts for the hardware."""

        def counted(recompute: Any) -> Demand:
            found: Demand = job.model.demand(
                "training",
                batch_size=layout.micro_batch,
                seq_len=None if job.model.fixed_shape else job.seq_len,
                precision=job.precision,
                recompute=recompute,
                frozen=job.frozen,
            )
            return found

        found, parts = counted(job.recompute), recomputed_parts(job.selective)
        chosen = job.recompute == "selective"
        if parts == ("attention",) or job.model.fixed_shape or not some(chosen):
            return found
        plain, core = counted("none"), counted("selective") if "attention" in parts else None
        forward = plain.flops / (2 if job.frozen else 3)
        again = forward * repeated_share(job.model, parts)
        again = again + (plain.hardware_flops if core is None else core.hardware_flops)
        return replace(found, hardware_flops=where(chosen, again, found.hardware_flops))

    def step(self, job: Job, layout: Layout, micro: Demand, held: tuple[Held, ...] = (), a: Algebra = PLAIN) -> Step:
        """One optimizer step; ``micro`` is the demand of a micro-batch, ``held`` what is held, with the host too."""
        if self.clock is not None:
            a = Clocked(a, self.clock.slower, self.clock.streaming)
        return self._step(job, layout, micro, held, a)

    def limited(self, job: Job, layout: Layout, micro: Demand, held: tuple[Held, ...] = ()) -> Trainer:
        """The same with the clock that keeps the limit of power: of the step without it, so much follows the clock."""
        if self.cap is None or self.chip is None:
            return self
        usual = self._step(job, layout, micro, held, PLAIN)
        ledger = ledger_of(lambda tape: self._step(job, layout, micro, held, tape).seconds)
        return replace(self, clock=throttled(self.chip, self.activity(job, layout, micro, usual), ledger, self.cap))

    def activity(self, job: Job, layout: Layout, micro: Demand, step: Step) -> Activity:
        """What a device does in a step: operations and bytes as the model counts them, busy but for what others make it wait."""
        assert self.chip is not None
        shards = layout.tp * layout.pp * layout.cp
        often = layout.micro_batches * job.accumulation / step.seconds
        share = equivalent(self.chip, job.precision)
        if share != 1.0 and not job.fp8_attention:
            # What the recipe leaves in 16 bits counts in full.
            share = 1 - (1 - share) * narrow_share(job, micro)
        moved = micro.weight_bytes * weights_read(job.model, layout) + micro.activation_bytes / shards
        rate, busy = share * often * micro.hardware_flops / shards, step.ideal / step.seconds
        clock = 1.0 if self.clock is None else self.clock.clock
        return Activity(rate, often * moved, busy, vector_share("training"), clock)

    def power(self, job: Job, layout: Layout, micro: Demand, step: Step) -> Any:
        """Mean watts of an accelerator; None where it states no TDP."""
        if self.chip is None or self.chip.tdp is None:
            return None
        return power_of(self.chip, self.activity(job, layout, micro, step), self.cap)

    def powered(self, job: Job, layout: Layout, micro: Demand, step: Step) -> tuple[ChipPower, Activity, Any] | None:
        """What the power of an accelerator follows from; None where it states no TDP."""
        if self.chip is None or self.chip.tdp is None:
            return None
        return chip_power(self.chip), self.activity(job, layout, micro, step), self.cap

    def draw(self, job: Job, layout: Layout, micro: Demand, step: Step, watts: Any) -> Draw:
        """What the power of an accelerator is made of."""
        assert self.chip is not None
        return parts_of(chip_power(self.chip), self.activity(job, layout, micro, step), watts)

    def _step(self, job: Job, layout: Layout, micro: Demand, held: tuple[Held, ...], a: Algebra) -> Step:
        offload = HostTimes()
        if self.host_link is not None:
            host, link = with_host(job, layout, held), self.host_link
            moves = not (_nothing(job.weights_offload) and _nothing(job.activations_offload))
            beside = beside_computing(host.weights, host.activations, link) if moves else None
            state = host_round_trip(host.optimizer, link)
            if self.host_memory is not None:
                each = job.keeps.bytes_each(job.optimizer, HALF, job.model)[2]
                gradients = HALF / each * host.optimizer
                state = updated_by_host(host.optimizer, gradients, link, self.host_memory)
                beside = 2 * gradients / link + (0.0 if beside is None else beside)
            offload = HostTimes(state, beside)
        if self.software is None:
            amounts = first_order_amounts(job, layout, micro)
            return first_order(job, layout, amounts, self.device, self.net, offload, a)
        s = self.software
        if isinstance(s, NetworkSoftware):
            return network_step(s, job, layout, offload, a)
        if isinstance(s, LookupSoftware):
            return lookup_step(s, job, layout, offload, a)
        return calibrated(job, layout, s.shape, s.chip, s.stack, s.constants, offload, a)

    def ledger(self, job: Job, layout: Layout) -> Ledger:
        """Parts of a step and bytes held."""
        held = training_held(job, layout)
        micro = self.demand(job, layout)
        return ledger_of(lambda a: self.step(job, layout, micro, held, a).seconds, held, self.capacity)


def _nothing(share: Any) -> bool:
    return isinstance(share, (int, float)) and share == 0
