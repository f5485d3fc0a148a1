"""Clients in a loop whose caches fill: how long those wait that were put back, as part of their tokens.

C clients who always ask again are a queue that does not end, of which C are there at a time. So what those of them see who write is what a number of requests sees
that all come at once (:mod:`mlsysim.cases.passing`): steps, beside what is read again, times as many as write or were put back over those who write. What
they wait for so is waited for by none who has no place yet: the time of a client's turn, C over the rate, is the same. Four requests of each client: later ones
repeat the waves of the first, where answers have one length, or none.

Beside plays of 192 to 1,024 clients (8B and 70B, 500 + 4,000 to 2,000 + 300 tokens, cv 0 and 0.2) tokens take 0.92 to 1.10 of the time where the caches hold
less than half of the clients (0.51 to 1.0 without), and 1.18 just beyond the room. Left out: of lengths that differ much the mean over answers, not tokens, in which short ones that were put back weigh most (cv 1: 0.6).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

from mlsysim.cases.iterations import Iterations
from mlsysim.cases.passing import Passed
from mlsysim.cases.traffic import Traffic
from mlsysim.cases.turns import Stepping
from mlsysim.units.ops import maximum, minimum, some, taken, where

AT_ONCE = 1e6
"""Requests a second that come at once."""
_ROUNDS = 4


Passing = Callable[[tuple[Stepping, ...], Traffic, dict[str, Any], Any], Passed]


def put_back(
    passing: Passing,
    steps: tuple[Stepping, ...],
    t: Traffic,
    limits: dict[str, Any],
    places: Any,
    fills: Any,
    token: Any,
) -> Any:
    """How many times as long as a ``token`` of those who write it takes with what was put back, where caches fill; numbers or arrays."""
    if not some(fills):
        return 1.0
    own = steps[0].step if isinstance(steps[0], Iterations) else steps[0]
    if hasattr((own.factors or (1.0,))[0], "take"):
        # Candidates of a fit hardly differ in it: the first stands for all.
        one = _longer(passing, tuple(_of(step, 0) for step in steps), t, limits, *taken((places, token), 0))
        return where(fills, one, 1.0)
    if not hasattr(fills, "nonzero"):
        return _longer(passing, steps, t, limits, places, token)
    found = 1.0 + 0.0 * fills
    for i in fills.nonzero()[0]:
        habits = {field.name: taken(getattr(t.habits, field.name), i) for field in fields(t.habits)}
        each = replace(t.take(i), habits=replace(t.habits, **habits))
        room = {name: taken(limit, i) for name, limit in limits.items()}
        found[i] = _longer(passing, tuple(_of(step, i) for step in steps), each, room, *taken((places, token), i))
    return found


def _of(step: Any, i: Any) -> Any:
    """One of many."""
    if isinstance(step, Iterations):
        draft = None if step.draft is None else _of(step.draft, i)
        return replace(step, step=_of(step.step, i), groups=taken(step.groups, i), draft=draft)
    return step.take(i)


def _longer(
    passing: Passing, steps: tuple[Stepping, ...], t: Traffic, limits: dict[str, Any], places: Any, token: Any
) -> Any:
    habits = replace(t.habits, sent=t.concurrency * min(t.habits.rounds, _ROUNDS))
    slots = minimum(t.concurrency, limits.get("slots", math.inf))
    passed = passing(
        steps, replace(t, concurrency=None, rate=AT_ONCE, habits=habits), limits | {"slots": slots}, places
    )
    return maximum(passed.step * passed.held / token, 1.0)
