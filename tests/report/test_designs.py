"""Designs around a plan are plans: evaluated as such, none invented, and the front is a front."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mlsysim.plans.evaluate import evaluate, evaluate_plainly
from mlsysim.plans.plan import Plan
from mlsysim.report.designs import THIS, designs_around
from mlsysim.units.registry import to_si

from .reading import report_of

CASES = [
    "keyword-spotting-microcontroller",
    "resnet50-training-a100",
    "llama3-8b-on-a-laptop",
    "deepseek-r1-serving-b200",
]


def plain(design):
    return design.x.to_base_units().magnitude, design.y.to_base_units().magnitude


@pytest.mark.parametrize("name", CASES)
def test_the_first_design_is_the_plan_itself(name):
    report = report_of(name)
    designs, answer = report.designs, report.answer
    here = designs.points[0]
    assert here.label == THIS
    metric = {"training": "run_time", "serving": "tpot", "inference": "latency"}[answer.task]
    if metric == "run_time":
        assert to_si(here.x, "day") == pytest.approx(answer.plan.ops.days)
        assert to_si(here.y, "USD") == pytest.approx(to_si(answer.value("tco"), "USD"))
    else:
        assert here.x_text == answer.metric(metric).text


@pytest.mark.parametrize("name", CASES)
def test_nothing_beats_the_front(name):
    designs = report_of(name).designs
    signs = [1 if goal == "low" else -1 for goal in designs.goals]
    points = [tuple(value * sign for value, sign in zip(plain(p), signs, strict=True)) for p in designs.points]
    for k in designs.front:
        assert not any(p[0] <= points[k][0] and p[1] <= points[k][1] and p != points[k] for p in points)
    outside = set(range(len(points))) - set(designs.front)
    for k in outside:
        assert any(p[0] <= points[k][0] and p[1] <= points[k][1] for j, p in enumerate(points) if j != k)


def test_one_design_is_on_the_front():
    designs = report_of(CASES[0]).designs
    alone = replace(designs, points=designs.points[:1])
    assert (
        f"1 of {designs.tried} designs can run and fit; 1 is on the front. This plan is on the front" in alone.sentence
    )


@pytest.mark.parametrize("name", CASES)
def test_labels_say_what_differs_and_are_unique(name):
    designs = report_of(name).designs
    labels = [point.label for point in designs.points]
    assert all(labels) and len(set(labels)) == len(labels)
    assert len(labels) <= designs.tried <= 150
    assert f"{len(labels)} of {designs.tried} designs" in designs.sentence


def test_a_design_is_what_its_plan_evaluates_to():
    answer = report_of("keyword-spotting-microcontroller").answer
    designs = report_of("keyword-spotting-microcontroller").designs
    found = next(point for point in designs.points if point.label == "batch 4")
    alone = evaluate_plainly(answer.plan.replacing(workload={"batch_size": 4}))
    assert found.x_text == alone.metric("latency").text
    assert found.y_text == alone.metric("energy_per_sample").text


def test_twice_the_chips_halve_the_time_at_most():
    designs = report_of("resnet50-training-a100").designs
    more = next(point for point in designs.points if point.label == "16 chips")
    here = designs.points[0]
    assert 1 < to_si(here.x, "s") / to_si(more.x, "s") <= 2


def test_a_cluster_keeps_its_fabric_when_it_shrinks():
    plan = Plan.model_validate(
        {
            "task": "training",
            "workload": {"model": "Llama3_405B", "batch_size": 2048, "seq_len": 8192},
            "hardware": {"on": "Meta_16K", "efficiency": 0.5},
            "parallelism": {"tp": 8, "pp": 16, "zero": 2, "micro_batch": 1, "virtual_stages": 8},
        }
    )
    designs = designs_around(evaluate(plan, change=False))
    half = next(point for point in designs.points if point.label == "8,192 chips, batch 1,024")
    by_hand = evaluate_plainly(
        plan.replacing(
            hardware={"on": None, "name": "Meta_16K", "nodes": 1024},
            workload={"batch_size": 1024, "tokens": to_si(evaluate_plainly(plan).value("tokens"), "token")},
        )
    )
    assert to_si(half.x, "s") == pytest.approx(to_si(by_hand.value("run_time"), "s"))


def test_without_a_price_energy_is_the_cost():
    report = report_of("deepseek-v3-2k-h800")
    assert report.designs.titles == ("Time of the run", "Energy")


def test_a_plan_that_does_not_fit_has_no_designs():
    plan = Plan.model_validate({"workload": {"model": "Llama3_70B"}, "hardware": {"on": "1xH100"}})
    answer = evaluate(plan, change=False)
    assert not answer.feasible
    assert designs_around(answer) is None
