"""Published training runs: what a row means."""

from __future__ import annotations

import csv
from importlib.resources import files
from pathlib import Path

import pytest

from mlsysim.calibrate.questions import Excluded, Skipped
from mlsysim.calibrate.tables import TABLES
from mlsysim.calibrate.tables.training import COLUMNS, plan_of
from mlsysim.calibrate.training_rows import Run, read_precision
from mlsysim.errors import MLSysError
from mlsysim.plans.evaluate import evaluate_plainly

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
    ("label", "name"),
    [("amp_bf16", "bf16"), ("FP8-CS", "fp8"), ("MXFP8", "mxfp8"), ("NVFP4", "nvfp4"), ("fp16", "fp16")],
)
def test_precision_labels_are_read_by_prefix(label, name):
    assert read_precision(label) == name


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"precision": "posit8"}, "precision"),
        ({"gpu": "Z900"}, "accelerator"),
        ({"model": "nobody-1b", "layers": ""}, "not in the zoo"),
        ({"recompute": "some"}, "recompute"),
        ({"seq": ""}, "sequence"),
        ({"reported_metric": "loss"}, "metric"),
        ({"precision": "fp8"}, "no fp8 arithmetic"),
    ],
)
def test_what_is_unknown_is_skipped_with_the_reason(change, reason):
    with pytest.raises(Skipped, match=reason):
        TABLES["training"].predict({**ROW, **change})


def test_what_is_not_a_measurement_is_excluded():
    with pytest.raises(Excluded):
        TABLES["training"].predict({**ROW, "reported_metric": "mfu_range", "value": "38-43"})


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
    assert prediction.predicted - fused == pytest.approx(unit * masks_and_scores)


def test_published_layouts_fit() -> None:
    """Each of these runs had room. Nine in ten do here; the others leave recomputation or offloading unsaid, or need less than the 7 %
    that are kept for allocator and libraries."""
    table = Path(str(files("mlsysim.calibrate").joinpath("data", "published", "training.csv")))
    runs, full = 0, []
    for row in csv.DictReader(table.open(encoding="utf-8")):
        if "memory" in row["reported_metric"]:
            continue
        try:
            answer = evaluate_plainly(plan_of(Run(row), []))
        except (MLSysError, Skipped):
            continue
        runs += 1
        if not answer.feasible:
            full.append(row["id"])
    assert runs > 100 and len(full) <= 0.1 * runs, full
