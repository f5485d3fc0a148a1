"""Mangled configurations, texts and files: a workload with finite numbers, or one sentence; never anything else."""

from __future__ import annotations

import copy
import json
import math
import random
import struct
import warnings
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from mlsysim.errors import InputError
from mlsysim.importers.hf import read_config
from mlsysim.importers.model import read_header, read_model

FACTS = [fact["config"] for fact in json.loads(Path(__file__).with_name("configs.json").read_text(encoding="utf-8"))]
BASE = {
    "hidden_size": 64,
    "intermediate_size": 256,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "vocab_size": 1000,
}
BLOCK = {"attention": {"n_heads_in_group": 4, "no_op": False}, "ffn": {"ffn_mult": 2.0, "no_op": False}}
LATENT = {"kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 8}
SEEDS = [
    *FACTS,
    {**BASE, "model_type": "nemotron-nas", "block_configs": [BLOCK] * 3},
    {**BASE, "model_type": "falcon_h1", "mamba_d_ssm": 128, "mamba_n_heads": 8, "mamba_d_state": 16},
    {**BASE, "model_type": "bamba", "attn_layer_indices": [1], "mamba_n_heads": 8, "mamba_d_state": 16},
    {**BASE, **LATENT, "model_type": "kimi_linear", "linear_attn_config": {"num_heads": 4, "head_dim": 8}},
    {**BASE, "model_type": "gemma4_text", "sliding_window": 8, "global_head_dim": 16, "num_global_key_value_heads": 1},
    {**BASE, "model_type": "internvl_chat", "vision_config": {"hidden_size": 32, "num_hidden_layers": 2}},
    {**BASE, "model_type": "llama4", "vision_config": {"hidden_size": 32, "num_hidden_layers": 2}},
    {"model_type": "kimi_k25", "text_config": {**BASE, **LATENT}, "vision_config": {"vt_hidden_size": 32}},
]


def keys_of(table):
    for key, value in table.items():
        yield key
        if isinstance(value, dict):
            yield from keys_of(value)


KEYS = sorted(
    {key for config in SEEDS for key in keys_of(config)} | {"quantization_config", "layer_types", "moe_layers"}
)
TYPES = sorted({config.get("model_type", "") for config in SEEDS})
numbers = st.one_of(
    st.integers(-3, 200),
    st.integers(-(10**30), 10**30),
    st.floats(allow_nan=True, allow_infinity=True),
    st.sampled_from([0, 1, 64, 4096, 10**9, 10**9 + 1, 1e308, -0.0]),
)
scalars = st.one_of(st.none(), st.booleans(), numbers, st.text(max_size=8), st.sampled_from(["auto", "mamba", "*M-E"]))
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=6), st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=4), inner, max_size=4)
    ),
    max_leaves=8,
)


def outcome(call):
    """Runs the call; a sentence when it refuses, None when it answers."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            report = call()
    except InputError as error:
        text = str(error)
        assert text and "\n" not in text and len(text) < 1500
        assert text.endswith((".", "?", ".)"))
        return text
    told = report.to_dict()
    json.dumps(told, allow_nan=False)
    assert math.isfinite(report.parameters) and report.parameters > 0
    assert 0 < report.active_parameters <= report.parameters * 1.0001
    assert math.isfinite(report.kv_bytes_per_token) and report.kv_bytes_per_token >= 0
    return None


@st.composite
def mangled(draw):
    """A real configuration with one to four keys changed, added, removed or moved to another type."""
    config = copy.deepcopy(draw(st.sampled_from(SEEDS)))
    for _ in range(draw(st.integers(1, 4))):
        table = config
        inner = [value for value in config.values() if isinstance(value, dict)]
        if inner and draw(st.booleans()):
            table = draw(st.sampled_from(inner))
        action = draw(st.sampled_from(["change", "change", "add", "remove", "type"]))
        if action == "type":
            config["model_type"] = draw(st.sampled_from(TYPES))
        elif action == "add" or not table:
            table[draw(st.sampled_from(KEYS))] = draw(values)
        elif action == "remove":
            del table[draw(st.sampled_from(sorted(table)))]
        else:
            table[draw(st.sampled_from(sorted(table)))] = draw(values)
    return config


@settings(max_examples=250, suppress_health_check=[HealthCheck.too_slow])
@given(mangled())
def test_mangled_configurations(config):
    outcome(lambda: read_config(config))


JUNK = [
    *(None, True, False, 0, -1, 1, 2, 3, 7, 1.5, 1e308, 10**30, 10**9, 999_999_937, -0.0),
    *(float("nan"), float("inf"), float("-inf"), "", "x", "4096", "auto", "\n\x00"),
    *([], [1, 2], [0] * 50, ["full_attention"] * 100, ["mamba", "x"], {}, {"a": 1}, [[[]]], [None], [True]),
]


@settings(max_examples=10, phases=[Phase.generate])
@given(st.integers(0, 2**32))
def test_very_many_mangled_configurations(seed):
    """The same with a plain generator, which is quicker by far: 250 configurations for each of ten seeds."""
    chance = random.Random(seed)
    refused = 0
    for _ in range(250):
        config = copy.deepcopy(chance.choice(SEEDS))
        for _ in range(chance.choice([1, 1, 2, 4])):
            tables = [config, *(value for value in config.values() if isinstance(value, dict) and value)]
            table = chance.choice(tables)
            key = chance.choice(sorted(table)) if table and chance.random() < 0.8 else chance.choice(KEYS)
            if key in table and chance.random() < 0.2:
                del table[key]
            else:
                table[key] = chance.choice(TYPES) if key == "model_type" else copy.deepcopy(chance.choice(JUNK))
        refused += outcome(lambda config=config: read_config(config)) is not None
    assert 50 < refused < 250


@settings(max_examples=80)
@given(st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=5), values, max_size=8))
def test_made_up_configurations(config):
    outcome(lambda: read_config(config))


@settings(max_examples=150)
@given(st.one_of(st.text(max_size=60), st.binary(max_size=60), values))
def test_made_up_documents(document):
    outcome(lambda: read_config(document))


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_made_up_files(tmp_path, data):
    """Bytes under the names that the reader takes, in a folder with a good configuration or none."""
    name = data.draw(
        st.sampled_from(["config.json", "model.safetensors", "model.safetensors.index.json", "hf_quant_config.json"])
    )
    content = data.draw(st.one_of(st.binary(max_size=40), values.map(lambda v: json.dumps(v).encode())))
    for old in tmp_path.iterdir():
        old.unlink()
    if name != "config.json":
        (tmp_path / "config.json").write_text(json.dumps({**BASE, "model_type": "llama"}))
    (tmp_path / name).write_bytes(content)
    outcome(lambda: read_model(tmp_path))


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(st.text(max_size=5), values, max_size=4), st.integers(-4, 40), st.integers(0, 64))
def test_made_up_headers(tmp_path, table, offset, tail):
    text = json.dumps(table).encode()
    (tmp_path / "a.safetensors").write_bytes(struct.pack("<Q", max(0, len(text) + offset)) + text + bytes(tail))
    try:
        found = read_header(tmp_path / "a.safetensors")
    except InputError as error:
        assert "\n" not in str(error)
    else:
        assert found.weights >= 0
