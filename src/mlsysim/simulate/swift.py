"""The loop of a replica where nothing but requests, prompts and answers happens: the same steps, booked without a call for each.

What a step takes, how a prompt is let in and what is written down are those of :mod:`mlsysim.simulate.replica`, operation by operation, so that the
sums are the same to the last bit (tests play both). State is in local variables until something else happens, which the other loop
does: requests that are put back, jobs, windows that fill, ranks, drafts, pipelines, other orders.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from math import ceil, sqrt

from mlsysim.simulate.filling import Filling
from mlsysim.simulate.live import MANY, NEVER, Done, Live

LEAST = 16
"""Tokens of prompts that a step has room for at least."""


class Swift(Filling):
    """A replica most of whose steps are alike."""

    done: Done
    gaps: Callable[[float, int], None] | None
    _known: dict[int, float]
    _mixes: Callable[[int, float, int, int, float], float]

    def _is_swift(self) -> bool:
        """Whether its steps are of the kind that is booked here."""
        steps, plan = self.steps, self.scheduling
        return (
            (self.host is None and plan.prompts in ("mixed", "first") and plan.order == "arrival" and not plan.reads)
            and (steps.ranks == 1 and steps.gain == 1.0 and not steps.drafted and len(steps.decode(1)) == 1)
            and not (steps.contexts.breaks or self.room.contexts.breaks)
        )

    def _swift(self, until: float) -> bool:
        """All steps that begin before ``until``; False where something happens that the other loop must do first."""
        steps, spent, plan, prefixes = self.steps, self.spent, self.scheduling, self.prefixes
        incoming, waiting, running, reading = self.incoming, self.waiting, self.running, self.reading
        queue, waits, gaps, done, reserves = waiting.queue, spent.waits, self.gaps, self.done, self.reserves
        chunk, mixed, known = steps.chunk, self._mixes, self._known
        start, grows, base = steps.contexts.first, steps.contexts.slope, self.room.contexts.first
        room, takes, most, slots = self.room.bytes, self.room.contexts.slope, plan.budget, plan.slots
        mixes, cuts, whole = plan.prompts == "mixed", plan.cuts, plan.whole
        ahead, part, length, stalled, last = (
            int(self.missed),
            self.missed % 1.0,
            self._length,
            self._stalled,
            self._last,
        )
        time, count, turns, numbered, size, tokens = (
            self.time, self.count, self.turns, self.numbered, waiting.size, waiting.tokens,
        )  # fmt: skip
        n, load, slope, held, growth, peak = self.n, self.load, self.slope, self.held, self.growth, self.peak_held
        wrote, ended, read, booked = 0, 0, 0, 0
        of_reading, of_writing, disturbed, busy = spent.reading, spent.writing, spent.disturbed, spent.busy
        through, after = False, incoming[0][0] if incoming else NEVER
        while True:
            while after <= time:
                seen, request, _ = incoming.popleft()
                after = incoming[0][0] if incoming else NEVER
                ready = turns
                if n:
                    ready += ahead + (time - seen < part * length)
                live = Live(request, ready, numbered)
                numbered += 1
                tokens += live.prompt
                size += 1
                queue.append(live)
                waits["running"] += time - seen
            if not n and not reading and not queue:
                if after >= until:
                    through = True
                    break
                time = after
                continue
            if time >= until:
                through = True
                break

            # Let requests in.
            cause, ready_in = "", MANY
            if queue and queue[0].ready > turns:
                cause, ready_in = "running", queue[0].ready - turns
            elif queue:
                budget = most - n if mixes else most
                if budget < LEAST:
                    budget = LEAST
                for live in reading:
                    budget -= live.unread
                while queue:
                    live = queue[0]
                    if live.ready > turns:
                        cause, ready_in = "running", live.ready - turns
                        break
                    if n + len(reading) >= slots:
                        cause = "slots"
                        break
                    prompt = live.prompt
                    needed = base + takes * (prompt + (live.left if reserves else 1))
                    if held + needed > room and (n or reading):
                        cause = "caches"
                        break
                    if budget <= 0:
                        cause = "prompts"
                        break
                    new = prompt
                    if prefixes is not None:
                        found = min(prefixes.find(live.request, room - held), prompt - 1)
                        new -= found
                        if not cuts and new > budget and reading and (whole or most >= new):
                            cause = "prompts"
                            break
                        prefixes.hold(live.request)
                        spent.found += found
                    elif not cuts and new > budget and reading and (whole or most >= new):
                        cause = "prompts"
                        break
                    queue.popleft()
                    size -= 1
                    tokens -= prompt
                    live.unread = new
                    if live.begun < 0:
                        live.begun = time
                    live.held = needed
                    held += needed
                    reading.append(live)
                    budget -= new

            # Prompts, beside answers or alone; or as many steps of answers as are alike.
            if reading:
                beside = n if mixes else 0
                left = most - beside
                if left < LEAST:
                    left = LEAST
                last, over, parts, chunks = 0, 0, 0, 0.0
                for live in reading:
                    unread = live.unread
                    take = unread if unread <= left or whole else left
                    if take <= 0:
                        break
                    chunks += chunk(take, live.prompt - unread)
                    live.unread = unread - take
                    left -= take
                    last += take
                    parts += 1
                    if take == unread:
                        over += 1
                seconds = mixed(beside, load, last, parts, chunks)
                if prefixes is not None:
                    seconds = max(seconds, prefixes.recall())
                of_reading += seconds * len(reading)
                read += last
                k = 0
                if beside:
                    k = 1
                    alone = (known.get(n) or self._know(n)) + load
                    if alone > seconds:
                        alone = seconds
                    of_writing += alone * n
                    disturbed += (seconds - alone) * n
                    if gaps is not None:
                        gaps(seconds + stalled, n)
                    stalled = 0.0
                elif n:
                    disturbed += seconds * n
                    stalled += seconds
                length = seconds
                booked += 1
                turns += 1
            elif n:
                over, last = 0, 0
                k = running[0][0] - count
                if ready_in < k:
                    k = ready_in
                if held + k * growth > room:
                    k = min(k, max(int((room - held) / growth), 1))
                span = until - time
                if after - time < span and (not cause or cause == "running"):
                    span = after - time
                each = first = (known.get(n) or self._know(n)) + load
                if k > 1:
                    each = first + (k - 1) * slope / 2
                    if k * each > span:
                        half = first - slope / 2
                        # The smallest k with k half + k^2 slope / 2 >= span, in the form that a slope of zero has too.
                        within = ceil(2 * span / (half + sqrt(half * half + 2 * slope * span)))
                        if within < k:
                            k = within if within > 1 else 1
                        each = first + (k - 1) * slope / 2
                seconds = k * each
                of_writing += seconds * n
                if gaps is not None:
                    if stalled:
                        gaps(each + stalled, n)
                        gaps(each, n * (k - 1))
                    else:
                        gaps(each, n * k)
                stalled = 0.0
                length = each + (k - 1) / 2 * slope
                booked += k
                turns += k
            elif ready_in < MANY:
                queue[0].ready = turns
                continue
            else:
                break
            if size:
                waits[cause or "prompts"] += seconds * size
            time += seconds
            busy += seconds

            # Contexts grow, answers end, others begin.
            if k:
                count += k
                load += k * slope
                held += k * growth
                if held > peak:
                    peak = held
                while running and running[0][0] <= count:
                    live = heappop(running)[2]
                    since = count - live.since
                    load -= live.load + since * live.slope
                    slope -= live.slope
                    held -= live.held + since * live.growth
                    growth -= live.growth
                    n -= 1
                    if not n:
                        load = slope = growth = 0.0
                        held = sum(each.held for each in reading)
                    wrote += live.left
                    live.ends = 0
                    ended += 1
                    if prefixes is not None:
                        prefixes.leave(live.request, live.request.prompt + live.request.answer)
                    done(live, time)
                # Who asks again when it is answered has come meanwhile.
                after = incoming[0][0] if incoming else NEVER
            if over:
                for live in reading[:over]:
                    if live.first >= 0:
                        spent.repeated += live.prompt
                    else:
                        live.first = time
                    if prefixes is not None:
                        prefixes.keep(live.request)
                    held -= live.held
                    live.written += 1
                    live.left = left = live.left - 1
                    wrote += 1
                    if left <= 0:
                        ended += 1
                        if prefixes is not None:
                            prefixes.leave(live.request, live.request.prompt + live.request.answer)
                        done(live, time)
                        continue
                    prompt = live.prompt
                    live.since, live.ends = count, count + left
                    live.load = seconds = start + grows * prompt
                    live.slope = grows
                    if reserves:
                        live.held, live.growth = base + takes * (prompt + left), 0.0
                    else:
                        live.held, live.growth = base + takes * (prompt + 1), takes
                    load += seconds
                    slope += grows
                    held += live.held
                    growth += live.growth
                    n += 1
                    heappush(running, (live.ends, live.number, live))
                del reading[:over]
                after = incoming[0][0] if incoming else NEVER
            if held > room:
                break

        waiting.size, waiting.tokens, self._length, self._stalled, self._last = size, tokens, length, stalled, last
        self.time, self.count, self.turns, self.numbered, self.n = time, count, turns, numbered, n
        self.load, self.slope, self.held, self.growth, self.peak_held = load, slope, held, growth, peak
        spent.reading, spent.writing, spent.disturbed, spent.busy = of_reading, of_writing, disturbed, busy
        spent.wrote += wrote
        spent.ended += ended
        spent.read += read
        spent.steps += booked
        if not through and held > room:
            self._outgrown()
        return through

    def _know(self, n: int) -> float:
        found = self._known[n] = self.steps.decode(n)[0][0]
        return found
