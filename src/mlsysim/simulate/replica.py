"""One replica of a serving engine over time: requests come, are read, answered, put back; events only where something changes.

The loop of an engine is: let requests in, choose the tokens of the next step, run it, book what came out. Here

    a step with prompts     takes t_mixed of what it reads and writes
    k steps without         take sum of t_decode = k a + b (k X + k (k - 1)/2 X'),   X grows by X' a step      (closed form)

where k is the number of steps until the first answer ends, a request comes that can be let in, a window fills or caches outgrow
their room: the engine does the same thing k times, so the simulation jumps. Times of steps are the case's
(:mod:`mlsysim.simulate.steps`), room for caches is the case's memory (:mod:`mlsysim.simulate.room`), what is
let in when is the scheduler's (:mod:`mlsysim.simulate.scheduling`).

Time of requests is conserved: what all of them wait, by cause, are read, are written for and are delayed by others' prompts add up to the
sum of their times from when the scheduler sees them to the last token (``Spent``).

A request that comes while the engine works misses the steps that are scheduled ahead, as in the closed form; of a fraction of a step, who comes in
that last part of the running one misses one more, so that the mean is kept and nobody waits for more than a step beside them. Left out: steps of different length for the same work (2 to 6 % of a step,
more where the host is busy); blocks are half empty on average instead of each by its own length.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush

from mlsysim.errors import InputError
from mlsysim.simulate.host import Host
from mlsysim.simulate.prefixes import Prefixes
from mlsysim.simulate.requests import Request
from mlsysim.simulate.room import Room
from mlsysim.simulate.scheduling import Scheduling, Waiting
from mlsysim.simulate.steps import Steps

NEVER = math.inf
WAITS = ("running", "slots", "caches", "prompts", "put back", "adapters")
"""What requests wait for: the step that runs when they come and those scheduled ahead, a slot, room in the caches, prompts before them,
again after their caches were taken, and for room for their adapter."""
_MANY, _LEAST = 1 << 60, 16


class Live:
    """A request on its way through a replica."""

    __slots__ = (
        *("request", "seen", "ready", "begun", "first", "written", "prompt", "left", "unread", "ends"),
        *("handed", "since", "load", "slope", "held", "growth", "cross", "number", "away"),
    )

    def __init__(self, request: Request, seen: float, ready: int, number: int) -> None:
        self.request, self.seen, self.ready, self.number = request, seen, ready, number
        self.prompt = request.prompt
        """Tokens to read: those of the prompt, and of the answer so far where it was put back."""
        self.left = request.answer
        self.begun = self.first = -1.0
        self.unread = self.written = 0
        self.ends = self.since = 0
        self.handed = False
        self.away = 0.0
        """Bytes of its cache that are with the host."""
        self.load = self.slope = self.held = self.growth = 0.0
        self.cross = _MANY


Done = Callable[[Live, float], None]
"""What is told of an answer that ended, and when."""


@dataclass(slots=True)
class Spent:
    """Seconds of requests, added up over all of them, by what they were spent on; and what the replica did."""

    waits: dict[str, float] = field(default_factory=lambda: dict.fromkeys(WAITS, 0.0))
    reading: float = 0.0
    writing: float = 0.0
    disturbed: float = 0.0
    """Being written for while prompts of others are read."""
    handed: float = 0.0
    """Between replicas that read and those that write."""
    busy: float = 0.0
    steps: int = 0
    read: int = 0
    found: int = 0
    """Tokens of prompts that were read, and that were found in the cache."""
    repeated: int = 0
    """Tokens that were read again."""
    wrote: int = 0
    lost: int = 0
    """Tokens that were written, and lost with their replica."""
    ended: int = 0
    preempted: int = 0
    moving: float = 0.0
    """Seconds in which engines waited for their host: caches that were put there, adapters that came."""

    @property
    def of_requests(self) -> float:
        """Seconds of all requests from when they were seen to the last token."""
        return sum(self.waits.values()) + self.reading + self.writing + self.disturbed + self.handed


class Replica:
    """An engine's loop. ``push`` requests in order of arrival, ``advance`` to a time, ``finish`` what is left; ``done`` is told of every answer."""

    def __init__(
        self,
        steps: Steps,
        room: Room,
        scheduling: Scheduling,
        done: Done,
        prefixes: Prefixes | None = None,
        gaps: Callable[[float, int], None] | None = None,
        host: Host | None = None,
    ) -> None:
        self.steps, self.room, self.scheduling, self.done = steps, room, scheduling, done
        self.prefixes, self.gaps, self.host = prefixes, gaps, host
        engine, habits = steps.step.engine, steps.habits
        server = habits.server
        self.front = engine.front_end if server else 0.0
        self.tokenise = engine.tokenise if server else 0.0
        self.missed = engine.steps_ahead + (max(habits.poll_steps, 1.0) - 1) / 2 + habits.wait_steps
        self.reserves = room.reserves or scheduling.prompts == "static"
        self.spent = Spent()
        self.time, self.numbered = 0.0, 0
        # Steps in all, and those that wrote.
        self.turns = self.count = 0
        self.incoming: deque[tuple[float, Request, float]] = deque()
        self.waiting = Waiting(scheduling.order)
        self.reading: list[Live] = []
        self.running: list[tuple[int, int, Live]] = []
        self.crossing: list[tuple[int, int, Live]] = []
        self.n, self.load, self.slope, self.held, self.growth = 0, 0.0, 0.0, 0.0, 0.0
        self._length = self._stalled = 0.0
        self._last, self._moving = 0, 0.0
        self._finished: list[Live] = []
        self.peak_held = 0.0

    # --- what comes -------------------------------------------------------------------------------------------

    def push(self, request: Request, at: float | None = None, begun: float = -1.0) -> None:
        """A request that comes at its arrival, or ``at`` a later time from elsewhere; others have read its prompt where they had ``begun``."""
        if not self.room.holds(request.prompt, 1 if self.scheduling.whole else request.answer):
            raise InputError(
                f"A request of {request.prompt:,} + {request.answer:,} tokens has no room in the caches of a replica, not even alone; "
                "shorten it, or split the replica over more devices."
            )
        seen = request.arrival if at is None else at
        seen = seen if begun >= 0 else seen + self.front + self.tokenise * request.prompt
        place = len(self.incoming)
        while at is not None and place and self.incoming[place - 1][0] > seen:
            place -= 1
        self.incoming.insert(place, (seen, request, begun))

    @property
    def outstanding(self) -> int:
        """Requests that have not been answered."""
        return self.n + len(self.reading) + len(self.waiting) + len(self.incoming)

    def work(self, at: float) -> float:
        """Tokens that a router compares: prompts that are not read yet, those of the step that runs too, and contexts that are held for
        answers (as Dynamo's router adds blocks of both)."""
        unread = sum(live.unread for live in self.reading) + self.waiting.tokens
        if self.time > at:
            unread += self._last
        unread += sum(request.prompt for _, request, _ in self.incoming)
        return unread + self.held / self.room.contexts.slopes[0]

    def _see(self, until: float) -> None:
        """Requests that have come by ``until`` wait."""
        incoming, spent, at = self.incoming, self.spent, self.time
        while incoming and incoming[0][0] <= until:
            seen, request, begun = incoming.popleft()
            ready = self.turns
            if self.missed and self.n and begun < 0:
                # A part of a step: who comes in that last part of the running one misses one more, so that the mean is kept.
                ready += int(self.missed) + (at - seen < self.missed % 1.0 * self._length)
            live = Live(request, seen, ready, self.numbered)
            self.numbered += 1
            if begun >= 0:
                live.begun, live.handed = begun, True
            self.waiting.add(live)
            spent.waits["running"] += max(at - seen, 0.0)

    # --- the loop ---------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """Until every request is answered."""
        self.advance(NEVER)

    def advance(self, until: float) -> None:
        """All steps that begin before ``until``."""
        incoming, waiting = self.incoming, self.waiting
        while True:
            if incoming and incoming[0][0] <= self.time:
                self._see(self.time)
            if not self.n and not self.reading and not waiting:
                # Nothing to do: on to the next request.
                if not incoming or incoming[0][0] >= until:
                    return
                self.time = max(self.time, incoming[0][0])
                self._see(self.time)
            if self.time >= until:
                return
            cause, ready_in = self._admit()
            if self._moving:
                self._move(cause)
            if self.reading:
                if self.scheduling.prompts == "mixed" or not self.n:
                    self._mixed(cause, self.n)
                else:
                    self._mixed(cause, 0)
            elif self.n:
                self._decode(until, cause, ready_in)
            else:
                self._idle(until, ready_in)

    def _move(self, cause: str) -> None:
        """The engine waits for what goes to the host and comes from it."""
        seconds, self._moving = self._moving, 0.0
        spent, alive = self.spent, self.n - len(self._finished)
        spent.disturbed += seconds * alive
        spent.reading += seconds * len(self.reading)
        self._wait(seconds, cause)
        spent.busy += seconds
        spent.moving += seconds
        self.time += seconds
        if alive:
            self._stalled += seconds

    def _idle(self, until: float, ready_in: int) -> None:
        """Requests wait for something else than steps: a full batch, or steps that an idle engine does not take."""
        live = self.waiting.head
        if ready_in < _MANY and live is not None:
            live.ready = self.turns
            return
        at = self.incoming[0][0] if self.incoming else NEVER
        at = min(at, until)
        if at == NEVER:
            self.scheduling = self.scheduling.flushed
            return
        self._wait(at - self.time, "slots")
        self.time = at

    def _admit(self) -> tuple[str, int]:
        """Let requests in: what stops the next one, and the steps until it is ready."""
        waiting, room, plan = self.waiting, self.room, self.scheduling
        live = waiting.head
        if live is None:
            return "", _MANY
        if plan.prompts in ("last", "static") and (self.n or self._finished):
            return "slots", _MANY
        if plan.prompts == "static" and len(waiting) < plan.slots and not self.reading and plan.fills:
            return "slots", _MANY
        budget = self._budget(self.n if plan.prompts == "mixed" else 0) - sum(each.unread for each in self.reading)
        while live is not None:
            if live.ready > self.turns:
                return "running", live.ready - self.turns
            if self.n + len(self.reading) >= plan.slots:
                return "slots", _MANY
            needed = self._needed(live)
            if self.held + needed > room.bytes and (self.n or self.reading):
                return "caches", _MANY
            if self.host is not None and not self.host.has_place(live.request.adapter):
                return "adapters", _MANY
            if live.handed:
                waiting.pop()
                live.handed = False
                self._bring(live)
                self._join(live)
                live = waiting.head
                continue
            if budget <= 0:
                return "prompts", _MANY
            found = 0
            if self.prefixes is not None:
                found = min(self.prefixes.find(live.request, room.bytes - self.held), live.prompt - 1)
            new = live.prompt - found
            if not plan.cuts and new > budget and self.reading and (plan.whole or plan.budget >= new):
                return "prompts", _MANY
            waiting.pop()
            self._bring(live)
            if self.prefixes is not None:
                self.prefixes.hold(live.request)
                self.spent.found += found
            live.unread = new
            if live.begun < 0:
                live.begun = self.time
            live.held = needed
            self.held += needed
            self.reading.append(live)
            budget -= new
            live = waiting.head
        return "", _MANY

    def abandon(self, at: float) -> list[tuple[float, Request]]:
        """All is lost, at the end of the step that runs: its requests, and when they can begin again."""
        when, found = max(at, self.time), [request for _, request, _ in self.incoming]
        writing = [live for _, _, live in self.running if live.ends]
        for live in writing:
            written = int(self._written(live))
            live.written += written
            self.spent.wrote += written
        lives = [*self.reading, *writing]
        while self.waiting:
            lives.append(self.waiting.head)
            self.waiting.pop()
        found += [live.request for live in lives]
        self.spent.lost += sum(live.written for live in lives)
        self.incoming.clear()
        self.reading, self.running, self.crossing, self._finished = [], [], [], []
        self.n, self._stalled, self._moving = 0, 0.0, 0.0
        self._empty()
        for kept in (self.prefixes, self.host):
            if kept is not None:
                kept.forget()
        self.time = when
        return [(when, request) for request in found]

    def _bring(self, live: Live) -> None:
        """What a request that is let in needs from the host."""
        if self.host is not None:
            self._moving += self.host.enters(live.request.adapter, live.away)
            live.away = 0.0

    def _needed(self, live: Live) -> float:
        """Bytes that must be free before a request is let in: of its prompt and a token, or of all that it will be."""
        return self.room.contexts.at(live.prompt + (live.left if self.reserves else 1))[0]

    def _budget(self, n: int) -> int:
        """Tokens of prompts that a step has room for beside the answers of n requests."""
        ranks = self.steps.ranks
        return max(self.scheduling.budget - n * (1 + self.steps.drafted) // ranks, _LEAST) * ranks

    def _mixed(self, cause: str, n: int) -> None:
        """A step that reads prompts, beside the answers of n requests."""
        steps, spent, plan, ranks = self.steps, self.spent, self.scheduling, self.steps.ranks
        left = self._budget(n)
        tokens, largest, chunks, widest, parts = 0, 0, 0.0, 0.0, 0
        ended: list[Live] = []
        for live in self.reading:
            take = live.unread if live.unread <= left or plan.whole else left
            if take <= 0:
                break
            if ranks > 1 and not plan.whole:
                take = min(take, plan.budget)
            cost = steps.chunk(take, live.prompt - live.unread)
            live.unread -= take
            left -= take
            tokens += take
            chunks += cost
            parts += 1
            if ranks > 1:
                largest, widest = max(largest, take), max(widest, cost)
            if not live.unread:
                ended.append(live)
        if ranks == 1:
            seconds = steps.mixed(n, self.load, tokens, parts, chunks)
        else:
            each = max(largest, -(-tokens // ranks))
            seconds = steps.mixed(
                -(-n // ranks),
                self.load / ranks,
                each,
                max(1, -(-parts // ranks)),
                max(widest, chunks / ranks),
                tokens / (ranks * each),
            )
        if self.prefixes is not None:
            seconds = max(seconds, self.prefixes.recall())
        reading = len(self.reading)
        spent.reading += seconds * reading
        spent.read += tokens
        self._last = tokens
        if n:
            alone = min(steps.decode_time(-(-n // ranks), self.load / ranks), seconds)
            spent.writing += alone * n
            spent.disturbed += (seconds - alone) * n
            if self.gaps is not None:
                self.gaps(seconds + self._stalled, n)
            self._stalled = 0.0
        elif self.n:
            spent.disturbed += seconds * self.n
            self._stalled += seconds
        self._wait(seconds, cause)
        self.time += seconds
        self._length = seconds
        spent.busy += seconds
        spent.steps += 1
        self.turns += 1
        if n:
            self._step(1)
        if ended:
            self.reading = [live for live in self.reading if live.unread]
            for live in ended:
                self._read(live)
        if self.held > self.room.bytes:
            self._outgrown()

    def _wait(self, seconds: float, cause: str) -> None:
        many = len(self.waiting)
        if many:
            waits, back = self.spent.waits, self.waiting.returned
            if back:
                waits["put back"] += seconds * back
            waits[cause or "prompts"] += seconds * (many - back)

    def _decode(self, until: float, cause: str, ready_in: int) -> None:
        """As many steps without prompts as are alike."""
        n, ranks, steps = self.n, self.steps.ranks, self.steps
        load, slope = (self.load, self.slope) if ranks == 1 else (self.load / ranks, self.slope / ranks)
        terms = steps.decode(n if ranks == 1 else -(-n // ranks))
        k = self.running[0][0] - self.count
        if ready_in < k:
            k = ready_in
        if self.crossing:
            k = min(k, max(self.crossing[0][0] - self.count, 1))
        if self.growth > 0 and self.held + k * self.growth > self.room.bytes:
            k = min(k, max(int((self.room.bytes - self.held) / self.growth), 1))
        horizon = until
        if self.incoming and cause in ("", "running") and self.incoming[0][0] < horizon:
            horizon = self.incoming[0][0]
        span = horizon - self.time
        if len(terms) == 1:
            a = terms[0][0] + load
            if slope > 0:
                if k * (a + (k - 1) * slope / 2) > span:
                    half = a - slope / 2
                    k = min(k, max(1, math.ceil((math.sqrt(half * half + 2 * slope * span) - half) / slope)))
            elif k * a > span:
                k = min(k, max(1, math.ceil(span / a)))
            seconds = k * a + k * (k - 1) / 2 * slope
        else:
            k, seconds = self._staged(terms, load, slope, k, span)
        spent = self.spent
        alive = n - len(self._finished)
        spent.writing += seconds * alive
        spent.busy += seconds
        spent.steps += k
        if self.gaps is not None:
            if self._stalled:
                self.gaps(seconds / k + self._stalled, alive)
            self.gaps(seconds / k, alive * (k - (self._stalled > 0)))
        self._stalled, self._last = 0.0, 0
        if self.waiting:
            self._wait(seconds, cause)
        self.time += seconds
        self._length = seconds / k + (k - 1) / 2 * slope
        self.turns += k
        self._step(k)
        if self.held > self.room.bytes:
            self._outgrown()

    @staticmethod
    def _staged(
        terms: tuple[tuple[float, float], ...], load: float, slope: float, k: int, span: float
    ) -> tuple[int, float]:
        """Steps whose time is the largest of several terms: as many as have the same largest one."""

        def largest(x: float) -> tuple[float, float]:
            return max(terms, key=lambda term: term[0] + term[1] * x)

        a, b = largest(load)
        each = a + b * load
        k = max(1, min(k, math.ceil(min(span, 1e18) / each))) if span < NEVER else k
        while k > 1 and largest(load + (k - 1) * slope) != (a, b):
            k //= 2
        return k, k * each + b * k * (k - 1) / 2 * slope

    def _step(self, k: int) -> None:
        """Book k steps: contexts grow, answers end."""
        self.count = count = self.count + k
        self.load += k * self.slope
        self.held += k * self.growth
        if self.held > self.peak_held:
            self.peak_held = self.held
        running = self.running
        while self.crossing and self.crossing[0][0] <= count:
            live = heappop(self.crossing)[2]
            if live.ends:
                self._turn(live)
        while running and running[0][0] <= count:
            live = heappop(running)[2]
            if live.ends:
                self._end(live)

    # --- one request ------------------------------------------------------------------------------------------

    def _read(self, live: Live) -> None:
        """The prompt is read: the first token is there."""
        if live.first < 0:
            live.first = self.time
        else:
            self.spent.repeated += live.prompt
        if self.prefixes is not None:
            self.prefixes.keep(live.request)
        self.held -= live.held
        live.written, live.left = live.written + 1, live.left - 1
        self.spent.wrote += 1
        self._join(live)

    def _join(self, live: Live) -> None:
        """An answer is written from the next step on."""
        if live.left <= 0 or self.scheduling.whole:
            live.ends = self.count
            self._out(live)
            return
        steps = live.left if self.steps.gain == 1.0 else math.ceil(live.left / self.steps.gain)
        live.ends = self.count + steps
        self._weigh(live, live.prompt)
        self.n += 1
        heappush(self.running, (live.ends, live.number, live))

    def _weigh(self, live: Live, context: float) -> None:
        """What its context takes of a step and of the room from now on."""
        gain = self.steps.gain
        load, slope = self.steps.contexts.at(context)
        room = self.room
        live.since, live.load, live.slope = self.count, load, slope * gain
        if self.reserves:
            live.held, live.growth = self._needed(live), 0.0
        else:
            live.held, growth = room.contexts.at(context + 1)
            live.growth = growth * gain
        self.load += load
        self.slope += live.slope
        self.held += live.held
        self.growth += live.growth
        if live.first < 0:
            # Others read the prompt: the first token comes with the first step.
            heappush(self.crossing, (self.count + 1, live.number, live))
        elif self.steps.contexts.breaks or room.contexts.breaks:
            ahead = min(self.steps.contexts.next_break(context), room.contexts.next_break(context + 1) - 1) - context
            live.cross = self.count + max(1, math.ceil(ahead / gain))
            if live.cross < live.ends:
                heappush(self.crossing, (live.cross, live.number, live))

    def _lighten(self, live: Live) -> float:
        """Take its context out; how many steps it was there."""
        steps = self.count - live.since
        self.load -= live.load + steps * live.slope
        self.slope -= live.slope
        self.held -= live.held + steps * live.growth
        self.growth -= live.growth
        return steps

    def _turn(self, live: Live) -> None:
        """Its context has filled a window, or it has its first token."""
        if live.first < 0:
            live.first = self.time
        context = live.prompt + self._written(live)
        self._lighten(live)
        self._weigh(live, context)

    def _written(self, live: Live) -> float:
        """Tokens that were written since it joined."""
        total = live.left if self.steps.gain == 1.0 else math.ceil(live.left / self.steps.gain)
        return (total - (live.ends - self.count)) * self.steps.gain

    def _end(self, live: Live) -> None:
        if self.scheduling.prompts == "static":
            # Its place is kept until the whole batch has ended.
            self._finished.append(live)
            self.spent.wrote += live.left
            self.spent.ended += 1
            self.done(live, self.time)
            if len(self._finished) == self.n:
                for each in self._finished:
                    self._lighten(each)
                    each.ends = 0
                self.n, self._finished = 0, []
                self._empty()
            return
        self._lighten(live)
        self.n -= 1
        if not self.n:
            self._empty()
        self.spent.wrote += live.left
        self._out(live)

    def _empty(self) -> None:
        """Without answers there are no contexts: what is left of sums is rounding."""
        self.load = self.slope = self.growth = 0.0
        self.held = sum(each.held for each in self.reading)

    def _out(self, live: Live) -> None:
        live.ends = 0
        self.spent.ended += 1
        if self.host is not None:
            self.host.leaves(live.request.adapter)
        if self.prefixes is not None:
            r = live.request
            self.prefixes.leave(r, r.prompt if self.scheduling.whole else r.prompt + r.answer)
        self.done(live, self.time)

    def _outgrown(self) -> None:
        """Caches have no room left: the last ones that were let in are put back, and read again later, or brought from the host."""
        while self.held > self.room.bytes and self.n > 1:
            live = max((each for _, _, each in self.running if each.ends), key=lambda each: each.number)
            written = int(self._written(live))
            self._lighten(live)
            self.n -= 1
            live.ends = 0
            self.running = [entry for entry in self.running if entry[2] is not live]
            self.running.sort()
            if self.prefixes is not None and not (self.host is not None and self.host.swaps):
                self.prefixes.leave(live.request, live.prompt + written)
            live.prompt += written
            live.left -= written
            self.spent.wrote += written
            live.written += written
            self.spent.preempted += 1
            if self.host is not None:
                self.host.leaves(live.request.adapter)
                if self.host.swaps:
                    live.away = self.room.contexts.at(live.prompt)[0]
                    live.handed = True
                    self._moving += self.host.seconds(live.away)
            live.ready = self.turns
            self.waiting.give_back(live)
