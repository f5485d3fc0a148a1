"""Fine-tuning whose memory was published: adapters beside frozen weights, in 16 bits and in four; no constant has seen any of it."""

from __future__ import annotations

from typing import Any

import pytest

from mlsysim import train
from mlsysim.plans.answer import Answer
from mlsysim.units.registry import to_si

BENCHMARK = 0.10


def held(answer: Answer, *without: str) -> float:
    """Gigabytes on the fullest device."""
    assert answer.memory is not None
    return sum(part.value for part in answer.memory.parts if not any(word in part.label for word in without)) / 1e9


@pytest.mark.parametrize(
    ("model", "chip", "gigabytes"),
    [("Llama1_65B", "A6000", 41), ("Llama1_33B", "RTX_4090", 21), ("Llama1_7B", "RTX_4090", 5)],
)
def test_adapters_on_four_bits(model: str, chip: str, gigabytes: float) -> None:
    """QLoRA, arXiv 2305.14314: 65B on one GPU of 48 GB, 33B on 24 GB; memory as in its figure 6."""
    keys: dict[str, Any] = {"batch_size": 16, "seq_len": 512, "lora_rank": 64, "precision": "nf4"}
    assert train(model, on=f"1x{chip}", **keys).feasible
    assert train(model, on=f"1x{chip}", micro_batch=1, **keys).feasible
    answer = train(model, on=f"1x{chip}", micro_batch=1, recompute="full", **keys)
    assert held(answer, "driver") == pytest.approx(gigabytes, rel=0.20)


QWEN = {"micro_batch": 1, "recompute": "full", "stack": "transformers", "lora_rank": 64}


@pytest.mark.parametrize(
    ("model", "length", "gigabytes", "seconds"),
    [
        *(("Qwen_7B", 2048, 23.8, 5.2), ("Qwen_7B", 4096, 29.7, 10.1), ("Qwen_7B", 8192, 36.6, 21.3)),
        *(("Qwen_14B", 2048, 37.4, 8.4), ("Qwen_14B", 4096, 42.5, 17.0), ("Qwen_14B", 8192, 55.2, 36.0)),
    ],
)
def test_adapters_of_qwen(model: str, length: int, gigabytes: float, seconds: float) -> None:
    """README of QwenLM/Qwen, "Profiling of Memory and Speed": one A100, eight sequences one after the other; no constant has seen it."""
    answer = train(model, on="1xA100", batch_size=8, seq_len=length, **QWEN)
    assert held(answer) == pytest.approx(gigabytes, rel=BENCHMARK)
    assert to_si(answer.value("latency"), "s") == pytest.approx(seconds, rel=0.15)


OFFLOADED = {"lora_rank": 64, "lora_targets": "all", "offload_activations": 1.0}
FEW = {"lora_rank": 8, "seq_len": 2048}
EVERY = FEW | {"lora_targets": "all"}


@pytest.mark.parametrize(
    ("model", "on", "keys", "gibibytes"),
    [
        ("Llama3.2_3B", "1xA100", {"recompute": "none"}, 42.9),
        ("Llama3.2_3B", "1xA100", {}, 24.9),
        ("Llama3.2_3B", "1xA100", OFFLOADED, 8.5),
        ("Llama3.2_3B", "1xA100", OFFLOADED | {"precision": "nf4"}, 4.6),
        ("Llama3_8B", "1xRTX_4090", EVERY, 16.2),
        ("Llama3_8B", "1xA6000", FEW | {"recompute": "none"}, 30.3),
        ("Llama3_8B", "1xRTX_4090", EVERY | {"precision": "nf4"}, 7.4),
        ("Llama3_70B", "8xA100", EVERY | {"batch_size": 16, "tp": 1}, 27.6),
    ],
)
def test_tensors_of_torchtune(model: str, on: str, keys: dict[str, Any], gibibytes: float) -> None:
    """README of pytorch/torchtune, "Memory and training speed" and "Optimization flags": two packed sequences, compiled, chunked cross entropy, peak of what
    the allocator handed out; no constant has seen it."""
    settings: dict[str, Any] = {"batch_size": 2, "seq_len": 4096, "recompute": "full", "stack": "torchtune"}
    answer = train(model, on=on, **(settings | keys))
    assert held(answer, "driver", "reserve") * 1e9 / 2**30 == pytest.approx(gibibytes, rel=BENCHMARK)


