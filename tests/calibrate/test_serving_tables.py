"""Readers of serving_runs.csv and inference.csv on rows of their kinds."""

from __future__ import annotations

import pytest

from mlsysim.calibrate.questions import Excluded, Skipped
from mlsysim.calibrate.tables import TABLES
from mlsysim.calibrate.tables.serving_runs import plan_of
from mlsysim.plans.evaluate import evaluate

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


def test_pools_of_h200_are_those_of_the_later_list():
    """Both lists of TensorRT-LLM's pools are of the same runs."""
    pool = {
        **{"prefill_workers": "1", "prefill_tp": "1", "prefill_attention_dp": "8", "prefill_moe_tp": "1", "prefill_moe_ep": "8"},
        **{"decode_workers": "1", "decode_tp": "8", "decode_attention_dp": "1", "decode_moe_tp": "1", "decode_moe_ep": "8"},
    }  # fmt: skip
    run = RUN | pool | {"engine": "trtllm", "mode": "disagg", "gpu": "h200_sxm", "model": "deepseek-ai/DeepSeek-V3"}
    for isl, tp in (("8192", 8), ("1024", 1)):
        for listed in ({}, {"prefill_tp": "8", "prefill_attention_dp": "1"}):
            plan = plan_of(run | {"isl": isl, "tp": "", "attention_dp": ""} | listed, [])
            assert (plan.parallelism.tp, plan.parallelism.ep) == (tp, 8)


def test_a_client_that_measures_a_steady_state_asks_one_by_one():
    """Of a 70B in 8 bits on two H100 with 5,000 + 500 tokens 547, 689 and 834 ms were published at 5, 25 and 50 clients (NIM 1.8)."""
    more = {"isl": "5000", "osl": "500", "length_min_fraction": "1.0", "gpu": "h100_sxm", "tp": "2", "engine": "trtllm"}
    plans = [plan_of(RUN | more | {"client": client, "concurrency": "25"}, []) for client in ("", "genai-perf")]
    assert [each.serving.length_cv for each in plans] == [None, 0.1]
    assert plans[1].serving.requests == 50 * 25
    found = {
        p.metric: p.predicted
        for p in TABLES["serving_runs"].predict(RUN | more | {"client": "genai-perf", "concurrency": "25"})
    }
    assert 450 < found["ttft_ms"] < 1050


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


@pytest.mark.parametrize(
    ("engine", "gpu", "precision", "isl", "ranks", "tokens"),
    [
        ("sglang", "gb200", "fp8", "8192", 8, 16384),
        ("sglang", "gb200", "fp4", "8192", 1, 131072),
        ("sglang", "gb300", "fp4", "1024", 1, 8192),
        ("sglang", "b200_sxm", "fp8", "1024", 8, 4096),
        ("sglang", "h200_sxm", "fp8", "8192", 8, None),
        ("trtllm", "gb200", "fp4", "1024", 4, None),
    ],
)
def test_pools_read_as_many_prompts_together_as_their_recipes_say(engine, gpu, precision, isl, ranks, tokens):
    row = RUN | {
        "mode": "disagg",
        "engine": engine,
        "model": "deepseek-ai/DeepSeek-R1",
        "gpu": gpu,
        "precision": precision,
    }
    row |= {"isl": isl, "tp": "", "token_budget": "", "prefill_workers": "1", "decode_workers": "1"}
    for pool, tp, dp in (("prefill", 1 if ranks > 1 else 4, ranks), ("decode", 1, 32)):
        row |= {
            f"{pool}_tp": f"{tp}",
            f"{pool}_attention_dp": f"{dp}",
            f"{pool}_moe_ep": f"{dp}",
            f"{pool}_moe_tp": f"{tp}",
        }
    inferred: list[str] = []
    assert plan_of(row, inferred).serving.chunk_tokens == tokens
    assert any("share a prefill step" in rule for rule in inferred) == (tokens is None)


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
        ({"gpu": "h900"}, "no hardware named"),
        ({"model": "nobody/Nothing-1B"}, "no model named"),
        ({"precision": "fp3"}, "no precision named"),
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
        (
            {
                "batch_or_concurrency": "1",
                "osl": "1",
                "scenario": "first token latency",
                "metric": "ttft",
                "unit": "ms",
            },
            20,
            90,
        ),
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
        "unit": "ms",
    }
    itl = TABLES["inference"].predict(steady)[0]
    rate = TABLES["inference"].predict(steady | {"metric": "output_throughput"})[0]
    assert rate.predicted < 32 / (itl.predicted / 1e3)
    assert "16-bit cache" in itl.inferred
    mlperf = ROW | {"model": "llama2-70b", "isl": "mlperf dataset", "osl": "294", "n_gpus": "8", "tp": ""}
    offline = TABLES["inference"].predict(mlperf | {"scenario": "mlperf Offline llama2-70b-99"})[0].predicted
    interactive = TABLES["inference"].predict(mlperf | {"scenario": "mlperf Interactive llama2-70b-99"})[0].predicted
    assert interactive < offline


