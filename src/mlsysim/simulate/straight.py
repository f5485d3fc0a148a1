"""Replicas whose steps and room are straight in tokens of context, and their requests as the swift loop has them.

The other loop has a :class:`Live` for each request; the swift one (:mod:`mlsysim.simulate.swift`) tuples, all of whose numbers are there when they are made:

    waiting    (ready, number, request, begun), and begun is below 0 unless others have read the prompt
    written    (ends, number, tokens when it ends, tokens left when it began, request, begun, first)

A replica changes from one to the other where something happens that only the other loop knows. :class:`Live` are made of those that are written and of the next that waits.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Generator
from heapq import heapify
from typing import Any

from mlsysim.simulate.bags import Gaps
from mlsysim.simulate.filling import Filling
from mlsysim.simulate.live import NEVER, Done, Live


class Straight(Filling):
    """A replica most of whose steps are alike."""

    done: Done
    gaps: Gaps | None
    _mixes: Callable[[int, float, int, int, float], float]
    _rows: list[tuple[float, float, float, float]]
    _fixed: tuple[Any, ...] | None = None

    def _is_swift(self) -> bool:
        """Whether its steps are of the kind that is booked here."""
        steps, plan = self.steps, self.scheduling
        return (
            (self.host is None and plan.prompts in ("mixed", "first") and plan.order == "arrival")
            and (steps.ranks == 1 and steps.gain == 1.0 and not steps.drafted and len(steps.decode(1)) == 1)
            and not (steps.contexts.breaks or self.room.contexts.breaks or not self.room.contexts.slope)
        )

    def _swift(self, until: float, tells: bool = False) -> bool:
        """All steps that begin before ``until``; False where something happens that the other loop must do first.

        A jump that goes on beyond is not begun: its steps are taken later, all from the same origin, so that nothing depends on when somebody looks.
        Only where the loop ``tells`` all that it knows is it cut there."""
        going = self._going
        if going is None:
            going = self._going = self._go()
            next(going)
        if going.send((until, tells)):
            return True
        self._tell_each()
        self._outgrown()
        return False

    @abstractmethod
    def _go(self) -> Generator[bool, tuple[float, bool], None]:
        """The loop, which is sent to a time and says whether it came there."""

    def _beside(self) -> float:
        """Tokens of room that a request takes beside its own."""
        return self.room.contexts.first / self.room.contexts.slope

    def _fix(self) -> tuple[Any, ...]:
        """What does not change while it plays."""
        steps, room, plan, waiting, gaps = self.steps, self.room, self.scheduling, self.waiting, self.gaps or Gaps()
        takes = room.contexts.slope
        self._fixed = (
            self.spent, self.prefixes, self.incoming, waiting, waiting.queue, self.spent.waits, self.reserves, steps.chunk, self._mixes, self._rows,
            *steps.prompted, steps.contexts.first, steps.contexts.slope, takes, room.bytes / takes, self._beside(), plan.budget, plan.slots,
            plan.prompts == "mixed", plan.cuts, plan.whole, plan.reads, float(int(self.missed)), self.missed % 1.0, gaps, gaps.seconds, gaps.many,
        )  # fmt: skip
        return self._fixed

    def _add_up(self) -> tuple[float, float]:
        """Tokens of contexts, and those of room beside them, of what the other loop left. Its answers are written down as here:
        (ends, number, tokens when it ends, tokens left when it began, request, begun, first)."""
        beside, reserves, contexts, taken = self._beside(), self.reserves, 0, 0.0
        running, crossing, queue = list[Any](), list[Any](), self.waiting.queue
        for ends, number, live in self.running:
            whole = live.prompt + live.left
            contexts += whole - (ends - self.count)
            taken += beside + whole if reserves else 0.0
            own = float(ends), number, float(whole), float(live.left), live.request, live.begun
            if live.first < 0:
                crossing.append(own)
            else:
                running.append((*own, live.first))
        heapify(running)
        self.running, self.crossing = running, crossing
        for live in self.reading:
            taken += beside + live.prompt + (live.left if reserves else 1)
        if queue and isinstance(live := queue[0], Live):
            queue[0] = live.ready, live.number, live.request, live.begun
        return float(contexts), taken

    def _tell_each(self) -> None:
        """What the other loop has of each request."""
        self._going = None
        written, growth = [*self.running, *((*own, -1.0) for own in self.crossing)], self.room.contexts.slope
        self.running, self.crossing = [], []
        for at, number, whole, rest, request, begun, first in written:
            live, ends, left = Live(request, 0, number), int(at), int(rest)
            live.prompt, live.left, live.written, live.ends = int(whole) - left, left, request.answer - left, ends
            live.begun, live.first, live.since = begun, first, ends - left
            (live.load, live.slope), live.held = self.steps.contexts.at(live.prompt), self._needed(live)
            live.growth = 0.0 if self.reserves else growth
            self.running.append((ends, number, live))
            if first < 0:
                self.crossing.append((self.count + 1, number, live))
        heapify(self.running)
        for live in self.reading:
            live.held = self._needed(live)

    def _row(self, n: int) -> tuple[float, float, float, float]:
        """Of n answers: their number, a step before their contexts, half of what it grows by each step, and the tokens of context that have room."""
        rows, contexts = self._rows, self.steps.contexts
        while len(rows) <= n:
            m, room = len(rows), self.room.bytes / self.room.contexts.slope
            alone = self.steps.decode(m)[0][0] + m * contexts.first if m else 0.0
            limit = NEVER if self.reserves else room - (self._beside() + 1) * m
            rows.append((float(m), alone, contexts.slope * m / 2, limit))
        return rows[n]
