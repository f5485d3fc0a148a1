"""Files that say two things, or something else than where they stand: one sentence, never the last of two or a silent default."""

from __future__ import annotations

import json

import pytest

from mlsysim.errors import InputError
from mlsysim.importers.hf import read_config
from mlsysim.plans.files import plan_from_text
from mlsysim.plans.resolve import find_model
from mlsysim.systems.fleet_text import find_system

LLAMA = {
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 4, "vocab_size": 100,
}  # fmt: skip
MIXTRAL = {**LLAMA, "model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2}
TOML = "[workload]\nmodel = 'Llama3_8B'\n{}\n[hardware]\non = 'H100'\n"
YAML = "workload:\n  model: Llama3_8B\n{}\nhardware:\n  on: H100\n"


def test_on_is_a_key_in_yaml():
    """YAML 1.1 reads ``on`` as true."""
    pytest.importorskip("yaml")
    assert plan_from_text(YAML.format("  seq_len: 100"), "yaml").hardware.on == "H100"


@pytest.mark.parametrize(
    ("form", "text", "words"),
    [
        ("yaml", YAML.format("  batch_size: yes"), "'workload.batch_size' field got 'yes'"),
        ("yaml", YAML.format("  batch_size: true"), "'workload.batch_size' is a number, got true."),
        ("yaml", YAML.format("  model: Llama3_70B"), "the key 'model' stands twice (line 3)"),
        ("yaml", YAML.format("  1: 2"), "'workload.1' is not a key of a plan"),
        ("toml", TOML.format("seq_len = false"), "'workload.seq_len' is a number, got false."),
        ("toml", TOML.format("model = 'x'"), "a key stands twice (at line 3, column 12)"),
        ("toml", "version = '99.0'\n" + TOML.format(""), "the version of a plan is 1, got '99.0'."),
        ("toml", "version = 2\n" + TOML.format(""), "the version of a plan is 1, got '2'."),
        ("toml", "version = true\n" + TOML.format(""), "the version of a plan is 1, got 'True'."),
        ("json", '{"workload": {"model": "Llama3_8B", "model": "x"}}', "'the plan' has the key 'model' twice in one object."),
    ],
)  # fmt: skip
def test_plans(form, text, words):
    if form == "yaml":
        pytest.importorskip("yaml")
    with pytest.raises(InputError) as caught:
        plan_from_text(text, form)
    assert words in str(caught.value)


@pytest.mark.parametrize("version", ["1", "1.0", "'1.0'", "'1'"])
def test_the_versions_there_are(version):
    assert plan_from_text(f"version = {version}\n" + TOML.format("")).workload.model == "Llama3_8B"


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (json.dumps(LLAMA)[:-1] + ', "hidden_size": 128}', "'the configuration' has the key 'hidden_size' twice in one object."),
        ({**LLAMA, "hidden_size": [64]}, "The key 'hidden_size' must be a whole number, got [64]."),
        ({**LLAMA, "hidden_size": [64, 64]}, "The key 'hidden_size' must be a whole number, got [64, 64]."),
        ({**LLAMA, "intermediate_size": [128]}, "The key 'intermediate_size' must be a whole number, got [128]."),
        ({**MIXTRAL, "num_local_experts": 0}, "of type 'mixtral' has experts, and says that there are 0."),
        ({**LLAMA, "model_type": "mixtral"}, "of type 'mixtral' has experts, and does not say num_local_experts."),
        ({**LLAMA, "model_type": "qwen3_moe"}, "of type 'qwen3_moe' has experts, and does not say num_local_experts."),
        ({**LLAMA, "model_type": "resnet"}, "a network of convolutions, and the keys are those of a language model."),
    ],
)  # fmt: skip
def test_configurations(config, words):
    with pytest.raises(InputError) as caught:
        read_config(config)
    assert words in str(caught.value)


def test_sizes_of_each_layer_may_be_a_list_and_experts_of_a_dense_type_are_noted():
    assert read_config({**LLAMA, "intermediate_size": [128, 128]}).workload.ffn_dim == 128
    report = read_config({**MIXTRAL, "model_type": "llama"})
    assert report.workload.experts == 8 and "'llama' have no experts" in report.warnings[0]
    mamba = read_config({**LLAMA, "model_type": "mamba"})
    assert any("'mamba' have no attention, and the keys have" in warning for warning in mamba.warnings)


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        (
            "chip.toml",
            "[My_Chip]\ntdp = '700 W'\n",
            "'chip.toml' is a file of hardware; give it where the hardware goes",
        ),
        ("chip.toml", "[A.memory]\ncapacity = '80 GB'\n", "'chip.toml' is a file of hardware"),
        ("mine.toml", "[Mine]\nlayers = 2\n", "'mine.toml' is a file of a zoo; put it into models.toml"),
        ("plan.toml", TOML.format(""), "'plan.toml' is a plan; ask for it with `mlsysim eval FILE`."),
        ("other.yaml", "a: 1\n", "'other.yaml' is no configuration of a model; give the model's config.json"),
    ],
)
def test_other_files_where_a_model_is_expected(tmp_path, name, text, words):
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError) as caught:
        find_model(str(tmp_path / name))
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("config.json", "'config.json' is no description of a chip"),
        ("mine/chip.toml", "There is no file 'mine/chip.toml'"),
        ("./model.safetensors", "is no description of a chip"),
    ],
)
def test_other_files_where_hardware_is_expected(name, words):
    with pytest.raises(InputError, match=words):
        find_system(name)
