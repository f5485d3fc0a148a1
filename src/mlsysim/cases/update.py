"""The optimizer's own work in a step: its state read and written, and the products of Muon.

    T_update = [ g + 2 s + w ] P / W            g, s, w bytes of gradient, state (master weight included) and weight of a parameter
    T_Muon   = k ceil(M / N) F / M / R + gathers

Each device updates the P parameters whose state it keeps. Muon (Jordan et al. 2024) replaces the momentum of each matrix by the nearest orthogonal
one, in k steps of a Newton-Schulz iteration, each of which takes F operations on all M matrices of a stage (:func:`mlsysim.models.traffic.matrices`);
tables, heads and vectors are AdamW's. A matrix is whole where it is worked on: the N ranks that keep shares of the stage's matrices (those of the
tensor group, with ZeRO also the replicas of a shard) work on different ones (Liu et al., "Muon is scalable for LLM training", 2025), for which 16-bit momenta are
gathered once over replicas with ZeRO, and over the tensor group there and back. Nothing of it is hidden.

Beside the 6 m n operations a token of an m x n matrix, k (4 m n n + 2 n n n) for a batch of B tokens are at most k n / B of the step.
"""

from __future__ import annotations

from typing import Any

from mlsysim.cases.algebra import Algebra
from mlsysim.cases.job import Job
from mlsysim.cases.layout import Groups, Layout
from mlsysim.models.stages import shared_parameters, stages_of
from mlsysim.models.traffic import matrices
from mlsysim.physics.precision import bytes_per_element
from mlsysim.physics.training_memory import MUON, optimizer_key
from mlsysim.units.ops import ceil, maximum, minimum, where
from mlsysim.zoo.constants import constant

_HALF, _FULL = bytes_per_element("bf16"), bytes_per_element("fp32")


def owned_parameters(job: Job, layout: Layout) -> Any:
    """Parameters of the fullest device whose state it keeps; none of weights that are frozen, beside which adapters are small."""
    degrees = (layout.dp, layout.tp, layout.ep, layout.cp)
    total: Any = 0.0
    for stage in stages_of(job.model, layout.pp, layout.virtual_stages, placed=False):
        own: Any = 0.0
        for local, group in shared_parameters(job.model, *degrees, stage):
            ranks = group if layout.shard is None else minimum(group, layout.shard)
            own = own + local / where(job.zero >= 1, ranks, 1)
        total = maximum(total, own)
    # Of tables those rows that the samples of a device have read, which are as many as others read of its own.
    touched = job.model.looked_up_parameters * layout.micro_batch * layout.micro_batches * job.accumulation
    return (0.0 if job.frozen else 1.0) * job.updated_here * (total + touched)


def update_bytes(job: Job, layout: Layout) -> Any:
    """Bytes that the update of a first-order step moves: the gradient is read, the state read and written, the weight written.

    Weights in fp32 are their own master copy, and are read too.
    """
    weight = max(bytes_per_element(job.precision), _HALF)
    held, gradient, states = job.keeps.bytes_each(job.optimizer, weight, job.model)
    return (gradient + 2 * states + (2 if held >= _FULL else 1) * held) * owned_parameters(job, layout)


def orthogonalised(a: Algebra, job: Job, layout: Layout, net: Any, g: Groups, rate: Any) -> Any:
    """Seconds of Muon's products at a ``rate``, with the gathers before and after them; nothing of another optimizer."""
    if job.frozen or optimizer_key(job.optimizer) != MUON:
        return 0.0
    steps = constant("newton_schulz_steps").number
    sharded, replicas = job.zero >= 1, layout.dp * layout.cp
    if layout.shard is not None:
        replicas = minimum(replicas, layout.shard)
    operations: Any = 0.0
    moved: Any = 0.0
    for found, degree in zip(matrices(job.model), (layout.tp, layout.ep), strict=True):
        if found.number:
            ranks = where(sharded, maximum(layout.tp * replicas, degree), degree)
            turns = ceil(found.number / (layout.pp * ranks))
            operations = operations + steps * turns * found.operations / found.number
            moved = moved + _HALF * found.parameters / (layout.pp * degree)
    over = where(sharded, net.gather(moved, g.shard), 0.0)
    inside = where(layout.tp > 1, 2.0 * net.gather(moved * layout.tp, g.tensor), 0.0)
    worked = a.tag("Newton-Schulz products", 1, "peak", "Muon", operations / rate, flop=operations)
    return worked + a.tag(
        "momenta gathered",
        14,
        g.shard.resource,
        "ring",
        over + inside,
        sent=lambda: _sent(moved, layout.tp, replicas, sharded),
    )


def _sent(moved: Any, tp: Any, replicas: Any, sharded: Any) -> Any:
    return moved * (where(sharded, (replicas - 1) / replicas, 0.0) + 2 * (tp - 1))
