"""A quantity of zero is computed with or refused in a sentence, whatever the key: nothing divides by it."""

from __future__ import annotations

from typing import Any

import pytest

from mlsysim.errors import InputError
from mlsysim.plans.evaluate import evaluate
from mlsysim.plans.plan import Plan

BASES: dict[str, Any] = {
    "a run": {
        "task": "training",
        "workload": {"model": "Llama3_8B", "tokens": "1B"},
        "hardware": {"on": "16xH100"},
        "parallelism": {"tp": 2},
        "ops": {"seeds": 2, "spares": 1, "region": "Virginia", "start": "2026-12-01"},
    },
    "a service": {
        "task": "serving",
        "workload": {"model": "Llama3_8B"},
        "hardware": {"on": "2xH100"},
        "serving": {"prompt_tokens": 200, "output_tokens": 50, "concurrency": 4},
    },
}
KEYS = {key: leaf.quantity.unit for key, leaf in Plan.leaves().items() if leaf.quantity is not None}
REFUSED = ("ops.deadline", "ops.budget", "ops.mtbf", "ops.preempted_every", "serving.ttft", "serving.tpot")


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("base", BASES)
def test_zero(base: str, key: str) -> None:
    plan = Plan.model_validate(BASES[base])
    try:
        answer = evaluate(plan.with_settings({key: f"0 {KEYS[key]}"}))
    except InputError:
        return
    assert key not in REFUSED
    assert not [each for each in answer.metrics if "nan" in each.text or each.text.startswith(("inf", "-inf"))]
