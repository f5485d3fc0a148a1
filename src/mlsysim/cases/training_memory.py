"""What the fullest device of a training job holds, and the smallest change that makes it fit.

Weights, gradients, optimizer state, activations in flight, what driver and libraries have, and the reserve: what the allocator takes
beside what it hands out, as a fraction of it, or of its logits where the software frees and splits them. A job fits where all of it adds up to at most the capacity.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

from mlsysim.cases.algebra import Remembering
from mlsysim.cases.job import Job
from mlsysim.cases.layout import Layout, divisors
from mlsysim.cases.ledger import CONTEXT, RESERVE, Held
from mlsysim.cases.offload import HostBytes
from mlsysim.cases.schedule import in_flight, named, sharing, weight_copies
from mlsysim.models.footprint import Training
from mlsysim.models.keeping import Keeping
from mlsysim.models.training_state import TrainingState
from mlsysim.units.ops import Once, each_time, maximum, where
from mlsysim.vocabulary import Setting, worded

MODES = ("none", "selective", "full")
"""Recomputation modes that a search tries, mildest first."""
_RANK = 16
"""Of the adapters that a remedy proposes."""


def training_state_of(job: Job, layout: Layout, once: Once = each_time) -> TrainingState:
    """What the fullest device of a job holds, with what its activations consist of."""
    shared = sharing(job, layout)
    return Training(
        job.model,
        layout.micro_batch,
        job.seq_len,
        job.precision,
        optimizer=job.optimizer,
        recompute=job.recompute,
        again=job.again,
        zero_stage=job.zero,
        shard=layout.shard,
        whole_weights=shared.whole_weights,
        whole_gradients=shared.whole_gradients,
        dp=layout.dp,
        tp=layout.tp,
        pp=layout.pp,
        ep=layout.ep,
        cp=layout.cp,
        lora_rank=job.lora_rank,
        lora_targets=job.lora_targets,
        sequence_parallel=job.sequence_parallel,
        schedule=named(layout),
        micro_batches=layout.micro_batches * job.accumulation,
        group=layout.group,
        chunks=layout.virtual_stages,
        optimizer_offload=job.offload,
        weights_offload=job.weights_offload,
        activations_offload=job.activations_offload,
        keeps=job.keeps,
        copies=weight_copies(layout),
        several=layout.micro_batches * job.accumulation > 1,
        once=once,
    ).fullest


def runtime_bytes(keeps: Keeping, layout: Layout) -> Any:
    """What the process has beside its tensors: context and libraries, and the buffers of a communicator for each way in which the model is
    split, and one for the data; that of experts connects every pair of its ranks. Left out: communicators that software makes and hardly
    uses, memory that sends register, buffers that a launcher makes smaller."""
    ways = sum(where(degree > 1, 1.0, 0.0) for degree in (layout.tp, layout.pp, layout.cp, layout.dp * layout.cp))
    return keeps.held_back + keeps.communicator * ways + keeps.exchange * where(layout.ep > 1, 1.0, 0.0)


def training_held(job: Job, layout: Layout, once: Once = each_time) -> tuple[Held, ...]:
    """Bytes held on the fullest device, and what rests with its host."""
    state = training_state_of(job, layout, once)
    # Gradients whose update is the host's go there as they come.
    sent = 1 - job.updated_here
    waits = (Held("gradients", sent * state.gradients, "host"),) if job.host_update else ()
    state = replace(state, gradients=state.gradients - sent * state.gradients) if job.host_update else state
    cached = job.keeps.cached * state.saved.logits
    return (
        Held("weights", state.weights),
        Held("gradients", state.gradients),
        Held("optimizer state", state.optimizer),
        Held("activations", state.activations),
        *((Held(CONTEXT, runtime_bytes(job.keeps, layout)),) if job.keeps.held_back else ()),
        Held(RESERVE, maximum(job.headroom * state.total, cached)),
        Held("optimizer state", state.host, "host"),
        Held("weights", state.host_weights, "host"),
        Held("activations", state.host_activations, "host"),
        *waits,
    )


def on_device(held: tuple[Held, ...]) -> Any:
    """Bytes on the device."""
    return sum((each.bytes for each in held if each.where == "device"), 0.0)


def with_host(job: Job, layout: Layout, held: tuple[Held, ...]) -> HostBytes:
    """Bytes with the host; of activations those of one micro-batch."""
    sizes = {each.name: each.bytes for each in held if each.where == "host"}
    flight = in_flight(layout, getattr(job.model, "layers", None) or 1, job.accumulation)
    return HostBytes(sizes["optimizer state"], sizes["weights"], sizes["activations"] / flight)


NOTHING_HELPS = "no ZeRO stage, recomputation or smaller micro-batches make this split fit; another split, more accelerators or a smaller batch may"
NO_LAYOUT_HELPS = "every other layout that was searched needs more"


def fitting_change(job: Job, layout: Layout, capacity: float) -> dict[str, Any] | None:
    """The smallest change of settings (fewest, then mildest) that would make the layout fit."""
    start = MODES.index(job.recompute) if job.recompute in MODES else 0
    counts = [count for count in divisors(layout.local_batch) if count >= layout.micro_batches]
    now = {"zero_stage": job.zero, "activation_recomputation": job.recompute, "microbatch_count": layout.micro_batches}

    def effort(option: tuple[int, str, int]) -> tuple[int, int, int, int]:
        zero, mode, count = option
        changed = sum(value != before for value, before in zip(option, now.values(), strict=True))
        return changed, zero, MODES.index(mode), count

    once = Remembering().once
    for zero, mode, count in sorted(product(range(job.zero, 4), MODES[start:], counts), key=effort):
        changed = replace(job, zero=zero, recompute=mode), replace(layout, micro_batches=count)
        if on_device(training_held(*changed, once)) <= capacity:
            values = zip(now, (zero, mode, count), strict=True)
            return {name: value for name, value in values if value != now[name]}
    return None


def training_remedies(job: Job, layout: Layout, capacity: float) -> list[str]:
    """The smallest changes that would make a step fit on one device, cheapest first; only those that do."""

    def fits(dp: int = layout.dp, **changes: Any) -> bool:
        return bool(on_device(training_held(replace(job, **changes), replace(layout, dp=dp))) <= capacity)

    found: list[str] = []
    if job.recompute != "full" and fits(recompute="full"):
        found.append(worded("recompute activations (", Setting("activation_recomputation", "full"), ")"))
    for stage in range(job.zero + 1, 4):
        if layout.dp > 1 and fits(zero=stage):
            shared = f"share the state over the {layout.dp} data-parallel devices ("
            found.append(worded(shared, Setting("zero_stage", stage), ")"))
            break
    if job.lora_rank is None and fits(lora_rank=_RANK):
        found.append(worded("train adapters only (", Setting("is_lora", True), ")"))
    for devices in (2**n for n in range(1, 17)):
        if devices > layout.dp and fits(devices, recompute="full", zero=3):
            found.append(f"use {devices} devices with ZeRO 3 and full recomputation")
            break
    return found or ["use a smaller batch or sequence: its activations alone do not fit"]
