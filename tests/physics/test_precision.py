"""Bytes per element, names and aliases."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlsysim.errors import UnknownNameError
from mlsysim.physics.precision import (
    BYTES_PER_ELEMENT,
    FORMATS,
    INSTRUCTIONS,
    TILE_ROWS,
    activation_element,
    bytes_per_element,
    compute_precision,
    expansion_time,
    precision_name,
)

BITS = {
    "fp64": 64,
    "fp32": 32,
    "tf32": 32,
    "fp16": 16,
    "bf16": 16,
    "fp8": 8,
    "mxfp8": 8 + 8 / 32,
    "int8": 8,
    "fp6": 6,
    "fp4": 4,
    "int4": 4,
    "mxfp4": 4 + 8 / 32,
    "nvfp4": 4 + 8 / 16,
}


GROUPED = {
    "fp8_block": 8 + 32 / 128**2,  # a 32-bit scale for each 128 x 128
    "awq": 4 + (16 + 4) / 128,  # a 16-bit scale and a 4-bit zero point for each 128
    "gptq": 4 + (16 + 4) / 128,
    "int4_g32": 4 + 16 / 32,
    "nf4": 4 + 8 / 64 + 32 / (64 * 256),  # QLoRA's double quantisation
    "nf4_single": 4 + 32 / 64,
    "q8_0": 8 + 16 / 32,
    "q6_k": 6 + (16 * 8 + 16) / 256,
    "q5_0": 5 + 16 / 32,
    "q4_0": 4 + 16 / 32,
}


def test_table():
    """Bits follow from the layout of a group; those of GGUF mixtures are published means."""
    found = {name: 8 * size for name, size in BYTES_PER_ELEMENT.items()}
    assert {name: found[name] for name in BITS} == BITS
    assert {name: found[name] for name in GROUPED} == pytest.approx(GROUPED, abs=2e-4)


@pytest.mark.parametrize("name", BITS)
def test_names_are_their_own_canonical_names(name):
    assert precision_name(name) == name
    assert precision_name(name.upper()) == name
    assert bytes_per_element(name) == BITS[name] / 8


@pytest.mark.parametrize(
    ("alias", "name"),
    [
        ("float16", "fp16"),
        ("half", "fp16"),
        ("bfloat16", "bf16"),
        ("BF-16", "bf16"),
        ("float32", "fp32"),
        ("double", "fp64"),
        ("fp8_e4m3", "fp8"),
        ("FP8-E5M2", "fp8"),
        ("int 8", "int8"),
        ("NVFP4", "nvfp4"),
        ("awq_marlin", "awq"),
        ("W4A16", "int4"),
        ("Q4_K_M", "q4_k_m"),
        ("bitsandbytes", "nf4"),
        ("bitsandbytes-nf4", "nf4"),
        ("fp8wo", "fp8_weight"),
        ("w8a8", "int8"),
    ],
)
def test_aliases(alias, name):
    assert precision_name(alias) == name
    assert bytes_per_element(alias) == BYTES_PER_ELEMENT[name]


def test_block_scaled_formats_compute_as_their_elements():
    assert compute_precision("mxfp4") == compute_precision("nvfp4") == "fp4"
    assert compute_precision("bfloat16") == "bf16"
    assert compute_precision("fp8_block") == "fp8"


def test_weight_only_formats_compute_in_16_bits():
    only = {name for name, each in FORMATS.items() if each.weight_only}
    assert {"int4", "awq", "gptq", "nf4", "q4_k_m", "w8a16", "fp8_weight"} <= only
    assert not only & {"fp8", "int8", "mxfp8", "mxfp4", "nvfp4", "w4a8", "w4a4"}
    assert {compute_precision(name) for name in only} == {"bf16"}
    assert all(activation_element(name) == 2 for name in only)


@pytest.mark.parametrize("name", FORMATS)
def test_entries_are_whole(name):
    """Names of kernels and arithmetic are formats themselves, parts are known ones, and bits are those of a number."""
    found = FORMATS[name]
    assert (
        1 < found.bits <= 64 and found.kept in ("all", "layers", "experts") and found.rest >= found.bits
    ) or found.bits >= 16
    assert set(found.arithmetic) <= set(FORMATS) and found.expanded in ("kernel", "memory")
    assert found.kernels in ("", *FORMATS, "int8_weight", "fp8_weight")


def test_an_a10_expands_at_a_tenth_of_its_products():
    """Frantar et al. (2024): at 1,024 rows and more a kernel with 4-bit weights is about 10 % slower than fp16 on an A10."""
    weights, rows, fp16, fp32 = 1e9, 4096, 125e12, 31.2e12
    products = 2 * weights * rows
    share = expansion_time(2 * weights, products, INSTRUCTIONS, TILE_ROWS, fp32) / (products / fp16)
    assert 0.07 < share < 0.12


@given(st.floats(1e3, 1e13), st.floats(1e3, 1e17), st.floats(1e9, 1e15))
def test_expansion_is_once_a_weight_at_least_and_monotone(weights, products, rate):
    time = expansion_time(weights, products, INSTRUCTIONS, TILE_ROWS, rate)
    assert time >= INSTRUCTIONS * weights / rate
    assert expansion_time(2 * weights, products, INSTRUCTIONS, TILE_ROWS, rate) >= time
    assert expansion_time(weights, 2 * products, INSTRUCTIONS, TILE_ROWS, rate) >= time
    assert expansion_time(weights, products, INSTRUCTIONS, TILE_ROWS, 2 * rate) == pytest.approx(time / 2)


@pytest.mark.parametrize("function", [precision_name, bytes_per_element, compute_precision])
@pytest.mark.parametrize(("wrong", "near"), [("fp17", "fp16"), ("bf15", "bf16"), ("itn8", "int8"), ("fp33", "fp32")])
def test_unknown_precision_raises_with_the_nearest(function, wrong, near):
    with pytest.raises(UnknownNameError, match=f"There is no precision named '{wrong}'; did you mean") as caught:
        function(wrong)
    assert near in caught.value.suggestions


@pytest.mark.parametrize("wrong", [None, 2.0, "", "x" * 10_000])
def test_what_is_no_precision_raises_with_the_list(wrong):
    with pytest.raises(UnknownNameError, match=r"There is no precision named .*use such as fp32, bf16"):
        precision_name(wrong)


@pytest.mark.parametrize("wrong", [["fp16"], {"fp16": 1}])
def test_unhashable_values_raise_the_same_error(wrong):
    with pytest.raises(UnknownNameError):
        bytes_per_element(wrong)