def test_frozen_weights_are_gathered_as_they_are_stored() -> None:
    """FSDP2 gathers the four-bit tensors of a frozen layer and each product expands its own: two layers of 405B in nf4 are 3.3 GB, in 16 bits 12.8."""
    keys: dict[str, Any] = EVERY | {"batch_size": 16, "tp": 1, "recompute": "full", "stack": "torchtune"}
    answer = train("Llama3_405B", on="8xA100", precision="nf4", **keys)
    assert answer.memory is not None
    weights = next(part.value for part in answer.memory.parts if part.label.startswith("weights"))
    # Shared in four bits and a little more, beside the table and the head in 16 bits, which stay whole, and two layers.
    table, layer = 2 * 128_256 * 16_384, 401.6e9 / 126
    four = 4.25 / 8
    assert weights == pytest.approx(four * 401.6e9 / 8 + 2 * table * (1 + 1 / 8) + 2 * four * layer, rel=0.03)


@pytest.mark.parametrize(("model", "gigabytes"), [("Qwen_7B", 13.9), ("Qwen_14B", 19.9), ("Qwen_72B", 64.1)])
def test_adapters_of_qwen_on_four_bits(model: str, gigabytes: float) -> None:
    """The same page, Q-LoRA at 2,048 tokens, whose adapters stand beside all products (c_attn, c_proj, w1, w2), in 32 bits."""
    keys = QWEN | {"batch_size": 8, "seq_len": 2048, "precision": "gptq"}
    fewer, all_of_them = (held(train(model, on="1xA100", **keys, **more)) for more in ({}, {"lora_targets": "all"}))
    assert fewer < all_of_them == pytest.approx(gigabytes, rel=0.10)


@pytest.mark.parametrize(
    ("model", "length", "seconds"),
    [
        *(("Qwen_7B", 4096, 11.6), ("Qwen_14B", 512, 6.3), ("Qwen_14B", 4096, 20.1)),
        *(("Qwen_72B", 256, 27.4), ("Qwen_72B", 2048, 59.5), ("Qwen_72B", 8192, 179.8)),
    ],
)
def test_weights_that_operators_expand_take_their_time(model: str, length: int, seconds: float) -> None:
    """The same page: GPTQ's kernels have no backward pass, so that each product expands its weights by operators of PyTorch, 16.5 bytes a weight; no
    constant has seen it."""
    answer = train(model, on="1xA100", batch_size=8, seq_len=length, precision="gptq", **QWEN)
    assert to_si(answer.value("latency"), "s") == pytest.approx(seconds, rel=0.08)


@pytest.mark.parametrize(
    ("model", "length", "gibibytes"),
    [
        *(("Llama3_1_8B", 932, 12), ("Llama3_1_8B", 2551, 16), ("Llama3_1_8B", 5789, 24), ("Llama3_1_8B", 12264, 40)),
        *(("Llama3_1_8B", 15502, 48), ("Llama3_1_8B", 28454, 80), ("Llama3_3_70B", 6916, 80)),
    ],
)
def test_context_that_fills_a_card(model: str, length: int, gibibytes: float) -> None:
    """https://docs.unsloth.ai/basics/unsloth-benchmarks: the longest context of "Hugging Face + FA2" with 4-bit weights and adapters of rank 32 beside
    all products, one sequence at a time; no constant has seen it."""
    keys = {"micro_batch": 1, "recompute": "full", "stack": "transformers", "lora_rank": 32, "lora_targets": "all"}
    answer = train(model, on="1xH200", batch_size=1, seq_len=length, precision="nf4", **keys)
    assert held(answer) == pytest.approx(gibibytes * 2**30 / 1e9, rel=0.05)


def test_what_qwen_fits_on() -> None:
    """The same page: 72B in 4 bits on one A100 up to 8,192 tokens (75.6 GB); its adapters in 16 bits on four by ZeRO 3 and not without; all parameters of
    7B by DeepSpeed's ZeRO 3 on two (139.2 and 148.0 GB of both), not on one."""
    one = train("Qwen_72B", on="1xA100", batch_size=8, seq_len=8192, precision="gptq", **QWEN)
    assert one.feasible and held(one) == pytest.approx(75.6, rel=BENCHMARK)
    for stage, fits in ((3, True), (2, False)):
        keys = {"batch_size": 32, "seq_len": 2048, "tp": 1, "pp": 1, "zero": stage, **QWEN}
        assert train("Qwen_72B", on="4xA100", **keys).feasible is fits
    whole = {"micro_batch": 1, "recompute": "full", "stack": "neox22"}
    assert not train("Qwen_7B", on="1xA100", batch_size=8, seq_len=512, **whole).feasible
    for length, gigabytes in ((256, 139.2), (512, 148.0)):
        two = train("Qwen_7B", on="2xA100", batch_size=16, seq_len=length, zero=3, **whole)
        assert two.feasible and 2 * held(two) == pytest.approx(gigabytes, rel=BENCHMARK)
