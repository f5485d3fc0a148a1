"""What replicas of a service are made of: steps, room, scheduler and caches by the case's machine.

Where prompts and answers have devices of their own, those that read take whole prompts, as many as their budget has room for, and those that
write get them with their caches (:mod:`mlsysim.simulate.pools`). Groups of a pipeline are replicas of their own, whose requests share its devices.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from mlsysim.cases.iterations import Iterations
from mlsysim.cases.machines import Engines, drafting
from mlsysim.cases.offload import host_link
from mlsysim.cases.traffic import Habits, Traffic
from mlsysim.errors import InputError, unknown_name
from mlsysim.simulate.host import Host
from mlsysim.simulate.jobs import Jobs
from mlsysim.simulate.live import Done
from mlsysim.simulate.prefixes import Common, Prefixes, Tier
from mlsysim.simulate.record import Record
from mlsysim.simulate.replica import Replica
from mlsysim.simulate.room import Room
from mlsysim.simulate.scheduling import ENDLESS, Scheduling, scheduling
from mlsysim.simulate.settings import Settings
from mlsysim.simulate.steps import Steps

PREEMPTS = ("recompute", "swap")


class Kind(NamedTuple):
    """Replicas of one kind, ``many`` of them, ``groups`` of which share devices."""

    iterations: Iterations
    steps: Steps
    room: Room
    plan: Scheduling
    many: int
    groups: int
    settings: Settings
    cached: int = 0
    """Tokens of every prompt that are found, and seconds until they are there."""
    recall: float = 0.0

    def replica(self, done: Done, record: Record | None = None, share: float = 0.0) -> Replica:
        """A replica; gaps between its tokens are recorded, and it has a ``share`` of the job."""
        gaps = None if record is None else record.gaps
        made = Replica(self.steps, self.room, self.plan, done, self._prefixes(), gaps, self._host())
        made.front += self.recall
        job = self.settings.backlog
        if job is not None and share:
            if not self.room.holds(job.prompt, job.answer):
                raise InputError(
                    f"A job's request of {job.prompt:,} + {job.answer:,} tokens has no room in the caches of a replica."
                )
            made.jobs = Jobs(job.prompt, job.answer, max(1, round(job.requests * share)), job.at_once)
        return made

    @property
    def _link(self) -> float:
        given = self.settings.host_link
        return host_link(self.iterations.step.deployment.chip, "offload_memory") if given is None else given

    def _prefixes(self) -> Prefixes | None:
        chosen = self.settings
        if chosen.block_tokens is None:
            return Common(self.cached) if self.cached else None
        size = self.room.contexts.slopes[0] * chosen.block_tokens
        tiers, many = [], self.steps.ranks
        if chosen.host_memory:
            tiers.append(Tier(many * chosen.host_memory / size, self._link))
        if chosen.disk:
            if chosen.disk_rate is None:
                raise InputError("A disk that keeps prefixes needs its rate: give disk_rate, in bytes a second.")
            tiers.append(Tier(many * chosen.disk / size, chosen.disk_rate))
        return Prefixes(chosen.block_tokens, size, tuple(tiers))

    def _host(self) -> Host | None:
        if self.settings.preempts not in PREEMPTS:
            raise unknown_name(
                "way to put requests back", self.settings.preempts, PREEMPTS, f"known are {', '.join(PREEMPTS)}."
            )
        swaps, step = self.settings.preempts == "swap", self.iterations.step
        named = step.deployment.adapters
        if not swaps and not named:
            return None
        return Host(self._link, swaps, named or None, step.adapter_bytes / max(named, 1))


@lru_cache(16)
def steps_of(iterations: Iterations, habits: Habits) -> Steps:
    """Steps whose tables are filled once, however often the same machine is played."""
    return Steps(iterations, habits)


def kind_of(machine: Engines, t: Traffic, settings: Settings) -> Kind:
    """Replicas that write answers; that read prompts too unless others do."""
    t = drafting(machine, t)
    own = machine.iterations(machine.writer, t, machine.writer.deployment.pp)
    habits, groups, budget = t.habits, int(own.groups), t.chunk and int(t.chunk)
    slots = ENDLESS if habits.slots is None else max(1, int(habits.slots / groups))
    plan = scheduling(machine.writer.engine, settings.scheduler, budget, slots)
    if machine.apart:
        plan = plan._replace(prompts="mixed")
        settings = replace(settings, block_tokens=None)
    many = int(t.replicas) * groups
    room = Room(own, slots, budget, habits.slots)
    shared = (0, 0.0) if machine.apart else (int(t.cached), float(t.recall))
    return Kind(own, steps_of(own, habits), room, plan, many, groups, settings, *shared)


def reader_of(machine: Engines, t: Traffic, settings: Settings) -> Kind:
    """Replicas that only read prompts."""
    own = machine.iterations(machine.reader, t, machine.reader.deployment.pp)
    engine, groups = machine.reader.engine, int(own.groups)
    budget = engine.prefill_budget if t.chunk is None else int(t.chunk)
    plan = scheduling(engine, settings.scheduler, budget)._replace(prompts="first", cuts=False, whole=True, reads=True)
    habits = replace(t.habits, drafted=0)
    many = int(t.prefills) * groups
    shared = int(t.cached), float(t.recall)
    room = Room(own, ENDLESS, budget, habits.slots)
    return Kind(own, steps_of(own, habits), room, plan, many, groups, settings, *shared)


def replicas_of(machine: Engines, t: Traffic, settings: Settings, record: Record) -> list[Replica]:
    """The replicas of a service that write answers, all of whose requests are recorded together."""
    kind, done = kind_of(machine, t, settings), record.teller()
    return [kind.replica(done, record) for _ in range(kind.many)]
