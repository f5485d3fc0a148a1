from __future__ import annotations

import pytest

from mlsysim import InputError, Models


def test_speech_always_encodes_thirty_seconds():
    model = Models.Whisper_Small
    short, long = (model.lower("prefill", seq_len=n) for n in (1, 100))
    frames = {op.m for graph in (short, long) for op in graph.operators if op.name == "stem_2"}
    assert frames == {1500}
    assert model.lower("decode", seq_len=5).flops < 0.01 * short.flops


def test_speech_decode_attends_to_all_frames():
    keys = [op.n for op in Models.Whisper_Small.lower("decode", seq_len=5).operators if op.kind == "attention"]
    assert sorted(keys) == [6, 1500]


def test_image_tokens_enter_the_prompt():
    model = Models.LLaVA_1_5_7B
    graph = model.lower("prefill", batch_size=2, seq_len=100, images=3)
    assert graph.tokens == 2 * (100 + 3 * 576)
    patches = next(op for op in graph.operators if op.name == "patch_embedding")
    assert patches.m == 2 * 3 * 576


def test_without_images_only_the_language_model_runs():
    model = Models.LLaVA_1_5_7B
    text = model.lower("prefill", seq_len=100, images=0)
    assert text.flops == model.language.lower("prefill", seq_len=100).flops


def test_decode_sees_the_images_in_its_context_and_keeps_all_weights():
    model = Models.LLaVA_1_5_7B
    step = model.lower("decode", seq_len=100, images=2)
    assert step.flops == model.language.lower("decode", seq_len=100 + 2 * 576).flops
    assert step.name == "LLaVA-1.5 7B"
    assert step.weight_bytes == model.lower("prefill", seq_len=100).weight_bytes
    assert step.parameter_count.magnitude == model.parameter_count


def test_the_projector_is_trained_with_the_rest():
    model = Models.LLaVA_1_5_7B
    forward = model.lower("prefill", seq_len=64, logits="all")
    assert model.lower("training", seq_len=64).flops == pytest.approx(3 * forward.flops, rel=1e-9)


def test_two_towers_side_by_side():
    model = Models.CLIP_L_14
    graph = model.lower()
    assert (graph.phase, model.image_tokens) == ("inference", 0)
    towers = model.vision.lower().flops + model.language.lower("prefill", seq_len=77).flops
    assert graph.flops == pytest.approx(towers, rel=0.01)
    with pytest.raises(InputError, match=r"^'decode' is not a phase of this kind of model; CLIP"):
        model.lower("decode")
