"""What replicas of a service are made of: steps, room, scheduler and caches by the case's machine.

Where prompts and answers have devices of their own, those that read take whole prompts, as many as their budget has room for, and those that
write get them with their caches (:mod:`mlsysim.simulate.pools`). Groups of a pipeline are replicas of their own, whose requests share its devices.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from mlsysim.cases.iterations import Iterations
from mlsysim.cases.serve import Engines
from mlsysim.cases.traffic import Traffic
from mlsysim.simulate.prefixes import Prefixes
from mlsysim.simulate.record import Record
from mlsysim.simulate.replica import Done, Live, Replica
from mlsysim.simulate.room import Room
from mlsysim.simulate.scheduling import ENDLESS, Scheduling, scheduling
from mlsysim.simulate.settings import Settings
from mlsysim.simulate.steps import Steps


class Kind(NamedTuple):
    """Replicas of one kind, ``many`` of them, ``groups`` of which share devices."""

    iterations: Iterations
    steps: Steps
    room: Room
    plan: Scheduling
    many: int
    groups: int
    settings: Settings

    def replica(self, done: Done, record: Record | None = None) -> Replica:
        """A replica; gaps between its tokens are recorded."""
        return Replica(self.steps, self.room, self.plan, done, self._prefixes(), None if record is None else record.gap)

    def _prefixes(self) -> Prefixes | None:
        tokens = self.settings.block_tokens
        return None if tokens is None else Prefixes(tokens, self.room.contexts.slopes[0] * tokens)


def kind_of(machine: Engines, t: Traffic, settings: Settings) -> Kind:
    """Replicas that write answers; that read prompts too unless others do."""
    t = machine.drafting(t)
    own = machine.iterations(machine.writer, t, machine.writer.deployment.pp)
    habits, groups, budget = t.habits, int(own.groups), t.chunk and int(t.chunk)
    slots = ENDLESS if habits.slots is None else max(1, int(habits.slots / groups))
    plan = scheduling(machine.writer.engine, settings.scheduler, budget, slots)
    if machine.apart:
        plan = plan._replace(prompts="mixed")
        settings = replace(settings, block_tokens=None)
    many = int(t.replicas) * groups
    return Kind(own, Steps(own, habits), Room(own, slots, budget), plan, many, groups, settings)


def reader_of(machine: Engines, t: Traffic, settings: Settings) -> Kind:
    """Replicas that only read prompts."""
    own = machine.iterations(machine.reader, t, machine.reader.deployment.pp)
    engine, groups = machine.reader.engine, int(own.groups)
    budget = engine.prefill_budget if t.chunk is None else int(t.chunk)
    plan = scheduling(engine, settings.scheduler, budget)._replace(prompts="first", cuts=False, whole=True)
    habits = replace(t.habits, drafted=0)
    many = int(t.prefills) * groups
    return Kind(own, Steps(own, habits), Room(own, ENDLESS, budget), plan, many, groups, settings)


def recorded(record: Record) -> Done:
    """Answers that ended go into a record."""

    def done(live: Live, at: float) -> None:
        r = live.request
        record.done(r.arrival, live.begun, live.first, at, r.prompt, r.answer)

    return done


def replicas_of(machine: Engines, t: Traffic, settings: Settings, record: Record) -> list[Replica]:
    """The replicas of a service that write answers, all of whose requests are recorded together."""
    kind, done = kind_of(machine, t, settings), recorded(record)
    return [kind.replica(done, record) for _ in range(kind.many)]
