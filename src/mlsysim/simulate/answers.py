"""Answers that a replica is writing: sums over their contexts, which grow by a token a step.

    load = sum of what each context takes of a step, slope = what that grows by a step; held and growth the same of the room for caches

so that k steps are booked at once. An answer is touched only when it begins, ends, or fills a window, where its slope changes.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Generator
from heapq import heappop, heappush
from typing import Any

from mlsysim.simulate.live import Live
from mlsysim.simulate.room import Room
from mlsysim.simulate.steps import Steps


class Answers(ABC):
    """``n`` answers; ``count`` steps have written so far."""

    def __init__(self, steps: Steps, room: Room, reserves: bool) -> None:
        self.steps, self.room, self.reserves = steps, room, reserves
        self.time, self.count = 0.0, 0
        self.reading: list[Live] = []
        self.running: list[Any] = []
        self.crossing: list[Any] = []
        """Answers in the order of their ends, and of their next change: (step, number, Live), or as :mod:`mlsysim.simulate.straight` has them."""
        self.n, self.load, self.slope, self.held, self.growth = 0, 0.0, 0.0, 0.0, 0.0
        self.peak_held = 0.0
        self._going: Generator[bool, tuple[float, bool], None] | None = None
        """The swift loop (:mod:`mlsysim.simulate.swift`), where it was the last one."""

    @abstractmethod
    def _end(self, live: Live) -> None:
        """An answer has its last token."""

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

    def _firsts(self) -> int:
        """First tokens that come with the next step, of those whose prompts others have read: no gap is before them."""
        crossing = self.crossing
        if not crossing or crossing[0][0] > self.count + 1:
            return 0
        return sum(live.first < 0 and live.ends > 0 for _, _, live in crossing)

    def _needed(self, live: Live) -> float:
        """Bytes that must be free before a request is let in: of its prompt and a token, or of all that it will be."""
        return self.room.contexts.at(live.prompt + (live.left if self.reserves else 1))[0]

    def _begin(self, live: Live) -> None:
        """An answer is written from the next step on."""
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
            cross = self.count + max(1, math.ceil(ahead / gain))
            if cross < live.ends:
                heappush(self.crossing, (cross, live.number, live))

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

    def _empty(self) -> None:
        """Without answers there are no contexts: what is left of sums is rounding."""
        self.load = self.slope = self.growth = 0.0
        self.held = math.fsum(each.held for each in self.reading)
