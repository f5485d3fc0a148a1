"""A training step on one device: its memory, and its time at first order and calibrated.

It is the step of a fleet of one (:mod:`mlsysim.cases.train`, :mod:`mlsysim.cases.train_layers`), with the same memory and the same
reserve, under the software that one accelerator runs where nothing is said. Networks of fixed shape are timed by the training
stack of their runtime (:mod:`mlsysim.timing.vision_time`), which includes loss and update; recomputing all activations adds a
forward pass, frozen weights save what their gradients take; networks that state neither rows nor layers (recommenders) by their operators
(:mod:`mlsysim.timing.device_time`). What does not fit is timed as if it did.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mlsysim.cases.algebra import Algebra
from mlsysim.cases.assumptions import INFERRED, SOFTWARE, Assumptions
from mlsysim.cases.job import Job
from mlsysim.cases.joules import energy_band
from mlsysim.cases.layout import Layout
from mlsysim.cases.ledger import CONTEXT, RESERVE, Held
from mlsysim.cases.one_pass import Device, Timed, Work, first_order_pass
from mlsysim.cases.pass_times import refuse_runtime, say_profile, say_runtime, timed_by
from mlsysim.cases.train_lookup import LookupSoftware
from mlsysim.cases.train_network import NetworkSoftware
from mlsysim.cases.train_whole import narrow_share
from mlsysim.cases.trainer import Software, Trained, say_stack
from mlsysim.cases.training_memory import training_held, training_remedies
from mlsysim.hardware.types import HardwareNode
from mlsysim.models.base import Workload
from mlsysim.models.keeping import TEXTBOOK, Keeping
from mlsysim.models.storage import expanded_training
from mlsysim.models.training_shape import training_shape
from mlsysim.models.transformer import TransformerWorkload
from mlsysim.timing.device_time import check_known
from mlsysim.timing.runtimes import runtime_for, trained_by_runtime
from mlsysim.timing.stacks import ALONE, stack
from mlsysim.timing.training_chip import lone_chip, rated
from mlsysim.units.records import dataclass
from mlsysim.zoo.constants import constant


@dataclass(frozen=True, slots=True)
class TrainingStep:
    """The question: one step on a batch; ``dp`` devices share what ``zero_stage`` says."""

    model: Workload
    batch: int
    seq_len: int | None
    precision: str
    optimizer: str = "adam"
    recompute: str = "none"
    zero_stage: int = 0
    dp: int = 1
    lora_rank: int | None = None
    calibrated: bool = False
    runtime: str | None = None

    def help(self, available: float) -> list[str]:
        """The smallest changes that would make the step fit, its reserve included."""
        return training_remedies(_job(self), _layout(self), available)


def training_work(step: TrainingStep) -> tuple[Work, tuple[Held, ...]]:
    """What a step asks for, and what it holds."""
    model = step.model
    demand = model.demand(
        "training",
        batch_size=step.batch,
        seq_len=step.seq_len,
        precision=step.precision,
        recompute=step.recompute,
        frozen=step.lora_rank is not None,
    )
    held = tuple(each for each in training_held(_job(step), _layout(step)) if each.where == "device")
    sizes = {each.name: each.bytes for each in held}
    work = Work(
        flops=demand.flops,
        hardware_flops=demand.hardware_flops,
        moved=demand.bytes + expanded_training(model, demand, step.precision, step.lora_rank is not None),
        tokens=demand.tokens,
        samples=step.batch,
        weights=sizes["weights"] + sizes["gradients"] + sizes["optimizer state"],
        cache=0.0,
        working=sizes["activations"],
        reserve=sizes[RESERVE] + sizes.get(CONTEXT, 0.0),
        is_step=True,
        wide=(1 - narrow_share(_job(step), demand)) * demand.hardware_flops,
    )
    return work, held


def training_pass(
    step: TrainingStep,
    work: Work,
    held: tuple[Held, ...],
    device: Device,
    chip: HardwareNode,
    efficiency: float | None,
    runtime: str | None,
    assumed: Assumptions,
) -> Timed:
    """A training step with one efficiency, or calibrated where that is None."""
    fixed = trained_by_runtime(step.model, chip)
    if efficiency is not None or not fixed:
        refuse_runtime(step.model, chip, runtime, efficiency or "calibrated")
    if efficiency is not None:
        return first_order_pass(work, device, efficiency, chip, held)
    assumed.pop("bandwidth_efficiency", None)
    check_known(step.model, chip, step.precision)
    layers, software = _by_its_layers(step.model), _software(step, chip, runtime, assumed)
    band, words = software.band(_job(step), 1)
    assumed.say("interval", band.key, INFERRED, words)
    job, alone = replace(_job(step), zero=0), replace(_layout(step), dp=1)

    def seconds(a: Algebra) -> Any:
        return software.step(job, alone, a=a).seconds

    if layers:
        chip, limit = rated(chip)
        limits = [watts for watts in (limit, device.cap) if watts is not None]
        device = replace(device, cap=min(limits, default=None))
    how = "training" if layers else "eager"
    timed = timed_by(seconds, work, held, device.capacity, device, chip, band, bounded=not layers, vector=how)
    return replace(timed, energy_band=energy_band(timed, chip, "energy of training", device.cap))


def _by_its_layers(model: Workload) -> bool:
    return isinstance(model, TransformerWorkload) and model.has_dimensions


def _job(step: TrainingStep) -> Job:
    software = stack(ALONE)
    return Job(
        step.model,
        step.precision,
        step.seq_len or 1,
        recompute=step.recompute,
        selective=software.selective,
        zero=step.zero_stage,
        optimizer=step.optimizer,
        lora_rank=step.lora_rank,
        headroom=constant("allocator_overhead_fraction").number,
        keeps=_keeps(step),
    )


def _keeps(step: TrainingStep) -> Keeping:
    """What the software of a calibrated step holds."""
    if step.calibrated and _by_its_layers(step.model):
        return stack(ALONE).keeps
    if step.calibrated and step.model.fixed_shape and not step.model.looks_up:
        return runtime_for(step.model, "training", step.runtime)[0].keeps
    return TEXTBOOK


def _layout(step: TrainingStep) -> Layout:
    return Layout(dp=step.dp, tp=1, pp=1, ep=1, cp=1, micro_batches=1, local_batch=step.batch)


def _software(step: TrainingStep, chip: HardwareNode, name: str | None, assumed: Assumptions) -> Trained:
    """What trains on one accelerator: a stack by its layers, a network by its runtime, a recommender by its operators."""
    if trained_by_runtime(step.model, chip):
        network = NetworkSoftware.of(step.model, chip, name, lone_chip(chip, "bf16"))
        say_runtime(network.runtime, name, assumed)
        return network
    if _by_its_layers(step.model):
        found = Software(training_shape(step.model), lone_chip(chip, step.precision), stack(ALONE))
        say_stack(found.stack, chip, found.chip, found.shape, assumed)
        return found
    tables = LookupSoftware(chip, lone_chip(chip, "bf16").network)
    timed = tables.device(_job(step), step.batch)
    say_profile(timed.profile, assumed)
    assumed.say("software", timed.software, SOFTWARE)
    return tables
