"""Pipeline schedules: how much of a step the stages spend waiting.

With p stages and m micro-batches that take t each (forward and backward), a stage works m t and waits phi t:

    1F1B                  phi = p - 1                 (Narayanan et al., SC'21)
    interleaved           phi = (p - 1) / v           v virtual stages per device
    zero-bubble (H1)      phi = (p - 1) / 3           the gradient of weights fills two thirds of the wait (Qi et al. 2024)
    DualPipe              phi = (p - 2) / 3           two directions at once; p even (DeepSeek-V3, 2024)

The last two take forward, input gradient and weight gradient to be equally long. The bubble fraction is phi / (m + phi)
of the whole step; the bubble over useful time is phi / m. Both are in use; we report the first.
"""

from __future__ import annotations

from typing import Any

from mlsysim.units.kernel import kernel

SCHEDULES = ("1f1b", "interleaved", "zero_bubble", "dualpipe")


def idle_slots(schedule: str, stages: Any, virtual_stages: Any = 1) -> Any:
    """phi: the wait of a stage, in micro-batch times.

    For pipelines that can be filled: zero-bubble from m >= p micro-batches on (with fewer a stage waits (2p - 1 - m) / 3),
    DualPipe from m >= 2p.
    """
    if schedule == "interleaved":
        return (stages - 1) / virtual_stages
    if schedule == "zero_bubble":
        return (stages - 1) / 3
    if schedule == "dualpipe":
        return (stages - 2) / 3
    return stages - 1


@kernel("idle [0.1, 1e3], micro_batches whole [1, 1e4] -> fraction")
def bubble_fraction(idle: Any, micro_batches: Any) -> Any:
    """Share of the whole step that a stage waits."""
    return idle / (micro_batches + idle)
