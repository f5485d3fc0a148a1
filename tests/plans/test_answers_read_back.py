"""The document of an answer reads back into an equal answer; so does that of a scenario's evaluation."""

import json

import pytest

from mlsysim.engine.evaluation import SystemEvaluation
from mlsysim.engine.scenario import Scenario, Scenarios
from mlsysim.errors import InputError
from mlsysim.plans.answer import Answer
from mlsysim.plans.evaluate import evaluate
from mlsysim.walls.result import finite

PLANS = (
    {"task": "training", "workload": {"model": "Llama3_8B"}, "hardware": {"on": "8xH100"}, "ops": {"region": "Quebec"}},
    {"task": "training", "workload": {"model": "Llama3_70B"}, "hardware": {"on": "8xL4"}, "parallelism": {"tp": 8}},
    {"task": "serving", "workload": {"model": "Llama3_8B"}, "hardware": {"on": "8xH100"}},
    {"task": "serving", "workload": {"model": "Llama3_8B"}, "hardware": {"on": "8xH100 + 8xB200"}},
    {"task": "inference", "workload": {"model": "ResNet50"}, "hardware": {"on": "A100"}},
    {"task": "inference", "workload": {"model": "Llama3_70B"}, "hardware": {"on": "A100", "efficiency": 0.5}},
)


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: f"{plan['task']} on {plan['hardware']['on']}")
def test_an_answer_reads_back(plan, tmp_path):
    answer, file = evaluate(plan), tmp_path / "answer.json"
    file.write_text(json.dumps(finite(answer.to_dict())), encoding="utf-8")
    again = Answer.from_dict(json.loads(file.read_text(encoding="utf-8")))
    assert again == answer
    assert again.value(answer.main) == answer.value(answer.main) and again.metrics[0].text == answer.metrics[0].text
    assert finite(again.to_dict()) == finite(answer.to_dict())
    assert evaluate(again.plan, change=False).headline == answer.headline


@pytest.mark.parametrize("document", [[], {}, {"metrics": []}, {"metrics": {}}])
def test_what_is_no_answer_is_refused(document):
    with pytest.raises(InputError):
        Answer.from_dict(document)


def test_an_evaluation_of_a_scenario_reads_back():
    scenario: Scenario = next(iter(Scenarios))
    found = scenario.evaluate()
    again = SystemEvaluation.from_dict(json.loads(json.dumps(found.to_dict())))
    assert again == found and again.scorecard() == found.scorecard()
