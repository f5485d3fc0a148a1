"""Interruptions and checkpoints of published runs.

The failure rate of an accelerator in ``data/constants.toml`` was taken from the published interruptions of Llama 3, so they
are no test of it and are not scored.
"""

from __future__ import annotations

from collections.abc import Mapping

from mlsysim.calibrate.questions import Excluded, Prediction, Skipped

COLUMNS = ("id", "source", "system", "gpu", "n_gpus", "duration_days", "metric", "value")

_RATE_TAKEN_FROM = ("llama3-herd-table5",)


def read(row: Mapping[str, str]) -> list[Prediction]:
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
