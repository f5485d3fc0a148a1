"""Requests that come to a replica, wait, and are given up with it; what a router sees of them."""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Sequence
from functools import cached_property

from mlsysim.errors import InputError
from mlsysim.simulate.answers import Answers
from mlsysim.simulate.host import Host
from mlsysim.simulate.jobs import JOB, Jobs
from mlsysim.simulate.live import NEVER, Live, Spent
from mlsysim.simulate.prefixes import Prefixes
from mlsysim.simulate.requests import Request
from mlsysim.simulate.room import Room
from mlsysim.simulate.scheduling import Scheduling, Waiting
from mlsysim.simulate.steps import Steps, steps_within


class Coming(Answers):
    """Answers that are written, and requests before them: on their way through the front end, waiting, or being read."""

    def __init__(
        self, steps: Steps, room: Room, scheduling: Scheduling, prefixes: Prefixes | None, host: Host | None
    ) -> None:
        super().__init__(steps, room, room.reserves or scheduling.prompts == "static")
        self.scheduling, self.prefixes, self.host = scheduling, prefixes, host
        engine, habits = steps.step.engine, steps.habits
        server = habits.server
        self.front = engine.front_end if server else 0.0
        self.tokenise = engine.tokenise if server else 0.0
        self.missed = engine.steps_ahead + (max(habits.poll_steps, 1.0) - 1) / 2 + habits.wait_steps
        self.spent = Spent()
        # Steps in all, whether they wrote or not.
        self.numbered = self.turns = 0
        self.incoming: deque[tuple[float, Request, float]] = deque()
        self.waiting = Waiting(scheduling.order)
        self._length = self._stalled = 0.0
        self._late: list[tuple[float, int]] = []
        """Seconds of those for which answers stand still, and how many had their first token when so many were over."""
        self._last, self._moving = 0, 0.0
        self._refused: tuple[int, int] | None = None
        self._finished: list[Live] = []
        self.jobs: Jobs | None = None
        self.swift = False
        """Whether its loop is that of :mod:`mlsysim.simulate.swift`."""
        self._fits = 0
        self.sure = -1.0
        """Before this time nothing but steps of the same answers begins: a router need not have it go on, and they are taken later all at once."""

    def come(self, requests: Sequence[Request]) -> None:
        """Requests that come at their arrivals."""
        front, tokenise = self.front, self.tokenise
        if not requests:
            return
        if self.scheduling.reads or max([request[1] + request[2] for request in requests]) > self._fits:
            for request in requests:
                self.push(request)
        else:
            self.incoming.extend([(each[0] + front + tokenise * each[1], each, -1.0) for each in requests])

    def push(self, request: Request, at: float | None = None, begun: float = -1.0) -> None:
        """A request that comes at its arrival, or ``at`` a later time from elsewhere; others have read its prompt where they had ``begun``."""
        longest = request[1] + (1 if self.scheduling.reads else request[2])
        if longest > self._fits:
            if not self.room.holds(longest, 0):
                raise InputError(
                    f"A request of {request.prompt:,} + {request.answer:,} tokens has no room in the caches of a replica, not even alone; "
                    "shorten it, or split the replica over more devices."
                )
            self._fits = longest
        seen = request[0] if at is None else at
        if begun < 0:
            seen = seen + self.front + self.tokenise * request[1]
        if seen < self.sure:
            self.sure = max(seen, self.time)
        if at is None:
            self.incoming.append((seen, request, begun))
            return
        place = len(self.incoming)
        while place and self.incoming[place - 1][0] > seen:
            place -= 1
        self.incoming.insert(place, (seen, request, begun))

    @property
    def outstanding(self) -> int:
        """Requests that have not been answered."""
        found = self.n + len(self.reading) + self.waiting.size + len(self.incoming)
        return found if self.jobs is None else found - self.jobs.reading - self.jobs.running

    @abstractmethod
    def advance(self, until: float, tells: bool = False) -> None:
        """All steps that begin before ``until``."""

    @abstractmethod
    def _tell_each(self) -> None:
        """Requests as :class:`Live`, wherever they are."""

    def rest(self, at: float) -> None:
        """All steps that begin before a time; nothing is left for later."""
        self.advance(at, True)
        if self._going is not None:
            self._tell_each()

    def taken(self, at: float) -> float:
        """Share of the room for caches that is taken."""
        held, time, slope, ranks = self.held, self.time, self.slope, self.steps.ranks
        if self.n and time < at:
            each = self.steps.decode_time(-(-self.n // ranks), self.load / ranks) - slope / 2
            held += self.growth * steps_within(at - time, each, slope)
        return held / self.room.bytes

    def work(self, at: float, most: float = NEVER) -> float:
        """Seconds that a router compares: what is left of a step that reads prompts, tokens of those that are outstanding at the pace of a full step,
        and a step of the answers that are written, unless prompts alone are above the ``most`` that it asks for."""
        unread, time, n = self.waiting.tokens, self.time, self.n
        for live in self.reading:
            unread += live.unread
        for _, request, _ in self.incoming:
            unread += request[1]
        seconds = unread * self.pace
        if time > at and self._last:
            seconds += time - at
        if not n or seconds > most:
            return seconds
        steps, slope = self.steps, self.slope
        ranks = steps.ranks
        each = steps.decode_time(n, self.load) if ranks == 1 else steps.decode_time(-(-n // ranks), self.load / ranks)
        if time < at:
            each += slope * steps_within(at - time, each - slope / 2, slope)
        return seconds + each

    @cached_property
    def pace(self) -> float:
        """Seconds of a prompt's token in a step that reads as many as it has room for."""
        budget = self.scheduling.budget
        return self.steps.mixed(0, 0.0, budget, 1, self.steps.chunk(budget, 0), 1.0, budget) / (
            budget * self.steps.ranks
        )

    def _see(self, until: float) -> None:
        """Requests that have come by ``until`` wait."""
        incoming, spent, at = self.incoming, self.spent, self.time
        while incoming and incoming[0][0] <= until:
            seen, request, begun = incoming.popleft()
            ready = self.turns
            if self.missed and self.n and begun < 0:
                # A part of a step: who comes in that last part of the running one misses one more, so that the mean is kept.
                ready += int(self.missed) + (at - seen < self.missed % 1.0 * self._length)
            self.waiting.add(ready, self.numbered, request, begun)
            self.numbered += 1
            spent.waits["running"] += max(at - seen, 0.0)

    def abandon(self, at: float) -> list[tuple[float, Request]]:
        """All is lost, at the end of the step that runs: its requests, and when they can begin again."""
        self.rest(at)
        when, found = max(at, self.time), [request for _, request, _ in self.incoming]
        writing = [live for _, _, live in self.running if live.ends]
        for live in writing:
            written = int(self._written(live))
            live.written += written
            self._wrote(live, written)
        lives = [*self.reading, *writing]
        if self.jobs is not None:
            lives = [live for live in lives if live.number < JOB]
            self.jobs.left += self.jobs.reading + self.jobs.running + len(self.jobs.back)
            self.jobs.reading = self.jobs.running = 0
            self.jobs.back.clear()
        while self.waiting:
            lives.append(self.waiting.head)
            self.waiting.pop()
        found += [live.request for live in lives]
        self.spent.lost += sum(live.written for live in lives)
        self.incoming.clear()
        self.reading, self.running, self.crossing, self._finished = [], [], [], []
        self.n, self._stalled, self._moving = 0, 0.0, 0.0
        self._late.clear()
        self._empty()
        for kept in (self.prefixes, self.host):
            if kept is not None:
                kept.forget()
        self.time, self.sure = when, -1.0
        return [(when, request) for request in found]

    def _of_jobs(self, live: Live) -> Jobs:
        assert self.jobs is not None
        return self.jobs

    def _wrote(self, live: Live, tokens: int) -> None:
        if live.number >= JOB:
            self._of_jobs(live).wrote += tokens
        else:
            self.spent.wrote += tokens
