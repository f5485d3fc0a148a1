"""Bytes of weights by parts, beside the sizes of published checkpoints."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlsysim.models.registry import Models
from mlsysim.models.storage import kept_parts, stored
from mlsysim.physics.precision import FORMATS, format_of

SIZES = [
    # AutoAWQ, group size 128: 5.73 GB of model files (hugging-quants/Meta-Llama-3.1-8B-Instruct-AWQ-INT4).
    ("Llama3_8B", "awq", 5.73),
    # github.com/deepseek-ai/DeepSeek-V3 README_WEIGHTS.md: 671 B of the main model in FP8, embeddings and head (1.8 B) in BF16.
    ("DeepSeek_V3", None, 671 + 1.85),
    # gpt-oss model card (arXiv 2508.10925, table 1): checkpoints of 60.8 and 12.8 GiB.
    ("GPT_OSS_120B", None, 60.8 * 1.024**3),
    ("GPT_OSS_20B", None, 12.8 * 1.024**3),
    # 64 files of slightly less than 10 GB with the vision tower; moonshotai/Kimi-K2-Thinking is 594 GB.
    ("Kimi_K2_5", None, 594),
    # llama.cpp, Llama 3 8B Q4_K_M (Mozilla/Meta-Llama-3-8B-Instruct-llamafile): 4.956 GB, of which the runtime is 0.03.
    ("Llama3_8B", "q4_k_m", 4.92),
]


@pytest.mark.parametrize(("name", "precision", "gigabytes"), SIZES)
def test_sizes_are_those_of_published_checkpoints(name, precision, gigabytes):
    model = Models.get(name)
    size = model.size_in_bytes(precision=precision or model.native_format)
    assert size.to("GB").magnitude == pytest.approx(gigabytes, rel=0.025)


def test_parts_that_a_format_leaves_out_stay_in_16_bits():
    gpt, llama = Models.get("GPT_OSS_120B"), Models.get("Llama3_8B")
    assert stored(gpt, "mxfp4")[:2] == (2.0, 4.25 / 8)
    assert kept_parts(gpt, "mxfp4") == "experts" and kept_parts(llama, "mxfp4") == "layers"
    flash = stored(Models.get("DeepSeek_V4_Flash"), "mxfp4_fp8")
    assert flash[:2] == (1.0, 4.25 / 8)
    held = stored(llama, "awq").mean * llama.parameter_count
    tables = 2 * 128256 * 4096
    assert held == pytest.approx(2 * tables + (llama.parameter_count - tables) * 4.15625 / 8)


@given(st.sampled_from(sorted(FORMATS)), st.sampled_from(["Llama3_8B", "Qwen3_0_6B", "Mixtral_8x7B", "DeepSeek_V3"]))
def test_stored_bytes_lie_between_the_format_and_what_is_left_out(name, model):
    """Bits over 8 for every parameter of a format that all weights have; else no less, and no more than the rest has."""
    found, each = FORMATS[name], stored(Models.get(model), name)
    if found.kept == "all":
        assert each == (found.bytes,) * 3
    assert found.bytes <= each.mean <= max(found.bytes, found.rest / 8)
    held = Models.get(model).size_in_bytes(precision=name).to("byte").magnitude
    assert held == pytest.approx(each.mean * Models.get(model).parameter_count)


@given(st.sampled_from(sorted(FORMATS)), st.sampled_from(["Llama3_8B", "Mixtral_8x7B"]), st.integers(1, 64))
def test_operators_read_what_is_stored(name, model, batch):
    """Weights of a decode of all operators and the table of tokens, of which it reads a row, are those of first order."""
    workload = Models.get(model)
    graph = workload.lower("decode", batch_size=batch, seq_len=128, precision=name)
    read = sum(op.count * op.weight_bytes for op in graph.operators)
    demand = workload.demand("decode", batch_size=batch, context=128, precision=name)
    found = FORMATS[name]
    table = (
        workload.vocab_size
        * workload.hidden_dim
        * (found.bytes if found.kept == "all" else max(found.bytes, found.rest / 8))
    )
    assert read + table == pytest.approx(demand.weight_bytes, rel=0.02)


def test_the_zoo_says_what_checkpoints_are_published_in():
    own = {model.metadata.key: model.native_format for model in Models if model.native_format is not None}
    assert own["DeepSeek_V3"] == own["Kimi_K2"] == "fp8_block"
    assert own["GPT_OSS_20B"] == "mxfp4" and own["Kimi_K2_5"] == "int4_g32"


def test_a_file_of_mixtures_in_mxfp4_keeps_the_rest_in_eight_bits():
    """llama-bench prints 11.27 GiB for the 20.91 B weights of "gpt-oss 20B MXFP4 MoE"."""
    model = Models.get("gpt-oss-20b")
    file = stored(model, "MXFP4 MoE").mean * model.parameters.to("param").magnitude
    assert file / 2**30 == pytest.approx(11.27, rel=0.01)
    assert stored(model, "mxfp4").shared == 2.0
    assert (format_of("mxfp4_moe").head, format_of("mxfp4").head) == (8.5, 16)
