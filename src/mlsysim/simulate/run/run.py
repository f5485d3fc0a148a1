"""The events of one training run, in order: failures, restarts, nodes that come back, stops that are planned, hours in which less is allowed.

A run is in one of four states. Training: work is done at a rate (what is allowed now, times the share of replicas that are there, over the
slow-down of a slow node) and saved now and then. Restarting: ``restart`` seconds without another failure. Waiting: nodes are lacking and
no spare is left. Stopped: maintenance or a pause, before which it saves; after maintenance it needs ``planned`` seconds to be back, while a
pause holds the program in the accelerators' memory.

    training --failure--> restarting --> training         or, where nodes lack:  --failure--> waiting --node back--> restarting
    training --stop--> stopped --> restarting

Elastic, it does not wait: it goes on with the floor((N - lacking) D / N) replicas that N nodes less those that lack hold, of D, and takes nodes
that come back in at the next restart, or in one of their own where the work until the next failure is worth that. The batch stays, so that
the others do the work of replicas that lack. Time jumps from event to event, so that it does not matter how many accelerators there are.

Exponential failures, a node always at hand and nothing planned are the exact form of :mod:`mlsysim.cases.goodput`, which runs agree
with. Left out: nodes that fail less while they stand still, and checkpoints that slow training down while they are written.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

from mlsysim.cases.goodput import PATIENCE
from mlsysim.simulate.draws import Draws
from mlsysim.simulate.run.clocks import Cause, Clock
from mlsysim.simulate.run.nodes import Again, Nodes, Returning
from mlsysim.simulate.run.progress import Progress
from mlsysim.simulate.run.record import (
    AGAIN,
    CAPPED,
    PAUSE,
    RESTARTS,
    SLOWER,
    STOPPED,
    WAITING,
    WRITES,
    Played,
    Runs,
    Span,
)

TRAINING = "training"
MAINTENANCE = "maintenance"
FEWER, SLOW, REJOIN = "fewer replicas", "slow nodes", "nodes that come back"
_EVENTS = 100_000
"""Events after which it is said to have none either: one that restarts again and again."""
_TRIED = 8
"""Runs without an end after which no more are tried."""

Allowed = Callable[[float], tuple[float, float]]
"""Of a time in seconds from the start: the rate that is allowed then, 1 for all and 0 for a pause, and until when."""


class Slow(NamedTuple):
    """A node that slows the run down by a factor until it is found, after so many seconds, every so many."""

    factor: float
    found: float
    every: float


class Setting(NamedTuple):
    """A run: seconds of work at full speed, or those that it lasts; what fails; checkpoints; restarts; nodes; what is planned."""

    work: float
    causes: tuple[Cause, ...]
    interval: float
    write: float
    restart: float
    planned: float
    nodes: int
    lag: float = 0.0
    lasts: float = math.inf
    replicas: int = 1
    spares: int | None = None
    crews: int | None = None
    again: Again | None = None
    elastic: bool = False
    maintenance: tuple[float, float] | None = None
    """Seconds of a planned stop, and from one to the next."""
    slow: Slow | None = None
    age: float | None = None
    shape: float = 1.0
    persist: float | None = None
    """Seconds between checkpoints in the file system, where those between are copies in the memory of two nodes."""
    patience: float = PATIENCE
    """Times the work after which a run is said to have no end, in time that it does not give way to hours."""
    hours: Callable[[int], Allowed] | None = None
    """What is allowed when, in the run of a seed."""


def play_all(setting: Setting, seeds: int) -> Runs:
    """Runs with seeds 0, 1, 2, ...; where the first few have no end, those alone."""
    coming, found = _coming(setting), list[Played]()
    for seed in range(seeds):
        found.append(Run(setting, seed, coming).play())
        if seed + 1 == _TRIED and not any(run.ended for run in found):
            break
    return Runs(found)


def play(setting: Setting, seed: int, spans: list[Span] | None = None) -> Played:
    """One run; its stretches go into ``spans``."""
    return Run(setting, seed, _coming(setting), spans).play()


def _coming(setting: Setting) -> Returning:
    return _returning(setting.causes, setting.again if setting.spares is not None else None)


_returning = lru_cache(maxsize=8)(Returning)


class Run:
    """A run on its way."""

    def __init__(self, setting: Setting, seed: int, coming: Returning, spans: list[Span] | None = None) -> None:
        s = self.setting = setting
        self.coming, self.spans = coming, spans
        self.clock = Clock(s.causes, Draws(seed, "failures"), s.age, s.shape)
        self.nodes = Nodes(s.spares, s.crews, s.again, Draws(seed, "repairs"))
        self.others = Draws(seed, "others")
        self.progress = Progress(s.interval, s.write, s.lag, s.work)
        self.t, self.state, self.cause, self.until = 0.0, TRAINING, "", 0.0
        self.share = self.rate = 1.0
        self.hit = 0
        self.back = s.restart
        self.fail = self.clock.after(0.0)
        self.stop = s.maintenance[1] if s.maintenance else math.inf
        self.permit = None if s.hours is None else s.hours(seed)
        self.allowed, self.boundary = (1.0, math.inf) if self.permit is None else self.permit(0.0)
        self.slow_at = self._next_slow()
        self.slow_until = math.inf
        self.lost: dict[tuple[str, str], float] = {}
        self.interruptions: dict[str, int] = {}
        self.stops = 0
        if self.allowed == 0.0:
            self._stop(PAUSE, self.boundary)

    def play(self) -> Played:
        """All of it."""
        s, progress, nodes, held = self.setting, self.progress, self.nodes, self.permit is not None
        patience = s.patience * s.work if math.isfinite(s.work) else math.inf
        end = min(s.lasts, patience)
        for _ in range(_EVENTS):
            training, last = self.state == TRAINING, end
            if held:
                paused = self.state == STOPPED and self.cause == PAUSE
                last = min(s.lasts, math.inf if paused else patience + self.given)
            if training:
                self._set_rate()
                due = self.t + progress.left(self.rate)
                planned = min(self.stop, self.slow_at, self.slow_until)
            else:
                due, planned = (math.inf if self.state == WAITING else self.until), math.inf
            first = min(due, self.fail, nodes.next, planned, self.boundary, last)
            now = first if first > self.t else self.t
            self._pass(now)
            if first == last or (training and first == due):
                break
            if first == self.boundary:
                self._other_hour()
            elif first == due:
                self._go_on()
            elif first == self.fail:
                self._clock_fails()
            elif first == nodes.next:
                cause = nodes.happens(now)
                if cause is None:
                    self._node_back()
                else:
                    self._fails(cause, self.clock.size(cause))
            elif first == self.stop:
                assert s.maintenance is not None
                length, every = s.maintenance
                self.stop += every
                self._stop(MAINTENANCE, now, length)
            elif first == self.slow_at:
                assert s.slow is not None
                self.slow_at, self.slow_until = math.inf, now + s.slow.found
            else:
                self.slow_at, self.slow_until = self._next_slow(), math.inf
                self._stop(SLOW, now)
        ended = progress.done >= s.work * (1 - 1e-9) or (math.isfinite(s.lasts) and first == s.lasts)
        return self._played(ended)

    # --- time passes --------------------------------------------------------------------------------------------------

    def _pass(self, now: float) -> None:
        """Until now nothing has happened."""
        seconds, start, self.t = now - self.t, self.t, now
        if self.state == TRAINING:
            computed = self.progress.computing
            self.progress.advance(start, seconds, self.rate)
            if self.rate < 1.0:
                self._slower(self.progress.computing - computed)
        else:
            self._lose(self.cause, self.state, seconds)
        if self.spans is not None and seconds > 0:
            nodes = round(self.setting.nodes * self.share) if self.state == TRAINING else 0
            cause = "" if self.state == TRAINING else self.cause
            before = self.spans[-1] if self.spans else None
            if before is not None and before[2:] == (self.state, nodes, cause):
                self.spans[-1] = before._replace(end=now)
            else:
                self.spans.append(Span(start, now, self.state, nodes, cause))

    def _set_rate(self) -> None:
        s = self.setting
        slow = 1.0 / s.slow.factor if s.slow is not None and self.slow_until < math.inf else 1.0
        self.rate = self.allowed * self.share * slow

    def _slower(self, seconds: float) -> None:
        """What a lower rate adds, by reason: one after another, so that they add up."""
        left = seconds
        slow = self.rate / (self.allowed * self.share) if self.allowed and self.share else 1.0
        for cause, factor in ((CAPPED, self.allowed), (FEWER, self.share), (SLOW, slow)):
            if factor < 1.0:
                self._lose(cause, SLOWER, left * (1.0 - factor))
                left *= factor

    @property
    def given(self) -> float:
        """Seconds that it has given way to hours."""
        return self.lost.get((PAUSE, STOPPED), 0.0) + self.lost.get((CAPPED, SLOWER), 0.0)

    def _lose(self, cause: str, kind: str, seconds: float) -> None:
        key = cause, kind
        self.lost[key] = self.lost.get(key, 0.0) + seconds

    def _next_slow(self) -> float:
        slow = self.setting.slow
        return math.inf if slow is None else self.t + slow.every * self.others.exponential()

    # --- something happens ----------------------------------------------------------------------------------------------

    def _clock_fails(self) -> None:
        self.fail = self.clock.after(self.t)
        cause = self.clock.cause()
        size = self.clock.size(cause)
        # Of those that take a node away some are nodes that break again, which come by themselves.
        share = self.coming.share(self.t) if size and cause.crew and cause.stops else 0.0
        if share == 0.0 or self.others.uniform() >= share:
            self._fails(cause, size)

    def _fails(self, cause: Cause, size: int) -> None:
        self.nodes.breaks(self.t, cause, size)
        if not cause.stops or self.state == STOPPED:
            return
        if self.state == WAITING:
            self._copies(cause.name, size)
            return
        self.interruptions[cause.name] = self.interruptions.get(cause.name, 0) + 1
        if self.state == TRAINING:
            self.hit = 0
            lost, wrote = self.progress.fail(self.t)
            self._lose(cause.name, AGAIN, lost + wrote)
            if self.spans:
                self._mark(lost / self.rate + wrote if self.rate else wrote, cause.name)
        self._copies(cause.name, size)
        self.back = self.setting.restart
        self._restart(cause.name)

    def _copies(self, cause: str, size: int) -> None:
        """Copies of a state in the memory of two nodes are gone where both are hit: of h nodes with probability h (h - 1) / (N - 1)."""
        persist, self.hit = self.setting.persist, self.hit + size
        if persist is None or self.hit < 2 or not size:
            return
        odds = self.hit * (self.hit - 1) / max(self.setting.nodes - 1, 1)
        if self.others.uniform() < odds:
            lost, _ = self.progress.fail(self.t, persist * self.others.uniform())
            self._lose(cause, AGAIN, lost)

    def _mark(self, seconds: float, cause: str) -> None:
        """The end of the last stretch was for nothing."""
        assert self.spans is not None
        last = self.spans[-1]
        since = max(last.start, last.end - seconds)
        if since < last.end:
            self.spans[-1:] = [last._replace(end=since)] if since > last.start else []
            self.spans.append(Span(since, last.end, AGAIN, last.nodes, cause))

    def _restart(self, cause: str) -> None:
        """From now on, as soon as nodes are there."""
        s = self.setting
        here = s.nodes - self.nodes.lacking
        self.share = 1.0
        if self.nodes.lacking:
            self.share = math.floor(here * s.replicas / s.nodes) / s.replicas if s.elastic and here > 0 else 0.0
        self.cause, self.state = cause, RESTARTS if self.share > 0 else WAITING
        self.until = self.t + self.back

    def _go_on(self) -> None:
        """A restart or a stop is over."""
        if self.state == STOPPED:
            # A pause holds the program where it is.
            self.back = 0.0 if self.cause == PAUSE else self.setting.planned
            self._restart(self.cause)
        else:
            self.state = TRAINING
            if self.allowed == 0.0:
                self._stop(PAUSE, self.boundary)

    def _node_back(self) -> None:
        s = self.setting
        if self.state == WAITING and (not self.nodes.lacking or s.elastic):
            self._restart(self.cause)
        elif self.state == TRAINING and self.share < 1.0:
            here = math.floor((s.nodes - self.nodes.lacking) * s.replicas / s.nodes) / s.replicas
            if (here - self.share) / max(self.clock.rate, 1e-300) > s.planned + s.write:
                self._stop(REJOIN, self.t)

    def _stop(self, cause: str, until: float, length: float = 0.0) -> None:
        """Save, stand still until then and for some seconds, and go on."""
        self.stops += 1
        saved = self.progress.save(self.t) if self.progress.since > 0 else 0.0
        if self.spans is not None and saved:
            self.spans.append(Span(self.t, self.t + saved, WRITES, 0, cause))
        self.t += saved
        self.cause, self.state, self.until = cause, STOPPED, max(until, self.t + length)

    def _other_hour(self) -> None:
        """What is allowed changes."""
        assert self.permit is not None
        self.allowed, self.boundary = self.permit(self.t)
        if self.state == TRAINING and self.allowed == 0.0:
            self._stop(PAUSE, self.boundary)
        elif self.state == STOPPED and self.cause == PAUSE:
            self.until = self.boundary if self.allowed == 0.0 else self.t

    def _played(self, ended: bool) -> Played:
        progress = self.progress
        if progress.writes > 0:
            self._lose("", WRITES, progress.writes)
        done, lost = progress.done, {key: seconds for key, seconds in self.lost.items() if seconds > 0}
        return Played(ended, self.t, done, lost, progress.computing, self.interruptions, self.stops, self.nodes.most)
