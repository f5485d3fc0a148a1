"""What a training step keeps: 16 bytes a parameter and the activations of Korthikanti's count."""

from __future__ import annotations

import pytest

from mlsysim import Models, TrainingMemoryModel
from mlsysim.errors import InputError


def solve(**call: object):
    return TrainingMemoryModel().solve(**{"model": "GPT3_175B", "hardware": "A100", **call})


def test_state() -> None:
    answer = solve()
    parameters = Models.GPT3_175B.parameter_count
    assert answer.weights.to("byte").magnitude == pytest.approx(2 * parameters)
    assert answer.gradients.to("byte").magnitude == pytest.approx(2 * parameters)
    assert answer.optimizer_state.to("byte").magnitude == pytest.approx(12 * parameters)
    assert not answer.feasible and answer.binding.wall == 2


def test_activations_of_gpt_are_32_bytes_a_token_layer_and_width() -> None:
    """34 s b h with dropout masks, of which 2 are masks; logits of 50,257 tokens come on top."""
    answer = solve(batch_size=1, seq_len=2048)
    layers = 96 * 32 * 2048 * 12288
    logits = 8 * 2048 * 50257
    assert answer.activations.to("byte").magnitude == pytest.approx(layers + logits)


def test_sharding_and_precision() -> None:
    assert solve(tp_size=8, pp_size=8).weights.to("byte").magnitude == pytest.approx(
        2 * Models.GPT3_175B.parameter_count / 64
    )
    assert solve(zero_stage=1, dp_size=8).optimizer_state.magnitude == pytest.approx(
        solve().optimizer_state.magnitude / 8
    )
    assert solve(precision="fp32").optimizer_state.magnitude == pytest.approx(8 * Models.GPT3_175B.parameter_count)
    half = solve(trainable_fraction=0.5)
    assert half.optimizer_state.magnitude == pytest.approx(solve().optimizer_state.magnitude / 2)
    assert half.weights == solve().weights
    assert solve(communication_buffer_fraction=0.1).communication_buffers.magnitude == pytest.approx(
        0.1 * 4 * Models.GPT3_175B.parameter_count
    )


def test_recomputation_keeps_inputs_only() -> None:
    assert solve(activation_checkpointing="full").activations < solve().activations / 8


def test_an_unknown_optimizer_is_refused() -> None:
    with pytest.raises(InputError, match="adam"):
        solve(optimizer="adan")