def _asked(change):
    (question,) = TABLES["inference"].questions({**ROW, **change})
    return question


@pytest.mark.parametrize(
    ("change", "precision", "said"),
    [
        ({"model": "Qwen/Qwen2.5-72B-Instruct-AWQ", "precision_weights": ""}, "awq", "awq weights, those of the checkpoint"),
        ({"model": "llama-2-13b.Q4_K_M.gguf", "precision_weights": "", "source": "llama.cpp", "tp": "1"}, "q4_k_m", "q4_k_m weights, those of the checkpoint"),
        ({"model": "nvidia/DeepSeek-R1-0528-FP4", "precision_weights": "", "gpu": "B200-SXM-180GB", "tp": "8"}, "nvfp4", "nvfp4 weights, those of the checkpoint"),
        ({"precision_weights": ""}, "bf16", "weights in bf16"),
        ({"precision_weights": "", "gpu": "Tesla V100-SXM2-32GB", "model": "llama-2-13b"}, "fp16", "weights in fp16"),
        ({"precision_weights": "", "gpu": "Tesla V100-SXM2-32GB"}, "int8", "weights in int8, as those in fp16 do not fit"),
    ],
)  # fmt: skip
def test_formats_that_a_row_leaves_open(change, precision, said):
    question = _asked(change)
    assert question.plan.workload.precision == precision
    assert said in question.inferred and question.guessed == int(said.startswith("weights"))


@pytest.mark.parametrize(
    ("change", "tp", "ep"),
    [
        ({"tp": "DEP8", "n_gpus": "8"}, 1, 8),
        ({"tp": "", "n_gpus": "8", "notes": "TEP8, MTP off"}, 8, 8),
        ({"tp": "", "n_gpus": "8", "scenario": "max-throughput offline TP4-EP2"}, 4, 2),
        ({"tp": "", "ep": "", "n_gpus": "8"}, 8, None),
    ],
)
def test_layouts_that_a_row_has_among_its_words(change, tp, ep):
    question = _asked({"model": "deepseek-r1", "gpu": "NVIDIA B200-SXM-180GB", **change})
    assert (question.plan.parallelism.tp, question.plan.parallelism.ep) == (tp, ep)
    assert any(text.startswith("layout") for text in question.inferred) is (ep is None)


def test_every_rank_of_its_own_requests_has_the_most_of_them():
    asked = {
        "model": "nvidia/DeepSeek-R1-FP4",
        "gpu": "B200",
        "tp": "DEP4",
        "ep": "",
        "n_gpus": "4",
        "precision_kv": "",
    }
    whole, apart = (_asked({**asked, "tp": tp}) for tp in ("TP4", "DEP4"))
    assert apart.plan.serving.max_num_seqs == 4 * whole.plan.serving.max_num_seqs
    assert apart.plan.serving.cache_precision == "fp8"  # TensorRT-LLM takes the cache's format from NVIDIA's checkpoint
    assert "fp8 cache, that of the checkpoint" in apart.inferred
    assert _asked({**asked, "source": "vllm-0.10"}).plan.serving.cache_precision == "bf16"


@pytest.mark.parametrize(
    ("change", "cache"),
    [
        ({"precision_weights": "fp8"}, "fp8"),
        ({"precision_weights": "fp4", "gpu": "B200"}, "fp8"),
        ({"precision_weights": "fp16"}, "bf16"),
        ({"precision_weights": "fp8", "source": "vllm-0.12"}, "bf16"),
        ({"precision_weights": "fp8", "source": "vllm-0.12", "model": "amd/Llama-3.1-70B-Instruct-FP8-KV"}, "fp8"),
        ({"precision_weights": "fp8", "source": "gaudi3-1.18", "gpu": "Gaudi3"}, "fp8"),
        ({"precision_weights": "bf16", "source": "gaudi3-1.18", "gpu": "Gaudi3"}, "bf16"),
    ],
)
def test_the_cache_is_as_narrow_as_the_weights_where_the_software_quantises_both(change, cache):
    assert _asked({"precision_kv": "", **change}).plan.serving.cache_precision == cache


