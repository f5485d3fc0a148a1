"""A row becomes a plan, and the scored prediction is the public answer of the plan's text."""

from __future__ import annotations

import csv
import json
from importlib.resources import files
from pathlib import Path

import pytest
from typer.testing import CliRunner

from mlsysim.calibrate.prediction import Excluded, Skipped
from mlsysim.calibrate.questions import Question, predicted, whole_nodes
from mlsysim.calibrate.tables import energy, inference, serving_runs, training
from mlsysim.cli.main import app
from mlsysim.plans.plan import Plan

SHIPPED = Path(str(files("mlsysim.calibrate").joinpath("data", "published")))
READERS = {"energy": energy, "inference": inference, "serving_runs": serving_runs, "training": training}
SAMPLE = 12


def sample(table: str) -> list[Question]:
    """Questions of rows spread over a shipped table."""
    with (SHIPPED / f"{table}.csv").open(newline="", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    found: list[Question] = []
    for row in rows[:: max(1, len(rows) // (2 * SAMPLE))]:
        try:
            found += READERS[table].questions(row)
        except (Excluded, Skipped):
            continue
    assert len(found) >= SAMPLE
    return found[:: max(1, len(found) // SAMPLE)]


@pytest.mark.parametrize("table", sorted(READERS))
def test_eval_of_the_plan_gives_the_prediction(table: str, tmp_path: Path) -> None:
    for question in sample(table):
        scored = predicted(question)
        path = tmp_path / "plan.toml"
        path.write_text(scored.plan, encoding="utf-8")
        result = CliRunner().invoke(app, ["eval", str(path), "--json"])
        metrics = {m["name"]: m for m in json.loads(result.stdout)["metrics"].values()}
        found = metrics[question.asked]["value"]
        number = found["magnitude"] if isinstance(found, dict) else found
        assert found == number or found["unit"] == question.unit
        assert number * question.factor == pytest.approx(scored.predicted, rel=1e-12)
        if "memory" not in question.metric:  # of which an answer states no interval
            assert scored.low is not None and scored.low <= scored.predicted <= scored.high


def test_a_plan_that_is_refused_is_a_row_that_is_skipped() -> None:
    plan = Plan.model_validate(
        {"workload": {"model": "Llama3_8B"}, "hardware": {"on": "1xH100"}, "serving": {}, "parallelism": {"tp": 3}}
    )
    with pytest.raises(Skipped, match="replica"):
        predicted(Question("tpot_ms", 1.0, plan, "tpot", "ms"))


def test_fleets_of_whole_nodes() -> None:
    assert (whole_nodes(6, "H100"), whole_nodes(20, "H100")) == ("6xH100", "24xH100")
