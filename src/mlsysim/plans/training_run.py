"""A training run as a simulation of its weeks saw it: many runs that differ in what fails when, the one in the middle, and how sure it is.

The run in the middle (by length, or by work where the days are given) is the answer: its shares of the time take the place of those of the closed form,
so that metrics, ledger and sentences are of one run, and the others say how far it may be off. Runs begin with all nodes and spares
in order. Accelerators draw the power of a step while they compute and that of waiting ones while they do not.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from mlsysim.cases import failures
from mlsysim.cases.assumptions import INFERRED
from mlsysim.cases.checkpoint import Checkpoint
from mlsysim.cases.goodput import Goodput, exact_goodput_of
from mlsysim.cases.hours import Covered
from mlsysim.cases.run import run_power
from mlsysim.errors import InputError
from mlsysim.plans.hours import Timed
from mlsysim.plans.metrics import kinds
from mlsysim.plans.pieces import Part
from mlsysim.plans.plan import Plan
from mlsysim.plans.run_advice import SEEDS, Advised, Mode
from mlsysim.plans.sheet import Sheet
from mlsysim.plans.spending import paid
from mlsysim.plans.targets import parse_every
from mlsysim.simulate.run import causes, record
from mlsysim.simulate.run.record import many as percentiles
from mlsysim.simulate.run.run import TRAINING, Setting, Slow, play, play_all
from mlsysim.systems.types import Fleet
from mlsysim.units.records import dataclass
from mlsysim.units.registry import quantity, to_si
from mlsysim.units.text import compact_time, many
from mlsysim.zoo.intervals import Factors

DAY = 86400.0
_TAKEN = {"tco": "cost", "rent": "cost", "energy": "energy", "carbon_footprint": "carbon"}
"""What metrics go with, of what the hours of a run take."""
_SHOWN = 200
"""Runs whose days an answer lists."""
_WORKING = (TRAINING, record.AGAIN)
_NAMED = 0.02
"""Share of what is lost that a sentence names."""


def refuse(plan: Plan, why: str) -> None:
    """A plan of a kind whose run cannot be played."""
    if plan.ops.simulated:
        raise InputError(f"{why}; leave simulate, and what belongs to it, out.", field="simulate")


def interrupted(plan: Plan, fleet: Fleet, kept: Goodput) -> Any:
    """Hours from one failure, or node that is taken back, to the next."""
    taken = 0.0 if plan.ops.preempted_every is None else fleet.count / to_si(plan.ops.preempted_every, "h")
    return 1 / (1 / kept.mtbf + taken)


def with_preemption(plan: Plan, fleet: Fleet, kept: Goodput) -> Goodput:
    """A closed form whose checkpoints are as frequent as failures and nodes that are taken back ask for."""
    if plan.ops.preempted_every is None or plan.ops.checkpoint_interval is not None:
        return kept
    return replace(exact_goodput_of(interrupted(plan, fleet, kept), kept.saving), mtbf=kept.mtbf)


def setting_of(
    plan: Plan, fleet: Fleet, kept: Goodput, saved: Checkpoint, replicas: int, work: float, lasts: float
) -> Setting:
    """The run of a plan, whose closed form is ``kept``: of ``work`` seconds at full speed, or one that ``lasts`` some; the other has no end."""
    ops, count = plan.ops, fleet.total_accelerators
    if (ops.elastic or ops.repair_crews or ops.beside) and ops.spares is None:
        field = next(name for name in ("elastic", "repair_crews", "beside") if getattr(ops, name))
        raise InputError(f"{field} matters where spares are counted; give spares too.", field=field)
    if ops.preempted_every is not None and ops.spares is None:
        raise InputError(
            "A node that is taken back is to be replaced or waited for; give spares, 0 or more.", field="spares"
        )
    repair = None if ops.repair_time is None else float(to_si(ops.repair_time, "h"))
    preempted = None if ops.preempted_every is None else float(to_si(ops.preempted_every, "h"))
    beside = (ops.beside or 0) / count
    slow = None if ops.slow_nodes is None else parse_every(ops.slow_nodes)
    stop = None if ops.maintenance is None else parse_every(ops.maintenance)
    saving = kept.saving
    return Setting(
        work=work,
        lasts=lasts,
        causes=causes.causes_of(float(kept.mtbf), fleet.count, repair, beside, preempted),
        interval=float(kept.interval),
        write=float(saving.write),
        lag=float(saving.lag),
        restart=float(saving.recovery),
        planned=max(float(saving.recovery) - failures.notice(), 0.0),
        nodes=fleet.count,
        replicas=replicas,
        spares=ops.spares,
        crews=ops.repair_crews,
        again=causes.again(),
        elastic=bool(ops.elastic),
        maintenance=stop and (stop.lasts, stop.every),
        slow=slow and Slow(slow.factor, slow.lasts, slow.every),
        age=None if ops.fleet_age is None else float(to_si(ops.fleet_age, "s")),
        shape=causes.age_shape(),
        persist=causes.persist_every() if saved.mode == "in_memory" else None,
    )


@dataclass(frozen=True)
class Simulated:
    """The runs of a plan, what they are runs of, and the closed form beside them."""

    runs: record.Runs
    setting: Setting
    closed: Goodput
    checkpoints: Mode | None
    """Other checkpoints, where advice is asked for."""
    covers: tuple[Covered, ...] = ()
    """What each run takes in its hours."""

    @classmethod
    def of(cls, setting: Setting, closed: Goodput, seeds: int, checkpoints: Mode | None) -> Simulated:
        return cls(play_all(setting, seeds), setting, closed, checkpoints)

    def by_hour(self, hours: Timed | None) -> Simulated:
        """The same, with what each run takes in its hours, where they are counted."""
        return (
            self
            if hours is None
            else replace(self, covers=tuple(map(partial(_covered, self.setting, hours), range(len(self.runs.runs)))))
        )

    def band(self, spread: float) -> Factors:
        """The interval of goodput, over it, where interruptions come so many times as often or as seldom: of runs in the middle, played; from 0 on where
        the one with more of them has no end."""
        own, slow, fast = (self._middle_with(factor) for factor in (1.0, spread, 1 / spread))
        low = slow.goodput / own.goodput if slow.ended and own.ended else 0.0
        return min(low, 1.0), max(fast.goodput / own.goodput, 1.0) if own.ended else 1.0

    def _middle_with(self, factor: float) -> record.Played:
        """The run in the middle where faults come so many times as often; nodes are taken back as the plan says."""
        if factor == 1.0 and self.setting.hours is None:
            return record.Runs(self.runs.runs[:SEEDS]).median
        often = [
            each if each.name == causes.PREEMPTED else each._replace(rate=each.rate * factor)
            for each in self.setting.causes
        ]
        # Of the time in which a run does not give way; hours would only be looked up.
        other = self.setting._replace(causes=tuple(often), hours=None)
        return play_all(other, min(len(self.runs.runs), SEEDS)).median

    @property
    def middle(self) -> record.Played:
        """The run that the answer is read off."""
        return self.runs.median

    @property
    def kept(self) -> Goodput:
        """What is left of the run in the middle, in the terms of the closed form: of the time in which it does not give way, what is not writing, work
        done again or restarts is waiting."""
        run, lost = self.middle, dict[str, float]()
        for (cause, kind), seconds in run.lost.items():
            if cause not in (record.PAUSE, record.CAPPED):
                lost[kind] = lost.get(kind, 0.0) + seconds / (run.seconds - run.gives_way)
        writes, again, restarts = (lost.pop(kind, 0.0) for kind in (record.WRITES, record.AGAIN, record.RESTARTS))
        found = replace(self.closed, writes=writes, rework=again, restarts=restarts, waiting=sum(lost.values()))
        return found if run.ended else replace(found, waiting=1 - writes - again - restarts)

    @property
    def days(self) -> float:
        return self.middle.seconds / DAY

    @property
    def of_full_rate(self) -> float:
        """Share of the time of the run in the middle in which it does not give way to hours."""
        return 1 - self.middle.gives_way / self.middle.seconds

    def tell(self, sheet: Sheet, watts: tuple[float, float] | None) -> None:
        """Percentiles of days, goodput, cost, energy and carbon, the parts of the run, and what was played. Costs go with the time, electricity and
        carbon with the energy, of which a share follows the power of the accelerators."""
        runs, middle, held = self.runs, self.middle, sheet.metrics
        count = sheet.facts["accelerators"]
        sheet.shown["run_parts"] = parts_of(middle)
        if self.checkpoints is not None:
            sheet.shown["played"] = _stretches(self)
        table: dict[str, record.Many] = {}
        endless = not math.isfinite(self.setting.lasts)
        if endless and middle.ended:
            table["run_time"] = percentiles([run.seconds / DAY if run.ended else math.inf for run in runs.runs])
        table["goodput"] = runs.goodput
        energy = to_si(held["energy"].value, "kWh") if "energy" in held else None

        def longer(run: record.Played) -> float:
            return run.seconds / middle.seconds if run.ended else math.inf

        def hungrier(run: record.Played, place: int, of: str) -> float:
            if self.covers:
                own, mine = (getattr(self.covers[k], of) for k in (place, runs.middle))
                return own / mine if mine else longer(run)
            if watts is None or not energy:
                return longer(run)
            drawn, own = (run_power(*watts, each.computing / each.seconds) for each in (middle, run))
            site = sum(part.value for part in sheet.shown["energy_parts"])
            pue = site / (
                site - sum(part.value for part in sheet.shown["energy_parts"] if part.label.startswith("Facility"))
            )
            share = pue * sheet.facts["power_factor"] * count * drawn / 1000 * self.days * 24 / energy
            return longer(run) * (1 - share + share * own / drawn)

        for name in ("tco", "rent", "energy", "carbon_footprint"):
            if name not in held or not middle.ended:
                continue
            value = to_si(held[name].value, kinds()[name].unit)
            electric = (
                to_si(held["electricity"].value, "USD") / value if name == "tco" and "electricity" in held else 0.0
            )
            electric = {"rent": 0.0, "tco": electric}.get(name, 1.0)
            # What has no end takes without end.
            grown = [
                electric * hungrier(run, place, _TAKEN.get(name, "")) + (1 - electric) * longer(run)
                if run.ended
                else math.inf
                for place, run in enumerate(runs.runs)
            ]
            table[name] = percentiles([value * each for each in grown])
        if (deadline := sheet.plan.ops.deadline) is not None and endless:
            kept = runs.within(to_si(deadline, "s"))
            sheet.facts |= {"runs_in_time": round(kept * len(runs.runs)), "runs_played": len(runs.runs)}
            sheet.add("deadline_kept", kept)
        sheet.shown["percentiles"] = {name: _listed(found) for name, found in table.items()}
        interrupted = sum(middle.interruptions.values())
        stops = f" and {many(middle.stops, 'planned stop')}" if middle.stops else ""
        setting = self.setting
        absent = [
            name for name, own in (("slow nodes", setting.slow), ("maintenance", setting.maintenance)) if own is None
        ]
        without = f"; no {' and no '.join(absent)}, as none is given" if absent else ""
        played = many(len(runs.runs), "run")
        words = (
            f"{played}, each with its own failures; figures are of the median run: "
            f"{many(interrupted, 'interruption')}{stops}; all nodes are in order at the start{without}"
        )
        sheet.assumed.say("simulated", played, INFERRED, words)

    def verdict(self, sheet: Sheet) -> Iterator[str]:
        """How far runs differ, what is lost, and what to change."""
        held = sheet.shown["percentiles"]
        if "run_time" in held:
            low, high = held["run_time"]["p10"], held["run_time"]["p90"]
            late = (
                "more than one in ten has no end"
                if high is None
                else f"nine in ten within {compact_time(high * DAY, 4)}"
            )
            yield f"Of {many(len(self.runs.runs), 'simulated run')}, one in ten ends within {compact_time(low * DAY, 4)} and {late}."
        elif math.isfinite(self.setting.lasts):
            low, high = (f"{held['goodput'][level]:.1%}" for level in ("p10", "p90"))
            runs = f"Of {many(len(self.runs.runs), 'simulated run')}"
            if low == high:
                yield f"{runs}, eight in ten have a goodput of {low}."
            else:
                yield f"{runs}, one in ten has a goodput below {low}, and one in ten above {high}."
        else:
            stuck = sum(not run.ended for run in self.runs.runs)
            yield f"Of {many(len(self.runs.runs), 'simulated run')}, {stuck:,} did not end within ten times the time of the work."
        yield lost_sentence(self.middle)
        if self.checkpoints is not None:
            costs = sheet.metrics
            cost = paid(sheet.plan, *(costs[name].value if name in costs else None for name in ("tco", "rent")))
            spent = None if cost is None else float(to_si(cost, "USD"))
            yield from Advised(self.setting, self.runs, sheet.plan, spent, self.checkpoints).sentences()

    @property
    def computing(self) -> float:
        """Share of the time that the run in the middle computes, of the time that no hours hold it."""
        run = self.middle
        return run.computing / (run.seconds - run.lost.get((record.PAUSE, record.STOPPED), 0.0))


def _covered(setting: Setting, hours: Timed, seed: int) -> Covered:
    """What the run of a seed takes, hour by hour."""
    spans: list[record.Span] = []
    computing = play(setting, seed, spans).computing
    working = sum(span.end - span.start for span in spans if span.state in _WORKING)
    # Stretches of training have their checkpoints in them, for which it stands.
    share = computing / working if working else 0.0
    return hours.days(seed).taken((s.start, s.end, share * (s.state in _WORKING)) for s in spans)


def parts_of(run: record.Played) -> tuple[Part, ...]:
    """All seconds of a run: useful work first, then what was lost, largest first."""
    lost = sorted(run.lost.items(), key=lambda item: -item[1])
    labels = [(f"{cause}: {kind}" if cause else kind, seconds) for (cause, kind), seconds in lost]
    return tuple(Part(label=label, value=seconds, wall=15) for label, seconds in [(record.USEFUL, run.work), *labels])


def _stretches(found: Simulated) -> dict[str, list[Any]]:
    """Days of all runs that ended, in order, and the stretches of the one in the middle: each from an hour on until the next."""
    spans: list[record.Span] = []
    play(found.setting, found.runs.middle, spans)
    days = sorted(round(run.seconds / DAY, 4) for run in found.runs.runs if run.ended)
    return {
        "days": days[:: -(-len(days) // _SHOWN) or 1],
        "hours": [round(span.start / 3600, 3) for span in spans] + [round(found.middle.seconds / 3600, 3)],
        "state": [span.state for span in spans],
        "nodes": [span.nodes for span in spans],
        "cause": [span.cause for span in spans],
    }


def _listed(found: record.Many) -> dict[str, Any]:
    """As JSON has it: what has no end is None."""
    values = {"mean": found.mean} | found.levels
    errors = found.errors.values()
    held: dict[str, Any] = {name: value if math.isfinite(value) else None for name, value in values.items()}
    return held | {"error": [error if math.isfinite(error) else None for error in errors]}


_SHOWN_SHARE = 1e-3
"""The least share of a run's time that a number is given for."""


