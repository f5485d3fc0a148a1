"""Layers that are not all alike: caches, states and warnings of configurations that say so, and what is not understood."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mlsysim.errors import InputError
from mlsysim.importers.hf import read_config
from mlsysim.importers.model import read_model
from mlsysim.importers.user_zoo import save_model
from mlsysim.models.registry import Models
from mlsysim.plans.answer import Answer
from mlsysim.plans.evaluate import evaluate
from mlsysim.plans.files import load_plan, plan_to_toml
from mlsysim.report.build import build_report
from mlsysim.search.answers import explained
from mlsysim.search.space import Space
from mlsysim.search.sweep import sweep
from mlsysim.walls.node.compute_memory import SingleNodeModel

FACTS = {
    fact["name"]: fact["config"]
    for fact in json.loads(Path(__file__).with_name("configs.json").read_text(encoding="utf-8"))
}


def cache(report, tokens):
    return report.workload.get_kv_cache_size(tokens).to("byte").magnitude


@pytest.mark.parametrize(
    ("name", "per_token", "in_window"),
    [
        # Self-attention in 32 and 80 layers; those that attend to images keep nothing of the text.
        ("meta-llama/Llama-3.2-11B-Vision", 32 * 2 * 8 * 128 * 2, None),
        ("meta-llama/Llama-3.2-90B-Vision", 80 * 2 * 8 * 128 * 2, None),
        # Softmax attention in every eighth of 80 layers.
        ("MiniMaxAI/MiniMax-Text-01", 10 * 2 * 8 * 128 * 2, None),
        # 12 full and 33 windowed layers, 8 key-value heads in both.
        ("stepfun-ai/Step-3.5-Flash", 12 * 2 * 8 * 128 * 2, 45 * 2 * 8 * 128 * 2),
        # 9 full layers with 4 key-value heads, 39 windowed ones with 8; keys of 192 and values of 128.
        ("XiaomiMiMo/MiMo-V2-Flash", 9 * 4 * 320 * 2, 9 * 4 * 320 * 2 + 39 * 8 * 320 * 2),
        ("Qwen/Qwen3-Next-80B-A3B-Instruct", 12 * 2 * 2 * 256 * 2, None),
    ],
)
def test_a_token_of_the_cache(name, per_token, in_window):
    report = read_config(FACTS[name], name)
    assert report.kv_bytes_per_token == per_token
    assert report.kv_bytes_per_token_in_window == (in_window or per_token)


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        ("MiniMaxAI/MiniMax-Text-01", 45.9 + 2.46),
        ("stepfun-ai/Step-3.5-Flash", 11.4),
        ("meta-llama/Llama-3.2-11B-Vision", 8.03),
    ],
)
def test_active_parameters(name, billions):
    """As published; MiniMax counts without its embeddings."""
    assert read_config(FACTS[name], name).active_parameters / 1e9 == pytest.approx(billions, rel=0.06)


def test_windowed_layers_keep_their_own_heads():
    workload = read_config(FACTS["stepfun-ai/Step-3.5-Flash"], "step").workload
    assert (workload.heads, workload.window_heads, workload.window_kv_heads) == (64, 96, 8)
    mimo = read_config(FACTS["XiaomiMiMo/MiMo-V2-Flash"], "mimo")
    assert cache(mimo, 100_000) == 100_000 * 9 * 4 * 320 * 2 + 128 * 39 * 8 * 320 * 2
    assert not any("windowed" in line for line in mimo.warnings)


@pytest.mark.parametrize("key", ["mamba_ssm_dtype", "mamba_ssm_cache_dtype"])
def test_states_keep_the_format_that_the_configuration_says(key):
    config = FACTS["Qwen/Qwen3-Next-80B-A3B-Instruct"]
    states, tails = 36 * 32 * 128 * 128, 36 * (2 * 16 * 128 + 32 * 128) * 3
    assert cache(read_config(config), 0) == 2 * (states + tails)
    for named in ("float32", "torch.float32"):
        assert cache(read_config({**config, key: named}), 0) == 4 * states + 2 * tails
    assert cache(read_config({**config, key: "auto"}), 0) == 2 * (states + tails)
    with pytest.raises(
        InputError, match=r"^There is no format for the key 'mamba_ssm_.*dtype' named 'float31'; did you mean"
    ):
        read_config({**config, key: "float31"})


def test_lists_of_attention():
    config = FACTS["MiniMaxAI/MiniMax-Text-01"]
    assert read_config({**config, "attn_type_list": [1] * 80}).kv_bytes_per_token == 80 * 2 * 8 * 128 * 2
    with pytest.raises(InputError, match=r"must be a list of 0 and 1"):
        read_config({**config, "attn_type_list": [2] * 80})
    with pytest.raises(InputError, match=r"has 3 entries for 80 layers"):
        read_config({**config, "attn_type_list": [0, 1, 0]})


def test_widths_under_another_name():
    config = {"model_type": "bloom", "n_layer": 24, "n_head": 16, "vocab_size": 250880}
    assert read_config({**config, "n_embed": 1024}).parameters == read_config({**config, "n_embd": 1024}).parameters


@pytest.mark.parametrize(
    "kind", ["recurrent_gemma", "zamba2", "rwkv", "rwkv7", "hymba", "lfm2_moe", "jetmoe", "phi4flash", "openelm"]
)
def test_what_is_not_understood_is_refused(kind):
    with pytest.raises(InputError, match=r"for which there is no workload type\.$"):
        read_config({"model_type": kind, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4})


def test_a_vision_network_that_has_no_reader_is_called_one():
    """And not a language model that lacks a vocabulary."""
    with pytest.raises(InputError, match="'segformer' is a vision network that is not read from its configuration"):
        read_config({"model_type": "segformer", "depths": [3, 6, 40, 3], "hidden_sizes": [64, 128], "image_size": 512})


def test_groups_of_linear_layers_end_in_softmax_attention():
    """Ring-linear: of 32 layers four keep 2 x 4 heads x 128 elements a token in 16 bits, 28 a state of 32 x 128 x 128."""
    report = read_config(FACTS["inclusionAI/Ring-flash-linear-2.0"])
    assert (cache(report, 20_000) - cache(report, 10_000)) / 10_000 == 4 * 2 * 4 * 128 * 2
    assert report.active_parameters == pytest.approx(6.1e9 + 2 * 157184 * 4096, rel=0.02)  # counted without tables


def test_a_dense_layer_beside_experts_is_active():
    """Snowflake Arctic: 17 billion of 480 for each token, of which the dense residual has 10 with attention."""
    assert read_config(FACTS["Snowflake/snowflake-arctic-instruct"]).active_parameters == pytest.approx(17e9, rel=0.03)


def test_what_else_a_model_of_several_senses_has_is_said():
    text = {**LLAMA, "model_type": "llama"}
    report = read_config({"model_type": "brandnew_omni", "thinker_config": {"text_config": text, "audio_config": {}}})
    assert "The parts of audio_config are not counted." in report.warnings


LLAMA = FACTS["TinyLlama/TinyLlama-1.1B-Chat-v1.0"]


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"quantization_config": {"quant_method": "aqlm"}}, "The quantisation 'aqlm' is no format that is known"),
        ({"torch_dtype": "float7"}, "The format 'float7' is not known"),
        ({"model_type": "brandnew"}, "The model type 'brandnew' is not known"),
    ],
)
def test_a_warning_stays_with_the_model(more, words, tmp_path, monkeypatch):
    """In the answer, its JSON, a report, a saved scenario that is read again, and a model saved in the user's zoo."""
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({**LLAMA, **more}), encoding="utf-8")
    report = read_model(folder)
    assert any(words in line for line in report.warnings) and report.workload.caveats == report.warnings
    plan = {"task": "inference", "workload": {"model": str(folder)}, "hardware": {"on": "H100"}}
    answer = evaluate(plan, change=False)
    assert answer.warnings == report.warnings
    assert Answer.from_dict(answer.to_dict()).warnings == report.warnings
    assert any(words in risk for risk in build_report(answer.plan).answer.risks)
    file = tmp_path / "plan.toml"
    file.write_text(plan_to_toml(answer.plan), encoding="utf-8")
    assert evaluate(load_plan(file), change=False).warnings == report.warnings
    monkeypatch.setenv("MLSYSIM_ZOO", str(tmp_path / "zoo"))
    Models.reload()
    save_model(report, "Mine_1")
    saved = {**plan, "workload": {"model": "Mine_1"}}
    assert evaluate(saved, change=False).warnings == report.warnings
    monkeypatch.undo()
    Models.reload()


