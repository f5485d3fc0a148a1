"""What people write is read alike: spellings of cells, columns that a table lacks, numbers as programs print them."""

from __future__ import annotations

import pytest

from mlsysim.calibrate.cells import chip_of, devices_of, engine_of, key_of, measured, model_of
from mlsysim.calibrate.questions import Excluded, Row
from mlsysim.calibrate.tables import TABLES
from mlsysim.zoo.labels import machine

SERVED = {
    **{"source": "page", "engine": "vllm", "engine_version": "0.16", "model": "Qwen/Qwen3-4B", "gpu": "H100", "mode": "agg"},
    **{"precision": "bf16", "isl": "1024", "osl": "128", "concurrency": "4", "tp": "1", "ttft_ms": "60", "tpot_ms": "5"},
}  # fmt: skip
TRAINED = {
    **{"source": "page-2025", "model": "Llama3_8B", "seq": "8192", "gpu": "H100", "n_gpus": "8", "tp": "1", "pp": "1"},
    **{"microbatch": "1", "global_batch": "128", "precision": "bf16", "reported_metric": "tokens_per_s_per_gpu"},
    **{"value": "11000", "unit": "tokens/s/GPU", "recompute": ""},
}
REDUCED = {
    **{"source": "page", "collective": "all_reduce", "gpu": "H100", "n_gpus": "8", "n_nodes": "1", "interconnect": "NVLink"},
    **{"message_bytes": "8388608", "metric": "busbw", "value": "200", "unit": "GB/s"},
}  # fmt: skip
SEEN = {
    **{"source": "page", "model": "resnet50", "task": "infer", "device": "RTX 4090", "precision": "amp", "img_size": "224"},
    **{"batch": "1024", "metric": "samples_per_s", "value": "4000", "unit": "samples/s", "compiler": "eager", "layout": "nhwc"},
}  # fmt: skip
DRAWN = {
    **{"source": "paper", "workload": "Gopher", "hardware": "TPU v3", "n_chips": "4096", "days": "38", "pue": "1.08"},
    **{"avg_power_w_per_chip": "283", "grid_kgco2_per_kwh": "", "metric": "energy", "value": "1151", "unit": "MWh"},
}


@pytest.mark.parametrize(
    ("table", "row", "changes"),
    [
        ("serving_runs", SERVED, [{"engine": "vLLM"}, {"mode": "aggregated"}, {"mode": ""}, {"tp": ""}, {"tp": "1.0"}]),
        ("serving_runs", SERVED, [{"isl": "1,024"}, {"isl": "1k"}, {"ttft_ms": "60 ms"}, {"gpu": "NVIDIA H100 80GB HBM3"}]),
        ("training", TRAINED, [{"value": "11k"}, {"value": "~11,000 tokens/s/GPU"}, {"n_gpus": "8.0", "tp": "1.0"}]),
        ("training", TRAINED, [{"precision": "16-bit"}, {"reported_metric": "throughput_per_gpu"}, {"reported_metric": "Tok/s/dev"}]),
        ("collectives", REDUCED, [{"collective": "AllReduce"}, {"collective": "ncclAllReduce"}, {"message_bytes": "8M"}]),
        ("collectives", REDUCED, [{"n_nodes": ""}, {"message_bytes": "8 MiB"}, {"metric": "Bus BW (GB/s)"}, {"gpu": "8xH100", "n_gpus": ""}]),
        ("vision", SEEN, [{"batch": "1,024"}, {"img_size": "224.0"}, {"img_size": ""}, {"layout": "channels_last"}]),
        ("vision", SEEN, [{"metric": "throughput", "unit": "img/s"}, {"metric": "imgs/sec"}, {"compiler": "PyTorch"}]),
        ("energy", DRAWN, [{"metric": "training energy"}, {"metric": "energy consumed"}, {"unit": ""}]),
    ],
)  # fmt: skip
def test_other_spellings_are_the_same_row(table: str, row: dict[str, str], changes: list[dict[str, str]]) -> None:
    known = [p.predicted for p in TABLES[table].predict(row)]
    for change in changes:
        assert [p.predicted for p in TABLES[table].predict(row | change)] == known, change


def test_units_are_converted() -> None:
    rate, energy = TABLES["collectives"].predict(REDUCED)[0], TABLES["energy"].predict(DRAWN)[0]
    bits = TABLES["collectives"].predict(REDUCED | {"value": "1600", "unit": "Gbps"})[0]
    assert (bits.measured, bits.predicted) == (rate.measured, rate.predicted)
    kilowatts = TABLES["energy"].predict(DRAWN | {"value": "1,151,000", "unit": "kWh"})[0]
    assert (kilowatts.measured, kilowatts.predicted) == (energy.measured, energy.predicted)
    seconds, milliseconds = (
        TABLES["vision"].predict(SEEN | {"metric": name, "value": "0.2", "unit": "s"})[0]
        for name in ("batch_latency", "latency_ms")
    )
    assert milliseconds.predicted == pytest.approx(1e3 * seconds.predicted)
    steps = [
        TABLES["training"].predict(TRAINED | {"reported_metric": name, "unit": "", "value": "1"})[0].predicted
        for name in ("sec/iter", "ms/step", "step_time_ms", "Step Time (s)")
    ]
    assert steps[1] == steps[2] == pytest.approx(1e3 * steps[0]) and steps[3] == steps[0]
    shares = [
        TABLES["training"].predict(TRAINED | {"reported_metric": "MFU", "value": v, "unit": ""})[0]
        for v in ("45", "0.45")
    ]
    assert shares[0].predicted == pytest.approx(100 * shares[1].predicted)


