"""ONNX operators that compute: the shapes behind them, and what they count for as calls.

Semantics are those of the ONNX operator reference, opset 7 to 23; operators of ``com.microsoft`` that optimisers put in are read
where they are common. An operator without a rule here or in :mod:`mlsysim.importers.onnx_forms` takes the shape that the file
states for its output, where it states one. Exporters write attention in parts: a product, what scales and masks it, a softmax, a
second product; they become one call.
"""

from __future__ import annotations

from collections.abc import Sequence

from mlsysim.errors import InputError
from mlsysim.importers import counting, named
from mlsysim.importers.counting import Call, Shape, attention, einsum_shapes, elements, matrices, product, turned
from mlsysim.importers.onnx_wire import Node
from mlsysim.units.records import dataclass

VIEWS, _BEFORE, _AFTER = (named("onnx", place) for place in ("views", "before_softmax", "after_softmax"))
_PRODUCTS = ("MatMul", "FusedMatMul")
_FAR = 8
"""Operators between a product and its softmax."""


@dataclass(frozen=True, slots=True)
class Applied:
    """An operator with what is known before it: shapes, and values of small tensors, by name."""

    node: Node
    shapes: dict[str, Shape]
    values: dict[str, tuple[float, ...]]

    def name(self, index: int) -> str:
        """The name of an input; empty where it is left out."""
        return self.node.inputs[index] if index < len(self.node.inputs) else ""

    def shape(self, index: int) -> Shape:
        """The shape of an input; ``LookupError`` where it is not known."""
        return self.shapes[self.name(index)]

    def inputs(self) -> list[Shape]:
        """The shapes of all inputs."""
        return [self.shape(i) for i in range(len(self.node.inputs))]

    def ints(self, index: int, attribute: str | None = None) -> tuple[int, ...] | None:
        """Integers from an input or, as older operator sets have it, from an attribute; None where absent."""
        found = self.node.attributes.get(attribute) if attribute is not None else None
        if found is None:
            if not self.name(index):
                return None
            found = self.values[self.name(index)]
        return tuple(int(v) for v in (found if isinstance(found, tuple) else (found,)))

    def whole(self, name: str, default: int) -> int:
        """An attribute that is one integer."""
        found = self.node.attributes.get(name, default)
        return found if isinstance(found, int) else default

    def numbers(self, name: str, default: Sequence[int]) -> tuple[int, ...]:
        """An attribute that is a list of integers."""
        found = self.node.attributes.get(name)
        return tuple(int(v) for v in found) if isinstance(found, tuple) and found else tuple(default)

    @property
    def title(self) -> str:
        """Operator and name, for a sentence."""
        return f"{self.node.op} {self.node.name[:60]!r}"


def axis_of(axis: int, rank: int) -> int:
    """An axis counted from the front; negative ones are counted from the back."""
    if not -rank <= axis < max(rank, 1):
        raise InputError(f"An operator names axis {axis} of a tensor with {rank}.")
    return axis + rank if axis < 0 else axis


def computed(at: Applied) -> list[Shape]:
    """Shapes behind convolutions, pools, products, attention and recurrent layers."""
    node, x = at.node, at.shape(0)
    match node.op:
        case "Conv" | "FusedConv" | "ConvInteger" | "QLinearConv" | "NhwcFusedConv" | "ConvTranspose":
            weight, transposed = at.shape(3 if node.op == "QLinearConv" else 1), node.op == "ConvTranspose"
            if len(weight) < 3 or len(x) != len(weight):
                raise InputError(f"The convolution {node.name[:60]!r} has an input {x} and a weight {weight}.")
            spatial = _window(at, x[2:], at.numbers("kernel_shape", weight[2:]), transposed)
            return [(x[0], weight[1] * at.whole("group", 1) if transposed else weight[0], *spatial)]
        case "MaxPool" | "AveragePool" | "LpPool":
            return [(*x[:2], *_window(at, x[2:], at.numbers("kernel_shape", ())))] * max(1, len(node.outputs))
        case "GlobalAveragePool" | "GlobalMaxPool" | "GlobalLpPool":
            return [(*x[:2], *(1,) * (len(x) - 2))]
        case "Gemm" | "FusedGemm" | "FusedMatMul" | "MatMul" | "MatMulInteger" | "QLinearMatMul":
            a, b = gemm_factors(at)
            left, right, lead = matrices(node.name, a, b)
            return [(*lead, *(() if len(a) == 1 else (left[-2],)), *(() if len(b) == 1 else (right[-1],)))]
        case "MatMulNBits":
            return [(*x[:-1], at.whole("N", 1))]
        case "Einsum":
            _, result, sizes = einsum_shapes(str(node.attributes.get("equation", "")), at.inputs())
            return [tuple(sizes[letter] for letter in result)]
        case "Attention" if node.domain == "com.microsoft":
            return [(*x[:-1], at.shape(1)[-1] // 3)]
        case "Attention" | "MultiHeadAttention" | "GroupQueryAttention":
            return [(*x[:-1], at.shape(2)[-1])] if len(x) == 4 else [x]
        case "LSTM" | "GRU" | "RNN":
            w = at.shape(2)
            if len(x) != 3 or len(w) != 3:
                raise InputError(f"The {at.title} has an input {x} and weights {w}.")
            length, batch = (x[1], x[0]) if at.whole("layout", 0) else (x[0], x[1])
            state = (w[0], batch, w[2])
            return [(length, *state), state, state]
    raise LookupError(node.op)


def _window(at: Applied, sizes: Shape, kernel: Shape, transposed: bool = False) -> Shape:
    """Output sizes of a window that slides over ``sizes``."""
    rank = len(sizes)
    strides, dilations = at.numbers("strides", [1] * rank), at.numbers("dilations", [1] * rank)
    pads, extra = at.numbers("pads", [0] * (2 * rank)), at.numbers("output_padding", [0] * rank)
    if not len(kernel) == len(strides) == len(dilations) == len(extra) == rank or len(pads) != 2 * rank:
        raise InputError(f"The window of {at.title} does not have the {rank} sizes of its input.")
    if min((*kernel, *strides, *dilations), default=1) < 1:
        raise InputError(f"The window of {at.title} has a size of zero or less.")
    auto = at.node.attributes.get("auto_pad", "NOTSET")
    same = auto in ("SAME_UPPER", "SAME_LOWER")
    stated = at.numbers("output_shape", ())
    out = []
    for i, (size, stride) in enumerate(zip(sizes, strides, strict=True)):
        reach = dilations[i] * (kernel[i] - 1) + 1
        padding = 0 if auto == "VALID" else pads[i] + pads[i + rank]
        if transposed:
            free = size * stride if same else stride * (size - 1) + extra[i] + reach - padding
            out.append(stated[i] if len(stated) == rank else free)
        elif same:
            out.append(-(-size // stride))
        else:
            free = size + padding - reach
            out.append((-(-free // stride) if at.whole("ceil_mode", 0) else free // stride) + 1)
    if min(out, default=1) < 1:
        raise InputError(f"The window of {at.title} is larger than its input {sizes}.")
    return tuple(out)


def gemm_factors(at: Applied) -> tuple[Shape, Shape]:
    """The two factors of a product, as they are multiplied."""
    if at.node.op == "QLinearMatMul":
        return at.shape(0), at.shape(3)
    a, b = at.shape(0), at.shape(1)
    if at.node.op == "Gemm" and len(a) != 2:
        a = (a[0] if a else 1, int(elements(a[1:])))
    return turned(a) if at.whole("transA", 0) else a, turned(b) if at.whole("transB", 0) else b


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
