"""A training step on one device: its memory, and its time at first order and calibrated.

Memory holds weights, gradients, optimizer state and the activations that wait for the backward pass. Networks of fixed shape are
timed by the training stack of their runtime (:mod:`mlsysim.timing.vision_time`), which includes loss and update; recomputing all
activations adds a forward pass, frozen weights leave two thirds. The rest is timed by its operators
(:mod:`mlsysim.timing.device_time`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mlsysim.cases.algebra import Algebra, ledger_of
from mlsysim.cases.assumptions import INFERRED, SOFTWARE, Assumptions
from mlsysim.cases.capacity import training_remedies, training_state
from mlsysim.cases.ledger import Held
from mlsysim.cases.one_pass import Device, Timed, Work, first_order_pass
from mlsysim.cases.pass_times import joules_of, profile_band, refuse_runtime, say_profile, say_runtime, timed_by
from mlsysim.hardware.types import HardwareNode
from mlsysim.models.base import Workload
from mlsysim.models.inventory import inventory_of
from mlsysim.physics.precision import bytes_per_element
from mlsysim.timing.device_time import check_known, training_time
from mlsysim.timing.runtimes import band_of, has_inventory, runtime_for
from mlsysim.timing.vision_time import inventory_time
from mlsysim.zoo.intervals import Interval

__all__ = ["TrainingStep", "training_help", "training_pass", "training_work"]

_HALF = 2.0


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
    state = training_state(
        model,
        step.batch,
        step.seq_len,
        step.precision,
        optimizer=step.optimizer,
        recompute=step.recompute,
        zero_stage=step.zero_stage,
        dp=step.dp,
        lora_rank=step.lora_rank,
    )
    held = (
        Held("weights", state.weights),
        Held("gradients", state.gradients),
        Held("optimizer state", state.optimizer),
        Held("activations", state.activations),
    )
    work = Work(
        flops=demand.flops,
        hardware_flops=demand.hardware_flops,
        moved=demand.bytes,
        tokens=demand.tokens,
        samples=step.batch,
        weights=state.weights + state.gradients + state.optimizer,
        cache=0.0,
        working=state.activations,
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
    fixed = has_inventory(step.model, chip) and chip.family != "cpu"
    if efficiency is not None or not fixed:
        refuse_runtime(step.model, chip, runtime, efficiency or "calibrated")
    if efficiency is not None:
        return first_order_pass(work, device, efficiency, held)
    assumed.pop("bandwidth_efficiency", None)
    check_known(step.model, chip, step.precision)
    form = _by_runtime(step, chip, runtime, assumed) if fixed else _by_operators(step, chip, assumed)
    seconds, band, words = form
    assumed.say("interval", band.regime, INFERRED, words)
    needed, linked = work.total, device.host_link == device.host_link
    spilled = work.moved * (1 - device.capacity / needed) if needed > device.capacity and linked else 0.0

    def case(a: Algebra) -> Any:
        least = a.tag("arithmetic at the peak", 1, "peak", "T >= F / P", work.hardware_flops / device.peak)
        total = a.longest(seconds(a), least)
        if not spilled:
            return total
        over = spilled / device.host_link
        return total + a.tag("streamed from the host", 2, "host link", "T = S / L", over, moved=spilled)

    ledger = ledger_of(case, held, device.capacity)
    return timed_by(ledger, band, spilled, joules_of(ledger, chip, work, device))


def _by_runtime(
    step: TrainingStep, chip: HardwareNode, name: str | None, assumed: Assumptions
) -> tuple[Any, Interval, str]:
    chosen, stack = runtime_for(step.model, "training", name)
    say_runtime(chosen, name, assumed)
    inventory = inventory_of(step.model)
    share = 2 / 3 if step.lora_rank is not None else 1.0

    def seconds(a: Algebra) -> Any:
        total = share * inventory_time(inventory, chip, step.batch, step.precision, stack, tag=a.tag).total
        if step.recompute != "full":
            return total
        ahead = chosen.inference or stack.removesuffix("_train")
        return total + inventory_time(inventory, chip, step.batch, step.precision, ahead, tag=a.tag).total

    return seconds, *band_of(stack, chip, step.batch)


def _by_operators(step: TrainingStep, chip: HardwareNode, assumed: Assumptions) -> tuple[Any, Interval, str]:
    timed = training_time(
        step.model,
        chip,
        step.batch,
        step.seq_len,
        step.precision,
        step.recompute,
        step.optimizer,
        frozen=step.lora_rank is not None,
        software_name="torch" if bytes_per_element(step.precision) > _HALF else "torch_amp",
    )
    say_profile(timed.profile, assumed)
    assumed.say("software", timed.software, SOFTWARE)

    def seconds(a: Algebra) -> Any:
        equation = "T = sum of operators"
        return (
            a.tag("operators bound by arithmetic", 1, "peak", equation, timed.arithmetic, flop=timed.flops)
            + a.tag(
                "operators bound by memory",
                2,
                "bandwidth",
                equation,
                timed.device - timed.arithmetic,
                moved=timed.moved,
            )
            + a.tag("launches", 3, "host", equation, timed.waiting)
        )

    return seconds, *profile_band(timed.regime, timed.profile)


def training_help(step: TrainingStep, available: float) -> list[str]:
    """The smallest changes that would make the step fit."""
    return training_remedies(
        step.model,
        step.batch,
        step.seq_len or 1,
        step.precision,
        available,
        optimizer=step.optimizer,
        recompute=step.recompute,
        zero_stage=step.zero_stage,
        dp=step.dp,
        lora_rank=step.lora_rank,
    )
