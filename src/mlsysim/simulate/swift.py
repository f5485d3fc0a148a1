"""The loop of a replica where nothing but requests, prompts and answers happens: the same steps, booked without a call for each.

What a step takes, how a prompt is let in and what is written down are those of :mod:`mlsysim.simulate.replica`; tests play both. Without windows
what contexts take of a step and of the room is straight in their tokens, so that two numbers are kept of all answers instead of four for each:

    contexts = sum of tokens        load = n first + slope contexts        a step adds n
    places = sum of tokens of room  held = per_token places                a step adds n, or nothing where all of an answer is reserved

in whole tokens, which have no rounding (what a request takes beside its tokens is a number of them too). State is in local variables
until something else happens, which the other loop does: requests that are put back, jobs, windows that fill, ranks, drafts, pipelines, other orders.
Replicas of a pool have one kind of requests: all of them are to be read, or others have read all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Any

from mlsysim.simulate.bags import LATER, Gaps
from mlsysim.simulate.filling import Filling
from mlsysim.simulate.live import MANY, NEVER, Done, Live
from mlsysim.simulate.steps import steps_within

LEAST = 16
"""Tokens of prompts that a step has room for at least."""


class Known(dict[int, float]):
    """Seconds of a step of n answers before their tokens of context, asked for once."""

    def __init__(self, ask: Callable[[int], float]) -> None:
        self.ask = ask

    def __missing__(self, n: int) -> float:
        found = self[n] = self.ask(n)
        return found


class Swift(Filling):
    """A replica most of whose steps are alike."""

    done: Done
    gaps: Gaps | None
    _known: Known
    _mixes: Callable[[int, float, int, int, float], float]
    _fixed: tuple[Any, ...] | None = None

    def _is_swift(self) -> bool:
        """Whether its steps are of the kind that is booked here."""
        steps, plan = self.steps, self.scheduling
        return (
            (self.host is None and plan.prompts in ("mixed", "first") and plan.order == "arrival")
            and (steps.ranks == 1 and steps.gain == 1.0 and not steps.drafted and len(steps.decode(1)) == 1)
            and not (steps.contexts.breaks or self.room.contexts.breaks or not self.room.contexts.slope)
        )

    def _alone(self, n: int) -> float:
        return self.steps.decode(n)[0][0] + n * self.steps.contexts.first

    def _beside(self) -> float:
        """Tokens of room that a request takes beside its own."""
        beside = self.room.contexts.first / self.room.contexts.slope
        return int(beside) if beside == int(beside) else beside

    def _add_up(self) -> tuple[int, float]:
        """Contexts and places of what the other loop left, whose answers are written down as here:
        (ends, number, tokens when it ends, tokens left when it began, request, begun, first)."""
        beside, reserves, contexts, places = self._beside(), self.reserves, 0, 0.0
        running, crossing, queue = list[Any](), list[Any](), self.waiting.queue
        for ends, number, live in self.running:
            whole = live.prompt + live.left
            contexts += whole - (ends - self.count)
            places += beside + (whole if reserves else whole - (ends - self.count) + 1)
            own = ends, number, whole, live.left, live.request, live.begun
            if live.first < 0:
                crossing.append(own)
            else:
                running.append((*own, live.first))
        heapify(running)
        self.running, self.crossing = running, crossing
        for live in self.reading:
            places += beside + live.prompt + (live.left if reserves else 1)
        if queue and isinstance(live := queue[0], Live):
            queue[0] = live.ready, live.number, live.request, live.begun
        return contexts, places

    def _tell_each(self) -> None:
        """What the other loop has of each request."""
        self._sums = None
        written, growth = [*self.running, *((*own, -1.0) for own in self.crossing)], self.room.contexts.slope
        self.running, self.crossing = [], []
        for ends, number, whole, left, request, begun, first in written:
            live = Live(request, 0, number)
            live.prompt, live.left, live.written, live.ends = whole - left, left, request.answer - left, ends
            live.begun, live.first, live.since = begun, first, ends - left
            (live.load, live.slope), live.held = self.steps.contexts.at(live.prompt), self._needed(live)
            live.growth = 0.0 if self.reserves else growth
            self.running.append((ends, number, live))
            if first < 0:
                self.crossing.append((self.count + 1, number, live))
        heapify(self.running)
        for live in self.reading:
            live.held = self._needed(live)

    def _fix(self) -> tuple[Any, ...]:
        """What does not change while it plays."""
        steps, room, plan, waiting, gaps = self.steps, self.room, self.scheduling, self.waiting, self.gaps or Gaps()
        takes = room.contexts.slope
        self._fixed = (
            self.spent, self.prefixes, self.incoming, waiting, waiting.queue, self.spent.waits, self.reserves, steps.chunk, self._mixes, self._known,
            *steps.prompted, steps.contexts.first, steps.contexts.slope, takes, room.bytes / takes, self._beside(), plan.budget, plan.slots,
            plan.prompts == "mixed", plan.cuts, plan.whole, plan.reads, int(self.missed), self.missed % 1.0, gaps, gaps.seconds.append, gaps.many.append,
        )  # fmt: skip
        return self._fixed

    def _swift(self, until: float) -> bool:
        """All steps that begin before ``until``; False where something happens that the other loop must do first."""
        (
            spent, prefixes, incoming, waiting, queue, waits, reserves, chunk, mixed, known, ramp, by_before, by_own, by_token, start,
            grows, takes, room, beside, most, slots, mixes, cuts, whole, reads, ahead, part, gaps, gap, gap_of,
        ) = self._fixed or self._fix()  # fmt: skip
        contexts, places = self._sums or self._add_up()
        running, reading, crossing, done = self.running, self.reading, self.crossing, self.done
        length, stalled, last = self._length, self._stalled, self._last
        time, count, turns, numbered, tokens = self.time, self.count, self.turns, self.numbered, waiting.tokens
        n, peak = self.n, self.peak_held / takes
        wrote, ended, read, turned, came = 0, 0, 0, turns, 0.0
        of_reading, of_writing, disturbed, busy = spent.reading, spent.writing, spent.disturbed, spent.busy
        at_end = beside if reserves else beside + 1
        through, after = False, incoming[0][0] if incoming else NEVER
        soonest = running[0][0] if running else MANY
        while True:
            while after <= time:
                seen, request, begun = incoming.popleft()
                after = incoming[0][0] if incoming else NEVER
                late = ahead + (time - seen < part * length) if n and begun < 0 else 0
                queue.append((turns + late, numbered, request, begun))
                numbered += 1
                tokens += request[1]
                came += time - seen
            if time >= until:
                through = True
                break

            # Whose prompt others have read is let in, and has its first token with the next step.
            cause, ready_in = "running", MANY
            if queue:
                while queue and queue[0][3] >= 0 and n + len(reading) < slots:
                    _, number, request, begun = queue[0]
                    prompt, left = request[1], request[2]
                    needed = beside + prompt + (left if reserves else 1)
                    if places + needed > room and (n or reading):
                        break
                    queue.popleft()
                    tokens -= prompt
                    places += needed
                    contexts += prompt
                    n += 1
                    crossing.append((count + left, number, prompt + left, left, request, begun))
                if queue:
                    ready_in = queue[0][0] - turns

            # Prompts that are read go on, and requests are let in beside them.
            fresh = []
            if reading or ready_in <= 0:
                parts, chunks, last, ready_in = 0, 0.0, 0, MANY
                left = most - n if mixes else most
                if left < LEAST:
                    left = LEAST
                for live in reading:
                    unread = live.unread
                    take = unread if unread <= left or whole else left
                    if take > 0:
                        chunks += chunk(take, live.prompt - unread)
                        live.unread = unread - take
                        last += take
                        parts += 1
                        if take == unread:
                            fresh.append((live.number, live.prompt, live.left, live.request, live.begun, live.first))
                    left -= unread
                if fresh:
                    del reading[: len(fresh)]
                while queue:
                    ready, number, request, begun = queue[0]
                    if ready > turns:
                        cause, ready_in = "running", ready - turns
                        break
                    others = n + len(reading) + len(fresh)
                    if others >= slots:
                        cause = "slots"
                        break
                    new = prompt = request[1]
                    needed = beside + prompt + (request[2] if reserves else 1)
                    if places + needed > room and others:
                        cause = "caches"
                        break
                    if left <= 0 or begun >= 0:
                        cause = "prompts"
                        break
                    if prefixes is not None:
                        found = prefixes.find(request, (room - places) * takes)
                        new -= found if found < prompt else prompt - 1
                    if not cuts and new > left and others > n and (whole or most >= new):
                        cause = "prompts"
                        break
                    if prefixes is not None:
                        prefixes.hold(request)
                        spent.found += prompt - new
                    queue.popleft()
                    tokens -= prompt
                    places += needed
                    if new <= left or whole:
                        take = new
                        fresh.append((number, prompt, request[2], request, time, -1.0))
                    else:
                        take, live = left, Live(request, ready, number)
                        live.begun, live.unread = time, new - left
                        reading.append(live)
                    if by_own:
                        chunks += (take + ramp) * (by_before * (prompt - new) + by_own * take + by_token)
                    else:
                        chunks += chunk(take, prompt - new)
                    last += take
                    parts += 1
                    left -= new

            if fresh or reading:
                k = n if mixes else 0
                attended = grows * contexts
                seconds = mixed(k, start * n + attended, last, parts, chunks)
                if prefixes is not None:
                    seconds = max(seconds, prefixes.recall())
                of_reading += seconds * (len(fresh) + len(reading))
                read += last
                if k:
                    k = 1
                    alone = known[n] + attended
                    if alone > seconds:
                        alone = seconds
                    of_writing += alone * n
                    disturbed += (seconds - alone) * n
                    gap(seconds + stalled)
                    gap_of(n)
                    stalled = 0.0
                elif n:
                    disturbed += seconds * n
                    stalled += seconds
                length = seconds
                turns += 1
            elif n:
                # As many steps of answers as are alike.
                last, k = 0, soonest - count
                if ready_in < k:
                    k = ready_in
                if crossing:
                    k = 1
                if places + k * n > room and not reserves:
                    k = min(k, max(int((room - places) / n), 1))
                each = known[n] + grows * contexts
                if k > 1:
                    slope = grows * n
                    half = each - slope / 2
                    if k * (half + k * slope / 2) > (after if after < until else until) - time:
                        while after < until and cause == "running" and k * (half + k * slope / 2) > after - time:
                            within = steps_within(after - time, half, slope)
                            if within > k:
                                break
                            if incoming[0][2] >= 0:
                                k = within
                                break
                            # Who comes meanwhile only waits, and is ready some steps later.
                            seen, request, begun = incoming.popleft()
                            late = within + ahead
                            late += time + within * (half + within * slope / 2) - seen < part * (each + (within - 1) * slope)
                            if not queue and late < k:
                                k = late
                            queue.append((turns + late, numbered, request, begun))
                            numbered += 1
                            tokens += request[1]
                            came += time - seen
                            after = incoming[0][0] if incoming else NEVER
                        if k * (each + (k - 1) * slope / 2) > until - time:
                            k = min(k, steps_within(until - time, half, slope))
                    more = (k - 1) * slope / 2
                    each += more
                    length = each + more
                else:
                    length = each
                seconds = k * each
                of_writing += seconds * n
                if stalled:
                    gap(each + stalled)
                    gap_of(n)
                    gap(each)
                    gap_of(n * (k - 1))
                    stalled = 0.0
                else:
                    gap(each)
                    gap_of(n * k)
                turns += k
            elif ready_in < MANY:
                queue[0] = (turns, *queue[0][1:])
                continue
            elif queue:
                break
            elif after >= until:
                through = True
                break
            else:
                time = after
                continue
            if queue:
                waits[cause] += seconds * len(queue)
            time += seconds
            busy += seconds

            # Contexts grow, answers end, others begin.
            if k:
                count += k
                contexts += k * n
                if not reserves:
                    places += k * n
                if places > peak:
                    peak = places
                if crossing:
                    for own in crossing:
                        heappush(running, (*own, time))
                    crossing.clear()
                    soonest = running[0][0]
                if soonest <= count:
                    while soonest <= count:
                        _, _, whole_of, left, request, begun, first = heappop(running)
                        soonest = running[0][0] if running else MANY
                        contexts -= whole_of
                        places -= whole_of + at_end
                        n -= 1
                        wrote += left
                        ended += 1
                        if prefixes is not None:
                            prefixes.leave(request, request[1] + request[2])
                        done((request, begun, first, time))
                    # Who asks again when it is answered has come meanwhile.
                    after = incoming[0][0] if incoming else NEVER
            if fresh:
                for number, prompt, left, request, begun, first in fresh:
                    if first >= 0:
                        spent.repeated += prompt
                    else:
                        first = time
                    if prefixes is not None:
                        prefixes.keep(request)
                    left -= 1
                    wrote += 1
                    if reserves:
                        places -= 1
                    if left > 0 and not reads:
                        ends = count + left
                        contexts += prompt
                        n += 1
                        heappush(running, (ends, number, prompt + left, left, request, begun, first))
                        if ends < soonest:
                            soonest = ends
                        continue
                    places -= prompt + at_end + (left if reserves else 0)
                    ended += 1
                    if prefixes is not None:
                        prefixes.leave(request, request[1] + (0 if reads else request[2]))
                    done((request, begun, first, time))
                    after = incoming[0][0] if incoming else NEVER
            if places > room:
                break

        if not n and not reading:
            # What a request takes beside its tokens may be no whole number of them: what is left of the sum is rounding.
            places = 0.0
        waiting.size, waiting.tokens, self._length, self._stalled, self._last = (
            len(queue),
            tokens,
            length,
            stalled,
            last,
        )
        self.time, self.count, self.turns, self.numbered, self.n = time, count, turns, numbered, n
        self.load, self.slope, self._sums = start * n + grows * contexts, grows * n, (contexts, places)
        self.held, self.growth, self.peak_held = takes * places, 0.0 if reserves else takes * n, takes * peak
        spent.reading, spent.writing, spent.disturbed, spent.busy = of_reading, of_writing, disturbed, busy
        waits["running"] += came
        spent.wrote += wrote
        spent.ended += ended
        spent.read += read
        spent.steps += turns - turned
        if len(gaps.seconds) >= LATER:
            gaps.settle()
        self.sure = time
        if not (queue or reading or crossing):
            k = soonest - count - 1
            if not n:
                self.sure = NEVER
            elif reserves or places + k * n <= room:
                self.sure = time + k * (known[n] + grows * (contexts + (k - 1) * n / 2))
        if not through:
            self._tell_each()
            if places > room:
                self._outgrown()
        return through
