"""Replicas of a service under traffic, and what its requests saw: the simulated fidelity of :mod:`mlsysim.cases.serve`.

The machine (engines, layouts, clocks) and the habits of its clients are those of the case; only time is added. One request alone takes what the case's
own prefill and decode take, a saturated server gives what the closed form gives at fixed lengths, and so on; tests say so.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import NamedTuple

from mlsysim.cases.serve import Engines
from mlsysim.cases.traffic import Traffic
from mlsysim.simulate.prefixes import Prefixes
from mlsysim.simulate.record import Percentiles, Record
from mlsysim.simulate.replica import Live, Replica, Spent
from mlsysim.simulate.requests import Request, in_order
from mlsysim.simulate.room import Room
from mlsysim.simulate.scheduling import ENDLESS, scheduling
from mlsysim.simulate.steps import Steps

KINDS = ("ttft", "tpot", "itl", "e2e", "queue")


@dataclass(frozen=True)
class Settings:
    """How replicas are run beside what the case says. ``limits`` in seconds by kind of time: what a request must keep to count as good."""

    scheduler: str | None = None
    limits: dict[str, float] | None = None
    block_tokens: int | None = None
    """Tokens of a hashed block where requests name theirs; None: no cache of prefixes."""
    skip: float = 0.0
    """Seconds at the start whose requests are not counted."""


class Simulated(NamedTuple):
    """What was seen. Times in seconds; ``spent`` of all replicas together."""

    percentiles: dict[str, Percentiles]
    spent: Spent
    requests: int
    seconds: float
    """From the first arrival that counts to the last token."""
    prompt_tokens: int
    output_tokens: int
    attained: float | None
    """Share of the requests that kept every limit."""
    replicas: int
    peak: float
    """The fullest that caches were, of their room."""

    @property
    def busy(self) -> float:
        """Share of the time in which a replica works."""
        return self.spent.busy / (self.seconds * self.replicas)


def replicas_of(machine: Engines, t: Traffic, settings: Settings, record: Record) -> list[Replica]:
    """The replicas of a service whose prompts and answers are on the same devices; groups of a pipeline are replicas of their own."""
    t = machine.drafting(t)
    own = machine.iterations(machine.writer, t, machine.writer.deployment.pp)
    habits, groups = t.habits, int(own.groups)
    slots = ENDLESS if habits.slots is None else max(1, int(habits.slots / groups))
    plan = scheduling(machine.writer.engine, settings.scheduler, t.chunk and int(t.chunk), slots)
    steps, room = Steps(own, habits), Room(own, slots, t.chunk and int(t.chunk))

    def done(live: Live, at: float) -> None:
        r = live.request
        record.done(r.arrival, live.begun, live.first, at, r.prompt, r.answer)

    def prefixes() -> Prefixes | None:
        if settings.block_tokens is None:
            return None
        return Prefixes(settings.block_tokens, room.contexts.slopes[0] * settings.block_tokens)

    return [Replica(steps, room, plan, done, prefixes(), record.gap) for _ in range(int(t.replicas) * groups)]


def simulate(
    machine: Engines, t: Traffic, requests: Iterable[Request], expected: int, settings: Settings | None = None
) -> Simulated:
    """Play requests on the replicas of a machine. ``expected`` is about how many there are, for batches of the sampling error."""
    settings = settings or Settings()
    record = Record(expected, settings.limits, settings.skip)
    replicas = replicas_of(machine, t, settings, record)
    many = len(replicas)
    first, last = math.inf, 0.0
    for number, request in enumerate(in_order(requests)):
        first = min(first, request.arrival)
        last = request.arrival
        replicas[number % many].push(request)
        if not number % _TOGETHER:
            for replica in replicas:
                replica.advance(last)
    for replica in replicas:
        replica.finish()
    return outcome(record, replicas, max(first, settings.skip))


_TOGETHER = 1024
"""Requests that are handed out before replicas go on."""


def outcome(record: Record, replicas: list[Replica], begin: float) -> Simulated:
    """What was recorded of some replicas."""
    spent = Spent()
    for replica in replicas:
        for each in fields(Spent):
            own = getattr(replica.spent, each.name)
            if isinstance(own, dict):
                for name, value in own.items():
                    spent.waits[name] += value
            else:
                setattr(spent, each.name, getattr(spent, each.name) + own)
    return Simulated(
        {kind: record.percentiles(kind) for kind in KINDS},
        spent,
        record.count,
        max(record.last - begin, 0.0),
        record.prompts,
        record.answers,
        record.kept / record.count if record.limits and record.count else None,
        len(replicas),
        max(replica.peak_held / replica.room.bytes for replica in replicas),
    )
