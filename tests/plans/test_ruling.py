"""What an answer rules, what would change it, and the parts of a run: three states, odds, and sums."""

from __future__ import annotations

from typing import Any

import pytest
from scenario_answers import SCENARIOS

from mlsysim.plans.answer import Answer
from mlsysim.plans.evaluate import evaluate
from mlsysim.plans.files import load_plan
from mlsysim.plans.plan import Plan

FRONTIER = load_plan(next(path for path in SCENARIOS if path.stem == "frontier-100k-gpus"))


def limited(**asserted: Any) -> Answer:
    plan = load_plan(next(path for path in SCENARIOS if path.stem == "object-detection-vehicle"))
    wanted = [{"metric": "latency", **asserted}] if asserted else []
    return evaluate(plan.replacing(constraints={"assert": wanted}), change=False)


@pytest.fixture(scope="module")
def frontier() -> Answer:
    return evaluate(FRONTIER)


def test_a_limit_outside_of_the_interval_holds_or_does_not():
    metric = limited().metric("latency")
    holds, fails = (
        limited(max=f"{end.to('ms').magnitude * factor} ms") for end, factor in ((metric.high, 2), (metric.low, 0.5))
    )
    assert holds.ruling.state == "holds" and holds.ruling.claim.startswith("Holds: time of a pass of at most")
    assert fails.ruling.state == "fails" and fails.ruling.claim.startswith("Does not hold: time of a pass")
    assert holds.checks[0].odds > 0.95 and fails.checks[0].odds < 0.05


@pytest.mark.parametrize("side", ["low", "high"])
def test_a_limit_inside_of_the_interval_is_too_close_to_call(side):
    metric = limited().metric("latency")
    between = (getattr(metric, side) * metric.value) ** 0.5
    answer = limited(max=f"{between.to('ms').magnitude} ms")
    assert answer.ruling.state == "open" and answer.ruling.odds == answer.checks[0].odds
    assert (answer.ruling.odds > 0.5) is (side == "high") is answer.passed
    assert f"odds of {answer.ruling.odds:.0%}" in answer.ruling.claim and metric.interval in answer.checks[0].sentence


def test_odds_of_a_least_are_those_of_the_other_side():
    throughput = limited().metric("throughput")
    plan = limited().plan.replacing(constraints={"assert": [{"metric": "throughput", "min": throughput.low.magnitude}]})
    assert evaluate(plan, change=False).checks[0].odds == pytest.approx(0.95, abs=0.01)


def test_without_a_demand_the_fit_is_the_subject():
    assert limited().ruling.claim == "Fits." and limited().ruling.state == "holds"
    small = evaluate(
        {"workload": {"model": "Llama3_70B"}, "hardware": {"on": "1xH100"}, "task": "serving"}, change=False
    )
    assert small.ruling.state == "fails" and small.ruling.claim == "Does not fit."


def test_a_run_is_its_steps_and_what_failures_take(frontier):
    week = 7 * 86400.0
    assert sum(part.value for part in frontier.run_parts) == pytest.approx(week)
    assert frontier.run_parts[0].value / week == pytest.approx(frontier.value("goodput"))
    assert sum(part.value for part in frontier.whole_parts) == pytest.approx(week)
    lost = sum(part.value for part in frontier.whole_parts if part.wall == 15)
    assert lost / week == pytest.approx(1 - frontier.value("goodput"))
    assert any(line.startswith("Of 168 hours 108 are work; ") for line in frontier.ruling.because)


def test_failures_come_first_where_they_cost_more_than_any_wall():
    worse = evaluate(FRONTIER.replacing(ops={"mtbf": "20 min"}, constraints=None), change=False)
    assert worse.binding.limit == "goodput" and worse.ruling.claim.startswith("Failures decide, not the chips.")


def test_changes_are_ranked_and_can_be_done_beside_each_other(frontier):
    assert frontier.change is frontier.changes[0] and 2 <= len(frontier.changes) <= 3
    costs = [change.cost_factor for change in frontier.changes]
    assert costs == sorted(costs) and all(cost < 0.98 for cost in costs)
    assert any("goodput" in change.effects for change in frontier.changes)
    for change in frontier.changes:
        assert change.words in change.sentence and change.effects in change.sentence
    parts = [change.plan.ops != FRONTIER.ops for change in frontier.changes]
    assert any(parts) and not all(parts)


def test_the_failure_rate_is_a_risk_where_failures_cost(frontier):
    said = frontier.risks[0]
    assert "The failure rate" in said and frontier.metric("goodput").interval in said
    calm = evaluate(
        Plan.model_validate({"workload": {"model": "ResNet50"}, "hardware": {"on": "8xA100"}, "task": "training"})
    )
    assert not any("failure rate" in line for line in calm.risks) and calm.risks


def test_a_limit_is_told_in_a_unit_of_its_own():
    asked = {"workload": {"model": "ResNet50"}, "hardware": {"on": "H100", "efficiency": 0.5}}
    limit = [{"metric": "latency", "max": "200 ms"}]
    answer = evaluate(asked | {"constraints": {"assert": limit}}, change=False)
    assert "us" in answer.metric("latency").text or "µs" in answer.metric("latency").text
    assert answer.ruling.claim == "Holds: time of a pass of at most 200 ms."
