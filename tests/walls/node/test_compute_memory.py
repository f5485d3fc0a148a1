"""Walls 1 and 2: the roofline by hand, its limits, what does not fit, phases, microcontrollers, training."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlsysim import Engine, Hardware, Models, OOMError, SingleNodeModel
from mlsysim.errors import InputError
from mlsysim.walls.analysis.sensitivity import scaled

H100 = Hardware.Cloud.H100


def solve(model: object = "Llama2_7B", hardware: object = H100, **options: object):
    return SingleNodeModel().solve(model, hardware, **options)


def test_decode_by_hand() -> None:
    answer = solve(batch_size=4)
    weights = Models.Llama2_7B.parameter_count * 2
    assert answer.latency_memory.to("s").magnitude == pytest.approx(weights / 3.35e12, rel=1e-12)
    assert answer.latency_compute.to("s").magnitude == pytest.approx(4 * weights / (989e12 * 0.5), rel=1e-12)
    assert answer.latency.to("s").magnitude == pytest.approx(weights / 3.35e12 + 1e-5, rel=1e-12)
    assert answer.assumptions["phase"] == "one decode token per sequence"
    assert answer.bottleneck == "Memory" and answer.binding.wall == 2


@pytest.mark.parametrize(("batch", "mfu"), [(1, 0.0034), (8, 0.027), (32, 0.108), (128, 0.43), (256, 0.63)])
def test_the_papers_batch_sweep_corrected(batch: int, mfu: float) -> None:
    """Arithmetic intensity is the batch; MFU = min(B / 295, eta); the crossover lies at 186."""
    answer = solve(batch_size=batch, efficiency=0.63)
    assert answer.arithmetic_intensity.to("flop/byte").magnitude == pytest.approx(batch)
    assert answer.mfu == pytest.approx(mfu, rel=0.02)
    assert answer.bottleneck == ("Compute" if batch > 186 else "Memory")


def test_context_adds_its_cache() -> None:
    empty, long = solve(phase="decode", seq_len=0), solve(phase="decode", seq_len=4096)
    cache = Models.Llama2_7B.get_kv_cache_size(4096).to("byte").magnitude
    extra = (long.latency_memory - empty.latency_memory).to("s").magnitude
    assert extra == pytest.approx(cache / 3.35e12, rel=1e-9)


def test_prefill_is_compute_bound_and_counts_attention() -> None:
    answer = solve(seq_len=4096)
    plain = 2 * Models.Llama2_7B.parameter_count * 4096
    attention = 32 * 4 * 4096 * 4096 * 4097 / 2
    assert answer.phase == "prefill" and answer.bottleneck == "Compute"
    assert answer.latency_compute.to("s").magnitude == pytest.approx((plain + attention) / (989e12 * 0.5), rel=1e-12)


def test_what_does_not_fit_streams_only_what_spills() -> None:
    """Needed are the weights, and the keys and values of the four new tokens."""
    answer = solve("Llama3_70B", batch_size=4)
    needed, have = 141.2e9 + 4 * 2 * 80 * 8 * 128 * 2, 80 * 2**30
    assert not answer.feasible and answer.bottleneck == "Memory"
    spilled = 141.2e9 * (1 - have / needed)
    assert answer.offload_spill_bytes.to("byte").magnitude == pytest.approx(spilled, rel=1e-9)
    time = (141.2e9 - spilled) / 3.35e12 + spilled / 64e9
    assert answer.latency_memory.to("s").magnitude == pytest.approx(time, rel=1e-9)
    assert answer.remedies[0] == "store the weights in fp8" and "use 2 devices or more" in answer.remedies
    assert solve("Llama3_70B", precision="fp8").feasible
    with pytest.raises(OOMError, match=r"needs 141\.2 GB") as caught:
        solve("Llama3_70B", raise_errors=True)
    assert caught.value.needed == pytest.approx(needed - 3 * 2 * 80 * 8 * 128 * 2)


def test_without_a_host_link_times_are_as_if_it_fitted() -> None:
    chip = H100.model_copy(update={"interconnect": None})
    answer = solve("Llama3_70B", chip)
    assert not answer.feasible and "as if the model fitted" in answer.assumptions["spill"]
    assert answer.latency_memory.to("s").magnitude == pytest.approx(141.2e9 / 3.35e12)


def test_microcontrollers_leave_weights_in_flash() -> None:
    answer = solve("Autoencoder", "nRF52840", precision="int8")
    assert answer.feasible and "flash" in answer.assumptions["weights"]
    assert answer.memory_footprint < answer.memory_capacity
    assert not solve("ResNet50", "nRF52840", precision="int8").feasible


def test_training_is_three_forward_passes_and_sixteen_bytes() -> None:
    train, infer = solve(is_training=True, seq_len=512), solve(seq_len=512)
    assert train.latency_compute.magnitude == pytest.approx(3 * infer.latency_compute.magnitude)
    state = 16 * Models.Llama2_7B.parameter_count
    assert train.memory_footprint.to("byte").magnitude > state
    full = solve(is_training=True, seq_len=512, activation_recomputation="full")
    assert full.memory_footprint < train.memory_footprint and full.hfu / full.mfu == pytest.approx(4 / 3)
    lora = solve(is_training=True, seq_len=512, is_lora=True)
    assert lora.memory_footprint < train.memory_footprint
    model = Models.Llama2_7B
    passes = [model.demand(phase, seq_len=512).flops for phase in ("prefill", "training")]
    scores = passes[0] - 2 * model.active_parameter_count * 512
    # Scores have no weights whose gradient is saved.
    assert lora.latency_compute / train.latency_compute == pytest.approx((2 * passes[0] + scores) / passes[1])
    shared = solve(is_training=True, seq_len=512, zero_stage=1, dp_size=8)
    saved = (train.memory_footprint - shared.memory_footprint).to("byte").magnitude
    # The allocator's reserve is 7 % of what is held.
    assert saved == pytest.approx(1.07 * 12 * 7 / 8 * Models.Llama2_7B.parameter_count)


def test_narrow_weights_on_a_chip_without_narrow_arithmetic() -> None:
    answer = solve(precision="int4")
    assert "int4 weights computed in" in answer.assumptions["arithmetic"]
    assert answer.latency_memory.magnitude == pytest.approx(solve().latency_memory.magnitude / 4)


def test_the_hero_example() -> None:
    """ResNet-50 on an A100 at batch 1 is memory bound; 0.54 ms of the documents' 0.54 are a layer tax we do not charge."""
    answer = Engine.solve(Models.ResNet50, Hardware.A100, batch_size=1, precision="fp16")
    assert answer.bottleneck == "Memory"
    assert answer.latency.to("ms").magnitude < 0.1


