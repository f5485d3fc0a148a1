"""Calibrated times on one device, and ``efficiency="calibrated"`` in the single-node resolver."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlsysim.errors import InputError
from mlsysim.hardware.registry import Hardware
from mlsysim.models.registry import Models
from mlsysim.timing.device_time import inference_time, lookup_training_time
from mlsysim.timing.stacks import software, software_names
from mlsysim.walls.node.compute_memory import SingleNodeModel

H200 = Hardware.get("H200")
LLAMA = Models.get("Llama3_8B")
NODE = SingleNodeModel()


def solve(model="Llama3_8B", hardware="H200", precision="bf16", **inputs):
    return NODE.solve(model, hardware, precision=precision, efficiency="calibrated", **inputs)


def measured(**inputs):
    """A pass under the software that was measured here: an engine's kernels, replayed without its host."""
    return solve(runtime="engine", **inputs)


def ms(quantity):
    return quantity.to("ms").magnitude


def test_decode_and_prefill_of_llama_on_an_h200():
    assert ms(measured(seq_len=512, phase="decode").latency) == pytest.approx(4.53, rel=0.03)
    assert ms(measured(seq_len=2048).latency) == pytest.approx(48.6, rel=0.03)


def test_the_answer_says_how_it_was_found():
    found = measured(seq_len=2048)
    assert found.assumptions["fidelity"].startswith("calibrated")
    assert found.assumptions["profile"] == "H200 (measured)"
    assert "efficiency" not in found.assumptions and "bandwidth_efficiency" not in found.assumptions
    low, high = found.interval
    assert low < found.latency < high
    assert "sum over operators" in found.explain()
    assert NODE.solve("Llama3_8B", "H200").interval is None
    assert found.assumptions["interval"].startswith("90 % of 30 measured passes (prefill graph)")
    assert "no pass was measured on this chip" in measured(hardware="H100", seq_len=128).assumptions["interval"]
    assert measured(hardware="L40S", seq_len=128).assumptions["interval"].startswith("extrapolating")
    assert measured(hardware="L40S", seq_len=128).assumptions["profile"] == "generation_Ada_Lovelace (generation)"


def test_bands_widen_with_what_is_not_known():
    spreads = []
    for chip in ("H200", "H100", "L40S"):
        low, high = measured(hardware=chip, seq_len=1024).interval
        spreads.append(round(ms(high) / ms(low), 9))
    assert spreads == sorted(spreads) and spreads[0] < spreads[-1]


def test_parts_add_up():
    for inputs in ({"seq_len": 2048}, {"seq_len": 512, "phase": "decode"}, {"seq_len": 512, "is_training": True}):
        found = solve("Llama3_2_1B", **inputs)
        parts = ms(found.latency_compute) + ms(found.latency_memory) + ms(found.latency_overhead)
        assert parts == pytest.approx(ms(found.latency))


@pytest.mark.parametrize("model", ["Llama3_8B", "Mixtral_8x7B", "BERT_Large", "ResNet50", "ViT_B_16", "DiT_XL_2"])
@pytest.mark.parametrize("chip", ["A100", "H100", "B200", "MI300X", "TPU_v5p", "V100_32GB", "M2_Ultra", "T4"])
def test_no_chip_beats_its_datasheet(model, chip):
    sizes = {} if Models.get(model).fixed_shape else {"seq_len": 256}
    for inputs in ({**sizes, "batch_size": 64}, {**sizes, "batch_size": 4, "is_training": True}):
        found = solve(model, chip, precision=Hardware.get(chip).compute.headline, **inputs)
        assert 0 < found.mfu <= 1 and found.latency.magnitude > 0


def test_another_word_than_calibrated_is_refused():
    with pytest.raises(InputError, match="or 'calibrated', got 'fast'"):
        NODE.solve("Llama3_8B", "H100", efficiency="fast")


def test_a_network_known_by_totals_only_is_refused():
    from mlsysim.models.vision import CNNWorkload

    unknown = CNNWorkload(name="Totals", parameters="25 Mparam", inference_flops="8 GFLOP")
    with pytest.raises(InputError, match="need its layers"):
        solve(unknown)


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 64), st.integers(1, 4096), st.sampled_from(["bf16", "fp8"]))
def test_more_work_takes_longer(batch, length, precision):
    once = solve(seq_len=length, phase="decode", batch_size=batch, precision=precision).latency
    assert solve(seq_len=length, phase="decode", batch_size=2 * batch, precision=precision).latency > once
    assert solve(seq_len=2 * length, phase="decode", batch_size=batch, precision=precision).latency >= once


def test_fp8_is_faster_and_a_slower_attention_kernel_slower():
    assert solve(seq_len=2048, precision="fp8").latency < solve(seq_len=2048).latency
    one, two = (inference_time(LLAMA, H200, "prefill", 1, 8192, 0, "bf16", attention=a) for a in ("fused", "fa2"))
    assert two.total > one.total


def test_a_recommender_recomputes_its_forward_pass_and_does_not_update_what_is_frozen():
    model = Models.get("DLRM_DCNv2")
    none, full, frozen = (
        lookup_training_time(model, H200, 8192, "bf16", recompute, "adam", held).device
        for recompute, held in (("none", False), ("full", False), ("none", True))
    )
    assert frozen < none < full < 4 / 3 * none


def test_launching_one_by_one_waits_for_the_host():
    graph, eager = (
        inference_time(LLAMA, H200, "decode", 1, 1, 512, "bf16", software_name=name)
        for name in ("engine", "engine_eager")
    )
    assert graph.waiting == 0 and eager.waiting > 0.004 and eager.total > 2 * graph.total


@pytest.mark.parametrize("name", software_names())
def test_software_is_documented(name):
    assert software(name).title and software(name).source


def test_unknown_software_is_refused():
    with pytest.raises(InputError, match="software"):
        software("fortran")
