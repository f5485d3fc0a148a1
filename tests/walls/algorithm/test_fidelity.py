"""Wall 13: what compression saves and speeds up."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlsysim import InputError
from mlsysim.walls.algorithm.fidelity import CompressionModel
from mlsysim.walls.node.compute_memory import SingleNodeModel


def solve(model="Llama3_8B", hardware="H100", **inputs):
    return CompressionModel().solve(model, hardware, **inputs)


def test_the_baseline_has_sixteen_bits():
    # The original counts from fp32 and reports 4 and 8 times.
    assert solve(target_bitwidth=8).compression_ratio == 2
    assert solve(target_bitwidth=4).compression_ratio == 4
    result = solve("Llama3_70B", target_bitwidth=4)
    assert result.original_size_gb.to("GB").magnitude == pytest.approx(141.2)
    assert result.compressed_size_gb.to("GB").magnitude == pytest.approx(35.3)
    assert result.memory_savings_pct == pytest.approx(75)
    assert solve(target_bitwidth=8, baseline_bitwidth=32).compression_ratio == 4


def test_compression_can_make_a_model_fit():
    result = solve("Llama3_70B", target_bitwidth=4)
    assert result.feasible and not result.fits_before
    still = solve("Llama3_405B", target_bitwidth=4)
    assert not still.feasible
    assert "Wall 2" in still.binding.sentence


def test_weights_alone_speed_up_decode_and_not_prefill():
    result = solve(target_bitwidth=4)
    assert result.decode_speedup == pytest.approx(4, rel=0.01)
    # Weights are expanded while the matrix units multiply, in a third of their time on an H100.
    assert result.prefill_speedup == pytest.approx(1)
    assert result.inference_speedup == result.decode_speedup
    assert result.bound_before == "Memory"


def test_quantised_arithmetic_speeds_up_compute_bound_work():
    # The paper's fallacy denies it; fp8 and int8 double the H100's peak.
    for number_format in ("int", "fp"):
        result = solve(target_bitwidth=8, quantize_activations=True, number_format=number_format)
        assert 1.9 < result.prefill_speedup <= 1979 / 989
    big = solve(target_bitwidth=8, quantize_activations=True, batch_size=2048, seq_len=1)
    assert big.bound_before == "Compute"
    assert big.decode_speedup > 1.9


def test_a_compute_bound_decode_gains_nothing_from_narrow_weights():
    result = solve(target_bitwidth=4, batch_size=512, seq_len=128)
    assert result.bound_before == "Compute"
    assert result.decode_speedup == pytest.approx(1)


@pytest.mark.parametrize("name", ["int4", "awq", "nf4", "q4_k_m", "fp8", "int8", "mxfp4", "nvfp4"])
@pytest.mark.parametrize("chip", ["A100", "H100", "B200"])
def test_times_and_memory_are_those_of_the_single_node_model(name, chip):
    node = SingleNodeModel()
    found = solve(hardware=chip, format=name, seq_len=1024, batch_size=4)
    for phase, speedup in (("decode", found.decode_speedup), ("prefill", found.prefill_speedup)):
        asked = {"phase": phase, "seq_len": 1024, "cache_precision": "fp16"}
        before, after = (node.solve("Llama3_8B", chip, 4, each, **asked) for each in ("fp16", name))
        assert speedup == pytest.approx((before.latency / after.latency).to("").magnitude)
        if phase == "decode":
            assert found.memory == after.memory_footprint and found.latency == after.latency
    if name == "int4":
        plain = solve(hardware=chip, target_bitwidth=4, seq_len=1024, batch_size=4)
        assert plain.latency == found.latency and plain.memory == found.memory


def test_a_format_says_how_weights_are_quantised():
    with pytest.raises(InputError, match="leave out 'target_bitwidth'"):
        solve(format="awq", target_bitwidth=4)
    with pytest.raises(InputError, match="leave out 'method'"):
        solve(format="awq", method="pruning")
    with pytest.raises(InputError, match="more bits than the original"):
        solve(format="fp32")
    assert solve(format="gptq").accuracy_delta_range == solve(target_bitwidth=4).accuracy_delta_range
    assert solve(format="q2_k").accuracy_delta_range is None


def test_missing_arithmetic_falls_back_and_says_so():
    result = solve(target_bitwidth=4, quantize_activations=True)
    assert "no faster int4 arithmetic" in result.assumptions["arithmetic"]
    assert result.prefill_speedup < 2
    native = solve(hardware="B200", target_bitwidth=4, quantize_activations=True, number_format="fp")
    assert "arithmetic" not in native.assumptions
    assert native.prefill_speedup > 3


def test_slow_narrow_arithmetic_is_not_used():
    # B300 gave up most of its int8 units: the weights are expanded and multiplied at 16 bits.
    result = solve(hardware="B300", target_bitwidth=8, quantize_activations=True)
    assert "no faster int8" in result.assumptions["arithmetic"]
    assert result.prefill_speedup == pytest.approx(1)


def test_unstructured_sparsity_is_smaller_but_no_faster():
    result = solve(method="pruning", sparsity=0.9)
    assert result.compression_ratio == pytest.approx(10)
    assert result.decode_speedup == result.prefill_speedup == 1


def test_two_of_four_needs_sparse_units():
    fast = solve(method="pruning", sparsity_type="2:4")
    assert fast.compression_ratio == 2
    assert 1.9 < fast.prefill_speedup <= 2.002
    slow = solve(hardware="V100", method="pruning", sparsity_type="structured_2_4")
    assert slow.prefill_speedup == pytest.approx(1)
    assert "states no 2:4 peak" in slow.assumptions["sparse_arithmetic"]


def test_whole_channels_help_on_any_chip():
    result = solve(hardware="V100", method="pruning", sparsity_type="structured", sparsity=0.5)
    assert result.decode_speedup == pytest.approx(2, rel=0.01)
    assert result.prefill_speedup > 1.8


def test_both_multiply():
    result = solve(method="both", target_bitwidth=8, sparsity_type="2:4")
    assert result.compression_ratio == pytest.approx(4)
    assert result.decode_speedup == pytest.approx(4, rel=0.01)


def test_scales_and_indices_are_counted_on_request():
    assert solve(target_bitwidth=4, group_size=128).compression_ratio == pytest.approx(16 / 4.125)
    indexed = solve(method="pruning", sparsity_type="2:4", count_indices=True)
    assert indexed.compression_ratio == pytest.approx(16 / 9)
    unstructured = solve(method="pruning", sparsity=0.5, count_indices=True)
    assert unstructured.compression_ratio == pytest.approx(16 / 9)
    assert unstructured.decode_speedup == 1


def test_int8_does_not_take_the_accuracy_of_fp8():
    integers = solve(target_bitwidth=8, quantize_activations=True)
    floats = solve(target_bitwidth=8, quantize_activations=True, number_format="fp")
    assert integers.accuracy_delta_range == (-0.03, -0.01)
    assert floats.accuracy_delta_range == (-0.01, 0.0)
    assert "Kurtic" in integers.accuracy_source


def test_unknown_accuracy_stays_unknown():
    for result in (
        solve(target_bitwidth=2),
        solve(method="pruning", sparsity=0.7),
        solve("ResNet50", "A100"),
        solve(method="both", target_bitwidth=8, sparsity=0.5),
    ):
        assert result.estimated_accuracy_delta is None
        assert result.accuracy_delta_range is None
        assert "not known" in result.assumptions["accuracy"]


def test_a_given_curve_is_used():
    result = solve(target_bitwidth=6, accuracy_curve=[(4, -0.02), (8, 0.0)])
    assert result.estimated_accuracy_delta == pytest.approx(-0.01)
    pruned = solve(method="pruning", sparsity=0.6, accuracy_curve=[(0.5, -0.01), (0.7, -0.05)])
    assert pruned.estimated_accuracy_delta == pytest.approx(-0.03)
    assert solve(target_bitwidth=3, accuracy_curve=[(4, -0.02), (8, 0.0)]).estimated_accuracy_delta is None


def test_no_compression_changes_nothing():
    result = solve(target_bitwidth=16)
    assert result.compression_ratio == result.inference_speedup == 1
    assert result.estimated_accuracy_delta == 0
    assert solve(method="pruning").estimated_accuracy_delta == 0


def test_a_vision_model_has_one_kind_of_pass():
    result = solve("ResNet50", "A100", quantize_activations=True, batch_size=256)
    assert result.decode_speedup is None and result.prefill_speedup is None
    assert result.inference_speedup == pytest.approx(2, rel=0.01)


def test_an_encoder_has_no_decode():
    result = solve("BERT_Base", "A100")
    assert result.decode_speedup is None
    assert result.inference_speedup == result.prefill_speedup


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        ({"sparsity": 0.5}, "method='pruning' or 'both'"),
        ({"method": "pruning", "target_bitwidth": 4}, "method='quantization' or 'both'"),
        ({"target_bitwidth": 32}, "more than the 16"),
        ({"target_bitwidth": 0}, "at least 1"),
        ({"method": "pruning", "sparsity_type": "2:4", "sparsity": 0.6}, "2:4 sparsity is 0.5"),
        ({"method": "pruning", "sparsity": 1.0}, "at most 0.999"),
        ({"baseline_bitwidth": 24}, "16 or 32"),
        ({"method": "teach"}, "use one of quantization"),
        ({"accuracy_curve": "steep"}, "accuracy_curve"),
    ],
)
def test_errors_name_the_remedy(inputs, words):
    with pytest.raises(InputError, match=words):
        solve(**inputs)


@given(st.floats(1, 15.9), st.floats(1, 15.9), st.integers(1, 4096))
def test_fewer_bits_are_never_slower_or_larger(a, b, batch):
    narrow, wide = sorted((a, b))
    few, many = solve(target_bitwidth=narrow, batch_size=batch), solve(target_bitwidth=wide, batch_size=batch)
    assert few.compressed_size_gb <= many.compressed_size_gb
    # Below about 1.2 bits the vector units bind, and both are equal but for rounding.
    assert few.decode_speedup >= (1 - 1e-12) * many.decode_speedup >= 0.999
    assert few.decode_speedup <= few.compression_ratio
