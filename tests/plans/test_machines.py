"""What a plan could run on: numbers that do, their states, and why some chips do not."""

from __future__ import annotations

import pytest

from mlsysim.plans.evaluate import evaluate
from mlsysim.plans.least_service import least_services
from mlsysim.plans.machines import chips_for, machine_for
from mlsysim.plans.plan import Plan

SERVED = Plan.model_validate(
    {
        "task": "serving",
        "workload": {"model": "Llama3_8B"},
        "hardware": {"on": "8xH100", "chip": {"price": "1 USD"}},
        "parallelism": {"tp": 8},
        "serving": {"prompt_tokens": 500, "output_tokens": 100, "concurrency": 8, "ttft": "1 s", "tpot": "20 ms"},
    }
)
TRAINED = Plan.model_validate(
    {"task": "training", "workload": {"model": "Llama3_8B", "batch_size": 64}, "hardware": {"on": "16xH100"}}
)
PASS = Plan.model_validate(
    {"task": "inference", "workload": {"model": "ResNet50"}, "hardware": {"on": "Jetson_AGX_Orin_64GB"}}
)


def test_the_plans_own_chip_comes_first_and_pairs_of_a_pass_are_of_its_size():
    assert chips_for(SERVED)[0] == "H100" and "B200" in chips_for(SERVED)
    small = chips_for(PASS)
    assert small[0] == "Jetson_AGX_Orin_64GB" and "Jetson_Nano" in small and "STM32_L4R5" not in small


def test_limits_of_a_service_get_the_least_number_that_keeps_them():
    found = machine_for(SERVED, "H100")
    assert found.count == 1 and found.state != "fails" and found.answer is not None
    assert found.answer.plan.hardware.chip is None, "an edited figure is of the chip that was edited"
    assert found.answer == evaluate(found.answer.plan, change=False), "pressing the row shows the same"


def test_a_rate_is_sized_as_plan_sizes_it():
    plan = SERVED.replacing(serving={"concurrency": None, "qps": 20.0})
    found = machine_for(plan, "H100")
    assert (
        found.count
        == least_services(plan.replacing(parallelism={"tp": None}, hardware={"chip": None}), ["H100"])[0].accelerators
    )


def test_without_a_goal_there_are_as_many_as_now_or_more_where_they_do_not_do():
    same = machine_for(TRAINED, "H200")
    assert same.count == 16 and same.spare is not None and 0 < same.spare < 1
    big = TRAINED.replacing(workload={"model": "Llama3_70B"}, hardware={"on": "2xH100"})
    more = machine_for(big, "H100")
    assert more.count > 2 and more.answer is not None and more.answer.feasible


@pytest.mark.parametrize(
    ("plan", "chip", "says"),
    [
        (PASS.replacing(workload={"model": "Llama3_70B"}), "Jetson_Nano", "Does not fit"),
        (
            SERVED.replacing(constraints={"assert": ["usd_per_mtoken <= 1"]}),
            "MI325X",
            "is not known, so that it has no cost of a million output tokens (usd_per_mtoken)",
        ),
        (TRAINED.replacing(workload={"precision": "fp16"}), "TPU_v5p", "no fp16 arithmetic"),
    ],
)
def test_a_chip_that_does_not_do_says_why(plan, chip, says):
    found = machine_for(plan, chip)
    told = found.reason if found.answer is None else found.answer.headline
    assert says in told and (found.answer is None) == (found.state == "none")
