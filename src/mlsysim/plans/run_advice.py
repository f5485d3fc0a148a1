"""What to change about a simulated run: spares, checkpoints, restarts. The same seeds are played again with one thing changed.

spares        the fewest with which nine in ten runs keep the deadline, or end as soon, within 1 %, as with a node always at hand
checkpoints   the mode, or the interval, that has the largest goodput by the closed form, played
restarts      half as long
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterator
from itertools import islice
from typing import NamedTuple

from mlsysim.cases.checkpoint import MODES, Checkpoint
from mlsysim.cases.goodput import Goodput
from mlsysim.errors import InputError
from mlsysim.plans.plan import Plan
from mlsysim.simulate.run import causes
from mlsysim.simulate.run.record import LEVELS, Runs
from mlsysim.simulate.run.run import Setting as Run
from mlsysim.simulate.run.run import play, play_all
from mlsysim.units.registry import to_si
from mlsysim.units.text import compact_time, money_text
from mlsysim.vocabulary import Setting, worded

SEEDS = 24
"""Runs that advice is played with."""
_NEAR, _TOLD, _MOST = 1.01, 0.001, 10**4
"""As soon as with a node always at hand; what must be saved to be told; spares that a plan may have."""

Mode = Callable[[str], tuple[Goodput, Checkpoint]]
"""Of a mode: the closed form at its best interval, and the checkpoint."""


class Advised(NamedTuple):
    """A run, what was played of it, its plan, what it pays, and other checkpoints."""

    run: Run
    runs: Runs
    plan: Plan
    paid: float | None
    checkpoints: Mode

    def sentences(self) -> Iterator[str]:
        if math.isfinite(self.run.lasts) or (self.run.spares is None and not self.runs.median.ended):
            return
        yield from self._spares()
        if self.runs.median.ended:
            yield from self._checkpoints()
            yield from self._restarts()

    @property
    def _own(self) -> Runs:
        return Runs(self.runs.runs[:SEEDS])

    def _again(self, run: Run) -> Runs:
        return play_all(run, min(SEEDS, self.plan.ops.seeds or SEEDS))

    def _saved(self, run: Run) -> tuple[str, float]:
        """What another run saves, in words, and as a share of the time. The mean over seeds that end both ways; of their own time, since an hour that is saved may be one
        that a run would have given way to, or lead into others."""
        pairs = zip(self._own.runs, self._again(run).runs, strict=False)
        both = [(old, new) for old, new in pairs if old.ended and new.ended]
        saved = sum(old.seconds - old.gives_way - new.seconds + new.gives_way for old, new in both) / max(len(both), 1)
        share = saved * len(both) / sum(old.seconds for old, _ in both) if both else 0.0
        money = f" and {money_text(share * self.paid)}" if self.paid is not None else ""
        return f"saves {compact_time(saved)}{money}", share

    # --- spares ---------------------------------------------------------------------------------------------------------

    def _spares(self) -> Iterator[str]:
        deadline, plan = self.plan.ops.deadline, self.plan.ops
        always = self.run._replace(spares=None, elastic=False)
        ends = (self._own if always == self.run else self._again(always)).seconds.levels["p90"]
        limit = to_si(deadline, "s") if deadline is not None else ends * _NEAR
        if not math.isfinite(limit):
            return
        if deadline is not None and ends > limit:
            yield "No number of spares lets nine in ten runs keep the deadline."
            return
        # Where repairs never end in time, a run is cut short.
        run = self.run._replace(patience=limit / self.run.work * (1 + 1e-9), again=self.run.again or causes.again())
        needed = fewest_spares(run, limit, min(SEEDS, self.plan.ops.seeds or SEEDS))
        if needed is None:
            return
        what = "keep the deadline" if deadline is not None else f"end within {compact_time(limit)}"
        beside = "" if plan.spares is None else f" ({plan.spares:,} are given)"
        more = "" if deadline is not None else ", at most 1 % later than with a node always available"
        elastic = ", going on with fewer replicas while nodes lack" if self.run.elastic else ""
        yield worded("Nine in ten runs ", what, " with ", Setting("spares", needed), f"{beside}{more}{elastic}.")

    # --- checkpoints and restarts -----------------------------------------------------------------------------------------

    def _checkpoints(self) -> Iterator[str]:
        ops = self.plan.ops
        if ops.checkpoint_time is not None:
            return
        own = ops.checkpoint_mode or MODES[0]
        found: list[tuple[float, str, Goodput, Checkpoint]] = []
        for mode in MODES:
            try:
                closed, saved = self.checkpoints(mode)
            except InputError:
                continue
            # The simplest mode that is as good as any: later ones must be better to come first.
            found.append((float(closed.ratio) - 1e-4 * MODES.index(mode), mode, closed, saved))
        _, mode, closed, saved = max(found, key=lambda each: each[0])
        saving = closed.saving
        run = self.run._replace(
            interval=float(closed.interval),
            write=float(saving.write),
            lag=float(saving.lag),
            restart=float(saving.recovery),
            planned=max(self.run.planned + float(saving.recovery) - self.run.restart, 0.0),
            persist=causes.persist_every() if saved.mode == "in_memory" else None,
        )
        words, share = self._saved(run)
        every = compact_time(run.interval)
        if share < _TOLD:
            yield f"No other way of checkpointing saves {_TOLD:.1%} of the time: {own} ones every {compact_time(self.run.interval)} are as good as any."
        elif mode != own:
            yield worded(f"A checkpoint every {every} with ", Setting("checkpoint_mode", mode), f" {words}.")
        else:
            yield worded("A checkpoint with ", Setting("checkpoint_interval", f"{run.interval:.3g} s"), f" {words}.")

    def _restarts(self) -> Iterator[str]:
        run = self.run
        words, share = self._saved(run._replace(restart=run.restart / 2, planned=run.planned / 2))
        if share >= _TOLD:
            yield f"Restarting in half the time after a failure ({compact_time(run.restart / 2)}) {words}."


def fewest_spares(run: Run, limit: float, seeds: int) -> int | None:
    """The fewest spares with which nine in ten seeds end within a limit. A run that never lacked a node is the same with any number of spares that its
    broken nodes leave some of, so that it is played once for all of them; of others those come first that were too late before, since few of them decide."""
    once: dict[int, tuple[int, bool]] = {}
    late = seeds - math.floor(LEVELS["p90"] * seeds)
    order = list(range(seeds))

    def ends(seed: int, spares: int) -> bool:
        if seed in once and once[seed][0] <= spares:
            return once[seed][1]
        found = play(run._replace(spares=spares), seed)
        within = found.ended and found.seconds <= limit
        if found.broken <= spares:
            once[seed] = found.broken, within
        if not within:
            order.remove(seed)
            order.insert(0, seed)
        return within

    def enough(spares: int) -> bool:
        missed = (seed for seed in list(order) if not ends(seed, spares))
        return sum(1 for _ in islice(missed, late)) < late

    if not enough(_MOST):
        return None
    peaks = sorted(at for at, within in once.values() if within)
    return bisect_left(range(peaks[seeds - late] if len(peaks) > seeds - late else _MOST), True, key=enough)
