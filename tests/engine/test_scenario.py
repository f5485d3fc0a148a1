"""Three levels in order; a failure stops the rest and names the wall and the remedy."""

from __future__ import annotations

import json

import pytest

from mlsysim import Scenario, Scenarios
from mlsysim.errors import InputError

NAMES = (
    "SmartDoorbell",
    "TinySensor",
    "KeywordSpotting",
    "AutonomousVehicle",
    "AutonomousVehicle_Waymo",
    "MobileHealth",
    "LocalTraining",
    "ChatbotServing",
    "FrontierTraining",
)


def test_the_named_scenarios_exist_and_pass() -> None:
    assert tuple(Scenarios.keys()) == NAMES
    for name in NAMES:
        evaluation = getattr(Scenarios, name).evaluate()
        assert evaluation.passed_all, evaluation.scorecard()
        assert all(1 <= m.wall <= 22 for level in evaluation.levels for m in level.metrics.values())
        json.dumps(evaluation.to_dict())


def test_a_level_that_fails_stops_the_rest() -> None:
    evaluation = Scenario(name="too large", workload="Llama3_70B", system="H100").evaluate()
    assert [level.status for level in evaluation.levels] == ["FAIL", "SKIPPED", "SKIPPED"]
    assert "Wall 2" in evaluation.feasibility.summary and "fp8" in evaluation.feasibility.summary
    assert "Feasibility failed" in evaluation.macro.summary and not evaluation.macro.metrics
    assert "FAIL" in evaluation.scorecard().splitlines()[0]


def test_a_missed_target_fails_performance() -> None:
    evaluation = Scenario(name="slow", workload="Llama3_8B", system="H100", sla_latency="1 ms").evaluate()
    assert [level.status for level in evaluation.levels] == ["PASS", "FAIL", "SKIPPED"]
    assert "misses the target of 1 ms by a factor of 4.8" in evaluation.performance.summary


def test_a_power_budget() -> None:
    evaluation = Scenario(name="hot", workload="Llama3_8B", system="H100", power_budget="300 W").evaluate()
    assert "700 W" in evaluation.feasibility.summary and not evaluation.feasibility.passed


def test_a_fleet_gets_a_layout_that_fits() -> None:
    evaluation = Scenarios.FrontierTraining.evaluate()
    assert "TP8" in evaluation.feasibility.summary and "layout" in evaluation.assumptions
    walls = {m.wall for level in evaluation.levels for m in level.metrics.values()}
    assert {2, 14, 15, 17, 18, 19} <= walls


def test_a_fleet_that_cannot_hold_the_model() -> None:
    scenario = Scenario(name="no", workload="GPT4", system="Research_256", batch_size=256, seq_len=8192)
    evaluation = scenario.evaluate()
    assert not evaluation.feasibility.passed and evaluation.macro.status == "SKIPPED"


def test_unknown_things_are_refused() -> None:
    with pytest.raises(InputError, match="did you mean"):
        Scenario(name="x", workload="Llama3_70b_", system="H1000")
    with pytest.raises(InputError, match="scenario"):
        Scenarios.get("SmartDorbell")
    with pytest.raises(InputError, match="training"):
        Scenario(name="x", workload="Llama3_8B", system="Research_256", mode="serving").evaluate()
