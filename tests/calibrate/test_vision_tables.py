"""Readers of vision.csv, collectives.csv and energy.csv: rows understood, skipped and excluded."""

from __future__ import annotations

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


def test_images_by_the_second_are_samples_and_compiled_denoisers_stand_in():
    (told,) = TABLES["vision"].predict(TIMM | {"metric": "images/sec"})
    assert told.predicted == TABLES["vision"].predict(TIMM)[0].predicted
    image = {
        "task": "diffusion-infer",
        "model": "stable-diffusion-xl-base-1.0",
        "img_size": "1024",
        "batch": "1",
        "notes": "steps=30",
    }
    image |= {"device": "A100", "precision": "fp16", "metric": "batch_latency", "value": "2.742", "layout": ""}
    (eager,), (built,) = (TABLES["vision"].questions(TIMM | image | {"compiler": how}) for how in ("eager", "tensorrt"))
    assert not eager.inferred and built.guessed == 1 and "stands in for" in built.inferred[0]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"device": "N/A"}, "does not name"),
        ({"device": "Abacus 9"}, "no hardware"),
        ({"model": "unheard_of", "gmacs": "4.1", "macts": "11", "mparams": "25"}, "no model"),
        ({"img_size": "225"}, "not counted"),
        ({"precision": "fp1"}, "no precision"),
        ({"compiler": "magic"}, "compiler"),
    ],
)
def test_unknown_labels_are_skipped_with_the_reason(change, reason):
    with pytest.raises(Skipped, match=reason):
        TABLES["vision"].predict(TIMM | change)


def test_fewer_samples_than_devices_train_on_as_many():
    """MLPerf's 3D U-Net: 56 volumes on 72 GPUs, of which 16 evaluate. MXNet keeps and sums gradients in 16 bits."""
    row = BLANK | {
        "source": "mlperf-training-4.0",
        "model": "unet3d",
        "task": "train",
        "device": "NVIDIA H100-SXM5-80GB",
    }
    row |= {"n_devices": "72", "batch": "56", "metric": "samples_per_s", "value": "3506.2"}
    (asked,) = TABLES["vision"].questions(row)
    assert asked.plan.hardware.on == "56xH100" and asked.plan.workload.batch_size == 56 and asked.factor == 1
    assert asked.plan.workload.gradient_precision == "fp16"


def test_unconfirmed_figures_are_excluded():
    with pytest.raises(Excluded):
        TABLES["vision"].predict(TIMM | {"notes": "NOT CONFIRMED: ..."})
    with pytest.raises(Excluded, match="convergence"):
        TABLES["vision"].predict(TIMM | {"metric": "time_to_train"})


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


def test_nodes_of_one_rack_are_one_domain_and_adapters_are_counted():
    """All-reduce of 4 GiB among the 72 GB200 of a rack takes 10.1 ms (coreweave/nccl-tests, pull 43); 18 nodes say nothing of a network between them."""
    rack = NCCL | {"gpu": "GB200", "n_gpus": "72", "n_nodes": "18", "message_bytes": "4294967296", "value": "10094"}
    for wires in ("NVLink5 NVL72", "NVLink5"):
        (found,) = TABLES["collectives"].predict(rack | {"interconnect": wires})
        assert found.regime == "collective link domain" and found.ape < 25

    def between(wires: str, gpu: str = "H100_SXM", ranks: int = 16) -> float:
        changed = {
            "gpu": gpu,
            "n_gpus": str(ranks),
            "n_nodes": "2",
            "interconnect": wires,
            "message_bytes": "1073741824",
        }
        return TABLES["collectives"].predict(NCCL | changed)[0].predicted

    usual = between("InfiniBand")
    assert between("8x400Gb IB") == between("8 x NDR") == between("16 CX7 NDR") == usual
    assert between("8xXDR") <= usual < between("4x200G RoCE") < between("1x400G")
    # A chip with no link of its own has its host's bus, and a lone rank of a node needs none.
    assert between("ConnectX-7 200 Gb/s", "GB10", 2) > 0


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
    with pytest.raises(Excluded, match="arithmetic"):
        TABLES["energy"].predict(row | {"metric": "total_compute"})


def test_full_precision_under_pytorch_is_tf32_where_the_chip_has_it() -> None:
    row = BLANK | {"model": "convnext_tiny", "task": "infer", "n_devices": "1", "precision": "fp32", "layout": "nchw"}
    row |= {"compiler": "eager", "img_size": "224", "batch": "128", "metric": "latency_ms", "value": "53"}
    questions = {device: TABLES["vision"].questions(row | {"device": device})[0] for device in ("A100", "V100 16GB")}
    assert [q.plan.workload.precision for q in questions.values()] == ["tf32", "fp32"]
    assert {q.unit for q in questions.values()} == {"ms"}
