"""A step inside its run: what failures and checkpoints add to it, and whether that is what binds.

A run makes progress for a share G = 1 - waste of its time (:mod:`mlsysim.cases.goodput`). A step of T seconds therefore takes T / G of the
run, and each kind of waste w takes w T / G of it:

    T / G = T + T (writes + rework + restarts + waiting) / G

These are losses: they are made of the step's own time, and a faster step makes all of them shorter per step. All belong to wall
15, for without failures nobody would save. Goodput binds where their sum exceeds what any wall of the step has on the
critical path.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mlsysim.cases.goodput import Goodput
from mlsysim.cases.ledger import Ledger, Part

FRAGILITY = 15


def run_ledger(step: Ledger, kept: Goodput) -> Ledger:
    """The step with what failures add to it; a run that makes no progress has none."""
    seconds: Any = step.seconds / kept.ratio
    lost = (
        ("checkpoint writes", "T_write = T w_write / G", kept.writes),
        ("work done again", "T_rework = T w_rework / G", kept.rework),
        ("restarts", "T_restart = T w_restart / G", kept.restarts),
        ("waiting for repairs", "T_wait = T w_wait / G", kept.waiting),
    )
    # What is lost is made of the step: it is handed on to the step's parts in proportion.
    parts = [replace(part, elastic=part.elastic / kept.ratio) for part in step.parts]
    parts += [Part(name, FRAGILITY, "", equation, exposed=share * seconds) for name, equation, share in lost]
    return replace(step, seconds=seconds, parts=tuple(parts))


def run_binding(step: Ledger, kept: Goodput) -> int:
    """The wall that binds the run of a step: 15 where failures cost more than any wall of the step, else the step's own."""
    if not kept.lasting:
        return FRAGILITY
    lost = step.seconds * kept.waste / kept.ratio
    return FRAGILITY if lost > max(step.walls().values()) else step.binding_wall
