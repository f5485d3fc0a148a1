"""The software of a training run where nothing is said, and what its interval rests on."""

from __future__ import annotations

from typing import Any

import pytest

from mlsysim.hardware.registry import Hardware
from mlsysim.plans.answer import Answer
from mlsysim.plans.evaluate import evaluate_plainly
from mlsysim.plans.plan import Plan
from mlsysim.timing.profile import profile, standing_in
from mlsysim.timing.stacks import ALONE, default_stack, stack_names
from mlsysim.timing.training_chip import lone_chip


@pytest.mark.parametrize(
    ("chip", "expected"),
    [("H100", "bridge"), ("GB200", "bridge"), ("A100", "nemo23"), ("V100_16GB", "nemo23"), ("TPU_v4", "jax")],
)
def test_default_is_software_of_the_chips_generation(chip: str, expected: str) -> None:
    assert default_stack(Hardware.get(chip), 8) == expected
    assert default_stack(Hardware.get(chip), 1) == ALONE


def test_stacks_named_by_chips_exist() -> None:
    for chip in Hardware:
        own = profile(chip, "training")
        assert {own.stack, *own.stacks} <= set(stack_names())


def gpt3(stack: str | None = None, **parallelism: Any) -> Answer:
    work = {"model": "GPT3_175B", "batch_size": 1536, "seq_len": 2048}
    hardware = {"on": "1024xA100"} | ({} if stack is None else {"stack": stack})
    return evaluate_plainly(
        Plan.model_validate({"task": "training", "workload": work, "hardware": hardware, "parallelism": parallelism})
    )


def test_a100_stays_below_what_was_published() -> None:
    """The best published GPT-type runs on 128 and more A100 reach 54 % (Korthikanti et al. 2022: 51.4 to 54.2 % for 175B and 530B)."""
    assert 0.48 < gpt3().value("mfu") < 0.55


def test_interval_of_software_never_run_on_the_chip_is_wider() -> None:
    known, unknown = gpt3("nemo23", tp=8, pp=8, micro_batch=1), gpt3("bridge", tp=8, pp=8, micro_batch=1)

    def width(answer: Answer) -> float:
        found = next(each for each in answer.metrics if each.name == "latency")
        return float(found.high / found.low)

    assert width(unknown) > 1.5 * width(known)
    assert "none of them with this software on this chip" in unknown.interval
    assert "none of them" not in known.interval


def test_a_stand_in_gives_its_shares_and_nothing_stays() -> None:
    chip = Hardware.get("A100")
    own = lone_chip(chip, "bf16").half_rate
    with standing_in(A100=Hardware.get("H100")):
        assert not lone_chip(chip, "bf16").measured("nemo23")
        other = lone_chip(chip, "bf16").half_rate
    h100 = lone_chip(Hardware.get("H100"), "bf16").half_rate
    assert other == pytest.approx(h100 * 312 / 989.4, rel=1e-3)
    assert lone_chip(chip, "bf16").half_rate == own
