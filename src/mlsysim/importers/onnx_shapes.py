"""Shapes of the tensors of an ONNX graph, and the values of the small ones that shapes are computed from.

Exporters write reshapes as arithmetic on shapes (``Shape``, ``Gather``, ``Concat``, ``Reshape``), so the values of small integer
tensors are carried along beside the shapes. Semantics are those of the ONNX operator reference, opset 7 to 23; operators of
``com.microsoft`` that optimisers put in are read where they are common. An operator without a rule here takes the shape that
the file states for its output, where it states one. Rules of operators that only change a tensor's form are in
:mod:`mlsysim.importers.onnx_forms`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mlsysim.errors import InputError
from mlsysim.importers.counting import Shape, broadcast, einsum_shapes, elements
from mlsysim.importers.onnx_wire import Node, Tensor

_MOST_VALUES = 512

SAME = frozenset([
    "Abs", "Acos", "Asin", "Atan", "BatchNormalization", "Bernoulli", "BiasGelu", "BitShift", "BitwiseNot", "Cast",
    "CastLike", "Ceil", "Celu", "Clip", "Cos", "Cosh", "CumSum", "DequantizeLinear", "Dropout", "Elu", "Erf", "Exp",
    "FastGelu", "Floor", "Gelu", "GroupNorm", "GroupNormalization", "HardSigmoid", "HardSwish", "Hardmax", "Identity",
    "InstanceNormalization", "IsInf", "IsNaN", "LRN", "LayerNormalization", "LeakyRelu", "Log", "LogSoftmax",
    "LpNormalization", "MeanVarianceNormalization", "Mish", "Neg", "Not", "PRelu", "QuantizeLinear", "QuickGelu",
    "RMSNormalization", "RandomNormalLike", "RandomUniformLike", "Reciprocal", "Relu", "ReverseSequence",
    "RotaryEmbedding", "Round", "ScatterElements", "ScatterND", "Selu", "Shrink", "Sigmoid", "Sign",
    "SimplifiedLayerNormalization", "Sin", "Sinh", "SkipLayerNormalization", "SkipSimplifiedLayerNormalization",
    "Softmax", "Softplus", "Softsign", "Sqrt", "Swish", "Tan", "Tanh", "TensorScatter", "ThresholdedRelu", "Trilu",
])  # fmt: skip
BINARY = frozenset([
    "Add", "And", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Div", "Equal", "Greater", "GreaterOrEqual", "Less",
    "LessOrEqual", "Max", "Mean", "Min", "Mod", "Mul", "Or", "Pow", "Sub", "Sum", "Where", "Xor",
])  # fmt: skip


@dataclass(slots=True)
class Known:
    """Shapes and small values by name, and the version of the operator set."""

    shapes: dict[str, Shape]
    values: dict[str, tuple[float, ...]]
    opset: int

    def shape(self, node: Node, index: int) -> Shape:
        """The shape of an input; raises where it is not known."""
        name = node.inputs[index] if index < len(node.inputs) else ""
        if name not in self.shapes:
            raise LookupError(name)
        return self.shapes[name]

    def ints(self, node: Node, index: int, attribute: str | None = None) -> tuple[int, ...] | None:
        """Integers from an input or, as older operator sets have it, from an attribute; None where absent."""
        if attribute is not None and attribute in node.attributes:
            found = node.attributes[attribute]
            return tuple(int(v) for v in (found if isinstance(found, tuple) else (found,)))
        name = node.inputs[index] if index < len(node.inputs) else ""
        if not name:
            return None
        if name not in self.values:
            raise LookupError(name)
        return tuple(int(v) for v in self.values[name])

    def learn(self, name: str, tensor: Tensor) -> None:
        """A constant's shape, and its values where they are few."""
        self.shapes[name] = tensor.dims
        if tensor.values is not None and len(tensor.values) <= _MOST_VALUES:
            self.values[name] = tensor.values


