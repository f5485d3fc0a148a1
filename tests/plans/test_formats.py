"""Formats in answers: what is stored, what it computes in, and what a checkpoint brings with it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlsysim.errors import InputError, UnknownNameError
from mlsysim.hardware.arithmetic import arithmetic_peak
from mlsysim.hardware.registry import Hardware
from mlsysim.models.registry import Models
from mlsysim.models.storage import stored
from mlsysim.physics.precision import FORMATS, PARTS, PASSES, recipe_of, recipes
from mlsysim.plans.evaluate import evaluate
from mlsysim.plans.plan import Plan
from mlsysim.units.registry import to_si
from mlsysim.walls.node.compute_memory import SingleNodeModel
from mlsysim.walls.node.serving import ServingModel

WEIGHT_ONLY = sorted(name for name, each in FORMATS.items() if each.weight_only)
CHIPS = ("A100", "H100", "RTX_4090", "L4", "MI300X", "L40S")


def asked(task: str, model: str, on: str, **keys: Any) -> Any:
    return evaluate(Plan(**({"task": task, "model": model, "on": on} | keys)), change=False)


def test_adapters_on_four_bits_compute_in_sixteen():
    """An RTX 4090 has 165 TFLOP/s in bf16 and 661 in INT4; QLoRA is bound by the first."""
    for efficiency in ("calibrated", 0.9):
        keys = {"precision": "nf4", "lora_rank": 16, "batch_size": 1, "seq_len": 2048, "efficiency": efficiency}
        answer = asked("training", "Llama3_8B", "1xRTX_4090", **keys)
        assert answer.feasible and answer.value("mfu") < 1
        operations = 4 * 8.03e9 * 2048 / answer.value("latency").to("s").magnitude
        assert 40e12 < operations < 165.2e12


@pytest.mark.parametrize(
    ("model", "precision", "engine", "size"),
    [
        # Files of bartowski's and QuantFactory's repositories: tables of tokens and the head are quantised too, and stay so.
        ("Llama3_8B", "q4_k_m", "llama.cpp", 4.92e9),
        ("Llama3_8B", "q8_0", "llama.cpp", 8.54e9),
        ("Llama3_8B", "q6_k", "vLLM", 6.60e9),
        ("Llama3_70B", "q4_k_m", "llama.cpp", 42.52e9),
        ("Llama3_8B", "mlx 4bit", "llama.cpp", 4.52e9),
        # Checkpoints that leave tables and head in 16 bits.
        ("Llama3_70B", "awq", "vLLM", 39.8e9),
        ("GPT_OSS_120B", None, "vLLM", 65.2e9),
    ],
)
def test_a_server_holds_what_the_file_has(model: str, precision: str | None, engine: str, size: float) -> None:
    keys = {"engine": engine, "concurrency": 1} | ({} if precision is None else {"precision": precision})
    held = {each.name: each.bytes for each in asked("serving", model, "1xB300", **keys).ledger.held}
    assert held["weights"] == pytest.approx(size, rel=0.03)


def test_weights_that_nothing_multiplies_in_are_not_trained():
    with pytest.raises(InputError, match="int4 stores weights and trains none; train adapters"):
        asked("training", "Llama3_8B", "8xH100", precision="int4")


@given(st.sampled_from(WEIGHT_ONLY), st.sampled_from(CHIPS), st.sampled_from([0.5, "calibrated"]))
def test_a_long_prompt_is_no_faster_than_in_16_bits(name, chip, efficiency):
    """At 4,096 tokens arithmetic binds, and weights are expanded beside it (NF4 through memory)."""
    wide = "bf16" if Hardware.get(chip).compute.supports("bf16") else "fp16"

    def seconds(precision: str) -> float:
        found = SingleNodeModel().solve("Llama3_8B", chip, 1, precision, efficiency=efficiency, seq_len=4096)
        return float(found.latency.to("s").magnitude)

    assert seconds(name) >= 0.999 * seconds(wide)
    assert seconds(name) < 1.6 * seconds(wide)
    assert arithmetic_peak(Hardware.get(chip), name)[0] == arithmetic_peak(Hardware.get(chip), wide)[0]


@given(
    st.sampled_from([name for name in WEIGHT_ONLY if FORMATS[name].expanded == "kernel" and FORMATS[name].bits >= 4]),
    st.sampled_from(CHIPS),
)
def test_a_decode_of_one_reads_its_bytes(name, chip):
    """At first order the time is that of the bytes, so that W4A16 gains what it stores; the vector units hide."""
    narrow, wide = (
        SingleNodeModel().solve("Llama3_8B", chip, 1, precision, phase="decode").latency.to("s").magnitude
        for precision in (name, "fp16")
    )
    dispatch = Hardware.get(chip).dispatch_tax.to("s").magnitude
    ratio = stored(Models.get("Llama3_8B"), name).mean / 2
    assert (narrow - dispatch) / (wide - dispatch) == pytest.approx(ratio, rel=0.01)


@given(
    st.sampled_from(sorted(FORMATS)), st.sampled_from(sorted(FORMATS)), st.sampled_from(["Llama3_8B", "Mixtral_8x7B"])
)
def test_fewer_stored_bits_never_hold_more(one, other, model):
    workload = Models.get(model)
    held = [
        ServingModel().solve(workload, "H200", 1024, 4, precision=name, cache_precision="bf16", tp_size=2)
        for name in (one, other)
    ]
    sizes = [stored(workload, name).mean for name in (one, other)]
    memory = [answer.memory_per_device.to("byte").magnitude for answer in held]
    assert (memory[0] - memory[1]) * (sizes[0] - sizes[1]) >= 0
    assert held[0].kv_cache_size == held[1].kv_cache_size
    assert memory[0] == pytest.approx(
        sizes[0] * workload.parameter_count / 2 + held[0].kv_cache_size.to("byte").magnitude / 2
    )


@pytest.mark.parametrize(
    ("model", "on", "own", "gigabytes"),
    [
        ("DeepSeek_V3", "8xH200", "fp8_block", 673),
        ("GPT_OSS_120B", "1xH100", "mxfp4", 65),
        ("GPT_OSS_20B", "1xRTX_4090", "mxfp4", 13.7),
        ("Kimi_K2_5", "8xH200", "int4_g32", 594),
    ],
)
@pytest.mark.parametrize("efficiency", ["calibrated", 0.5])
def test_a_checkpoint_is_served_as_it_is_published(model, on, own, gigabytes, efficiency):
    answer = asked("serving", model, on, efficiency=efficiency, concurrency=1)
    assert answer.feasible and answer.assumptions["precision"] == f"{own}, that of the checkpoint"
    weights = next(each.bytes for each in answer.ledger.held if each.name == "weights")
    assert weights * int(on.split("x")[0]) == pytest.approx(gigabytes * 1e9, rel=0.03)


def test_a_plan_may_say_another_format_and_training_says_what_it_takes():
    assert not asked("serving", "DeepSeek_V3", "8xH200", precision="bf16", concurrency=1).feasible
    trained = asked("training", "GPT_OSS_20B", "8xH100", batch_size=64, seq_len=4096)
    assert trained.assumptions["precision"].startswith(
        "bf16, what training computes in; the checkpoint is published in mxfp4"
    )


def test_one_pass_of_a_language_model_is_in_its_own_format():
    assert asked("inference", "Llama3_8B", "1xH100").assumptions["precision"] == "bf16"
    assert asked("inference", "ResNet50", "1xH100").assumptions["precision"] == "fp16"
    assert asked("inference", "GPT_OSS_20B", "1xH100").assumptions["precision"] == "mxfp4, that of the checkpoint"


def test_fp8_is_stored_alone_where_a_chip_has_no_fp8():
    answer = asked("serving", "Llama3_70B", "2xA100", precision="fp8", tp=2, concurrency=1)
    assert "fp8 weights computed in bf16: NVIDIA A100" in answer.assumptions["arithmetic"]


def test_scales_of_blocks_are_not_taken_for_granted():
    plain = asked("serving", "Llama3_8B", "1xH100", precision="mxfp8", concurrency=8)
    assert "mxfp8 taken as fp8: NVIDIA H100 SXM5 80GB has no scales of blocks" in plain.assumptions["arithmetic"]
    assert "arithmetic" not in asked("serving", "Llama3_8B", "1xB200", precision="mxfp8", concurrency=8).assumptions


def test_an_unknown_format_is_one_sentence():
    with pytest.raises((UnknownNameError, ValueError), match="There is no precision named 'awqq'; did you mean 'awq'"):
        asked("serving", "Llama3_8B", "1xH100", precision="awqq")


def test_a_recipe_says_what_it_computes_in():
    answer = asked("training", "Llama3_8B", "8xB200", precision="mxfp8", batch_size=64, seq_len=4096)
    assert answer.feasible and "gradients of weights) in fp8, an exponent for each 32" in answer.assumptions["recipe"]
    plain = asked("training", "Llama3_8B", "8xB200", precision="bf16", batch_size=64, seq_len=4096)
    assert answer.value("latency") < plain.value("latency") and "recipe" not in plain.assumptions


def test_tokens_go_to_experts_in_a_format_of_their_own():
    """Half of what is exchanged is dispatched: in fp8 three quarters of the bytes are sent."""
    layout = {"tp": 1, "pp": 4, "ep": 32, "recompute": "full", "batch_size": 1024, "seq_len": 4096}
    sent = []
    for precision in (None, "fp8"):
        for efficiency in ("calibrated", 0.5):
            keys = layout | {"efficiency": efficiency} | ({"exchange_precision": precision} if precision else {})
            answer = asked("training", "DeepSeek_V3", "256xH200", **keys)
            sent.append(sum(part.sent for part in answer.ledger.parts if part.name == "expert parallelism"))
    assert sent[2] == pytest.approx(0.75 * sent[0]) and sent[3] == pytest.approx(0.75 * sent[1])


def test_recipes_are_tables_that_name_what_exists():
    for recipe in recipes().values():
        assert recipe.source and recipe.scaled and recipe.conversion in ("plain", "block")
        assert set(recipe.products) <= {*PARTS, "scores", "logits"} and set(recipe.passes) <= set(PASSES)
        assert all(FORMATS[name].multiplied for name in recipe.formats) and 0 <= recipe.wide_layers < 1
    assert recipe_of("fp8", "dualpipe").name == "deepseek_v3" and recipe_of("fp8", "bridge").name == "fp8"
    assert not recipe_of("bf16", "dualpipe").narrow


STEP = {"batch_size": 64, "seq_len": 4096, "tp": 1, "pp": 1, "micro_batch": 1, "recompute": "none", "zero": 1}


@pytest.mark.parametrize("efficiency", ["calibrated", 0.5])
def test_layers_in_16_bits_lead_from_one_format_to_the_other(efficiency):
    """No layer wide, some, all: each is slower, the last as slow as bf16 but for what it sends; MXFP4 narrows two products of three."""

    def seconds(precision: str, **more: Any) -> float:
        keys = STEP | {"precision": precision, "efficiency": efficiency} | more
        return float(asked("training", "Llama3_8B", "8xB200", **keys).value("latency").to("s").magnitude)

    times = [seconds("fp8", wide_layers=wide) for wide in (0, 4, 16, 32)]
    assert times == sorted(times) and times[0] < 0.85 * times[-1]
    assert times[-1] == pytest.approx(seconds("bf16"), rel=0.01)
    published, every = seconds("nvfp4"), seconds("nvfp4", wide_layers=0)
    assert every < published < seconds("mxfp4") < seconds("bf16")


@pytest.mark.parametrize("efficiency", ["calibrated", 0.5])
def test_what_no_recipe_narrows_takes_as_long_as_in_16_bits(efficiency):
    """At 65,536 tokens attention is much of the work: fp8 gains less than on a short sequence."""

    def gain(seq_len: int) -> float:
        found = []
        for precision in ("bf16", "fp8"):
            keys = STEP | {"seq_len": seq_len, "precision": precision, "efficiency": efficiency}
            keys |= {"recompute": "full", "batch_size": 8 * 65536 // seq_len}
            found.append(asked("training", "Llama3_8B", "8xB200", **keys).value("latency").to("s").magnitude)
        return float(found[0] / found[1])

    assert 1.05 < gain(65536) < 0.85 * gain(4096) < 2


def test_deepseeks_recipe_sends_and_keeps_less():
    """arXiv 2412.19437, section 3.3: tokens are dispatched in fp8 (three quarters of what is exchanged), moments are bf16 (8 bytes of state
    a parameter instead of 12), activations wait in fp8; in bf16 the same software does neither."""
    layout = {"tp": 1, "pp": 16, "ep": 64, "zero": 1, "batch_size": 15360, "seq_len": 4096, "micro_batch": 1}
    own, wide = (
        asked("training", "DeepSeek_V3", "DeepSeek_2K", stack="dualpipe", precision=precision, **layout)
        for precision in ("fp8", "bf16")
    )
    sent = [sum(p.sent for p in each.ledger.parts if p.name == "expert parallelism") for each in (own, wide)]
    held = [{h.name: h.bytes for h in each.ledger.held if h.where == "device"} for each in (own, wide)]
    assert sent[0] == pytest.approx(0.75 * sent[1])
    assert held[0]["optimizer state"] == pytest.approx(8 / 12 * held[1]["optimizer state"])
    assert held[0]["activations"] < 0.8 * held[1]["activations"]
    assert "moments in bf16; waiting activations in fp8; tokens to experts in fp8" in own.assumptions["recipe"]


@pytest.mark.parametrize("precision", ["fp8", "int8", "int4", "bf16", "fp32"])
def test_who_is_asked_keeps_caches_in_one_format(precision):
    """The resolver at both fidelities, what it demands and its list of operators: 16 bits, or as wide as the model runs."""
    width = 4.0 if precision == "fp32" else 2.0
    sizes = {"batch_size": 4, "output_len": 100, "precision": precision}
    first, fitted = (
        ServingModel().solve("Llama3_8B", "H200", 1000, **sizes, **more) for more in ({}, {"efficiency": "calibrated"})
    )
    model = Models.get("Llama3_8B")
    expected = model.stack.cache_bytes(1100, width) * 4
    assert to_si(first.kv_cache_size, "byte") == to_si(fitted.kv_cache_size, "byte") == pytest.approx(expected)
    each = model.stack.cache_bytes(1000, width, read=True) * 4
    assert model.demand("decode", batch_size=4, context=1000, precision=precision).cache_bytes == each
    operators = model.lower("decode", batch_size=4, seq_len=1000, precision=precision).operators
    assert sum(op.cache_bytes * op.count for op in operators) == pytest.approx(each, rel=0.01)
