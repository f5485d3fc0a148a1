from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mlsysim
from mlsysim import DataWarning, InputError, Models, SparseTransformerWorkload, TransformerWorkload, UnknownNameError
from mlsysim.models.footprint import inference_bytes

DENSE = ("Llama3_70B", "GPT3_175B", "Gemma3_27B", "Falcon_40B")
DECODERS = (*DENSE, "Mixtral_8x7B", "DeepSeek_V3", "Mamba2_1_3B", "Jamba_v0_1", "Qwen3_5_27B", "DeepSeek_V4_Pro")


def test_the_stated_count_is_what_is_used():
    model = Models.Llama3_70B
    assert model.name == "Llama-3.1-70B"
    assert model.parameters.to("Bparam").magnitude == pytest.approx(70.6)
    assert model.parameter_count == 70.6e9
    assert model.size_in_bytes().to("GB").magnitude == pytest.approx(141.2)
    assert model.lower().weight_bytes.to("GB").magnitude == pytest.approx(141.2)
    assert model.derived_parameters == pytest.approx(70.6e9, rel=0.005)


@pytest.mark.parametrize("name", DENSE)
def test_a_decode_token_is_two_operations_for_each_parameter_but_the_table(name):
    model = Models[name]
    used = model.stack.block_parameters + model.vocab_size * model.hidden_dim
    assert model.lower("decode", seq_len=0).flops == pytest.approx(2 * used, rel=2e-3)


def test_without_arguments_it_is_one_token_with_an_empty_cache_and_says_so():
    graph = Models.Llama3_70B.lower()
    assert (graph.phase, graph.tokens) == ("decode", 1)
    assert graph.assumptions == {"context": "0 tokens (one decode token with an empty cache)"}
    assert graph.flops == Models.Llama3_70B.lower("decode", seq_len=0).flops


def test_a_length_alone_means_prefill():
    assert Models.Llama3_70B.lower(seq_len=100).phase == "prefill"
    assert Models.BERT_Base.lower(seq_len=100).phase == "inference"
    assert Models.BERT_Base.lower().assumptions == {"seq_len": "512 tokens (the longest the model takes)"}


@pytest.mark.parametrize("name", DECODERS)
def test_training_is_three_forward_passes(name):
    forward = Models[name].lower("prefill", batch_size=3, seq_len=512, logits="all")
    step = Models[name].lower("training", batch_size=3, seq_len=512)
    assert step.flops == pytest.approx(3 * forward.flops, rel=1e-12)
    assert step.hardware_flops == step.flops


@pytest.mark.parametrize("name", DECODERS)
def test_full_recomputation_repeats_the_blocks_and_adds_no_useful_work(name):
    model, sizes = Models[name], {"batch_size": 2, "seq_len": 256}
    plain, full = model.lower("training", **sizes), model.lower("training", **sizes, recompute="full")
    forward = model.lower("prefill", **sizes, logits="all")
    blocks = forward.flops - forward.by_layer()["head"]
    assert full.flops == plain.flops
    assert full.hardware_flops - full.flops == pytest.approx(blocks, rel=1e-9)


def test_selective_recomputation_repeats_attention_only():
    model, sizes = Models.Llama3_8B, {"batch_size": 2, "seq_len": 256}
    selective = model.lower("training", **sizes, recompute="selective")
    attention = sum(op.flops * op.count for op in model.lower("prefill", **sizes).operators if op.kind == "attention")
    assert selective.hardware_flops - selective.flops == attention
    assert selective.flops == model.lower("training", **sizes).flops


def test_logits_of_the_last_token_or_of_all():
    model = Models.Llama3_8B
    last, everything = (model.lower("prefill", batch_size=4, seq_len=100, logits=x) for x in ("last", "all"))
    head = 2 * 4 * model.vocab_size * model.hidden_dim
    assert last.by_layer()["head"] == head
    assert everything.by_layer()["head"] == 100 * head


@settings(max_examples=30)
@given(
    st.sampled_from(DECODERS),
    st.sampled_from(["prefill", "decode", "training"]),
    st.integers(1, 500),
    st.integers(1, 4000),
)
def test_operations_are_linear_in_the_batch(name, phase, batch, length):
    model = Models[name]
    one = model.lower(phase, seq_len=length).flops
    assert model.lower(phase, batch_size=batch, seq_len=length).flops == pytest.approx(batch * one, rel=1e-9)


@settings(max_examples=30)
@given(
    st.sampled_from(DECODERS),
    st.sampled_from(["prefill", "decode", "training"]),
    st.integers(1, 4000),
    st.integers(1, 4000),
)
def test_operations_and_bytes_do_not_fall_with_length(name, phase, length, more):
    model = Models[name]
    short, long = model.lower(phase, seq_len=length), model.lower(phase, seq_len=length + more)
    assert long.flops >= short.flops
    assert long.bytes_moved >= short.bytes_moved
    if phase != "decode":
        assert long.flops > short.flops


