"""What a training step of a network keeps for its backward pass."""

from __future__ import annotations

import pytest

from mlsysim.models.registry import Models
from mlsysim.plans.answer import Answer
from mlsysim.plans.evaluate import evaluate_plainly
from mlsysim.plans.plan import Plan


def test_a_counted_network_keeps_what_its_table_keeps():
    """ResNet-50 of timm has one operator for each norm, ReLU and sum, that of the zoo fused ones: the same 45 MB an image."""
    counted, own = (Models.get(name).saved_bytes(1) for name in ("timm/resnet50", "ResNet50"))
    assert counted == pytest.approx(own, rel=0.03)


@pytest.mark.parametrize("name", ["timm/vit_base_patch16_224", "ViT_B_16"])
def test_a_vision_transformer_keeps_what_a_transformer_keeps(name: str):
    """Korthikanti et al. 2022, table 2, without dropout: 32 s h bytes a layer in 16 bits, and no scores where attention is fused."""
    assert Models.get(name).saved_bytes(1) == pytest.approx(12 * 32 * 197 * 768, rel=0.02)


@pytest.mark.parametrize(
    ("model", "runtime", "batch", "gigabytes", "within"),
    [
        # Most that PyTorch's tensors took on an H200 (calibrate/data/h200_extra2.csv.gz and h200_other.csv.gz, mixed precision).
        ("timm/resnet50", "eager_nhwc", 32, 1.879, 0.1),
        ("timm/resnet50", "eager_nhwc", 256, 11.977, 0.1),
        ("timm/convnext_base", "eager_nhwc", 128, 17.848, 0.1),
        ("timm/mobilenetv3_large_100", "eager_nhwc", 256, 6.162, 0.1),
        ("ViT_B_16", "eager", 128, 10.972, 0.1),
        ("ViT_B_16", "eager", 256, 19.772, 0.1),
        # The same compiled, with a momentum: what the allocator had reserved in own steps of PyTorch 2.11.
        ("timm/vit_base_patch16_224", "compiled", 256, 19.004, 0.1),
        ("timm/vit_large_patch16_224", "compiled", 64, 15.007, 0.1),
        ("timm/convnext_tiny", "compiled", 128, 7.883, 0.1),
        ("timm/resnet50", "compiled", 256, 13.634, 0.1),
        ("DiT_XL_2_512", "compiled", 16, 26.378, 0.1),
        # What joins all layers before it is a copy, and each norm keeps one: left out.
        ("timm/densenet121", "eager_nhwc", 128, 8.825, 0.15),
        # diffusers' U-Net on an H200: what the allocator had reserved.
        ("StableDiffusion_XL", "eager", 8, 109.3, 0.1),
    ],
)
def test_training_holds_what_it_was_seen_to_hold(
    model: str, runtime: str, batch: int, gigabytes: float, within: float
) -> None:
    """Weights in single precision, their casts, moments, and what gradients need; nothing is fitted."""
    optimizer = "momentum" if runtime == "compiled" else "adamw"
    seen = _step(model, runtime, batch, "H200", optimizer=optimizer).value("memory").to("GB").magnitude
    assert seen == pytest.approx(gigabytes, rel=within)


@pytest.mark.parametrize(("model", "pixels", "batch"), [("timm/cs3sedarknet_l", 256, 384), ("timm/resnet50", 224, 512)])
def test_steps_that_ran_on_24_gb_fit(model: str, pixels: int, batch: int):
    """Batches of timm's benchmarks of training on an RTX 3090 (benchmark-train-amp-nchw-pt112-cu113-rtx3090)."""
    assert _step(model, "eager", batch, "RTX_3090", image_size=pixels, precision="fp16", optimizer="momentum").feasible


def _step(model: str, runtime: str, batch: int, chip: str, **more: object) -> Answer:
    workload = {"model": model, "batch_size": batch, "precision": "bf16", "optimizer": "adamw"} | more
    hardware = {"on": f"1x{chip}", "efficiency": "calibrated", "stack": runtime}
    parallelism = {"tp": 1, "micro_batches": 1}
    table = {"task": "training", "workload": workload, "hardware": hardware, "parallelism": parallelism}
    return evaluate_plainly(Plan.model_validate(table))


def _trained(model: str, fidelity: str, part: str | None) -> tuple[float, float, float]:
    table = {
        "task": "training",
        "workload": {"model": model, "batch_size": 512, "seq_len": 4096, "precision": "bf16"},
        "hardware": {"on": "1024xH200", "efficiency": fidelity},
        "parallelism": {"tp": 2, "pp": 16, "ep": 32 if "Deep" in model else 1, "recompute": part or "none"},
    }
    answer = evaluate_plainly(Plan.model_validate(table))
    return answer.value("latency"), answer.value("memory"), answer.value("hfu") / answer.value("mfu") - 1


@pytest.mark.parametrize("fidelity", ["calibrated", 0.4])
@pytest.mark.parametrize(
    ("model", "part", "again"),
    [
        # Of the 70.6 billion parameters 56 are in dense feed-forward layers.
        ("Llama3_70B", "mlp", 3 * 28672 * 8192 * 80 / 70.6e9),
        ("Llama3_70B", "shared", 0.0),
        # Three dense layers of width 18,432, one shared expert of 2,048 in 58 others, of 37 billion parameters that a token meets.
        ("DeepSeek_V3", "mlp", 3 * 18432 * 7168 * 3 / 37.5e9),
        ("DeepSeek_V3", "shared", 3 * 2048 * 7168 * 58 / 37.5e9),
        ("DeepSeek_V3", "moe_act", 0.0),
    ],
)
def test_parts_that_are_computed_again_cost_their_operations(
    model: str, part: str, again: float, fidelity: str | float
) -> None:
    """Both fidelities: less is held, and a forward pass of the part comes on top of three of everything."""
    (time, memory, more), (usual, full, none) = (_trained(model, fidelity, each) for each in (part, None))
    nothing = model == "Llama3_70B" and part == "shared"
    assert none == pytest.approx(0, abs=1e-9) and more == pytest.approx(again / 3, rel=0.15, abs=1e-9)
    assert (
        (memory == full and time == usual)
        if nothing
        else (memory < full and usual <= time < usual * (1 + again / 2 + 0.02))
    )