def test_a_later_round_of_mlperf_has_the_interval_of_a_stand_in_and_a_large_one_an_answer():
    asked = {
        "model": "llama2-70b",
        "gpu": "NVIDIA B200-SXM-180GB",
        "scenario": "mlperf Offline llama2-70b-99",
        "isl": "",
        "osl": "280",
    }
    now, later = (_asked(asked | {"source": f"mlperf-inference-{release}"}) for release in ("5.1", "6.1"))
    assert now.plan == later.plan and later.guessed == now.guessed + 1
    assert _asked(asked | {"n_gpus": "512"}).plan.serving.concurrency == 1_000_000


@pytest.mark.parametrize(
    ("change", "engine"),
    [
        ({"gpu": "Gaudi2", "source": "intel-1.18"}, "gpt_fast"),
        ({"gpu": "Gaudi3", "source": "intel", "notes": "Optimum Habana"}, "gpt_fast"),
        ({"gpu": "Gaudi3", "source": "vllm-0.12"}, "vLLM"),
        ({"gpu": "H100", "source": "a page of 2024"}, "vLLM_2025"),
    ],
)
def test_batches_on_gaudi_are_written_by_one_compiled_graph(change, engine):
    asked = _asked({"batch_or_concurrency": "16", "scenario": "static batch", **change})
    assert asked.plan.serving.engine == engine and asked.guessed == (engine != "vLLM")


def test_mixtures_of_tensorrt_llm_from_1_0_on_have_attention_on_every_rank():
    asked = {"model": "Qwen3-235B-A22B", "gpu": "H200", "tp": "8", "ep": "", "n_gpus": "8"}
    older, newer, dense = (
        _asked(asked | change).plan
        for change in (
            {"source": "trtllm-0.21"},
            {"source": "trtllm-1.0"},
            {"source": "trtllm-1.0", "model": "llama3.3-70b"},
        )
    )
    assert (older.parallelism.tp, older.parallelism.ep) == (8, None)
    assert (newer.parallelism.tp, newer.parallelism.ep) == (1, 8)
    assert newer.serving.max_num_seqs == 8 * older.serving.max_num_seqs
    assert (dense.parallelism.tp, dense.parallelism.ep) == (8, None)


def test_a_test_of_llama_bench_is_no_pipeline_and_an_apple_chip_has_less_memory():
    change = {
        "model": "Llama 3 8B",
        "precision_weights": "Q4_K_M",
        "precision_kv": "",
        "source": "llama.cpp",
        "tp": "1",
    }
    change |= {"gpu": "M3 Max 40-Core GPU 64GB", "n_gpus": "1", "isl": "512", "osl": "0", "batch_or_concurrency": "1"}
    plan = _asked({**change, "scenario": "llama-bench pp512", "metric": "prefill_tokens_per_s"}).plan
    assert (plan.parallelism.pp, plan.hardware.on) == (None, "1xApple_M3_Max")
    with pytest.raises(Skipped, match="other memory"):
        _asked({**change, "gpu": "M3 Max 640GB"})


def test_a_rate_of_so_many_prompts_without_a_batch_is_that_of_a_full_engine():
    change = {
        "scenario": "benchmark_throughput",
        "batch_or_concurrency": "",
        "notes": "1,000 prompts; max_num_seqs 256",
    }
    serving = _asked({**change, "source": "vllm-0.6"}).plan.serving
    assert (serving.requests, serving.concurrency, serving.max_num_seqs, serving.offline) == (1000, 1000, 256, True)


@pytest.mark.parametrize(
    ("change", "prompt", "answer"),
    [
        ({"isl": "2k", "osl": "2K"}, 2048, 2048),
        ({"isl": "", "osl": "", "notes": "ISL/OSL 1k/1k"}, 1024, 1024),
        ({"isl": "ShareGPT", "osl": ""}, 215, 230),
        ({"isl": "", "osl": "", "source": "llama-bench", "notes": "llama.cpp"}, 512, 128),
    ],
)
def test_lengths_that_a_benchmark_implies(change, prompt, answer):
    serving = _asked(change).plan.serving
    assert (serving.prompt_tokens, serving.output_tokens) == (prompt, answer)


