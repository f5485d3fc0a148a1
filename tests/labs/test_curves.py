"""The curve along a control: every point is the answer to the plan at that stop."""

from __future__ import annotations

import csv
import io
import json
import xml.etree.ElementTree as ET

import pytest

from mlsysim.labs import bridge, curves, explorer
from mlsysim.labs.curves import curve_csv
from mlsysim.labs.explorer import answer_of
from mlsysim.labs.further import explore
from mlsysim.plans.audit import AUDITED
from mlsysim.plans.evaluate import evaluate
from mlsysim.plans.plan import Plan

TRAINING = {
    "task": "training",
    "workload": {"model": "Llama3_8B", "batch_size": 64, "seq_len": 2048, "precision": "bf16"},
    "hardware": {"on": "8xH100"},
    "parallelism": {"tp": 1, "zero": 1, "micro_batch": 1},
}
COUNTS = [1, 2, 4, 8, 16, 32, 64, 128]


def fleet(count, **more):
    return {**TRAINING, "hardware": {"on": f"{count}xH100"}, **more}


def whole(**args):
    """Ask until nothing is left, as the page does."""
    for _ in range(100):
        told = json.loads(bridge.call("curve", json.dumps(args)))
        assert told["ok"], told
        if not told["value"]["left"]:
            return told["value"]
    raise AssertionError("a curve that never ends")


def asked(plans=None, **more):
    plans = plans or [fleet(count) for count in COUNTS]
    given = {"values": COUNTS, "plans": plans, "at": 3, "title": "Fleet", "unit": "accelerators", "width": 640}
    return given | more


def test_the_nearest_stops_are_computed_ahead_one_at_a_time():
    explorer.forget()
    plans = [fleet(count) for count in COUNTS[2:6]]
    answer_of(plans[1])
    told = [json.loads(bridge.call("ahead", json.dumps({"plans": plans, "at": 1}))) for _ in range(3)]
    assert [each["value"] for each in told] == [2, 1, 0]
    assert all(explorer.known(plan) for plan in plans)


def test_every_point_is_the_answer_at_its_stop(monkeypatch):
    seen = {}
    drawn = curves.along

    def watched(found, *args, **more):
        seen["found"] = found
        return drawn(found, *args, **more)

    monkeypatch.setattr(curves, "along", watched)
    whole(**asked())
    assert [value for value, _ in seen["found"]] == COUNTS
    for count, found in seen["found"]:
        if isinstance(found, str):
            with pytest.raises(ValueError, match=r"\w"):
                evaluate(Plan.model_validate(fleet(count)), change=False)
        else:
            answer = evaluate(Plan.model_validate(fleet(count)), change=False)
            assert found == answer.model_copy(update={"equations": ()}), "but for equations, which a curve has none of"


def test_a_chart_for_its_width_with_a_place_for_each_stop():
    found = whole(**asked())
    svg = ET.fromstring(found["svg"])
    assert svg.get("viewBox").split()[2] == "640" and svg.get("role") == "img"
    assert len(found["places"]) == len(COUNTS) and found["plot"][0] < found["places"][0][0] + 1
    assert found["metric"] == "performance.tokens_per_second"
    assert found["reasons"][0].startswith("Does not fit") and found["reasons"][3] == ""
    assert "you are at 8" in found["svg"]


def test_the_limit_in_doubt_is_what_is_shown():
    limits = {"constraints": {"assert": [{"metric": "mfu", "min": 0.99}]}}
    found = whole(**asked([fleet(count, **limits) for count in COUNTS]))
    assert found["metric"] == "performance.mfu" and "limit is at least 99 %" in found["svg"]
    chosen = whole(**asked([fleet(count, **limits) for count in COUNTS], metric="performance.latency"))
    assert chosen["metric"] == "performance.latency"
    assert {"performance.mfu", "performance.latency"} <= {goal["path"] for goal in chosen["metrics"]}


def test_a_call_computes_for_a_moment_and_the_next_goes_on():
    plans = [fleet(count, workload=TRAINING["workload"] | {"batch_size": 128}) for count in COUNTS]
    question = asked(plans)
    assert curves.curve(**question, moment=0.0)["left"] == len(COUNTS) - 1  # nothing but where one is
    lefts = [curves.curve(**question, moment=1e-9)["left"] for _ in COUNTS[1:]]
    assert lefts == list(range(len(COUNTS) - 2, -1, -1))
    moved = curves.curve(**question | {"at": 0}, moment=0.0)
    assert moved["left"] == 0  # who moves along a curve sees all that is known of it


