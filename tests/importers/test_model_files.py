"""Files and folders: configurations, headers of checkpoints, their index, and what is refused."""

from __future__ import annotations

import json
import pickle
import struct
import zipfile
from pathlib import Path

import pytest

import mlsysim
from mlsysim.errors import InputError
from mlsysim.importers import model as module
from mlsysim.importers.model import import_model, read_header, read_model
from mlsysim.plans.resolve import find_model

CONFIG = {
    "model_type": "llama",
    "hidden_size": 8,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "vocab_size": 10,
    "torch_dtype": "bfloat16",
}
TENSORS = {
    "model.embed_tokens.weight": ("BF16", [10, 8]),
    "lm_head.weight": ("BF16", [10, 8]),
    "model.norm.weight": ("BF16", [8]),
    "model.layers.0.input_layernorm.weight": ("BF16", [8]),
    "model.layers.0.post_attention_layernorm.weight": ("BF16", [8]),
    "model.layers.0.self_attn.q_proj.weight": ("BF16", [8, 8]),
    "model.layers.0.self_attn.k_proj.weight": ("BF16", [4, 8]),
    "model.layers.0.self_attn.v_proj.weight": ("BF16", [4, 8]),
    "model.layers.0.self_attn.o_proj.weight": ("BF16", [8, 8]),
    "model.layers.0.mlp.gate_proj.weight": ("BF16", [16, 8]),
    "model.layers.0.mlp.up_proj.weight": ("BF16", [16, 8]),
    "model.layers.0.mlp.down_proj.weight": ("BF16", [8, 16]),
}
BITS = {"BF16": 16, "F32": 32, "U8": 8, "F8_E4M3": 8, "I32": 32, "F16": 16}


def write_tensors(path: Path, tensors: dict) -> int:
    """A safetensors file with zeros in it; returns the bytes of its data."""
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, (kind, shape) in tensors.items():
        size = BITS[kind] // 8
        for side in shape:
            size *= side
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(at))
    return at


@pytest.fixture
def folder(tmp_path):
    place = tmp_path / "Tiny-Model"
    place.mkdir()
    (place / "config.json").write_text(json.dumps(CONFIG))
    return place


# --- configurations -------------------------------------------------------------------------------------------------------


def test_a_file_and_its_folder_are_the_same_model(folder):
    assert import_model(folder) == import_model(folder / "config.json") == mlsysim.import_model(str(folder))
    report = read_model(folder)
    assert report.name == "Tiny-Model" and report.source == "config.json"
    assert read_model(folder, name="other").name == "other"
    assert report.checkpoint_bytes is None


def test_a_configuration_under_another_name(tmp_path):
    (tmp_path / "org--tiny_config.json").write_text(json.dumps(CONFIG))
    (tmp_path / "org--tiny_hf_quant_config.json").write_text(json.dumps({"quantization": {"quant_algo": "FP8"}}))
    report = read_model(tmp_path / "org--tiny_config.json")
    assert report.name == "org--tiny" and report.quantisation is not None and report.quantisation.weights == "fp8"


def test_quantisation_beside_the_configuration(folder):
    told = {"quantization": {"quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8", "group_size": 16}}
    (folder / "hf_quant_config.json").write_text(json.dumps(told))
    found = read_model(folder).quantisation
    assert found is not None and (found.weights, found.cache) == ("nvfp4", "fp8")
    (folder / "hf_quant_config.json").write_text("[]")
    with pytest.raises(InputError, match="not a table of keys"):
        read_model(folder)


def test_values_that_only_python_writes_are_no_obstacle_where_they_are_not_read(folder):
    (folder / "config.json").write_text(json.dumps({**CONFIG, "time_step_limit": [0.0, float("inf")]}))
    assert "time_step_limit" in read_model(folder).unread
    (folder / "config.json").write_text(json.dumps({**CONFIG, "hidden_size": float("nan")}))
    with pytest.raises(InputError, match="whole number"):
        read_model(folder)