@pytest.mark.parametrize(
    ("change", "asked", "factor"),
    [
        ({"metric": "throughput", "unit": "tokens/s/GPU"}, "tokens_per_second_per_device", 1.0),
        ({"metric": "output_tokens_per_s", "unit": "tokens/min"}, "tokens_per_second", 60.0),
        ({"metric": "total_token_throughput"}, "tokens_per_second", 2.0),
        ({"metric": "sample_throughput", "unit": "samples/s"}, "requests_per_second", 1.0),
        ({"metric": "tpot_mean", "unit": "s", "batch_or_concurrency": "8"}, "tpot", 1e-3),
        ({"metric": "time_to_first_token", "unit": "ms", "batch_or_concurrency": "8"}, "ttft", 1.0),
        ({"metric": "Output tok/s", "unit": "tokens/s"}, "tokens_per_second", 1.0),
        ({"metric": "tokens/s/GPU", "unit": ""}, "tokens_per_second_per_device", 1.0),
        ({"metric": "output_throughput_per_gpu", "unit": "tokens/s"}, "tokens_per_second_per_device", 1.0),
        ({"metric": "Tokens/s/user", "unit": "tokens/s", "batch_or_concurrency": "8"}, "user_rate", 1.0),
        ({"metric": "Mean TTFT (ms)", "unit": "ms", "batch_or_concurrency": "8"}, "ttft", 1.0),
        ({"metric": "Time to first token", "unit": "ms", "batch_or_concurrency": "8"}, "ttft", 1.0),
        ({"metric": "req/s", "unit": "req/s"}, "requests_per_second", 1.0),
    ],
)
def test_metrics_and_units(change, asked, factor):
    question = _asked(change)
    assert (question.asked, question.factor) == (asked, pytest.approx(factor))


def test_a_rate_of_prompts_is_the_time_of_the_first_token():
    question = _asked(
        {"metric": "prefill_tokens_per_s", "value": "4000", "batch_or_concurrency": "2", "scenario": "static batch"}
    )
    assert question.asked == "ttft" and question.measured == pytest.approx(1000 * 2 / 4000 * 1e3)


def test_samples_of_a_benchmark_are_requests_and_tokens_are_tokens():
    row = {"source": "mlperf-inference-4.1", "model": "gptj-99", "scenario": "MLPerf Offline", "isl": "mlperf dataset", "osl": "", "n_gpus": "8"}  # fmt: skip
    samples, tokens = (
        _asked({**row, "metric": metric, "unit": unit})
        for metric, unit in (("sample_throughput", "samples/s"), ("output_throughput", "tokens/s"))
    )
    assert samples.asked == "requests_per_second" and tokens.asked == "tokens_per_second"
    assert _asked({"metric": "Throughput", "unit": "req/s"}).asked == "requests_per_second"


@pytest.mark.parametrize(
    ("source", "engine"),
    [
        ("TensorRT-LLM v0.17", "TensorRT_LLM_Cpp_2025"),
        ("tensorrt_llm 1.0", "TensorRT_LLM_2025"),
        ("vLLM 0.6", "vLLM_2025"),
        ("vLLM 0.15", "vLLM"),
        ("ollama", "llama_cpp"),
        ("TGI 2.0", "vLLM_2025"),
        ("a page of 2024", "vLLM_2025"),
        ("transformers 4.51.3", "transformers"),
        ("vLLM 0.15, transformers 4.57", "vLLM"),
        ("a page of 2026", "vLLM"),
    ],
)
def test_engines_by_what_people_call_them(source, engine):
    question = _asked({"source": source})
    assert question.plan.serving.engine == engine
    assert question.guessed == int(source.startswith(("TGI", "a page")))


@pytest.mark.parametrize("text", ["64", "concurrency=64", "c=64", "64 users"])
def test_numbers_of_requests_as_people_write_them(text):
    assert _asked({"batch_or_concurrency": text, "scenario": "static batch"}).plan.serving.concurrency == 64


def test_metrics_of_llama_bench():
    row = {"source": "llama.cpp", "model": "llama-2-7b.Q4_0.gguf", "precision_weights": "", "gpu": "Apple M2 Ultra (76-core GPU)", "tp": "1", "n_gpus": "1", "isl": "", "osl": "", "batch_or_concurrency": "", "scenario": "llama-bench", "unit": "tokens/s"}  # fmt: skip
    prompt, answer = (_asked({**row, "metric": metric, "value": "1000"}) for metric in ("pp512", "tg128"))
    assert prompt.asked == "ttft" and prompt.measured == pytest.approx(512) and prompt.regime == "prefill"
    assert answer.asked == "user_rate" and answer.plan.serving.output_tokens == 128
    assert answer.plan.workload.precision == "q4_0" and answer.plan.hardware.on == "1xApple_M2_Ultra"


