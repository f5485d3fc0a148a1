"""A service under traffic, and what its requests saw: the simulated fidelity of :mod:`mlsysim.cases.serve`.

The machine (engines, layouts, clocks) and the habits of its clients are those of the case; only time is added. One request alone takes what the case's
own prefill and decode take, a saturated server gives what the closed form gives at fixed lengths, and so on; tests say so.

Where a router does not look at replicas, each of them is played by itself: requests are dealt out, and what every replica saw is put together in
the order of the replicas, so that it is the same to the last bit wherever they were played.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import fields
from typing import NamedTuple

from mlsysim.cases.serve import Engines
from mlsysim.cases.traffic import Traffic
from mlsysim.errors import InputError
from mlsysim.simulate.fleet import TOGETHER, Fleet, Pool
from mlsysim.simulate.pools import Between
from mlsysim.simulate.record import EXACT, Percentiles, Record
from mlsysim.simulate.replica import Done, Live, Replica, Spent
from mlsysim.simulate.replicas import Kind, kind_of, reader_of, recorded, replicas_of
from mlsysim.simulate.requests import Request, in_order
from mlsysim.simulate.routers import router
from mlsysim.simulate.scheduling import Scheduling
from mlsysim.simulate.settings import Settings

__all__ = ["KINDS", "Settings", "Simulated", "replicas_of", "simulate"]

KINDS = ("ttft", "tpot", "itl", "e2e", "queue")


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
    scheduling: Scheduling
    found: tuple[float, ...] = ()
    """Share of the tokens to read that was found on the device, with the host, on disk."""

    @property
    def busy(self) -> float:
        """Share of the time in which a replica works."""
        return self.spent.busy / (self.seconds * self.replicas)


class _Clock:
    """Requests as they pass, and when they came."""

    def __init__(self, requests: Iterable[Request]) -> None:
        self.requests, self.first, self.last = requests, math.inf, 0.0

    def __iter__(self) -> Iterator[Request]:
        for request in in_order(self.requests):
            self.first, self.last = min(self.first, request.arrival), request.arrival
            yield request


def simulate(
    machine: Engines, t: Traffic, requests: Iterable[Request], expected: int, settings: Settings | None = None
) -> Simulated:
    """Play requests on the replicas of a machine. ``expected`` is about how many there are, for batches of the sampling error."""
    settings, clock = settings or Settings(), _Clock(requests)
    record, kind = Record(expected, settings.limits, settings.skip), kind_of(machine, t, settings)
    if settings.clients is not None:
        if machine.apart:
            raise InputError("Clients in a loop are simulated where one pool does both; give a rate of requests.")
        replicas = [kind.replica(recorded(record), record) for _ in range(kind.many)]
        _ask_again(replicas, requests, settings.clients)
        return outcome(record, replicas, 0.0)
    if machine.apart:
        readers = reader_of(machine, t, settings)
        between = Between(machine, t, readers, kind)
        front = Pool([readers.replica(between.told(each)) for each in range(readers.many)], router(settings))
        back = Pool([kind.replica(recorded(record), record) for _ in range(kind.many)], router(settings))
        Fleet(front, back, between).play(clock)
        return outcome(record, back.replicas, max(clock.first, settings.skip), front.replicas, between.seconds)
    choose = router(settings)
    pool = Pool([kind.replica(recorded(record), record) for _ in range(kind.many)], choose)
    if pool.router.looks:
        Fleet(pool).play(clock)
        return outcome(record, pool.replicas, max(clock.first, settings.skip))
    return _each_alone(kind, settings, clock, expected)


def _each_alone(kind: Kind, settings: Settings, clock: _Clock, expected: int) -> Simulated:
    """Replicas that nobody looks at, one after the other."""
    many = kind.many
    records = [Record(-(-expected // many), settings.limits, settings.skip, EXACT // many) for _ in range(many)]
    pool = Pool([kind.replica(recorded(each), each) for each in records], router(settings))
    for number, request in enumerate(clock):
        pool.give(request)
        if not number % TOGETHER:
            pool.advance(clock.last)
    for replica in pool.replicas:
        replica.finish()
    for record in records[1:]:
        records[0].join(record)
    return outcome(records[0], pool.replicas, max(clock.first, settings.skip))


def _ask_again(replicas: list[Replica], requests: Iterable[Request], clients: int) -> None:
    """Clients in a loop, each with its own replica."""
    drawn = list(requests)
    for number, replica in enumerate(replicas):
        own = iter(drawn[number :: len(replicas)])

        def again(
            live: Live, at: float, replica: Replica = replica, told: Done = replica.done, own: Iterator[Request] = own
        ) -> None:
            told(live, at)
            request = next(own, None)
            if request is not None:
                replica.push(request._replace(arrival=at))

        replica.done = again
        for _, request in zip(range(len(range(number, clients, len(replicas)))), own, strict=False):
            replica.push(request._replace(arrival=0.0))
        replica.finish()


def outcome(
    record: Record, replicas: list[Replica], begin: float, readers: list[Replica] | None = None, handed: float = 0.0
) -> Simulated:
    """What was recorded of some replicas, and of those that read for them."""
    spent = Spent()
    for replica in (*replicas, *(readers or ())):
        for each in fields(Spent):
            own = getattr(replica.spent, each.name)
            if isinstance(own, dict):
                for name, value in own.items():
                    spent.waits[name] += value
            else:
                setattr(spent, each.name, getattr(spent, each.name) + own)
    for reader in readers or ():
        # The one token of a reader is written again by a writer, which ends the request.
        spent.wrote -= reader.spent.wrote
        spent.ended -= reader.spent.ended
    spent.handed = handed
    return Simulated(
        {kind: record.percentiles(kind) for kind in KINDS},
        spent,
        record.count,
        max(record.last - begin, 0.0),
        record.prompts,
        record.answers,
        record.kept / record.count if record.limits and record.count else None,
        len(replicas) + len(readers or ()),
        max(replica.peak_held / replica.room.bytes for replica in replicas),
        replicas[0].scheduling,
        _found(readers or replicas),
    )


def _found(replicas: list[Replica]) -> tuple[float, ...]:
    tokens = sum(replica.spent.read + replica.spent.found for replica in replicas)
    hits = [replica.prefixes.hits for replica in replicas if replica.prefixes is not None]
    return tuple(sum(level) / max(tokens, 1) for level in zip(*hits, strict=True))
