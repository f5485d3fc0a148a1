"""A service under traffic, and what its requests saw: the simulated fidelity of :mod:`mlsysim.cases.serve`.

The machine (engines, layouts, clocks) and the habits of its clients are those of the case; only time is added. One request alone takes what the case's
own prefill and decode take, a saturated server gives what the closed form gives at fixed lengths, and so on; tests say so.

The same requests and settings give the same bytes: a play that was stopped is lost, and is the same when it is played again.
"""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields, replace
from heapq import heappush
from itertools import chain, count
from typing import NamedTuple

from mlsysim.cases.machines import Engines
from mlsysim.cases.offload import host_link
from mlsysim.cases.traffic import Traffic
from mlsysim.errors import InputError
from mlsysim.simulate.alone import Alone, each_alone, result
from mlsysim.simulate.changing import Failing, Growing
from mlsysim.simulate.fleet import Fleet, Pool
from mlsysim.simulate.live import Done, Ended, Spent
from mlsysim.simulate.pools import Between
from mlsysim.simulate.record import Percentiles, Record
from mlsysim.simulate.replica import Replica
from mlsysim.simulate.replicas import Kind, kind_of, reader_of, replicas_of
from mlsysim.simulate.requests import TOGETHER, Request, in_order
from mlsysim.simulate.routers import ROUTERS, router
from mlsysim.simulate.scheduling import Scheduling
from mlsysim.simulate.series import OverTime, Series, losses, together
from mlsysim.simulate.settings import Backlog, Failures, Scaling, Settings, watched, watcher

__all__ = [
    "KINDS",
    "ROUTERS",
    "Backlog",
    "Failures",
    "Scaling",
    "Settings",
    "Simulated",
    "replicas_of",
    "simulate",
    "watched",
]

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
    lost: dict[str, float] | None = None
    """Seconds of all requests by cause."""
    over_time: OverTime | None = None
    """Of the replicas that write, at some times."""
    paid: tuple[float, ...] | None = None
    """Of ``seconds``, those that replicas of each pool were there (groups of a pipeline as one), added up, where they fail or come and go."""
    by_hour: tuple[float, ...] = ()
    """Replicas that were there in each whole hour, on average, of the pool that writes, where they fail or come and go."""
    failed: int = 0
    jobs: tuple[int, int, int] = (0, 0, 0)
    """Requests of a job beside the traffic that ended, and tokens of theirs that were read and written."""

    @property
    def busy(self) -> float:
        """Share of the time in which a replica works; of all of them, whether they were up or not."""
        return self.spent.busy / (self.seconds * self.replicas)

    @property
    def binds(self) -> str:
        """The cause that took most of the requests' time."""
        lost = self.lost or {}
        return max(lost, key=lambda cause: lost[cause]) if lost else ""


class _Clock:
    """Requests as they pass, some together, and when they came."""

    def __init__(self, requests: Iterable[Request], expected: int) -> None:
        self.requests, self.expected, self.first, self.count = requests, expected, math.inf, 0
        self.last: Request | None = None

    def __iter__(self) -> Iterator[list[Request]]:
        for block in in_order(self.requests):
            if not self.count:
                self.first = block[0].arrival
            self.count += len(block)
            self.last = block[-1]
            yield block

    @property
    def stopped(self) -> str:
        """What is lost when it is stopped."""
        return (
            f"Stopped at {self.last.arrival if self.last else 0.0:,.0f} s of the traffic, with {self.count:,} of about {self.expected:,} requests handed out; "
            "nothing of it is kept, and the same play gives the same when it is begun again."
        )


def simulate(
    machine: Engines, t: Traffic, requests: Iterable[Request], expected: int, settings: Settings | None = None
) -> Simulated:
    """Play requests on the replicas of a machine. ``expected`` is about how many there are, for batches of the sampling error."""
    settings, clock = settings or Settings(), _Clock(requests, expected)
    if settings.progress is None and (tell := watcher()) is not None:
        settings = replace(settings, progress=tell)
    if settings.progress is not None:
        settings.progress(0, expected)
    # A play leaves no cycles, and makes more objects than a search for them likes.
    collects = gc.isenabled()
    gc.disable()
    try:
        return _simulate(machine, t, clock, settings)
    except KeyboardInterrupt as stop:
        raise KeyboardInterrupt(clock.stopped) from stop
    finally:
        if collects:
            gc.enable()


