"""The loop of a replica where nothing but requests, prompts and answers happens: the same steps, booked without a call for each.

What a step takes, how a prompt is let in and what is written down are those of :mod:`mlsysim.simulate.replica`; tests play both. Without windows
what contexts take of a step and of the room is straight in their tokens, so that two numbers are kept of all answers instead of four for each:

    contexts = sum of tokens        load = n first + slope contexts        a step adds n
    taken = tokens of room beside   held = per_token (contexts + n + taken)   of prompts that are read; where all of an answer is reserved, of all, and nothing else

in whole tokens, which have no rounding (what a request takes beside its tokens is a number of them too). State is in local variables
until something else happens, which the other loop does: requests that are put back, jobs, windows that fill, ranks, drafts, pipelines, other orders.
Replicas of a pool have one kind of requests: all of them are to be read, or others have read all of them.
"""

from __future__ import annotations

from collections.abc import Generator
from heapq import heappop, heappush
from math import fsum, sqrt
from typing import Any

from mlsysim.simulate.bags import LATER
from mlsysim.simulate.calm import Calm
from mlsysim.simulate.live import NEVER, Live
from mlsysim.simulate.steps import steps_within

LEAST = 16
"""Tokens of prompts that a step has room for at least."""
NOBODY = NEVER, 0, None, -1.0
"""Who waits where nobody does."""


