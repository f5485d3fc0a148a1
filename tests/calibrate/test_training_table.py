"""Published training runs: what a row means."""

from __future__ import annotations

import csv
from importlib.resources import files
from pathlib import Path

import pytest

from mlsysim.calibrate.questions import Excluded, Skipped
from mlsysim.calibrate.tables import TABLES
from mlsysim.calibrate.tables.training import COLUMNS, plan_of, read
from mlsysim.calibrate.training_cells import read_metric
from mlsysim.calibrate.training_rows import Run
from mlsysim.errors import MLSysError
from mlsysim.models.registry import Models
from mlsysim.plans.training import trained
from mlsysim.timing.stacks import stack

ROW = {
    "id": "x",
    "source": "korthikanti-2022-table5",
    "model": "gpt-22B",
    "params": "2.2e+10",
    "layers": "48",
    "hidden": "6144",
    "ffn": "24576",
    "heads": "64",
    "kv_heads": "64",
    "vocab": "51200",
    "seq": "2048",
    "gpu": "A100-80GB",
    "n_gpus": "8",
    "tp": "8",
    "pp": "1",
    "cp": "1",
    "ep": "1",
    "dp": "1",
    "virtual_stages": "",
    "microbatch": "4",
    "global_batch": "4",
    "precision": "fp16",
    "recompute": "full",
    "zero_stage": "0",
    "reported_metric": "iteration_time",
    "value": "1.42",
    "unit": "s",
    "provenance": "",
    "notes": "",
}


def test_a_published_step_is_predicted_within_ten_per_cent():
    (prediction,) = TABLES["training"].predict(ROW)
    assert prediction.metric == "iteration_time" and prediction.regime == "training dense"
    assert abs(prediction.error) < 0.10
    assert set(COLUMNS) <= set(ROW)


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"precision": "amp_bf16"}, "bf16"),
        ({"precision": "FP8-CS", "gpu": "H100-80GB"}, "fp8"),
        ({"precision": "MXFP8", "gpu": "B200"}, "mxfp8"),
        ({"precision": "float8", "notes": "torch.compile + float8 rowwise", "gpu": "H100-80GB"}, "fp8_row"),
        ({"precision": "int8 (AQT)", "gpu": "TPU v5e"}, "int8"),
        # Nothing is said: 16 bits as far as the chip has them, 8 in a benchmark whose submitters use them.
        ({"precision": ""}, "bf16"),
        ({"precision": "", "gpu": "Tesla V100-SXM2-32GB"}, "fp16"),
        ({"precision": "", "source": "mlperf-training-5.0-somebody", "gpu": "NVIDIA H100-SXM5-80GB"}, "fp8"),
        ({"precision": "", "source": "mlperf-training-5.0-somebody"}, "bf16"),
        ({"precision": "", "source": "mlperf-training-6.0-somebody", "gpu": "B300"}, "nvfp4"),
        ({"precision": "", "source": "mlperf-training-5.1-somebody", "gpu": "B300"}, "fp8"),
        ({"precision": "", "source": "mlperf-training-2.0-somebody", "gpu": "NVIDIA H100-SXM5-80GB"}, "bf16"),
    ],
)
def test_number_formats_that_rows_say_or_leave_open(change, name):
    run = Run({**ROW, **change})
    assert run.precision == name
    assert any(text.startswith("products") for text in run.inferred) is not bool({**ROW, **change}["precision"])


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"source": "somebody-2024"}, "mcore24"),
        ({"source": "somebody", "notes": "arXiv:2502.01234"}, "bridge"),
        ({"source": "somebody", "gpu": "H100-80GB"}, "mcore24"),  # no year is told: two after the chip
        # nor before the model
        (
            {"source": "somebody", "model": "Llama3_8B"}
            | dict.fromkeys(("layers", "hidden", "heads", "kv_heads", "ffn"), ""),
            "mcore24",
        ),
        ({"source": "nemo-24.12"}, "bridge-nemo"),
        ({"source": "somebody-2024", "notes": "PyTorch FSDP", "zero_stage": "3"}, "titan"),
        ({"source": "somebody", "gpu": "TPU v5p"}, "maxtext"),
        ({"source": "palm-table3", "gpu": "TPU v4"}, "jax"),
        ({"source": "maxtext-readme", "gpu": "TPU v5e"}, "maxtext"),
        # A baseline in a paper is not the paper's system.
        ({"source": "deepseek-v3-report", "notes": "Megatron-LM baseline; 2024", "gpu": "H800"}, "mcore24"),
        ({"source": "torchtitan-benchmarks", "notes": "2D + async TP; float8"}, "titan-async"),
        ({"source": "torchtitan-benchmarks", "notes": "no torch.compile"}, "titan"),
    ],
)
def test_software_comes_from_the_row_itself(change, name):
    assert Run({**ROW, **change}).stack.name == name


