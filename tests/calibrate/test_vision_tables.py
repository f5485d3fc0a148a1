"""Readers of vision.csv, collectives.csv and energy.csv: rows understood, skipped and excluded; accuracy where the tables are."""

from __future__ import annotations

import csv
import os
from collections import defaultdict
from pathlib import Path
from statistics import median

import numpy as np
import pytest

from mlsysim.calibrate.fitting import evaluate_sum, fit_sum
from mlsysim.calibrate.questions import Excluded, Skipped
from mlsysim.calibrate.tables import TABLES

BLANK = dict.fromkeys(
    [
        "id",
        "source",
        "model",
        "task",
        "device",
        "n_devices",
        "precision",
        "layout",
        "compiler",
        "img_size",
        "batch",
        "gmacs",
        "mparams",
        "macts",
        "metric",
        "value",
        "unit",
        "provenance",
        "notes",
    ],
    "",
)
TIMM = BLANK | {
    "source": "timm-infer-x",
    "model": "resnet50",
    "task": "infer",
    "device": "RTX 4090",
    "precision": "amp",
    "layout": "nchw",
    "compiler": "eager",
    "img_size": "224",
    "batch": "1024",
    "metric": "samples_per_s",
    "value": "3500",
}
NCCL = {
    "source": "x",
    "collective": "all_reduce",
    "gpu": "H100_SXM",
    "n_gpus": "8",
    "n_nodes": "1",
    "interconnect": "NVLink4/NVSwitch",
    "dtype": "half",
    "message_bytes": "1048576",
    "metric": "latency",
    "value": "40",
    "notes": "",
}


def test_a_fit_of_a_sum_finds_its_coefficients():
    random = np.random.default_rng(1)
    terms = random.lognormal(size=(400, 3))
    measured = evaluate_sum(terms, [2.0, 0.5, 3.0]) * random.lognormal(sigma=0.02, size=400)
    assert fit_sum(terms, measured, [1.0, 1.0, 1.0], pull=0.01) == pytest.approx([2.0, 0.5, 3.0], rel=0.05)
    soft = evaluate_sum(terms, [2.0, 0.5, 3.0], [0, 0, 1], 2.0)
    assert fit_sum(terms, soft, [1.0, 1.0, 1.0], 0.01, [0, 0, 1], 2.0) == pytest.approx([2.0, 0.5, 3.0], rel=0.05)


def test_rows_of_vision():
    found = TABLES["vision"].predict(TIMM)[0]
    assert found.regime.startswith("vision eager_") and found.chip_measured and not found.inferred
    other = TABLES["vision"].predict(TIMM | {"device": "RTX 5090"})[0]
    assert other.predicted > found.predicted and not other.chip_measured
    small = TABLES["vision"].predict(TIMM | {"img_size": "160"})[0]
    assert small.predicted > 1.8 * found.predicted and "image_size = 160" in small.plan
    step = TABLES["vision"].predict(TIMM | {"task": "train", "batch": "128", "device": "RTX 3090"})[0]
    assert step.regime == "vision train_nchw on RTX_3090" and 'task = "training"' in step.plan


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"device": "N/A"}, "does not name"),
        ({"device": "Abacus 9"}, "no hardware"),
        ({"model": "unheard_of", "gmacs": "4.1", "macts": "11", "mparams": "25"}, "no model"),
        ({"img_size": "225"}, "not counted"),
        ({"metric": "time_to_train"}, "convergence"),
        ({"precision": "fp1"}, "no precision"),
        ({"compiler": "magic"}, "compiler"),
    ],
)
def test_unknown_labels_are_skipped_with_the_reason(change, reason):
    with pytest.raises(Skipped, match=reason):
        TABLES["vision"].predict(TIMM | change)


def test_unconfirmed_figures_are_excluded():
    with pytest.raises(Excluded):
        TABLES["vision"].predict(TIMM | {"notes": "NOT CONFIRMED: ..."})