def test_a_name_or_a_path_for_a_command_line(folder, monkeypatch):
    monkeypatch.chdir(folder.parent)
    assert find_model("Llama3_8B") is mlsysim.Models.Llama3_8B
    assert find_model("Tiny-Model").hidden_dim == 8 == find_model(str(folder / "config.json")).hidden_dim
    with pytest.raises(InputError, match="There is no model named 'Lama3_8B'; did you mean"):
        find_model("Lama3_8B")
    with pytest.raises(InputError, match="cannot be read: no such file"):
        find_model("nowhere/config.json")


# --- checkpoints ----------------------------------------------------------------------------------------------------------


def test_a_header_gives_the_exact_count(folder):
    size = write_tensors(folder / "model.safetensors", TENSORS)
    report = read_model(folder)
    assert report.checkpoint_parameters == {"BF16": round(report.parameters)}
    assert report.checkpoint_bytes == size == 2 * report.parameters
    assert report.warnings == ()
    assert import_model(folder / "model.safetensors") == report.workload
    assert report.to_dict()["checkpoint_bytes"] == size


def test_a_checkpoint_that_is_not_the_configurations(folder):
    write_tensors(folder / "model.safetensors", {**TENSORS, "more.weight": ("BF16", [50, 8])})
    (warning,) = read_model(folder).warnings
    assert "The checkpoint holds" in warning and "from the" in warning


def test_quantised_weights_are_unpacked_and_scales_left_out(tmp_path):
    write_tensors(
        tmp_path / "a.safetensors",
        {
            "x.qweight": ("I32", [2, 8]),
            "x.qzeros": ("I32", [1, 8]),
            "x.g_idx": ("I32", [16]),
            "x.scales": ("F16", [1, 8]),
            "y.weight": ("U8", [4, 4]),
            "y.weight_scale": ("F8_E4M3", [4, 1]),
            "y.weight_scale_2": ("F32", []),
            "z_blocks": ("U8", [3, 5]),
            "z_scales": ("U8", [3]),
            "w.weight": ("F8_E4M3", [6, 6]),
            "w.weight_scale_inv": ("F32", [1, 1]),
        },
    )
    found = read_header(tmp_path / "a.safetensors")
    assert found.weights == 2 * 8 * 8 + 2 * 16 + 2 * 15 + 36
    assert found.elements["I32"] == 16 + 8 + 16 and found.tensors == 11
    assert read_header(tmp_path / "a.safetensors", word_bits=8).weights == 2 * 8 * 4 + 2 * 16 + 2 * 15 + 36


def test_an_index_names_the_files_and_states_the_size(folder):
    names = list(TENSORS)
    first, second = dict(list(TENSORS.items())[:5]), dict(list(TENSORS.items())[5:])
    size = write_tensors(folder / "a.safetensors", first) + write_tensors(folder / "b.safetensors", second)
    files = {name: "a.safetensors" if name in first else "b.safetensors" for name in names}
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {"total_size": size}, "weight_map": files}))
    report = read_model(folder)
    assert report.warnings == () and report.checkpoint_bytes == size
    assert import_model(index) == report.workload
    index.write_text(json.dumps({"metadata": {"total_size": size + 2}, "weight_map": files}))
    assert "The index states" in read_model(folder).warnings[0]
    # Without its files the index alone is compared: bytes of 16-bit weights.
    (folder / "a.safetensors").unlink()
    assert read_model(folder).checkpoint_parameters is None
    index.write_text(json.dumps({"metadata": {"total_size": 2 * size}, "weight_map": files}))
    assert "+100.0%" in read_model(folder).warnings[0]
    # A path that leads out of the folder is not followed.
    index.write_text(json.dumps({"metadata": {}, "weight_map": {"x": "../../etc/passwd"}}))
    assert read_model(folder).checkpoint_parameters is None


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"abc",
        struct.pack("<Q", 2**63),
        struct.pack("<Q", 10) + b"{}",
        struct.pack("<Q", 2) + b"[]",
        struct.pack("<Q", 2) + b"{x",
        struct.pack("<Q", 9) + b'{"a": {}}',
        struct.pack("<Q", 52) + b'{"a": {"dtype": "F9", "shape": [1], "data_offsets": [0, 1]}}'[:52],
    ],
)
def test_bad_headers_are_refused(tmp_path, data):
    (tmp_path / "a.safetensors").write_bytes(data)
    with pytest.raises(InputError):
        read_header(tmp_path / "a.safetensors")


