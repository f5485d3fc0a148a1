"""Simulated training runs as plans ask for them: one answer, that of the run in the middle, which agrees with the closed form where that holds."""

from __future__ import annotations

import math

import pytest

import mlsysim
from mlsysim.errors import InputError
from mlsysim.plans.answer import Answer
from mlsysim.plans.evaluate import evaluate, evaluate_plainly
from mlsysim.plans.plan import Plan
from mlsysim.units.registry import to_si


def plan_of(on: str = "1024xH100", tokens: float | None = 6e11, **ops: object) -> Plan:
    return Plan.model_validate(
        {
            "task": "training",
            "workload": {"model": "Llama3_70B", "batch_size": 1024, "seq_len": 8192, "tokens": tokens},
            "hardware": {"on": on, "efficiency": 0.45},
            "parallelism": {"tp": 8, "pp": 4, "micro_batch": 1, "zero": 1},
            "ops": {"region": "Quebec", "price": "2 USD/h", **ops},
        }
    )


def asked(**ops: object) -> Answer:
    return evaluate_plainly(plan_of(**ops))


def test_it_agrees_with_the_closed_form_where_nodes_are_at_hand():
    closed, played = asked(), asked(simulate=True, seeds=60)
    assert (closed.fidelity, played.fidelity) == ("first order", "simulated")
    for name in ("run_time", "rent", "tco", "usd_per_mtoken", "energy", "run_power", "carbon_footprint"):
        assert to_si(played.value(name) / closed.value(name), "") == pytest.approx(1, rel=0.01)
    assert played.value("goodput") == pytest.approx(closed.value("goodput"), rel=0.01)


@pytest.mark.parametrize("more", [{}, {"start": "2026-12-01"}])
def test_energy_agrees_where_a_third_of_the_time_is_lost(more):
    """Accelerators wait while the run stands, in the closed form, in one that is played, and by the hour."""
    bad = {"mtbf": "1 h", "checkpoint_time": "120 s", **more}
    closed, played = asked(**bad), asked(seeds=100, **bad)
    assert 0.55 < closed.value("goodput") < 0.75
    steps = to_si(closed.value("accelerator_power"), "W")
    assert to_si(closed.value("run_power"), "W") < 0.9 * steps
    for name, unit in (("energy", "kWh"), ("carbon_footprint", "kgCO2e")):
        assert played.percentiles[name]["mean"] == pytest.approx(to_si(closed.value(name), unit), rel=0.01)


def test_parts_add_up_and_percentiles_are_in_order():
    played = asked(seeds=40, spares=14, mtbf="12 h", maintenance="4h/4day", slow_nodes="1.3x6h/2day")
    assert math.fsum(part.value for part in played.run_parts) == pytest.approx(to_si(played.value("run_time"), "s"))
    assert played.run_parts[0].label == "useful work"
    labels = {part.label for part in played.run_parts}
    assert {"maintenance: stopped", "slow nodes: slower steps", "accelerators: restarts"} <= labels
    held = played.percentiles
    assert set(held) == {"run_time", "goodput", "tco", "rent", "energy", "carbon_footprint"}
    for each in held.values():
        assert each["p10"] <= each["p50"] <= each["p90"]
    assert held["run_time"]["p50"] == pytest.approx(played.value("run_time").magnitude)
    assert held["rent"]["p50"] == pytest.approx(played.value("rent").magnitude)
    assert Answer.from_dict(played.to_dict()) == played


def test_spares_are_swept():
    """Every number of spares is a simulated run of its own; one without an end has no cost, and is ranked last."""
    found = mlsysim.sweep(plan_of(simulate=True, seeds=8, mtbf="6 h"), over={"spares": [0, 40], "seeds": [4]}).ranked(
        "rent"
    )
    assert [point.settings["spares"] for point in found.points] == [40, 0]
    alone = mlsysim.sweep(plan_of(simulate=True, seeds=4, mtbf="6 h", spares=40), over={"seeds": [4]}).points[0].answer
    assert found.points[0].answer == alone
    assert alone.metrics == asked(simulate=True, seeds=4, mtbf="6 h", spares=40).metrics
    headers, rows = found.table()
    held = [dict(zip(headers, row, strict=True)) for row in rows]
    assert held[1]["Nine in ten within"] == "no end" and held[1]["Cost"] == "" and held[0]["Cost"].startswith("$")


@pytest.mark.parametrize("key", ["simulate", "start", "staleness"])
def test_a_space_says_that_plans_are_swept(key):
    space = {"kind": "training", "fixed": {"model": "Llama3_8B", "fleet": "64xH100"}, "axes": {key: [1, 2]}}
    with pytest.raises(InputError, match=f"mlsysim sweep PLAN {key}="):
        mlsysim.sweep(space)


def test_the_same_seeds_are_the_same_runs():
    one, other = (asked(seeds=10, spares=2).to_dict() for _ in range(2))
    assert one == other