@pytest.mark.parametrize("devices", [6, 24, 48, 96, 120, 768])
def test_an_inferred_layout_uses_every_accelerator(devices):
    row = {**ROW, "model": "gpt3-175b", "gpu": "H100-80GB", "source": "somebody-2024", "n_gpus": str(devices)}
    row |= dict.fromkeys(
        ("tp", "pp", "dp", "layers", "hidden", "ffn", "heads", "kv_heads", "microbatch", "zero_stage"), ""
    )
    run = Run(row)
    assert run.tp * run.pp * run.dp == devices and 96 % run.tp == 0 and run.tp <= 8


@pytest.mark.parametrize(
    ("change", "field", "value"),
    [
        ({"seq": "2k"}, "seq_len", 2048),
        ({"n_gpus": "1,024", "global_batch": "1024"}, "accelerators", 1024),
        ({"global_batch": "4M tokens", "n_gpus": "64"}, "batch", 1953),
        ({"recompute": "activation checkpointing"}, "recompute", "full"),
        ({"recompute": "off"}, "recompute", "none"),
        ({"zero_stage": "HSDP"}, "zero", 3),
        ({"zero_stage": "distributed optimizer"}, "zero", 1),
        ({"precision": "AMP"}, "precision", "bf16"),
        ({"precision": "fp8_mx", "gpu": "B200"}, "precision", "mxfp8"),
        ({"recompute": "gradient checkpointing"}, "recompute", "full"),
    ],
)
def test_numbers_and_modes_as_people_write_them(change, field, value):
    assert getattr(Run({**ROW, **change}), field) == value


def test_a_guess_widens_the_interval():
    known = {**ROW, "source": "megatron-core", "gpu": "A100-80GB", "precision": "bf16"}
    (said,), (guessed,) = (TABLES["training"].predict({**known, "precision": text}) for text in ("bf16", ""))
    assert guessed.predicted == said.predicted
    assert guessed.low < said.low and guessed.high > said.high


@pytest.mark.parametrize(
    ("metric", "unit", "times"),
    [
        ("TGS", "", 2048 * 4 / 8),
        ("throughput", "tokens/s/GPU", 2048 * 4 / 8),
        ("steps/s", "", 1),
        ("seq/s", "", 4),
        ("sample_throughput", "sequences/s", 4),
    ],
)
def test_rates_by_other_names_are_those_of_the_same_step(metric, unit, times):
    (step,) = TABLES["training"].predict({**ROW, "reported_metric": "s/it", "unit": ""})
    (rate,) = TABLES["training"].predict({**ROW, "reported_metric": metric, "unit": unit})
    assert rate.predicted * step.predicted == pytest.approx(times)


def test_a_model_without_attention_is_read():
    empty = dict.fromkeys(("params", "layers", "hidden", "ffn", "heads", "kv_heads", "vocab"), "")
    assert TABLES["training"].predict({**ROW, **empty, "model": "mamba2-2.7b", "tp": "1"})[0].predicted > 0


def test_operations_that_count_recomputation_are_more():
    rows = [
        {**ROW, "reported_metric": m, "unit": "TFLOP/s/GPU"} for m in ("hfu_tflops_per_gpu", "model_tflops_per_gpu")
    ]
    hardware, model = (TABLES["training"].predict(row)[0].predicted for row in rows)
    assert 1.2 < hardware / model < 1.4


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"precision": "posit8"}, "precision"),
        ({"gpu": "Z900"}, "hardware"),
        ({"model": "nobody-1b", "layers": ""}, "not in the zoo"),
        ({"recompute": "some"}, "recompute"),
        ({"reported_metric": "loss"}, "metric"),
        ({"precision": "fp8"}, "no fp8 arithmetic"),
    ],
)
def test_what_is_unknown_is_skipped_with_the_reason(change, reason):
    with pytest.raises(Skipped, match=reason):
        TABLES["training"].predict({**ROW, **change})


