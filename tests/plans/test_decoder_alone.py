"""A model that sees is taken for its text decoder, and the answer says so."""

from __future__ import annotations

import pytest

from mlsysim.plans.evaluate import evaluate
from mlsysim.plans.plan import Plan

SERVING = {"prompt_tokens": 256, "output_tokens": 64, "concurrency": 4}


@pytest.mark.parametrize(
    ("name", "alone"),
    [("Qwen/Qwen2.5-VL-7B-Instruct", True), ("OpenGVLab/InternVL3-8B", True), ("Qwen/Qwen2.5-7B-Instruct", False)],
)
def test_a_name_with_a_tower_says_that_the_tower_is_left_out(name: str, alone: bool) -> None:
    plan = Plan.model_validate({"workload": {"model": name}, "hardware": {"on": "1xH100"}, "serving": SERVING})
    assert ("tower" in evaluate(plan).assumptions) is alone