@pytest.mark.parametrize("name", [*DENSE, "BERT_Large", "T5_Base", "Mistral_7B"])
@pytest.mark.parametrize("phase", ["prefill", "training"])
def test_shards_of_matrix_products_add_up(name, phase):
    model = Models[name]
    if phase == "prefill" and model.structure == "encoder":
        phase = "inference"
    whole = sum(op.flops * op.count for op in model.lower(phase, seq_len=128).operators if op.kind == "gemm")
    for tp in (d for d in range(2, model.effective_kv_heads + 1) if model.effective_kv_heads % d == 0):
        shard = model.lower(phase, seq_len=128, tp=tp)
        assert tp * sum(op.flops * op.count for op in shard.operators if op.kind == "gemm") == pytest.approx(whole)
        assert any(op.kind == "all_reduce" for op in shard.operators)


def test_stages_share_the_layers_and_pass_activations_on():
    model = Models.Llama3_70B
    whole, stage = (model.lower("prefill", seq_len=128, pp=pp) for pp in (1, 8))
    assert stage.by_layer()["ffn"] == pytest.approx(whole.by_layer()["ffn"] / 8)
    assert [op.input_bytes for op in stage.operators if op.kind == "send"] == [128 * 8192 * 2]


def test_the_longest_stage_counts_where_layers_do_not_divide():
    model = Models.DeepSeek_V3
    whole, stage = (model.lower("prefill", seq_len=128, pp=pp) for pp in (1, 16))
    assert stage.by_layer()["attention"] == pytest.approx(whole.by_layer()["attention"] * 4 / 61)


def test_context_parallelism_shares_the_tokens():
    model = Models.Llama3_8B
    whole, part = (model.lower("prefill", seq_len=4096, cp=cp) for cp in (1, 4))
    assert part.tokens == whole.tokens / 4
    assert part.by_layer()["attention"] == pytest.approx(whole.by_layer()["attention"] / 4)


def test_arrays_give_what_scalars_give():
    batch, length = np.array([1, 4, 32, 7]), np.array([16, 512, 5000, 1])
    for name in (*DECODERS, "T5_Base", "Whisper_Small", "LLaVA_1_5_7B"):
        for phase in ("prefill", "decode", "training"):
            many = Models[name].lower(phase, batch_size=batch, seq_len=length)
            each = [
                Models[name].lower(phase, batch_size=int(b), seq_len=int(s)) for b, s in zip(batch, length, strict=True)
            ]
            for total in ("flops", "hardware_flops", "bytes_moved", "tokens"):
                np.testing.assert_allclose(
                    getattr(many, total), [getattr(one, total) for one in each], rtol=1e-12, err_msg=f"{name} {phase}"
                )
            intensity = [one.arithmetic_intensity.magnitude for one in each]
            np.testing.assert_allclose(many.arithmetic_intensity.magnitude, intensity, rtol=1e-12)
            if each[0].cache_bytes is not None:
                cache = [one.cache_bytes.magnitude for one in each]
                np.testing.assert_allclose(many.cache_bytes.magnitude, cache, rtol=1e-12)


def test_narrow_integer_arrays_do_not_wrap_around():
    graph = Models.Llama3_8B.lower("prefill", seq_len=np.array([131072], dtype=np.int32))
    assert graph.flops[0] == Models.Llama3_8B.lower("prefill", seq_len=131072).flops


def test_numpy_scalars_are_checked_like_numbers():
    assert Models.Llama3_8B.lower(seq_len=np.int64(10)).flops == Models.Llama3_8B.lower(seq_len=10).flops
    with pytest.raises(InputError, match="'batch_size' must be a finite number above 0, got 0"):
        Models.Llama3_8B.lower(seq_len=10, batch_size=np.int64(0))


def test_a_missing_ffn_width_is_solved_from_the_count():
    known = Models.Llama3_70B
    solved = known.model_copy(update={"ffn_dim": None})
    assert solved.effective_ffn_dim == pytest.approx(known.ffn_dim, rel=0.001)
    one_step = 3 * known.hidden_dim * known.layers
    assert abs(solved.derived_parameters - known.parameter_count) <= one_step / 2


