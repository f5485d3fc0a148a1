"""Calibrated times of image diffusion, inference engines and microcontrollers."""

from __future__ import annotations

import pytest

from mlsysim.errors import MLSysError
from mlsysim.hardware.registry import Hardware
from mlsysim.models.inventory import inventory_of
from mlsysim.models.registry import Models
from mlsysim.timing.diffusion_time import denoiser, diffusion_time
from mlsysim.timing.engine_rates import engine_latency, engine_time
from mlsysim.timing.microcontroller import board, inference_time, microcontroller_pass, shape_of

FLUX, H100 = "FLUX_1_dev", "H100"


def test_published_latencies():
    """ML.ENERGY leaderboard: FLUX.1-dev, 50 steps of 1024 x 1024."""
    model = Models.get(FLUX)
    assert diffusion_time(model, Hardware.get(H100), 1) == pytest.approx(11.64, rel=0.2)
    assert diffusion_time(model, Hardware.get(H100), 8) == pytest.approx(87.98, rel=0.2)
    assert diffusion_time(model, Hardware.get(H100), 8, ulysses=8) == pytest.approx(16.19, rel=0.25)


def test_rings_cost_more_than_exchanges_and_few_images_do_not_scale():
    model, chip = Models.get(FLUX), Hardware.get(H100)
    assert diffusion_time(model, chip, 1, ring=8) > diffusion_time(model, chip, 1, ulysses=8)
    assert diffusion_time(model, chip, 1) / diffusion_time(model, chip, 1, ulysses=8) < 4


def test_only_products_scale_with_the_tensor_peak():
    model = Models.get(FLUX)
    gain = diffusion_time(model, Hardware.get(H100), 8) / diffusion_time(model, Hardware.get("B200"), 8)
    assert 1.2 < gain < 1.9


def test_denoiser_counts_the_model():
    model = Models.get(FLUX)
    assert denoiser(model).operations == pytest.approx(model.flops_per_sample, rel=0.01)
    with pytest.raises(MLSysError, match="link"):
        diffusion_time(model, Hardware.get("RTX_4090"), 1, ulysses=2)


def test_engine_reaches_published_offline_rates():
    """MLPerf Inference 4.1, one H100 SXM and one L40S."""
    for model, chip, rate in (
        ("ResNet50", "H100", 88240),
        ("RetinaNet_ResNeXt50", "H100", 1794),
        ("ResNet50", "L40S", 43440),
    ):
        assert 1 / engine_time(inventory_of(Models.get(model)), Hardware.get(chip)) == pytest.approx(rate, rel=0.12)


def test_engine_latency_has_a_floor_of_kernels():
    inventory, chip = inventory_of(Models.get("ResNet50")), Hardware.get("L40S")
    one, eight = engine_latency(inventory, chip, 1), engine_latency(inventory, chip, 8)
    assert one > 5 * engine_time(inventory, chip)
    assert eight < 8 * one


def test_microcontroller_time_and_energy():
    """MLPerf Tiny 1.2 on an STM32U575: 25.9 keyword inferences a second, 26 mW whatever the model."""
    model, target = Models.get("DS_CNN"), board("STM32_U575")
    assert 1 / inference_time(model, target) == pytest.approx(25.9, rel=0.15)
    chip = Hardware.get("STM32_U575")
    for name in ("DS_CNN", "ResNet8"):
        found = microcontroller_pass(Models.get(name), chip, target, 1, "int8")
        assert found.energy / found.time == pytest.approx(0.0255)
        assert found.energy_band[0] < found.energy < found.energy_band[1]
    assert board("STM32_G0B1").power is None
    assert inference_time(model, target, arithmetic="float") > 2 * inference_time(model, target)


def test_shapes_and_unknown_boards():
    assert [shape_of(Models.get(m)) for m in ("DS_CNN", "ResNet8", "Autoencoder")] == [
        "depthwise",
        "dense",
        "connected",
    ]
    with pytest.raises(MLSysError, match="board"):
        board("no such board")
    with pytest.raises(MLSysError, match="runtime"):
        inference_time(Models.get("DS_CNN"), board("STM32_U575"), "magic")
