"""A row becomes a plan, and the scored prediction is the public answer of the plan's text."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import pytest
from typer.testing import CliRunner

from mlsysim.calibrate.cells import half_digit
from mlsysim.calibrate.measurements import own_rows
from mlsysim.calibrate.questions import PART, Excluded, Prediction, Question, Skipped, predicted, whole_nodes
from mlsysim.calibrate.tables import TABLES
from mlsysim.cli.main import app
from mlsysim.errors import MLSysError
from mlsysim.plans.evaluate import evaluate_plainly
from mlsysim.plans.files import plan_from_text
from mlsysim.plans.plan import Plan
from mlsysim.units.registry import Q_

SHIPPED = Path(str(files("mlsysim.calibrate").joinpath("data", "published")))
SAMPLE = {"energy": 30, "inference": 30, "serving_runs": 30, "silicon": 30, "training": 30, "vision": 60}
"""Rows of each table of runs, spread over its length and so over its sources."""


def sample(table: str) -> list[Question]:
    """Questions of rows spread over a shipped table."""
    if table == "silicon":
        rows = [row for name in ("llm", "train", "other") for row in own_rows(name) if row["metric"].startswith("time")]
    else:
        with (SHIPPED / f"{table}.csv").open(newline="", encoding="utf-8") as stream:
            rows = list(csv.DictReader(stream))
    found: list[Question] = []
    for row in rows[:: max(1, len(rows) // (2 * SAMPLE[table]))]:
        try:
            found += [each for each in TABLES[table].read(row) if isinstance(each, Question)]
        except (Excluded, Skipped, MLSysError):
            continue
    assert len(found) >= SAMPLE[table]
    return found[:: max(1, len(found) // SAMPLE[table])]


@pytest.mark.parametrize("table", sorted(SAMPLE))
def test_the_answer_of_the_plan_is_the_prediction(table: str) -> None:
    for question in sample(table):
        scored = predicted(question)
        answer = evaluate_plainly(plan_from_text(scored.plan))
        if question.asked.startswith(PART):
            assert answer.ledger.exposed(question.asked.removeprefix(PART)) == scored.predicted
            continue
        found = answer.metric(question.asked)
        number = found.value.to(question.unit).magnitude if question.unit else found.value
        assert number * question.factor == pytest.approx(scored.predicted, rel=1e-12)
        if "memory" not in question.metric:  # of which an answer states no interval
            assert scored.low is not None and scored.low <= scored.predicted <= scored.high


@pytest.mark.parametrize("table", sorted(SAMPLE))
def test_eval_of_the_plan_gives_the_prediction(table: str, tmp_path: Path) -> None:
    for question in sample(table)[::8]:
        if question.asked.startswith(PART):
            continue
        scored = predicted(question)
        path = tmp_path / "plan.toml"
        path.write_text(scored.plan, encoding="utf-8")
        result = CliRunner().invoke(app, ["eval", str(path), "--json"])
        metrics = {m["name"]: m for m in json.loads(result.stdout)["metrics"].values()}
        found = metrics[question.asked]["value"]
        number = Q_(found["magnitude"], found["unit"]).to(question.unit).magnitude if question.unit else found
        assert number * question.factor == pytest.approx(scored.predicted, rel=1e-12)


def test_a_plan_that_is_refused_is_a_row_that_is_skipped() -> None:
    plan = Plan.model_validate(
        {"workload": {"model": "Llama3_8B"}, "hardware": {"on": "1xH100"}, "serving": {}, "parallelism": {"tp": 3}}
    )
    with pytest.raises(Skipped, match="replica"):
        predicted(Question("tpot_ms", 1.0, plan, "tpot", "ms"))


def test_weights_that_a_device_cannot_hold_were_not_run_there() -> None:
    work = {"workload": {"model": "DeepSeek_R1", "precision": "fp8"}, "hardware": {"on": "1xGB200"}}
    plan = work | {"serving": {}, "parallelism": {"tp": 1}}
    with pytest.raises(Skipped, match=r"not what the row says: 67\d GB of weights on a device with 198 GB"):
        predicted(Question("tpot_ms", 1.0, Plan.model_validate(plan), "tpot", "ms"))


def test_a_value_of_one_digit_is_known_to_half_of_it() -> None:
    told = Prediction("request_throughput", 2.0, 1.95, "online", True, low=1.94, high=1.98)
    assert not told.inside and replace(told, rounded=0.5).inside
    assert (half_digit("2"), half_digit("16.25"), half_digit("1.2e3")) == (0.5, 0.005, 0.0)


def test_fleets_of_whole_nodes() -> None:
    """Halves of nodes are whole fleets too."""
    assert [whole_nodes(n, "H100") for n in (6, 20, 23)] == ["6xH100", "20xH100", "24xH100"]