Rule = Callable[[Node, Known], list[Shape]]
RULES: dict[str, Rule] = {}


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Make a function the rule of some operators."""

    def add(function: Rule) -> Rule:
        for name in names:
            RULES[name] = function
        return function

    return add


def infer(node: Node, known: Known) -> list[Shape]:
    """Shapes of the outputs; ``LookupError`` where they cannot be told."""
    if node.op in SAME:
        shape = known.shape(node, 0)
        if node.op == "BatchNormalization" or not node.outputs[1:]:
            return [shape]
        return [shape] * len(node.outputs)
    if node.op in BINARY:
        return [broadcast(*(known.shape(node, i) for i in range(len(node.inputs))))]
    if node.op.startswith("Reduce") or node.op in ("ArgMax", "ArgMin"):
        return [_reduced(node, known)]
    if node.op not in RULES:
        raise LookupError(node.op)
    return RULES[node.op](node, known)


def axis_of(axis: int, rank: int) -> int:
    """An axis counted from the front; negative ones are counted from the back."""
    if not -rank <= axis < max(rank, 1):
        raise InputError(f"An operator names axis {axis} of a tensor with {rank}.")
    return axis + rank if axis < 0 else axis


def whole(node: Node, name: str, default: int) -> int:
    """An attribute that is one integer."""
    found = node.attributes.get(name, default)
    return found if isinstance(found, int) else default


def numbers(node: Node, name: str, default: Sequence[int]) -> tuple[int, ...]:
    """An attribute that is a list of integers."""
    found = node.attributes.get(name)
    return tuple(int(v) for v in found) if isinstance(found, tuple) and found else tuple(default)


def _reduced(node: Node, known: Known) -> Shape:
    shape = known.shape(node, 0)
    if node.op.startswith("Arg"):
        axes: tuple[int, ...] | None = (whole(node, "axis", 0),)
    else:
        axes = known.ints(node, 1, "axes")
    if not axes and whole(node, "noop_with_empty_axes", 0):
        return shape
    chosen = {axis_of(axis, len(shape)) for axis in axes} if axes else set(range(len(shape)))
    if whole(node, "keepdims", 1):
        return tuple(1 if i in chosen else size for i, size in enumerate(shape))
    return tuple(size for i, size in enumerate(shape) if i not in chosen)


# --- products and convolutions ----------------------------------------------------------------------------------------


@rule("Conv", "FusedConv", "ConvInteger", "QLinearConv", "NhwcFusedConv", "ConvTranspose")
def _conv(node: Node, known: Known) -> list[Shape]:
    x = known.shape(node, 0)
    weight = known.shape(node, 3 if node.op == "QLinearConv" else 1)
    rank = len(weight) - 2
    if rank < 1 or len(x) != rank + 2:
        raise InputError(f"The convolution {node.name[:60]!r} has an input {x} and a weight {weight}.")
    kernel = numbers(node, "kernel_shape", weight[2:])
    spatial = _window(node, x[2:], kernel, transposed=node.op == "ConvTranspose")
    channels = weight[1] * whole(node, "group", 1) if node.op == "ConvTranspose" else weight[0]
    return [(x[0], channels, *spatial)]


def _window(node: Node, sizes: Shape, kernel: Shape, transposed: bool = False) -> Shape:
    """Output sizes of a window that slides over ``sizes``."""
    rank = len(sizes)
    strides, dilations = numbers(node, "strides", [1] * rank), numbers(node, "dilations", [1] * rank)
    pads = numbers(node, "pads", [0] * (2 * rank))
    extra = numbers(node, "output_padding", [0] * rank)
    if not len(kernel) == len(strides) == len(dilations) == len(extra) == rank or len(pads) != 2 * rank:
        raise InputError(f"The window of {node.op} {node.name[:60]!r} does not have the {rank} sizes of its input.")
    if min((*kernel, *strides, *dilations), default=1) < 1:
        raise InputError(f"The window of {node.op} {node.name[:60]!r} has a size of zero or less.")
    auto = node.attributes.get("auto_pad", "NOTSET")
    out = []
    for i, size in enumerate(sizes):
        reach = dilations[i] * (kernel[i] - 1) + 1
        padding = pads[i] + pads[i + rank]
        if transposed:
            if auto in ("SAME_UPPER", "SAME_LOWER"):
                out.append(size * strides[i])
            else:
                out.append(strides[i] * (size - 1) + extra[i] + reach - (0 if auto == "VALID" else padding))
        elif auto in ("SAME_UPPER", "SAME_LOWER"):
            out.append(-(-size // strides[i]))
        else:
            free = size + (0 if auto == "VALID" else padding) - reach
            out.append((-(-free // strides[i]) if whole(node, "ceil_mode", 0) else free // strides[i]) + 1)
    stated = numbers(node, "output_shape", ())
    if transposed and len(stated) == rank:
        out = list(stated)
    if min(out, default=1) < 1:
        raise InputError(f"The window of {node.op} {node.name[:60]!r} is larger than its input {sizes}.")
    return tuple(out)


@rule("MaxPool", "AveragePool", "LpPool")
def _pool(node: Node, known: Known) -> list[Shape]:
    x = known.shape(node, 0)
    kernel = numbers(node, "kernel_shape", ())
    shape = (*x[:2], *_window(node, x[2:], kernel))
    return [shape] * max(1, len(node.outputs))


@rule("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")
def _global_pool(node: Node, known: Known) -> list[Shape]:
    x = known.shape(node, 0)
    return [(*x[:2], *(1,) * (len(x) - 2))]


def gemm_factors(node: Node, known: Known) -> tuple[Shape, Shape]:
    """The two factors of Gemm or of a fused product, as they are multiplied."""
    a, b = known.shape(node, 0), known.shape(node, 1)
    if node.op == "Gemm" and len(a) != 2:
        a = (a[0] if a else 1, int(elements(a[1:])))
    if whole(node, "transA", 0) and len(a) > 1:
        a = (*a[:-2], a[-1], a[-2])
    if whole(node, "transB", 0) and len(b) > 1:
        b = (*b[:-2], b[-1], b[-2])
    return a, b


@rule("Gemm", "FusedGemm", "FusedMatMul", "MatMul", "MatMulInteger", "QLinearMatMul")
def _matmul(node: Node, known: Known) -> list[Shape]:
    if node.op == "QLinearMatMul":
        a, b = known.shape(node, 0), known.shape(node, 3)
    else:
        a, b = gemm_factors(node, known)
    if not a or not b:
        raise InputError(f"The product {node.name[:60]!r} has a scalar among its factors.")
    left, right = (1, *a) if len(a) == 1 else a, (*b, 1) if len(b) == 1 else b
    if left[-1] != right[-2]:
        raise InputError(f"The product {node.name[:60]!r} of {a} with {b} has inner sizes {left[-1]} and {right[-2]}.")
    lead = broadcast(left[:-2], right[:-2])
    return [(*lead, *(() if len(a) == 1 else (left[-2],)), *(() if len(b) == 1 else (right[-1],)))]


@rule("MatMulNBits")
def _matmul_nbits(node: Node, known: Known) -> list[Shape]:
    return [(*known.shape(node, 0)[:-1], whole(node, "N", 1))]


@rule("Einsum")
def _einsum(node: Node, known: Known) -> list[Shape]:
    shapes = [known.shape(node, i) for i in range(len(node.inputs))]
    _, result, sizes = einsum_shapes(str(node.attributes.get("equation", "")), shapes)
    return [tuple(sizes[letter] for letter in result)]


@rule("Attention", "MultiHeadAttention", "GroupQueryAttention")
def _attention(node: Node, known: Known) -> list[Shape]:
    if node.domain == "com.microsoft" and node.op == "Attention":
        weight = known.shape(node, 1)
        return [(*known.shape(node, 0)[:-1], weight[-1] // 3)]
    query = known.shape(node, 0)
    if len(query) == 4:
        return [(*query[:-1], known.shape(node, 2)[-1])]
    return [query]


@rule("LSTM", "GRU", "RNN")
def _recurrent(node: Node, known: Known) -> list[Shape]:
    x, w = known.shape(node, 0), known.shape(node, 2)
    if len(x) != 3 or len(w) != 3:
        raise InputError(f"The {node.op} {node.name[:60]!r} has an input {x} and weights {w}.")
    directions, hidden = w[0], w[2]
    length, batch = (x[1], x[0]) if whole(node, "layout", 0) else (x[0], x[1])
    state = (directions, batch, hidden)
    return [(length, directions, batch, hidden), state, state]
