"""Every scenario that ships: it is valid, answers with exit code 0, keeps the laws of answers, and settles to itself."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from types import ModuleType

import pytest
from scenario_answers import SCENARIOS, scenario_answer

from mlsysim.plans.changes import settled
from mlsysim.plans.evaluate import evaluate, evaluate_plainly
from mlsysim.plans.files import load_plan, plan_from_text, plan_schema, plan_to_toml

pytestmark = pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)


def test_it_says_what_it_is_and_is_answered(path: Path, fuzz: ModuleType) -> None:
    plan = load_plan(path)
    assert len(plan.description) > 60 and plan.name != "plan"
    answer = scenario_answer(path)
    assert answer.exit_code == 0, [check.sentence for check in answer.checks] or answer.headline
    assert fuzz.broken(answer) == []
    assert json.loads(json.dumps(answer.to_dict(), allow_nan=False))["plan"] == plan.document()


def test_a_change_keeps_what_was_asked_and_betters_the_answer(path: Path) -> None:
    answer = scenario_answer(path)
    if answer.change is None:
        return
    after = evaluate(answer.change.plan, change=False)
    assert after.passed
    ratio = float((after.value(answer.main) / answer.value(answer.main)).to("").magnitude)
    assert ratio == pytest.approx(answer.change.factor)
    faster = ratio < 0.99 if answer.main == "latency" else ratio > 1.01
    assert faster or (answer.change.cost_factor is not None and answer.change.cost_factor < 0.98)


def test_the_settled_plan_gives_the_same_numbers(path: Path) -> None:
    answer = scenario_answer(path)
    again = evaluate_plainly(settled(answer))
    assert {m.path: m.text for m in again.metrics} == {m.path: m.text for m in answer.metrics}
    assert again.feasible == answer.feasible and again.binding == answer.binding


def test_toml_round_trip(path: Path) -> None:
    plan = load_plan(path)
    assert plan_from_text(plan_to_toml(plan)) == plan
    assert type(plan).model_validate(plan.document()) == plan


def test_the_schema_accepts_it_and_refuses_a_misspelt_key(path: Path) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    document = tomllib.loads(path.read_text(encoding="utf-8"))
    validator = jsonschema.Draft202012Validator(plan_schema())
    assert [error.message for error in validator.iter_errors(document)] == []
    document["workload"]["modell"] = document["workload"].pop("model")
    assert list(validator.iter_errors(document))
