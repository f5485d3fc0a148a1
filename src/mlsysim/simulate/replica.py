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

from mlsysim.simulate.bags import Gaps
from mlsysim.simulate.host import Host
from mlsysim.simulate.jobs import JOB
from mlsysim.simulate.live import MANY, NEVER, Done, Live
from mlsysim.simulate.prefixes import Prefixes
from mlsysim.simulate.room import Room
from mlsysim.simulate.scheduling import Scheduling
from mlsysim.simulate.steps import Steps, same_longest, steps_within
from mlsysim.simulate.swift import LEAST, Swift

NOBODY = ("", MANY)
"""What stops the next request, and the steps until it is ready, where none waits."""


class Replica(Swift):
    """An engine's loop. ``push`` requests in order of arrival, ``advance`` to a time, ``finish`` what is left; ``done`` is told of every answer."""

    def __init__(
        self,
        steps: Steps,
        room: Room,
        scheduling: Scheduling,
        done: Done,
        prefixes: Prefixes | None = None,
        gaps: Gaps | None = None,
        host: Host | None = None,
    ) -> None:
        super().__init__(steps, room, scheduling, prefixes, host)
        self.done, self.gaps, self.swift, self._rows = done, gaps, self._is_swift(), []
        self._mixes = steps.plain()

    # --- the loop ---------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """Until every request is answered."""
        self.rest(NEVER)

    def advance(self, until: float, tells: bool = False) -> None:
        """All steps that begin before ``until``, but of those that are alike: these may be taken later, unless it ``tells`` all that it knows."""
        if self._going is not None and self._swift(until, tells):
            return
        incoming, waiting, jobs, mixes = self.incoming, self.waiting, self.jobs, self.scheduling.prompts == "mixed"
        swift = self.swift and jobs is None
        self.sure = -1.0
        while True:
            if swift and not waiting.back and self._swift(until, tells):
                return
            if incoming and incoming[0][0] <= self.time:
                self._see(self.time)
            if jobs is not None and not self.scheduling.fills and not self.outstanding:
                # No more come, and jobs are left where they are.
                return
            if not self.n and not self.reading and not waiting.size and not self._fills():
                # Nothing to do: on to the next request.
                if not incoming or incoming[0][0] >= until:
                    return
                self.time = max(self.time, incoming[0][0])
                self._see(self.time)
            if self.time >= until:
                return
            cause, ready_in = self._admit() if waiting.size or jobs is not None else NOBODY
            if self._moving:
                self._move(cause)
            if self.reading:
                self._mixed(cause, self.n if mixes else 0)
            elif self.n:
                self._decode(until, cause, ready_in)
            else:
                self._idle(until, ready_in)

    def _move(self, cause: str) -> None:
        """The engine waits for what goes to the host and comes from it."""
        seconds, self._moving = self._moving, 0.0
        spent, alive, reading = self.spent, self.n - len(self._finished), len(self.reading)
        if self.jobs is not None:
            alive, reading = alive - self.jobs.running, reading - self.jobs.reading
        spent.disturbed += seconds * alive
        spent.reading += seconds * reading
        self._wait(seconds, cause)
        spent.busy += seconds
        spent.moving += seconds
        self.time += seconds
        if alive:
            self._stalled += seconds

    def _idle(self, until: float, ready_in: int) -> None:
        """Requests wait for something else than steps: a full batch, or steps that an idle engine does not take."""
        live = self.waiting.head
        if ready_in < MANY and live is not None:
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
        if self.host is not None and self._refused == (self.host.changes, len(self.waiting)) and self._passes():
            return "adapters", MANY
        stopped = self._let_in()
        return ("adapters", MANY) if self.waiting.come_again() else stopped

    def _passes(self) -> bool:
        """Whether those who wait, none of whose adapters had a place when they were last asked, would be passed over again."""
        live, room = self.waiting.head, self.scheduling.slots - self.n - len(self.reading)
        if live is None or self.jobs is not None or live.ready > self.turns or room <= 0:
            return False
        if self.scheduling.prompts in ("last", "static"):
            return False
        return self.held + self._needed(live) <= self.room.bytes or not (self.n or self.reading)

    def _let_in(self) -> tuple[str, int]:
        waiting, room, plan = self.waiting, self.room, self.scheduling
        live = waiting.head
        if live is None:
            return self._fill()
        if plan.prompts in ("last", "static") and self.n and not self._last:
            return "slots", MANY
        fills = plan.prompts == "static" and plan.fills and not (self.n or self.reading)
        if fills and len(waiting) < min(plan.slots, room.bytes // self._needed(live)):
            return "slots", MANY
        others = self.reading if self.jobs is None else self.reading[: len(self.reading) - self.jobs.reading]
        budget = self._budget(self.n if plan.prompts == "mixed" else 0) - sum(each.unread for each in others)
        while live is not None:
            if live.ready > self.turns:
                return "running", live.ready - self.turns
            if self.n + len(self.reading) >= plan.slots:
                if self._yields():
                    continue
                return "slots", MANY
            needed = self._needed(live)
            if self.held + needed > room.bytes and (self.n or self.reading):
                if self._yields():
                    continue
                return "caches", MANY
            if self.host is not None and not self.host.has_place(live.request.adapter):
                waiting.pass_over()
                live = waiting.head
                continue
            if live.handed:
                waiting.pop()
                live.handed = False
                self._bring(live)
                self._join(live)
                live = waiting.head
                continue
            if budget <= 0:
                return "prompts", MANY
            kept = 0 if self.prefixes is None else self.prefixes.find(live.request, room.bytes - self.held)
            found = min(kept, live.prompt - 1)
            new = live.prompt - found
            if not plan.cuts and new > budget and self.reading and (plan.whole or plan.budget >= new):
                return "prompts", MANY
            waiting.pop()
            self._bring(live)
            if self.prefixes is not None:
                self.prefixes.hold(live.number, live.request, kept)
                self.spent.found += found
            live.unread = new
            if live.begun < 0:
                live.begun = self.time
            live.held = needed
            self.held += needed
            self.reading.insert(len(self.reading) - (0 if self.jobs is None else self.jobs.reading), live)
            budget -= new
            live = waiting.head
        if self.host is not None and len(waiting):
            self._refused = self.host.changes, len(waiting)
        return self._fill()

    def _bring(self, live: Live) -> None:
        """What a request that is let in needs from the host."""
        if self.host is not None:
            self._moving += self.host.enters(live.request.adapter, live.away)
            live.away = 0.0

    def _budget(self, n: int) -> int:
        """Tokens of prompts that a step has room for beside the answers of n requests."""
        ranks = self.steps.ranks
        return max(self.scheduling.budget - n * (1 + self.steps.drafted) // ranks, LEAST) * ranks

    def _mixed(self, cause: str, n: int) -> None:
        """A step that reads prompts, beside the answers of n requests."""
        steps, spent, plan, ranks = self.steps, self.spent, self.scheduling, self.steps.ranks
        left = self._budget(n)
        tokens, largest, chunks, widest, parts, longest = 0, 0, 0.0, 0.0, 0, 0
        ended: list[Live] = []
        for live in self.reading:
            take = live.unread if live.unread <= left or plan.whole else left
            if take <= 0:
                break
            if ranks > 1 and not plan.whole:
                take = min(take, plan.budget)
            cost = steps.chunk(take, live.prompt - live.unread)
            live.unread, left, tokens = live.unread - take, left - take, tokens + take
            longest = max(longest, live.prompt - live.unread)
            chunks += cost
            parts += 1
            if ranks > 1:
                largest, widest = max(largest, take), max(widest, cost)
            if live.number >= JOB:
                self._of_jobs(live).read += take
                spent.read -= take
            if not live.unread:
                ended.append(live)
        if ranks == 1:
            seconds = steps.mixed(n, self.load, tokens, parts, chunks, 1.0, longest)
        else:
            each = max(largest, -(-tokens // ranks))
            seconds = steps.mixed(
                -(-n // ranks),
                self.load / ranks,
                each,
                max(1, -(-parts // ranks)),
                max(widest, chunks / ranks),
                tokens / (ranks * each),
                longest,
            )
        if self.prefixes is not None:
            seconds = max(seconds, self.prefixes.recall())
        reading, alive = len(self.reading), self.n
        if self.jobs is not None:
            reading, alive = reading - self.jobs.reading, alive - self.jobs.running
        spent.reading += seconds * reading
        spent.read += tokens
        self._last = tokens
        if n:
            alone = min(steps.decode_time(-(-n // ranks), self.load / ranks), seconds)
            spent.writing += alone * alive
            spent.disturbed += (seconds - alone) * alive
            self._tell_gaps(seconds, alive)
        elif self.n:
            spent.disturbed += seconds * alive
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
            self.reading = [] if len(ended) == len(self.reading) else [live for live in self.reading if live.unread]
            for live in ended:
                self._read(live)
        if self.held > self.room.bytes:
            self._outgrown()

    def _wait(self, seconds: float, cause: str) -> None:
        many = self.waiting.size
        if many:
            waits, back = self.spent.waits, self.waiting.returned
            if back:
                waits["put back"] += seconds * back
            waits[cause or "prompts"] += seconds * (many - back)

    def _decode(self, until: float, cause: str, ready_in: int) -> None:
        """As many steps without prompts as are alike."""
        n, steps, spent, now = self.n, self.steps, self.spent, self.time
        load, slope, terms = self.load, self.slope, steps.decode(n)
        if steps.ranks > 1:
            load, slope, terms = load / steps.ranks, slope / steps.ranks, steps.decode(-(-n // steps.ranks))
        k = self.running[0][0] - self.count
        if ready_in < k:
            k = ready_in
        if self.crossing:
            k = min(k, max(self.crossing[0][0] - self.count, 1))
        room = self.room.bytes
        if self.held + k * self.growth > room:
            k = min(k, max(int((room - self.held) / self.growth), 1))
        span = until - now
        if self.incoming and (not cause or cause == "running"):
            ahead = self.incoming[0][0] - now
            if ahead < span:
                span = ahead
        if len(terms) == 1:
            a = terms[0][0] + load
            if k > 1 and k * (a + (k - 1) * slope / 2) > span:
                k = min(k, steps_within(span, a - slope / 2, slope))
            each = a + (k - 1) * slope / 2
        else:
            k, each = same_longest(terms, load, slope, k, span)
        seconds = k * each
        alive = n - len(self._finished) - (0 if self.jobs is None else self.jobs.running)
        spent.writing += seconds * alive
        spent.busy += seconds
        spent.steps += k
        self._tell_gaps(each, alive, k)
        self._last = 0
        if self.waiting.size:
            self._wait(seconds, cause)
        self.time = now + seconds
        self._length = each + (k - 1) / 2 * slope
        self.turns += k
        self._step(k)
        if self.held > room:
            self._outgrown()

    def _tell_gaps(self, each: float, alive: int, k: int = 1) -> None:
        """Gaps before the tokens of k steps; the first of them has what answers stood still."""
        if self.gaps is not None:
            firsts = self._firsts()
            if self._stalled:
                self.gaps.after_standing(each, self._stalled, alive - firsts, self._late)
                firsts, k = 0, k - 1
            self.gaps.add(each, alive * k - firsts)
        self._stalled = 0.0

    # --- one request ------------------------------------------------------------------------------------------

    def _read(self, live: Live) -> None:
        """The prompt is read: the first token is there."""
        if live.number >= JOB:
            self._of_jobs(live).reading -= 1
        elif live.first >= 0:
            self.spent.repeated += live.prompt
        if live.first < 0:
            live.first = self.time
        if self.prefixes is not None:
            self.prefixes.keep(live.number, live.request)
        self.held -= live.held
        live.written, live.left = live.written + 1, live.left - 1
        self._wrote(live, 1)
        self._join(live)
        if self._stalled and live.ends and live.number < JOB:
            self._late.append((self._stalled, 1))

    def _join(self, live: Live) -> None:
        """An answer is written from the next step on."""
        if live.left <= 0 or self.scheduling.reads:
            live.ends = self.count
            self._out(live)
            return
        self._begin(live)
        if live.number >= JOB:
            self._of_jobs(live).running += 1

    def _end(self, live: Live) -> None:
        if self.scheduling.prompts == "static":
            # Its place is kept until the whole batch has ended.
            self._finished.append(live)
            self.spent.wrote += live.left
            self.spent.ended += 1
            self.done((live.request, live.begun, live.first, self.time))
            if len(self._finished) == self.n:
                for each in self._finished:
                    self._lighten(each)
                    each.ends = 0
                self.n, self._finished = 0, []
                self._empty()
            return
        self._lighten(live)
        self.n -= 1
        if live.number >= JOB:
            self._of_jobs(live).running -= 1
        if not self.n:
            self._empty()
        self._wrote(live, live.left)
        self._out(live)

    def _out(self, live: Live) -> None:
        live.ends = 0
        if live.number >= JOB:
            self._of_jobs(live).ended += 1
            return
        self.spent.ended += 1
        if self.host is not None:
            self.host.leaves(live.request.adapter)
        if self.prefixes is not None:
            r = live.request
            self.prefixes.leave(live.number, r, r.prompt if self.scheduling.reads else r.prompt + r.answer)
        self.done((live.request, live.begun, live.first, self.time))
