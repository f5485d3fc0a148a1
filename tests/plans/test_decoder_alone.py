"""A model that sees is taken for its text decoder, and the answer says so."""

from __future__ import annotations

import pytest

from mlsysim.errors import InputError
from mlsysim.plans.answer import Answer
from mlsysim.plans.evaluate import evaluate
from mlsysim.plans.plan import Plan

SERVING = {"prompt_tokens": 256, "output_tokens": 64, "concurrency": 4}


@pytest.mark.parametrize(
    ("name", "alone"),
    [
        ("Qwen/Qwen2.5-VL-7B-Instruct", True),
        ("OpenGVLab/InternVL3-8B", True),
        ("Qwen/Qwen2.5-7B-Instruct", False),
        ("Qwen2-VL-7B", True),
        ("LLaVA", True),
    ],
)
def test_a_name_with_a_tower_says_that_the_tower_is_left_out(name: str, alone: bool) -> None:
    plan = Plan.model_validate({"workload": {"model": name}, "hardware": {"on": "1xH100"}, "serving": SERVING})
    assert ("tower" in evaluate(plan).assumptions) is alone


def test_a_model_with_its_tower_is_served_as_its_decoder_beside_the_tower() -> None:
    def asked(name: str) -> Answer:
        plan = {
            "workload": {"model": name},
            "hardware": {"on": "1xH100", "efficiency": "calibrated"},
            "serving": SERVING,
        }
        return evaluate(Plan.model_validate(plan))

    seeing, blind = asked("Qwen2-VL-7B"), asked("Qwen2-7B")
    assert "Qwen2-VL 7B" in seeing.subject
    assert seeing.value("tpot") == blind.value("tpot")
    # 0.63 G of the image tower and 0.04 G of its projector, in 16 bits.
    held = seeing.metric("memory").value - blind.metric("memory").value
    assert held.to("GB").magnitude == pytest.approx(2 * 0.6758, rel=0.01)


def test_two_towers_side_by_side_write_nothing() -> None:
    with pytest.raises(InputError, match="CLIP"):
        evaluate(Plan.model_validate({"workload": {"model": "CLIP"}, "hardware": {"on": "1xH100"}, "serving": SERVING}))
