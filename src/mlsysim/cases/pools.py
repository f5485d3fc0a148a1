"""Devices that serve, as pools: the operations of a request that a pool does, and what its devices do for them, which
:mod:`mlsysim.timing.power` gives a power.

A pool reads prompts, writes answers, or does both. Readers hardly wait for memory, writers hardly compute: apart, each has its own
part of the operations, and the bytes are the writers'. Numbers may be arrays, for many points on the same chips.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

from mlsysim.cases.machines import Engines, Machine
from mlsysim.cases.traffic import Traffic
from mlsysim.models.demand import sequence_demand
from mlsysim.timing.power import Activity, ChipPower, Clocks, serving_activity
from mlsysim.timing.tags import untagged
from mlsysim.units.ops import maximum, minimum
from mlsysim.units.records import dataclass

_LEAST = 1e-9


def request_operations(model: Any, t: Traffic) -> tuple[Any, Any]:
    """Operations of the prompt and of the answer of one request; the latter at the mean length of the cache."""
    reading = sequence_demand(model.totals, "prefill", 1, t.new, t.prompt - t.new, (1.0, 1.0), 1.0, 0.0).flops
    context = t.prompt + (t.answer - 1) / 2
    return reading, t.mean_answer * sequence_demand(model.totals, "decode", 1, 1, context, (1.0, 1.0), 1.0, 0.0).flops


class PoolRates(NamedTuple):
    """Requests a second that each of two pools could do by itself; both together do no more than the slower."""

    reading: Any
    writing: Any

    @property
    def slower(self) -> str:
        return "prefill" if self.reading < self.writing else "decode"


def pool_rates(machine: Machine, t: Traffic) -> PoolRates:
    """What the readers and the writers of a service in two pools reach when all of them are busy.

    Readers take as many prompts at a time as they read together; writers hold as many answers as their memory (or their slots) has
    places for, at the mean length of a cache. A pool that waits for the other does less. Of engines they are those of their loops.
    """
    if isinstance(machine, Engines):
        return PoolRates(*machine.pool_rates(t))
    together = machine.prompts(t)
    prompts = replace(t, together=together)
    once = machine.reading(prompts, t.new, untagged)(t.prompt - t.new) * machine.pace(prompts)
    places = machine.memories(t)[0].sequences
    full = replace(t, batch=maximum(places if t.habits.slots is None else minimum(places, t.habits.slots), 1.0))
    token = machine.writing(full, untagged)(t.prompt + t.answer / 2)
    return PoolRates(t.prefills * together / once, t.replicas * full.batch / (t.mean_answer * token))


@dataclass(frozen=True, slots=True)
class Pool:
    """``replicas`` of ``width`` devices each."""

    replicas: Any
    width: Any
    reads: bool = True
    writes: bool = True

    @property
    def devices(self) -> Any:
        return self.replicas * self.width

    def operations(self, model: Any, t: Traffic) -> Any:
        """Operations of one request that are done here."""
        reading, writing = request_operations(model, t)
        return reading * self.reads + writing * self.writes

    def activity(
        self,
        model: Any,
        known: ChipPower,
        share: Any,
        precision: str,
        t: Traffic,
        requests: Any,
        busy: Any = 1.0,
        clocks: Clocks | None = None,
    ) -> Activity:
        """What each device does while so many requests a second are answered by replicas with a batch of the traffic's; an
        operation counts as ``share`` of a 16-bit one. Of the ``clocks`` under a limit of power, over the usual ones, it has that of what it does."""
        batch, tokens = maximum(t.batch, _LEAST), requests * t.mean_answer / self.replicas
        found = serving_activity(model, known, share, self.width, batch, tokens, precision, t.prompt, t.answer, busy)
        if clocks is not None:
            clock = clocks.writing if not self.reads else clocks.both if self.writes else clocks.reading
            found = replace(found, clock=1.0 / clock.slower)
        if self.reads and self.writes:
            return found
        rate = requests * self.operations(model, t) * share
        return replace(found, operations=rate / self.devices, moved=found.moved if self.writes else 0.0)
