"""What a pipeline schedule waits and holds: micro-batch times in which a stage is idle, micro-batches in flight."""

from __future__ import annotations

from typing import Any

from mlsysim.cases.layout import Layout
from mlsysim.physics.pipeline import idle_slots
from mlsysim.units.ops import minimum, where


def schedule_of(layout: Layout) -> str:
    """The schedule by name: 1F1B where nothing is said, interleaved with virtual stages."""
    if layout.pp == 1:
        return "1f1b"
    return layout.schedule or ("interleaved" if layout.virtual_stages > 1 else "1f1b")


def idle_time(layout: Layout) -> Any:
    """phi: the wait of a stage, in micro-batch times; nothing without a pipeline."""
    # Interleaved with one virtual stage is 1F1B.
    idle = idle_slots(layout.schedule or "interleaved", layout.pp, layout.virtual_stages)
    return where(layout.pp == 1, 0.0 * layout.pp, idle)


def in_flight(layout: Layout) -> Any:
    """Micro-batches whose activations the first stage holds at once.

    1F1B holds one per stage; interleaving adds (p - 1) / v of a stage's chunks; DualPipe holds one more than 1F1B. Never
    more than there are.
    """
    depth = 1.0 * layout.pp
    if layout.schedule in (None, "interleaved"):
        more = (layout.pp - 1) / layout.virtual_stages
        depth = depth + (
            more if layout.schedule == "interleaved" else where(layout.virtual_stages > 1, more, 0.0 * more)
        )
    elif layout.schedule == "dualpipe":
        depth = depth + where(layout.pp == 1, 0.0, 1.0)
    return minimum(depth, 1.0 * layout.micro_batches)
