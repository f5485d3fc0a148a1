"""Whether what failures and checkpoints add to a step is what binds its run.

A run makes progress for a share G = 1 - waste of its time (:mod:`mlsysim.cases.goodput`): a step of T seconds takes T / G of the run, of which
waste T / G is lost. That belongs to wall 15, for without failures nobody would save. It binds where it exceeds what any wall of the step has on
the critical path.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mlsysim.cases.goodput import Goodput
    from mlsysim.cases.ledger import Ledger

FRAGILITY = 15


def run_binding(step: Ledger, kept: Goodput) -> int:
    """The wall that binds the run of a step: 15 where failures cost more than any wall of the step, else the step's own."""
    if not kept.lasting:
        return FRAGILITY
    lost = step.seconds * kept.waste / kept.ratio
    return FRAGILITY if lost > max(step.walls().values()) else step.binding_wall
