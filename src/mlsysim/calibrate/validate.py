"""``validate``: ask for every row of measurement tables what was measured, and say how far off the answers are.

    mlsysim.calibrate.validate.validate("training.csv", "serving_runs.csv")

Tables are recognised by their header. Each file's report counts rows, predicted and skipped rows with reasons, and gives
median and mean absolute percentage error, the 90th percentile, the share within 10 and 25 %, the bias (median signed
error), and the share of values inside the stated interval; the same by source and by metric. All errors are in per cent.
"""

from __future__ import annotations

import csv
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

from mlsysim.calibrate.measurements import given_table
from mlsysim.calibrate.questions import FILE, Excluded, Prediction, Skipped, Table
from mlsysim.calibrate.tables import RUNS, TABLES, runs
from mlsysim.errors import InputError
from mlsysim.walls.document import Summary
from mlsysim.walls.uncertain_result import percentile

_LARGEST_FILE = 200_000_000


@dataclass
class FileReport(Summary):
    """The score of one file."""

    told: ClassVar = (
        *(
            "file",
            "table",
            "rows",
            "predicted",
            "skipped",
            "excluded",
            "coverage",
            "skipped_reasons",
            "not_predicted",
            "unread",
        ),
        *("values", "by_source", "by_metric"),
    )
    at_times: ClassVar = ("median_ape", "mape", "p90_ape", "within_10", "within_25", "bias", "interval_coverage")

    file: str
    table: str
    rows: int = 0
    predicted: int = 0
    excluded: int = 0
    skipped_reasons: Counter[str] = field(default_factory=Counter)
    scored: list[Prediction] = field(default_factory=list)
    not_predicted: dict[str, str] = field(default_factory=dict)
    unread: list[str] = field(default_factory=list)

    @property
    def skipped(self) -> int:
        return self.rows - self.predicted

    @property
    def coverage(self) -> float:
        return self.predicted / self.rows if self.rows else 0.0

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON has it."""
        return {
            "file": self.file,
            "table": self.table,
            "rows": self.rows,
            "predicted": self.predicted,
            "skipped": self.skipped,
            "excluded": self.excluded,
            "coverage": self.coverage,
            "skipped_reasons": dict(self.skipped_reasons.most_common()),
            "not_predicted": self.not_predicted,
            "unread": self.unread,
            **score(self.scored),
            "by_source": {name: score(part) for name, part in grouped(self.scored, lambda p: p.source)},
            "by_metric": {name: score(part) for name, part in grouped(self.scored, lambda p: p.metric)},
        }


def grouped(scored: Iterable[Prediction], key: Callable[[Prediction], Any]) -> list[tuple[Any, list[Prediction]]]:
    """Scored values by what they have in common, in order."""
    found: dict[Any, list[Prediction]] = defaultdict(list)
    for each in scored:
        found[key(each)].append(each)
    return sorted(found.items())


def score(scored: Iterable[Prediction]) -> dict[str, Any]:
    """Errors of a set of predictions, in per cent; empty sets have no figures."""
    values = list(scored)
    if not values:
        return {"values": 0}
    errors = sorted(s.ape for s in values)
    signed = sorted(s.error * 100 for s in values)
    count = len(values)
    stated = [inside for s in values if (inside := s.inside) is not None]
    return {
        "values": count,
        "median_ape": percentile(errors, 50),
        "mape": sum(errors) / count,
        "p90_ape": percentile(errors, 90),
        "within_10": 100 * sum(e <= 10 for e in errors) / count,
        "within_25": 100 * sum(e <= 25 for e in errors) / count,
        "bias": percentile(signed, 50),
        "interval_coverage": 100 * sum(stated) / len(stated) if stated else None,
    }


def table_of(header: Iterable[str], file: str) -> Table:
    """The table whose columns the header has."""
    columns = set(header)
    for table in TABLES.values():
        if set(table.columns) <= columns:
            return table
    if (reason := runs.lacking(columns)) is not None:
        raise InputError(f"{file}: {reason}")
    return RUNS


def validate(*paths: str | Path) -> list[FileReport]:
    """Predict every row of each measurement file and score it."""
    if not paths:
        raise InputError("validate needs at least one CSV file.")
    return [validate_file(Path(path)) for path in paths]


def validate_file(path: Path) -> FileReport:
    """Score one file; of a log of requests, the table of its runs that lies beside it."""
    path = _runs_of(path)
    header, rows = given_table(path, _LARGEST_FILE)
    table = table_of(header, path.name)
    report = FileReport(file=str(path), table=table.name, unread=list(runs.unread(header)) if table is RUNS else [])
    for number, row in enumerate(rows, 2):
        key = row.get("id") or row.get("row_id") or row.get("run") or f"line {number}"
        try:
            predictions = table.predict({**row, FILE: str(path)})
            if not predictions:
                raise Skipped("no measured value")
        except Excluded:
            report.excluded += 1
            continue
        except Skipped as reason:
            report.skipped_reasons[str(reason)] += 1
            report.not_predicted[key] = str(reason)
        else:
            report.predicted += 1
            source = row.get("source") or row.get("section") or ""
            report.scored += [replace(p, row=key, source=source) for p in predictions]
        report.rows += 1
    return report


def _runs_of(path: Path) -> Path:
    name = path.name.removesuffix(".gz").removesuffix(".csv")
    beside = path.with_name("runs.csv" if name == "requests" else f"{name}_runs.csv")
    return beside if path.is_file() and beside.is_file() else path


COLUMNS = ("id", "metric", "measured", "predicted", "low", "high", "error", "plan")
"""Columns of the file of predictions; ``error`` is predicted over measured minus one, ``plan`` a TOML text or empty."""


def write_predictions(reports: Iterable[FileReport], path: Path) -> None:
    """Every scored value with its interval and its plan, as CSV."""
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(COLUMNS)
        for p in (p for report in reports for p in report.scored):
            numbers = (p.measured, p.predicted, p.low, p.high, p.error)
            writer.writerow([p.row, p.metric, *("" if n is None else repr(n) for n in numbers), p.plan])