@pytest.mark.parametrize(
    "key",
    [
        "swa_layer_pattern",
        "attn_layer_indices",
        "global_attention_layers",
        "hybrid_block_types",
        "moe_every",
        "num_new_experts",
        "engram_layers",
        "mixture_of_depths",
        "num_memory_tokens",
    ],
)
def test_a_key_that_may_say_that_layers_differ_is_warned_of(key):
    assert any(key in line for line in read_config({**LLAMA, key: [0, 1, 0]}).warnings)


@pytest.mark.parametrize(("dtype", "said"), [("float8_e4m3fn", True), ("bfloat16", False), ("float32", False)])
def test_narrow_weights_without_a_quantisation_are_warned_of(dtype, said):
    found = read_config({**LLAMA, "torch_dtype": dtype}).warnings
    assert any("taken in 16 bits" in line for line in found) is said


def test_known_configurations_have_no_such_key():
    assert not [name for name, config in FACTS.items() if any("Nobody read" in w for w in read_config(config).warnings)]


def test_heads_of_each_layer_are_one_number_or_refused():
    config = {key: value for key, value in LLAMA.items() if key != "num_key_value_heads"}
    same = read_config({**config, "num_key_value_heads_per_layer": [4] * 22})
    assert same.kv_bytes_per_token == 22 * 2 * 4 * 64 * 2
    with pytest.raises(InputError, match=r"'num_key_value_heads_per_layer' must be a whole number"):
        read_config({**config, "num_key_value_heads_per_layer": [4] * 21 + [2]})


