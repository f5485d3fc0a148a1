from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlsysim import InputError, Models, SSMWorkload
from mlsysim.models.recurrent import GatedDeltaNet, LinearAttention, Mamba, StateSpace


@pytest.mark.parametrize("name", ["Mamba_130M", "Mamba_2_8B", "Mamba2_1_3B", "Falcon_Mamba_7B"])
def test_the_state_of_a_pure_state_space_model_does_not_grow(name):
    model = Models[name]
    state = model.get_state_cache_size()
    assert state.magnitude > 0
    assert model.get_kv_cache_size(1) == model.get_kv_cache_size(1_000_000) == state
    assert model.lower("decode", seq_len=1).flops == model.lower("decode", seq_len=1_000_000).flops


def test_mamba_state_by_hand():
    inner = 2 * 768
    expected = 24 * (inner * 16 + inner * 4) * 2
    assert Models.Mamba_130M.get_state_cache_size().to("byte").magnitude == expected
    assert Models.Mamba_130M.get_state_cache_size(batch_size=3).to("byte").magnitude == 3 * expected


def test_mamba2_state_by_hand():
    inner, mixed = 1536, 1536 + 2 * 128
    expected = 24 * (inner * 128 + mixed * 4) * 2
    assert Models.Mamba2_130M.get_state_cache_size().to("byte").magnitude == expected


@given(st.integers(1, 10_000), st.integers(2, 9))
def test_recurrent_prefill_is_linear_in_length(length, factor):
    model = Models.Mamba2_130M

    def body(n):
        graph = model.lower("prefill", seq_len=n)
        return graph.flops - graph.by_layer()["head"]

    assert body(factor * length) == pytest.approx(factor * body(length), rel=1e-12)


def test_a_hybrid_grows_only_by_its_attention_layers():
    model = Models.Jamba_v0_1
    attention = sum(block.count for block in model.blocks if block.mixer == "attention")
    assert attention == 4
    grown = model.get_kv_cache_size(2001) - model.get_kv_cache_size(2000)
    assert grown.to("byte").magnitude == attention * 2 * 8 * 128 * 2


def test_linear_attention_state_by_hand():
    layer = GatedDeltaNet(1024, LinearAttention(key_heads=4, value_heads=8, key_head_dim=32, value_head_dim=64))
    assert layer.counts.state == 8 * 32 * 64 and layer.counts.tail == (2 * 4 * 32 + 8 * 64) * 3
    assert layer.counts.cached == 0


def test_a_state_keeps_its_own_format():
    """An fp32 state beside 16 bits takes four bytes an element, in memory and in what a token moves; a narrow cache leaves it alone."""
    sizes = {"name": "mine", "layers": 4, "hidden_dim": 256}
    plain = SSMWorkload(**sizes, mamba=Mamba(state_size=16))
    wide = SSMWorkload(**sizes, mamba=Mamba(state_size=16, state_format="float32"))
    state, tail = 4 * 512 * 16, 4 * 512 * 4
    assert plain.get_state_cache_size().to("byte").magnitude == 2 * (state + tail)
    assert wide.get_state_cache_size().to("byte").magnitude == 4 * state + 2 * tail
    assert wide.get_state_cache_size(precision="fp8") == wide.get_state_cache_size()

    def moved(model):
        graph = model.lower("decode", seq_len=10)
        return sum(op.cache_bytes * op.count for op in graph.operators if op.kind == "scan")

    assert moved(wide) == 2 * moved(plain) == 2 * 4 * state
    with pytest.raises(InputError, match=r"There is no precision named 'fp99'"):
        Mamba(state_format="fp99")


def test_state_size_alone_makes_a_state_space_model():
    model = SSMWorkload(name="mine", layers=4, state_size=16, hidden_dim=256)
    assert model.architecture == "ssm"
    assert model.mamba.state_size == 16
    assert model.get_state_cache_size(batch_size=1).to("byte").magnitude == 4 * (512 * 16 + 512 * 4) * 2
    assert model.parameter_count == model.derived_parameters > 0


def test_mamba_parameters_by_hand():
    h, d, n, k, r = 768, 1536, 16, 4, 48
    block = h * 2 * d + d * k + d + d * (r + 2 * n) + r * d + d + d * n + d + d * h
    assert StateSpace(h, Mamba()).parameters == block


def test_channels_that_do_not_divide_are_refused():
    with pytest.raises(
        InputError, match=r"^1536 state-space channels do not divide over 5 devices; use 3 or 4 or 6\.$"
    ):
        Models.Mamba_130M.lower("decode", tp=5)


def test_a_hybrid_says_which_sizes_it_lacks():
    with pytest.raises(InputError, match=r"mine has 'mamba' blocks but not their sizes\.$"):
        Models.Jamba_v0_1.__class__(
            name="mine", hidden_dim=64, heads=4, blocks=[{"mixer": "mamba", "ffn": "none", "count": 2}]
        )
    with pytest.raises(InputError, match=r"mine needs 'blocks', such as"):
        Models.Jamba_v0_1.__class__(name="mine", hidden_dim=64)
