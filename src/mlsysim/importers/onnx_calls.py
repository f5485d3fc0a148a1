"""What each ONNX operator computes, as calls; and attention as exporters write it: a product, what scales and masks it, a
softmax, a second product.
"""

from __future__ import annotations

from mlsysim.errors import InputError
from mlsysim.importers import counting, named
from mlsysim.importers.counting import Call, Shape, attention, elements, product, turned
from mlsysim.importers.onnx_shapes import Applied, gemm_factors
from mlsysim.importers.onnx_wire import Node

VIEWS, _BEFORE, _AFTER = (named("onnx", place) for place in ("views", "before_softmax", "after_softmax"))
_PRODUCTS = ("MatMul", "FusedMatMul")
_FAR = 8
"""Operators between a product and its softmax."""


def calls_of(at: Applied, weights: list[bool]) -> list[Call]:
    """The calls of a node that computes; empty where it only moves data. ``weights`` marks the constant inputs."""
    op, out = at.node.op, at.shapes[at.node.outputs[0]]
    if op in ("Conv", "FusedConv", "ConvInteger", "NhwcFusedConv", "ConvTranspose", "QLinearConv"):
        weight = at.shape(3 if op == "QLinearConv" else 1)
        return [counting.convolution(op, at.shape(0), weight, out, transposed=op == "ConvTranspose")]
    if op in ("Gemm", "FusedGemm", "MatMul", "FusedMatMul", "MatMulInteger", "QLinearMatMul"):
        a, b = gemm_factors(at)
        right = weights[3 if op == "QLinearMatMul" else 1]
        if weights[0] and not right and len(a) == len(b) == 2 and op != "QLinearMatMul":
            # A weight on the left: the same product, transposed.
            return [product(op, turned(b), turned(a), weight=True)]
        return [product(op, a, b, weight=right)]
    if op == "MatMulNBits":
        x = at.shape(0)
        return [product(op, x, (x[-1], at.whole("N", 1)), weight=True)]
    if op == "Einsum":
        found = counting.contraction(op, str(at.node.attributes.get("equation", "")), at.inputs(), weights[-1])
        return [found] if found is not None else []
    if op == "Gather" and weights[0]:
        return [counting.lookup(op, out)]
    if op in ("LSTM", "GRU", "RNN"):
        return [counting.recurrent(op, at.shape(0), elements(at.shape(1)) + elements(at.shape(2)), [out])]
    if op in ("Attention", "MultiHeadAttention", "GroupQueryAttention"):
        return _attention(at, weights)
    return []


def _attention(at: Applied, weights: list[bool]) -> list[Call]:
    op, query, heads = at.node.op, at.shape(0), at.whole("num_heads", 1)
    if at.node.domain == "com.microsoft" and op == "Attention":
        weight = at.shape(1)
        if len(query) != 3 or heads < 1:
            raise InputError(f"The {at.title} has an input {query} and {heads} heads.")
        inner = (query[0], heads, query[1], weight[-1] // 3 // heads)
        projected = product(op, query, weight, weight=weights[1])
        return [projected, attention(op, inner, inner, inner, causal=bool(at.whole("unidirectional", 0)))]
    if len(query) == 4:
        shapes = [query, at.shape(1), at.shape(2)]
    else:
        heads = at.whole("q_num_heads", heads)
        kv_heads = at.whole("kv_num_heads", heads)
        shapes = [_heads(at, i, heads if i == 0 else kv_heads) for i in range(3)]
    causal = bool(at.whole("is_causal", at.whole("unidirectional", int(op == "GroupQueryAttention"))))
    return [attention(op, shapes[0], shapes[1], shapes[2], causal=causal)]


def _heads(at: Applied, index: int, heads: int) -> Shape:
    shape = at.shape(index)
    if len(shape) != 3 or heads < 1 or shape[2] % heads:
        raise InputError(f"The {at.title} has an input {shape} for {heads} heads.")
    return (shape[0], heads, shape[1], shape[2] // heads)


# --- attention in its parts -------------------------------------------------------------------------------------------


def fuse_attention(counted: list[tuple[Node, Call]], shapes: dict[str, Shape]) -> list[Call]:
    """The calls, each product-softmax-product replaced by one call of attention that moves no scores through memory."""
    producer = {output: i for i, (node, _) in enumerate(counted) for output in node.outputs}
    consumers: dict[str, list[int]] = {}
    for i, (node, _) in enumerate(counted):
        for name in node.inputs:
            consumers.setdefault(name, []).append(i)
    gone: set[int] = set()
    fused: dict[int, Call] = {}
    for i, (node, _) in enumerate(counted):
        if node.op != "Softmax":
            continue
        before = _path_up(i, counted, producer)
        after = _path_down(i, counted, consumers)
        if not before or not after or gone & {*before, *after}:
            continue
        first, last = counted[before[-1]][0], counted[after[-1]][0]
        if min(len(first.inputs), len(last.inputs)) < 2:
            continue
        query, key, value = (shapes[name] for name in (*first.inputs[:2], last.inputs[1]))
        key = key if first.attributes.get("transB") else turned(key)
        if min(len(query), len(key), len(value)) < 3 or key[-2] != value[-2] or not all((*query, *key, *value)):
            continue
        gone |= {i, *before, *after}
        fused[after[-1]] = attention("attention", query, key, value)
    return [fused.get(i, call) for i, (_, call) in enumerate(counted) if i in fused or i not in gone]


def _path_up(start: int, counted: list[tuple[Node, Call]], producer: dict[str, int]) -> list[int]:
    """Nodes from a softmax up to the product of two activations that feeds it; empty where there is none.

    Masks are computed from inputs too, so every input is followed, the likeliest (the first) before the others.
    """
    paths: list[tuple[int, list[int]]] = [(start, [])]
    while paths:
        here, path = paths.pop(0)
        for name in counted[here][0].inputs:
            above = producer.get(name)
            if above is None:
                continue
            node, call = counted[above]
            if node.op in _PRODUCTS and not call.weights:
                return [*path, above]
            if node.op in _BEFORE and len(path) < _FAR:
                paths.append((above, [*path, above]))
        if len(paths) > 64:
            return []
    return []


def _path_down(start: int, counted: list[tuple[Node, Call]], consumers: dict[str, list[int]]) -> list[int]:
    """Nodes from a softmax down to the product that takes its result as the left factor."""
    here = start
    path: list[int] = []
    for _ in range(_FAR):
        outputs = counted[here][0].outputs
        below = [i for i in consumers.get(outputs[0] if outputs else "", ()) if i not in path]
        found = [i for i in below if counted[i][0].op in _PRODUCTS and counted[i][0].inputs[:1] == outputs[:1]]
        if found and not counted[found[0]][1].weights:
            return [*path, found[0]]
        onward = [i for i in below if counted[i][0].op in _AFTER]
        if not onward:
            return []
        # A guard against rows that are masked throughout: IsNaN, then Where takes both.
        path += onward
        here = onward[-1]
    return []
