"""The tables that can be read, known by their columns.

``read`` gives for a row what to ask (:class:`~mlsysim.calibrate.questions.Question`) or, for kernels, collectives and power, what the
functions of ``timing`` say (:class:`~mlsysim.calibrate.questions.Prediction`).
"""

from __future__ import annotations

from mlsysim.calibrate.questions import Table
from mlsysim.calibrate.tables import (
    collectives,
    energy,
    inference,
    operators,
    reliability,
    rl,
    serving_logs,
    serving_open,
    serving_runs,
    silicon,
    training,
    training_energy,
    unscored,
    vision,
)

_SCORED = (
    *(serving_runs, serving_open, training, inference, vision, operators, collectives, energy, training_energy),
    *(reliability, rl),
)
TABLES = {
    table.name: table
    for table in (
        *(Table(module.__name__.rpartition(".")[2], module.COLUMNS, module.read) for module in _SCORED),
        Table("serving_logs", serving_logs.SERVER, serving_logs.read_server),
        Table("bare_logs", serving_logs.BARE, serving_logs.read_bare),
        Table("cost", unscored.COST, unscored.read_cost),
        Table("silicon", silicon.COLUMNS, silicon.read),
    )
}
"""In the order in which a header is tried."""
