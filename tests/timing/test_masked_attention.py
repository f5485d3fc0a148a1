"""Answers of engines whose kernel computes each query head by itself: what shares keys saves bytes and no work."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlsysim.calibrate.tables import TABLES
from mlsysim.hardware.registry import Hardware
from mlsysim.models.registry import Models
from mlsysim.timing.engine_step import EngineStep, engine_step
from mlsysim.timing.engines import engine


def step(model: str, name: str, chip: str = "H200") -> EngineStep:
    return engine_step(Models.get(model), Hardware.get(chip), engine(name), precision="fp8", tp=4)


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 512), st.integers(16, 4096))
def test_a_group_of_queries_takes_longer_and_one_query_a_key_as_long(sequences: int, context: int) -> None:
    for model, grouped in (("Falcon_180B", True), ("Llama2_7B", False)):
        masked, shared = (
            step(model, name).time(sequences, context).total for name in ("TensorRT_LLM_Cpp_masked", "TensorRT_LLM_Cpp")
        )
        assert masked > shared if grouped else masked == pytest.approx(shared)


def test_what_is_added_is_the_work_of_the_queries() -> None:
    """29 queries a key: 4 x context x width operations a token, at 0.16 of the chip's vectors, on a fourth of the heads."""
    longer = [step("Falcon_180B", "TensorRT_LLM_Cpp_masked").time(1024, context).total for context in (1024, 2048)]
    model, rate = Models.get("Falcon_180B"), 0.16 * 67e12
    work = 4 * 1024 * 1024 * 14848 * 80 / 4 / rate
    assert model.heads == 232 and longer[1] - longer[0] == pytest.approx(work, rel=0.12)


# Tokens a second of a GPU under releases 0.6 to 0.9 (performance.md), of which 0.9 alone was in a fit.
MEASURED = [
    *[("trtllm-0.9.0", "falcon-180b", "H200", 4, 1024, 128, 990), ("trtllm-0.8.0", "falcon-180b", "H100", 8, 1024, 128, 836)],
    *[("trtllm-0.6.1", "llama2-70b", "H100", 4, 480, 128, 1486), ("trtllm-0.6.1", "llama2-70b", "A100", 4, 240, 128, 525)],
    *[("trtllm-0.8.0", "mistral-7b", "H200", 1, 56, 2048, 3868), ("trtllm-0.8.0", "mistral-7b", "L40S", 1, 56, 2048, 1721)],
]  # fmt: skip


@pytest.mark.parametrize(("source", "model", "chip", "tp", "batch", "prompt", "measured"), MEASURED)
def test_long_answers_of_early_releases(
    source: str, model: str, chip: str, tp: int, batch: int, prompt: int, measured: float
) -> None:
    row = {"source": source, "model": model, "gpu": chip, "n_gpus": f"{tp}", "tp": f"{tp}", "precision_weights": "fp8"} | {
        "isl": f"{prompt}", "osl": "2048", "batch_or_concurrency": f"{batch}", "scenario": "static batch offline",
        "metric": "output_throughput", "value": f"{measured}", "unit": "tokens/s/GPU",
    }  # fmt: skip
    found = TABLES["inference"].predict(row)[0]
    assert abs(found.error) < 0.2 and any("query head by itself" in text for text in found.inferred)
    later = TABLES["inference"].predict(row | {"source": "trtllm-0.11.0"})[0]
    assert later.predicted >= found.predicted
