"""What a training step of a network keeps for its backward pass."""

from __future__ import annotations

import pytest

from mlsysim.models.registry import Models
from mlsysim.plans.evaluate import evaluate_plainly
from mlsysim.plans.plan import Plan


def test_a_counted_network_keeps_what_its_table_keeps():
    """ResNet-50 of timm has one operator for each norm, ReLU and sum, that of the zoo fused ones: the same 45 MB an image."""
    counted, own = (Models.get(name).saved_bytes(1) for name in ("timm/resnet50", "ResNet50"))
    assert counted == pytest.approx(own, rel=0.03)


def test_a_vision_transformer_keeps_what_a_transformer_keeps():
    """Korthikanti et al. 2022, table 2, without dropout masks: 31 s h + 4 a s^2 bytes a layer in 16 bits."""
    layer = 31 * 197 * 768 + 4 * 12 * 197**2
    assert Models.get("timm/vit_base_patch16_224").saved_bytes(1) == pytest.approx(12 * layer, rel=0.1)


@pytest.mark.parametrize(("model", "pixels", "batch"), [("timm/cs3sedarknet_l", 256, 384), ("timm/resnet50", 224, 512)])
def test_steps_that_ran_on_24_gb_fit(model: str, pixels: int, batch: int):
    """Batches of timm's benchmarks of training on an RTX 3090 (benchmark-train-amp-nchw-pt112-cu113-rtx3090)."""
    workload = {"model": model, "batch_size": batch, "image_size": pixels, "precision": "fp16", "optimizer": "momentum"}
    hardware = {"on": "1xRTX_3090", "efficiency": "calibrated", "stack": "eager"}
    table = {
        "task": "training",
        "workload": workload,
        "hardware": hardware,
        "parallelism": {"tp": 1, "micro_batches": 1},
    }
    assert evaluate_plainly(Plan.model_validate(table)).feasible
