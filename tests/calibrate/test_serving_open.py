"""Rows of open-loop runs as serving plans."""

from __future__ import annotations

import pytest

from mlsysim.calibrate.questions import Excluded, Skipped
from mlsysim.calibrate.tables import TABLES

# inference-sim/training, Llama-2-7B on an H100, stage 1: whole prompts are cached (README_serving_open, trap 1); nothing was fitted on it.
WARM = {
    "engine": "vLLM", "engine_version": "0.15.1 (fork with tracing)", "model": "Llama2_7B", "chip": "H100", "gpus": "1", "tp": "1",
    "pp": "1", "dp": "1", "ep": "1", "precision": "fp16", "kv_precision": "fp16", "arrival": "poisson", "rate_rps": "10",
    "input_tokens_mean": "591.63", "output_tokens_mean": "247", "prefix_caching": "on", "prefix_state": "warm",
    "computed_prefill_tokens_est": "8.5", "max_num_batched_tokens": "2048", "max_num_seqs": "128", "regime": "steady", "quality": "ok",
    "ttft_ms_mean": "29.45441", "tpot_ms_mean": "8.888187", "e2e_ms_mean": "2215.948",
}  # fmt: skip


def test_a_row_asks_for_means_at_its_rate():
    table = TABLES["serving_open"]
    found = {question.asked: question for question in table.questions(WARM)}
    assert set(found) == {"ttft", "tpot", "latency"}
    serving = found["ttft"].plan.serving
    assert (serving.qps, serving.prompt_tokens, serving.cached_prefix, serving.engine) == (10, 592, 584, "vLLM")
    values = {p.metric: p for p in table.predict(WARM)}
    # A few tokens of a prompt beside decoding are in a graph in vLLM, which the constant of a step with prompts does not know: 41 % long.
    assert abs(values["tpot_ms_mean"].error) < 0.45
    assert abs(values["e2e_ms_mean"].error) < 0.45
    # A cached prompt takes three decode steps and a front end of milliseconds, not fifty.
    assert abs(values["ttft_ms_mean"].error) < 0.7


@pytest.mark.parametrize(
    ("changed", "outcome"),
    [
        ({"arrival": "burst", "rate_rps": ""}, Excluded),
        ({"quality": "censored"}, Excluded),
        ({"regime": "overload"}, Excluded),
        ({"computed_prefill_tokens_est": "", "prefix_state": "unknown"}, Skipped),
    ],
)
def test_rows_without_a_steady_state_are_not_asked(changed, outcome):
    with pytest.raises(outcome):
        TABLES["serving_open"].questions(WARM | changed)


def test_older_engines_do_not_schedule_ahead():
    plan = TABLES["serving_open"].questions(WARM | {"engine_version": "0.8.3"})[0].plan
    assert plan.serving.engine == "vLLM_2025"


@pytest.mark.parametrize(
    ("engine", "version", "meant", "stands"),
    [
        ("TGI", "3.0", "vLLM_2025", "Text Generation Inference"), ("LightLLM", "", "SGLang", "LightLLM"), ("nim", "1.8", "TensorRT_LLM_2025", "NVIDIA NIM"),
        ("vllm-ascend", "nightly", "vLLM", ""), ("vLLM", "v0.9.1", "vLLM_2025", ""), ("brew", "", "vLLM_2025", "brew"),
    ],
)  # fmt: skip
def test_engines_without_constants_have_a_stand_in(engine, version, meant, stands):
    question = TABLES["serving_open"].questions(WARM | {"engine": engine, "engine_version": version})[0]
    assert question.plan.serving.engine == meant and question.guessed == (1 if stands else 0)
    assert any(text.startswith(f"stands in for {stands}") for text in question.inferred) == bool(stands)
