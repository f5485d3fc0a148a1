"""Wall 6: weights that pass through the chip."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlsysim import Hardware, TransformerWorkload
from mlsysim.errors import InputError
from mlsysim.walls.catalog import wall
from mlsysim.walls.node.streaming import WeightStreamingModel

MODEL = WeightStreamingModel()
WAFER = Hardware.Cloud.CerebrasCS3
# 180 B parameters, 80 layers, 8 key-value heads of 64: 2 x 80 x 8 x 64 x 2 B = 163,840 B of cache a token.
BIG = TransformerWorkload(
    name="180B",
    parameters=180e9,
    layers=80,
    hidden_dim=14848,
    heads=232,
    kv_heads=8,
    ffn_dim=59392,
    gated_ffn=False,
    vocab_size=65024,
)


def seconds(value):
    return value.to("s").magnitude


def test_the_papers_case_at_batch_one():
    # 360 GB at 1.2 TB/s = 300 ms a token; B* = 2 B x 125e15 x 0.4 / (2 x 1.2e12) = 41,667.
    result = MODEL.solve(BIG, WAFER, seq_len=2048, efficiency=0.4)
    assert seconds(result.pass_time) == pytest.approx(0.300, rel=1e-9)
    assert result.optimal_batch_size == 41_667
    assert result.bottleneck == "Injection"
    assert result.binding.wall == 6
    assert seconds(result.layer_injection_time) == pytest.approx(0.3 / 80)
    assert result.throughput_tokens_per_sec.to("1/s").magnitude == pytest.approx(1 / 0.3)
    assert result.wafer_memory_utilization == pytest.approx(0.0085, abs=2e-4)
    assert "1.2 TB/s" in result.assumptions["injection_bandwidth"]


def test_the_memory_holds_a_small_part_of_the_balanced_batch():
    # P18: B* sequences of 2,048 tokens keep 41,667 x 2,048 x 163,840 B = 14 TB; 0.9 x 44 GB / 335.5 MB = 118.0 of them
    # fit, and 117 with 0.4 MB of activations each.
    result = MODEL.solve(BIG, WAFER, seq_len=2048, batch_size=41_667, efficiency=0.4)
    assert not result.feasible
    assert result.cache_size.to("TB").magnitude == pytest.approx(13.98, abs=0.01)
    assert result.max_batch_size == pytest.approx(119, rel=0.02)
    each = 2048 * 163_840 + result.activation_size.to("byte").magnitude / 41_667
    assert result.max_batch_size == int(0.9 * 44e9 / each) == 117
    assert result.binding.wall == 2 and "at most 117 fit" in result.binding.sentence
    # At the batch that fits, the wafer gives 390 tokens/s where the paper compares 139,000.
    assert result.max_throughput_tokens_per_sec.to("1/s").magnitude == pytest.approx(117 / 0.3)
    assert MODEL.solve(BIG, WAFER, seq_len=2048, batch_size=117).feasible
    assert not MODEL.solve(BIG, WAFER, seq_len=2048, batch_size=118).feasible


def test_both_sides_of_the_balance():
    # With one token of context attention adds nothing, so the balance is at B*.
    below, above = (MODEL.solve(BIG, WAFER, 1, batch_size=b, efficiency=0.4) for b in (41_000, 42_500))
    assert below.bottleneck == "Injection" and above.bottleneck == "Compute"
    assert above.binding.wall in (1, 2)
    assert seconds(above.layer_time) == seconds(above.layer_compute_time)


def test_the_published_link_is_eight_times_slower():
    # 12 x 100 GbE = 1.2 Tb/s = 150 GB/s: 2.4 s a token and B* = 333,333.
    result = MODEL.solve(BIG, WAFER, 2048, efficiency=0.4, injection_bandwidth="1.2 Tbps")
    assert seconds(result.pass_time) == pytest.approx(2.4)
    assert result.optimal_batch_size == 333_334
    assert "injection_bandwidth" not in result.assumptions


def test_prefill_balances_in_tokens():
    # 41,667 tokens are 20.3 sequences of 2,048.
    result = MODEL.solve(BIG, WAFER, 2048, phase="prefill", efficiency=0.4)
    assert result.optimal_tokens == pytest.approx(41_666.7, abs=0.1)
    assert result.optimal_batch_size == 21
    assert result.throughput_tokens_per_sec.to("1/s").magnitude == pytest.approx(2048 / 0.3)
    assert result.max_batch_size < MODEL.solve(BIG, WAFER, 2048).max_batch_size


def test_experts_that_are_not_hit_are_not_streamed():
    one, many = (MODEL.solve("Mixtral_8x7B", WAFER, 128, batch_size=b) for b in (1, 64))
    assert one.layer_injection_time < many.layer_injection_time
    # All weights against the work of the active ones: B* is larger by their ratio.
    assert one.optimal_tokens > MODEL.solve("Llama3_8B", WAFER, 128).optimal_tokens * 3


def test_without_dimensions_the_memory_is_unknown():
    plain = TransformerWorkload(name="bare", parameters=7e9, layers=32)
    result = MODEL.solve(plain, WAFER, 2048)
    assert result.max_batch_size is None and result.wafer_memory_utilization is None
    assert result.cache_size is None and result.feasible
    assert "unknown" in result.assumptions["memory"]


def test_limits():
    fast = MODEL.solve(BIG, WAFER, 1, batch_size=100, injection_bandwidth="1e6 TB/s")
    assert fast.bottleneck == "Compute"
    assert seconds(fast.layer_time) == seconds(fast.layer_compute_time)
    assert fast.optimal_batch_size == 1


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 10**6), st.floats(0.1, 100), st.floats(0.05, 1.0), st.floats(1.01, 4))
def test_signs(batch, terabytes, efficiency, factor):
    def solve(**changed):
        inputs = {"batch_size": batch, "injection_bandwidth": f"{terabytes} TB/s", "efficiency": efficiency} | changed
        return MODEL.solve(BIG, WAFER, 1024, **inputs)

    here = solve()
    assert solve(injection_bandwidth=f"{terabytes * factor} TB/s").pass_time <= here.pass_time
    assert solve(efficiency=min(1.0, efficiency * factor)).pass_time <= here.pass_time * (1 + 1e-12)
    assert solve(batch_size=batch * 2).pass_time >= here.pass_time
    assert solve(batch_size=batch * 2).throughput_tokens_per_sec >= here.throughput_tokens_per_sec * (1 - 1e-12)
    assert solve(precision="fp32" if WAFER.compute.supports("fp32") else "fp16").optimal_batch_size >= 1


def test_longer_contexts_leave_room_for_fewer():
    sizes = [MODEL.solve(BIG, WAFER, s).max_batch_size for s in (512, 2048, 8192)]
    assert sizes == sorted(sizes, reverse=True)
    assert MODEL.solve(BIG, WAFER, 2048, cache_precision="fp8").max_batch_size > sizes[1]


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        ({"seq_len": 0}, "seq_len"),
        ({"batch_size": 0}, "batch_size"),
        ({"efficiency": 0}, "efficiency"),
        ({"phase": "training"}, "phase"),
        ({"injection_bandwidth": "3 GB"}, "injection_bandwidth"),
        ({"precision": "fp17"}, "fp17"),
        ({"model": "ResNet50"}, "ResNet"),
    ],
)
def test_error_sentences(inputs, said):
    with pytest.raises(InputError, match=said):
        MODEL.solve(**{"model": BIG, "hardware": WAFER, "seq_len": 2048} | inputs)


def test_a_chip_without_a_link_needs_a_bandwidth():
    bare = WAFER.model_copy(update={"interconnect": None})
    with pytest.raises(InputError, match="injection_bandwidth"):
        MODEL.solve(BIG, bare, 2048)
    assert MODEL.solve(BIG, bare, 2048, injection_bandwidth="1.2 TB/s").feasible


def test_explanation_and_card():
    text = MODEL.solve(BIG, WAFER, 2048, efficiency=0.4).explain()
    assert "B* = |W| P eta / (2 P_active BW)" in text
    assert wall(6).name == "Streaming" and wall(6).resolver == "WeightStreamingModel"
