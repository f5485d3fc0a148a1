"""A number of requests on the steps of an engine: what :mod:`mlsysim.cases.passing` wants of them, between some that are known."""

from __future__ import annotations

import math
from functools import lru_cache, partial
from typing import Any

from mlsysim.cases.passing import PARTS, Passed, Server, passing, tabled
from mlsysim.cases.traffic import Traffic
from mlsysim.cases.turns import FEWEST, Stepping, Turns
from mlsysim.timing.tags import Tag, untagged
from mlsysim.units.ops import maximum, minimum


class _Tabled(Turns):
    """The same of numbers, between steps that are known, of sequences that have written a ``share`` of their answers."""

    def __init__(self, step: Stepping, t: Traffic, most: float) -> None:
        super().__init__(step, t, most)
        known, decode, reading = [], super().decode, super().reading
        for self.context in (t.mean_prompt, t.mean_prompt + t.mean_answer, t.mean_context):
            known.append(tabled(decode, most))
        self.young, self.old, self.usual = known
        self.each, self.share = maximum(self.full, 1.0), 0.0
        self.one, self.most = (tabled(partial(reading, count), most) for count in (1.0, self.each))

    def decode(self, n: Any, tag: Tag = untagged) -> Any:
        young = self.young(n)
        return young + self.share * (self.old(n) - young)

    def reading(self, count: Any, n: Any, tag: Tag = untagged, before: Any = None) -> Any:
        one, beside = self.one(n), self.decode(n) - self.usual(n) if self.mixed else 0.0
        return one + beside + (self.most(n) - one) * (count - 1) / maximum(self.each - 1, FEWEST)


_FINER, _FINEST = 4, 256


def waves_of(step: Stepping, t: Traffic, limits: dict[str, Any]) -> tuple[Passed, Passed]:
    """What clients see whose answers are as long as each other and so go on side by side: where caches fill, and where as many as they hold on average always
    find room. Prompts of a wave are read in C/K of the O steps of an answer, a few parts of the walk."""
    clients, slots = t.concurrency, limits.get("slots", math.inf)
    many = minimum(clients, slots)
    s = Turns(step, t, many)
    parts = math.ceil(min(max(_FINER * s.steps * s.full / many, PARTS), _FINEST))
    free = {"memory": math.inf, "slots": minimum(slots, limits["memory"])}
    both = (passed_by(step, t, room, many, clients, parts) for room in (limits, free))
    return next(both), next(both)


def passed_by(
    step: Stepping,
    t: Traffic,
    limits: dict[str, Any],
    places: float,
    clients: float = math.inf,
    parts: int = PARTS,
) -> Passed:
    """What a number of requests sees of one replica, or ``clients`` who ask again; a walk is asked for again with its ledger, and where limits are looked for."""
    try:
        return _walked(step, t, tuple(limits.items()), places, clients, parts)
    except TypeError:  # of arrays, which have no hash
        return _walked.__wrapped__(step, t, tuple(limits.items()), places, clients, parts)


@lru_cache(64)
def _walked(
    step: Stepping,
    t: Traffic,
    limited: tuple[tuple[str, Any], ...],
    places: float,
    clients: float,
    parts: int,
) -> Passed:
    engine, h, limits = step.engine, t.habits, dict(limited)
    s = _Tabled(step, t, minimum(places, h.sent))

    def seconds(n: float, share: float, read: float, waits: bool) -> float:
        s.share, s.at_random = share, not waits
        return float(s.cycle(n, read * s.steps).mean)

    def again(ended: float) -> float:
        reads, s.reads = float(s.put_back(ended * s.steps, 0.0 if engine.reserves else 1.0).reads), 1.0
        return reads

    return passing(
        Server(
            seconds,
            s.steps,
            *room_of(step, t, limits["memory"]),
            full=s.full if s.mixed else math.inf,
            slots=limits.get("slots", math.inf),
            cv=h.cv,
            longer=s.answer / s.prompt,
            again=again,
            clients=clients,
            parts=parts,
        ),
        h.sent,
        t.rate,
    )


def room_of(step: Stepping, t: Traffic, sequences: Any) -> tuple[Any, Any, Any]:
    """The room of so many sequences that keep what they do on average, and that of one that is let in and of a whole one."""
    whole, engine = t.mean_prompt + t.mean_answer, step.engine
    begun = whole if engine.reserves else minimum(t.mean_prompt + (engine.block_tokens - 1) / 2, whole)
    kept, young, old = (step.sequence_bytes(tokens) for tokens in (t.kept(engine), begun, whole))
    return maximum(sequences * kept, old), young, old
