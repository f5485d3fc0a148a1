"""The run that a training step makes up: checkpoints and failures, and how long it takes.

    days = tokens / (tokens/s x goodput) / 86,400            goodput: what failures and checkpoints leave (wall 15)

The checkpoint is the state of the model over what writers and file system take (wall 19), unless the plan gives its time.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from mlsysim.cases.assumptions import DEFAULT
from mlsysim.cases.checkpoint import Checkpoint, run_checkpoint
from mlsysim.cases.goodput import Goodput
from mlsysim.cases.run import run_time, run_work
from mlsysim.cases.run_inputs import checkpoint_seconds, run_days
from mlsysim.models.base import Workload
from mlsysim.plans.sheet import Sheet, compact_time
from mlsysim.systems.types import Fleet
from mlsysim.units.registry import quantity, to_si
from mlsysim.walls.fleet.fragility import ReliabilityModel, ReliabilityResult
from mlsysim.walls.operations.checkpoint import CheckpointModel

_DAY = 86400.0


class TrainingRun(NamedTuple):
    """Days of a run, what it trains on, and the share of the time that is useful."""

    days: float
    tokens: float
    reliability: ReliabilityResult

    @property
    def goodput(self) -> float:
        return float(self.reliability.goodput_ratio)

    @property
    def kept(self) -> Goodput:
        """Shares of the time that failures and checkpoints take."""
        found = self.reliability
        return Goodput(
            to_si(found.fleet_mtbf, "h"),
            to_si(found.optimal_checkpoint_interval, "s"),
            to_si(found.checkpoint_interval, "s"),
            found.checkpoint_overhead_fraction,
            found.rework_overhead_fraction,
            found.restart_overhead_fraction,
        )


def training_run(sheet: Sheet, model: Workload, fleet: Fleet, options: dict[str, Any], rate: float) -> TrainingRun:
    """The run of a plan whose steps do ``rate`` tokens (or samples) a second; metrics of walls 15 and 19."""
    plan = sheet.plan
    rank = options.get("lora_rank") if options.get("is_lora") else None
    saved = run_checkpoint(
        model, fleet, fleet.total_accelerators, options["precision"], options.get("optimizer", _OPTIMIZER), rank
    )
    write = checkpoint_seconds(plan.ops.checkpoint_time, saved, sheet.assumed)

    def failing(days: float) -> ReliabilityResult:
        return ReliabilityModel().solve(fleet=fleet, job_duration_hours=days * 24.0, checkpoint_time_s=write)

    days, tokens = plan.ops.days, plan.workload.tokens
    goodput = failing(1.0).goodput_ratio
    if tokens is not None:
        days = run_time(tokens, rate, goodput, 1.0) / _DAY if goodput > 0 else None
    if days is None:
        days = run_days()
        sheet.assumed.say("duration", days, DEFAULT, f"{days:g} days")
    result = sheet.keep(failing(days))
    if plan.ops.checkpoint_time is None:
        sheet.keep(_written(model, fleet, saved, result))
    if tokens is not None:
        sheet.add("run_time", days)
    sheet.add("mtbf", result.fleet_mtbf.to("h"))
    sheet.add("expected_failures", float(result.expected_failures))
    sheet.add("goodput", float(result.goodput_ratio))
    sheet.add("checkpoint_time", write)
    interval = to_si(result.optimal_checkpoint_interval, "s")
    sheet.add("checkpoint_interval", interval)
    lost = result.total_overhead_fraction
    sheet.score(15, f"goodput {result.goodput_ratio:.1%}", lost, fails=result.goodput_ratio <= 0)
    overhead = result.checkpoint_overhead_fraction
    sheet.score(19, f"every {compact_time(interval)}", overhead, note=f"{overhead:.1%} of the time")
    return TrainingRun(days, tokens or run_work(days * _DAY, rate, result.goodput_ratio, 1.0), result)


_OPTIMIZER = CheckpointModel.inputs["optimizer"].default


def _written(model: Workload, fleet: Fleet, saved: Checkpoint, result: ReliabilityResult) -> Any:
    """The checkpoint as wall 19 has it, with its equations."""
    return CheckpointModel().solve(
        model,
        fleet.node.accelerator,
        checkpoint_interval_hours=result.checkpoint_interval,
        n_writers=fleet.total_accelerators,
        writer_bandwidth=quantity(saved.writer, "byte/s"),
        bytes_per_parameter=saved.size / model.parameter_count,
    )