def test_sweep() -> None:
    rows = Engine.sweep("Llama3_8B", ["H100", Hardware.A100], batch_sizes=(1, 8), precisions=("fp16", "fp8"))
    assert [(r["batch_size"], r["precision"]) for r in rows[:4]] == [(1, "fp16"), (1, "fp8"), (8, "fp16"), (8, "fp8")]
    assert len(rows) == 8 and rows[0]["profile"].mfu <= rows[2]["profile"].mfu


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"model": "ResNet50", "seq_len": 10}, "fixed shape"),
        ({"model": "ResNet50", "phase": "decode"}, "has no decode"),
        ({"is_training": True, "phase": "decode"}, "contradicts"),
        ({"optimizer": "adamm", "is_training": True}, "adam"),
    ],
)
def test_contradictions(options: dict[str, object], words: str) -> None:
    with pytest.raises(InputError, match=words):
        solve(**options)


@settings(max_examples=60, deadline=None)
@given(
    batch=st.integers(1, 4096),
    efficiency=st.floats(0.01, 1.0),
    seq_len=st.one_of(st.none(), st.integers(1, 100_000)),
    factor=st.floats(1.0, 100.0),
    which=st.sampled_from(["peak_flops", "memory_bandwidth", "memory_capacity", "host_link_bandwidth"]),
)
def test_more_of_anything_is_never_slower(
    batch: int, efficiency: float, seq_len: int | None, factor: float, which: str
) -> None:
    before = solve(batch_size=batch, efficiency=efficiency, seq_len=seq_len)
    after = solve(hardware=scaled(H100, {which: factor}), batch_size=batch, efficiency=efficiency, seq_len=seq_len)
    assert after.latency.magnitude <= before.latency.magnitude * (1 + 1e-12)
    assert 0 < before.mfu <= efficiency + 1e-9
    assert before.memory_footprint.magnitude >= Models.Llama2_7B.parameter_count * 2


@settings(max_examples=40, deadline=None)
@given(
    model=st.sampled_from(["NemotronH_8B", "Llama3_8B", "Mixtral_8x7B", "ResNet50", "Qwen3_30B_A3B", "WakeVision"]),
    chip=st.sampled_from(["L40S", "V100_32GB", "RTX_4090", "A100_40GB", "STM32_U585"]),
    batch=st.sampled_from([1, 3, 64, 5000, 200_000]),
    length=st.sampled_from([None, 2048, 32768]),
    efficiency=st.sampled_from([0.5, "calibrated"]),
)
def test_what_is_said_to_fit_does(model: str, chip: str, batch: int, length: int | None, efficiency: object) -> None:
    """The first of the remedies, done: caches do not shrink with the format of the weights, and one more at a time is too many."""
    more = {} if length is None or model in ("ResNet50", "WakeVision") else {"seq_len": length}
    asked = {"efficiency": efficiency, "precision": "fp32" if chip == "STM32_U585" else "fp16", **more}
    try:
        answer = solve(model, chip, batch_size=batch, **asked)
    except InputError:
        return
    if answer.feasible:
        return
    for words in answer.remedies:
        if found := re.match(r"run ([\d,]+) at a time", words):
            most = int(found[1].replace(",", ""))
            assert 1 <= most < batch and solve(model, chip, batch_size=most, **asked).feasible
            assert not solve(model, chip, batch_size=most + 1, **asked).feasible
        if found := re.match(r"store the weights in (\w+)", words):
            assert solve(model, chip, batch_size=batch, **(asked | {"precision": found[1]})).feasible
