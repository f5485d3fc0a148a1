"""Clients in a loop whose caches fill: how long those wait that were put back, as part of their tokens.

C clients who always ask again are a queue that does not end, of which C are there at a time. So what those of them see who write is what a number of requests sees
that all come at once (:mod:`mlsysim.cases.passing`): steps, beside what is read again, times as many as write or were put back over those who write. What
they wait for so is waited for by none who has no place yet: the time of a client's turn, C over the rate, is the same.

**Answers of one length** go on side by side, so that all are at their longest together: caches fill where C whole requests have no room, though C of mean length have. Then clients
who ask again are walked themselves, C of them, and wait as much longer than where as many as find room on average always do.

Beside plays of 192 to 1,024 clients (8B and 70B, 500 + 4,000 to 2,000 + 300 tokens, cv 0.2) tokens take 0.92 to 1.10 of the time where the caches hold
less than half of the clients (0.51 to 1.0 without); of one length, from where they fill to three times as many clients, 0.96 to 1.04, first tokens 0.7 to 1.05. Left out: of lengths that differ much the mean over answers, not tokens, in which short ones that were put back weigh most (cv 1: 0.6).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import fields, replace
from functools import partial
from typing import Any

from mlsysim.cases.iterations import Iterations
from mlsysim.cases.passing import Passed
from mlsysim.cases.traffic import Traffic
from mlsysim.cases.turns import Stepping
from mlsysim.units.ops import maximum, minimum, some, taken, where

AT_ONCE = 1e6
"""Requests a second that come at once."""
_ROUNDS, _ROUNDS_OF_WAVES = 4, 6

_left_out: ContextVar[list[Traffic] | None] = ContextVar("loops whose waits nobody asks for", default=None)


@contextmanager
def rates_alone() -> Iterator[list[Traffic]]:
    """Loops made here answer as many requests as elsewhere, and what was put back waits for its place before its first token: those that are only ranked by
    their rates are not walked. Told are those for which that is not so elsewhere."""
    left_out: list[Traffic] = []
    token = _left_out.set(left_out)
    try:
        yield left_out
    finally:
        _left_out.reset(token)


Passing = Callable[[tuple[Stepping, ...], Traffic, dict[str, Any], Any], Passed]
Waves = Callable[[Stepping, Traffic, dict[str, Any]], tuple[Passed, Passed]]


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
    if (left_out := _left_out.get()) is not None and some(fills):
        left_out.append(t)
        return 1.0
    return _each(partial(_longer, passing), steps, t, limits, (places, token), fills, (1.0,))[0]


def in_waves(waves: Waves, step: Stepping, t: Traffic, limits: dict[str, Any], fills: Any) -> tuple[Any, Any]:
    """Seconds that clients whose answers go on side by side wait for more where their caches fill, and how many times as long their tokens take; numbers or arrays."""
    return _each(partial(_waved, waves), (step,), t, limits, (), fills, (0.0, 1.0))


def _each(
    one: Callable[..., tuple[Any, ...]],
    steps: tuple[Stepping, ...],
    t: Traffic,
    limits: dict[str, Any],
    beside: tuple[Any, ...],
    fills: Any,
    none: tuple[float, ...],
) -> tuple[Any, ...]:
    """What ``one`` says of each loop whose caches fill, and ``none`` of others."""
    if not some(fills):
        return none
    own = steps[0].step if isinstance(steps[0], Iterations) else steps[0]
    if hasattr((own.factors or (1.0,))[0], "take"):
        # Candidates of a fit hardly differ in it: the first stands for all.
        first = one(tuple(_of(step, 0) for step in steps), t, limits, *taken(beside, 0))
        return tuple(where(fills, value, other) for value, other in zip(first, none, strict=True))
    if not hasattr(fills, "nonzero"):
        return one(steps, t, limits, *beside)
    found = tuple(value + 0.0 * fills for value in none)
    for i in fills.nonzero()[0]:
        habits = {field.name: taken(getattr(t.habits, field.name), i) for field in fields(t.habits)}
        each = replace(t.take(i), habits=replace(t.habits, **habits))
        room = {name: taken(limit, i) for name, limit in limits.items()}
        for values, value in zip(
            found, one(tuple(_of(step, i) for step in steps), each, room, *taken(beside, i)), strict=True
        ):
            values[i] = value
    return found


def _of(step: Any, i: Any) -> Any:
    """One of many."""
    if isinstance(step, Iterations):
        draft = None if step.draft is None else _of(step.draft, i)
        return replace(step, step=_of(step.step, i), groups=taken(step.groups, i), draft=draft)
    return step.take(i)


def _clients(t: Traffic, rounds: int) -> Traffic:
    """All of the requests of some rounds, which come at once."""
    habits = replace(t.habits, sent=t.concurrency * min(t.habits.rounds, rounds))
    return replace(t, rate=AT_ONCE, habits=habits)


def _longer(
    passing: Passing, steps: tuple[Stepping, ...], t: Traffic, limits: dict[str, Any], places: Any, token: Any
) -> tuple[Any]:
    slots = minimum(t.concurrency, limits.get("slots", math.inf))
    passed = passing(steps, replace(_clients(t, _ROUNDS), concurrency=None), limits | {"slots": slots}, places)
    return (maximum(passed.step * passed.held / token, 1.0),)


def _waved(waves: Waves, steps: tuple[Stepping, ...], t: Traffic, limits: dict[str, Any]) -> tuple[Any, Any]:
    full, free = waves(steps[0], _clients(t, _ROUNDS_OF_WAVES), limits)
    return full.wait - free.wait, maximum(full.step * full.held / free.step, 1.0)
