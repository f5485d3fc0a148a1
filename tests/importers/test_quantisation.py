"""What quantisation configurations say."""

from __future__ import annotations

import pytest

from mlsysim.importers.fields import Config
from mlsysim.importers.hf import read_config
from mlsysim.importers.quantisation import of_config, of_modelopt

LLAMA = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 256,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "vocab_size": 1000,
}
FLOAT8 = {"num_bits": 8, "type": "float"}


@pytest.mark.parametrize(
    ("table", "weights", "activations", "cache"),
    [
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "fp8", "fp8", None),
        ({"quant_method": "fbgemm_fp8"}, "fp8", "fp8", None),
        ({"quant_method": "mxfp4"}, "mxfp4", None, None),
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, "int4", None, None),
        ({"quant_method": "gptq", "bits": 8, "group_size": -1}, "int8", None, None),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}, "nf4", None, None),
        ({"load_in_8bit": True}, "int8", None, None),
        ({"quant_algo": "NVFP4", "kv_cache_scheme": FLOAT8, "quant_method": "modelopt"}, "nvfp4", "nvfp4", "fp8"),
        ({"quant_algo": "FP8", "kv_cache_scheme": "FP8"}, "fp8", "fp8", "fp8"),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"group_0": {"weights": {"num_bits": 4, "type": "int", "group_size": 32}}},
            },
            "int4",
            None,
            None,
        ),
        (
            {
                "quant_method": "compressed-tensors",
                "kv_cache_scheme": FLOAT8,
                "config_groups": {"group_0": {"weights": FLOAT8, "input_activations": FLOAT8}},
            },
            "fp8",
            "fp8",
            "fp8",
        ),
        ({"quant_method": "compressed-tensors", "format": "mxfp4-pack-quantized"}, "mxfp4", None, None),
        (
            {
                "quant_algo": "MIXED_PRECISION",
                "quantized_layers": {"a": {"quant_algo": "FP8"}, "b": {"quant_algo": "NVFP4"}},
            },
            "fp8 and nvfp4",
            None,
            None,
        ),
        ({"quant_method": "brand_new"}, None, None, None),
    ],
)
def test_quantisation_of_a_configuration(table, weights, activations, cache):
    found = of_config(Config({"quantization_config": table}))
    assert found is not None
    assert (found.weights, found.activations, found.cache) == (weights, activations, cache)


def test_no_quantisation_is_none():
    assert of_config(Config({})) is None
    assert of_modelopt(Config({"producer": {"name": "modelopt"}})) is None


def test_the_quantisers_file_speaks_first():
    config = {**LLAMA, "quantization_config": {"quant_method": "fp8", "kv_cache_scheme": FLOAT8}}
    beside = {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "NVFP4", "group_size": 16}}
    report = read_config(config, quantisation=beside)
    assert report.quantisation is not None
    assert (report.quantisation.weights, report.quantisation.cache) == ("nvfp4", "fp8")
    assert report.quantisation.group_size == 16
    assert report.to_dict()["quantisation"]["weights"] == "nvfp4"


def test_quantisation_of_a_nested_language_model():
    inner = {**LLAMA, "quantization_config": {"quant_method": "fp8"}}
    report = read_config({"model_type": "some_vlm", "text_config": inner})
    assert report.quantisation is not None and report.quantisation.weights == "fp8"


@pytest.mark.parametrize(
    ("table", "stored"),
    [
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "fp8_block"),
        ({"quant_method": "fbgemm_fp8"}, "fp8"),
        ({"quant_method": "mxfp4"}, "mxfp4"),
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, "awq"),
        ({"quant_method": "gptq", "bits": 4, "group_size": 128}, "gptq"),
        ({"quant_method": "gptq", "bits": 8, "group_size": -1}, "w8a16"),
        ({"load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": True}, "nf4"),
        ({"load_in_4bit": True, "bnb_4bit_quant_type": "fp4"}, "nf4_single"),
        ({"quant_algo": "NVFP4", "quant_method": "modelopt"}, "nvfp4"),
        ({"quant_algo": "W4A8_AWQ"}, "w4a8"),
        ({"quant_algo": "MXFP8"}, "mxfp8"),
        ({"config_groups": {"g": {"weights": {"num_bits": 4, "type": "int", "group_size": 32}}}}, "int4_g32"),
    ],
)
def test_an_imported_model_is_in_the_format_of_its_checkpoint(table, stored):
    report = read_config({**LLAMA, "torch_dtype": "bfloat16", "quantization_config": table})
    assert report.quantisation is not None and report.quantisation.format == stored
    assert report.workload.native_format == stored


def test_a_plain_checkpoint_has_the_format_of_its_dtype_and_an_unknown_one_is_warned_of():
    assert read_config({**LLAMA, "torch_dtype": "float16"}).workload.native_format == "fp16"
    assert read_config(LLAMA).workload.native_format is None
    strange = read_config({**LLAMA, "quantization_config": {"quant_method": "brand_new"}})
    assert strange.workload.native_format is None
    assert any("'brand_new' is no format that is known" in warning for warning in strange.warnings)


@pytest.mark.parametrize(
    ("table", "stored"),
    [
        ({"quant_method": "hqq", "quant_config": {"weight_quant_params": {"nbits": 4, "group_size": 64}}}, "hqq"),
        ({"quant_method": "quanto", "weights": "int4", "activations": None}, "gptq"),
        ({"quant_method": "eetq", "weights": "int8"}, "w8a16"),
        ({"quant_method": "torchao", "quant_type": "int4_weight_only"}, "gptq"),
        ({"quant_method": "torchao", "quant_type": "int8_dynamic_activation_int8_weight"}, "int8"),
        (
            {
                "quant_method": "torchao",
                "quant_type": {"default": {"_type": "Float8DynamicActivationFloat8WeightConfig", "_data": {}}},
            },
            "fp8",
        ),
        ({"quant_method": "torchao", "quant_type": {"default": {"_type": "Int8WeightOnlyConfig"}}}, "w8a16"),
        (
            {
                "quant_method": "quark",
                "global_quant_config": {"weight": {"dtype": "fp8_e4m3"}, "input_tensors": {"dtype": "fp8_e4m3"}},
            },
            "fp8",
        ),
        (
            {
                "quant_method": "quark",
                "global_quant_config": {
                    "weight": {"dtype": "fp4", "group_size": 32},
                    "input_tensors": {"dtype": "fp4"},
                },
            },
            "mxfp4",
        ),
        ({"quant_method": "w4afp8"}, "w4a8"),
        ({"quant_method": "auto-round", "bits": 4, "group_size": 32, "data_type": "mx_fp"}, "mxfp4"),
        ({"quant_method": "hqq"}, None),
        ({"quant_method": "torchao", "quant_type": "brandnew"}, None),
        ({"quant_method": "quark", "global_quant_config": "fp8"}, None),
    ],
)
def test_other_libraries_say_the_same_in_other_words(table, stored):
    """What one of them does not say in known words is warned of, and weights are taken in 16 bits."""
    report = read_config({**LLAMA, "quantization_config": table})
    assert report.quantisation.format == stored
    assert any("no format that is known" in line for line in report.warnings) == (stored is None)
