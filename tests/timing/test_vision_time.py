"""Calibrated times of vision networks: known answers, limits and signs."""

from __future__ import annotations

import pytest

from mlsysim.errors import InputError, MLSysError
from mlsysim.hardware.registry import Hardware
from mlsysim.models.counted import counted_sizes, timm_network
from mlsysim.models.inventory import inventory_of
from mlsysim.models.registry import Models
from mlsysim.timing.vision_time import clock_of, inventory_time

# Measured on one H200 with PyTorch, channels last, CUDA graph, 512 images. The coefficients come from two GeForce cards; only the launch cost
# and the sharpness, which hardly matter at 512 images, were set with small batches of this chip in view.
H200_AT_512 = {
    ("resnet50", 224): 29.36e-3,
    ("mobilenetv3_large_100", 224): 12.53e-3,
    ("efficientnet_b0", 224): 21.96e-3,
    ("vit_base_patch16_224", 224): 48.25e-3,
}


@pytest.mark.parametrize(("network", "seconds"), H200_AT_512.items())
def test_coefficients_carry_over_to_another_kind_of_chip(network, seconds):
    found = inventory_time(timm_network(*network).inventory, Hardware.get("H200"), 512, "fp16", "graph")
    assert found == pytest.approx(seconds, rel=0.25)


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
    large, twice = (inventory_time(inventory, chip, b, "fp16", "eager_nhwc") for b in (1024, 2048))
    assert twice == pytest.approx(2 * large, rel=0.05)


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
