"""Three levels in order; a failure stops the rest and names the wall and the remedy."""

from __future__ import annotations

import json
import re

import pytest

from mlsysim import Grids, Hardware, Models, Scenario, Scenarios
from mlsysim.errors import InputError
from mlsysim.infra.types import Datacenter
from mlsysim.plans.evaluate import evaluate_plainly
from mlsysim.plans.plan import Plan
from mlsysim.systems.registry import Clusters

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
    assert re.search(r"with [A-Z]P\d", evaluation.feasibility.summary)
    assert evaluation.assumptions["layout"].startswith("the best of ")
    held = evaluation.feasibility.metrics
    assert 0 < held["memory_per_accelerator"].value <= held["memory_available"].value
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


@pytest.mark.parametrize("name", NAMES)
def test_levels_are_the_answer_to_the_plan(name: str) -> None:
    """Every metric of the answer stands in its level, as it is printed."""
    scenario = getattr(Scenarios, name)
    answer, evaluation = evaluate_plainly(scenario.plan), scenario.evaluate()
    told = [(m.name, m.text, m.wall) for level in evaluation.levels for m in level.metrics.values()]
    assert sorted(told) == sorted((m.name, m.text, m.wall) for m in answer.metrics)
    assert evaluation.feasibility.summary == answer.headline
    assert evaluation.performance.summary.startswith(answer.binding.sentence)


def test_objects_of_ones_own() -> None:
    """A chip twice as fast is not that of the zoo, whatever it is called; a building changes what a run takes by its PUE."""
    chip = Hardware.H100
    fast = chip.model_copy(update={"memory": chip.memory.model_copy(update={"bandwidth": chip.memory.bandwidth * 2})})
    times = [Scenario(name="x", workload=Models.Llama3_8B, system=each).evaluate().performance for each in (chip, fast)]
    slow, quick = (level.metrics["latency"].value.to("ms").magnitude for level in times)
    assert quick == pytest.approx(slow / 2, rel=0.01)
    dear = chip.model_copy(update={"unit_cost": chip.unit_cost * 2})
    costs = [Scenario(name="x", workload="ResNet50", system=each, mode="training").evaluate() for each in (chip, dear)]
    paid = [found.macro.metrics["purchase_price"].value.to("USD").magnitude for found in costs]
    assert paid[1] - paid[0] > 0.9 * chip.unit_cost.to("USD").magnitude
    fleet = Clusters.get("Research_256").model_copy(update={"name": "ours", "count": 2})
    about = {"name": "x", "workload": "Llama3_8B", "batch_size": 64, "region": "Quebec"}
    energy = {}
    for pue in (1.1, 1.4):
        site = Datacenter(name="here", grid=Grids.Quebec, pue_override=pue)
        found = Scenario(**{**about, "system": fleet, "region": site}).evaluate()
        energy[pue] = found.macro.metrics["energy"].value.to("kWh").magnitude
    assert energy[1.4] / energy[1.1] == pytest.approx(1.4 / 1.1)


def test_a_plan_takes_objects_where_it_takes_names() -> None:
    named = {"task": "serving", "model": "Llama3_8B", "on": "H100", "region": "Quebec", "draft_model": "Llama3_2_1B"}
    held = {"model": Models.Llama3_8B, "on": Hardware.H100, "region": Grids.Quebec, "draft_model": Models.Llama3_2_1B}
    assert Plan.model_validate({**named, **held}) == Plan.model_validate(named)
    with pytest.raises(InputError, match="is a model, and a chip"):
        evaluate_plainly(Plan.model_validate({**named, "on": Models.Llama3_8B}))