def test_states_of_a_published_layout():
    """Qwen3.5 as SGLang and vLLM keep it: states of 64 x 128 x 128 in FP32, and three inputs of the convolution in 16 bits."""
    config = FACTS["Qwen/Qwen3.5-397B-A17B"]
    workload = read_config(config).workload
    temporal, convolution = 64 * 128 * 128 * 4, (2 * 16 * 128 + 64 * 128) * 3 * 2
    assert workload.get_state_cache_size().to("byte").magnitude == 45 * (temporal + convolution)


def test_a_result_of_a_resolver_says_it_too():
    workload = read_config({**LLAMA, "model_type": "brandnew"}).workload
    assert "is not known" in SingleNodeModel().solve(workload, "H100").assumptions["caveats"]
    assert "caveats" not in SingleNodeModel().solve("Llama3_8B", "H100").assumptions


# google/gemma-4-E2B and E4B, text_config: the last layers attend to the keys and values of earlier ones.
E2B = {
    "model_type": "gemma4_text", "hidden_size": 1536, "num_hidden_layers": 35, "intermediate_size": 6144, "num_attention_heads": 8,
    "head_dim": 256, "global_head_dim": 512, "vocab_size": 262144, "vocab_size_per_layer_input": 262144, "num_key_value_heads": 1,
    "num_kv_shared_layers": 20, "hidden_size_per_layer_input": 256, "sliding_window": 512, "max_position_embeddings": 131072,
    "use_double_wide_mlp": True, "layer_types": (["sliding_attention"] * 4 + ["full_attention"]) * 7,
}  # fmt: skip
E4B = E2B | {
    "hidden_size": 2560, "num_hidden_layers": 42, "intermediate_size": 10240, "num_key_value_heads": 2, "num_kv_shared_layers": 18,
    "use_double_wide_mlp": False, "layer_types": (["sliding_attention"] * 5 + ["full_attention"]) * 7,
}  # fmt: skip


@pytest.mark.parametrize(("config", "billions", "encoders"), [(E2B, 5.1, 0.45), (E4B, 8.0, 0.45)])
def test_small_gemmas_with_their_published_counts(config, billions, encoders):
    """Gemma 4 model card: 5.1 and 8 billion with embeddings, with about 150 M of vision and 300 M of audio encoders beside the text."""
    report = read_config(config, "gemma")
    assert report.parameters / 1e9 + encoders == pytest.approx(billions, rel=0.015)
    looked_up = report.workload.lookup_parameters
    assert looked_up == 262144 * config["num_hidden_layers"] * 256
    assert report.active_parameters == report.parameters - looked_up, "tables are held and not multiplied"
    plan = {"task": "serving", "workload": {"model": "Gemma4_E2B"}, "hardware": {"on": "H100"}}
    for efficiency in ("calibrated", 0.5):
        answer = evaluate({**plan, "hardware": {"on": "H100", "efficiency": efficiency}}, change=False)
        assert answer.memory is not None
        held = sum(part.value for part in answer.memory.parts if part.label == "weights")
        assert held == pytest.approx(2 * Models.get("Gemma4_E2B").parameter_count, rel=0.001)


@pytest.mark.parametrize("efficiency", ["calibrated", 0.5])
def test_utilisation_counts_what_is_multiplied(efficiency):
    plan = {
        "task": "training",
        "workload": {"model": "Gemma4_E2B"},
        "hardware": {"on": "8xH100", "efficiency": efficiency},
    }
    assert evaluate(plan, change=False).value("mfu") < 0.75


