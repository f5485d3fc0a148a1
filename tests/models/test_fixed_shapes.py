"""Convolutional networks, vision transformers and denoisers."""

from __future__ import annotations

import numpy as np
import pytest

from mlsysim import CNNWorkload, DataWarning, DiffusionWorkload, InputError, Models, VisionTransformerWorkload


def test_resnet_50_is_8_2_gflop_an_image():
    graph = Models.ResNet50.lower()
    assert graph.total_ops.to("GFLOP").magnitude == pytest.approx(8.18, abs=0.01)
    assert Models.ResNet50.parameter_count == Models.ResNet50.derived_parameters == 25_557_032


@pytest.mark.parametrize(
    ("name", "gflop"),
    [
        ("AlexNet", 1.43),
        ("VGG16", 30.95),
        ("ResNet18", 3.63),
        ("ResNet152", 23.03),
        ("MobileNetV2", 0.60),
        ("ConvNeXt_B", 30.7),
        ("ViT_B_16", 35.1),
        ("DiT_XL_2", 237.2),
        ("DS_CNN", 0.0054),
    ],
)
def test_published_operations_of_a_pass(name, gflop):
    assert Models[name].lower().total_ops.to("GFLOP").magnitude == pytest.approx(gflop, rel=0.03)


def test_a_stable_diffusion_pass_counts_its_attention():
    model = Models.StableDiffusion_1_5
    graph = model.lower()
    assert 0.6 < graph.total_ops.to("TFLOP").magnitude < 0.85
    without = graph.total_ops.to("TFLOP").magnitude - graph.by_layer()["attention"] / 1e12
    assert without == pytest.approx(0.68, abs=0.02)


def test_an_image_repeats_the_pass_for_each_step():
    model = Models.StableDiffusion_1_5
    assert model.passes_per_image == model.denoising_steps * model.guidance_passes
    whole, one = model.lower("generate", batch_size=2), model.lower(batch_size=2)
    assert whole.flops == pytest.approx(model.passes_per_image * one.flops)
    assert whole.assumptions == {"passes": f"{model.denoising_steps} steps x {model.guidance_passes} passes"}
    assert whole.weight_bytes == one.weight_bytes


@pytest.mark.parametrize("name", ["ResNet50", "ViT_B_16", "StableDiffusion_1_5", "DLRM_MLPerf", "DLRM_DCNv2"])
def test_training_is_three_passes_and_batches_scale(name):
    model = Models[name]
    one = model.lower().flops
    assert model.lower("training", batch_size=7).flops == pytest.approx(21 * one)
    recomputed = model.lower("training", recompute="full")
    assert recomputed.flops == pytest.approx(3 * one)
    assert recomputed.hardware_flops > recomputed.flops
    np.testing.assert_allclose(model.lower(batch_size=np.array([1, 5])).flops, [one, 5 * one])


@pytest.mark.parametrize("name", ["ResNet50", "ViT_B_16", "DLRM_MLPerf"])
def test_unknown_recomputation_is_refused(name):
    with pytest.raises(InputError, match="There is no recompute mode named 'some'"):
        Models[name].lower("training", recompute="some")


def test_fixed_shapes_take_no_length():
    with pytest.raises(InputError, match=r"^ResNet-50 has a fixed shape and takes no 'seq_len'\.$"):
        Models.ResNet50.lower(seq_len=5)
    with pytest.raises(
        InputError,
        match=r"^'decode' is not a phase of this kind of model; ResNet-50 lowers for inference or training\.$",
    ):
        Models.ResNet50.lower("decode")


def test_operations_alone_make_a_network():
    model = CNNWorkload(name="mine", parameters="25 Mparam", inference_flops="8.2 GFLOP", layers=50)
    assert model.architecture == "cnn"
    graph = model.lower(batch_size=4)
    assert graph.total_ops.to("GFLOP").magnitude == pytest.approx(32.8)
    assert graph.weight_bytes.to("MB").magnitude == pytest.approx(50)
    denoiser = DiffusionWorkload(
        name="mine", parameters="1 Bparam", inference_flops="1 TFLOP", denoising_steps=20, resolution=512
    )
    assert denoiser.lower("generate").total_ops.to("TFLOP").magnitude == pytest.approx(20)


def test_a_network_without_rows_or_operations_is_refused():
    with pytest.raises(InputError, match=r"mine needs 'rows' or 'inference_flops'\.$"):
        CNNWorkload(name="mine", parameters=1e6)


def test_a_bad_row_is_refused_where_it_is_written():
    with pytest.raises(InputError, match="must begin with one of conv"):
        CNNWorkload(name="mine", rows=["konv 3x3 3->8 @8x8"])


def test_rows_that_disagree_with_the_stated_count_warn():
    with pytest.warns(DataWarning, match="mine: the dimensions give"):
        CNNWorkload(name="mine", parameters=1e6, rows=["linear 10->10"])


def test_vision_transformer_by_hand():
    model = Models.ViT_B_16
    assert (model.patches, model.tokens_per_image) == (196, 197)
    h, f = 768, 3072
    block = 4 * h * h + 4 * h + 2 * h * f + f + h + 4 * h
    whole = 12 * block + 2 * h + (3 * 256 * h + h) + 197 * h + h + 1000 * h + 1000
    assert model.derived_parameters == model.parameter_count == whole


def test_a_patch_larger_than_the_image_is_refused():
    with pytest.raises(InputError, match=r"mine: a patch of 32 is larger than the image of 16\.$"):
        VisionTransformerWorkload(name="mine", layers=1, hidden_dim=8, heads=1, ffn_dim=8, image_size=16, patch_size=32)
