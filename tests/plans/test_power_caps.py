"""A lower limit of power, asked as a user asks: training, serving, vision and images, at both fidelities."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mlsysim.errors import InputError
from mlsysim.hardware.registry import Hardware
from mlsysim.plans.evaluate import evaluate_plainly
from mlsysim.plans.plan import Plan
from mlsysim.timing.power import chip_power
from mlsysim.units.registry import to_si

CAPS = (600, 450, 300)
PLANS = {
    "training": (
        {
            "task": "training",
            "workload": {"model": "Llama3_8B", "batch_size": 256, "seq_len": 4096},
            "hardware": {"on": "64xH100"},
            "parallelism": {"tp": 1, "micro_batch": 1},
        },
        "tokens_per_second",
        "accelerator_power",
    ),
    "network": (
        {
            "task": "training",
            "workload": {"model": "ResNet50", "batch_size": 2048},
            "hardware": {"on": "8xH100"},
            "parallelism": {"dp": 8},
        },
        "tokens_per_second",
        "accelerator_power",
    ),
    "serving": (
        {
            "task": "serving",
            "workload": {"model": "Llama3_70B", "precision": "bf16"},
            "hardware": {"on": "8xH100"},
            "parallelism": {"tp": 8},
            "serving": {"prompt_tokens": 1000, "output_tokens": 200, "concurrency": 256},
        },
        "tokens_per_second",
        "accelerator_power",
    ),
    "vision": (
        {
            "task": "inference",
            "workload": {"model": "ResNet50", "batch_size": 128},
            "hardware": {"on": "1xH100"},
        },
        "throughput",
        "energy_per_sample",
    ),
}


@pytest.mark.parametrize("efficiency", [0.5, "calibrated"])
@pytest.mark.parametrize("name", PLANS)
def test_a_lower_cap_is_never_faster_and_saves_energy_to_a_sweet_spot(name, efficiency):
    document, rate, energy = PLANS[name]
    rates, drawn = [], []
    for cap in (None, *CAPS):
        hardware = document["hardware"] | {"efficiency": efficiency}
        hardware |= {} if cap is None else {"power_cap": f"{cap} W"}
        answer = evaluate_plainly(Plan.model_validate(document | {"hardware": hardware}))
        rates.append(to_si(answer.value(rate), "1/s"))
        if energy == "accelerator_power":
            watts = to_si(answer.value(energy), "W")
            assert cap is None or watts <= cap + 1e-6
            drawn.append(watts / rates[-1])
        else:
            drawn.append(to_si(answer.value(energy), "J"))
            assert cap is None or drawn[-1] * rates[-1] <= cap + 1e-6
    assert rates == sorted(rates, reverse=True)
    assert rates[-1] < rates[0]
    # Joules of accelerators for what is done: less at 450 W than without, and it hardly falls, or rises, below 300 W.
    assert drawn[0] >= drawn[1] >= drawn[2] and drawn[2] < 0.95 * drawn[0]


def test_a_cap_that_leaves_nothing_is_refused_in_one_sentence():
    document = PLANS["serving"][0]
    plan = Plan.model_validate(document | {"hardware": document["hardware"] | {"power_cap": "50 W"}})
    with pytest.raises(Exception, match="power cap must be above"):
        evaluate_plainly(plan)


@pytest.mark.parametrize(
    ("on", "words"),
    [("Cerebras_CS3", "must be above 2,530 W"), ("TPU_v5p", "so that its power is not known; give tdp, such as")],
)
def test_a_limit_that_nothing_can_keep_or_of_an_unknown_power_says_what_to_give(on, words):
    with pytest.raises(InputError, match=words):
        evaluate_plainly(Plan(task="inference", model="ViT_L_16", hardware={"on": on, "power_cap": "100 W"}))


WORK = {
    "training": ({"model": "GPT2", "batch_size": 64, "seq_len": 512}, {}, "latency"),
    "inference": ({"model": "ResNet50", "batch_size": 64}, {}, "latency"),
    "serving": ({"model": "Llama3_2_1B", "precision": "bf16"}, {"prompt_tokens": 1000, "output_tokens": 20}, "ttft"),
}
LOADS = (
    {"concurrency": 1},
    {"concurrency": 16},
    {"qps": 0.05},
    {"qps": 0.05, "prompt_tokens": 100000, "output_tokens": 1},
)


@given(
    st.sampled_from(list(WORK)),
    st.sampled_from(["H100", "H200", "B200", "A100", "MI300X", "L4"]),
    st.sampled_from([0.5, "calibrated"]),
    st.sampled_from(LOADS),
    st.lists(st.floats(0.02, 1), min_size=2, max_size=2, unique=True),
)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_lower_limit_at_random_is_never_faster_never_above_it_and_never_draws_more(
    task, chip, efficiency, load, shares
):
    """Any limit above what a chip draws asleep: of accelerators at work, and on average with those that wait."""
    workload, serving, slow = WORK[task]
    node = Hardware.get(chip)
    deep, tdp = chip_power(node).deep, to_si(node.tdp, "W")
    seen = []
    for share in sorted(shares, reverse=True):
        cap = deep + share * (tdp - deep)
        hardware = {
            "on": f"{2 if task == 'training' else 1}x{chip}",
            "efficiency": efficiency,
            "power_cap": f"{cap!r} W",
        }
        document = {"task": task, "workload": workload, "hardware": hardware}
        answer = evaluate_plainly(Plan.model_validate(document | ({"serving": serving | load} if serving else {})))
        if not answer.feasible:  # at such a clock more arrives than it answers
            return
        names = [name for name in ("accelerator_power", "run_power") if name in {each.name for each in answer.metrics}]
        watts = [to_si(answer.value(name), "W") for name in names]
        assert all(each <= cap * (1 + 1e-6) for each in watts)
        seen.append((to_si(answer.value(slow), "s"), *watts))
    (quicker, *more), (slower, *less) = seen
    assert slower >= quicker * (1 - 1e-9)
    assert all(low <= high * (1 + 1e-6) for low, high in zip(less, more, strict=True))
