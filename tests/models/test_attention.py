from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlsysim import InputError, Models, TransformerWorkload
from mlsysim.models.attention import Attention
from mlsysim.models.passes import Pass, Sharding
from mlsysim.models.template import split


def cache_bytes(model, tokens, **kw):
    return model.get_kv_cache_size(tokens, **kw).to("byte").magnitude


def attention_flops(graph):
    return sum(op.flops * op.count for op in graph.operators if op.kind == "attention")


def test_llama_cache_per_token():
    assert cache_bytes(Models.Llama3_70B, 1) == 2 * 80 * 8 * 128 * 2
    assert cache_bytes(Models.Llama3_70B, 8192, batch_size=16) == 2 * 80 * 8 * 128 * 2 * 8192 * 16
    assert cache_bytes(Models.Llama3_70B, 1, precision="fp8") == 2 * 80 * 8 * 128


def test_llama_2_70b_has_grouped_queries():
    assert Models.Llama2_70B.kv_heads == 8
    assert Models.Llama2_70B.kv_elements_per_token == 2 * 80 * 8 * 128


def test_grouped_queries_divide_the_cache_and_not_the_attention_operations():
    grouped = Models.Llama3_70B
    full = grouped.model_copy(update={"kv_heads": None})
    assert cache_bytes(full, 100) == 8 * cache_bytes(grouped, 100)
    assert attention_flops(full.lower("decode", seq_len=999)) == attention_flops(grouped.lower("decode", seq_len=999))


def test_deepseek_latent_cache_is_576_a_token_and_layer():
    model = Models.DeepSeek_V3
    assert model.heads == 128
    assert model.kv_elements_per_token == 61 * 576
    assert cache_bytes(model, 1) == 61 * 576 * 2


def test_latent_attention_is_absorbed_in_decode_and_expanded_in_prefill():
    model = Models.DeepSeek_V3
    decode = {op.name: op for op in model.lower("decode", seq_len=1000).operators}
    prefill = {op.name: op for op in model.lower("prefill", seq_len=1000).operators}
    assert (decode["attention"].k, decode["attention"].kv_heads) == (576, 1)
    assert decode["attention"].flops == 2 * 128 * 1001 * (576 + 512)
    assert (prefill["attention"].k, prefill["attention"].kv_heads) == (192, 128)
    assert prefill["attention"].flops == 2 * 128 * 1000 * 1001 / 2 * (192 + 128)
    absorbed = decode["absorb_key"].weight_bytes + decode["absorb_value"].weight_bytes
    assert absorbed == prefill["kv_up"].weight_bytes


def test_a_window_caps_the_cache():
    model = Models.Mistral_7B
    assert model.window == 4096
    assert (
        cache_bytes(model, 4095) < cache_bytes(model, 4096) == cache_bytes(model, 32768) == 2 * 32 * 8 * 128 * 4096 * 2
    )


def test_a_window_caps_the_work_of_a_decode_token():
    assert attention_flops(Models.Mistral_7B.lower("decode", seq_len=4096)) == attention_flops(
        Models.Mistral_7B.lower("decode", seq_len=20000)
    )


def test_gemma_keeps_one_global_layer_in_six():
    model, tokens = Models.Gemma3_27B, 50_000
    windowed, everywhere = 52, 10
    assert windowed + everywhere == model.layers
    assert cache_bytes(model, tokens) == 2 * 16 * 128 * 2 * (windowed * 1024 + everywhere * tokens)
    assert cache_bytes(model, 1000) == 2 * 16 * 128 * 2 * 62 * 1000


def test_causal_attention_is_half_of_the_square_plus_the_diagonal():
    graph = Models.Llama3_8B.lower("prefill", seq_len=1000)
    assert attention_flops(graph) == 32 * 32 * (2 * 128 + 2 * 128) * 1000 * 1001 / 2


@given(st.integers(2, 5000))
def test_causal_is_less_than_full(length):
    layer = Attention(512, 8, 8, 64)

    def flops(causal):
        p = Pass.of("prefill", 1, length, 0, "fp16", Sharding(), causal=causal)
        return sum(op.flops for op in layer.operators(p) if op.kind == "attention")

    assert flops(True) < flops(False) == 2 * 8 * length * length * 128


@given(st.integers(1, 3000), st.integers(1, 3000))
def test_chunks_of_a_prompt_add_up(first, second):
    model = Models.Mistral_7B.model_copy(update={"window": 1000})
    whole = attention_flops(model.lower("prefill", seq_len=first + second))
    parts = attention_flops(model.lower("prefill", seq_len=first))
    parts += attention_flops(model.lower("prefill", seq_len=second, context=first))
    assert parts == pytest.approx(whole, rel=1e-12)


def test_decoding_token_by_token_attends_as_often_as_one_prefill():
    model = Models.Llama3_8B
    steps = sum(attention_flops(model.lower("decode", seq_len=done)) for done in range(50))
    assert steps == attention_flops(model.lower("prefill", seq_len=50))


