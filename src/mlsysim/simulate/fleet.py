"""A fleet: pools of replicas, a router before each, and what happens to them as requests come.

Time goes from event to event: requests, replicas that fail, come back or start, looks at the load, notes of the state. Replicas that a router looks at
are as far as the request: every step that begins before it has been taken. Prompts that were read go on to the pool that
writes answers, in the order in which they were read. A replica that fails does so at the end of the step that runs, and one that stands by takes its
place, where it will stand by itself; its requests begin again with another one, and wait for one where none is up. Where no router looks and nothing fails or grows, replicas do not know of each other, and each is
played by itself (:mod:`mlsysim.simulate.alone`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import heappop, heappush
from math import fsum

from mlsysim.simulate.live import NEVER
from mlsysim.simulate.pools import Between
from mlsysim.simulate.replica import Replica
from mlsysim.simulate.requests import TOGETHER, Request
from mlsysim.simulate.routers import RoundRobin
from mlsysim.simulate.series import Series

UP, DOWN, STARTING, DRAINING, FAILED = "up", "down", "starting", "draining", "failed"
HOUR = 3600.0
_SHORTEST = 1e-3
"""Seconds of a window at least, in which a client of two pools may ask that late."""


class Pool:
    """Replicas among which a router chooses. A ``unit`` are those that share devices, and so fail and start together."""

    def __init__(
        self,
        replicas: list[Replica],
        router: Callable[[Sequence[Replica]], RoundRobin],
        units: list[range] | None = None,
        up: int | None = None,
    ) -> None:
        self.replicas, self.router = replicas, router(replicas)
        self.units = [range(each, each + 1) for each in range(len(replicas))] if units is None else units
        first = len(self.units) if up is None else up
        self.state = [UP] * first + [DOWN] * (len(self.units) - first)
        self.spares = list[int]()
        """Units that stand by."""
        self.since = [0.0 if state == UP else NEVER for state in self.state]
        self.there: list[tuple[float, float]] = []
        """When units were there, from when they start to when they have answered all."""
        self.homeless: list[tuple[float, Request]] = []
        self.waited = self.started = 0.0
        """Seconds of requests for which none was up, and that waited while some started."""
        self.series, self.ups = [Series() for _ in replicas], list[int]()
        self.failed, self.opened, self.came = 0, 0.0, 0
        self.asleep: list[Callable[[float], None]] = []
        """What is woken by the next request that comes."""
        self._find()

    def _find(self) -> None:
        def those(*states: str) -> list[int]:
            return [each for unit in self.counted(*states) for each in self.units[unit]]

        self.up, self._working = those(UP), [self.replicas[each] for each in those(UP, DRAINING)]

    def counted(self, *states: str) -> list[int]:
        """Units in some states."""
        return [unit for unit, state in enumerate(self.state) if state in states]

    def outstanding(self, unit: int) -> int:
        """Requests of a unit that have not been answered."""
        return sum(self.replicas[each].outstanding for each in self.units[unit])

    def set(self, unit: int, state: str, at: float) -> None:
        """A unit changes; requests without a replica get one when it is up."""
        if self.state[unit] == DOWN:
            self.since[unit] = at
        if state == DOWN:
            self.there.append((self.since[unit], at))
        self.state[unit] = state
        self._find()
        if state == UP:
            self.opened = at
            for each in self.units[unit]:
                self.replicas[each].time = max(self.replicas[each].time, at)
            waiting, self.homeless = self.homeless, []
            for since, request in waiting:
                self.waited += max(at - since, 0.0)
                self.give(request, at, max(at, since))

    def fails(self, unit: int, at: float) -> None:
        """A unit is lost; one that stands by takes its place."""
        self.failed += 1
        self.set(unit, DOWN if self.spares else FAILED, at)
        if self.spares:
            self.set(self.spares.pop(), UP, at)

    def repaired(self, unit: int, at: float) -> None:
        """A unit takes its place again, or that of another which is lost, or stands by."""
        if self.state[unit] != FAILED:
            lost = self.counted(FAILED)
            if not lost:
                self.spares.append(unit)
                return
            self.set(lost[0], DOWN, at)
        self.set(unit, UP, at)

    def give(self, request: Request, now: float, at: float | None = None) -> None:
        """A request that comes now, or again ``at`` a later time than its arrival."""
        self.came += at is None
        if self.asleep:
            woken, self.asleep = self.asleep, []
            for wake in woken:
                wake(now)
        if not self.up:
            self.homeless.append((now if at is None else at, request))
            return
        self.replicas[self.router.choose(request, self.up, now)].push(request, at)

    def advance(self, until: float) -> None:
        """All replicas up to a time."""
        for replica in self._working:
            if replica.sure < until:
                replica.advance(until)

    def note(self) -> float:
        """Note the state of all; when to do so next."""
        step = self.series[0].step
        if self.counted(STARTING):
            self.started += step * sum(len(replica.waiting) for replica in self.replicas)
        self.ups.append(len(self.up))
        for replica, series in zip(self.replicas, self.series, strict=True):
            series.note(replica)
        if self.series[0].step > step:
            self.ups = self.ups[1::2]
        return self.series[0].next

    def paid(self, begin: float, end: float) -> float:
        """Seconds of units that were there in between."""
        still = [(self.since[unit], end) for unit in self.counted(UP, STARTING, DRAINING, FAILED)]
        return fsum(max(min(until, end) - max(since, begin), 0.0) for since, until in (*self.there, *still))

    def by_hour(self, end: float) -> tuple[float, ...]:
        """Units that were there in each whole hour, on average."""
        return tuple(self.paid(hour * HOUR, (hour + 1) * HOUR) / HOUR for hour in range(int(end / HOUR)))


class Fleet:
    """Pools in a row: one, or one that reads and one that writes."""

    def __init__(self, front: Pool, back: Pool | None = None, between: Between | None = None) -> None:
        self.front, self.back, self.between = front, back, between
        self.pools = [front] if back is None else [front, back]
        self.events: list[tuple[float, int, Callable[[float], None]]] = []
        self._numbered = 0
        for pool in self.pools:
            self.at(pool.series[0].next, self._noting(pool))

    def _noting(self, pool: Pool) -> Callable[[float], None]:
        def note(when: float) -> None:
            self.at(pool.note(), note)

        return note

    def at(self, when: float, act: Callable[[float], None]) -> None:
        """Do something at a time, when everything before it has happened."""
        self._numbered += 1
        heappush(self.events, (when, self._numbered, act))

    def play(self, requests: Iterable[Request], told: Callable[[], None] = lambda: None) -> None:
        """All requests, in order."""
        for number, request in enumerate(requests):
            if not number % TOGETHER or self.events[0][0] <= request.arrival:
                self.until(request.arrival)
            if not number % TOGETHER:
                told()
            self.front.give(request, request.arrival)
        self._flush()
        while self.busy():
            self.until(self.events[0][0])
            told()
        self._rest()

    def _rest(self) -> None:
        """Replicas have told all that they did."""
        for pool in self.pools:
            for replica in pool.replicas:
                replica.rest(replica.time)

    def _flush(self) -> None:
        """Nobody comes any more."""
        for pool in self.pools:
            for replica in pool.replicas:
                replica.scheduling = replica.scheduling.flushed

    def ask_again(
        self, requests: Iterator[Request], clients: int, ended: list[float], told: Callable[[], None]
    ) -> None:
        """Requests of clients that wait for their answers, whose ends are told as they are known.

        Of one pool a window is as long as a request is in the front end. Of two it is as long as the shortest cache is on its way, and where nobody is being read
        also as the shortest prompt is read: those that come into it were read before it, so that the writers are played first, and readers with the requests of
        the clients whose answers ended.
        """
        first, between = self.front.replicas[0], self.between
        sent, read, writers = max(first.front, _SHORTEST), 0.0, self.back or self.front
        if between is not None:
            sent = max(between.start + between.transfer(1), _SHORTEST)
            read = first.front + first.steps.mixed(0, 0.0, 1, 1, first.steps.chunk(1, 0), 1.0, 1)
        now, number, left = 0.0, 0, True
        ended.extend([0.0] * clients)
        while left or self.busy():
            while self.events[0][0] <= now:
                when, _, act = heappop(self.events)
                act(when)
            self._hand_over(now)
            reading = between is None or between.read or any(replica.outstanding for replica in self.front.replicas)
            now += sent if reading else sent + read
            writers.advance(now)
            while left and ended and ended[0] <= now:
                at, request = heappop(ended), next(requests, None)
                if request is None:
                    left = False
                    self._flush()
                else:
                    number += 1
                    if not number % TOGETHER:
                        told()
                    self.front.give(request._replace(arrival=at), at)
            self.front.advance(now)
        self._rest()

    def busy(self) -> bool:
        """Whether a request has not been answered."""
        if self.between is not None and self.between.read:
            return True
        return any(pool.homeless or any(replica.outstanding for replica in pool.replicas) for pool in self.pools)

    def until(self, at: float) -> None:
        """Everything that happens before a time."""
        while self.events[0][0] <= at:
            when, _, act = heappop(self.events)
            self._flow(when)
            act(when)
        self._flow(at)

    def _flow(self, at: float) -> None:
        """All steps that begin before a time."""
        self.front.advance(at)
        self._hand_over(at)
        if self.back is not None:
            self.back.advance(at)

    def _hand_over(self, at: float) -> None:
        """Prompts that were read by then go on."""
        if self.back is None or self.between is None:
            return
        while self.back.up and (found := self.between.next(at)) is not None:
            read, reader, request, begun = found
            if read < self.back.opened:
                self.back.waited += self.back.opened - read
                read = self.back.opened
            writer = self.back.router.choose(request, self.back.up, read)
            there = self.between.send(read, reader, writer, request.prompt)
            self.back.came += 1
            self.back.replicas[writer].push(request, there, begun)

    def fails(self, pool: Pool, unit: int, at: float) -> None:
        """A unit is lost with all that it holds; its requests come again."""
        pool.fails(unit, at)
        again = [found for each in pool.units[unit] for found in pool.replicas[each].abandon(at)]
        for when, request in sorted(again, key=lambda found: found[1].arrival):
            self.front.give(request, at, when)
