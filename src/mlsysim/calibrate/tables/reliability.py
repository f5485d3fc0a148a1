"""Rows of ``reliability.csv``: interruptions, times between failures, effective training time and checkpoints of published runs.

A row is a training plan on so many accelerators, whose answer says how often it fails and what that leaves of the time. Rows of runs that a rate of ``data/failures.toml`` was taken from are scored under a name of
their own (``... (rate taken from it)``), apart from those held out. Bounds, ranges and counts by cause are no tests. Inferred: a chip that
is not named is an H100, and a state that is not named that of 175 billion parameters.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from mlsysim.calibrate.cells import key_of
from mlsysim.calibrate.questions import Excluded, Prediction, Question, Skipped, answer_to, calibrated_plan, whole_nodes
from mlsysim.cases.checkpoint import checkpoint_size, saved_bytes, write_time
from mlsysim.cases.failures import counted_runs, interruption_rate
from mlsysim.hardware.registry import Hardware
from mlsysim.hardware.types import HardwareNode
from mlsysim.models.registry import Models
from mlsysim.plans.answer import Answer
from mlsysim.plans.plan import Plan
from mlsysim.units.registry import to_si

COLUMNS = ("id", "source", "system", "gpu", "n_gpus", "duration_days", "metric", "value")
_COUNTS = ("unexpected_interruptions", "hardware_failures", "failures", "restarts", "interruptions")
_USEFUL = ("effective_training_time", "ettr", "goodput", "job_uptime", "uptime")
_BETWEEN = (
    "mean_time_between_failures",
    "mean_time_to_failure",
    "mtbf",
    "mttf",
    "mtti",
    "jmtti",
    "jmttf",
    "job_mtbf",
    "job_mttf",
    "job_mtti",
)
_STATE = "GPT3_175B"
_PER_NODE = 8
_DAYS = 30.0


def read(row: Mapping[str, str]) -> list[Question | Prediction]:
    """What to ask for a row; a rate of a generation, a share that is lost and the time of one write are read beside plans."""
    bare = re.sub(r"\(.*?\)", "", row["metric"]).strip().lower()
    metric, unit = re.sub(r"[\s-]+", "_", bare), row.get("unit", "")
    try:
        value = float(row["value"])
    except ValueError:
        raise Excluded("a range, not a measured value") from None
    if any(word in unit for word in ("bound", "more than", "over)")):
        raise Excluded("a bound, not a measured value")
    if metric.startswith("interruptions:") or metric in ("interruptions_total", "interruptions_planned"):
        raise Excluded("counts by cause, or with planned stops, of the run that a rate was taken from")
    if metric == "checkpoint_save_time":
        return [Prediction(metric, value, _save_minutes(row), "failures", True)]
    if "before" in unit:
        raise Skipped("faults were found by hand, which takes as long as it takes")
    inferred = () if row["gpu"] else ("chip",)
    chip = Hardware.get(row["gpu"] or "H100")
    taken = row["source"] in counted_runs()
    name = f"{metric} (rate taken from it)" if taken else metric
    if metric == "failure_rate" and "node-day" in unit:
        found = 1000 * _PER_NODE * 24 / interruption_rate(chip).hours
        return [Prediction(name, value, found, "failures", True, inferred)]
    if metric in _COUNTS and row["duration_days"]:
        return [Question(name, value, _plan(row, chip), "expected_failures", "", 1.0, "failures", True, inferred)]
    if metric in _BETWEEN:
        return [Question(name, value, _plan(row, chip), "mtbf", unit or "h", 1.0, "failures", True, inferred)]
    inferred = (*inferred, "model")
    if metric in _USEFUL and unit.startswith("%"):
        return [Question(name, value, _plan(row, chip), "goodput", "", 100.0, "failures", True, inferred)]
    if metric == "downtime" and unit.startswith("%"):
        return [Prediction(name, value, 100 * _downtime(answer_to(_plan(row, chip))), "failures", True, inferred)]
    raise Skipped(f"no prediction of {metric!r}")


def _plan(row: Mapping[str, str], chip: HardwareNode) -> Plan:
    """A run on so many accelerators for the days of the row. How fast its steps are does not matter."""
    if not row["n_gpus"]:
        raise Skipped("the row gives no number of accelerators")
    on = whole_nodes(int(row["n_gpus"]), key_of(chip))
    plan = calibrated_plan("training", _STATE, on, hardware={"efficiency": 0.4}, precision="bf16")
    return plan.replacing(ops={"days": float(row["duration_days"] or _DAYS)})


def _downtime(answer: Answer) -> float:
    """Share of the time that errors cost: what is neither useful nor the writing of checkpoints, of which each interval that is kept has one."""
    useful, write, every = (answer.value(name) for name in ("goodput", "checkpoint_time", "checkpoint_interval"))
    return float(1 - useful * (1 + to_si(write, "s") / to_si(every, "s")))


def _save_minutes(row: Mapping[str, str]) -> Any:
    """Minutes of a checkpoint of so many parameters at so many bits a second, as the row's words say."""
    size = re.search(r"(\d+)\s*B\b", row["system"])
    rate = re.search(r"(\d+)\s*Gb/s", row["system"])
    if size is None or rate is None:
        raise Skipped("the row gives no size of the model or no rate")
    state = checkpoint_size(float(size[1]) * 1e9, *saved_bytes("bf16", "adam", Models.get(_STATE)))
    return write_time(state, float(rate[1]) * 1e9 / 8) / 60