def test_degrees_that_do_not_divide_the_heads_are_refused_with_the_nearest():
    with pytest.raises(InputError, match=r"^64 attention heads do not divide over 6 devices; use 2 or 4 or 8\.$"):
        split(64, 6, "attention heads")
    with pytest.raises(InputError) as caught:
        Models.Llama3_70B.lower("decode", seq_len=10, tp=3)
    assert caught.value.nearest == [1, 2, 4]
    assert caught.value.degree == 3


def test_fewer_key_value_heads_than_devices_are_copied():
    one = {op.name: op for op in Models.Llama3_70B.lower("decode", seq_len=10, tp=16).operators}
    assert one["attention"].kv_heads == 1
    assert one["qkv"].n == 4 * 128 + 2 * 128


def test_cross_attention_reads_the_encoder():
    model = Models.T5_Base
    graph = model.lower("prefill", seq_len=100, target_len=7)
    crosses = [op for op in graph.operators if op.kind == "attention" and (op.m, op.n) == (7, 100)]
    assert len(crosses) == 1
    assert crosses[0].flops == 2 * 12 * 7 * 100 * 128
    names = [op.name for op in graph.operators]
    assert names.count("cross_kv") == 1
    assert "cross_kv" not in [op.name for op in model.lower("decode", seq_len=100).operators]


def test_an_encoder_decoder_caches_both_attentions():
    model = Models.T5_Base
    assert model.kv_elements_per_token == 12 * 2 * (2 * 12 * 64)


def test_a_sparse_indexer_bounds_the_keys_and_adds_to_the_cache():
    model = Models.DeepSeek_V3_2
    topk = model.sparse_attention.topk
    near, far = (model.lower("decode", seq_len=n) for n in (10 * topk, 20 * topk))

    def core(graph):
        return sum(op.flops * op.count for op in graph.operators if op.name == "attention")

    def index(graph):
        return sum(op.flops * op.count for op in graph.operators if op.name == "index_scores")

    assert core(near) == core(far)
    assert index(far) == pytest.approx(2 * index(near), rel=1e-3)
    assert model.kv_elements_per_token == model.layers * (576 + model.sparse_attention.index_head_dim)


def test_compressed_attention_grows_by_its_ratio():
    model = Models.DeepSeek_V4_Pro
    grown = model.stack.cache_bytes(200_000, 1.0) - model.stack.cache_bytes(100_000, 1.0)
    expected = sum(
        count * 100_000 / ratio * model.head_dim
        for ratio, count in zip(model.csa.compress_ratios, model.csa.compress_counts, strict=True)
        if ratio
    )
    assert grown == pytest.approx(expected)
    assert sum(model.csa.compress_counts) == model.layers


@pytest.mark.parametrize("context", [100, 5_000, 100_000, 1_000_000])
def test_first_order_demand_sees_the_folded_keys(context):
    """A query of DeepSeek-V4 sees its window, and one key for each ratio of tokens beyond: all, or those that are picked."""
    model = Models.DeepSeek_V4_Pro
    cores = [op for op in model.lower("decode", seq_len=context).operators if op.name == "attention"]
    listed = sum(op.flops * op.count for op in cores)
    closed = model.totals.attention_operations("decode", 1, context)
    assert closed == pytest.approx(listed, rel=0.03)


def test_windowed_layers_have_heads_of_their_own():
    sizes = {"name": "x", "layers": 6, "hidden_dim": 512, "heads": 8, "kv_heads": 2, "head_dim": 64, "ffn_dim": 1024}
    same = TransformerWorkload(**sizes, vocab_size=100, window=128, global_every=3)
    other = TransformerWorkload(
        **sizes, vocab_size=100, window=128, global_every=3, window_kv_heads=4, window_head_dim=32
    )
    assert other.get_kv_cache_size(4096).to("byte").magnitude == 2 * (2 * 4096 * 2 * 2 * 64 + 4 * 128 * 2 * 4 * 32)
    assert same.get_kv_cache_size(4096).to("byte").magnitude == 2 * (2 * 4096 * 2 * 2 * 64 + 4 * 128 * 2 * 2 * 64)
    assert same.derived_parameters - other.derived_parameters == 4 * 512 * (2 * (8 + 2) * 64 - 2 * (8 + 4) * 32)
    with pytest.raises(InputError, match=r"8 heads of windowed layers do not divide into 3 key-value heads"):
        TransformerWorkload(**sizes, vocab_size=100, window=128, window_kv_heads=3)


def test_keys_of_an_encoder_do_not_grow_with_the_text():
    """Whisper reads 1,500 frames whatever it writes: only the decoder's own keys grow."""
    model = Models.Whisper_Large_V3
    short, longer = (model.get_kv_cache_size(n).to("byte").magnitude for n in (100, 200))
    per_token = 2 * model.layers * 2 * model.hidden_dim
    assert longer - short == 100 * per_token
    assert short == (100 + 1500) * per_token
