"""An answer as a table of comma-separated values, for spreadsheets."""

from __future__ import annotations

import csv
import io
from typing import Any

from mlsysim.labs.explorer import Document, evaluate
from mlsysim.labs.rpc import offer

_HEAD = ("metric", "label", "value", "unit", "low", "high", "wall")


@offer
def numbers_csv(plan: Document) -> str:
    """Every metric with its unit, its 90 % interval and its wall, as the JSON answer has them."""
    out = io.StringIO()
    table = csv.writer(out, lineterminator="\n")
    table.writerow(_HEAD)
    for path, metric in evaluate(plan)["metrics"].items():
        (value, unit), (low, _), (high, _) = (_split(metric.get(name)) for name in ("value", "low", "high"))
        table.writerow((path, metric["label"], value, unit, low, high, metric["wall"]))
    return out.getvalue()


def _split(value: Any) -> tuple[Any, str]:
    if isinstance(value, dict):
        return value["magnitude"], value["unit"]
    return ("" if value is None else value), ""
