"""Published training runs: what a row means; accuracy on the full table where MLSYSIM_TRUTH names its folder."""

from __future__ import annotations

import csv
import os
from pathlib import Path
from statistics import median

import pytest

from mlsysim.calibrate.prediction import Excluded, Skipped
from mlsysim.calibrate.tables.training import COLUMNS, predict, read_precision, read_run

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
    (prediction,) = predict(ROW)
    assert prediction.metric == "iteration_time" and prediction.regime == "training dense"
    assert abs(prediction.error) < 0.10
    assert set(COLUMNS) <= set(ROW)


@pytest.mark.parametrize(
    ("label", "name"),
    [("amp_bf16", "bf16"), ("FP8-CS", "fp8"), ("MXFP8", "mxfp8"), ("NVFP4", "nvfp4"), ("fp16", "bf16")],
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
        predict({**ROW, **change})


def test_what_is_not_a_measurement_is_excluded():
    with pytest.raises(Excluded):
        predict({**ROW, "reported_metric": "mfu_range", "value": "38-43"})


def test_settings_that_a_row_lacks_are_inferred_and_listed():
    run = read_run(
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
    run = read_run({**ROW, "notes": "400Gb/s RDMA per GPU", "gpu": "A100-80GB"})
    assert run.adapter == pytest.approx(50e9)
    assert run.chip().network.fabric == pytest.approx(0.8 * 50e9)


def test_an_unlisted_model_is_built_from_its_row():
    run = read_run({**ROW, "model": "gpt-99B-unlisted"})
    assert run.shape.layers == 48


def test_memory_rows_follow_the_formula_of_the_paper():
    row = {**ROW, "reported_metric": "memory_activations", "recompute": "none", "unit": "GiB", "value": "1"}
    (prediction,) = predict(row)
    expected = 48 * 2048 * 4 * 6144 * (10 + 24 / 8 + 5 * 64 * 2048 / (6144 * 8)) / 2**30
    assert prediction.predicted == pytest.approx(expected)
    assert prediction.regime == "training memory"


@pytest.mark.skipif(
    "MLSYSIM_TRUTH" not in os.environ, reason="MLSYSIM_TRUTH does not name the folder with training.csv"
)
def test_the_full_table_stays_accurate():
    times, memory, skipped = [], [], 0
    with (Path(os.environ["MLSYSIM_TRUTH"]) / "training.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            try:
                (prediction,) = predict(row)
            except Excluded:
                continue
            except Skipped:
                skipped += 1
                continue
            (memory if "memory" in prediction.metric else times).append(abs(prediction.error) * 100)
    assert skipped <= 0.05 * (len(times) + len(memory))
    assert median(times) <= 5 and sorted(times)[int(0.9 * len(times))] <= 18
    assert median(memory) <= 3
