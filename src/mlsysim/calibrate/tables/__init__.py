"""The tables that can be read: one line for each, known by its columns.

``read`` gives for a row what to ask (:class:`~mlsysim.calibrate.questions.Question`) or, for kernels, collectives and power, what the
functions of ``timing`` say (:class:`~mlsysim.calibrate.questions.Prediction`).
"""

from __future__ import annotations

from mlsysim.calibrate.questions import Table
from mlsysim.calibrate.tables import (
    collectives,
    cost,
    energy,
    inference,
    operators,
    reliability,
    serving_runs,
    silicon,
    training,
    vision,
)

TABLES = {
    name: Table(name, module.COLUMNS, module.read)
    for name, module in {
        "serving_runs": serving_runs,
        "training": training,
        "inference": inference,
        "vision": vision,
        "operators": operators,
        "collectives": collectives,
        "energy": energy,
        "reliability": reliability,
        "cost": cost,
        "silicon": silicon,
    }.items()
}
"""In the order in which a header is tried."""