def _simulate(machine: Engines, t: Traffic, clock: _Clock, settings: Settings) -> Simulated:
    changes = settings.failures is not None or settings.scaling is not None
    machines = [(machine, t), *((other, replace(t, replicas=many)) for other, many in settings.others)]
    if machine.apart and settings.others:
        raise InputError("Machines beside others are simulated where one pool does both.")
    record = Record(clock.expected, settings.limits, settings.skip, levels=settings.levels)
    if settings.backlog is not None and (machine.apart or settings.clients is not None):
        raise InputError("Jobs beside the traffic are simulated where one pool does both, and requests come at a rate.")
    if settings.clients is not None:
        if changes or settings.others:
            raise InputError("Clients in a loop are simulated where replicas are alike and none changes; give a rate.")
        if machine.apart or (t.replicas > 1 and router(settings)([]).looks):
            return _fleet(machines, clock, settings, record)
        # Those of one replica follow each other, and know nothing of another's.
        parts = kind_of(machine, t, settings).many
        record = Record(clock.expected, settings.limits, settings.skip, levels=settings.levels, parts=parts)
        replicas = replicas_of(machine, t, settings, record)
        _ask_again(replicas, clock.requests, settings.clients, _telling(record, clock, settings))
        return outcome(record, [result(each, Series()) for each in replicas], 0.0)
    if not machine.apart and not changes and not router(settings)([]).looks:
        record, alone = each_alone(machines, clock, clock.expected, settings)
        return outcome(record, alone, max(clock.first, settings.skip))
    return _fleet(machines, clock, settings, record)


def _fleet(machines: list[tuple[Engines, Traffic]], clock: _Clock, settings: Settings, record: Record) -> Simulated:
    """Replicas that know of each other."""
    (machine, t), scaling, ended = machines[0], settings.scaling, list[float]()
    spare = settings.failures.spare if settings.failures is not None and scaling is None else 0
    most, done = None if scaling is None else scaling.most, _telling_ends(record.teller(), ended, settings.clients)

    def pool(kinds: list[Kind], told: Done | None = None, spare: int = 0) -> Pool:
        units, made = list[range](), list[Replica]()
        for kind in kinds:
            many = kind.many if most is None else most * kind.groups
            for _ in range(0, many + (spare * kind.groups if kind is kinds[-1] else 0), kind.groups):
                units.append(range(len(made), len(made) + kind.groups))
                for number in units[-1]:
                    share = 1 / sum(each.many if most is None else most * each.groups for each in kinds)
                    told_of = done if between is None or told else between.told(number)
                    own = kind.replica(told_of, record if told_of is done else None, share)
                    made.append(own)
        first = kinds[0].many // kinds[0].groups
        up = len(units) - spare if scaling is None else min(max(scaling.first or first, scaling.least), scaling.most)
        found = Pool(made, router(settings), units, up)
        found.spares += range(up, up + spare)
        return found

    kinds, between = [kind_of(own, many, settings) for own, many in machines], None
    if machine.apart:
        readers = reader_of(machine, t, settings)
        reads, writes = (
            each if most is None else each._replace(many=most * each.groups) for each in (readers, kinds[0])
        )
        reads = reads._replace(many=reads.many + spare * reads.groups)
        between = Between(machine, t, reads, writes, settings.devices)
        fleet = Fleet(pool([readers], None, spare), pool(kinds, done), between)
    else:
        fleet = Fleet(pool(kinds, None, spare))
    for number, each in enumerate(fleet.pools):
        if settings.failures is not None:
            Failing(fleet, each, settings.failures, settings.seed, str(number))
        if scaling is not None:
            Growing(fleet, each, scaling, _cold_start(fleet, each, scaling))
    told, come = _telling(record, clock, settings), chain.from_iterable(clock)
    if settings.clients is None:
        fleet.play(come, told)
    else:
        fleet.ask_again(come, settings.clients, ended, told)
    told()
    alone = [result(*both) for each in fleet.pools[-1:] for both in zip(each.replicas, each.series, strict=True)]
    read = [result(*both) for each in fleet.pools[:-1] for both in zip(each.replicas, each.series, strict=True)]
    changes = settings.failures is not None or scaling is not None
    begin = max(clock.first, settings.skip) if settings.clients is None else 0.0
    return outcome(record, alone, begin, read, fleet, changes)


