"""What each ONNX operator computes, as calls."""

from __future__ import annotations

from mlsysim.errors import InputError
from mlsysim.importers import onnx_forms  # noqa: F401  its rules are among those known
from mlsysim.importers.counting import Call, attention, contraction, convolution, elements, lookup, product, recurrent
from mlsysim.importers.onnx_shapes import BINARY, RULES, SAME, Known, gemm_factors, whole
from mlsysim.importers.onnx_wire import Node

VIEWS = frozenset(("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Dropout", "Shape", "Size", "Constant"))
"""Operators that leave the data where it is (dropout is off in inference)."""

_REDUCE = ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")

KNOWN = SAME | BINARY | RULES.keys() | {f"Reduce{name}" for name in _REDUCE} | {"ArgMax", "ArgMin"}


def calls_of(node: Node, known: Known, weights: list[bool]) -> list[Call]:
    """The calls of a node that computes; empty where it only moves data. ``weights`` marks the constant inputs."""
    op = node.op
    out = known.shapes[node.outputs[0]]
    if op in ("Conv", "FusedConv", "ConvInteger", "NhwcFusedConv", "ConvTranspose", "QLinearConv"):
        weight = known.shape(node, 3 if op == "QLinearConv" else 1)
        return [convolution(op, known.shape(node, 0), weight, out, transposed=op == "ConvTranspose")]
    if op in ("Gemm", "FusedGemm", "MatMul", "FusedMatMul", "MatMulInteger"):
        a, b = gemm_factors(node, known)
        if weights[0] and not weights[1] and len(a) == 2 and len(b) == 2:
            # A weight on the left: the same product, transposed.
            return [product(op, (b[1], b[0]), (a[1], a[0]), weight=True)]
        return [product(op, a, b, weight=weights[1])]
    if op == "QLinearMatMul":
        return [product(op, known.shape(node, 0), known.shape(node, 3), weight=weights[3])]
    if op == "MatMulNBits":
        x = known.shape(node, 0)
        return [product(op, x, (x[-1], whole(node, "N", 1)), weight=True)]
    if op == "Einsum":
        shapes = [known.shape(node, i) for i in range(len(node.inputs))]
        found = contraction(op, str(node.attributes.get("equation", "")), shapes, weights[-1])
        return [found] if found is not None else []
    if op == "Gather" and weights[0]:
        return [lookup(op, out)]
    if op in ("LSTM", "GRU", "RNN"):
        return [
            recurrent(op, known.shape(node, 0), elements(known.shape(node, 1)) + elements(known.shape(node, 2)), [out])
        ]
    if op in ("Attention", "MultiHeadAttention", "GroupQueryAttention"):
        return _attention(node, known, weights)
    return []


def _attention(node: Node, known: Known, weights: list[bool]) -> list[Call]:
    op = node.op
    query = known.shape(node, 0)
    if node.domain == "com.microsoft" and op == "Attention":
        weight, heads = known.shape(node, 1), whole(node, "num_heads", 1)
        if len(query) != 3 or heads < 1:
            raise InputError(f"The Attention {node.name[:60]!r} has an input {query} and {heads} heads.")
        width = weight[-1] // 3
        inner = (query[0], heads, query[1], width // heads)
        projected = product(op, query, weight, weight=weights[1])
        return [projected, attention(op, inner, inner, inner, causal=bool(whole(node, "unidirectional", 0)))]
    if len(query) == 4:
        shapes = [query, known.shape(node, 1), known.shape(node, 2)]
    else:
        heads = whole(node, "q_num_heads", whole(node, "num_heads", 1))
        kv_heads = whole(node, "kv_num_heads", heads)
        shapes = [_heads(known, node, i, heads if i == 0 else kv_heads) for i in range(3)]
    causal = bool(whole(node, "is_causal", whole(node, "unidirectional", int(op == "GroupQueryAttention"))))
    return [attention(op, shapes[0], shapes[1], shapes[2], causal=causal)]


def _heads(known: Known, node: Node, index: int, heads: int) -> tuple[int, ...]:
    shape = known.shape(node, index)
    if len(shape) != 3 or heads < 1 or shape[2] % heads:
        raise InputError(f"The {node.op} {node.name[:60]!r} has an input {shape} for {heads} heads.")
    return (shape[0], heads, shape[1], shape[2] // heads)
