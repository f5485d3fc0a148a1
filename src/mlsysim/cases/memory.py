"""Memory of a layout: how many micro-batches a schedule keeps in flight, and the smallest change that makes it fit."""

from __future__ import annotations

from typing import Any

from mlsysim.cases.capacity import training_state
from mlsysim.cases.layout import Layout, divisors
from mlsysim.units.ops import minimum

__all__ = ["fitting_change", "in_flight"]


def in_flight(schedule: str, layout: Any) -> Any:
    """Micro-batches whose activations the first stage holds at once.

    1F1B holds one per stage; interleaving adds (p - 1) / v of a stage's chunks; DualPipe holds one more than 1F1B. Never
    more than there are.
    """
    depth = 1.0 * layout.pp
    if schedule == "interleaved":
        depth = depth + (layout.pp - 1) / layout.virtual_stages
    elif schedule == "dualpipe":
        depth = depth + 1
    return minimum(depth, 1.0 * layout.micro_batches)


def fitting_change(x: Any, layout: Layout, schedule: str, capacity: float) -> str | None:
    """The smallest change (fewest settings, then mildest) that would make the layout fit, in words."""
    options = []
    counts = [m for m in divisors(layout.local_batch) if m >= layout.micro_batches]
    modes = ("none", "selective", "full")
    start = modes.index(x.activation_recomputation)
    for zero in range(x.zero_stage, 4):
        for mode in modes[start:]:
            for count in counts:
                cost = (
                    (zero != x.zero_stage) + (mode != x.activation_recomputation) + (count != layout.micro_batches),
                    zero - x.zero_stage,
                    modes.index(mode),
                    count,
                )
                options.append((cost, zero, mode, count))
    for _, zero, mode, count in sorted(options):
        cut = Layout(
            layout.dp, layout.tp, layout.pp, layout.ep, layout.cp, count, layout.local_batch, layout.virtual_stages
        )
        state = training_state(
            x.model,
            cut.micro_batch,
            x.seq_len,
            x.precision,
            optimizer=x.optimizer,
            recompute=mode,
            zero_stage=zero,
            dp=layout.dp,
            tp=layout.tp,
            pp=layout.pp,
            ep=layout.ep,
            cp=layout.cp,
            lora_rank=x.lora_rank if x.is_lora else None,
            sequence_parallel=x.sequence_parallel,
            stages_in_flight=in_flight(schedule, cut),
            optimizer_offload=x.optimizer_offload,
            weights_gathered=x.weights_gathered,
        )
        if state.total <= capacity:
            changes = []
            if zero != x.zero_stage:
                changes.append(f"zero_stage={zero}")
            if mode != x.activation_recomputation:
                changes.append(f"activation_recomputation={mode!r}")
            if count != layout.micro_batches:
                changes.append(f"microbatch_count={count}")
            return "it fits with " + " and ".join(changes)
    return None