OTHER = {
    "source": "mlperf-training-4.1-nvidia",
    "model": "BERT_Large",
    "seq": "512",
    "gpu": "H100-80GB",
    "n_gpus": "8",
    "microbatch": "48",
    "global_batch": "768",
    "reported_metric": "samples_per_s",
    "value": "7759.6",
    "unit": "sequences/s",
    "notes": "BERT-Large phase 2, padding removed: fewer tokens than 512 per sequence",
}


def other(**changes: str) -> dict[str, str]:
    return dict.fromkeys(ROW, "") | OTHER | changes


def test_packed_encoders_count_packs_and_run_their_own_software():
    """768 sequences on 8 GPUs are one micro-batch of 48 packs each, of two sequences; LAMB is shared inside a node."""
    (asked,) = TABLES["training"].questions(other())
    split, work = asked.plan.parallelism, asked.plan.workload
    assert (split.micro_batch, work.seq_len, work.precision, split.zero_shard) == (96, 256, "fp8", None)
    assert asked.plan.hardware.stack == "captured" and asked.regime == "training encoder"
    (wide,) = TABLES["training"].questions(other(n_gpus="64", microbatch="36", global_batch="4608"))
    assert (wide.plan.parallelism.micro_batch, wide.plan.parallelism.zero_shard) == (72, 8)
    (old,) = TABLES["training"].questions(other(gpu="NVIDIA A100 - PCIe - 80 GB"))
    assert old.plan.workload.precision == "bf16"


@pytest.mark.parametrize(
    ("chip", "devices", "batch", "measured"), [("B200", 16, 512, 815.7), ("GB200", 72, 2304, 4011.8)]
)
def test_flux_at_256_pixels_is_near_published_steps(chip: str, devices: int, batch: int, measured: float):
    """MLPerf Training 5.1, Oracle and NVIDIA: no constant of a step of diffusion was fitted on them."""
    row = other(model="FLUX_1_schnell", gpu=chip, n_gpus=str(devices), global_batch=str(batch), value=str(measured))
    row |= {"seq": "", "microbatch": "", "notes": "Flux.1 schnell 11.9B, 256x256 CC12M latents cached"}
    (asked,), (found,) = TABLES["training"].questions(row), TABLES["training"].predict(row)
    # 190 GB of weights, gradients and states are more than a device has, so the states are shared.
    assert asked.plan.parallelism.zero == 1 and abs(found.error) < 0.10
    with pytest.raises(Skipped, match="known for 1024 pixels"):
        TABLES["training"].questions(row | {"notes": "320x320"})


def test_what_is_not_a_measurement_is_excluded():
    with pytest.raises(Excluded):
        TABLES["training"].predict({**ROW, "reported_metric": "mfu_range", "value": "38-43"})
    with pytest.raises(Excluded, match="convergence"):
        TABLES["training"].predict({**ROW, "reported_metric": "time_to_train", "unit": "min"})


def test_settings_that_a_row_lacks_are_inferred_and_listed():
    run = Run(
        {
            **ROW,
            "source": "nemo-launcher-scaling",
            "tp": "",
            "pp": "",
            "microbatch": "",
            "global_batch": "",
            "recompute": "",
        }
    )
    text = " ".join(run.inferred)
    assert all(word in text for word in ("layout", "micro-batch", "global batch", "recompute"))


def test_cluster_facts_come_from_the_row():
    run = Run({**ROW, "notes": "400Gb/s RDMA per GPU, 300 W cap", "gpu": "A100-80GB"})
    plan = plan_of(run, [])
    assert plan.hardware.chip.fabric_bandwidth.to("Gbps").magnitude == pytest.approx(400)
    assert plan.hardware.power_cap.to("W").magnitude == 300


