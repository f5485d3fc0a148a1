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
from mlsysim.cases.turns import accepted_tokens
from mlsysim.models.demand import sequence_demand
from mlsysim.timing.power import Activity, ChipPower, Clocks, expands, vector_share
from mlsysim.timing.tags import untagged
from mlsysim.units.ops import maximum, minimum, some
from mlsysim.units.records import dataclass

_LEAST = 1e-9
_COUNTED = (1.0, 1.0), 1.0, 0.0
"""Bytes that do not matter where operations are counted."""


def reading_operations(model: Any, t: Traffic) -> Any:
    """Operations of the prompt of a mean request, without what is found of it."""
    return sequence_demand(model.totals, "prefill", 1, t.mean_new, t.mean_prompt - t.mean_new, *_COUNTED).flops


def writing_operations(model: Any, t: Traffic) -> Any:
    """Operations of the answer of a mean request, at the mean context of a token that is written."""
    return t.mean_answer * sequence_demand(model.totals, "decode", 1, 1, t.mean_context, *_COUNTED).flops


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
        """Operations of the model for one request that are done here; drafts and what is refused of them are beside."""
        reading = reading_operations(model, t) if self.reads else 0.0
        return reading + (writing_operations(model, t) if self.writes else 0.0)

    def working(self, clients: Any = None) -> Any:
        """Devices with something to do: of fewer clients than replicas those that have one."""
        return self.devices if clients is None else minimum(self.replicas, clients) * self.width

    def here(self, first: Any, rest: Any) -> Any:
        """Seconds of a request that are spent here: up to its first token, after it, or both."""
        return (first if self.reads else 0.0) + (rest if self.writes else 0.0)

    def busy(self, first: Any, rest: Any, clients: Any) -> Any:
        """Share of the time in which a device at work has a request, of clients that come again with the next: always, or, of two pools, while
        one of its clients at least is not in the other, each where it is without regard to the others."""
        elsewhere = 1 - self.here(first, rest) / (first + rest)
        return 1 - elsewhere ** maximum(clients / self.replicas, 1.0)

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
        draft: Any = None,
        clients: Any = None,
    ) -> Activity:
        """What each device at work does while so many requests a second are answered by replicas with a batch of the traffic's; an
        operation counts as ``share`` of a 16-bit one. ``draft`` is a model that drafts; without it the model's own heads do, where any
        tokens are drafted. Of the ``clocks`` under a limit of power, over the usual ones, it has that of what it does."""
        reading = requests * reading_operations(model, t) if self.reads else 0.0
        written, moved = _steps(model, precision, t, requests, draft) if self.writes else (0.0, 0.0)
        clock: Any = 1.0
        if clocks is not None:
            own = clocks.writing if not self.reads else clocks.both if self.writes else clocks.reading
            clock = 1.0 / own.slower
        devices = self.working(clients)
        vector = known.converting if expands(model, precision) else vector_share("serving")
        return Activity((reading + written) * share / devices, moved / devices, busy, vector, clock)


def _steps(model: Any, precision: str, t: Traffic, requests: Any, draft: Any) -> tuple[Any, Any]:
    """Operations and bytes a second of the steps that write so many answers a second.

    A step reads the weights and the caches of its batch. With K drafted tokens it computes K + 1 of each sequence, gives the accepted ones, and has
    K steps of the draft model before it, or of the layer that a head has.
    """
    h, batch = t.habits, maximum(t.batch, _LEAST)

    def step(of: Any, tokens: Any) -> tuple[Any, Any]:
        found = of.demand("decode", batch_size=batch * tokens, seq_len=1, context=t.mean_context, precision=precision)
        return found.flops, found.weight_bytes + found.cache_bytes / tokens

    flops, moved = step(model, h.drafted + 1)
    if some(h.drafted > 0):
        extra, read = step(model if draft is None else draft, 1)
        times = h.drafted * (model.layer_share if draft is None else 1.0)
        flops, moved = flops + times * extra, moved + times * read
    steps = requests * t.mean_answer / batch / accepted_tokens(h.drafted, h.acceptance)
    return steps * flops, steps * moved
