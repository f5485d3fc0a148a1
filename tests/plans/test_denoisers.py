"""Whole images of a denoiser and single passes through it, asked as people ask."""

from __future__ import annotations

import pytest

from mlsysim.errors import InputError
from mlsysim.plans.evaluate import evaluate, evaluate_plainly
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


def test_an_image_is_called_one_and_compiled_code_is_the_first_change():
    answer = evaluate({"task": "inference", "model": "StableDiffusion_XL", "on": "A100", "steps": 30})
    assert "; an image takes " in answer.headline
    assert {metric.name: metric.label for metric in answer.metrics}["latency"] == "Time of all steps"
    assert answer.change is not None
    assert "torch.compile" in answer.change.words
    compiled = evaluate({"task": "inference", "model": "StableDiffusion_XL", "on": "A100", "stack": "compiled"})
    assert "; a pass takes " in compiled.headline
    assert compiled.change is None or "torch.compile" not in compiled.change.words


def test_an_image_on_several_accelerators_is_calibrated():
    plan = {"workload": {"model": "StableDiffusion_XL", "phase": "generate"}, "hardware": {"on": "8xH100"}}
    plan["hardware"] |= {"efficiency": 0.5}
    with pytest.raises(InputError, match="made on one accelerator, and 8 are given; leave the efficiency out"):
        evaluate_plainly(Plan.model_validate({"task": "inference"} | plan))