def test_a_published_recipe_becomes_keys_of_the_plan():
    row = {
        **ROW,
        "source": "megatron-bridge-26.06",
        "model": "deepseek-v3",
        "gpu": "GB300",
        "n_gpus": "256",
        "precision": "MXFP8",
    }
    row |= dict.fromkeys(("layers", "hidden", "ffn", "heads", "kv_heads", "vocab", "recompute", "params"), "")
    row |= {
        "tp": "1",
        "pp": "2",
        "ep": "32",
        "virtual_stages": "8",
        "microbatch": "1",
        "global_batch": "4096",
        "seq": "4096",
    }
    plan = plan_of(Run(row), [])
    assert plan.hardware.stack == "bridge-graph" and plan.hardware.on == "256xGB300"
    assert plan.parallelism.fp8_attention is True and plan.workload.predicted_tokens == 1


def test_a_batch_that_does_not_divide_is_rounded_and_said():
    inferred: list[str] = []
    plan = plan_of(Run({**ROW, "n_gpus": "24", "global_batch": "16"}), inferred)
    assert plan.workload.batch_size == 12 and any("12 sequences" in text for text in inferred)


def test_an_unlisted_model_is_built_from_its_row():
    run = Run({**ROW, "model": "gpt-99B-unlisted"})
    assert run.shape.layers == 48


def test_memory_rows_ask_for_the_activations_of_the_plan():
    """Korthikanti et al. count s b h (10 + 24/t + 5 a s/(h t)); a plan counts logits too."""
    row = {**ROW, "reported_metric": "memory_activations", "recompute": "none", "unit": "GiB", "value": "1"}
    (prediction,) = TABLES["training"].predict(row)
    unit = 48 * 2048 * 4 * 6144 / 2**30
    logits = 4 * 2048 * 51200 / 8 * 8 / 2**30
    assert prediction.predicted == pytest.approx(unit * (10 + 24 / 8 + 5 * 64 * 2048 / (6144 * 8)) + logits)
    assert prediction.regime == "training memory" and prediction.low is None
    fused = TABLES["training"].predict({**row, "source": "megatron-bridge-26.06"})[0].predicted
    masks_and_scores = 2 + 5 * 64 * 2048 / (6144 * 8)
    # Its loss writes gradients of logits over them, in 16 bits: 2 bytes of 8.
    assert prediction.predicted - fused == pytest.approx(unit * masks_and_scores + logits * 6 / 8)


def test_published_layouts_fit() -> None:
    """Each of these runs had room."""
    table = Path(str(files("mlsysim.calibrate").joinpath("data", "published", "training.csv")))
    runs, full = 0, []
    for row in csv.DictReader(table.open(encoding="utf-8")):
        if "memory" in row["reported_metric"]:
            continue
        try:
            found = trained(read(row)[0].plan).step
        except (MLSysError, Skipped, Excluded):
            continue
        runs += 1
        if not found.feasible:
            full.append(row["id"])
    assert runs > 100 and not full, full


NEMO = {
    "source": "nemo-launcher-scaling",
    "model": "gpt3-5b",
    **dict.fromkeys(
        ("layers", "hidden", "ffn", "heads", "kv_heads", "vocab", "params", "tp", "pp", "cp", "ep", "dp"), ""
    ),
    **dict.fromkeys(("microbatch", "global_batch", "recompute", "zero_stage"), ""),
    "precision": "bf16",
    "reported_metric": "tokens_per_s",
    "value": "40345",
}


def test_a_guessed_micro_batch_is_one_that_fits():
    """NeMo's 5B on eight A100, whose table gives no layout: 16,384 tokens at once do not fit, half of them do."""
    (found,) = read({**ROW, **NEMO})
    assert "micro-batch 4" in found.inferred and found.plan.parallelism.micro_batch == 4
    assert "micro-batch 8" in Run({**ROW, **NEMO}).inferred