E4B_3N = {
    "model_type": "gemma3n_text", "hidden_size": 2048, "intermediate_size": [16384] * 35, "num_hidden_layers": 35, "num_attention_heads": 8,
    "num_key_value_heads": 2, "head_dim": 256, "vocab_size": 262400, "vocab_size_per_layer_input": 262144,
    "hidden_size_per_layer_input": 256, "num_kv_shared_layers": 15, "laurel_rank": 64, "altup_num_inputs": 4, "sliding_window": 512,
    "layer_types": (["sliding_attention"] * 4 + ["full_attention"]) * 7,
}  # fmt: skip


def test_gemma_3n():
    """6.87 billion of text in the E4B checkpoint; 16 windowed and 4 full layers of two heads have keys of their own."""
    report = read_config(E4B_3N, "gemma")
    assert report.parameters / 1e9 == pytest.approx(6.87, rel=0.005)
    assert (report.kv_bytes_per_token, report.kv_bytes_per_token_in_window) == (4 * 2048, 20 * 2048)


def test_layers_across_which_keys_are_shared():
    """Hunyuan-Large: of two layers one makes keys and values (arXiv 2411.02265: 64 layers, 8 heads of 128)."""
    config = FACTS["meta-llama/Meta-Llama-3.1-8B"] | {"use_cla": True, "cla_share_factor": 2}
    assert read_config(config).kv_bytes_per_token == 16 * 2 * 8 * 128 * 2
    assert read_config({**config, "use_cla": False}).kv_bytes_per_token == 32 * 2 * 8 * 128 * 2


@pytest.mark.parametrize("named", [{}, {"layer_types": (["sliding_attention"] * 3 + ["full_attention"]) * 16}])
def test_letters_of_layers(named):
    """EXAONE 4.0 32B: LLLG, three windowed layers before each full one."""
    sizes = {"hidden_size": 5120, "intermediate_size": 27392, "num_hidden_layers": 64, "num_attention_heads": 40}
    more = {"num_key_value_heads": 8, "head_dim": 128, "vocab_size": 102400, "sliding_window": 4096}
    report = read_config({"model_type": "exaone4", **sizes, **more, "sliding_window_pattern": "LLLG", **named})
    assert report.parameters / 1e9 == pytest.approx(32.0, rel=0.005)
    assert report.kv_bytes_per_token == 16 * 2 * 8 * 128 * 2 and not report.warnings


def test_layers_that_borrow_keys_keep_none():
    """E2B has 15 layers with keys of their own: 12 of 256 behind a window of 512 and 3 of 512, one head, two bytes, keys and values."""
    report = read_config(E2B, "gemma")
    assert (report.kv_bytes_per_token, report.kv_bytes_per_token_in_window) == (3 * 2048, 3 * 2048 + 12 * 1024)
    alone = read_config({**E2B, "num_kv_shared_layers": 0}, "gemma")
    assert cache(alone, 10_000) / cache(report, 10_000) == pytest.approx(7 / 3, rel=0.01)
    read = [
        sum(op.cache_bytes * op.count for op in each.workload.lower("decode", seq_len=9000).operators)
        for each in (report, alone)
    ]
    assert read[0] == pytest.approx(read[1], rel=0.01), "each layer reads the keys that it attends to"
    with pytest.raises(InputError, match="35 layers share keys and values of 35 layers"):
        read_config({**E2B, "num_kv_shared_layers": 35}, "gemma")


def test_a_decoder_behind_an_encoder_has_two_lengths():
    """T5-Base, 12 layers of 768, two bytes: a source of 1,000 tokens leaves keys for cross-attention, 50 written tokens their own."""
    model, each = Models.get("T5_Base"), 12 * 2 * 768 * 2
    step = model.lower("decode", seq_len=1000, target_len=49)
    assert step.cache_bytes.to("byte").magnitude == 1000 * each + 50 * each
    assert sum(op.cache_bytes * op.count for op in step.operators) == pytest.approx(1050 * each)
    assert model.get_kv_cache_size(1050).to("byte").magnitude == 1050 * each
    shorter = model.lower("decode", seq_len=10, target_len=49)
    assert sum(op.cache_bytes * op.count for op in shorter.operators) == pytest.approx(60 * each)
    # The first token of a text reads the source alone.
    assert model.lower("decode", seq_len=1000).cache_bytes.to("byte").magnitude == 1001 * each


def test_the_best_design_of_a_sweep_says_it_too():
    space = Space.from_dict(
        {
            "kind": "serving",
            "minimize": "tpot_s",
            "fixed": {"model": "Gemma3n_E4B", "isl": 512, "osl": 64},
            "axes": {"hardware": ["H100", "A100"]},
        }
    )
    told = explained(space, sweep(space).best)
    assert told is not None and "not as work" in told["sentences"][-1]
