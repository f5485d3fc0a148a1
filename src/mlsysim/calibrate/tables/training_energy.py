"""Rows of ``training_energy.csv``: mean power of nodes in training runs, at the side of the meter that the row names.

A row gives model, accelerators and watts of a node; what was run are the settings of the benchmark's other submitters at that size
(``data/rows.toml``), which is inferred. A plan is asked for the power of a node on the mains; behind the supplies (DC) it is less by their losses. The
power of a run is that of its steps: short runs, whose timed region holds start, evaluation and waiting, draw less, and are scored all the same.
Energy that was computed from accelerator-hours and TDP is no measurement, and energy of many runs together no run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mlsysim.calibrate.cells import cell, chip_of, key_of
from mlsysim.calibrate.measurements import settings
from mlsysim.calibrate.questions import Excluded, Question, Skipped, calibrated_plan
from mlsysim.hardware.types import HardwareNode
from mlsysim.models.registry import Models
from mlsysim.timing.power import power_constants

COLUMNS = ("id", "source", "run", "model", "gpu", "n_gpus", "n_nodes", "mean_node_w", "includes", "measured")
ENERGY = "energy of training"
_RUNS: dict[str, Any] = settings("rows")["training_energy"]
_PARALLEL = ("tp", "pp", "cp", "virtual_stages", "micro_batch", "micro_batches", "zero")


def _known(chip: HardwareNode) -> bool:
    return chip.metadata.key in power_constants()["provenance"]["measured"]


def read(row: Mapping[str, str]) -> list[Question]:
    """What to ask for a row."""
    if not cell(row, "measured").startswith("yes"):
        raise Excluded("computed from accelerator-hours and TDP: no measurement")
    if not cell(row, "mean_node_w") or not cell(row, "n_nodes"):
        raise Excluded("the row is of many runs together, and gives no power of a node")
    known = _RUNS.get(row["model"], {}).get(row["n_gpus"])
    if known is None:
        raise Skipped(f"the settings of {row['model']} on {row['n_gpus']} accelerators are not known")
    model, chip, nodes = Models.get(row["model"]), chip_of(row["gpu"]), int(row["n_nodes"])
    split = {name: known[name] for name in _PARALLEL if name in known}
    work = {name: value for name, value in known.items() if name not in (*_PARALLEL, "stack")}
    run = {"stack": known.get("stack"), "parallelism": split, "hardware": {"cooling": "liquid"}}
    plan = calibrated_plan("training", key_of(model), f"{row['n_gpus']}x{key_of(chip)}", **run, **work)
    # Both tables are of one immersed cluster. Supplies lose a share of what the mains give.
    factor = 1 / power_constants()["node"]["liquid"]["factor"] if "mean W is DC" in row["includes"] else 1.0
    asked, each = ("power", 1 / nodes) if "network" in row["includes"] else ("node_power", 1.0)
    inferred = ("settings of other submitters", "liquid cooling")
    told = (asked, "W", factor * each, ENERGY, _known(chip), inferred)
    return [Question("mean_node_w", float(row["mean_node_w"]), plan, *told)]
