from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlsysim import InputError, Models
from mlsysim.models.ffn import FeedForward, MixtureOfExperts, experts_hit
from mlsysim.models.passes import Pass, Sharding


def prefill(tokens, **degrees):
    return Pass.of("prefill", 1, tokens, 0, "fp16", Sharding(**degrees))


def test_one_token_hits_its_own_experts_and_many_hit_all():
    assert experts_hit(256, 8, 1) == pytest.approx(8)
    assert experts_hit(256, 8, 100_000) == pytest.approx(256)
    assert experts_hit(8, 8, 1) == 8


@given(st.integers(1, 512), st.data())
def test_experts_hit_grows_with_tokens_and_stays_within_its_bounds(experts, data):
    k = data.draw(st.integers(1, experts))
    n = data.draw(st.integers(1, 10_000))
    hit = experts_hit(experts, k, n)
    assert k * (1 - 1e-9) <= hit <= min(experts, k * n) * (1 + 1e-9)
    assert experts_hit(experts, k, n + 1) >= hit


def test_gated_layers_have_three_matrices():
    assert FeedForward(100, 300, gated=True).parameters == 3 * 100 * 300
    assert FeedForward(100, 300, gated=False).parameters == 2 * 100 * 300
    assert FeedForward(100, 300, gated=False, bias=True).parameters == 2 * 100 * 300 + 300 + 100
    ops = FeedForward(100, 300, gated=True).operators(prefill(7))
    assert sum(op.flops for op in ops) == 2 * 7 * 3 * 100 * 300


def test_experts_read_only_what_is_hit():
    layer = MixtureOfExperts(100, experts=16, per_token=2, width=50, gated=True)
    one_expert = 3 * 100 * 50 * 2

    def read(tokens):
        return sum(op.weight_bytes for op in layer.operators(prefill(tokens)) if op.kind == "grouped_gemm")

    assert read(1) == pytest.approx(2 * one_expert)
    assert read(10_000) == pytest.approx(16 * one_expert)


def test_expert_operations_follow_active_experts():
    layer = MixtureOfExperts(100, experts=16, per_token=2, width=50, gated=True, shared_width=50)
    ops = layer.operators(prefill(10))
    assert sum(op.flops for op in ops) == 2 * 10 * layer.active_parameters
    assert layer.parameters == 16 * 3 * 100 * 50 + 3 * 100 * 50 + 100 * 16
    assert layer.active_parameters == 2 * 3 * 100 * 50 + 3 * 100 * 50 + 100 * 16


def test_imbalance_loads_the_busiest_device():
    even, skewed = (
        sum(
            op.flops
            for op in MixtureOfExperts(100, 16, 2, 50, True, imbalance=x).operators(prefill(64, ep=4))
            if op.kind == "grouped_gemm"
        )
        for x in (1.0, 1.5)
    )
    assert skewed == 1.5 * even


@pytest.mark.parametrize(("tp", "ep"), [(1, 1), (2, 2), (4, 2), (8, 1), (2, 8), (1, 8)])
def test_expert_work_is_conserved_over_the_group(tp, ep):
    """Devices x local work = the tokens that the group brought, whichever way experts are split."""
    layer, tokens = MixtureOfExperts(64, 8, 2, 32, True), 128
    local = sum(op.flops for op in layer.operators(prefill(tokens, tp=tp, ep=ep)) if op.kind == "grouped_gemm")
    devices, brought = max(tp, ep), tokens * max(ep / tp, 1)
    assert local * devices == 2 * brought * 2 * 3 * 64 * 32


def test_expert_parallelism_exchanges_tokens():
    ops = MixtureOfExperts(64, 8, 2, 32, True).operators(prefill(128, ep=4))
    exchanges = [op for op in ops if op.kind == "all_to_all"]
    assert [op.input_bytes for op in exchanges] == [128 * 2 * 64 * 2] * 2


def test_experts_must_divide_over_their_group():
    with pytest.raises(InputError, match=r"^8 experts do not divide over 3 devices; use 1 or 2 or 4\.$"):
        Models.Mixtral_8x7B.lower("decode", seq_len=5, ep=3)


def test_published_active_parameters_follow_from_dimensions():
    for name, tolerance in (("Mixtral_8x7B", 0.01), ("DeepSeek_V3", 0.03), ("Qwen3_235B_A22B", 0.03)):
        model = Models[name]
        assert model.stack.active_parameters == pytest.approx(model.active_parameter_count, rel=tolerance)