def test_one_stream_and_a_limit_of_the_whole_answer_of_a_benchmark():
    row = {"source": "mlperf-inference-4.0", "model": "gptj-99", "isl": "", "osl": "", "precision_weights": "", "n_gpus": "1", "tp": ""}  # fmt: skip
    single = _asked({**row, "scenario": "mlperf SingleStream", "metric": "singlestream_p90_latency", "unit": "ms"})
    assert single.asked == "latency" and single.plan.serving.concurrency == 1
    server = _asked({**row, "scenario": "mlperf Server", "metric": "sample_throughput", "unit": "samples/s"})
    assert server.plan.serving.latency.to("s").magnitude == pytest.approx(15) and server.asked == "requests_per_second"
    assert "weights in fp8" in server.inferred


def test_a_multimodal_model_without_an_entry_is_its_language_model():
    question = _asked({"model": "Qwen3-VL-32B-Instruct", "precision_weights": "bf16", "tp": "1", "n_gpus": "1"})
    assert question.plan.workload.model == "Qwen3_32B"


def test_a_published_recipe_holds_over_columns_that_rules_filled_in():
    """https://github.com/SemiAnalysisAI/InferenceX: GLM-5's recipe in 8 bits sets no interval of looking for requests, that in 4 bits one of 10 steps;
    the list of 2026-04-22 has TP 4 for the pools of 4 devices that earlier lists give attention ranks."""
    glm = RUN | {
        "engine": "sglang",
        "model": "zhipuai/GLM-5",
        "gpu": "b200_sxm",
        "tp": "8",
        "moe_tp": "8",
        "poll_steps": "30",
    }
    assert plan_of(glm, []).serving.poll_steps is None
    assert plan_of(glm | {"precision": "fp4"}, []).serving.poll_steps == 10
    pools = {
        f"{pool}_{key}": value
        for pool in ("prefill", "decode")
        for key, value in {"tp": "1", "attention_dp": "4", "moe_tp": "1", "moe_ep": "4"}.items()
    }
    small = (
        RUN
        | pools
        | {
            "engine": "sglang",
            "mode": "disagg",
            "model": "deepseek-ai/DeepSeek-V3",
            "gpu": "gb200",
            "measured": "2025-12-21",
        }
    )
    small |= {"prefill_workers": "1", "decode_workers": "2"}
    found = plan_of(small, [])
    assert (found.parallelism.tp, found.serving.decode_tp, found.serving.decode_ep) == (4, 4, 1)
    assert plan_of(small | {"measured": "2026-05-01"}, []).serving.decode_ep == 4


def test_llama_cpp_has_layers_on_devices_one_after_the_other():
    """One user waits for every layer, whatever the number of cards; a layout that a row gives stays."""
    row = ROW | {"source": "llama.cpp", "model": "LLaMA 3 8B", "gpu": "3090 24GB", "precision_weights": "Q4_K_M"}
    row |= {"tp": "", "isl": "", "osl": "", "batch_or_concurrency": "1", "metric": "tg512", "scenario": "llama-bench"}
    row["precision_kv"] = ""
    alone, split, said = (
        TABLES["inference"].predict(row | given)[0]
        for given in ({"n_gpus": "1"}, {"n_gpus": "2"}, {"n_gpus": "2", "tp": "2"})
    )
    assert split.predicted == pytest.approx(alone.predicted, rel=0.05)
    assert said.predicted > 1.3 * alone.predicted
    assert "layout PP 2" in split.inferred


@pytest.mark.parametrize(
    ("written", "model", "meant"),
    [
        ("16", "Llama-3.1-8B", "bf16"),
        ("16-bit", "Llama-3.1-8B", "bf16"),
        ("FP16/BF16", "Llama-3.1-8B", "bf16"),
        ("4", "openai/gpt-oss-20b", "mxfp4"),
        ("8 bit", "Llama-3.1-8B", "w8a16"),
        ("GPTQ 4-bit g128", "Llama-3.1-8B", "gptq"),
        ("EXL2 3.0 bpw", "Llama-3.1-8B", "3bpw"),
    ],
)
def test_formats_as_tables_write_them(written: str, model: str, meant: str):
    asked = TABLES["inference"].questions(ROW | {"model": model, "precision_weights": written, "precision_kv": ""})
    assert asked[0].plan.workload.precision == meant


