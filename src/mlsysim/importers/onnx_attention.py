"""Attention as exporters write it: a product, what scales and masks it, a softmax, a second product."""

from __future__ import annotations

from mlsysim.importers.counting import Call, attention
from mlsysim.importers.onnx_shapes import Known, whole
from mlsysim.importers.onnx_wire import Node

_BEFORE = frozenset(("Add", "Sub", "Mul", "Div", "Where", "Cast", "Identity", "Reshape"))
_AFTER = frozenset(("Cast", "Identity", "Dropout", "Where", "IsNaN", "Reshape"))
_PRODUCTS = ("MatMul", "FusedMatMul")
_FAR = 8


def fuse_attention(counted: list[tuple[Node, Call]], known: Known) -> list[Call]:
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
        query, key, value = known.shape(first, 0), known.shape(first, 1), known.shape(last, 1)
        if whole(first, "transB", 0):
            key = (*key[:-2], key[-1], key[-2])
        if min(len(query), len(key), len(value)) < 3 or key[-1] != value[-2]:
            continue
        turned = (*key[:-2], key[-1], key[-2])
        if not all((*query, *turned, *value)):
            continue
        gone |= {i, *before, *after}
        fused[after[-1]] = attention("attention", query, turned, value)
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
