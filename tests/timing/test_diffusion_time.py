"""Calibrated times of image diffusion, inference engines and microcontrollers."""

from __future__ import annotations

import csv
import statistics
from importlib.resources import files

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlsysim.ask import train
from mlsysim.errors import MLSysError
from mlsysim.hardware.registry import Hardware
from mlsysim.models.inventory import inventory_of
from mlsysim.models.registry import Models
from mlsysim.timing.diffusion_time import EAGER, XDIT, denoiser, denoising_time, diffusion_features, diffusion_time
from mlsysim.timing.engine_rates import engine_latency, engine_time
from mlsysim.timing.microcontroller import board, inference_time, microcontroller_pass, shape_of

FLUX, H100 = "FLUX_1_dev", "H100"


def test_published_latencies():
    """ML.ENERGY leaderboard: FLUX.1-dev, 50 steps of 1024 x 1024, under xDiT."""
    model = Models.get(FLUX)
    assert diffusion_time(model, Hardware.get(H100), 1, stack=XDIT) == pytest.approx(11.64, rel=0.2)
    assert diffusion_time(model, Hardware.get(H100), 8, stack=XDIT) == pytest.approx(87.98, rel=0.2)
    assert diffusion_time(model, Hardware.get(H100), 8, ulysses=8, stack=XDIT) == pytest.approx(16.19, rel=0.25)


def test_passes_that_we_measured():
    """Passes of diffusers' networks on an H200, eager, captured in a graph and compiled. The coefficients were fitted on them, with nine times as many of xDiT's."""
    errors, chip = [], Hardware.get("H200")
    lines = files("mlsysim.calibrate").joinpath("data/h200_denoisers.csv").read_text(encoding="utf-8").splitlines()
    for row in csv.DictReader(lines):
        stack = EAGER if row["mode"] == "eager" else f"{EAGER}_{row['mode']}"
        time = denoising_time(Models.get(row["model"]), chip, float(row["batch"]), stack=stack)
        errors.append(abs(time / float(row["seconds"]) - 1))
    assert len(errors) == 74
    assert statistics.median(errors) < 0.09
    assert statistics.quantiles(errors, n=10)[-1] < 0.28


@pytest.mark.parametrize(
    ("model", "chip", "steps", "stack", "seconds", "within"),
    [
        # pytorch.org/blog/accelerating-generative-ai-3: bf16 with scaled_dot_product_attention, then torch.compile.
        ("StableDiffusion_XL", "A100", 30, EAGER, 3.31, 0.1),
        ("StableDiffusion_XL", "A100", 30, "diffusion_compiled", 2.54, 0.1),
        # github.com/xlite-dev/flux-faster: bf16, then torch.compile. Products of this card are an estimate for its generation.
        (FLUX, "L20", 28, EAGER, 24.94, 0.3),
        (FLUX, "L20", 28, "diffusion_compiled", 20.24, 0.3),
    ],
)
def test_published_images_that_no_coefficient_has_seen(model, chip, steps, stack, seconds, within):
    found = diffusion_time(Models.get(model), Hardware.get(chip), 1, steps, stack=stack)
    assert found == pytest.approx(seconds, rel=within)


@given(
    st.sampled_from([FLUX, "StableDiffusion_XL", "DiT_XL_2"]),
    st.sampled_from(["H100", "A100", "L4"]),
    st.integers(1, 32),
)
def test_a_graph_never_waits_longer_than_launches_and_compiled_code_moves_less(model, chip, batch):
    work, node = Models.get(model), Hardware.get(chip)
    eager, graph, compiled = (
        denoising_time(work, node, batch, stack=stack) for stack in (EAGER, "diffusion_graph", "diffusion_compiled")
    )
    assert graph <= eager
    assert compiled <= eager
    assert denoising_time(work, node, batch + 1) > eager


def test_heads_of_few_dimensions_wait_for_their_exponentials():
    features = diffusion_features(denoiser(Models.get("StableDiffusion_3_Medium")), Hardware.get("H200"), 1, 1, 1)
    wide = diffusion_features(denoiser(Models.get(FLUX)), Hardware.get("H200"), 1, 1, 1)
    assert features["scores"] / features["attention_products"] == pytest.approx(
        2 * wide["scores"] / wide["attention_products"]
    )


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


@pytest.mark.parametrize(
    ("model", "chip"), [("FLUX_1_dev", "H100"), ("StableDiffusion_XL", "RTX_4090"), ("SANA_1_5_1_6B", "A100")]
)
def test_weights_that_are_expanded_in_memory_are_not_faster_than_those_in_16_bits(model, chip):
    """bitsandbytes expands each matrix before its product reads it: FLUX.1 was 3 % faster in nf4, and is 8 % slower. Kernels of GPTQ expand in registers."""
    work, node = Models.get(model), Hardware.get(chip)
    wide, held, inside = (denoising_time(work, node, 1, name) for name in ("bf16", "nf4", "gptq"))
    assert inside <= wide < held
    images = [diffusion_time(work, node, 1, 10, precision=name) for name in ("bf16", "nf4")]
    assert images[1] - images[0] == pytest.approx(10 * (held - wide), rel=1e-6)


def test_adapters_on_expanded_weights_take_longer_by_two_passes_of_expansion():
    bf16, nf4, gptq = (
        train("FLUX_1_dev", on="1xH100", batch_size=1, lora_rank=16, precision=name)
        .metric("latency")
        .value.to("s")
        .magnitude
        for name in ("bf16", "nf4", "gptq")
    )
    once = denoising_time(Models.get("FLUX_1_dev"), Hardware.get("H100"), 1, "nf4")
    once = once - denoising_time(Models.get("FLUX_1_dev"), Hardware.get("H100"), 1, "bf16")
    # The network's stack is compiled, which widens a second by what a denoiser takes.
    assert 1.8 * once < nf4 - bf16 < 2.5 * once < gptq - bf16
