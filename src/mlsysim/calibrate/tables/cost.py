"""Reported costs of training runs.

Published costs of this kind are accelerator-hours times an assumed price: an identity, not a measurement, and not scored.
"""

from __future__ import annotations

from collections.abc import Mapping

from mlsysim.calibrate.questions import Excluded, Prediction, Skipped

COLUMNS = ("id", "source", "item", "hardware", "quantity", "metric", "value", "date")


def read(row: Mapping[str, str]) -> list[Prediction]:
    """No prediction: the rows multiply given hours by an assumed price."""
    if "hours" in row["quantity"].lower():
        raise Excluded("accelerator-hours times an assumed price: arithmetic, not a measurement")
    raise Skipped(f"no prediction of {row['metric']!r}")
