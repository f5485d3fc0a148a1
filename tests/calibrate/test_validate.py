"""Scoring: counts, percentiles, reasons, intervals, files; with a table made here."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from mlsysim.calibrate import validate
from mlsysim.calibrate.questions import Excluded, Prediction, Skipped, Table
from mlsysim.errors import InputError


def read(row: Mapping[str, str]) -> list[Prediction]:
    if row["state"] == "duplicate":
        raise Excluded("listed twice")
    if row["state"] == "unheard of":
        raise Skipped("no such chip")
    measured = float(row["value"])
    return [Prediction("time", measured, measured * float(row["factor"]), "test regime", True)]


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    made = Table("made_here", ("id", "source", "value", "factor", "state"), read)
    monkeypatch.setattr(validate, "TABLES", {made.name: made})
    path = tmp_path / "table.csv"
    with path.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["id", "source", "value", "factor", "state"])
        for i, factor in enumerate((1.0, 1.05, 0.9, 1.3, 0.5)):
            writer.writerow([f"r{i}", "a" if i < 3 else "b", 10, factor, "ok"])
        writer.writerow(["r5", "b", 10, 1, "duplicate "])  # blanks around a cell say nothing
        writer.writerow(["r6", "b", 10, 1, "unheard of"])
    yield path


def test_counts_and_errors(table: Path) -> None:
    (report,) = validate.validate(table)
    data = report.to_dict()
    assert (data["rows"], data["predicted"], data["skipped"], data["excluded"]) == (6, 5, 1, 1)
    assert data["coverage"] == pytest.approx(5 / 6)
    assert data["skipped_reasons"] == {"no such chip": 1} and data["not_predicted"] == {"r6": "no such chip"}
    assert data["median_ape"] == pytest.approx(10.0)
    assert data["mape"] == pytest.approx((0 + 5 + 10 + 30 + 50) / 5)
    assert data["p90_ape"] == pytest.approx(30 + 0.6 * 20)
    assert data["within_10"] == pytest.approx(60) and data["within_25"] == pytest.approx(60)
    assert data["bias"] == pytest.approx(0.0)
    assert data["by_source"]["a"]["values"] == 3 and data["by_metric"]["time"]["values"] == 5
    json.dumps(data)


def test_predictions_file(table: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    validate.write_predictions(validate.validate(table), out)
    rows = list(csv.DictReader(out.open()))
    assert list(rows[0]) == ["id", "metric", "measured", "predicted", "low", "high", "error", "plan"]
    assert [row["id"] for row in rows] == ["r0", "r1", "r2", "r3", "r4"]
    assert float(rows[1]["error"]) == pytest.approx(0.05) and float(rows[1]["low"]) < 10.5 < float(rows[1]["high"])
    assert rows[1]["plan"] == ""


def test_files_that_are_not_tables(tmp_path: Path, table: Path) -> None:
    foreign = tmp_path / "foreign.csv"
    foreign.write_text("x,y\n1,2\n")
    with pytest.raises(InputError, match="no known table"):
        validate.validate(foreign)
    with pytest.raises(InputError, match="is not a file"):
        validate.validate(tmp_path / "none.csv")
    binary = tmp_path / "b.csv"
    binary.write_bytes(b"\xff\xfe\x00\x01" * 10)
    with pytest.raises(InputError, match="not a CSV table"):
        validate.validate(binary)
    with pytest.raises(InputError, match="at least one"):
        validate.validate()
