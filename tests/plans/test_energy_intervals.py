"""Intervals of energy, carbon and the cost of energy: power and time, whose errors are independent."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlsysim.plans.answer import Answer
from mlsysim.plans.evaluate import evaluate_plainly
from mlsysim.plans.plan import Plan
from mlsysim.report.build import build_report
from mlsysim.report.markdown import to_markdown
from mlsysim.units.registry import to_si
from mlsysim.zoo.intervals import independent, interval, to_power

BY_ENERGY = ("electricity", "energy", "carbon_footprint")


def asked(task: str, model: str, on: str, hardware: dict | None = None, **parts: dict) -> Answer:
    parts = {name: dict(part) for name, part in parts.items()}
    work = {"model": model, **parts.pop("workload", {})}
    document = {"task": task, "workload": work, "hardware": {"on": on, **(hardware or {})}, "ops": {"region": "US_Avg"}}
    document["ops"] |= parts.pop("ops", {})
    return evaluate_plainly(Plan.model_validate(document | parts))


def trained(**more: dict) -> Answer:
    more = {"workload": {"batch_size": 256, "tokens": 10**11}, "parallelism": {"tp": 1, "micro_batch": 1}} | more
    return asked("training", "Llama3_8B", "64xH100", **more)


def ends(answer: Answer, name: str) -> tuple[float, float]:
    found = answer.metric(name).factors
    assert found is not None
    return found


@given(st.floats(0.1, 1), st.floats(1, 9), st.floats(0.1, 1), st.floats(1, 9))
def test_independent_errors_add_in_squares(low, high, below, above):
    found = independent((low, high), (below, above))
    assert found is not None
    assert found[0] <= min(low, below) + 1e-12 and found[1] >= max(high, above) - 1e-12
    assert found[0] >= low * below - 1e-12 and found[1] <= high * above + 1e-9
    assert independent((low, high), None) == pytest.approx((low, high))
    assert independent(None, None) is None and to_power(None, 0.5) is None


def test_energy_of_a_run_has_the_interval_of_its_time_and_of_its_power():
    answer = trained()
    time, power, energy = (ends(answer, name) for name in ("run_time", "power", "energy"))
    assert math.log(energy[0]) ** 2 == pytest.approx(math.log(time[0]) ** 2 + math.log(power[0]) ** 2)
    assert all(ends(answer, name) == pytest.approx(energy) for name in BY_ENERGY)
    owning = ends(answer, "tco")
    assert energy[0] < owning[0] < time[0] and owning[1] >= time[1]
    assert "independent" in answer.assumptions["interval_of_energy"]


def test_energy_of_given_days_has_the_interval_of_power_alone():
    answer = trained(workload={"batch_size": 256}, ops={"duration_days": 10})
    assert ends(answer, "energy") == pytest.approx(ends(answer, "power"))


@pytest.mark.parametrize("cap", [None, 500])
def test_no_end_of_a_power_exceeds_a_limit(cap):
    answer = trained(hardware={} if cap is None else {"power_cap": f"{cap} W"})
    assert to_si(answer.metric("accelerator_power").high, "W") <= (cap or 700) + 1e-6


def test_energy_of_a_token_has_the_interval_of_power_and_of_the_rate():
    answer = asked("serving", "Llama3_8B", "H100", serving={"concurrency": 16})
    rate, power = ends(answer, "tokens_per_second"), ends(answer, "power")
    found = independent((1 / rate[1], 1 / rate[0]), power)
    for name in ("energy_per_token", "carbon_per_mtoken"):
        assert ends(answer, name) == pytest.approx(found)
    assert ends(answer, "usd_per_mtoken") == pytest.approx((1 / rate[1], 1 / rate[0]), rel=1e-2)


def test_a_pass_of_vision_has_one_too():
    answer = asked("inference", "ResNet50", "A100", workload={"batch_size": 64})
    time, energy = ends(answer, "latency"), ends(answer, "energy_per_sample")
    assert energy[0] < time[0] and ends(answer, "carbon_per_million") == pytest.approx(energy)


def test_first_order_has_none_and_a_chip_that_nobody_measured_a_wider_one():
    assert trained(hardware={"efficiency": 0.4}).metric("energy").low is None
    known, other = (interval("energy per token", *unseen) for unseen in ((), ("chip",)))
    assert other.high > known.high and interval("energy of training", "chip").extrapolating


def test_json_and_report_have_them():
    answer = trained()
    text = str(answer.to_dict()["metrics"]["macro.energy"]["interval"])
    assert " to " in text and text in to_markdown(build_report(answer.plan))