def test_a_micro_batch_that_no_device_holds_is_that_of_the_recipe():
    """Megatron-Bridge 26.02.01 lists 70B in MXFP8 on GB300 with PP 4 and two sequences at a time, 439 GB; its configuration has one."""
    row = {
        "source": "megatron-bridge-26.02.01",
        "model": "llama3-70b",
        "gpu": "GB300",
        "n_gpus": "64",
        "tp": "1",
        "pp": "4",
    }
    row |= {
        "layers": "",
        "hidden": "",
        "ffn": "",
        "heads": "",
        "kv_heads": "",
        "vocab": "",
        "params": "",
        "seq": "8192",
    }
    row |= {
        "dp": "16",
        "microbatch": "2",
        "global_batch": "256",
        "precision": "MXFP8",
        "recompute": "",
        "zero_stage": "1",
    }
    row |= {"reported_metric": "tokens_per_s_per_gpu", "unit": "tokens/s/GPU", "value": "4798"}
    (found,) = read({**ROW, **row})
    assert found.plan.parallelism.micro_batch == 1
    assert any("micro-batch 1 by the published recipe, as no device" in text for text in found.inferred)


def test_what_is_shared_is_what_the_recipe_says():
    """Tables that do not print the ZeRO stage have it assumed; Nemotron 3 Ultra on GB300 runs with Megatron-FSDP."""
    row = {
        "source": "megatron-bridge-26.08",
        "model": "nemotron3ultra",
        "gpu": "GB300",
        "n_gpus": "256",
        "tp": "1",
        "ep": "64",
    }
    row |= {
        "layers": "",
        "hidden": "",
        "ffn": "",
        "heads": "",
        "kv_heads": "",
        "vocab": "",
        "params": "",
        "seq": "8192",
    }
    row |= {
        "dp": "256",
        "microbatch": "1",
        "global_batch": "256",
        "precision": "MXFP8",
        "recompute": "",
        "zero_stage": "1",
    }
    run = Run({**ROW, **row})
    assert run.zero == 3 and "ZeRO 3 by the published recipe" in run.inferred


def test_pythia_ran_as_its_configurations_say():
    """EleutherAI/pythia, models/*/*.yml: micro-batches of 32 to 8, and paths of AWS, whose instances of A100 40 GB have 50 Gb/s for each. A row with
    another vocabulary than the zoo's is the same model."""
    shape = {"layers": "36", "hidden": "5120", "ffn": "20480", "heads": "40", "kv_heads": "", "params": ""}
    row = {
        "source": "pythia-table5",
        "model": "pythia-12b",
        "gpu": "A100-40GB",
        "n_gpus": "256",
        **shape,
        "vocab": "50304",
    }
    row |= dict.fromkeys(("tp", "pp", "cp", "ep", "dp", "microbatch", "virtual_stages", "recompute", "zero_stage"), "")
    run = Run({**ROW, **row, "seq": "2048", "global_batch": "1024", "precision": "fp16", "notes": ""})
    assert (run.stack.name, run.tp, run.micro_batch, run.adapter) == ("neox22", 4, 8, 50e9)
    assert "network of 50 Gb/s an accelerator by the published recipe" in run.inferred


def test_weights_in_16_bit_are_said_in_the_remarks():
    row = {"source": "tpu-recipes-trillium", "gpu": "TPU_v6e", "precision": "bf16"}
    assert Run({**ROW, **row, "notes": "fsdp, weights in bf16"}).stack.name == "maxtext-16bit"
    assert Run({**ROW, **row}).stack.name == "maxtext"
    assert stack("maxtext-16bit").keeps.bytes_each("adam", 2, Models.get("Llama3_70B")) == (2, 2, 4)


def test_a_layout_that_no_device_holds_is_that_of_the_recipe():
    """Megatron-Bridge 26.02.01 lists 70B in NVFP4 on GB300 with TP 1, PP 1, ZeRO 1: 423 GB of weights and gradients on 288 GB. Its configuration,
    and the lines of the releases before and after, have PP 4 with 5 virtual stages and one sequence at a time."""
    row = {
        **ROW,
        "source": "megatron-bridge-26.02.01",
        "model": "llama3-70b",
        "gpu": "GB300",
        "n_gpus": "64",
        "tp": "1",
        "pp": "1",
        "cp": "1",
        "layers": "80",
        "hidden": "8192",
        "ffn": "28672",
        "heads": "64",
        "kv_heads": "8",
        "vocab": "128256",
        "params": "7.055e+10",
    }
    row |= {
        "dp": "64",
        "microbatch": "2",
        "global_batch": "256",
        "precision": "NVFP4",
        "recompute": "",
        "zero_stage": "1",
        "seq": "8192",
    }
    found = read(
        {
            **row,
            "reported_metric": "tokens_per_s_per_gpu",
            "unit": "tokens/s/GPU",
            "value": "7002",
            "virtual_stages": "",
        }
    )[0]
    split = found.plan.parallelism
    assert (split.tp, split.pp, split.virtual_stages, split.micro_batch) == (1, 4, 5, 1)
    assert any("no device holds" in text for text in found.inferred)
    sharded = read(
        {**row, "reported_metric": "tokens_per_s_per_gpu", "unit": "tokens/s/GPU", "value": "7002", "zero_stage": "3"}
    )[0]
    assert sharded.plan.parallelism.pp in (None, 1)