@pytest.mark.parametrize("metric", ["decode_rate", "eval speed", "Generation speed (tok/s)"])
def test_a_rate_of_one_user_by_other_names(metric: str):
    row = ROW | {"source": "exllamav2", "model": "Llama2 7B", "gpu": "RTX 4090", "n_gpus": "1", "tp": "1"}
    row |= {"isl": "", "osl": "", "batch_or_concurrency": "1", "scenario": "speed", "metric": metric}
    row |= {"precision_weights": "EXL2 4.0 bpw", "precision_kv": "", "value": "207"}
    found = TABLES["inference"].predict(row)[0]
    assert 120 < found.predicted < 300 and found.regime == "batch-1 decode"


@pytest.mark.parametrize(
    ("change", "requests"),
    [
        # Named: TensorRT-LLM's benchmark_config.yml.
        ({"source": "trtllm-0.14", "tp": "8", "n_gpus": "8"}, 8192),
        ({"source": "trtllm-0.14", "tp": "2", "n_gpus": "2", "isl": "2048", "osl": "2048"}, 2048),
        ({"source": "trtllm-0.14", "tp": "2", "n_gpus": "2", "isl": "128", "osl": "2048"}, 256),
        ({"source": "trtllm-0.11.0", "model": "gptj-6b", "tp": "1", "n_gpus": "1", "isl": "128", "osl": "2048"}, 128),
        # Of a model that it does not name: as before.
        ({"source": "trtllm-0.14", "model": "llama3.1-405b", "tp": "8", "n_gpus": "8"}, 2048),
        # Tuned, by hand: 0.95 (8 x 151.0 - 70.6 GB) / (163,840 x 4,224 B) = 1,561 to multiples of 256; 4,096 at most.
        ({"tp": "8", "n_gpus": "8", "isl": "128", "osl": "4096"}, 1792),
        ({"tp": "8", "n_gpus": "8", "isl": "128", "osl": "128"}, 4096),
        ({"tp": "8", "n_gpus": "8", "isl": "20000", "osl": "2000"}, 384),
        # Of each micro-batch of a pipeline: 4,096 / 4, four times.
        ({"tp": "2", "pp": "4", "n_gpus": "8", "isl": "128", "osl": "128"}, 4096),
        # Given in the row.
        ({"notes": "max_num_seqs 96"}, 96),
    ],
)
def test_engines_of_the_benchmark_are_for_as_many_requests_as_it_says(change, requests):
    found = TABLES["inference"].read(ROW | change)[0].plan.serving
    assert found.max_num_seqs == requests


def test_a_few_conversations_wait_for_the_longest_answer():
    """200 prompts of ShareGPT at once: steps of the last answers are those of a few; without end they are those of all."""
    row = ROW | {"source": "vllm", "model": "llama-3.1 8B", "gpu": "H200", "n_gpus": "1", "tp": "1"}
    row |= {"precision_weights": "bf16", "precision_kv": "", "isl": "ShareGPT", "osl": "ShareGPT", "value": "22.6"}
    row |= {"batch_or_concurrency": "", "scenario": "throughput test", "metric": "request_throughput", "unit": "1/s"}
    few, many = (
        TABLES["inference"].predict(row | {"notes": f"vLLM, {n} prompts"})[0].predicted for n in ("200", "20000")
    )
    assert 0.3 * many < few < 0.7 * many


def test_clients_of_a_server_ask_again():
    """A number beside more requests are clients; places and tokens of a step are the engine's own, of its server where one was asked."""
    row = ROW | {"source": "vllm", "scenario": "closed loop", "batch_or_concurrency": "64", "precision_kv": ""}
    asked = TABLES["inference"].questions(row | {"notes": "vLLM, 300 prompts"})[0].plan.serving
    assert (asked.concurrency, asked.requests, asked.offline) == (64, 300, False)
    assert (asked.max_num_seqs, asked.chunk_tokens) == (None, None)
    small = row | {"gpu": "L40S", "model": "llama3.1-8b", "n_gpus": "1", "tp": "1"}
    asked = TABLES["inference"].questions(small)[0].plan.serving
    assert (asked.concurrency, asked.requests, asked.max_num_seqs, asked.chunk_tokens) == (64, 64, None, 2048)


