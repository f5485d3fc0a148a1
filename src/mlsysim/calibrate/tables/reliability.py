"""Rows of ``reliability.csv``: interruptions, times between failures, effective training time and checkpoints of published runs.

Asked of :mod:`mlsysim.cases.failures`, as plans do. Rows of runs that a rate of ``data/failures.toml`` was taken from are scored under a name of
their own (``... (rate taken from it)``), apart from those held out. Bounds, ranges and counts by cause are no tests. Inferred: a chip that
is not named is an H100, and a state that is not named that of 175 billion parameters.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from mlsysim.calibrate.questions import Excluded, Prediction, Skipped
from mlsysim.cases.checkpoint import checkpoint_size, run_checkpoint, saved_bytes, write_time
from mlsysim.cases.failures import Said, counted_runs, interruption_rate, kept_of
from mlsysim.cases.goodput import Goodput, expected_failures
from mlsysim.hardware.registry import Hardware
from mlsysim.hardware.types import HardwareNode
from mlsysim.models.registry import Models
from mlsysim.systems.registry import Fabrics, Nodes
from mlsysim.systems.types import Fleet
from mlsysim.units.registry import Q_, to_si

COLUMNS = ("id", "source", "system", "gpu", "n_gpus", "duration_days", "metric", "value")
_COUNTS = ("unexpected_interruptions", "hardware_failures", "failures", "restarts", "interruptions")
_USEFUL = ("effective_training_time", "ettr", "goodput")
_BETWEEN = ("mtbf", "mttf", "job_mtbf", "job_mttf", "mtti")
_STATE = "GPT3_175B"
_PER_NODE = 8


def read(row: Mapping[str, str]) -> list[Prediction]:
    """What the model of failures says for a row."""
    metric, unit = row["metric"], row.get("unit", "")
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
    if metric == "failure_rate" and "node-day" in unit:
        found = 1000 * _PER_NODE * 24 / interruption_rate(chip).hours
    elif metric in _COUNTS and row["duration_days"]:
        found = expected_failures(float(row["duration_days"]) * 24, _kept(row, chip).mtbf)
    elif metric in _BETWEEN:
        found = to_si(Q_(_kept(row, chip).mtbf, "h"), unit or "h")
    elif metric in (*_USEFUL, "downtime") and unit.startswith("%"):
        useful, inferred = float(_kept(row, chip).ratio), (*inferred, "model")
        found = 100 * (1 - useful if metric == "downtime" else useful)
    else:
        raise Skipped(f"no prediction of {metric!r}")
    taken = row["source"] in counted_runs()
    name = f"{metric} (rate taken from it)" if taken else metric
    return [Prediction(name, value, float(found), "failures", True, inferred)]


def _kept(row: Mapping[str, str], chip: HardwareNode) -> Goodput:
    if not row["n_gpus"]:
        raise Skipped("the row gives no number of accelerators")
    count = int(row["n_gpus"])
    node = next(node for node in Nodes if node.accelerators_per_node == _PER_NODE)
    fleet = Fleet(name="run", node=node, count=max(1, count // _PER_NODE), fabric=Fabrics.get("InfiniBand_NDR"))
    return kept_of(chip, count, run_checkpoint(Models.get(_STATE), fleet, count, "bf16", "adam"), Said())


def _save_minutes(row: Mapping[str, str]) -> Any:
    """Minutes of a checkpoint of so many parameters at so many bits a second, as the row's words say."""
    size = re.search(r"(\d+)\s*B\b", row["system"])
    rate = re.search(r"(\d+)\s*Gb/s", row["system"])
    if size is None or rate is None:
        raise Skipped("the row gives no size of the model or no rate")
    state = checkpoint_size(float(size[1]) * 1e9, *saved_bytes("bf16", "adam", Models.get(_STATE)))
    return write_time(state, float(rate[1]) * 1e9 / 8) / 60
