"""What lies between a client and the scheduler, and what an engine that was just started does first."""

from __future__ import annotations

from typing import Any

from mlsysim.cases.algebra import Algebra
from mlsysim.cases.request import COLD_START, FRONT_END, MEMORY, RECALL, SOFTWARE
from mlsysim.cases.traffic import Traffic
from mlsysim.cases.turns import Stepping
from mlsysim.timing.engines import Engine
from mlsysim.units.ops import some, where


def front_end(engine: Engine, t: Traffic, a: Algebra) -> Any:
    """What lies between client and scheduler: a request's own, and the text of its prompt, cached or not."""
    time = engine.front_end + engine.tokenise * t.mean_prompt if t.habits.server else 0.0
    return a.tag(FRONT_END, SOFTWARE, "host", "t = t_front + t_token I", time) + recalled(t, a)


def recalled(t: Traffic, a: Algebra) -> Any:
    """What is cached with the host, until it is there."""
    return a.tag(RECALL, MEMORY, "host link", "t = h I c / L", t.recall) if some(t.recall > 0) else 0.0


def cold_start(step: Stepping, t: Traffic, a: Algebra) -> Any:
    """Kernels for full steps are compiled when the first of them comes, for which all of the first round wait."""
    if t.habits.warm:
        return 0.0
    full = t.concurrency * t.mean_prompt > (step.engine.token_budget if t.chunk is None else t.chunk)
    cold = where(full, step.engine.cold_start / t.habits.rounds, 0.0)
    return a.tag(COLD_START, SOFTWARE, "host", "t = t_cold / rounds", cold)