@given(st.integers(2, 64), st.integers(1, 16), st.floats(2.0, 7.5), st.booleans())
def test_solved_widths_reproduce_the_stated_count(layers, scale, ratio, gated):
    hidden = 128 * scale
    matrices = 3 if gated else 2
    stated = layers * (4 * hidden**2 + matrices * hidden * round(ratio * hidden) + 2 * hidden) + hidden
    model = TransformerWorkload(
        name="mine", parameters=stated, layers=layers, hidden_dim=hidden, heads=scale, gated_ffn=gated
    )
    assert model.effective_ffn_dim == round(ratio * hidden)
    assert model.derived_parameters == stated


def test_too_few_parameters_for_any_ffn_are_refused():
    sentence = (
        r"thin: 1e\+06 parameters leave nothing for feed-forward layers; check layers, hidden_dim and vocab_size\.$"
    )
    with pytest.raises(InputError, match=sentence), pytest.warns(DataWarning):
        TransformerWorkload(name="thin", parameters=1e6, layers=80, hidden_dim=8192, heads=64)


def test_dense_layers_of_a_sparse_model_without_a_width_get_the_solved_one():
    known = Models.DeepSeek_V3
    solved = known.model_copy(update={"ffn_dim": None, "parameters": mlsysim.Q_(known.derived_parameters, "param")})
    assert solved.effective_ffn_dim == known.ffn_dim
    unknown = solved.model_copy(update={"parameters": None, "active_parameters": None})
    assert unknown.derived_parameters is None
    with pytest.raises(InputError, match=r"^DeepSeek-V3 needs 'ffn_dim', or 'parameters' to solve it from\.$"):
        unknown.stack


def test_listing_3_of_the_paper_warns_only():
    optimal = mlsysim.Q_(math.sqrt(4e24 / 120), "param")
    with pytest.warns(DataWarning, match="feed-forward layers 10.0 times as wide as the model") as caught:
        model = mlsysim.TransformerWorkload(
            name="Frontier-Model",
            parameters=optimal,
            layers=80, hidden_dim=8192, heads=64
        )  # fmt: skip
    assert len(caught) == 1
    assert model.architecture == "transformer"
    assert model.effective_ffn_dim == 81939
    assert model.derived_parameters == pytest.approx(model.parameter_count, rel=1e-5)
    assert model.parameter_count == pytest.approx(1.8257e11, rel=1e-4)
    assert model.lower().flops == pytest.approx(2 * model.parameter_count, rel=1e-3)


def test_a_stated_count_that_disagrees_with_the_dimensions_warns_and_is_used():
    with pytest.warns(DataWarning, match=r"the dimensions give .* B parameters, .* from the stated 100 B"):
        model = TransformerWorkload(
            name="odd", parameters=100e9, layers=80, hidden_dim=8192, heads=64, kv_heads=8, ffn_dim=28672
        )
    assert model.parameter_count == 100e9


def test_without_dimensions_first_order_is_two_operations_for_each_parameter():
    model = TransformerWorkload(name="bare", parameters="7 Bparam", layers=32)
    graph = model.lower("prefill", batch_size=2, seq_len=100)
    assert graph.flops == 2 * 7e9 * 200
    assert model.lower("training", seq_len=100).flops == 6 * 7e9 * 100
    sparse = SparseTransformerWorkload(name="bare", parameters="40 Bparam", active_parameters="10 Bparam", experts=8)
    assert sparse.lower().flops == 2 * 10e9
    assert sparse.lower().weight_bytes.to("GB").magnitude == 80


@pytest.mark.parametrize(
    ("sizes", "sentence"),
    [
        (
            {"phase": "prefil", "seq_len": 5},
            r"^'prefil' is no phase; Llama-3.1-8B lowers for prefill or decode or training or inference\.$",
        ),
        ({"phase": "training"}, r"^Llama-3.1-8B: training needs 'seq_len', the number of tokens of a sequence\.$"),
        ({"phase": "prefill"}, r"^Llama-3.1-8B: prefill needs 'seq_len', the number of tokens of a sequence\.$"),
        ({"seq_len": 5, "precision": "fp61"}, r"^There is no precision named 'fp61'; did you mean .*'fp16'.*\?$"),
        ({"seq_len": 5, "batch_size": 0}, r"^'batch_size' must be a finite number above 0, got 0\.$"),
        ({"seq_len": 5, "batch_size": -1}, r"^'batch_size' must be a finite number above 0, got -1\.$"),
        ({"seq_len": 5, "batch_size": math.nan}, r"^'batch_size' must be a finite number above 0, got nan\.$"),
        ({"seq_len": 5, "batch_size": "8"}, r"^'batch_size' must be a number, got '8'\.$"),
        ({"seq_len": 5, "batch_size": [8]}, r"^'batch_size' must be a number, got list\.$"),
        ({"seq_len": 0}, r"^'seq_len' must be a finite number above 0, got 0\.$"),
        ({"seq_len": 2.5}, r"^'seq_len' must be a whole number, got 2.5\.$"),
        ({"seq_len": 5, "context": -1}, r"^'context' must be a finite number of at least 0, got -1\.$"),
        ({"seq_len": 5, "tp": 0}, r"^The degree 'tp' must be a whole number of at least 1, got 0\.$"),
        ({"seq_len": 5, "pp": 1.5}, r"^The degree 'pp' must be a whole number of at least 1, got 1.5\.$"),
        ({"seq_len": 5, "recompute": "all"}, r"^There is no recompute mode named 'all'"),
        ({"seq_len": 5, "logits": "first"}, r"^There is no choice of logits named 'first'"),
    ],
)
def test_bad_sizes_are_refused_in_one_sentence(sizes, sentence):
    with pytest.raises(InputError, match=sentence):
        Models.Llama3_8B.lower(**sizes)


