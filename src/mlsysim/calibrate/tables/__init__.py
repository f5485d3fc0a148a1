"""The tables that can be read, known by their columns.

``read`` gives for a row what to ask (:class:`~mlsysim.calibrate.questions.Question`) or, for kernels, collectives and power, what the
functions of ``timing`` say (:class:`~mlsysim.calibrate.questions.Prediction`).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType

from mlsysim.calibrate.questions import Excluded, Prediction, Skipped, Table
from mlsysim.calibrate.tables import (
    collectives,
    energy,
    inference,
    operators,
    reliability,
    rl,
    runs,
    serving_logs,
    serving_open,
    serving_runs,
    silicon,
    training,
    vision,
)

_COST = ("id", "source", "item", "hardware", "quantity", "metric", "value", "date")


def _read_cost(row: Mapping[str, str]) -> list[Prediction]:
    """No measurement to be scored: published costs are accelerator-hours times an assumed price."""
    if "hours" in row["quantity"].lower():
        raise Excluded("accelerator-hours times an assumed price: arithmetic, not a measurement")
    raise Skipped(f"no prediction of {row['metric']!r}")


def _of(*modules: ModuleType) -> list[Table]:
    return [Table(module.__name__.rpartition(".")[2], module.COLUMNS, module.read) for module in modules]


_EVERY = (
    *_of(serving_runs, serving_open, training, inference, vision, operators, collectives, energy),
    Table("training_energy", energy.TRAINING, energy.read_training),
    *_of(reliability, rl),
    Table("serving_logs", serving_logs.SERVER, serving_logs.read_server),
    Table("bare_logs", serving_logs.BARE, serving_logs.read_bare),
    Table("cost", _COST, _read_cost),
    *_of(silicon),
)
TABLES = {table.name: table for table in _EVERY}
"""In the order in which a header is tried."""
RUNS = Table("runs", (), runs.read)
"""What a header is that no other table has: a table as people keep them, if it names what a run needs."""