class Swift(Calm):
    """A replica most of whose steps are booked here."""

    def _go(self) -> Generator[bool, tuple[float, bool], None]:
        """The loop, which keeps its state from one time to the next.

        Numbers of steps and tokens are whole, and floats: Python adds and multiplies two floats twice as fast as one and a whole number."""
        (
            spent, prefixes, incoming, waiting, queue, waits, reserves, chunk, mixed, rows, ramp, by_before, by_own, by_token, start,
            grows, takes, room, beside, most, slots, mixes, cuts, whole, reads, ahead, part, gaps, gap, gap_of,
        ) = self._fixed or self._fix()  # fmt: skip
        # Tokens of contexts, and of room that they do not say: of prompts that are read, of all requests where answers are reserved.
        contexts, taken = self._add_up()
        running, reading, crossing, done, newly = self.running, self.reading, self.crossing, self.done, self._late
        mean, more, stalled, last = self._length, 0.0, self._stalled, self._last
        count, silent, tokens = float(self.count), float(self.turns - self.count), waiting.tokens
        time, numbered, turned, n = self.time, self.numbered, self.turns, self.n
        peak, began = self.peak_held / takes, time
        wrote, ended, read, came, idle, waited = 0.0, 0, 0, 0.0, 0.0, waits["running"]
        of_reading, of_writing, disturbed = spent.reading, spent.writing, spent.disturbed
        at_end = 0.0 if reserves else beside + 1
        soonest = running[0][0] if running else NEVER
        many, alone, half, limit = rows[n] if n < len(rows) else self._row(n)
        cause, full, through, sure, recalls = "running", False, True, 0.0, prefixes is not None and bool(prefixes.tiers)
        calm, fresh = self._calm(), list[Any]()
        until, tells = yield True
        after = incoming[0][0] if incoming else NEVER
        horizon = after if after < until else until
        while True:
            if time >= horizon:
                # Who has come waits.
                while after <= time:
                    seen, request, begun = incoming.popleft()
                    after = incoming[0][0] if incoming else NEVER
                    late = 0.0 if begun >= 0.0 or not n else ahead + (time - seen < part * (mean + more))
                    queue.append((count + silent + late, numbered, request, begun))
                    numbered += 1
                    tokens += request[1]
                    came += time - seen
                if time >= until:
                    if n and not sure and not (queue or reading or crossing):
                        k = soonest - count - 1.0
                        if contexts + k * many <= limit:
                            sure = time + k * (alone + grows * contexts + (k - 1.0) * half)
                    elif not n and not queue and not reading:
                        sure = NEVER
                    self.sure = after if time < after < sure else sure if sure > time else time
                    self.time, self.n, self.load, self.slope = time, n, start * many + grows * contexts, 2.0 * half
                    waiting.size, waiting.tokens, self._last, sure = len(queue), tokens, last, 0.0
                    if not n and not reading:
                        # What a request takes beside its tokens may be no whole number of them: what is left of the sum is rounding.
                        taken = 0.0
                    held = taken if reserves else contexts + at_end * many + taken
                    self.held, self.growth = takes * held, 0.0 if reserves else takes * many
                    if tells or not through:
                        if held > peak and n:
                            peak = held
                        self.count, self.turns, self.numbered = int(count), int(count + silent), numbered
                        self._length, self._stalled = mean + more, stalled
                        self.peak_held = takes * peak
                        spent.reading, spent.writing, spent.disturbed = of_reading, of_writing, disturbed
                        waits["running"] = waited = waited + came
                        spent.busy += time - began - idle
                        spent.wrote += int(wrote)
                        spent.ended += ended
                        spent.read += read
                        spent.steps += self.turns - turned
                        began, turned, wrote, ended, read, came, idle = time, self.turns, 0.0, 0, 0, 0.0, 0.0
                    if len(gap) >= LATER:
                        gaps.settle()
                    until, tells = yield through
                    if self.time > time:
                        idle, time = idle + (self.time - time), self.time
                    after = incoming[0][0] if incoming else NEVER
                    horizon = after if after < until else until
                    continue
                horizon = after if after < until else until
            ready_in = NEVER
            if queue:
                ready_in, number, request, begun = queue[0]
                # Whose prompt others have read is let in, and has its first token with the next step.
                while begun >= 0.0 and n + len(reading) < slots:
                    prompt, left = float(request[1]), float(request[2])
                    needed = beside + prompt + (left if reserves else 1.0)
                    if needed > room - (taken if reserves else contexts + at_end * n + taken) and (n or reading):
                        break
                    queue.popleft()
                    tokens -= request[1]
                    if reserves:
                        taken += needed
                    contexts += prompt
                    n += 1
                    crossing.append((count + left, number, prompt + left, left, request, begun))
                    many, alone, half, limit = rows[n] if n < len(rows) else self._row(n)
                    cause = "running"
                    ready_in, number, request, begun = queue[0] if queue else NOBODY
                ready_in -= count + silent

            # Prompts that are read go on, and requests are let in beside them.
            if reading or ready_in <= 0.0:
                parts, chunks, last, others, cause = 0, 0.0, 0, n, "running"
                left = most - n if mixes else most
                if left < LEAST:
                    left = LEAST
                if reading:
                    for live in reading:
                        unread = live.unread
                        take = unread if unread <= left or whole else left
                        if take > 0:
                            chunks += chunk(take, live.prompt - unread)
                            live.unread = unread - take
                            last += take
                            parts += 1
                            if take == unread:
                                seen_of = live.request, live.begun, live.first
                                fresh.append((live.number, live.prompt, live.left, *seen_of))
                        left -= unread
                    del reading[: len(fresh)]
                    others += len(reading) + len(fresh)
                free = room - (taken if reserves else contexts + at_end * many + taken)
                while ready_in <= 0.0:
                    if others >= slots:
                        cause, ready_in = "slots", NEVER
                        break
                    new = prompt = request[1]
                    answer, size = request[2] + 0.0, prompt + 0.0
                    needed = beside + (size + (answer if reserves else 1.0))
                    if needed > free and others:
                        cause, ready_in = "caches", NEVER
                        break
                    if left <= 0 or begun >= 0.0:
                        cause, ready_in = "prompts", NEVER
                        break
                    ahead_of, own = 0.0, size
                    if prefixes is not None:
                        found = prefixes.find(request, free * takes)
                        new -= found if found < prompt else prompt - 1
                        own = new + 0.0
                        ahead_of = size - own
                    if new > left and not cuts and others > n and (whole or most >= new):
                        cause, ready_in = "prompts", NEVER
                        break
                    if prefixes is not None:
                        prefixes.hold(number, request, found)
                        spent.found += prompt - new
                    queue.popleft()
                    tokens -= prompt
                    free -= needed
                    others += 1
                    if reserves:
                        taken += needed
                    if new <= left or whole:
                        take = new
                        fresh.append((number, size, answer, request, time, -1.0))
                    else:
                        take, own, live = left, left + 0.0, Live(request, 0, number)
                        live.begun, live.unread = time, new - left
                        reading.append(live)
                        if not reserves:
                            taken += needed
                    if by_own:
                        chunks += (own + ramp) * (by_before * ahead_of + by_own * own + by_token)
                    else:
                        chunks += chunk(take, prompt - new)
                    last += take
                    parts += 1
                    left -= new
                    if not queue:
                        ready_in = NEVER
                        break
                    ready_in, number, request, begun = queue[0]
                    ready_in -= count + silent
            if fresh or reading:
                attended = grows * contexts
                mean, more = mixed(n if mixes else 0, start * many + attended, last, parts, chunks), 0.0
                if recalls:
                    mean = max(mean, prefixes.recall())
                of_reading += mean * (others - n)
                read += last
                if queue:
                    if cause == "running":
                        waited += mean * len(queue)
                    else:
                        waits[cause] += mean * len(queue)
                time += mean
                if n and mixes:
                    held = room - free if reserves else room - free + many
                    if held > peak:
                        peak = held
                    undisturbed = alone + attended
                    if undisturbed > mean:
                        undisturbed = mean
                    of_writing += undisturbed * many
                    disturbed += (mean - undisturbed) * many
                    gap.append(mean + stalled)
                    gap_of.append(many)
                    stalled = 0.0
                    count += 1.0
                    contexts += many
                else:
                    silent += 1.0
                    disturbed += mean * many
                    if n:
                        stalled += mean
            elif n:
                if calm is not None and after < until and not (queue or crossing or stalled or incoming[0][2] >= 0.0):
                    before = count
                    (
                        time, count, contexts, numbered, tokens, n, soonest, after, peak, read, of_reading, of_writing, disturbed, wrote, ended, came, waited,
                        mean, more, last,
                    ) = calm.send((
                        until, silent, time, count, contexts, numbered, tokens, n, soonest, after, peak, read, of_reading, of_writing, disturbed, wrote,
                        ended, came, waited, mean, more, last,
                    ))  # fmt: skip
                    if count > before or queue:
                        many, alone, half, limit = rows[n]
                        through = contexts <= limit
                        until = until if through else time
                        horizon = after if after < until else until
                        continue
                # As many steps of answers as are alike.
                last, k = 0, soonest - count
                if ready_in < k:
                    k = ready_in
                if crossing:
                    k = 1.0
                grown = k * many
                if contexts + grown > limit:
                    k = min(k, max((limit - contexts) // many, 1.0))
                    grown, full = k * many, True
                first = alone + grows * contexts
                more = (k - 1.0) * half
                mean = first + more
                seconds = k * mean
                if time + seconds > horizon and k > 1.0:
                    slope, before = 2.0 * half, first - half
                    while after < until and cause == "running":
                        span = after - time
                        within = -(-2.0 * span / (before + sqrt(before * before + 2.0 * slope * span)) // 1.0) or 1.0
                        if within > k:
                            break
                        _, request, begun = first_of = incoming.popleft()
                        if begun >= 0.0:
                            incoming.appendleft(first_of)
                            k = within
                            break
                        # Who comes meanwhile only waits, and is ready some steps later.
                        late = within + ahead
                        if time + within * (before + within * half) - after < part * (first + (within - 1.0) * slope):
                            late += 1.0
                        if not queue and late < k:
                            k = late
                        queue.append((count + silent + late, numbered, request, begun))
                        numbered += 1
                        tokens += request[1]
                        came += time - after
                        after = incoming[0][0] if incoming else NEVER
                        if k * (before + k * half) <= after - time:
                            break
                    horizon = after if after < until else until
                    if k * (before + k * half) > until - time:
                        if tells:
                            k = min(k, steps_within(until - time, before, slope))
                        elif (k - 1.0) * (before + (k - 1.0) * half) >= until - time:
                            sure = time + (k - 1.0) * (before + (k - 1.0) * half)
                            until = horizon = time
                            continue
                    grown, more = k * many, (k - 1.0) * half
                    mean = first + more
                    seconds = k * mean
                of_writing += seconds * many
                if stalled:
                    gaps.after_standing(mean, stalled, many, newly)
                    gap.append(mean)
                    gap_of.append(grown - many)
                    stalled = 0.0
                else:
                    # A first token, of those whose prompts others have read, is no gap.
                    gap.append(mean)
                    gap_of.append(grown - len(crossing) if crossing else grown)
                if queue:
                    if cause == "running":
                        waited += seconds * len(queue)
                    else:
                        waits[cause] += seconds * len(queue)
                time += seconds
                count += k
                contexts += grown
                if crossing:
                    for own in crossing:
                        heappush(running, (*own, time))
                    crossing.clear()
                    soonest = running[0][0]
            elif ready_in < NEVER:
                queue[0] = (count + silent, *queue[0][1:])
                continue
            elif queue:
                through, until, horizon = False, time, time
                continue
            elif after >= until:
                until = horizon = time
                continue
            else:
                idle += after - time
                time = after
                continue

            # Answers end, others begin.
            if soonest <= count:
                held = taken if reserves else contexts + at_end * many + taken
                if held > peak:
                    peak = held
                while soonest <= count:
                    _, number, tokens_held, left, request, begun, first = heappop(running)
                    soonest = running[0][0] if running else NEVER
                    contexts -= tokens_held
                    if reserves:
                        taken -= tokens_held + beside
                    n -= 1
                    ended += 1
                    wrote += left
                    if prefixes is not None:
                        prefixes.leave(number, request, request[1] + request[2])
                    done((request, begun, first, time))
                many, alone, half, limit = rows[n]
                # Who asks again when it is answered has come meanwhile.
                if after == NEVER and incoming:
                    after = incoming[0][0]
                    horizon = after if after < until else until
            if fresh:
                had = n
                for number, prompt, left, request, begun, first in fresh:
                    if first >= 0.0:
                        spent.repeated += prompt
                    else:
                        first = time
                    if prefixes is not None:
                        prefixes.keep(number, request)
                    left = left - 1.0
                    wrote += 1.0
                    if reserves:
                        taken -= 1.0
                    if left > 0.0 and not reads:
                        ends = count + left
                        contexts += prompt
                        n += 1
                        heappush(running, (ends, number, prompt + left, left, request, begun, first))
                        if ends < soonest:
                            soonest = ends
                        continue
                    if reserves:
                        taken -= beside + prompt + left
                    if prefixes is not None:
                        prefixes.leave(number, request, request[1] + (0 if reads else request[2]))
                    ended += 1
                    done((request, begun, first, time))
                    after = incoming[0][0] if incoming else NEVER
                    horizon = after if after < until else until
                fresh.clear()
                if stalled and n > had:
                    newly.append((stalled, n - had))
                if taken and not reserves:
                    taken = fsum([beside + (live.prompt + 1) for live in reading])
                many, alone, half, limit = rows[n] if n < len(rows) else self._row(n)
                if contexts + taken > limit:
                    through, until, horizon = False, time, time
            elif (full or reading) and contexts + taken > limit:
                through, until, horizon = False, time, time
