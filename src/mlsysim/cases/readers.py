"""What a prompt waits for until devices that read in steps have read it: those of an engine and those of a prefill pool (the derivation is in
:mod:`mlsysim.cases.turns`)."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any

from mlsysim.cases.algebra import Algebra
from mlsysim.cases.dealt import ALONE, Dealt
from mlsysim.cases.request import FIRST, QUEUE, RUNNING, SERVING, TAIL, value_of
from mlsysim.cases.traffic import Habits
from mlsysim.timing.tags import Tag, untagged
from mlsysim.units.ops import expm1, maximum, minimum, some, sqrt

REST, QUEUED = "t = (1 - b) t_d/2 + b t_p/2", "t = N_before t_p"
FIXED_POINT, NEXT_TO_NONE = 6, 1e-6
BELOW = 1 - 1e-9
"""A load just below that without a steady state; of few requests the queue is what their arrivals make it."""


class Readers(ABC):
    """Devices that read prompts in steps: ``full`` prompts of a step at most, of all devices; a prompt takes ``chunks`` steps."""

    h: Habits
    full: Any
    chunks: Any = 1.0
    through: Any = 1.0
    """Steps that a prompt of so many chunks is on its way: those of a pipeline follow each other, a stage behind."""
    lines: Any = 1.0
    """Queues that prompts are dealt out to at random, each with its part of a step."""
    held: Any = 0.0
    """Steps that what was read is held back by those launched after it, where some are."""
    come: Dealt = ALONE
    """How prompts come."""

    @abstractmethod
    def reading(self, count: Any, n: Any, tag: Tag = untagged) -> Any:
        """A step with ``count`` prompts beside the decode of n sequences."""

    def pace(self, n: Any, tag: Tag = untagged) -> Any:
        """Seconds a prompt when many wait."""
        return self.reading(maximum(self.full, 1.0), n, tag) / self.full

    def varied(self, n: Any) -> Any:
        """cv^2 of the time in which prompts are read beside n sequences."""
        return self.h.cv**2

    def first(
        self,
        rate: Any,
        beside: Any,
        turn: Any,
        a: Algebra,
        queue: Any,
        population: Any = math.inf,
        least: Any = 0.0,
        ahead: Any = 0.0,
    ) -> Any:
        """Time until a prompt is read that meets others at ``rate``: the rest of what runs, its own step, the ``queue``
        (seconds, at least) of those before it. ``turn`` is the step that runs when nobody reads, ``population`` how many others
        there are, ``least`` the load of the queue at least. Steps that are scheduled ``ahead`` (seconds m) run while those before it are read: of a queue that
        there is with p, of mean W, as exponential, <min(m, Q)> = W (1 - e^(-m p/W)) is not waited for twice."""
        tag, spread = a.under(FIRST), self.varied(beside)
        pace = self.pace(beside, tag)
        each, pause, rate = value_of(pace), maximum(value_of(turn), NEXT_TO_NONE), maximum(rate, NEXT_TO_NONE)
        most, come = maximum(self.full, 1.0), self.come
        count: Any = 1.0 + 0.0 * rate
        for _ in range(FIXED_POINT):
            step = self.reading(count, beside) * self.chunks
            begun = come.somebody(rate * pause)
            share = begun / (begun + come.nobody(rate * step))
            mean = share * step + (1 - share) * pause
            before, count = count, minimum(maximum(rate * mean / share, 1.0), most)
        busy = share * step / mean
        others = rate * (busy * step + (1 - busy) * pause)
        own = self.reading(minimum(1 + come.others(others), most), beside, tag) * self.through
        busy = busy * come.follows(others)
        rest = (1 - busy) * turn / 2 + self.reading(count, beside, tag) * self.chunks * (
            busy * (1 + spread / count) / 2
        )
        load, most = minimum(maximum(rate * each, least), BELOW), maximum(most / self.lines, 1.0)
        random = load ** sqrt(2 * (most + 1)) * come.queued(load, spread) / (2 * (1 - load))
        # Of so many arrivals at random in a window that is as long as their work, as many wait at a time.
        random = self.lines * minimum(random, sqrt(math.pi / 32 * population / self.lines))
        waited = minimum(queue / each + random, population / 2)
        queued, m = maximum(each * waited, NEXT_TO_NONE), maximum(value_of(ahead), NEXT_TO_NONE)
        twice = queued * -expm1(-m * load ** (sqrt(2 * (most + 1)) - 1) / queued)
        late = rest + ahead * maximum(1 - twice / m, 0.0)
        if some(self.held > 0):
            late = late + self.reading(before, beside, tag) * (self.chunks * self.held * come.somebody(rate * step))
        return own + a.loss(RUNNING, SERVING, REST, late) + a.loss(QUEUE, TAIL, QUEUED, pace * waited)
