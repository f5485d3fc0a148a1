"""What a network hands from one half of a layer to the next: tensor parallelism sums it, a pipeline sends it.

Megatron's split of a layer (Shoeybi et al. 2019) has two products in a row split along their output and their input, so that what leaves
the pair is summed: in a layer of a transformer twice, as many elements each time as there are tokens times the width of the residual
stream. A sample of a network of fixed shape has its own tokens (patches and a class token, latents of an image, frames of speech),
whatever the batch. In a convolutional network every second convolution is summed, which on average is half of all outputs.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from mlsysim.models.base import Workload

_PRODUCTS = ("conv", "gemm", "batched_gemm", "grouped_gemm")


class Stream(NamedTuple):
    """Elements of one sample that leave a half of a layer, on average, and halves that leave them in a forward pass of all layers."""

    elements: Any
    halves: float


def stream(model: Workload, seq_len: Any) -> Stream:
    """Of a sample of ``seq_len`` tokens, or of its own shape."""
    hidden, layers = getattr(model, "hidden_dim", None), getattr(model, "layers", None) or 1
    encoder = getattr(model, "encoder_layers", None) or 0
    if not model.fixed_shape and not (hidden and encoder):
        return Stream(seq_len * (hidden or 0), 2.0 * layers)
    if not model.fixed_shape and hidden:
        # A layer of the decoder has three halves: it attends to the encoder, too.
        source = getattr(model, "encoder_positions", seq_len)
        halves = 3.0 * layers + 2.0 * encoder
        return Stream(hidden * (3 * layers * seq_len + 2 * encoder * source) / halves, halves)
    tokens = getattr(model, "tokens_per_sample", None)
    if tokens and hidden:
        return Stream(float(tokens * hidden), 2.0 * layers)
    if ("stream",) not in model.units:
        model.units["stream",] = _of_operators(model)
    return model.units["stream",]


def _of_operators(model: Workload) -> Stream:
    """From the operators of one sample: what its attention gives and the feed-forward network behind it, or half of its products."""
    ops = model.lower("inference", batch_size=1).operators
    blocks = [(op.count, op.m * op.k * op.groups) for op in ops if op.kind == "attention" and op.n >= op.m / 2]
    if blocks:
        count = sum(n for n, _ in blocks)
        return Stream(sum(n * elements for n, elements in blocks) / count, 2.0 * count)
    products = [(op.count, op.m * op.n * op.groups) for op in ops if op.kind in _PRODUCTS]
    count = sum(n for n, _ in products)
    return Stream(sum(n * elements for n, elements in products) / max(count, 1), count / 2)


class Matrices(NamedTuple):
    """Weight matrices of the layers: how many, their parameters, and operations of one Newton-Schulz step on all of them."""

    number: float
    parameters: float
    operations: float


_MANY = 2**20
"""Tokens that reach every expert."""


def matrices(model: Workload) -> tuple[Matrices, Matrices]:
    """Those that every sample uses, and of routed experts: all weights but tables, heads, norms and depthwise filters.

    A step of the iteration that Muon orthogonalises an m x n matrix with (Jordan et al. 2024, quintic, m >= n) is A = X'X, B = b A + c A A,
    X = a X + X B: 2 m n n + 2 n n n + 2 m n n operations. Left out: halves of the symmetric products that a kernel may save.
    """
    key: tuple[Any, ...] = ("matrices",)
    if key not in model.units:
        sizes: dict[str, Any] = {} if model.fixed_shape else {"seq_len": _MANY}
        found = {False: [0.0, 0.0, 0.0], True: [0.0, 0.0, 0.0]}
        for op in model.lower("inference" if model.fixed_shape else "training", batch_size=1, **sizes).operators:
            if op.kind not in _PRODUCTS or op.layer in ("head", "embedding") or op.direction != "forward":
                continue
            if not op.weight_bytes or not op.n or not op.k:
                continue
            routed = op.kind == "grouped_gemm"
            count, short, long = op.count * (round(op.groups) if routed else 1), min(op.n, op.k), max(op.n, op.k)
            work = 4 * long * short**2 + 2 * short**3
            for place, value in enumerate((1.0, short * long, work)):
                found[routed][place] += count * value
        model.units[key] = Matrices(*found[False]), Matrices(*found[True])
    return model.units[key]


def matrix_share(model: Workload) -> float:
    """Share of the parameters that are such matrices."""
    return float(min(1.0, sum(each.parameters for each in matrices(model)) / model.parameter_count))