def test_a_board_known_by_core_and_clock():
    row = BLANK | {
        "source": "mlperf-tiny-v1.1",
        "model": "ds-cnn-kws",
        "task": "infer-mcu",
        "device": "SOME_BOARD",
        "metric": "inferences_per_s",
        "value": "50",
        "notes": "closed somebody; performance mode; cpu=32-bit Arm Cortex-M7 @ 216 MHz; acc=",
    }
    assert TABLES["vision"].predict(row)[0].predicted == pytest.approx(54, rel=0.05)
    with pytest.raises(Skipped, match="accelerator"):
        TABLES["vision"].predict(row | {"notes": row["notes"] + "Ethos"})


def test_rows_of_collectives():
    found = TABLES["collectives"].predict(NCCL)[0]
    assert found.regime == "collective link domain" and 20 < found.predicted < 80
    with pytest.raises(Skipped, match="collective"):
        TABLES["collectives"].predict(NCCL | {"collective": "unknown collective"})
    with pytest.raises(Excluded, match="copy"):
        TABLES["collectives"].predict(
            NCCL | {"source": "vidur-network-h100_pairwise_nvlink", "collective": "send_recv"}
        )


def test_rows_of_energy():
    row = {
        "source": "patterson-2021-table4",
        "workload": "GPT-3 175B",
        "hardware": "V100",
        "n_chips": "10000",
        "days": "14.8",
        "gpu_hours": "",
        "pue": "1.1",
        "avg_power_w_per_chip": "330",
        "grid_kgco2_per_kwh": "0.429",
        "metric": "energy",
        "value": "1287",
        "notes": "",
    }
    assert TABLES["energy"].predict(row)[0].predicted == pytest.approx(1287, rel=0.01)
    assert TABLES["energy"].predict(row | {"metric": "gross_emissions"})[0].predicted == pytest.approx(552.1, rel=0.01)
    with pytest.raises(Excluded, match="TDP"):
        TABLES["energy"].predict(row | {"source": "llama-model-cards", "metric": "emissions_location_based"})
    with pytest.raises(Skipped):
        TABLES["energy"].predict(row | {"metric": "total_compute"})


# Median and 90th percentile that each regime must keep on the full tables, in per cent.
LIMITS = {
    "vision": {
        "vision inference": (8, 28),
        "vision training": (8.5, 26),
        "vision cpu": (10.5, 32),
        "diffusion": (10.5, 26),
        # A batch of NVIDIA's configurations starts its kernels and reads its weights, which the fit of long runs did not count: 4.7 became 5.1.
        "vision engine offline": (5.5, 20),
        "microcontroller time": (9, 30),
    },
    "collectives": {"collective link domain": (8, 23)},
    "energy": {"energy per token": (8.5, 27), "energy per image": (7, 18)},
}


POOLS = {"vision inference": ("compiled on", "eager_"), "vision training": ("train_",), "vision cpu": ("cpu on",)}
"""Regimes of vision networks are those of a software on a chip; the limits hold for all chips together."""


def pooled(regime):
    kind = regime.removeprefix("vision ")
    return next((pool for pool, starts in POOLS.items() if kind.startswith(starts)), regime)


@pytest.mark.parametrize("table", LIMITS)
def test_accuracy_on_the_full_tables(table):
    folder = os.environ.get("MLSYSIM_TRUTH")
    if not folder or not (Path(folder) / f"{table}.csv").is_file():
        pytest.skip("MLSYSIM_TRUTH names no folder with the measurement tables")
    errors = defaultdict(list)
    rows = covered = 0
    unpublished = set()
    with (Path(folder) / f"{table}.csv").open(newline="", encoding="utf-8") as stream:
        for row in csv.DictReader(stream):
            try:
                rows += 1
                for found in TABLES[table].predict(row):
                    errors[pooled(found.regime)].append(abs(found.error) * 100)
                covered += 1
            except Skipped as reason:
                # What a sample of these evaluates is stated nowhere; predicting them would need a factor for each.
                if "is not published" in str(reason):
                    unpublished.add(row["model"].removesuffix(".9").removesuffix("-99"))
                    rows -= 1
            except Excluded:
                rows -= 1
    assert covered > 0.97 * rows
    assert unpublished == ({"3d-unet", "dlrm-v2"} if table == "vision" else set())
    for regime, (middle, tail) in LIMITS[table].items():
        assert median(errors[regime]) < middle, regime
        assert float(np.quantile(errors[regime], 0.9)) < tail, regime