def test_the_cache_of_gpt_oss_is_16_bits_before_blackwell():
    row = ROW | {"source": "trtllm-1.1", "model": "GPT-OSS 20B", "precision_weights": "", "precision_kv": "", "tp": "1"}
    kept = {
        gpu: TABLES["inference"].questions(row | {"gpu": gpu, "n_gpus": "1"})[0].plan.serving.cache_precision
        for gpu in ("H100", "B200")
    }
    assert kept == {"H100": "bf16", "B200": "fp8"}


def test_generation_alone_is_without_prompts():
    row = ROW | {"source": "TensorRT Edge-LLM", "model": "Qwen3-4B", "gpu": "Jetson AGX Thor", "n_gpus": "1", "tp": "1"}
    row |= {"precision_weights": "INT4 AWQ", "isl": "370", "osl": "128", "batch_or_concurrency": "8", "unit": "tok/s"}
    row |= {"metric": "generation throughput", "precision_kv": ""}
    alone, both = (
        TABLES["inference"].predict(row | {"scenario": words})[0].predicted for words in ("vanilla decoding", "batch")
    )
    assert 1.02 * both < alone < 3 * both


@pytest.mark.parametrize(
    ("load", "requests"), [("request rate inf, 320 prompts", 320), ("request rate inf", 500), ("1,000 prompts", 1000)]
)
def test_as_many_requests_as_a_row_says_come_at_once(load: str, requests: int):
    row = {**ROW, "scenario": "online serving, ShareGPT", "batch_or_concurrency": load, "notes": ""}
    (question,) = TABLES["inference"].questions(row)
    assert question.plan.serving is not None
    assert (question.plan.serving.concurrency, question.plan.serving.requests) == (requests, requests)


@pytest.mark.parametrize(
    ("scenario", "notes", "engine"),
    [
        ("vllm bench serve sharegpt, 1000 prompts, request rate inf", "SGLang v0.5.3, --tp-size 8", "SGLang"),
        ("vllm bench serve, 1000 prompts, request rate inf", "TensorRT-LLM v1.0.0", "TensorRT_LLM_2025"),
        ("sglang.bench_serving random, 100 prompts", "vLLM 0.13", "vLLM"),
        ("vllm bench serve, 1000 prompts, request rate inf", "", "vLLM"),
    ],
)
def test_a_client_of_another_house_is_not_the_server(scenario: str, notes: str, engine: str):
    row = ROW | {"source": "a lab", "batch_or_concurrency": "", "scenario": scenario, "notes": notes}
    (question,) = TABLES["inference"].questions(row)
    assert question.plan.serving is not None and question.plan.serving.engine == engine


def test_conversations_that_come_at_once_wait_for_places_of_the_engine():
    """vLLM has 256 places on small devices and 1,024 on large ones, or as many as its option says."""
    row = ROW | {
        "source": "vllm",
        "batch_or_concurrency": "",
        "scenario": "vllm bench serve, 1000 prompts, request rate inf",
    }
    row |= {"model": "llama3.1-8b", "n_gpus": "1", "tp": "1", "precision_kv": ""}
    places = {
        (gpu, notes): TABLES["inference"].questions(row | {"gpu": gpu, "notes": notes})[0].plan.serving.max_num_seqs
        for gpu, notes in (("H100", ""), ("L40S", ""), ("H100", "--max-num-seqs 32"))
    }
    assert list(places.values()) == [1024, 256, 32]


def test_a_rate_counts_what_its_words_say():
    """Input and output together, or input alone, of prompts and answers of 1,000 tokens."""
    row = ROW | {"metric": "Throughput (tok/s)"}
    rates = {
        metric: TABLES["inference"].questions(row | {"metric": metric, "notes": notes})[0].factor
        for metric, notes in (
            ("Throughput (tok/s)", ""),
            ("throughput", "input and output together"),
            ("Total TPS", ""),
            ("Input token throughput (tok/s)", ""),
        )
    }
    assert list(rates.values()) == [1, 2, 2, 1]


def test_groups_of_attention_are_those_that_an_option_counts():
    """SGLang's --enable-dp-attention leaves one group without --dp-size."""
    row = ROW | {
        "source": "a lab",
        "model": "DeepSeek-R1",
        "n_gpus": "8",
        "tp": "8",
        "gpu": "H200",
        "precision_weights": "",
    }
    splits = [
        TABLES["inference"]
        .questions(row | {"notes": f"SGLang, --tp 8 --enable-dp-attention{more}"})[0]
        .plan.parallelism
        for more in ("", " --dp-size 8")
    ]
    assert [(each.tp, each.ep or 1) for each in splits] == [(8, 1), (1, 8)]