@pytest.mark.parametrize(
    "entry",
    [
        {"dtype": "F9", "shape": [1], "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": [10**9] * 9, "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": [1], "data_offsets": [0, 8]},
        {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]},
        {"dtype": "F32", "shape": [1], "data_offsets": ["0", 4]},
        {"dtype": "F32", "shape": [1]},
        {"dtype": "F32", "shape": 1, "data_offsets": [0, 4]},
        {"dtype": 3, "shape": [1], "data_offsets": [0, 4]},
        7,
    ],
)
def test_a_tensor_must_fit_its_place(tmp_path, entry):
    text = json.dumps({"a": entry}).encode()
    (tmp_path / "a.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + bytes(4))
    with pytest.raises(InputError) as caught:
        read_header(tmp_path / "a.safetensors")
    assert "\n" not in str(caught.value)


# --- refused --------------------------------------------------------------------------------------------------------------


class Bomb:
    """Unpickling this writes a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def test_pickles_are_refused_and_never_loaded(tmp_path):
    trace = tmp_path / "ran"
    for name in ("pytorch_model.bin", "weights", "model.pt"):
        (tmp_path / name).write_bytes(pickle.dumps(Bomb(trace)))
        with pytest.raises(InputError, match="can run any code"):
            read_model(tmp_path / name)
    with zipfile.ZipFile(tmp_path / "archive", "w") as archive:
        archive.writestr("data.pkl", pickle.dumps(Bomb(trace)))
    with pytest.raises(InputError, match="can run any code"):
        read_model(tmp_path / "archive")
    assert not trace.exists()


def test_what_has_no_configuration(tmp_path):
    with pytest.raises(InputError, match=r"has no config\.json"):
        read_model(tmp_path)
    write_tensors(tmp_path / "model.safetensors", TENSORS)
    with pytest.raises(InputError, match=r"no config\.json beside it.*holds 760 parameters"):
        read_model(tmp_path / "model.safetensors")
    with pytest.raises(InputError, match="no such file"):
        read_model(tmp_path / "absent.json")
    (tmp_path / "model.gguf").write_bytes(b"GGUF" + bytes(20))
    with pytest.raises(InputError, match="is a GGUF file"):
        read_model(tmp_path / "model.gguf")
    (tmp_path / "list.json").write_text("[1]")
    with pytest.raises(InputError, match="is a table of keys"):
        read_model(tmp_path / "list.json")


def test_files_that_are_too_large_or_too_deep(folder, monkeypatch):
    (folder / "config.json").write_text(json.dumps(CONFIG)[:-1] + ', "x": ' + "[" * 200 + "]" * 200 + "}")
    with pytest.raises(InputError, match="nested more than 64 deep"):
        read_model(folder)
    monkeypatch.setattr(module, "LARGEST_CONFIG", 100)
    with pytest.raises(InputError, match="larger than the 100 bytes"):
        read_model(folder)


def test_an_imported_model_says_how_many_parameters_it_has(tmp_path):
    folder = tmp_path / "small"
    folder.mkdir()
    dimensions = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
    (folder / "config.json").write_text(json.dumps({"model_type": "llama", "vocab_size": 100, **dimensions}))
    model = mlsysim.import_model(folder)
    each = 4 * 64 * 64 + 3 * 64 * 128 + 2 * 64
    assert model.parameters.to("param").magnitude == 2 * 100 * 64 + 2 * each + 64 == model.parameter_count