def test_the_number_of_a_cards_name_is_not_a_number_of_cards() -> None:
    """An "x" in RTX 4090 made it 4,090 of something."""
    assert devices_of("RTX 4090") is None and devices_of("4x RTX 4090") == 4
    assert len(TABLES["serving_runs"].predict(SERVED | {"gpu": "RTX 4090", "tp": ""})) == 2


def test_a_value_is_a_number_and_a_bound_is_none() -> None:
    assert measured(Row(value="1.2M tok/s", unit="tok/s")) == 1.2e6
    for text in (">500", "40-50", "", "fast"):
        with pytest.raises(Excluded):
            measured(Row(value=text))


def test_a_column_that_a_table_lacks_is_empty() -> None:
    assert Row.of({"tp": "8.0", "value": "8.0", "engine_version": "1.0"}) == {
        "tp": "8",
        "value": "8.0",
        "engine_version": "1.0",
    }
    assert Row()["notes"] == ""
    given = Row.of(
        {"virtual_stages": "n/a", "pp": "—", "ep": "nan", "tp": "None", "recompute": "none", "zero_stage": "-"}
    )
    assert set(given.values()) == {"", "none"} and given["recompute"] == "none"


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ({"engine": "vllm --enforce-eager"}, "vLLM_eager"),
        ({"engine": "sglang", "settings": "--disable-cuda-graph"}, "SGLang_eager"),
        ({"engine": "vllm", "notes": "enforce_eager=False"}, "vLLM"),
    ],
)
def test_an_engine_without_graphs_is_another(said: dict[str, str], meant: str) -> None:
    assert engine_of(Row(said), []) == meant


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        *[("ND A100 v4", (8, "A100_40GB")), ("Azure ND H200 v5", (8, "H200")), ("AWS p5.48xlarge", (8, "H100"))],
        *[("DGX-A100 (40G)", (8, "A100_40GB")), ("DGX A100 80GB", (8, "A100")), ("ND GB200 v6", (4, "GB200"))],
    ],
)
def test_machines_are_read_as_people_call_them(said: str, meant: tuple[int, str]) -> None:
    assert machine(said) == meant


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        *[("Tenstorrent n150", "Tenstorrent_Wormhole_n150"), ("Blackhole p150a", "Tenstorrent_Blackhole_p150")],
        *[("Perlmutter A100", "A100"), ("Frontier MI250X", "MI250X"), ("Polaris A100 40GB", "A100_40GB")],
    ],
)
def test_chips_of_makers_and_clusters_are_chips(said: str, meant: str) -> None:
    assert key_of(chip_of(said)) == meant


@pytest.mark.parametrize("said", ["llama70b", "LLaMA 70B", "Llama-70B"])
def test_a_size_without_a_generation_is_that_of_a_tables_years(said: str) -> None:
    """A table of TensorRT-LLM 0.8 meant Llama 3.3, whose queries that share keys that release has no kernels for: half as fast."""
    assert key_of(model_of(said)) == "Llama2_70B"


def test_a_framework_is_its_letters_and_a_later_release_is_less_certain() -> None:
    row = {
        **{
            "framework": "NeMo-RL",
            "version": "0.6",
            "model": "Qwen3_32B",
            "gpu": "H100",
            "n_gpus": "32",
            "gen_tp": "4",
        },
        **{"train_tp": "4", "train_pp": "4", "train_ep": "1", "train_cp": "1", "gen_engine": "vLLM", "prompts": "64"},
        **{
            "samples_per_prompt": "32",
            "train_global_batch": "2048",
            "max_seq": "4096",
            "mean_seq": "3256",
            "step_s": "323",
        },
    }
    known, spelled, later = (
        TABLES["rl"].predict(row | more)[0]
        for more in ({}, {"framework": "nemo_rl", "train_precision": "16-bit"}, {"version": "0.7"})
    )
    assert known.predicted == spelled.predicted == later.predicted and known.low == spelled.low
    assert later.low and known.low and later.low < known.low
    apart = {"n_gpus": "64", "n_train": "32", "n_gen": "32", "mode": "async", "staleness": "1", "placement": "split"}
    said, unsaid = (TABLES["rl"].predict(row | each)[0] for each in (apart, apart | {"placement": "", "staleness": ""}))
    assert said.predicted == unsaid.predicted


def test_caches_are_those_of_the_checkpoint_where_the_engine_takes_them_from_there() -> None:
    row = SERVED | {"engine": "TensorRT-LLM", "model": "Llama3_70B", "precision": "fp8", "tp": "2"}
    assert 'cache_precision = "fp8"' in TABLES["serving_runs"].predict(row)[0].plan
    assert 'cache_precision = "bf16"' in TABLES["serving_runs"].predict(row | {"engine": "vLLM"})[0].plan
