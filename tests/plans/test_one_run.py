"""One run, one answer: command line, audit, placement, scenario, sweep, server and resolvers say the same numbers of it."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from mlsysim import (
    CheckpointModel,
    DistributedModel,
    EconomicsModel,
    Grids,
    Hardware,
    ReliabilityModel,
    SustainabilityModel,
)
from mlsysim.api import service
from mlsysim.cases.checkpoint import writer_rate
from mlsysim.cases.failures import interruption_rate, joining_time
from mlsysim.cases.goodput import exact_interval
from mlsysim.cases.run_inputs import fallback_price
from mlsysim.engine.scenario import Scenario
from mlsysim.plans.audit import AUDITED, audit
from mlsysim.plans.evaluate import evaluate, evaluate_plainly
from mlsysim.plans.optimizing import best_placement
from mlsysim.plans.plan import Plan
from mlsysim.plans.resolve import find_fleets
from mlsysim.search.training import evaluate as sweep_points
from mlsysim.timing.power import waiting_power_of
from mlsysim.units.registry import quantity, to_si

EXACT = 1e-12
FLEET = find_fleets(AUDITED.hardware).one
LAYOUT = {"tp_size": 8, "zero_stage": 1, "microbatch_count": 32}


def computing(answer):
    """Share of the time in which a run computes: not that of checkpoints, G delta / tau, and restarts, 1 - exp(-R / M)."""
    names = ("checkpoint_time", "checkpoint_interval", "restart_time", "mtbf")
    write, interval, restart, mtbf = (to_si(answer.value(name), "s") for name in names)
    return 1 - answer.value("goodput") * write / interval + math.expm1(-restart / mtbf)


def numbers(answer):
    """What a run comes to, in one unit each."""
    units = {
        "mtbf": "h",
        "checkpoint_time": "s",
        "checkpoint_interval": "s",
        "tco": "USD",
        "energy": "kWh",
        "carbon_footprint": "kgCO2e",
        "water": "L",
        "power": "W",
    }
    found = {name: to_si(answer.value(name), unit) for name, unit in units.items()}
    return found | {name: answer.value(name) for name in ("expected_failures", "goodput")}


@pytest.fixture(scope="module")
def rough():
    """The audited plan at first order, which resolvers called by themselves can repeat."""
    return evaluate_plainly(AUDITED.replacing(hardware={"efficiency": 0.5}))


def test_audit_and_train_agree():
    found = audit(AUDITED)
    assert numbers(found.calibrated) == numbers(evaluate(AUDITED, change=False))


def test_the_server_agrees():
    plan = AUDITED.replacing(hardware={"efficiency": 0.5})
    document = service.call("evaluate", {"plan": plan.document()}).document
    mine = evaluate_plainly(plan).to_dict()
    assert document["metrics"] == mine["metrics"] and document["assumptions"] == mine["assumptions"]


def test_resolvers_agree_when_told_the_defaults_of_the_faces(rough):
    mine = numbers(rough)
    mfu = rough.value("mfu")
    saved = CheckpointModel().solve(
        "Llama3_70B", "H100", n_writers=512, writer_bandwidth=quantity(writer_rate(FLEET), "byte/s")
    )
    write = to_si(saved.write_time_seconds, "s")
    fleet = FLEET.model_copy(update={"mtbf_hours": interruption_rate(FLEET.node.accelerator).hours / 512})
    told = {"avg_recovery_time_s": 300 + write + 512 * joining_time()}
    told["checkpoint_interval"] = exact_interval(write, fleet.mtbf_hours * 3600)
    failing = ReliabilityModel().solve(fleet, 720, checkpoint_time_s=write, **told)
    drawn = {"mfu": mfu, "average_power": rough.value("run_power"), "include_host": True}
    costs = EconomicsModel().solve(FLEET, 30, grid="Quebec", kwh_price="region", cost_scope="all", **drawn)
    taken = SustainabilityModel().solve(FLEET, 30, "Quebec", **drawn)
    assert mine == pytest.approx(
        {
            "mtbf": to_si(failing.fleet_mtbf, "h"),
            "checkpoint_time": to_si(saved.write_time_seconds, "s"),
            "checkpoint_interval": to_si(failing.checkpoint_interval, "s"),
            "tco": costs.tco_usd,
            "energy": to_si(taken.total_energy_kwh, "kWh"),
            "carbon_footprint": taken.carbon_footprint_kg,
            "water": taken.water_usage_liters,
            "power": to_si(taken.power, "W"),
            "expected_failures": failing.expected_failures,
            "goodput": failing.goodput_ratio_exact,
        },
        rel=EXACT,
    )


def test_a_scenario_agrees(rough):
    scenario = Scenario(
        name="one run",
        workload="Llama3_70B",
        system=FLEET,
        batch_size=2048,
        seq_len=2048,
        region="Quebec",
        duration_days=30,
        layout=LAYOUT,
    )
    found = scenario.evaluate()
    held = {name: metric.value for level in found.levels for name, metric in level.metrics.items()}
    mine = numbers(rough)
    assert {
        "mtbf": to_si(held["fleet_mtbf"], "h"),
        "goodput": held["goodput_ratio"],
        "checkpoint_interval": to_si(held["checkpoint_interval"], "s"),
        "tco": held["tco_usd"],
        "energy": to_si(held["energy"], "kWh"),
        "carbon_footprint": held["carbon_kg"],
    } == pytest.approx(
        {n: mine[n] for n in ("mtbf", "goodput", "checkpoint_interval", "tco", "energy", "carbon_footprint")}, rel=EXACT
    )
    assert to_si(held["tokens"], "token") == pytest.approx(to_si(rough.value("tokens"), "token"), rel=EXACT)
    assert found.assumptions["kwh_price"] == rough.assumptions["kwh_price"]
    assert found.assumptions["checkpoint_time"] == rough.assumptions["checkpoint_time"]


def test_placement_agrees(rough):
    place = best_placement(AUDITED.replacing(hardware={"efficiency": 0.5}), 0.0, ["Quebec"]).top_candidates[0]
    mine = numbers(rough)
    assert (place["tco_usd"], place["carbon_footprint_kg"]) == pytest.approx(
        (mine["tco"], mine["carbon_footprint"]), rel=EXACT
    )


def test_a_point_of_a_sweep_agrees_on_random_plans():
    """Thirty plans: chips, sizes, places, lengths and prices at random, each as a plan and as a point of a sweep."""
    draw = random.Random(12)
    chips = [name for name in ("H100", "A100", "H200", "B200") if Hardware.get(name).unit_cost is not None]
    places = [name for name in Grids.keys() if Grids.get(name).wue is not None]  # noqa: SIM118
    for _ in range(30):
        chip, count = draw.choice(chips), 8 * 2 ** draw.randrange(6)
        model = draw.choice(["Llama3_8B", "GPT2", "Mistral_7B"])
        work = {"model": model, "batch_size": 4 * count, "seq_len": 1024, "precision": "bf16"}
        ops = {"region": draw.choice(places)}
        if draw.random() < 0.5:
            work["tokens"] = 10 ** draw.uniform(9, 12)
        else:
            ops["duration_days"] = draw.uniform(1, 100)
        if draw.random() < 0.3:
            ops["electricity"] = "0.09 USD/kWh"
        if draw.random() < 0.3:
            ops["checkpoint_time"] = "45 s"
        plan = Plan(
            task="training",
            workload=work,
            hardware={"on": f"{count}x{chip}", "efficiency": 0.4},
            parallelism={"tp": 2, "zero": 1, "micro_batch": 1},
            ops=ops,
        )
        answer = evaluate_plainly(plan)
        fleet = find_fleets(plan.hardware).one
        fixed = {
            "model": model,
            "fleet": fleet,
            "batch_size": 4 * count,
            "seq_len": 1024,
            "precision": "bf16",
            "efficiency": 0.4,
            "overlap_comm": True,
            "update_step": True,
            "zero_stage": 1,
            "micro_batch": 1,
            "grid": ops["region"],
            "tokens": work.get("tokens"),
            "duration_days": ops.get("duration_days"),
            "kwh_price": ops.get("electricity"),
            "checkpoint_time_s": ops.get("checkpoint_time"),
        }
        found = sweep_points({k: v for k, v in fixed.items() if v is not None}, {"tp": np.array([2])})
        mine = numbers(answer)
        assert mine["goodput"] == pytest.approx(found["goodput_ratio"][0], rel=EXACT)
        assert mine["tco"] == pytest.approx(found["usd_per_run"][0], rel=EXACT)
        assert mine["energy"] == pytest.approx(found["kwh_per_run"][0], rel=EXACT)
        assert mine["carbon_footprint"] == pytest.approx(found["kgco2e_per_run"][0], rel=EXACT)
        assert mine["water"] == pytest.approx(found["litres_per_run"][0], rel=EXACT)
        assert to_si(answer.value("usd_per_mtoken"), "USD") == pytest.approx(found["usd_per_mtoken"][0], rel=EXACT)


def test_without_a_region_the_price_is_that_of_the_default_grid_and_said():
    answer = evaluate_plainly(AUDITED.replacing(ops={"region": None}, hardware={"efficiency": 0.5}))
    assert f"{fallback_price():g} USD/kWh" in answer.assumptions["kwh_price"]
    origins = {each.name: each.origin for each in answer.assumed}
    assert origins["kwh_price"] == "default" and answer.assumptions["pue"].startswith("1.1, as in Hyperscale")
    drawn = {"average_power": answer.value("run_power"), "include_host": True}
    costs = EconomicsModel().solve(FLEET, 30, kwh_price=fallback_price(), cost_scope="all", **drawn)
    assert to_si(answer.value("tco"), "USD") == pytest.approx(costs.tco_usd, rel=EXACT)


@pytest.mark.parametrize("efficiency", [0.5, "calibrated"])
def test_joules_of_the_steps_are_the_energy_of_the_run(efficiency):
    """The joules of a step's parts on every accelerator, and of those that wait while the run stands, with hosts, fans and network around
    them, for thirty days in a building of PUE 1.06; by scope they add up."""
    answer = evaluate_plainly(AUDITED.replacing(hardware={"efficiency": efficiency}))
    faces = {"overlap_comm": True, "update_step": True}
    step = DistributedModel().solve("Llama3_70B", FLEET, 2048, seq_len=2048, efficiency=efficiency, **faces, **LAYOUT)
    ledger = step.ledger
    each = ledger.total("joules") / ledger.seconds
    assert each == pytest.approx(to_si(answer.value("accelerator_power"), "W"), rel=EXACT)
    waiting, share = waiting_power_of(FLEET.node.accelerator), computing(answer)
    each = share * each + (1 - share) * waiting
    assert each == pytest.approx(to_si(answer.value("run_power"), "W"), rel=EXACT) and 0.98 < share < 1
    watts = 512 * (1.21 * each + 116) + 64 * 1410
    assert watts == pytest.approx(to_si(answer.value("power"), "W"), rel=EXACT)
    assert watts * 30 * 86400 * 1.06 == pytest.approx(to_si(answer.value("energy"), "J"), rel=EXACT)
    scopes = {part.label: part.value for part in answer.energy_parts}
    assert sum(scopes.values()) == pytest.approx(to_si(answer.value("energy"), "kWh"), rel=EXACT)
    assert scopes["Accelerators"] == pytest.approx(512 * each * 720 / 1000, rel=EXACT)
    assert scopes["Facility (PUE)"] == pytest.approx(watts * 720 * 0.06 / 1000, rel=1e-9)
    held = {part.name: part.joules for part in ledger.parts}
    assert held["idle"] == pytest.approx(waiting * ledger.seconds)
    assert all(joules >= 0 for joules in held.values())


def test_a_run_that_never_stands_draws_the_power_of_its_steps():
    answer = evaluate_plainly(AUDITED.replacing(ops={"mtbf": "1e12 h", "checkpoint_time": "1e-6 s"}))
    assert answer.value("goodput") == pytest.approx(1)
    assert to_si(answer.value("run_power") / answer.value("accelerator_power"), "") == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize(("spares", "apart"), [(2, 0.15), (4, 0.03), (8, 0.002)])
def test_a_run_that_waits_for_repairs_is_predicted_as_played(spares, apart):
    """Between the run in the middle and the mean over runs, which are as far apart as few runs wait for long."""
    plan = {
        "task": "training",
        "model": "Llama3_70B",
        "on": "1024xH100",
        "tp": 8,
        "zero": 1,
        "micro_batch": 1,
        "tokens": "4T",
        "efficiency": 0.5,
    }
    predicted, played = (
        evaluate_plainly(Plan.model_validate({**plan, "spares": spares, **more})) for more in ({}, {"simulate": True})
    )
    days, seen = to_si(predicted.value("run_time"), "day"), played.percentiles["run_time"]
    assert 0.999 * seen["p50"] <= days <= 1.001 * seen["mean"] and days == pytest.approx(seen["p50"], rel=apart)


def test_the_documents_price_is_that_of_the_resolver_alone(rough):
    """0.12 USD/kWh and 60 s hold where a resolver is called by itself, and in no answer to a plan."""
    assert EconomicsModel().solve(FLEET, 30, grid="Quebec").kwh_price_usd == 0.12
    assert rough.assumptions["kwh_price"].startswith("0.041 USD/kWh")
    assert rough.assumptions["checkpoint_time"].startswith("1.98 s: 988.4 GB at 500 GB/s")
    assert to_si(rough.value("checkpoint_time"), "s") == pytest.approx(70.6e9 * 14 / 500e9, rel=1e-3)


def test_a_run_that_waits_for_repairs_is_told_how_many_spares_would_do():
    """A quicker step is no remedy of a run that never ends."""
    work = {"model": "Llama3_405B", "batch_size": 2048, "seq_len": 8192, "tokens": 15.6e12}
    plan = {"task": "training", "workload": work, "hardware": {"on": "16384xH100", "stack": "meta24"}}
    plan["parallelism"] = {"tp": 8, "pp": 16, "virtual_stages": 8}
    few, enough = (evaluate(Plan.model_validate({**plan, "ops": {"spares": spares}})) for spares in (2, 59))
    assert "59" in few.verdict[0] and "would do" in few.verdict[0]
    assert not any("fp8" in change.words for change in few.changes)
    assert enough.value("goodput") > 0.9


def test_a_time_between_failures_that_is_one_accelerators_is_told_of() -> None:
    def said(mtbf: str, on: str) -> bool:
        document = {
            "task": "training",
            "model": "Llama3_8B",
            "batch_size": 1024,
            "seq_len": 2048,
            "on": on,
            "mtbf": mtbf,
        }
        return any(
            "is taken for one of the whole fleet" in line
            for line in evaluate_plainly(Plan.model_validate(document)).verdict
        )

    assert said("50000 h", "512xH100") and not said("50 h", "512xH100") and not said("50000 h", "2xH100")
