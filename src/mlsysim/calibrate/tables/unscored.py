"""A table that is known but holds no measurement to be scored: published costs are accelerator-hours times an assumed price."""

from __future__ import annotations

from collections.abc import Mapping

from mlsysim.calibrate.questions import Excluded, Prediction, Skipped

COST = ("id", "source", "item", "hardware", "quantity", "metric", "value", "date")


def read_cost(row: Mapping[str, str]) -> list[Prediction]:
    """No prediction: the rows multiply given hours by an assumed price."""
    if "hours" in row["quantity"].lower():
        raise Excluded("accelerator-hours times an assumed price: arithmetic, not a measurement")
    raise Skipped(f"no prediction of {row['metric']!r}")