def test_a_deadline_is_missed_in_some_runs():
    base = asked(seeds=40)
    middle = base.percentiles["run_time"]["p50"]
    answer = evaluate(plan_of(seeds=40, deadline=f"{middle * 0.9999} day"), change=False)
    check = next(each for each in answer.checks if each.limit == "deadline")
    assert not check.passed and "of the simulated runs miss it" in check.sentence
    assert 0.3 < answer.value("deadline_kept") < 0.7


def test_too_few_spares_have_no_end_and_elastic_runs_go_on():
    stuck = asked(seeds=4, spares=0, mtbf="3 h")
    assert stuck.value("goodput") == 0 and stuck.binding.limit == "goodput"
    assert any("4 did not end" in line for line in stuck.verdict)
    moving = asked(seeds=4, spares=0, mtbf="3 h", elastic=True)
    assert moving.value("goodput") > 0.5


def test_what_only_restarts_has_no_end():
    assert asked(seeds=1, mtbf="30 s").value("goodput") == pytest.approx(0, abs=1e-9)


def test_days_instead_of_tokens():
    played = evaluate_plainly(plan_of(tokens=None, duration_days=60, seeds=20))
    assert "run_time" not in played.percentiles and 0.9 < played.percentiles["goodput"]["p50"] < 1
    assert to_si(played.value("tokens"), "token") > 1e11


@pytest.mark.parametrize(
    ("ops", "words"),
    [
        ({"elastic": True}, "give spares too"),
        ({"preempted_every": "10 h"}, "give spares"),
        ({"simulate": False, "seeds": 4}, "leave simulate = false out"),
        ({"maintenance": "often"}, "such as 4h/30day"),
        ({"slow_nodes": "2x5day/3day"}, "shorter than"),
    ],
)
def test_what_cannot_be_is_a_sentence(ops, words):
    with pytest.raises(InputError, match=words):
        asked(**ops)


def test_groups_of_several_kinds_are_refused():
    with pytest.raises(InputError, match="not simulated"):
        evaluate_plainly(plan_of(on="512xH100 + 512xA100", simulate=True))


def test_goodput_is_explained_by_the_run():
    text = str(asked(seeds=10).explain("goodput"))
    assert "G = W / T" in text


def test_advice_is_kept_where_it_is_followed():
    """Nine in ten runs end in time with the spares that are advised, and not with two fewer; better checkpoints and restarts save time."""
    base = plan_of(on="2048xH100", seeds=24, spares=2, mtbf="6 h")
    words = " ".join(evaluate_plainly(base).verdict)
    spares = int(words.split("with spares = ")[1].split()[0])
    late = 1.01 * evaluate_plainly(plan_of(on="2048xH100", seeds=24, mtbf="6 h")).percentiles["run_time"]["p90"]
    ends = [
        evaluate_plainly(plan_of(on="2048xH100", seeds=24, mtbf="6 h", spares=n)).percentiles
        for n in (spares, spares - 2)
    ]
    assert ends[0]["run_time"]["p90"] <= late < (ends[1].get("run_time", {}).get("p90") or math.inf)
    enough = " ".join(evaluate_plainly(plan_of(on="2048xH100", seeds=24, spares=spares, mtbf="6 h")).verdict)
    assert "checkpoint_mode = " in enough and "in half the time" in enough


def test_the_run_in_the_middle_is_the_median_of_its_goodput_too():
    """Also of an even number of runs: what is longer has the lower goodput."""
    found = asked(seeds=10, spares=14, mtbf="12 h")
    assert found.percentiles["goodput"]["p50"] == pytest.approx(float(found.value("goodput")), rel=1e-9)
    assert found.percentiles["run_time"]["p50"] == pytest.approx(to_si(found.value("run_time"), "day"), rel=1e-9)


def test_stretches_of_the_run_in_the_middle():
    played = asked(seeds=10, spares=4).played
    assert len(played["hours"]) == len(played["state"]) + 1 == len(played["nodes"]) + 1 and len(played["days"]) == 10
    assert played["hours"] == sorted(played["hours"]) and {"training", "restarts"} <= set(played["state"])


def test_the_interval_of_a_run_without_spares_is_that_of_runs():
    """The closed form is of a run without a beginning: of one of a day it would say months, and an end sooner than its steps."""
    calibrated = plan_of(tokens=6e10, seeds=24, spares=0).replacing(hardware={"efficiency": None})
    played = evaluate_plainly(calibrated)
    (low, high), steps = played.metric("run_time").factors, played.metric("latency").factors
    assert 0.9 * steps[0] < low < 1 < high < 20
    # With more tokens than nodes last, those with more faults have no end.
    longer = evaluate_plainly(calibrated.replacing(workload={"tokens": 4e11}))
    assert longer.metric("run_time").interval.endswith(" or more") and longer.metric("goodput").low == 0
