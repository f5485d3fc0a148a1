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
from heapq import heappop, heappush
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
        """Contexts and places of what the other loop left."""
        beside, reserves, contexts, places = self._beside(), self.reserves, 0, 0.0
        for ends, _, live in self.running:
            whole = live.prompt + live.left
            contexts += whole - (ends - self.count)
            places += beside + (whole if reserves else whole - (ends - self.count) + 1)
        for live in self.reading:
            places += beside + live.prompt + (live.left if reserves else 1)
        return contexts, places

    def _tell_each(self) -> None:
        """What the other loop has of each request."""
        self._sums = None
        for ends, _, live in self.running:
            live.since = ends - live.left
            (live.load, live.slope), growth = self.steps.contexts.at(live.prompt), self.room.contexts.slope
            live.held, live.growth = self._needed(live), 0.0 if self.reserves else growth
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
        running, reading, crossing, done = self.running, self.reading, self.crossing, self.done
        length, stalled, last = self._length, self._stalled, self._last
        time, count, turns, numbered, tokens = self.time, self.count, self.turns, self.numbered, waiting.tokens
        n, peak, (contexts, places) = self.n, self.peak_held / takes, self._sums or self._add_up()
        wrote, ended, read, begun, came = 0, 0, 0, turns, 0.0
        of_reading, of_writing, disturbed, busy = spent.reading, spent.writing, spent.disturbed, spent.busy
        at_end = beside if reserves else beside + 1
        through, after = False, incoming[0][0] if incoming else NEVER
        soonest = running[0][0] if running else MANY
        while True:
            while after <= time:
                seen, request, since = incoming.popleft()
                after = incoming[0][0] if incoming else NEVER
                if since < 0:
                    live = Live(request, turns + ahead + (time - seen < part * length) if n else turns, numbered)
                else:
                    live = Live(request, turns, numbered)
                    live.begun, live.handed = since, True
                numbered += 1
                tokens += live.prompt
                queue.append(live)
                came += time - seen
            if time >= until:
                through = True
                break

            # Whose prompt others have read is let in, and has its first token with the next step.
            while queue and queue[0].handed and n + len(reading) < slots:
                live = queue[0]
                needed = beside + live.prompt + (live.left if reserves else 1)
                if places + needed > room and (n or reading):
                    break
                queue.popleft()
                live.handed = False
                tokens -= live.prompt
                places += needed
                contexts += live.prompt
                n += 1
                live.ends = ends = count + live.left
                heappush(running, (ends, live.number, live))
                crossing.append((count + 1, live.number, live))
                if ends < soonest:
                    soonest = ends

            # Prompts that are read go on, and requests are let in beside them.
            ready_in = queue[0].ready - turns if queue else MANY
            cause = "running"
            if reading or ready_in <= 0:
                over, parts, chunks, last, ready_in = 0, 0, 0.0, 0, MANY
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
                        over += take == unread
                    left -= unread
                while queue:
                    live = queue[0]
                    if live.ready > turns:
                        cause, ready_in = "running", live.ready - turns
                        break
                    if n + len(reading) >= slots:
                        cause = "slots"
                        break
                    new = prompt = live.prompt
                    needed = beside + prompt + (live.left if reserves else 1)
                    if places + needed > room and (n or reading):
                        cause = "caches"
                        break
                    if left <= 0 or live.handed:
                        cause = "prompts"
                        break
                    if prefixes is not None:
                        found = prefixes.find(live.request, (room - places) * takes)
                        new -= found if found < prompt else prompt - 1
                    if not cuts and new > left and reading and (whole or most >= new):
                        cause = "prompts"
                        break
                    if prefixes is not None:
                        prefixes.hold(live.request)
                        spent.found += prompt - new
                    queue.popleft()
                    tokens -= prompt
                    if live.begun < 0:
                        live.begun = time
                    places += needed
                    reading.append(live)
                    if new <= left or whole:
                        take, live.unread = new, 0
                        over += 1
                    else:
                        take, live.unread = left, new - left
                    if by_own:
                        chunks += (take + ramp) * (by_before * (prompt - new) + by_own * take + by_token)
                    else:
                        chunks += chunk(take, prompt - new)
                    last += take
                    parts += 1
                    left -= new

            if reading:
                k = n if mixes else 0
                attended = grows * contexts
                seconds = mixed(k, start * n + attended, last, parts, chunks)
                if prefixes is not None:
                    seconds = max(seconds, prefixes.recall())
                of_reading += seconds * len(reading)
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
                over = last = 0
                k = soonest - count
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
                    while after < until and cause == "running" and k * (half + k * slope / 2) > after - time:
                        within = steps_within(after - time, half, slope)
                        if within > k:
                            break
                        if incoming[0][2] >= 0:
                            k = within
                            break
                        # Who comes meanwhile only waits, and is ready some steps later.
                        seen, request, since = incoming.popleft()
                        late = time + within * (half + within * slope / 2) - seen < part * (each + (within - 1) * slope)
                        live = Live(request, turns + within + ahead + late, numbered)
                        numbered += 1
                        tokens += live.prompt
                        if not queue and within + ahead + late < k:
                            k = within + ahead + late
                        queue.append(live)
                        came += time - seen
                        after = incoming[0][0] if incoming else NEVER
                    more = (k - 1) * slope / 2
                    if k * (each + more) > until - time:
                        within = steps_within(until - time, half, slope)
                        if within < k:
                            k = within
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
                queue[0].ready = turns
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
                    for _, _, live in crossing:
                        if live.ends:
                            live.first = time
                    crossing.clear()
                if soonest <= count:
                    while soonest <= count:
                        live = heappop(running)[2]
                        soonest = running[0][0] if running else MANY
                        tokens_held = live.prompt + live.left
                        contexts -= tokens_held
                        places -= tokens_held + at_end
                        n -= 1
                        wrote += live.left
                        ended += 1
                        if prefixes is not None:
                            prefixes.leave(live.request, live.request.prompt + live.request.answer)
                        live.finish = time
                        done(live)
                    # Who asks again when it is answered has come meanwhile.
                    after = incoming[0][0] if incoming else NEVER
            if over:
                for live in reading if over == len(reading) else reading[:over]:
                    prompt = live.prompt
                    if live.first >= 0:
                        spent.repeated += prompt
                    else:
                        live.first = time
                    if prefixes is not None:
                        prefixes.keep(live.request)
                    live.written += 1
                    live.left = left = live.left - 1
                    wrote += 1
                    if reserves:
                        places -= 1
                    if left > 0 and not reads:
                        live.ends = ends = count + left
                        contexts += prompt
                        n += 1
                        heappush(running, (ends, live.number, live))
                        if ends < soonest:
                            soonest = ends
                        continue
                    places -= prompt + at_end + (left if reserves else 0)
                    ended += 1
                    if prefixes is not None:
                        prefixes.leave(live.request, live.request.prompt + (0 if reads else live.request.answer))
                    live.finish = time
                    done(live)
                    after = incoming[0][0] if incoming else NEVER
                del reading[:over]
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
        spent.steps += turns - begun
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
