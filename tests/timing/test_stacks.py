"""The software of a training run where nothing is said, and what its interval rests on."""

from __future__ import annotations

import math
from typing import Any

import pytest

from mlsysim.hardware.registry import Hardware
from mlsysim.plans.answer import Answer
from mlsysim.plans.evaluate import evaluate_plainly
from mlsysim.plans.plan import Plan
from mlsysim.timing.profile import profile, standing_in
from mlsysim.timing.stacks import ALONE, default_stack, stack, stack_names
from mlsysim.timing.training_chip import lone_chip
from mlsysim.zoo.intervals import interval, known


@pytest.mark.parametrize(
    ("chip", "expected"),
    [
        ("H100", "bridge"),
        ("GB200", "bridge"),
        ("A100", "megatron23"),
        ("V100_16GB", "megatron21"),
        ("T4", "megatron21"),
        ("TPU_v4", "jax"),
        ("TPU_v5p", "maxtext"),
    ],
)
def test_default_is_software_of_the_chips_time(chip: str, expected: str) -> None:
    assert default_stack(Hardware.get(chip), 8) == expected
    assert default_stack(Hardware.get(chip), 1) == ALONE


def test_stacks_named_by_chips_exist() -> None:
    for chip in Hardware:
        own = profile(chip, "training")
        assert {own.stack, *own.stacks} <= set(stack_names())


def gpt3(stack: str | None = None, count: int = 1024, batch: int = 1536, **parallelism: Any) -> Answer:
    work = {"model": "GPT3_175B", "batch_size": batch, "seq_len": 2048}
    hardware = {"on": f"{count}xA100"} | ({} if stack is None else {"stack": stack})
    return evaluate_plainly(
        Plan.model_validate({"task": "training", "workload": work, "hardware": hardware, "parallelism": parallelism})
    )


def test_a100_between_the_published_systems() -> None:
    """175B on 12,288 A100 (MegaScale, arXiv 2402.15627): Megatron-LM 41.2 % MFU, MegaScale, which hides all that can be, 55.2 %. Nothing was
    fitted to them."""
    found = {
        name: gpt3(name, 12288, 6144, tp=8, pp=8, virtual_stages=6, micro_batch=1)
        for name in ("nemo23", None, "mcore24")
    }
    old, default, new = (float(answer.value("mfu")) for answer in found.values())
    assert old < default < new
    assert old == pytest.approx(0.412, rel=0.1) and new == pytest.approx(0.552, rel=0.1)
    # Each system's figure lies in the interval of its own software.
    for name, published in (("nemo23", 0.412), ("mcore24", 0.552)):
        mfu = found[name].held["mfu"]
        assert float(mfu.low) < published < float(mfu.high)


def width(answer: Answer) -> float:
    found = next(each for each in answer.metrics if each.name == "latency")
    return math.log(found.high / found.low)


def test_interval_of_a_format_that_the_software_was_never_run_in_is_wider() -> None:
    """Dense models by Megatron Bridge were published in FP8 and NVFP4 alone; its 16 bits are extrapolated, as much as other formats that were
    left out of the fit were off."""

    def trained(model: str, precision: str, stack: str = "bridge") -> Answer:
        work = {"model": model, "batch_size": 128, "seq_len": 8192, "precision": precision}
        hardware = {"on": "8xH100", "stack": stack}
        return evaluate_plainly(Plan.model_validate({"task": "training", "workload": work, "hardware": hardware}))

    seen, unseen = trained("Llama3_8B", "fp8"), trained("Llama3_8B", "bf16")
    band, known = interval("training dense bridge", "format"), interval("training dense bridge")
    assert band.rows >= 30 and width(seen) < width(unseen) == pytest.approx(2 * math.log(band.high))
    assert band.wider == pytest.approx(math.log(band.high) / math.log(known.high)) and band.wider > 1.05
    assert "no published run of the stack bridge (Megatron-Bridge, eager host) computes in 16 bits" in unseen.interval
    assert unseen.interval.endswith(f"so it is {band.wider:.1f} times as wide.")
    assert "computed in" not in seen.interval + trained("Llama3_8B", "bf16", "fsdp23").interval


def test_every_published_format_is_known() -> None:
    """What answers ask for is what the fit calls a run."""
    formats, kinds = known("training", "formats"), {"dense", "adapters", "hybrid", "encoder", "mixture of experts"}
    for name in formats:
        kind, stack, bits, last = name.removeprefix("training ").rsplit(" ", 3)
        assert kind in {*kinds, "encoder-decoder"} and stack in stack_names() and last == "bits" and bits in "4 8 16"
    assert {"training dense fsdp23 16 bits", "training mixture of experts bridge 16 bits"} <= formats


def test_interval_of_software_never_run_on_the_chip_is_wider() -> None:
    known, unknown = gpt3("nemo23", tp=8, pp=8, micro_batch=1), gpt3("mcore24", tp=8, pp=8, micro_batch=1)
    band, own = interval("training dense mcore24", "software"), interval("training dense mcore24")
    assert band.rows >= 30 and width(known) < width(unknown) == pytest.approx(2 * math.log(band.high))
    assert band.wider == pytest.approx(math.log(band.high) / math.log(own.high)) and band.wider > 1.05
    said = "no published run of the stack mcore24 (Megatron-core 0.5 to 0.10) is on this chip"
    assert f"{said}, so it is {band.wider:.1f} times as wide" in unknown.interval
    assert "none of" not in known.interval


def test_a_stand_in_gives_its_shares_and_nothing_stays() -> None:
    chip = Hardware.get("A100")
    own = lone_chip(chip, "bf16").half_rate
    with standing_in(A100=Hardware.get("H100")):
        assert not lone_chip(chip, "bf16").measured("nemo23")
        other = lone_chip(chip, "bf16").half_rate
    h100 = lone_chip(Hardware.get("H100"), "bf16").half_rate
    assert other == pytest.approx(h100 * 312 / 989.4, rel=1e-3)
    assert lone_chip(chip, "bf16").half_rate == own


def test_attention_of_llm_foundry_is_triton():
    """Between the first FlashAttention and the second (arXiv 2307.08691, section 4.1: up to 1.5 times forward and twice backward)."""
    assert stack("fsdp23").attention == "triton" and stack("neox22").attention == "fa1"
    for chip in ("A100", "H100"):
        kernels = profile(Hardware.get(chip), "training").attention
        first, ours, second = (kernels.kernel_rate(name) for name in ("fa1", "triton", "fa2"))
        assert first < ours < second and 1.3 < second / ours < 2.5
