"""The run that the steps of a training plan make up: how long it takes, what failures leave of it, and what accelerators draw meanwhile.

    days = tokens / (tokens/s x goodput) / 86,400            goodput: what failures and checkpoints leave (wall 15)
    p = s p_step + (1 - s) p_wait                            s: useful work and work done again; while the run stands, accelerators wait

A checkpoint is the state of the model over what writers and file system take (wall 19), unless the plan gives its time; how often something
fails and how long a restart takes say :mod:`mlsysim.cases.failures`. Simulated (:mod:`mlsysim.plans.training_run`), the shares are those of
the run in the middle; by the hour (:mod:`mlsysim.plans.hours`), those of the hours that the run covers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from mlsysim.cases import failures
from mlsysim.cases.assumptions import DEFAULT
from mlsysim.cases.checkpoint import Checkpoint, run_checkpoint
from mlsysim.cases.goodput import Goodput, expected_failures
from mlsysim.cases.hours import Covered
from mlsysim.cases.run import run_power, run_time, run_work
from mlsysim.cases.run_inputs import run_days
from mlsysim.models.adapters import ATTENTION
from mlsysim.models.base import Workload
from mlsysim.plans.hours import Timed
from mlsysim.plans.plan import Plan
from mlsysim.plans.sheet import Sheet
from mlsysim.plans.spending import times
from mlsysim.systems.types import Fleet
from mlsysim.units.registry import quantity, to_si
from mlsysim.units.text import compact_time, many
from mlsysim.walls.operations.checkpoint import CheckpointModel
from mlsysim.zoo.constants import constant
from mlsysim.zoo.intervals import Factors, independent

if TYPE_CHECKING:
    from mlsysim.plans.training_run import Simulated

_SECONDS_PER_DAY = 86400.0


class Ran(NamedTuple):
    """Days of a run, what it trains on, what failures and checkpoints leave of it, the share of the time that it computes (where it gives way
    to hours: of the time that it is not held), its hours and what it covers of them, how it was played, and the interval of the time that it
    takes, over it."""

    days: float
    tokens: float
    kept: Goodput
    computing: float
    hours: Timed | None
    covered: Covered
    played: Simulated | None
    longer: Factors | None

    def power(self, sheet: Sheet, computing: float, waiting: float) -> float:
        """Mean watts of an accelerator over the run, of one that computes and of one that waits; what its equation shows."""
        full, drawn = self.computing, run_power(computing, waiting, self.computing)
        if self.hours is not None and self.hours.watts is not None:
            full, drawn = self.covered.full / self.covered.hours, self.hours.mean_watts(self.covered)
            if self.covered.less > 0:
                less = quantity(self.hours.watts[1], "W")
                sheet.facts |= {"share_at_less_power": self.covered.less / self.covered.hours, "less_power": less}
        sheet.facts |= {"share_computing": full, "waiting_power": quantity(waiting, "W")}
        return drawn


def run_of(
    sheet: Sheet,
    model: Workload,
    fleet: Fleet,
    options: dict[str, Any],
    rate: float,
    slower: tuple[float, float] | None,
    by_hour: Timed | None,
    seeds: int,
    quick: bool,
) -> Ran:
    """The run of a plan whose steps do ``rate`` tokens (or samples) a second; metrics of walls 15 and 19. ``slower`` is the interval of a step's time, over it; so many ``seeds`` are
    played, where it is ``quick`` without advice."""
    ops, tokens, count = sheet.plan.ops, sheet.plan.workload.tokens, fleet.total_accelerators
    if ops.beside and (fleet.storage_bandwidth or ops.checkpoint_mode != "object_store"):
        stored = fleet.storage_bandwidth or constant("filesystem_bandwidth").quantity
        fleet = fleet.model_copy(update={"storage_bandwidth": stored * (count / (count + ops.beside))})

    def saved_by(mode: str | None) -> Checkpoint:
        writers = count // sheet.shown["layout"]["dp"] if mode == "synchronous" else count
        optimizer = options.get("optimizer", CheckpointModel.inputs["optimizer"].default)
        rank = options.get("lora_rank") if options.get("is_lora") else None
        targets = options.get("lora_targets", ATTENTION)
        return run_checkpoint(model, fleet, writers, options["precision"], optimizer, rank, mode, targets)

    saved, chip, said = saved_by(ops.checkpoint_mode), fleet.node.accelerator, said_of(sheet.plan, fleet)
    lasts = (ops.days or run_days()) * _SECONDS_PER_DAY
    length = failures.Length(lasts=lasts) if tokens is None else failures.Length(tokens / rate)
    kept = failures.kept_of(chip, count, saved, said, sheet.ledger.seconds, length)
    sheet.sources |= failures.note(chip, count, saved, said, kept, sheet.assumed)
    usual = failures.interruption_rate(chip).hours / count
    if ops.mtbf is not None and said.mtbf and said.mtbf > usual * failures.spread_of_rates() ** 2:
        told = compact_time(said.mtbf * 3600), compact_time(usual * 3600)
        words = f"at published rates {many(count, 'accelerator')} {'have' if count > 1 else 'has'} one every {told[1]}"
        sheet.note(f"A failure every {told[0]} is taken for one of the whole fleet; {words}.")
    risk = failures.goodput_band(chip, count, saved, said, kept, length) if slower else None
    produced = failures.production_band(count) if slower else None
    played = None
    if seeds:
        played = _played(sheet, fleet, kept, saved, length, by_hour, seeds, None if quick else saved_by)
        kept, risk = played.kept, risk and played.band(failures.spread_of_rates())
    ends = risk and (1.0 / risk[1], 1.0 / risk[0] if risk[0] else math.inf)
    longer, computing = independent(slower, ends, produced), float(kept.computing)
    computing = computing if played is None else played.computing
    days, working, covered = _lasting(sheet, kept, rate, by_hour, played, computing)
    if produced:
        words = f"steps run as fast as in a benchmark; the slow end of the interval allows for what weeks of production lose beyond failures: {failures.production_words()}"
        sheet.assumed.say("run", "as a benchmark", DEFAULT, words)
    made = tokens or run_work(working * _SECONDS_PER_DAY, rate, float(kept.ratio), 1.0)
    ran = Ran(days, made, kept, computing, by_hour, covered, played, longer)
    _told(sheet, ran, saved, said, risk, failures.rate_band(chip, said), count)
    return ran


def _played(
    sheet: Sheet,
    fleet: Fleet,
    kept: Goodput,
    saved: Checkpoint,
    length: failures.Length,
    by_hour: Timed | None,
    seeds: int,
    saved_by: Callable[[str], Checkpoint] | None,
) -> Simulated:
    """The run over time, ``seeds`` times; with advice on checkpoints where they are ``saved_by`` other modes too."""
    from mlsysim.plans import training_run as over_time

    plan, chip, count = sheet.plan, fleet.node.accelerator, fleet.total_accelerators
    kept = over_time.with_preemption(plan, fleet, kept)
    setting = over_time.setting_of(plan, fleet, kept, saved, sheet.shown["layout"]["dp"], *length)
    if by_hour is not None and by_hour.yields:
        setting = setting._replace(hours=by_hour.allowed)

    def checkpoints(mode: str) -> tuple[Goodput, Checkpoint]:
        assert saved_by is not None
        other = saved_by(mode)
        alone = said_of(plan, fleet)._replace(interval=None, spares=None, repair=None)
        best = failures.kept_of(chip, count, other, alone, sheet.ledger.seconds)
        return over_time.with_preemption(plan, fleet, best), other

    played = over_time.Simulated.of(setting, kept, seeds, saved_by and checkpoints).by_hour(by_hour)
    sheet.facts |= over_time.facts_of(played.middle)
    if plan.ops.preempted_every is not None:
        sheet.facts["interrupted_every"] = quantity(over_time.interrupted(plan, fleet, kept), "h")
    return played


def _lasting(
    sheet: Sheet, kept: Goodput, rate: float, by_hour: Timed | None, played: Simulated | None, computing: float
) -> tuple[float, float, Covered]:
    """Days of a run, those of them that it would take at its full rate, and the hours that it covers."""
    ops, tokens = sheet.plan.ops, sheet.plan.workload.tokens
    days = ops.days
    if tokens is not None:
        days = run_time(tokens, rate, float(kept.ratio), 1.0) / _SECONDS_PER_DAY if kept.lasting else None
    if days is None:
        days = run_days()
        sheet.assumed.say("duration", days, DEFAULT, f"{days:g} days")
    elif tokens is None and ops.duration is None and ops.duration_days is None:
        sheet.assumed.say("duration", days, DEFAULT, f"{days:g} days, until the deadline, as no tokens are given")
    ends = tokens is not None and kept.lasting
    if played is not None and played.covers:
        share = played.of_full_rate
        days = days / share if ends else days
        sheet.facts |= {"share_of_full_rate": share} if share < 1 else {}
        return days, days * share, played.covers[played.runs.middle]
    if by_hour is None:
        return days, days, Covered()
    covered = by_hour.covering(days * 24.0, ends, computing)
    if not by_hour.yields:
        return days, days, covered
    days, working = covered.hours / 24.0, covered.work / computing / 24.0
    sheet.facts["share_of_full_rate"] = working / days
    return days, working, covered


def _told(
    sheet: Sheet,
    ran: Ran,
    saved: Checkpoint,
    said: failures.Said,
    risk: Factors | None,
    rates: Factors | None,
    count: int,
) -> None:
    """Metrics of walls 15 and 19, and what their equations show."""
    ops, kept, saving, goodput = sheet.plan.ops, ran.kept, ran.kept.saving, float(ran.kept.ratio)
    sheet.facts |= {
        "interruptions_of_each": None if said.mtbf else quantity(kept.mtbf * count, "h"),
        "mtbf_given": None if said.mtbf is None else quantity(said.mtbf, "h"),
        "restart_given": ops.restart_time,
        **failures.facts(saved),
        "checkpoint_lag": quantity(saving.lag, "s"),
        "share_with_all_nodes": 1.0 - kept.waiting,
        "checkpoint_bytes": quantity(saved.size, "byte") if ops.checkpoint_time is None else None,
        "bytes_a_second": quantity(saved.size / saved.stall, "byte/s"),
        "checkpoint_interval_given": ops.checkpoint_interval,
    }
    if sheet.plan.workload.tokens is not None:
        # A run that never ends has no time.
        own = ran.days if kept.lasting else None
        sheet.add("run_time", own, own and times(own, ran.longer))
        if ops.duration is not None or ops.duration_days is not None:
            sheet.assumed.idle("duration_days", "a run lasts as long as its tokens take; a limit is a deadline")
    expected = float(expected_failures(ran.days * 24.0, kept.mtbf))
    sheet.add("mtbf", kept.mtbf, rates and times(kept.mtbf, rates))
    sheet.add("expected_failures", expected, rates and times(expected, rates))
    sheet.add("goodput", goodput, risk and (goodput * risk[0], min(1.0, goodput * risk[1])))
    sheet.add("checkpoint_time", saving.write)
    sheet.add("checkpoint_lag", saving.lag or None)
    sheet.add("checkpoint_interval", kept.interval)
    sheet.add("restart_time", saving.recovery)
    sheet.score(15, f"goodput {goodput:.1%}", kept.waste, fails=not kept.lasting)
    sheet.score(19, f"every {compact_time(kept.interval)}", kept.writes, note=f"{kept.writes:.1%} of the time")


def said_of(plan: Plan, fleet: Fleet) -> failures.Said:
    """What a plan, or else its fleet, says of failures."""
    ops = plan.ops

    def plain(name: str, unit: str) -> float | None:
        value = getattr(ops, name)
        return None if value is None else float(to_si(value, unit))

    return failures.Said(
        mtbf=fleet.mtbf_hours if ops.mtbf is None else plain("mtbf", "h"),
        write=plain("checkpoint_time", "s"),
        restart=plain("restart_time", "s"),
        interval=plain("checkpoint_interval", "s"),
        spares=ops.spares,
        repair=plain("repair_time", "h"),
    )
