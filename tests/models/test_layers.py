from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlsysim import InputError
from mlsysim.models.layers import parse_row
from mlsysim.models.passes import Pass, Sharding

INFERENCE = Pass.of("inference", 2, 1, 0, "fp16", Sharding())


@pytest.mark.parametrize(
    ("row", "parameters", "flops"),
    [
        ("conv 7x7 3->64 /2 @112x112 +n", 49 * 3 * 64 + 2 * 64, 2 * 49 * 3 * 64 * 112 * 112),
        ("conv 3x3 128->128 g32 @28x28 +n x3", 3 * (9 * 128 * 128 / 32 + 256), 2 * 9 * 128 * 128 / 32 * 784),
        ("dwconv 3x3 32 @112x112 +n", 9 * 32 + 64, 2 * 9 * 32 * 112 * 112),
        ("linear 2048->1000 +b", 2048 * 1000 + 1000, 2 * 2048 * 1000),
        ("linear 320->1280 @4096", 320 * 1280, 2 * 320 * 1280 * 4096),
        ("attn h8 d40 @4096x77", 0, 4 * 8 * 40 * 4096 * 77),
        ("embed 49408x768 @77", 49408 * 768, 0),
        ("norm 320 @4096", 640, 0),
        ("pool 3x3 64 @56x56 /2", 0, 0),
        ("upsample 1280 @16x16", 0, 0),
    ],
)
def test_each_kind_of_row(row, parameters, flops):
    layer = parse_row(row)
    assert layer.parameters == parameters
    assert layer.flops == flops
    operators = layer.operators(INFERENCE)
    assert sum(op.flops for op in operators) == 2 * flops
    assert all(op.count == layer.count and op.bytes > 0 for op in operators)


@pytest.mark.parametrize(
    ("row", "kind", "weights", "read", "written"),
    [
        ("conv 3x3 16->32 /2 @8x8", "conv", 9 * 16 * 32, 2 * 16 * 16 * 16, 2 * 64 * 32),
        ("dwconv 3x3 32 @8x8", "depthwise_conv", 9 * 32, 2 * 64 * 32, 2 * 64 * 32),
        ("linear 10->20 @5", "gemm", 200, 2 * 5 * 10, 2 * 5 * 20),
        ("embed 100x20 @5", "embedding", 0, 2 * 5 * 20, 2 * 5 * 20),
        ("pool 2x2 8 @4x4 /2", "elementwise", 0, 2 * 16 * 8 * 4, 2 * 16 * 8),
        ("upsample 8 @4x4", "elementwise", 0, 2 * 4 * 8, 2 * 16 * 8),
        ("norm 8 @4", "elementwise", 0, 2 * 4 * 8, 2 * 4 * 8),
    ],
)
def test_bytes_of_each_kind(row, kind, weights, read, written):
    (op,) = parse_row(row).operators(INFERENCE)
    assert op.kind == kind
    assert (op.weight_bytes, op.input_bytes, op.output_bytes) == (2 * weights, 2 * read, 2 * written)


def test_attention_rows_read_keys_and_values():
    (op,) = parse_row("attn h8 d40 @100x77").operators(INFERENCE)
    assert (op.m, op.n, op.k, op.groups) == (100, 77, 40, 16)
    assert op.cache_bytes == 2 * 2 * 77 * 320 * 2


def test_a_norm_is_one_more_pass_over_the_output():
    first, second = parse_row("conv 1x1 8->16 @4x4 +n x5").operators(INFERENCE)
    assert (second.kind, second.count) == ("elementwise", 5)
    assert second.input_bytes == second.output_bytes == first.output_bytes


@given(st.integers(1, 64), st.integers(1, 64), st.sampled_from([1, 3, 5, 7]), st.integers(1, 64), st.integers(1, 9))
def test_rows_read_back_what_was_written(inputs, outputs, kernel, side, count):
    layer = parse_row(f"conv {kernel}x{kernel} {inputs}->{outputs} @{side}x{side} +b x{count}")
    assert (layer.inputs, layer.outputs, layer.kernel, layer.count) == (inputs, outputs, (kernel, kernel), count)
    assert layer.positions == side * side
    assert layer.parameters == count * (kernel * kernel * inputs * outputs + outputs)


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        ("convolve 3x3 8->8", r"^the layer row 'convolve 3x3 8->8' must begin with one of conv, dwconv, linear"),
        ("", r"^the layer row '' must begin with one of"),
        (7, r"^the layer row '7' must begin with one of"),
        ("conv 3x3 64 @8x8", r"lacks its channels, as in 'conv 3x3 64->64 @56x56'\.$"),
        ("linear 64", r"lacks its channels"),
        ("attn d64 @8x8", r"lacks its channels"),
        ("conv 3x3 8->8 @", r"^the layer row 'conv 3x3 8->8 @' has '' where a whole number belongs\.$"),
        ("conv 3x3 8->8 @8x8 +q", r"has '\+q' where a whole number belongs\.$"),
        ("conv 3x3 8->8 /two", r"has 'two' where a whole number belongs\.$"),
        ("norm 9999999999999", r"has '9999999999999' where a whole number belongs\.$"),
        ("conv 3x3 10->8 g4 @8x8", r"channels do not divide into 4 groups\.$"),
    ],
)
def test_bad_rows_are_refused_in_one_sentence(row, sentence):
    with pytest.raises(InputError, match=sentence):
        parse_row(row)


@pytest.mark.parametrize(
    "row", ["conv 3x3 8->8 g0 @8x8", "conv 0x3 8->8 @8x8", "conv 3x3 8->8 /0", "conv 1x1 8->8 x0", "linear 8->8 @0"]
)
def test_sizes_of_zero_are_refused(row):
    with pytest.raises(InputError, match=r"has a size of zero\.$"):
        parse_row(row)
