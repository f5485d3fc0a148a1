"""What the fullest device of a training job holds, and the smallest change that makes it fit.

Weights, gradients, optimizer state, activations in flight and the reserve: what allocator and libraries take beside what is
counted, as a fraction of it. A job fits where all of it adds up to at most the capacity.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

from mlsysim.cases.job import Job
from mlsysim.cases.layout import Layout, divisors
from mlsysim.cases.ledger import RESERVE, Held
from mlsysim.cases.schedule import in_flight
from mlsysim.models.footprint import TrainingState, training_state

__all__ = ["MODES", "fitting_change", "on_device", "on_host", "training_held", "training_state_of"]

MODES = ("none", "selective", "full")
"""Recomputation modes that a search tries, mildest first."""


def training_state_of(job: Job, layout: Layout) -> TrainingState:
    """What the fullest device of a job holds, with what its activations consist of."""
    return training_state(
        job.model,
        layout.micro_batch,
        job.seq_len,
        job.precision,
        optimizer=job.optimizer,
        recompute=job.recompute,
        zero_stage=job.zero,
        dp=layout.dp,
        tp=layout.tp,
        pp=layout.pp,
        ep=layout.ep,
        cp=layout.cp,
        lora_rank=job.lora_rank,
        sequence_parallel=job.sequence_parallel,
        stages_in_flight=in_flight(layout),
        optimizer_offload=job.offload,
        scores_kept=job.scores_kept,
        weights_gathered=job.gathered and layout.pp > 1
        if isinstance(layout.pp, int)
        else job.gathered & (layout.pp > 1),
    )


def training_held(job: Job, layout: Layout) -> tuple[Held, ...]:
    """Bytes held on the fullest device, and with its host where optimizer state rests there."""
    state = training_state_of(job, layout)
    return (
        Held("weights", state.weights),
        Held("gradients", state.gradients),
        Held("optimizer state", state.optimizer),
        Held("activations", state.activations),
        Held(RESERVE, job.headroom * state.total),
        Held("optimizer state", state.host, "host"),
    )


def on_device(held: tuple[Held, ...]) -> Any:
    """Bytes on the device."""
    return sum((each.bytes for each in held if each.where == "device"), 0.0)


def on_host(held: tuple[Held, ...]) -> Any:
    """Bytes with the host."""
    return sum((each.bytes for each in held if each.where == "host"), 0.0)


def fitting_change(job: Job, layout: Layout, capacity: float) -> dict[str, Any] | None:
    """The smallest change of settings (fewest, then mildest) that would make the layout fit."""
    start = MODES.index(job.recompute) if job.recompute in MODES else 0
    counts = [count for count in divisors(layout.local_batch) if count >= layout.micro_batches]
    now = {"zero_stage": job.zero, "activation_recomputation": job.recompute, "microbatch_count": layout.micro_batches}

    def effort(option: tuple[int, str, int]) -> tuple[int, int, int, int]:
        zero, mode, count = option
        changed = sum(value != before for value, before in zip(option, now.values(), strict=True))
        return changed, zero, MODES.index(mode), count

    for zero, mode, count in sorted(product(range(job.zero, 4), MODES[start:], counts), key=effort):
        changed = replace(job, zero=zero, recompute=mode), replace(layout, micro_batches=count)
        if on_device(training_held(*changed)) <= capacity:
            values = zip(now, (zero, mode, count), strict=True)
            return {name: value for name, value in values if value != now[name]}
    return None
