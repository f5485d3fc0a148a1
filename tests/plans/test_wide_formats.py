"""Formats of more than 16 bits: weights, caches and activations have their bytes, products their peak, intervals are wider."""

import math

import pytest

import mlsysim
from mlsysim.hardware.registry import Hardware
from mlsysim.models.registry import Models
from mlsysim.timing.engine_step import engine_step
from mlsysim.timing.engines import engine
from mlsysim.timing.training_chip import lone_chip
from mlsysim.units.registry import to_si

LOAD = {"isl": 1024, "osl": 256, "concurrency": 8}
_WIDTHS = {"bf16": 2, "tf32": 4, "fp32": 4, "fp64": 8}


def _steps(precision: str, model: str = "Llama3_8B"):
    return engine_step(
        Models.get(model), Hardware.get("H100"), engine("vLLM"), precision=precision, cache_precision="bf16"
    )


@pytest.mark.parametrize("precision", _WIDTHS)
def test_bytes_of_weights_and_activations_follow_the_format(precision):
    usual, asked, more = _steps("bf16"), _steps(precision), _WIDTHS[precision] / 2
    assert asked.device_weights == pytest.approx(more * usual.device_weights)
    logits = usual.stack.vocab * usual._workspace("token_logit")
    assert asked.activation_bytes(100) - 100 * logits == pytest.approx(
        more * (usual.activation_bytes(100) - 100 * logits)
    )


def test_long_prompts_take_as_long_as_the_peak_of_the_format_says():
    chip = Hardware.get("H100").compute
    bound = 2 * Models.get("Llama3_8B").parameter_count * 0.9 * 8192
    for precision in _WIDTHS:
        least = bound / to_si(chip.peak(precision), "flop/s")
        taken = _steps(precision).time(prompts=1.0, prompt_tokens=8192).total
        assert least < taken < 2.2 * least, precision


def test_answers_wait_for_twice_the_bytes():
    usual, wide = (_steps(each).time(sequences=1.0, context=100.0).total for each in ("bf16", "fp32"))
    assert 1.6 * usual < wide < 2.0 * usual


def test_a_wide_model_keeps_wide_caches_and_says_what_multiplies():
    half, full = (mlsysim.serve("Llama3_8B", on="H100", precision=each, **LOAD) for each in ("bf16", "fp32"))
    assert to_si(full.value("kv_cache"), "byte") == pytest.approx(2 * to_si(half.value("kv_cache"), "byte"))
    assert full.assumptions["cache_precision"] == "fp32"
    assert "vector units (67 TFLOP/s)" in full.assumptions["arithmetic"]
    assert "arithmetic" not in half.assumptions
    wide, narrow = (float(each.metric("tpot").high / each.metric("tpot").low) for each in (full, half))
    assert math.log(wide) > 2 * math.log(narrow)
    assert "no run in fp32 was measured" in full.assumptions["interval"]
    assert full.change is not None and "weights and arithmetic in bf16" in full.change.sentence


def test_what_does_not_fit_is_said():
    """8 billion weights of four bytes are more than 24 GB."""
    assert not mlsysim.serve("Llama3_8B", on="RTX4090", precision="fp32", **LOAD).feasible


def test_states_of_recurrent_layers_do_not_grow_with_a_narrow_cache():
    """They have 16 bits at least whatever keys are kept in: of a pure recurrent model a narrow cache changes nothing."""
    model, chip = Models.get("Mamba2_2_7B"), Hardware.get("H100")
    bf16, fp8 = (
        engine_step(model, chip, engine("vLLM"), cache_precision=each).time(sequences=64.0, context=100.0).total
        for each in ("bf16", "fp8")
    )
    assert fp8 == pytest.approx(bf16)


@pytest.mark.parametrize("precision", ["tf32", "fp32"])
def test_training_computes_and_sends_in_the_format(precision):
    chip = Hardware.get("H100")
    usual, asked = lone_chip(chip, "bf16"), lone_chip(chip, precision)
    slower = to_si(chip.compute.peak("bf16"), "flop/s") / to_si(chip.compute.peak(precision), "flop/s")
    assert asked.element == 2 * usual.element == 4
    assert asked.full_rate == asked.product_rate
    assert usual.attention_rate / asked.attention_rate == pytest.approx(slower)


def test_training_in_fp32_sends_twice_the_activations():
    plans = [mlsysim.train("Llama3_8B", on="8xH100", precision=each, tp=8, batch=8) for each in ("bf16", "fp32")]
    half, full = (next(p.sent for p in each.ledger.parts if p.name == "tensor parallelism") for each in plans)
    assert full == pytest.approx(2 * half)
    assert "no run in fp32" in plans[1].assumptions["interval"]
