"""Bytes per element, names and aliases."""

from __future__ import annotations

import pytest

from mlsysim.errors import UnknownNameError
from mlsysim.physics.precision import BYTES_PER_ELEMENT, bytes_per_element, compute_precision, precision_name

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


def test_table():
    assert {name: 8 * size for name, size in BYTES_PER_ELEMENT.items()} == BITS


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
    ],
)
def test_aliases(alias, name):
    assert precision_name(alias) == name
    assert bytes_per_element(alias) == BYTES_PER_ELEMENT[name]


def test_block_scaled_formats_compute_as_their_elements():
    assert compute_precision("mxfp4") == compute_precision("nvfp4") == "fp4"
    assert compute_precision("bfloat16") == "bf16"
    assert compute_precision("int4") == "int4"


@pytest.mark.parametrize("function", [precision_name, bytes_per_element, compute_precision])
@pytest.mark.parametrize(("wrong", "near"), [("fp17", "fp16"), ("bf15", "bf16"), ("itn8", "int8"), ("fp33", "fp32")])
def test_unknown_precision_raises_with_the_nearest(function, wrong, near):
    with pytest.raises(UnknownNameError, match=f"There is no precision named '{wrong}'; did you mean") as caught:
        function(wrong)
    assert near in caught.value.suggestions


@pytest.mark.parametrize("wrong", [None, 2.0, "", "x" * 10_000])
def test_what_is_no_precision_raises_with_the_list(wrong):
    with pytest.raises(UnknownNameError, match=r"There is no precision named .*use one of fp64, fp32"):
        precision_name(wrong)


@pytest.mark.parametrize("wrong", [["fp16"], {"fp16": 1}])
def test_unhashable_values_raise_the_same_error(wrong):
    with pytest.raises(UnknownNameError):
        bytes_per_element(wrong)
