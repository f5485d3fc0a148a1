"""Configurations as workloads: dimensions, caches, what was not read, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import mlsysim
from mlsysim.errors import InputError
from mlsysim.importers.hf import import_config, read_config

FACTS = {
    fact["name"]: fact["config"] for fact in json.loads(Path(__file__).with_name("configs.json").read_text("utf-8"))
}

LLAMA = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 256,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "vocab_size": 1000,
    "max_position_embeddings": 2048,
}


# --- caches, with the arithmetic ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "late", "early"),
    [
        # layers x 2 (keys, values) x heads x width x 2 bytes
        ("meta-llama/Meta-Llama-3.1-8B", 32 * 2 * 8 * 128 * 2, 32 * 2 * 8 * 128 * 2),
        ("tiiuae/falcon-7b", 32 * 2 * 1 * 64 * 2, 32 * 2 * 1 * 64 * 2),
        # latent attention: rank 512 and a rotary key of 64
        ("deepseek-ai/DeepSeek-V3", 61 * (512 + 64) * 2, 61 * (512 + 64) * 2),
        # windows in every other layer
        ("google/gemma-2-9b", 21 * 2 * 8 * 256 * 2, 42 * 2 * 8 * 256 * 2),
        ("openai/gpt-oss-120b", 18 * 2 * 8 * 64 * 2, 36 * 2 * 8 * 64 * 2),
        # five windowed layers to one full: 62 // 6 = 10
        ("google/gemma-3-27b-it", 10 * 2 * 16 * 128 * 2, 62 * 2 * 16 * 128 * 2),
        # a window in every layer: no layer keeps the whole context
        ("mistralai/Mistral-7B-v0.1", 32 * 2 * 8 * 128 * 2, 32 * 2 * 8 * 128 * 2),
        # 4 attention layers of 32, the rest Mamba with a state of fixed size
        ("ai21labs/Jamba-v0.1", 4 * 2 * 8 * 128 * 2, 4 * 2 * 8 * 128 * 2),
        # 15 of 60 layers attend, the others are linear
        ("Qwen/Qwen3.5-397B-A17B", 15 * 2 * 2 * 256 * 2, 15 * 2 * 2 * 256 * 2),
        ("state-spaces/mamba-2.8b-hf", 0, 0),
        ("google-bert/bert-base-uncased", 0, 0),
        # a decoder keeps its own text; the encoder's keys do not grow
        ("openai/whisper-tiny", 4 * 2 * 384 * 2, 4 * 2 * 384 * 2),
    ],
)
def test_cache_bytes_per_token(name, late, early):
    report = read_config(FACTS[name])
    assert report.kv_bytes_per_token == late
    assert report.kv_bytes_per_token_in_window == early


@pytest.mark.parametrize(
    "name", ["google/gemma-2-9b", "openai/gpt-oss-20b", "XiaomiMiMo/MiMo-V2-Flash", "Qwen/Qwen2-7B"]
)
def test_the_two_slopes_give_the_cache_of_any_context(name):
    """At context n a sequence holds late x n + (early - late) x min(n, window) bytes."""
    report = read_config(FACTS[name])
    window = report.workload.window or 10**9
    for context in (1, 100, 5_000, 100_000):
        expected = report.kv_bytes_per_token * context
        expected += (report.kv_bytes_per_token_in_window - report.kv_bytes_per_token) * min(context, window)
        assert report.workload.get_kv_cache_size(context).to("byte").magnitude == pytest.approx(expected)


def test_active_parameters_of_a_mixture():
    """gpt-oss states 5.13 B and 3.61 B active, without the table of embeddings."""
    for name, stated, vocabulary in (("openai/gpt-oss-120b", 5.13e9, 201088), ("openai/gpt-oss-20b", 3.61e9, 201088)):
        active = read_config(FACTS[name]).active_parameters - vocabulary * 2880
        assert active == pytest.approx(stated, rel=0.005)


# --- what the report says -------------------------------------------------------------------------------------------------


def test_the_report_in_plain_numbers():
    report = read_config({**LLAMA, "rope_theta": 1e4, "torch_dtype": "bfloat16"}, "tiny", source="config.json")
    told = report.to_dict()
    hidden, layers = 64, 4
    attention = hidden * hidden * 2 + 2 * hidden * 16
    parameters = layers * (attention + 3 * hidden * 256 + 2 * hidden) + 2 * 1000 * hidden + hidden
    assert told["parameters"] == parameters == told["active_parameters"]
    assert told["kv_bytes_per_token"] == layers * 2 * 2 * 8 * 2
    assert told["unread"] == ["rope_theta"] and told["warnings"] == []
    assert (told["name"], told["family"], told["dtype"], told["source"]) == ("tiny", "Llama", "bfloat16", "config.json")
    assert told["quantisation"] is None and told["context"] == 2048
    assert json.loads(json.dumps(told, allow_nan=False)) == told


def test_every_key_that_was_not_used_is_listed():
    config = {**LLAMA, "zebra": 1, "text_config": None, "rope_scaling": {"factor": 8}}
    assert read_config(config).unread == ("rope_scaling", "zebra")
    nested = json.loads(json.dumps(FACTS["google/gemma-3-4b-it"]))
    nested["text_config"]["apple"] = nested["vision_config"]["pear"] = 1
    assert set(read_config(nested).unread) >= {"text_config.apple", "vision_config.pear"}


def test_text_bytes_and_tables_are_the_same():
    text = json.dumps(LLAMA)
    assert import_config(LLAMA) == import_config(text) == import_config(text.encode())
    assert mlsysim.import_config is import_config


def test_a_name_from_the_configuration_itself():
    assert read_config({**LLAMA, "_name_or_path": "org/some-model/"}).name == "some-model"
    assert read_config({**LLAMA, "architectures": ["LlamaForCausalLM"]}).name == "LlamaForCausalLM"
    assert read_config(LLAMA).name == "llama"


def test_an_unknown_type_with_enough_keys_is_a_generic_decoder():
    report = read_config({**LLAMA, "model_type": "brand_new"})
    assert report.parameters == read_config(LLAMA).parameters
    assert report.family == "generic decoder"
    assert len(report.warnings) == 1 and "'brand_new' is not known" in report.warnings[0]


MIXTURE = {**LLAMA, "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
KDA = {"kda_layers": [1, 2, 3], "num_heads": 4, "head_dim": 16}


@pytest.mark.parametrize(
    ("keys", "sentence"),
    [
        ({"layer_types": ["full_attention"] * 6}, "'layer_types' has 6 entries for 4 layers: the first 4 are taken"),
        ({"layer_types": ["sliding_attention"] * 4}, "windowed and no window is: they are taken with full attention"),
        ({"quantization_config": {"quant_method": "bitsandbytes", "load_in_4bit": False}}, "taken in 16 bits"),
        ({"audio_processor": {"layers": 24}, "speech_lora": {"r": 320}}, "Nobody read audio_processor, speech_lora"),
    ],
)
def test_what_is_not_understood_is_warned_of(keys, sentence):
    report = read_config({**LLAMA, **keys})
    assert len(report.warnings) == 1 and sentence in report.warnings[0]
    assert report.workload.caveats == report.warnings
    assert report.parameters == read_config(LLAMA).parameters


def test_entries_for_layers_that_predict_further_tokens_are_no_surplus():
    keys = {"layer_types": ["full_attention"] * 6, "num_nextn_predict_layers": 2}
    assert read_config({**LLAMA, **keys}).warnings == ("The layers that predict further tokens (MTP) are not counted.",)


def test_grok_2_has_a_dense_layer_beside_its_experts():
    """269 B parameters as its card says, 115 B of them active."""
    grok = {"model_type": "grok-1", "hidden_size": 8192, "intermediate_size": 32768, "moe_intermediate_size": 16384}
    grok |= {"num_hidden_layers": 64, "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 128}
    grok |= {"vocab_size": 131072, "num_local_experts": 8, "num_experts_per_tok": 2, "tie_word_embeddings": False}
    report = read_config({**grok, "residual_moe": True})
    assert report.parameters == pytest.approx(269e9, rel=0.01)
    assert report.active_parameters == pytest.approx(115e9, rel=0.01)


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ({"model_type": "llama"}, "does not say num_hidden_layers, hidden_size, vocab_size and num_attention_heads"),
        ({}, "does not say num_hidden_layers"),
        ({**LLAMA, "vocab_size": None}, "does not say vocab_size, without which"),
        ({**LLAMA, "intermediate_size": None}, "does not say intermediate_size"),
        ({**LLAMA, "hidden_size": "64"}, "'hidden_size' must be a whole number, got '64'"),
        ({**LLAMA, "hidden_size": -64}, "from 1 to"),
        ({**LLAMA, "hidden_size": 64.5}, "whole number"),
        ({**LLAMA, "hidden_size": True}, "whole number"),
        ({**LLAMA, "hidden_size": 10**12}, "from 1 to 1,000,000,000"),
        ({**LLAMA, "num_hidden_layers": 10**6}, "most is 20,000"),
        ({**LLAMA, "num_key_value_heads": 3}, "do not divide"),
        ({**LLAMA, "num_attention_heads": 128, "num_key_value_heads": 128}, "more than the width"),
        ({**LLAMA, "tie_word_embeddings": "yes"}, "true or false"),
        ({**LLAMA, "layer_types": ["full_attention"]}, "has 1 entries for 4 layers"),
        ({**LLAMA, "layer_types": ["retention"] * 4}, "no kind of layer with a workload type named 'retention'"),
        ({**LLAMA, "num_local_experts": 4, "num_experts_per_tok": 8}, "8 experts for each token of 4 is impossible"),
        # Lists and numbers that do not fit the layers.
        ({**LLAMA, "num_key_value_heads": [2, 2]}, "has 2 entries for 4 layers"),
        ({**LLAMA, "intermediate_size": [256] * 3}, "has 3 entries for 4 layers"),
        ({**LLAMA, "hidden_size": 65}, "width of 65 does not divide into 8 attention heads"),
        ({**LLAMA, "sliding_window": 8, "hybrid_layer_pattern": [7] * 4}, "must be a list of 0 and 1"),
        ({**MIXTURE, "mlp_only_layers": [9]}, "'mlp_only_layers' names layer 9 of 4, numbered from 0"),
        ({**MIXTURE, "moe_layers": [1, 1]}, "'moe_layers' names layer 1 twice"),
        ({**MIXTURE, "mlp_layer_types": ["gated"] * 4}, "must say dense, sparse or moe, got 'gated'"),
        ({**MIXTURE, "first_k_dense_replace": 9}, "8 experts, and its keys leave no layer with experts"),
        ({**MIXTURE, "expert_layer_period": 2, "expert_layer_offset": 2}, "must be below 'expert_layer_period'"),
        ({**LLAMA, "model_type": "jamba", "attn_layer_period": 2, "attn_layer_offset": 2}, "got 2 and 2"),
        ({**LLAMA, "model_type": "bamba", "attn_layer_indices": [4]}, "names layer 4 of 4"),
        ({**LLAMA, "model_type": "mllama_text_model", "cross_attention_layers": [1, 1]}, "names layer 1 twice"),
        (
            {**LLAMA, "model_type": "nemotron_h", "hybrid_override_pattern": "M*-"},
            "layers that are listed are 3, and num_hidden_layers is 4",
        ),
        (
            {**LLAMA, "model_type": "kimi_linear", "linear_attn_config": {**KDA, "full_attn_layers": [4, 40]}},
            "names layer 40 of 4, numbered from 1",
        ),
        (
            {**LLAMA, "model_type": "kimi_linear", "linear_attn_config": {**KDA, "full_attn_layers": [3]}},
            "must name every layer once between them",
        ),
        (
            {**LLAMA, "quantization_config": {"load_in_4bit": True, "load_in_8bit": True}},
            "loads in 4 bits and in 8 at once",
        ),
        ({**LLAMA, "quantization_config": 3}, "'quantization_config' must be a table"),
        ({"model_type": "rwkv"}, "no workload type"),
        ({"model_type": "nemotron-nas", **{k: v for k, v in LLAMA.items() if k != "model_type"}}, "block_configs"),
        ({"model_type": "clip"}, "vision_config and text_config"),
        ({"model_type": "resnet", "depths": [1, 2]}, "as many stages"),
    ],
)
def test_bad_configurations_are_refused_with_one_sentence(config, sentence):
    with pytest.raises(InputError, match=sentence) as caught:
        read_config(config)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("data", [3, [1], None, "[1, 2]", '"text"', "{", b"\x80\x04"])
def test_what_is_no_configuration(data):
    with pytest.raises(InputError):
        read_config(data)


def test_a_table_that_contains_itself_is_refused():
    for links in (1, 2):
        table: dict = dict(LLAMA)
        for link in range(links):
            table[("text_config", "other")[link]] = table
        with pytest.raises(InputError, match=r"nested more than 64 deep|holds more than"):
            read_config(table)


# --- kinds of layers ------------------------------------------------------------------------------------------------------


def test_irregular_windows_become_blocks():
    kinds = ["full_attention", "sliding_attention", "sliding_attention", "full_attention", "full_attention"]
    config = {**LLAMA, "num_hidden_layers": 5, "layer_types": kinds, "sliding_window": 16}
    workload = import_config(config)
    assert type(workload).__name__ == "HybridWorkload"
    assert workload.get_kv_cache_size(1000).magnitude == (3 * 1000 + 2 * 16) * 2 * 2 * 8 * 2


def test_a_window_that_is_switched_off_is_none():
    off = {**LLAMA, "model_type": "qwen2", "sliding_window": 16, "use_sliding_window": False, "max_window_layers": 2}
    assert import_config(off).window is None
    on = import_config({**off, "use_sliding_window": True})
    assert on.window == 16 and on.global_every == 2  # two of four layers
    assert import_config({**LLAMA, "sliding_window": 4096}).window is None  # wider than the context


@pytest.mark.parametrize(
    ("keys", "sparse"),
    [
        ({}, 4),
        ({"first_k_dense_replace": 1}, 3),
        ({"decoder_sparse_step": 2}, 2),
        ({"mlp_only_layers": [0, 3]}, 2),
        ({"moe_layer_freq": [0, 1, 1, 1]}, 3),
        ({"moe_layers_enum": "1,2"}, 2),
        ({"interleave_moe_layer_step": 4}, 1),
        ({"mlp_layer_types": ["dense", "sparse", "sparse", "sparse"]}, 3),
        ({"expert_layer_period": 2, "expert_layer_offset": 1}, 2),
    ],
)
def test_where_the_experts_are(keys, sparse):
    config = {**LLAMA, "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32, **keys}
    dense, expert, router = 3 * 64 * 256, 3 * 64 * 32, 64 * 8
    plain = read_config(LLAMA).parameters - 4 * dense
    report = read_config(config)
    assert report.parameters == plain + (4 - sparse) * dense + sparse * (8 * expert + router)
    assert report.active_parameters == plain + (4 - sparse) * dense + sparse * (2 * expert + router)


def test_layers_of_a_searched_network():
    """Two layers with attention, one without, feed-forward widths of their own."""
    blocks = [
        {"attention": {"n_heads_in_group": 4, "no_op": False}, "ffn": {"ffn_mult": 6.0, "no_op": False}},
        {"attention": {"no_op": True}, "ffn": {"ffn_mult": 12.0, "no_op": False}},
        {"attention": {"n_heads_in_group": 4, "no_op": False}, "ffn": {"ffn_mult": 12.0, "no_op": False}},
    ]
    keys = {"model_type": "nemotron-nas", "hidden_size": 64, "num_attention_heads": 8, "vocab_size": 1000}
    report = read_config({**keys, "block_configs": blocks})
    widths = 256 + 512 + 512  # 2/3 x multiplier x 64, up to whole 256s
    expected = 2 * 64 * 8 * (2 * 8 + 2 * 2) + 3 * 64 * widths + 64 * (2 + 3 + 1) + 2 * 1000 * 64
    assert report.parameters == expected
    assert report.kv_bytes_per_token == 2 * 2 * 2 * 8 * 2


def test_mixers_side_by_side_and_in_listed_layers():
    mamba = {"mamba_d_state": 16, "mamba_n_heads": 8, "mamba_d_head": 16, "mamba_n_groups": 1, "mamba_d_conv": 4}
    listed = read_config({**LLAMA, **mamba, "model_type": "bamba", "attn_layer_indices": [1]})
    assert listed.kv_bytes_per_token == 1 * 2 * 2 * 8 * 2
    both = read_config({**LLAMA, **mamba, "model_type": "falcon_h1", "mamba_d_ssm": 128})
    inner, mixed, heads = 128, 128 + 2 * 16, 8
    block = 64 * (inner + mixed + heads) + mixed * 5 + 3 * heads + inner + inner * 64
    assert both.parameters == read_config(LLAMA).parameters + 4 * block
    assert both.kv_bytes_per_token == read_config(LLAMA).kv_bytes_per_token


def test_full_layers_with_wider_heads_keep_their_cache():
    config = {
        **LLAMA,
        "model_type": "gemma4_text",
        "head_dim": 8,
        "global_head_dim": 16,
        "num_global_key_value_heads": 1,
        "attention_k_eq_v": True,
        "sliding_window": 32,
        "layer_types": ["sliding_attention", "sliding_attention", "sliding_attention", "full_attention"],
    }
    report = read_config(config)
    assert report.kv_bytes_per_token == 2 * 1 * 16 * 2
    narrow, wide = 64 * (2 * 8 + 2 * 2) * 8, 64 * (2 * 8 * 16 + 16)
    rest = 4 * (3 * 64 * 256 + 4 * 64 + 2 * 8) + 1000 * 64 + 64
    assert report.parameters == 3 * narrow + wide + rest


def test_mixers_counted_apart_are_active_too():
    """Wide keys in the full layers alone: what the windowed layers lack is neither there nor active."""
    config = FACTS["XiaomiMiMo/MiMo-V2-Flash"]
    plain, wide = (read_config({**config, "head_dim": width}) for width in (192, 4096))
    full = config["hybrid_layer_pattern"].count(0)
    more = full * 4096 * (64 + 4) * (4096 - 192)
    assert wide.parameters - plain.parameters == pytest.approx(more, rel=1e-6)
    assert wide.active_parameters - plain.active_parameters == pytest.approx(more, rel=1e-6)


def test_a_vision_language_model_is_its_language_model_with_a_tower():
    report = read_config(FACTS["Qwen/Qwen3-VL-8B-Instruct"])
    alone = read_config(FACTS["Qwen/Qwen3-8B"])
    assert report.kv_bytes_per_token == alone.kv_bytes_per_token
    assert report.parameters - alone.parameters == pytest.approx(576e6, rel=0.01)
    assert any("vision tower" in warning for warning in report.warnings)
    mixture = read_config({**FACTS["Qwen/Qwen3-VL-8B-Instruct"], "audio_config": {"x": 1}})
    assert any("audio" in warning for warning in mixture.warnings)


def test_a_nested_part_leaves_its_class_to_fill_in():
    report = read_config(FACTS["llava-hf/llava-1.5-7b-hf"])
    assert report.workload.layers == 32 and any("defaults of 'llama'" in warning for warning in report.warnings)


def test_an_image_size_that_is_not_said_is_assumed_and_said():
    report = read_config(FACTS["microsoft/resnet-50"])
    assert any("224 x 224 is assumed" in warning for warning in report.warnings)
    # 4.089 G multiply-adds, torchvision's figure for ResNet-50
    assert report.workload.flops_per_sample == pytest.approx(2 * 4.089e9, rel=0.01)
    assert report.kv_bytes_per_token == 0


def test_imported_models_go_through_the_engine():
    for name in ("meta-llama/Meta-Llama-3.1-8B", "openai/gpt-oss-20b", "ai21labs/Jamba-v0.1", "microsoft/resnet-50"):
        workload = import_config(FACTS[name])
        profile = mlsysim.Engine.solve(workload, mlsysim.Hardware.H100, batch_size=1)
        assert profile.latency.magnitude > 0


def test_a_class_of_another_family_than_the_type_is_noted():
    config = {
        "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 100,
        "max_position_embeddings": 64,
    }  # fmt: skip

    def notes(kind, name):
        return " ".join(read_config({**config, "model_type": kind, "architectures": [name]}).warnings)

    said = "The type is {!r} and the architecture {!r}: it was read as the type says."
    for kind, name in (("bert", "LlamaForCausalLM"), ("llama", "BertModel"), ("gpt2", "LlamaForCausalLM")):
        assert said.format(kind, name) in notes(kind, name)
    for kind, name in (("llama", "LlamaForCausalLM"), ("gemma3_text", "Gemma3ForCausalLM"), ("qwen2", "Qwen2Model")):
        assert "architecture" not in notes(kind, name)


def test_a_mixture_without_experts_is_refused():
    config = {"model_type": "mixtral", "num_local_experts": 0, "hidden_size": 64, "num_hidden_layers": 2}
    with pytest.raises(InputError, match="has experts, and says that there are 0"):
        read_config({**config, "num_attention_heads": 4, "intermediate_size": 128, "vocab_size": 100})
