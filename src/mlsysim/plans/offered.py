"""Whether so few replicas break a limit whatever else they do: the prompts of a trace as work that is only read.

Requests that are dealt in turn wait at least for the prompts before them on the same replica (Lindley 1952), each read as fast as a full step reads
at its best, with nothing cached and no answer beside it:

    w' = max(w + x - gap, 0),    x = tokens / rate of a full step,    first token >= w + x

Where more first tokens are late by this than a limit allows, the play of all requests is late too, and need not be played: a pass takes milliseconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from mlsysim.plans.served import Served
from mlsysim.plans.targets import percent

_SURE = 1.02
"""Times a limit that is surely missed: percentiles of a play are known to a percent."""


def breaks(served: Served, trace: Iterable[Any], replicas: int) -> bool:
    """Whether a limit on the first token, or on a whole request, is broken for sure by so many replicas, to whom requests are dealt in turn."""
    machine = served.result.named("machine")
    step, traffic = machine.reader, served.result.named("clients")
    budget = float(traffic.chunk or step.engine.token_budget)
    if step.deployment.pp > 1:
        return False
    each = float(step.time(0.0, 0.0, 1.0, budget, 0.0).total) / budget / step.deployment.attention_dp
    free, late = [0.0] * replicas, list[float]()
    for number, request in enumerate(trace):
        own = number % replicas
        free[own] = max(free[own], request.arrival) + each * request.prompt
        late.append(free[own] - request.arrival)
    late.sort()
    limits = served.limits_of(lambda name: 0.0)
    return any(_missed(name, limit, late) for name, _, limit in limits if name.startswith(("ttft", "latency", "e2e")))


def _missed(name: str, limit: float, late: Sequence[float]) -> bool:
    _, _, level = name.partition("_")
    if not level:
        return sum(late) > _SURE * limit * len(late)
    return late[int(percent(level) / 100 * (len(late) - 1))] > _SURE * limit
