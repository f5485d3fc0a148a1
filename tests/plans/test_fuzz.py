"""Generated inputs, most of them bad: one sentence or an answer without NaN, never anything else."""

from __future__ import annotations

from types import ModuleType

import pytest

COUNTS = {"plan": 500, "fleet": 500, "unit": 600, "resolver": 500, "text": 400, "config": 300}
SEED = 2


@pytest.mark.parametrize("kind", COUNTS)
def test_bad_input_is_a_sentence(kind: str, fuzz: ModuleType) -> None:
    found = {index: problem for index in range(COUNTS[kind]) if (problem := fuzz.attempt(kind, SEED, index))}
    assert not found, "\n".join(f"--kinds {kind} --seed {SEED} --first {i}: {p}" for i, p in list(found.items())[:5])


def test_the_checks_of_answers_can_fail(fuzz: ModuleType) -> None:
    from mlsysim.plans.evaluate import evaluate

    answer = evaluate({"workload": {"model": "ResNet50"}, "hardware": {"on": "A100"}}, change=False)
    assert fuzz.broken(answer) == []
    assert fuzz.broken(answer.model_copy(update={"time_parts": answer.time_parts[:1] * 2}))
    assert list(fuzz.not_finite({"a": [1.0, float("nan")]})) == [".a[1]"]
