"""Tables that are known but hold no measurement to be scored: costs, and interruptions of published runs.

Published costs are accelerator-hours times an assumed price: an identity, not a measurement. The failure rate of an accelerator in
``data/constants.toml`` was taken from the published interruptions of Llama 3, so they are no test of it.
"""

from __future__ import annotations

from collections.abc import Mapping

from mlsysim.calibrate.questions import Excluded, Prediction, Skipped

COST = ("id", "source", "item", "hardware", "quantity", "metric", "value", "date")
RELIABILITY = ("id", "source", "system", "gpu", "n_gpus", "duration_days", "metric", "value")
_RATE_TAKEN_FROM = ("llama3-herd-table5",)


def read_cost(row: Mapping[str, str]) -> list[Prediction]:
    """No prediction: the rows multiply given hours by an assumed price."""
    if "hours" in row["quantity"].lower():
        raise Excluded("accelerator-hours times an assumed price: arithmetic, not a measurement")
    raise Skipped(f"no prediction of {row['metric']!r}")


def read_reliability(row: Mapping[str, str]) -> list[Prediction]:
    """No prediction: rows are bounds, ranges, causes, or the run that the failure rate was taken from."""
    try:
        float(row["value"])
    except ValueError:
        raise Excluded("a range, not a measured value") from None
    if "bound" in row.get("unit", ""):
        raise Excluded("a bound, not a measured value")
    if row["metric"].startswith("interruptions:"):
        raise Skipped("failures are not predicted by cause")
    if row["source"] in _RATE_TAKEN_FROM:
        raise Excluded("the failure rate of an accelerator was taken from this run")
    raise Skipped(f"no prediction of {row['metric']!r}")