def test_sharded_weights_are_gathered_once_a_step_where_memory_holds_it():
    """MaxText takes all sequences of a device at once; stages and replicas of whole weights do not."""
    row = {
        "source": "tpu-recipes",
        "model": "llama3.1-70b",
        "gpu": "TPU7x",
        "n_gpus": "64",
        "seq": "8192",
        "global_batch": "256",
    }
    blank = dict.fromkeys(
        (
            "params",
            "layers",
            "hidden",
            "ffn",
            "heads",
            "kv_heads",
            "vocab",
            "tp",
            "pp",
            "dp",
            "microbatch",
            "zero_stage",
        ),
        "",
    )
    found = read(ROW | blank | row | {"precision": "bf16", "notes": "MaxText"})[0]
    assert "micro-batch 4.0" in found.inferred and found.plan.parallelism.micro_batch == 4
    assert Run(ROW | {"microbatch": "", "global_batch": "64"}).micro_batch == 8


def test_software_that_nobody_fitted_may_be_any_of_its_time():
    """PaddleNLP of 2023, Llama-2 7B on eight A100 with TP 2: 3,755 tokens/s/GPU (llm/docs/pretrain.rst). What fits nobody's constants has an interval that
    holds what other software of its time would do; a known one has its own."""
    row = {
        "model": "Llama-2-7b",
        "seq": "4096",
        "gpu": "A100 80G",
        "n_gpus": "8",
        "tp": "2",
        "pp": "1",
        "precision": "bf16",
        "zero_stage": "2",
    }
    row |= {
        "reported_metric": "tokens_per_s_per_gpu",
        "value": "3755.21",
        "unit": "tokens/card/s",
        "notes": "2023-11; tp2sd4_stage2",
        "recompute": "",
    }
    row |= {"microbatch": "", "global_batch": ""}

    def told(source: str):
        (found,) = TABLES["training"].predict(row | {"source": source})
        return found

    foreign, known = told("paddlenlp-pretrain"), told("nemo-launcher-scaling")
    assert "stands in for PaddleNLP" in " ".join(foreign.inferred) and foreign.inside
    assert foreign.high / foreign.low > 1.3 * known.high / known.low
    stack = TABLES["training"].questions(row | {"source": "paddlenlp-pretrain"})[0]
    assert {plan.hardware.stack for plan in stack.others} >= {
        "fsdp23",
        "mcore24",
        "megatron22",
    } and stack.plan not in stack.others
    assert not TABLES["training"].questions(row | {"source": "nemo-launcher-scaling"})[0].others


PER_DEVICE = {
    "reported_metric": "tokens/s/p",
    "unit": "",
    "tp": "",
    "pp": "",
    "dp": "",
    "cp": "",
    "ep": "",
    "n_gpus": "",
}


def test_what_each_device_does_is_asked_on_the_fewest_nodes_that_hold_the_run():
    """MindFormers prints tokens a second and processor, and no number of them."""
    small, large = (
        Run(ROW | PER_DEVICE | {"model": name, "gpu": "Atlas 800T A2"} | dict.fromkeys(_SHAPE, ""))
        for name in ("LLama2-7B", "LLama2-70B")
    )
    assert (small.accelerators, large.accelerators) == (8, 64)
    assert "8 accelerators, the fewest nodes that hold it" in small.inferred
    with pytest.raises(Skipped, match="number of accelerators"):
        Run(ROW | PER_DEVICE | {"reported_metric": "step time"})


_SHAPE = ("params", "layers", "hidden", "ffn", "heads", "kv_heads", "vocab")


