"""From the inputs of :class:`DistributedModel` to the case of a training step, for one layout or an array of them.

At calibrated fidelity what the caller leaves open (ZeRO stage, sequence parallelism, what overlaps) is the stack's, and is said
with that origin; what the caller gives holds at either fidelity.
"""

from __future__ import annotations

from typing import Any

from mlsysim.cases.assumptions import CHIP, INFERRED, SOFTWARE, Assumptions, shown
from mlsysim.cases.job import Job, Overlap
from mlsysim.cases.layout import Layout
from mlsysim.cases.offload import host_link
from mlsysim.cases.recompute import again
from mlsysim.cases.train import Device
from mlsysim.cases.train_network import NetworkSoftware
from mlsysim.cases.trainer import Software, Trainer
from mlsysim.errors import InputError
from mlsysim.hardware.arithmetic import arithmetic_peak
from mlsysim.models.footprint import TEXTBOOK
from mlsysim.models.training_shape import training_shape
from mlsysim.timing.network import Hierarchical, datasheet_network
from mlsysim.timing.runtimes import trained_by_runtime
from mlsysim.timing.stacks import Stack, default_stack, stack
from mlsysim.timing.training_chip import chip_in_fleet
from mlsysim.units.registry import to_si
from mlsysim.walls.data.locality import topology_share
from mlsysim.walls.inputs import CALIBRATED

_OF_OPERATORS = {"fp8_attention": False, "predicted_tokens": 0, "target_share": 1.0, "recomputed": None}
"""Inputs that speak of single operators, and what leaves them alone."""


def trainer_of(x: Any, assumed: Assumptions) -> Trainer:
    """The fleet and its software. The efficiency may be an array, congestion is that of the job's points."""
    fleet, chip = x.fleet, x.fleet.node.accelerator
    peak, note = arithmetic_peak(chip, x.precision)
    if note:
        assumed.say("arithmetic", note, CHIP)
    net = datasheet_network(fleet, topology_share(fleet, x.topology_override, assumed), assumed)
    software: Software | NetworkSoftware | None = None
    calibrated = isinstance(x.efficiency, str) and x.efficiency == CALIBRATED
    if calibrated and trained_by_runtime(x.model, chip):
        software = _of_network(x, net, assumed)
    elif calibrated:
        shape = training_shape(x.model, x.target_share)
        found = chip_in_fleet(fleet, x.precision, net.fabric, x.power_cap)
        name = stack_name(x)
        chosen = stack(name)
        software = Software(shape, found, chosen)
        assumed.say("stack", name, SOFTWARE, f"{chosen.name}: {chosen.title} ({chosen.year})")
        if not found.measured:
            text = f"{chip.name} has no measured training constants; those of its class are used"
            assumed.say("extrapolating", True, CHIP, text)
    else:
        assumed.pop("stack", None)
        for name in _OF_SOFTWARE:
            if name in assumed.given and getattr(x, name) is not None:
                _no_effect(x, name, "a first-order step is one operator at one efficiency", assumed)
        for name, plain in _OF_OPERATORS.items():
            assumed.pop(name, None)
            if getattr(x, name) != plain:
                raise InputError(
                    f"{name} needs efficiency='calibrated': a first-order step is one operator.", field=name
                )
    return Trainer(
        device=Device(
            peak=peak,
            efficiency=1.0 if software is not None else x.efficiency,
            bandwidth=to_si(chip.memory.bandwidth, "byte/s"),
        ),
        net=net,
        capacity=to_si(chip.memory.capacity, "byte"),
        host_link=None
        if isinstance(x.optimizer_offload, (int, float)) and not x.optimizer_offload
        else host_link(chip),
        software=software,
    )


def _of_network(x: Any, net: Hierarchical, assumed: Assumptions) -> NetworkSoftware:
    """A network of fixed shape, under the runtime that is its stack."""
    for name, plain in {**_OF_OPERATORS, "power_cap": None}.items():
        if getattr(x, name) != plain:
            raise InputError(f"{name} has no effect on {x.model.name}, whose operators are not layers.", field=name)
        assumed.pop(name, None)
    ring = chip_in_fleet(x.fleet, "bf16", net.fabric).network
    software = NetworkSoftware.of(x.model, x.fleet.node.accelerator, x.stack, ring)
    assumed.say("stack", software.runtime.name, SOFTWARE, f"{software.runtime.name}: {software.runtime.title}")
    return software


_OF_SOFTWARE = ("stack", "power_cap")
"""Inputs that say what a measured rate belongs to."""


def _no_effect(x: Any, name: str, why: str, assumed: Assumptions) -> None:
    value = getattr(x, name)
    assumed.say(name, value, INFERRED, f"{shown(value)}: no effect, {why}")


