"""Calibrated times of vision networks: known answers, limits and signs."""

from __future__ import annotations

import pytest

from mlsysim.errors import InputError, MLSysError
from mlsysim.hardware.registry import Hardware
from mlsysim.models.counted import timm_network
from mlsysim.models.inventory import inventory_of
from mlsysim.models.registry import Models
from mlsysim.models.timm_counts import counted_sizes
from mlsysim.timing.vision_time import clock_of, inventory_time, issue_rate

# Measured by `mlsysim verify` on one H200 (PyTorch 2.11, channels last, mixed precision). Neither network is in a fit; others on this chip are.
H200 = [
    ("ViT_B_16", "graph", 1, 0.933e-3),
    ("ViT_B_16", "graph", 256, 26.04e-3),
    ("ViT_B_16", "train_nhwc", 128, 43.30e-3),
    ("ViT_B_16", "compiled", 256, 20.90e-3),
    ("ViT_B_16", "compiled_train", 128, 35.57e-3),
    ("ResNet50", "graph", 1, 1.027e-3),
    ("ResNet50", "graph", 256, 16.01e-3),
    ("ResNet50", "eager_nhwc", 256, 16.52e-3),
    ("ResNet50", "train_nhwc", 128, 33.60e-3),
    ("ResNet50", "compiled", 256, 10.87e-3),
    ("ResNet50", "compiled_train", 128, 27.93e-3),
]


@pytest.mark.parametrize(("network", "stack", "batch", "seconds"), H200)
def test_networks_that_no_fit_has_seen(network, stack, batch, seconds):
    found = inventory_time(inventory_of(Models.get(network)), Hardware.get("H200"), batch, "bf16", stack)
    assert found == pytest.approx(seconds, rel=0.25)


def test_lanes_of_integers_count_for_elementwise_kernels():
    """Per clock and SM an A100 issues as much as an RTX 3090, whose single-precision rate counts twice as many lanes (NVIDIA's whitepapers)."""
    slots = [issue_rate(Hardware.get(key)) / (sms * clock) for key, sms, clock in
             (("A100", 108, 1.41e9), ("V100_16GB", 80, 1.53e9), ("T4", 40, 1.59e9), ("RTX_3090", 82, 1.695e9), ("H200", 132, 1.98e9))]  # fmt: skip
    assert slots == pytest.approx([256] * 5, rel=0.02)


def test_inventory_agrees_with_the_zoo_on_operations():
    for name, size, model in (("resnet50", 224, "ResNet50"), ("efficientnet_b0", 224, "EfficientNet_B0")):
        counted, zoo = timm_network(name, size).inventory, inventory_of(Models.get(model))
        assert sum(zoo.operations.values()) == pytest.approx(sum(counted.operations.values()), rel=0.02)
        assert zoo.elements["pointwise"] == pytest.approx(counted.elements["pointwise"], rel=0.02)
    assert sum(len(sizes) for sizes in counted_sizes().values()) > 1700


def test_compiled_is_faster_than_eager_and_training_four_times_inference():
    inventory, chip = timm_network("resnet50", 224).inventory, Hardware.get("RTX_4090")
    eager = inventory_time(inventory, chip, 256, "amp", "eager_nchw")
    assert inventory_time(inventory, chip, 256, "amp", "compiled") < eager
    assert 3 < inventory_time(inventory, chip, 256, "amp", "train_nchw") / eager < 6


def test_small_batches_are_bound_by_launches():
    inventory, chip = timm_network("mobilenetv3_large_100", 224).inventory, Hardware.get("H200")
    one, four = (inventory_time(inventory, chip, b, "fp16", "eager_nhwc") for b in (1, 4))
    assert one == pytest.approx(four, rel=0.1)
    large, twice = (inventory_time(inventory, chip, b, "fp16", "eager_nhwc") for b in (4096, 8192))
    assert twice == pytest.approx(2 * large, rel=0.02)


@pytest.mark.parametrize("name", ["resnet50", "convnext_base", "vit_base_patch16_224", "efficientnet_b0"])
@pytest.mark.parametrize("batch", [1, 16, 256])
def test_nothing_is_converted_where_weights_have_the_format_of_the_arithmetic(name, batch):
    inventory, chip = timm_network(name, 224).inventory, Hardware.get("H200")
    for mixed in ("eager_nchw", "eager_nhwc", "graph"):
        throughout, cast = (inventory_time(inventory, chip, batch, "fp16", mixed + how) for how in ("_16bit", ""))
        assert throughout < 1.05 * cast
    # A transformer keeps its stream in single precision under autocast.
    if name.startswith(("vit", "convnext")) and batch == 256:
        assert throughout < 0.9 * cast
    # In single precision there is nothing to convert.
    assert inventory_time(inventory, chip, 1, "fp32", "eager_nhwc") < inventory_time(
        inventory, chip, 1, "fp16", "eager_nhwc"
    )


def test_a_low_power_limit_lowers_the_clock():
    assert clock_of(Hardware.get("RTX_4090")) == 1.0
    assert clock_of(Hardware.get("T4")) < 0.8
    assert clock_of(Hardware.get("H100_PCIe")) == pytest.approx(0.83, abs=0.02)


def test_cpu_is_inference_alone():
    inventory, chip = timm_network("resnet50", 224).inventory, Hardware.get("Core_i9_10940X")
    assert 0.005 < inventory_time(inventory, chip, 1, "fp32", "compiled") < 0.05
    xeon = Hardware.get("Xeon_8480")
    wide, narrow = (inventory_time(inventory, xeon, 64, p, "compiled") for p in ("fp32", "bf16"))
    assert narrow < wide
    with pytest.raises(InputError, match="training"):
        inventory_time(inventory, chip, 1, "fp32", "train_nchw")


def test_unknown_labels_raise():
    with pytest.raises(MLSysError, match="stack"):
        inventory_time(timm_network("resnet50", 224).inventory, Hardware.get("H100"), 1, "fp16", "magic")