def _telling_ends(done: Done, ended: list[float], clients: int | None) -> Done:
    """What is done with an answer; where clients wait for it, its end is kept."""
    if clients is None:
        return done

    def told(each: Ended) -> None:
        done(each)
        heappush(ended, each[3])

    return told


def _telling(record: Record, clock: _Clock, settings: Settings) -> Callable[[], None]:
    """What is done now and then: answers are booked, and who watches hears of them."""

    def tell() -> None:
        answered = record.answered
        if settings.progress is not None:
            settings.progress(answered, clock.expected)

    return tell


def _cold_start(fleet: Fleet, pool: Pool, scaling: Scaling) -> float:
    """Until a replica that starts is up."""
    if scaling.start is not None:
        return scaling.start
    iterations = pool.replicas[0].steps.iterations
    rate = scaling.load_rate
    return float(iterations.device_weights) / (host_link(iterations.step.deployment.chip) if rate is None else rate)


def _ask_again(replicas: list[Replica], requests: Iterable[Request], clients: int, tell: Callable[[], None]) -> None:
    """Clients in a loop, each with its own replica, which nobody chooses by what it does."""
    drawn, left = list(requests), count(1)
    for number, replica in enumerate(replicas):
        own = iter(drawn[number :: len(replicas)])

        def again(
            ended: Ended, replica: Replica = replica, told: Done = replica.done, own: Iterator[Request] = own
        ) -> None:
            told(ended)
            if not next(left) % TOGETHER:
                tell()
            request = next(own, None)
            if request is not None:
                replica.push(request._replace(arrival=ended[3]))

        replica.done = again
        for _, request in zip(range(len(range(number, clients, len(replicas)))), own, strict=False):
            replica.push(request._replace(arrival=0.0))
        replica.finish()
    tell()


def outcome(
    record: Record,
    alone: list[Alone],
    begin: float,
    readers: list[Alone] | None = None,
    fleet: Fleet | None = None,
    changes: bool = False,
) -> Simulated:
    """What was recorded of some replicas, and of those that read for them."""
    spent, readers = Spent(), readers or []
    record.settle()
    for own in (*alone, *readers):
        for each in fields(Spent):
            value = getattr(own.spent, each.name)
            if isinstance(value, dict):
                for name, seconds in value.items():
                    spent.waits[name] += seconds
            else:
                setattr(spent, each.name, getattr(spent, each.name) + value)
    for own in readers:
        # The one token of a reader is written again by a writer, which ends the request.
        spent.wrote -= own.spent.wrote
        spent.ended -= own.spent.ended
    pools = [] if fleet is None else fleet.pools
    share = math.fsum(1 / own.groups for own in alone) / len(alone)
    seen, uneven = together([own.series for own in alone], pools[-1].ups if pools else None, share)
    if readers:
        uneven += together([own.series for own in readers], pools[0].ups)[1]
    if fleet is not None and fleet.between is not None:
        spent.handed = fleet.between.seconds
    return Simulated(
        {kind: record.percentiles(kind) for kind in KINDS},
        spent,
        record.count,
        max(record.last - begin, 0.0),
        record.prompts,
        record.answers,
        record.kept / record.count if record.limits and record.count else None,
        len(alone) + len(readers),
        max(own.peak for own in alone),
        alone[0].scheduling,
        _found(readers or alone),
        losses(spent, uneven, sum(pool.started for pool in pools), sum(pool.waited for pool in pools)),
        seen,
        tuple(pool.paid(begin, record.last) for pool in pools) if changes else None,
        pools[-1].by_hour(record.last) if changes else (),
        sum(pool.failed for pool in pools),
        (sum(own.jobs[0] for own in alone), sum(own.jobs[1] for own in alone), sum(own.jobs[2] for own in alone)),
    )


def _found(replicas: list[Alone]) -> tuple[float, ...]:
    tokens = sum(own.spent.read + own.spent.found for own in replicas)
    hits = [own.hits for own in replicas if own.hits]
    return tuple(sum(level) / max(tokens, 1) for level in zip(*hits, strict=True))