def test_experts_are_split_over_their_own_ranks_where_a_layout_is_inferred():
    """Qwen3 30B on eight GB300 with EP 8 needs no tensor parallelism."""
    row = (
        ROW
        | dict.fromkeys((*_SHAPE, "tp", "pp", "dp", "cp"), "")
        | {"model": "Qwen3-30B-A3B", "gpu": "GB300", "ep": "8"}
    )
    found = Run(row | {"source": "megatron-bridge", "global_batch": "512", "microbatch": ""})
    assert (found.tp, found.pp, found.ep) == (1, 1, 8)


@pytest.mark.parametrize(("name", "unit", "meant"), [
    ("TFLOPs", "TFLOP/s/device", "tflops_per_gpu"), ("throughput", "sentences/sec", "samples_per_s"), ("tokens/s/NPU", "", "tokens_per_s_per_gpu"),
    ("images / second", "", "samples_per_s"), ("train_samples_per_second", "", "samples_per_s"),
])  # fmt: skip
def test_metrics_are_read_as_people_write_them(name, unit, meant):
    assert read_metric({"reported_metric": name, "unit": unit}) == meant


@pytest.mark.parametrize(("notes", "name"), [
    ("DDP, TransformerEngine FP8", "plain"), ("NeMo with DDP", "bridge-nemo"), ("torch_xla 2.6, Hugging Face fork", "maxtext"),
])  # fmt: skip
def test_parts_of_trainers_count_where_no_trainer_is_named(notes, name):
    assert Run(ROW | {"source": "x", "gpu": "H100", "notes": f"{notes}, 2025"}).stack.name == name


def test_a_month_in_the_notes_is_a_release():
    """Megatron-Bridge pull request 5720: Qwen3 30B-A3B in MXFP8 on 8 GB300, 5.85 s for 512 sequences of 4,096 (not fitted on); without a month its older recipe."""
    run = {"source": "megatron-bridge-pr5720", "model": "Qwen3-30B-A3B", "seq": "4096", "gpu": "GB300", "n_gpus": "8", "ep": "8"}  # fmt: skip
    asked = {"global_batch": "512", "precision": "MXFP8", "reported_metric": "tokens/s/GPU", "value": "44773"}
    row = dict.fromkeys(ROW, "") | run | asked
    (told,) = TABLES["training"].predict(row | {"notes": "Megatron-Bridge 2026-08, MXFP8"})
    (silent,) = TABLES["training"].predict(row | {"notes": "Megatron-Bridge, MXFP8"})
    assert told.ape < 10 < silent.ape


@pytest.mark.parametrize(
    ("model", "chip", "devices", "layout"),
    [("Qwen3-235B-A22B", "GB200", 256, (1, 1, 64)), ("Qwen3-30B-A3B", "H100", 16, (1, 2, 8)), ("DeepSeek-V3", "B200", 256, (1, 16, 8))],
)  # fmt: skip
def test_a_mixture_whose_layout_nobody_gives_has_its_experts_on_the_devices_of_a_host_or_rack(
    model, chip, devices, layout
):
    """TP 8 without EP predicted a twelfth of 1,208 TFLOP/s for 235B on GB200 (Megatron-LM, pull request 5728); DeepSeek-V3's is Megatron-Bridge's own."""
    row = ROW | dict.fromkeys((*_SHAPE, "tp", "pp", "dp", "cp", "ep", "zero_stage", "microbatch", "global_batch"), "")
    found = Run(row | {"model": model, "gpu": chip, "n_gpus": str(devices), "source": "somebody-2026"})
    assert (found.tp, found.pp, found.ep) == layout
    assert f"layout TP {found.tp}, PP {found.pp}, EP {found.ep}" in found.inferred


def test_software_of_megatron_s_name_is_that_of_its_year():
    row = ROW | {"source": "megatron-lm-5728", "gpu": "H100"}
    assert [Run(row | {"notes": f"recipes, {year}"}).stack.name for year in (2021, 2024, 2026)] == [
        "megatron21",
        "mcore24",
        "bridge",
    ]
    eager = Run(row | {"source": "torchtitan-1690", "notes": "no compile, 2025"})
    assert eager.stack.name == "titan"
