"""Readers of serving_runs.csv and inference.csv on rows of their kinds."""

from __future__ import annotations

import pytest

from mlsysim.calibrate.questions import Excluded, Skipped
from mlsysim.calibrate.tables import TABLES
from mlsysim.calibrate.tables.serving_runs import plan_of

RUN = {
    "engine": "vllm",
    "measured": "2025-10-29",
    "model": "meta-llama/Llama-3.1-70B",
    "gpu": "h200_sxm",
    "precision": "fp8",
    "kv_dtype": "fp8",
    "mode": "agg",
    "isl": "1024",
    "osl": "1024",
    "length_min_fraction": "0.8",
    "concurrency": "16",
    "tp": "4",
    "attention_dp": "1",
    "moe_tp": "1",
    "moe_ep": "1",
    "token_budget": "8192",
    "mtp_tokens": "0",
    "decode_slots": "",
    "ttft_ms": "100",
    "tpot_ms": "10",
}
ROW = {
    "source": "trtllm-0.17",
    "model": "llama3.1-70b",
    "gpu": "H200-141GB",
    "n_gpus": "4",
    "tp": "4",
    "pp": "1",
    "ep": "1",
    "precision_weights": "fp8",
    "precision_kv": "fp8",
    "isl": "1000",
    "osl": "1000",
    "batch_or_concurrency": "max (saturated, in-flight batching)",
    "scenario": "max-throughput offline",
    "metric": "output_throughput",
    "value": "6000",
    "unit": "tokens/s",
    "notes": "",
}


def test_a_run_gives_both_metrics():
    found = {p.metric: p for p in TABLES["serving_runs"].predict(RUN)}
    assert set(found) == {"tpot_ms", "ttft_ms"}
    assert 5 < found["tpot_ms"].predicted < 30
    assert found["ttft_ms"].predicted > found["tpot_ms"].predicted
    assert found["tpot_ms"].regime == "serving tpot"


def test_a_disaggregated_run():
    row = RUN | {
        "mode": "disagg",
        "engine": "trtllm",
        "model": "deepseek-ai/DeepSeek-R1",
        "gpu": "gb200",
        "precision": "fp4",
        "tp": "",
        "prefill_workers": "1",
        "decode_workers": "1",
    }
    for pool, ranks in (("prefill", "4"), ("decode", "32")):
        row |= {f"{pool}_tp": "1", f"{pool}_attention_dp": ranks, f"{pool}_moe_tp": "1", f"{pool}_moe_ep": ranks}
    free = {p.metric: p.predicted for p in TABLES["serving_runs"].predict(row | {"concurrency": "512"})}
    tight = {
        p.metric: p.predicted
        for p in TABLES["serving_runs"].predict(row | {"concurrency": "512", "decode_slots": "128"})
    }
    assert tight["ttft_ms"] > 3 * free["ttft_ms"]
    assert tight["tpot_ms"] < free["tpot_ms"]


def test_rows_that_are_not_scored():
    with pytest.raises(Excluded, match="same run"):
        TABLES["serving_runs"].predict(RUN | {"duplicate_of": "x"})
    with pytest.raises(Excluded, match="not recorded"):
        TABLES["serving_runs"].predict(RUN | {"unusable": "speculative decoding not recorded"})
    with pytest.raises(Excluded, match="range"):
        TABLES["inference"].predict(ROW | {"value": "40-50"})


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"gpu": "h900"}, "unknown chip"),
        ({"model": "nobody/Nothing-1B"}, "unknown model"),
        ({"precision": "fp3"}, "unknown precision"),
        ({"tp": ""}, "tp is not given"),
        ({"tp": "3"}, "does not divide"),
    ],
)
def test_what_is_not_known_is_skipped(change, reason):
    with pytest.raises(Skipped, match=reason):
        TABLES["serving_runs"].predict(RUN | change)


def test_draft_tokens_and_missing_settings_are_listed():
    row = RUN | {"mtp_tokens": "", "token_budget": ""}
    inferred = TABLES["serving_runs"].predict(row)[0].inferred
    assert "no draft tokens" in inferred
    assert "token budget 8192" in inferred
    faster = TABLES["serving_runs"].predict(RUN | {"mtp_tokens": "3"})[0].predicted
    assert faster < TABLES["serving_runs"].predict(RUN)[0].predicted


def test_fp4_is_what_the_model_is_published_in():
    change = {"model": "openai/gpt-oss-120b", "precision": "fp4", "gpu": "b200_sxm", "moe_tp": "4"}
    assert plan_of(RUN | change, []).workload.precision == "mxfp4"


@pytest.mark.parametrize(
    ("change", "low", "high"),
    [
        ({}, 4000, 9000),
        ({"unit": "tokens/s/GPU"}, 1000, 2250),
        ({"batch_or_concurrency": "64", "scenario": "static batch offline"}, 500, 6000),
        ({"batch_or_concurrency": "1", "osl": "1", "scenario": "first token latency", "metric": "ttft"}, 20, 90),
        ({"batch_or_concurrency": "QPS=4", "metric": "request_throughput"}, 3.5, 4),
        ({"batch_or_concurrency": "QPS=INF", "metric": "output_throughput"}, 1000, 9000),
        (
            {"batch_or_concurrency": "1", "source": "gpt-fast", "scenario": "decode batch 1", "osl": "200"}
            | {"metric": "decode_tokens_per_s"},
            60,
            250,
        ),
    ],
)
def test_kinds_of_inference_rows(change, low, high):
    assert low < TABLES["inference"].predict(ROW | change)[0].predicted < high


def test_steady_state_and_mlperf():
    steady = ROW | {
        "source": "ml-energy-leaderboard",
        "isl": "lm-arena-chat",
        "osl": "400",
        "precision_kv": "",
        "batch_or_concurrency": "32",
        "scenario": "vLLM steady state, task=lm-arena-chat, max_num_seqs=32",
        "metric": "itl_median",
    }
    itl = TABLES["inference"].predict(steady)[0]
    rate = TABLES["inference"].predict(steady | {"metric": "output_throughput"})[0]
    assert rate.predicted < 32 / (itl.predicted / 1e3)
    assert "16-bit cache" in itl.inferred
    mlperf = ROW | {"model": "llama2-70b", "isl": "mlperf dataset", "osl": "294", "n_gpus": "8", "tp": ""}
    offline = TABLES["inference"].predict(mlperf | {"scenario": "mlperf Offline llama2-70b-99"})[0].predicted
    interactive = TABLES["inference"].predict(mlperf | {"scenario": "mlperf Interactive llama2-70b-99"})[0].predicted
    assert interactive < offline
    with pytest.raises(Skipped, match="engine"):
        TABLES["inference"].predict(ROW | {"source": "somewhere"})
