"""Stretches of the swift loop (:mod:`mlsysim.simulate.swift`) in which there is room for all: the same numbers, without what asks for more.

Answers are written, and who comes is let in when ready and read whole in one step. Where somebody has to wait for room, is read in parts, was read by
others or asks for a single token, where nothing is written or caches may outgrow their room, the stretch is over, and nothing of that has been done.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from heapq import heappop, heappush
from math import sqrt
from typing import Any

from mlsysim.simulate.live import NEVER
from mlsysim.simulate.straight import Straight

State = tuple[Any, ...]


class Calm(Straight):
    """A replica that knows when it has room for all."""

    def _calm(self) -> Generator[State, State, None] | None:
        """Stretches that it may have, if any."""
        plan, by_own = self.scheduling, self.steps.prompted[2]
        if self.prefixes is not None or self.reserves or plan.prompts != "mixed" or plan.reads or not by_own:
            return None
        found = self._stretches()
        next(found)
        return found

    def _stretches(self) -> Generator[State, State, None]:
        """Stretches, one after the other: each takes what the loop knows, and gives the same back."""
        (
            _, _, incoming, _, queue, _, _, _, mixed, rows, ramp, _, by_own, by_token, start,
            grows, _, room, beside, most, slots, _, _, _, _, ahead, part, _, gap, gap_of,
        ) = self._fixed or self._fix()  # fmt: skip
        running, done, at_end, fresh, waits = self.running, self.done, beside + 1, list[Any](), deque[Any]()
        state: State = yield ()
        while True:
            (
                until, silent, time, count, contexts, numbered, tokens, n, soonest, after, peak, read, of_reading, of_writing,
                disturbed, wrote, ended, came, waited, mean, more, last,
            ) = state  # fmt: skip
            before, joined, (many, alone, half, limit) = n, numbered, rows[n]
            horizon, ready = after if after < until else until, NEVER
            while n:
                if time >= horizon:
                    # Who has come waits.
                    while after <= time:
                        _, request, _ = incoming.popleft()
                        late = ahead + (time - after < part * (mean + more))
                        waits.append((count + late, request))
                        came += time - after
                        after = incoming[0][0] if incoming else NEVER
                    if time >= until:
                        break
                    horizon, ready = after if after < until else until, waits[0][0]

                if ready <= count:
                    # Who is ready is read beside the answers.
                    free, left, reading, chunks = room - (contexts + at_end * many), most - n, 0, 0.0
                    while ready <= count:
                        each = waits.popleft()
                        fresh.append(each)
                        request = each[1]
                        prompt = request[1]
                        size = prompt + 0.0
                        free -= beside + (size + 1.0)
                        left -= prompt
                        if free < 0.0 or left < 0 or request[2] < 2:
                            break
                        reading += prompt
                        chunks += (size + ramp) * (by_own * size + by_token)
                        ready = waits[0][0] if waits else NEVER
                    parts = len(fresh)
                    if ready <= count or n + parts > slots:
                        waits.extendleft(reversed(fresh))
                        fresh.clear()
                        break
                    attended, last, more, let_in = grows * contexts, reading, 0.0, time
                    mean = mixed(n, start * many + attended, reading, parts, chunks)
                    read += reading
                    of_reading += mean * parts
                    if waits:
                        waited += mean * len(waits)
                    time += mean
                    held = room - free + many
                    if held > peak:
                        peak = held
                    undisturbed = alone + attended
                    if undisturbed > mean:
                        undisturbed = mean
                    of_writing += undisturbed * many
                    disturbed += (mean - undisturbed) * many
                    gap.append(mean)
                    gap_of.append(many)
                    count += 1.0
                    contexts += many
                else:
                    # As many steps of answers as are alike.
                    k = (soonest if soonest < ready else ready) - count
                    grown = k * many
                    if contexts + grown > limit:
                        break
                    first, longer = alone + grows * contexts, (k - 1.0) * half
                    seconds = k * (first + longer)
                    if time + seconds > horizon and k > 1.0:
                        slope, origin = 2.0 * half, first - half
                        while after < until:
                            span = after - time
                            within = (
                                -(-2.0 * span / (origin + sqrt(origin * origin + 2.0 * slope * span)) // 1.0) or 1.0
                            )
                            if within > k:
                                break
                            # Who comes meanwhile only waits, and is ready some steps later.
                            late = within + ahead
                            if time + within * (origin + within * half) - after < part * (
                                first + (within - 1.0) * slope
                            ):
                                late += 1.0
                            if not waits:
                                ready = count + late
                                if late < k:
                                    k = late
                            _, request, _ = incoming.popleft()
                            waits.append((count + late, request))
                            came += time - after
                            after = incoming[0][0] if incoming else NEVER
                            if k * (origin + k * half) <= after - time:
                                break
                        horizon = after if after < until else until
                        if after >= until and k * (origin + k * half) > until - time:
                            break
                        grown, longer = k * many, (k - 1.0) * half
                        seconds = k * (first + longer)
                    mean, more, last = first + longer, longer, 0
                    of_writing += seconds * many
                    gap.append(mean)
                    gap_of.append(grown)
                    if waits:
                        waited += seconds * len(waits)
                    time += seconds
                    count += k
                    contexts += grown

                # Answers end, others begin.
                if soonest <= count:
                    held = contexts + at_end * many
                    if held > peak:
                        peak = held
                    while soonest <= count:
                        _, _, whole, left, request, begun, first = heappop(running)
                        soonest = running[0][0] if running else NEVER
                        contexts -= whole
                        n -= 1
                        wrote += left
                        done((request, begun, first, time))
                    if not fresh:
                        many, alone, half, limit = rows[n]
                    # Who asks again when it is answered has come meanwhile.
                    if after == NEVER and incoming:
                        after = incoming[0][0]
                        horizon = after if after < until else until
                if fresh:
                    for _, request in fresh:
                        size, left = request[1] + 0.0, request[2] - 1.0
                        ends = count + left
                        contexts += size
                        heappush(running, (ends, joined, size + left, left, request, let_in, time))
                        joined += 1
                        if ends < soonest:
                            soonest = ends
                    n += parts
                    fresh.clear()
                    many, alone, half, limit = rows[n] if n < len(rows) else self._row(n)
                    if contexts > limit:
                        break
            # Each had its first token, and others their last.
            wrote += joined - numbered
            ended += before + joined - numbered - n
            numbered = joined
            for at, request in waits:
                queue.append((at + silent, numbered, request, -1.0))
                numbered += 1
                tokens += request[1]
            waits.clear()
            state = yield (
                time, count, contexts, numbered, tokens, n, soonest, after, peak, read, of_reading, of_writing, disturbed,
                wrote, ended, came, waited, mean, more, last,
            )  # fmt: skip
