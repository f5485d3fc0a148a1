"""Whole images of a denoiser and single passes through it, asked as people ask."""

from __future__ import annotations

from mlsysim.plans.evaluate import evaluate_plainly
from mlsysim.plans.plan import Plan
from mlsysim.units.registry import to_si


def asked(**work):
    plan = {"task": "inference", "workload": {"model": "StableDiffusion_XL"} | work, "hardware": {"on": "A100"}}
    answer = evaluate_plainly(Plan.model_validate(plan))
    return answer, to_si(answer.value("latency"), "s")


def test_who_says_the_steps_asks_for_the_image():
    (one, single), (_, thirty), (_, sixty) = asked(), asked(steps=30), asked(steps=60)
    assert asked(steps=30, phase="generate")[1] == thirty
    assert thirty > 30 * single
    assert 1.8 * thirty < sixty < 2 * thirty  # text and image are encoded and decoded once
    assert "with steps" in one.assumptions["phase"]


def test_steps_of_one_pass_are_said_to_have_no_effect():
    answer, time = asked(steps=30, phase="inference")
    assert time == asked()[1]
    assert answer.assumptions["steps"] == "no effect on one pass"