def lost_sentence(run: record.Played) -> str:
    """What the run lost its time to, by cause, largest first: of the time in which it does not give way, which is no loss but its plan."""
    lost = sorted(
        ((cause, s) for cause, s in run.by(0).items() if cause not in (record.PAUSE, record.CAPPED)),
        key=lambda item: -item[1],
    )
    whole, own = sum(seconds for _, seconds in lost), run.seconds - run.gives_way
    named = [f"{compact_time(seconds)} to {cause}" for cause, seconds in lost if seconds >= _NAMED * whole]
    gives = f"It gives way to hours for {compact_time(run.gives_way)}. Of the rest it" if run.gives_way else "It"
    if not named:
        return f"{gives} loses nothing."
    of = "it" if run.gives_way else "its time"
    share = f"{whole / own:.1%}" if whole >= _SHOWN_SHARE * own else f"less than {_SHOWN_SHARE:.1%}"
    return f"{gives} loses {compact_time(whole)}, {share} of {of}: {', '.join(named)}."


def facts_of(run: record.Played) -> dict[str, Any]:
    """What the equation of a simulated goodput shows."""
    return {
        "useful_days": quantity(run.work / DAY, "day"),
        "days_without_giving_way": quantity((run.seconds - run.gives_way) / DAY, "day"),
    }
