"""What leaves a half of a layer: tokens times the width of the residual stream, of whatever tokens a sample has."""

import pytest

from mlsysim import DistributedModel
from mlsysim.models.registry import Models
from mlsysim.models.traffic import stream


@pytest.mark.parametrize(
    ("model", "tokens", "width", "layers"),
    [
        ("Llama3_8B", 512, 4096, 32),
        ("ViT_L_16", 197, 1024, 24),
        ("DiT_XL_2", 256, 1152, 28),
        ("BERT_Large", 512, 1024, 24),
    ],
)
def test_a_transformer_hands_on_its_tokens(model: str, tokens: int, width: int, layers: int) -> None:
    """ViT-L/16 has 14 x 14 patches and a class token, DiT-XL/2 16 x 16 latents of 2 x 2."""
    found = stream(Models.get(model), 512)
    assert found.elements == tokens * width
    assert found.halves == 2 * layers


def test_frames_of_speech_are_the_encoders_tokens() -> None:
    """Whisper reads 1,500 frames whatever it writes; layers of the decoder are summed three times, of the encoder twice."""
    found = stream(Models.get("Whisper_Large_V3"), 448)
    assert found.elements * found.halves == pytest.approx(1280 * (32 * 3 * 448 + 32 * 2 * 1500))


def test_convolutions_hand_on_half_of_their_outputs() -> None:
    """ResNet-50's 53 convolutions give 11.1 million elements (timm counts 11.11 M activations), and its classifier 1,000."""
    found = stream(Models.get("ResNet50"), 1)
    assert 2 * found.elements * found.halves == pytest.approx(11.11e6, rel=0.02)


def test_tensor_parallelism_of_a_vision_transformer_sums_its_patches() -> None:
    """ViT-L/16, TP 8 on NVLink: 96 rings of 1,024 x 197 x 1,024 numbers, 2 x 7/8 of each at 450 GB/s."""
    split = {"tp_size": 8, "microbatch_count": 1}
    found = DistributedModel().solve("ViT_L_16", "Research_256", 32 * 1024, "bf16", efficiency=0.4, **split)
    message = 1024 * 197 * 1024 * 2
    expected = 96 * 2 * 7 / 8 * message / 450e9
    assert found.tp_communication_latency.to("s").magnitude == pytest.approx(expected, rel=0.05)
    again = DistributedModel().solve(
        "ViT_L_16", "Research_256", 32 * 1024, "bf16", efficiency=0.4, activation_recomputation="full", **split
    )
    assert (again.tp_communication_latency / found.tp_communication_latency).to("").magnitude == pytest.approx(1.5)
