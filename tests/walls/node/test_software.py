"""Wall 3: classes with sources, FlashAttention as its own effect, the roofline's say in decode."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlsysim.errors import InputError, UnknownNameError
from mlsysim.models.registry import Models
from mlsysim.timing.efficiency import blended_efficiency, efficiency_class
from mlsysim.walls.node.software import (
    CLASSES,
    EfficiencyModel,
)


def solve(**given_):
    return EfficiencyModel().solve(**{"model": "Llama3_8B", "hardware": "H100"} | given_)


@pytest.mark.parametrize("name", [name for name in CLASSES if name != "transformer"])
def test_classes_are_ranges_with_sources(name):
    entry = efficiency_class(name)
    assert 0 < entry.low < entry.typical < entry.high < 1
    assert entry.sources and all(source.url.startswith("https://") for source in entry.sources)


def test_the_papers_ranges():
    assert (efficiency_class("ffn").low, efficiency_class("ffn").high) == (0.50, 0.60)
    assert efficiency_class("training").low == 0.30
    assert efficiency_class("decode").high == 0.10
    # FlashAttention: 0.3 to 0.75, 2.5 times, is the best kernel over unfused attention.
    assert efficiency_class("flash_attention").high / efficiency_class("attention").typical == pytest.approx(2.5)


def test_default_is_the_feed_forward_class():
    answer = solve()
    assert (answer.mfu, answer.workload_type, answer.use_flash_attention) == (0.55, "ffn", False)
    assert answer.peak_flops.to("TFLOPs/s").magnitude == pytest.approx(989)
    assert answer.achievable_flops.to("TFLOPs/s").magnitude == pytest.approx(0.55 * 989)
    assert "0.5 to 0.6" in answer.assumptions["efficiency"]


@pytest.mark.parametrize("kind", CLASSES)
def test_shares_of_the_peak_add_up(kind):
    answer = solve(workload_type=kind)
    assert sum(answer.overhead_breakdown.values()) == pytest.approx(1)
    assert all(share >= 0 for share in answer.overhead_breakdown.values())
    assert answer.overhead_breakdown["useful"] == answer.mfu
    assert answer.efficiency_low <= answer.mfu <= answer.efficiency_high


def test_flash_attention_is_its_own_effect():
    plain = solve(workload_type="attention")
    fused = solve(workload_type="attention", use_flash_attention=True)
    assert (plain.mfu, fused.mfu) == (0.30, 0.62)
    assert plain.overhead_breakdown["unfused_attention"] == pytest.approx(0.32)
    assert plain.flash_attention_speedup == pytest.approx(0.62 / 0.30)
    assert solve(workload_type="flash_attention").mfu == fused.mfu


def test_a_whole_transformer_gains_less_the_shorter_it_is():
    gains = [solve(workload_type="transformer", seq_len=s).flash_attention_speedup for s in (128, 4096, 1_000_000)]
    assert 1 < gains[0] < 1.01 < gains[1] < gains[2] < 0.62 / 0.30


def test_transformer_blend_by_hand():
    # Llama 3.1 8B at S = 8,192: 2 x 8.03e9 S in products, 2 (128 + 128) x 32 x 32 S (S + 1) / 2 in attention.
    products, attention = 2 * 8.03e9 * 8192, 512 * 32 * 32 * 8192 * 8193 / 2
    expected = (products + attention) / (products / 0.55 + attention / 0.30)
    assert solve(workload_type="transformer", seq_len=8192).mfu == pytest.approx(expected, rel=1e-3)
    assert blended_efficiency(1.0, 0.5, 1.0, 0.25) == pytest.approx(1 / 3)


def test_decode_cannot_exceed_the_roofline():
    # One token: 1 flop/byte of 295 (corrections, case I1: MFU 0.0034 at batch 1, not 0.02).
    one = solve(workload_type="decode")
    assert one.mfu == pytest.approx(3.35e12 / 989e12, rel=1e-9)
    assert one.binding.wall == 2
    assert solve(workload_type="decode", batch_size=64).mfu == 0.05
    measured = solve(workload_type="decode", batch_size=64, efficiency=0.63)
    assert measured.mfu == pytest.approx(64 * 3.35 / 989)
    assert solve(workload_type="decode", batch_size=256, efficiency=0.63).mfu == pytest.approx(0.63)


@settings(max_examples=50, deadline=None)
@given(st.floats(0.01, 1.0), st.sampled_from([kind for kind in CLASSES if kind != "decode"]))
def test_a_measured_efficiency_takes_the_place_of_the_class(efficiency, kind):
    answer = solve(workload_type=kind, efficiency=efficiency)
    assert answer.mfu == answer.efficiency_low == answer.efficiency_high == efficiency
    assert answer.sources == ("given by the user",)
    assert "efficiency" not in answer.assumptions


def test_flash_attention_without_attention_says_so():
    answer = solve(workload_type="ffn", use_flash_attention=True)
    assert "without effect" in answer.assumptions["use_flash_attention"]
    assert solve(workload_type="ffn", use_flash_attention=True).mfu == solve(workload_type="ffn").mfu


def test_sentences():
    with pytest.raises(UnknownNameError, match="attention"):
        solve(workload_type="atention")
    with pytest.raises(InputError, match="above 0"):
        solve(efficiency=0.0)
    for model in ("ResNet50", "T5_Base"):
        with pytest.raises(InputError, match="needs a transformer of one stack"):
            solve(model=model, workload_type="transformer")
    with pytest.raises(InputError, match="does not decode"):
        solve(model="ResNet50", workload_type="decode")
    with pytest.raises(UnknownNameError, match="class of work"):
        efficiency_class("magic")


def test_convolutions_on_any_chip():
    answer = solve(model=Models.get("ResNet50"), hardware="A100", workload_type="convolution")
    assert answer.achievable_flops.to("TFLOPs/s").magnitude == pytest.approx(0.2 * 312)
    assert "eta Peak" in answer.explain()