def test_what_names_no_client_ran_as_its_source_does():
    """Runs of the table's own tool have prompts join steps of answers; others were started as engines are."""
    run = RUN | {"engine": "sglang", "client": "", "token_budget": ""}
    own, other = (
        plan_of(run | {"source": source}, []).serving for source in ("aiconfigurator-silicon-sample", "a lab")
    )
    assert own is not None and other is not None
    assert (own.engine, own.requests, other.engine, other.requests) == ("SGLang_mixed", 800, "SGLang", None)


def test_places_under_sglang_are_those_of_states_that_layers_keep():
    """Three states a request where prefixes are cached, one in a benchmark that switches that off; models without states have no such limit."""
    run = RUN | {
        "engine": "sglang",
        "model": "Qwen/Qwen3.5-27B",
        "gpu": "b200",
        "precision": "bf16",
        "kv_dtype": "",
        "tp": "1",
    }
    rows = {"source": "a lab"}, {"source": "inferencex-870"}, {"source": "a lab", "model": "Qwen/Qwen3-32B"}
    plans = [plan_of(run | {"client": "clients in a loop", **more}, []) for more in rows]
    assert {plan.serving.max_num_seqs for plan in plans} == {None}
    places = [
        evaluate(plan.replacing(serving={"concurrency": 2000, "requests": None})).assumptions.get("max_num_seqs")
        for plan in plans
    ]
    kept, plain = (int(text.partition(":")[0]) for text in places[:2])
    assert 80 < kept < 140 and plain // 3 == kept and places[2] is None


def test_a_client_says_how_many_prompts_and_how_they_spread():
    run = RUN | {"length_min_fraction": "", "client": "sglang.bench_serving random, 80 prompts"}
    serving = plan_of(run, []).serving
    assert serving is not None and (serving.requests, serving.range_ratio) == (80, 0.0)


def test_prompts_of_software_that_nobody_fitted_are_as_unsure_as_its_first_tokens():
    """llama.cpp reads prompts on integrated processors at a third of what is predicted: what others published of first tokens, not of further ones."""
    row = ROW | {
        "source": "a lab",
        "model": "Llama 2 7B",
        "gpu": "Strix Halo",
        "n_gpus": "1",
        "tp": "1",
        "notes": "llama.cpp",
    }
    row |= {"precision_weights": "Q4_0", "precision_kv": "", "isl": "", "osl": "", "batch_or_concurrency": "1"}
    wide = {
        metric: (found.high or 0) / found.predicted
        for metric in ("pp512", "tg128")
        for found in TABLES["inference"].predict(row | {"scenario": "llama-bench", "metric": metric, "unit": "t/s"})
    }
    assert wide["pp512"] > 2.5 and wide["tg128"] < 0.75 * wide["pp512"]


@pytest.mark.parametrize(
    ("change", "cold"),
    [
        ({}, True),
        ({"measured": "2026-02-01"}, False),
        ({"source": "sgl-cookbook"}, False),
        ({"gpu": "mi355x", "kv_dtype": ""}, False),
        ({"engine": "vllm"}, False),
    ],
)
def test_an_engine_is_cold_where_its_client_did_not_warm_it_up(change, cold):
    """One benchmark's client began without a warm-up until January 2026; others send a first request, and other makers' kernels are not compiled at the
    first full step."""
    first = {
        "source": "aiconfigurator-silicon-sample",
        "engine": "sglang",
        "model": "deepseek-ai/DeepSeek-R1",
        "tp": "8",
    }
    tpot, ttft = TABLES["serving_runs"].questions(RUN | first | change)
    assert (ttft.plan.serving.warm_up is False) == cold
    assert (tpot.regime, ttft.regime) == ("serving tpot", "serving cold ttft" if cold else "serving ttft")


def test_a_round_of_mlperf_is_known_by_its_source_too():
    row = ROW | {
        "source": "mlperf-inference-6.0",
        "model": "llama2-70b-99",
        "gpu": "MI355X",
        "n_gpus": "8",
        "isl": "",
        "osl": "",
    }
    row |= {
        "scenario": "Interactive",
        "metric": "result",
        "precision_weights": "fp4",
        "tp": "",
        "pp": "",
        "ep": "",
        "batch_or_concurrency": "",
    }
    question = TABLES["inference"].questions(row)[0]
    assert question.regime == "mlperf interactive" and question.plan.serving.ttft is not None