def say_idle_inputs(x: Any, layout: Layout, trainer: Trainer, assumed: Assumptions) -> None:
    """What was given and can have no effect in this layout, with the reason."""
    reasons = {
        "tensors are not split": (layout.tp == 1, ("sequence_parallel", "overlap_tp")),
        "there is no pipeline": (layout.pp == 1, ("schedule", "overlap_pp")),
        "the sequence is not split": (layout.cp == 1, ("overlap_cp",)),
        "experts are not split": (layout.ep == 1, ("overlap_ep", "deduplicated_exchange")),
        "all experts share a link domain": (1 < layout.ep <= trainer.domain, ("deduplicated_exchange",)),
        "nothing is synchronised": (layout.dp * layout.cp == 1 and not x.overlap_comm, ("overlap_comm",)),
        "recomputation is not selective": (x.activation_recomputation != "selective", ("recomputed",)),
        f"{x.model.name} has no encoder": (getattr(x.model, "encoder_stack", None) is None, ("target_share",)),
    }
    for why, (holds, names) in reasons.items():
        for name in names:
            if holds and name in assumed.given and getattr(x, name) is not None:
                _no_effect(x, name, why, assumed)


def stack_name(x: Any) -> str:
    """The software that was asked for, or the default for so many accelerators."""
    return str(x.stack or default_stack(x.fleet.total_accelerators))


def schedule_given(x: Any) -> str | None:
    """The schedule that was asked for, else the stack's own; None for 1F1B, interleaved with virtual stages."""
    if x.schedule is not None or not isinstance(x.efficiency, str) or x.model.fixed_shape:
        return x.schedule
    return stack(stack_name(x)).schedule


def job_of(x: Any, trainer: Trainer, assumed: Assumptions) -> Job:
    """What is trained, and under which rules."""
    software = trainer.software.stack if isinstance(trainer.software, Software) else None
    settings = _first_order(x, trainer) if software is None else _of_stack(x, software, assumed)
    zero, parallel, overlap, deduplicated = settings
    mode = x.activation_recomputation
    return Job(
        model=x.model,
        precision=x.precision,
        seq_len=1 if x.model.fixed_shape else x.seq_len,
        recompute=mode,
        again=again(mode, x.recomputed or ("attention" if software is None else software.selective)),
        zero=zero,
        accumulation=x.gradient_accumulation_steps,
        optimizer=x.optimizer,
        offload=x.optimizer_offload,
        lora_rank=x.lora_rank if x.is_lora else None,
        sequence_parallel=parallel,
        overlap=overlap,
        straggler=x.straggler_factor,
        imbalance=x.moe_routing_imbalance_factor,
        headroom=x.memory_headroom,
        keeps=TEXTBOOK if software is None else software.keeps,
        fp8_attention=x.fp8_attention,
        deduplicated=deduplicated,
        predicted_tokens=x.predicted_tokens,
    )


def _first_order(x: Any, trainer: Trainer) -> tuple[Any, bool, Overlap, bool]:
    overlap = Overlap(
        tensor=x.overlap_tp,
        expert=x.overlap_ep,
        context=x.overlap_cp,
        pipeline=x.overlap_pp,
        data=x.overlap_efficiency if x.overlap_comm or trainer.software is not None else 0.0,
    )
    return x.zero_stage, x.sequence_parallel, overlap, bool(x.deduplicated_exchange)


def _of_stack(x: Any, software: Stack, assumed: Assumptions) -> tuple[Any, bool, Overlap, bool]:
    """The caller's settings, and the stack's where the caller says nothing.

    Two activities at once slow each other: a share kappa of the shorter is not hidden.
    """
    hides = 1 - software.kappa
    own: dict[str, Any] = {
        "zero_stage": software.zero,
        "sequence_parallel": software.sequence_parallel,
        "overlap_comm": software.data_overlap,
        "overlap_efficiency": hides,
        "overlap_tp": 1 - software.tensor_exposed,
        "overlap_ep": 1 - software.exchange_exposed,
        "overlap_cp": hides,
        "overlap_pp": 1 - software.send_exposed,
        "deduplicated_exchange": True,
    }
    chosen = {name: getattr(x, name) if name in assumed.given else value for name, value in own.items()}
    for name, value in chosen.items():
        if name not in assumed.given:
            assumed.say(name, value, SOFTWARE, f"{shown(value)} (stack {software.name})")
    data = chosen["overlap_efficiency"] if chosen["overlap_comm"] else 0.0
    off = "overlap_comm" in assumed.given and not chosen["overlap_comm"]
    overlap = Overlap(
        tensor=chosen["overlap_tp"],
        expert=chosen["overlap_ep"],
        context=chosen["overlap_cp"],
        context_room=chosen["overlap_cp"],
        pipeline=chosen["overlap_pp"],
        data=data,
        data_room=1.0 if "overlap_efficiency" in assumed.given else hides,
        gathers=0.0 if off else chosen["overlap_efficiency"],
    )
    return chosen["zero_stage"], chosen["sequence_parallel"], overlap, bool(chosen["deduplicated_exchange"])
