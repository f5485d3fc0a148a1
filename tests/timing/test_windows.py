"""Engines that attend to whole texts unless they are told of a model's sliding windows."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlsysim.hardware.registry import Hardware
from mlsysim.models.registry import Models
from mlsysim.plans.evaluate import evaluate_plainly
from mlsysim.plans.plan import Plan
from mlsysim.timing.engine_step import EngineStep, engine_step
from mlsysim.timing.engines import engine
from mlsysim.units.registry import to_si

WINDOW = 4096


def step(model: str, windows: bool) -> EngineStep:
    named = engine("TensorRT_LLM_Cpp").model_copy(update={"windows": windows})
    return engine_step(Models.get(model), Hardware.get("H100"), named)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 32000), st.integers(1, 64))
def test_a_text_within_the_window_is_the_same_and_a_longer_one_that_of_full_attention(tokens: int, sequences: int):
    told, untold, full = (
        (s.time(sequences, tokens, 1, tokens).total, s.sequence_bytes(tokens))
        for s in (step("Mistral_7B", True), step("Mistral_7B", False), step("Mistral_7B_v0_2", True))
    )
    assert untold == pytest.approx(full)
    assert untold == pytest.approx(told) if tokens < WINDOW else untold > told


def test_layers_without_a_window_stay_as_they_are():
    for name in ("Llama3_8B", "DeepSeek_V3"):
        stack = Models.get(name).stack
        assert stack.unwindowed == stack
    gemma = Models.get("Gemma2_9B").stack
    assert gemma.unwindowed != gemma and gemma.unwindowed.layers == gemma.layers


def test_a_pool_for_windows_is_as_large_as_its_engine_made_it():
    """SGLang has 0.8 tokens of room in a layer with a window for each of another layer; vLLM keeps the window alone."""
    held = {
        name: engine_step(Models.get("Gemma3_27B"), Hardware.get("H100"), engine(name)).sequence_bytes(20000)
        for name in ("SGLang", "vLLM")
    }
    stack = Models.get("Gemma3_27B").stack
    whole, others = (each.cache_bytes(20000, 2.0) for each in (stack.unwindowed, stack.with_windows(0)))
    assert held["SGLang"] == pytest.approx(0.8 * whole + 0.2 * others)
    assert held["vLLM"] == pytest.approx(stack.cache_bytes(20000, 2.0)) and held["SGLang"] > 2 * held["vLLM"]


# Mistral-7B of TensorRT-LLM's performance overview, all requests at once: tokens a second. The engines' step times were fitted on
# these pages, whether they have windows was not.
MEASURED = [
    ("TensorRT_LLM_Cpp", "H100", "fp16", "fp16", 569.8),
    ("TensorRT_LLM_Cpp", "A100", "fp16", "fp16", 324.6),
    ("TensorRT_LLM_Cpp", "H200", "fp8", "fp8", 1676.0),
    ("TensorRT_LLM_Cpp_2025", "H200", "fp8", "fp8", 1822.7),
    ("TensorRT_LLM_Cpp_2025", "A100", "fp16", "fp16", 332.3),
]


@pytest.mark.parametrize(("name", "chip", "weights", "caches", "measured"), MEASURED)
def test_prompts_of_twenty_thousand_tokens(name: str, chip: str, weights: str, caches: str, measured: float) -> None:
    document: dict[str, Any] = {
        "task": "serving",
        "workload": {"model": "Mistral_7B", "precision": weights},
        "hardware": {"on": chip},
        "parallelism": {"tp": 1},
        "serving": {"prompt_tokens": 20000, "output_tokens": 2000, "engine": name, "cache_precision": caches}
        | {"offline": True, "concurrency": 1000, "requests": 1000},
    }
    answer = evaluate_plainly(Plan.model_validate(document))
    assert to_si(answer.value("tokens_per_second"), "1/s") == pytest.approx(measured, rel=0.15)
    assert any(each.name == "windows" for each in answer.assumed)