def test_a_value_between_two_stops_keeps_the_curve():
    whole(**asked())
    values, plans = [*COUNTS[:4], 12, *COUNTS[4:]], [fleet(count) for count in (*COUNTS[:4], 12, *COUNTS[4:])]
    assert curves.curve(**asked(plans, values=values, at=4), moment=0.0)["left"] == 0


def test_the_pinned_plan_is_a_ghost():
    ghosts = [fleet(count, parallelism={"tp": 2, "zero": 1, "micro_batch": 1}) for count in COUNTS]
    found = whole(**asked(ghosts=ghosts))
    assert "pinned" in found["svg"] and "pinned" not in whole(**asked())["svg"]


def test_answers_are_kept_and_refusals_too():
    whole(**asked())
    before = explore(fleet(8))["headline"]
    again = curves.curve(**asked())
    assert again["left"] == 0 and answer_of(fleet(8)).headline == before


@pytest.mark.parametrize(
    "wrong", [{"values": []}, {"values": [1], "at": 0}, {"at": 99}, {"ghosts": [TRAINING]}, {"at": -1}]
)
def test_what_is_no_curve_gets_a_sentence(wrong):
    told = json.loads(bridge.call("curve", json.dumps(asked(**wrong))))
    assert not told["ok"] and told["kind"] == "input" and "A curve needs" in told["error"]


def test_a_plan_that_is_refused_where_one_is_has_no_chart_but_a_reason():
    found = curves.curve(**asked([{"task": "training"}] * len(COUNTS)))
    assert found["svg"] == "" and all(found["reasons"][3:4])


def test_the_curve_as_a_table_has_the_answers_numbers() -> None:
    plans = [fleet(8), fleet(16)]
    path = answer_of(plans[0]).held["latency"].path
    text = curve_csv([8, 16, 1], [*plans, fleet(1)], "Accelerators", path)
    head, *rows = csv.reader(io.StringIO(text))
    assert head[0] == "Accelerators" and head[2:] == ["low", "high", "binds", "reason"]
    unit = head[1].partition("[")[2].rstrip("]")
    assert unit in ("s", "ms"), "a symbol, as the other tables have it"
    for row, plan in zip(rows, plans, strict=False):
        metric = answer_of(plan).held["latency"]
        sides = [side.to(unit).magnitude for side in (metric.value, metric.low, metric.high)]
        assert [float(each) for each in row[1:4]] == pytest.approx(sides)
        assert row[4] == answer_of(plan).binding.sentence and row[5] == ""
    assert rows[2][1] == "" and rows[2][5].startswith("Does not fit")


def test_equations_are_told_when_they_are_asked_for() -> None:
    plan = AUDITED.document()
    assert not answer_of(plan).equations
    assert answer_of(plan, equations=True).equations


SERVED = {
    "task": "serving",
    "workload": {"model": "Llama3_8B"},
    "hardware": {"on": "1xH100"},
    "serving": {"prompt_tokens": 500, "output_tokens": 100},
}


def served(**more):
    return {**SERVED, "serving": SERVED["serving"] | more}


def test_a_flat_line_is_not_what_a_curve_shows_first():
    """Replicas that do not share a request leave its times as they are: what more chips change is how many are answered."""
    plans = [
        {**served(qps=4.0 * count), "hardware": {"on": f"{count}xH100"}, "parallelism": {"tp": 1}}
        for count in (1, 2, 4)
    ]
    found = whole(values=[1, 2, 4], plans=plans, at=1, title="Fleet")
    assert found["metric"].endswith("tokens_per_second")


def test_limits_that_set_the_load_are_shown_with_what_they_allow():
    plans = [served(tpot=f"{limit} ms") for limit in (10, 20, 40)]
    found = whole(values=[10, 20, 40], plans=plans, at=1, title="Each token within", unit="ms")
    assert found["metric"].endswith("tokens_per_second")
    kept = whole(
        values=[10, 20, 40], plans=plans, at=1, title="Each token within", unit="ms", metric="performance.tpot"
    )
    assert kept["metric"] == "performance.tpot"
