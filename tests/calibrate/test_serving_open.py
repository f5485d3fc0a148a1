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
    # A cached prompt takes three decode steps and a front end of milliseconds, not fifty.
    assert all(abs(values[name].error) < 0.15 for name in ("tpot_ms_mean", "e2e_ms_mean", "ttft_ms_mean"))


# The stage before it, at half the rate: a hundred prompts in turn, of which the first of each is computed whole.
COLD = WARM | {
    "prefix_state": "cold for the first 100 requests, then warm", "computed_prefill_tokens_est": "25.05767", "rate_rps": "5", "requests": "3000",
    "ttft_ms_mean": "25.0366", "ttft_ms_p50": "24.2611", "ttft_ms_p90": "28.37332", "ttft_ms_p99": "45.97017",
}  # fmt: skip


def test_percentiles_of_a_run_that_began_cold_have_its_cold_prompts():
    found = {question.asked: question.plan.serving for question in TABLES["serving_open"].questions(COLD)}
    assert (found["ttft"].cached_prefix, found["ttft"].prefix_hits) == (567, None)
    played = found["ttft_p99"]
    assert (played.cached_prefix, played.prefix_hits, played.prefix_tokens) == (None, 584 / 592, 58_400)
    warm = TABLES["serving_open"].questions(WARM | {"requests": "6000", "ttft_ms_p99": "50.8"})[-1].plan.serving
    assert (warm.cached_prefix, warm.prefix_hits) == (584, None)
    values = {p.metric: p for p in TABLES["serving_open"].predict(COLD)}
    # A thirtieth of the requests began cold: the tail is theirs, and the middle is not.
    tail = values["ttft_ms_p99"].predicted / values["ttft_ms_p50"].predicted
    assert tail > 1.25 and values["ttft_ms_p90"].predicted < 1.2 * values["ttft_ms_p50"].predicted
    assert abs(values["ttft_ms_p99"].error) < 0.3


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
        ("vllm-ascend", "nightly", "vLLM", "vLLM's plugin for Ascend"), ("vLLM", "v0.9.1", "vLLM_2025", ""), ("brew", "", "vLLM_2025", "brew"),
    ],
)  # fmt: skip
def test_engines_without_constants_have_a_stand_in(engine, version, meant, stands):
    question = TABLES["serving_open"].questions(WARM | {"engine": engine, "engine_version": version})[0]
    assert question.plan.serving.engine == meant and question.guessed == (1 if stands else 0)
    assert any(text.startswith(f"stands in for {stands}") for text in question.inferred) == bool(stands)