def test_an_unknown_precision_carries_the_nearest():
    with pytest.raises(UnknownNameError) as caught:
        Models.Llama3_8B.lower(precision="bf61")
    assert "bf16" in caught.value.suggestions


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"heads": 10, "kv_heads": 4}, r"mine: 10 heads do not divide into 4 key-value heads\.$"),
        ({"structure": "encoder-decoder"}, r"mine is an encoder-decoder and needs 'encoder_layers'\.$"),
        ({"hiden_dim": 10}, r"^TransformerWorkload has no field 'hiden_dim'; did you mean 'hidden_dim'"),
        ({"layers": 0}, r"^TransformerWorkload: the 'layers' field got 0; "),
        (
            {"parameters": "7 GB"},
            r"^TransformerWorkload: The 'parameters' field got 7 GB, which is no count; expected a count such as",
        ),
    ],
)
def test_bad_fields_are_refused_in_one_sentence(fields, sentence):
    with pytest.raises(InputError, match=sentence):
        TransformerWorkload(**{"name": "mine", "parameters": 1e9, **fields})


def test_what_needs_dimensions_says_so():
    bare = TransformerWorkload(name="bare", parameters=7e9, layers=32)
    with pytest.raises(InputError, match=r"^bare has no dimensions; give 'layers', 'hidden_dim' and 'heads'"):
        bare.get_kv_cache_size(100)


def test_more_experts_per_token_than_there_are_is_refused():
    with pytest.raises(InputError, match=r"mine: 9 active experts of 8 is impossible\.$"):
        SparseTransformerWorkload(name="mine", parameters=1e9, experts=8, active_experts_per_token=9)


def test_quantised_weights_keep_16_bit_activations():
    graph = Models.Llama3_8B.lower("decode", seq_len=10, precision="int4")
    up = next(op for op in graph.operators if op.name == "ffn_up")
    assert up.weight_bytes == up.n * up.k * 0.5
    assert up.input_bytes == up.m * up.k * 2


def test_precision_bytes_set_what_is_kept():
    assert Models.Llama3_8B.lower(precision_bytes=1).weight_bytes.to("GB").magnitude == pytest.approx(8.03)
    assert Models.Llama3_8B.size_in_bytes("4 B").to("GB").magnitude == pytest.approx(32.12)
    assert Models.Llama3_8B.size_in_bytes(mlsysim.Q_("2 B")).to("GB").magnitude == pytest.approx(16.06)
    assert Models.Llama3_8B.size_in_bytes("fp8").to("GB").magnitude == pytest.approx(8.03)


def test_a_changed_copy_is_derived_anew():
    model = Models.Llama3_70B
    small = model.model_copy(update={"layers": 2})
    assert small.stack.layers == 2
    assert model.stack.layers == 80
    assert small.get_kv_cache_size(10) == model.get_kv_cache_size(10) / 40


def test_an_encoder_that_read_a_prompt_leaves_its_keys_and_one_token():
    """T5-3B: 24 layers of 32 heads of 128, so 2 x 4096 x 2 bytes a token and layer (its config.json), of the source for the second attention."""
    model, each = Models.T5_3B, 24 * 2 * 32 * 128 * 2.0
    read = model.lower("prefill", batch_size=3, seq_len=500).cache_bytes
    assert read is not None and read.to("byte").magnitude == 3 * each * (500 + 1)
    more = model.lower("prefill", batch_size=3, seq_len=500, target_len=20).cache_bytes
    assert more is not None and more.to("byte").magnitude == 3 * each * (500 + 20)
    held = inference_bytes(model, 3, 500, "fp16", None, "prefill") - model.parameter_count * 2
    assert held == 3 * each * (500 + 1)
    # Frames that a speech model hears are as many whatever it writes.
    heard = Models.Whisper_Large_V3.stack
    assert heard.cache_bytes(10, 2.0, source=99) == heard.cache_bytes(10, 2.0)
