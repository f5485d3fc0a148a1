"""Shapes of the tensors of an ONNX graph, and the values of the small ones that shapes are computed from.

Exporters write reshapes as arithmetic on shapes (``Shape``, ``Gather``, ``Concat``, ``Reshape``), so the values of small integer
tensors are carried along beside the shapes. Semantics are those of the ONNX operator reference, opset 7 to 23; operators of
``com.microsoft`` that optimisers put in are read where they are common. An operator without a rule here takes the shape that
the file states for its output, where it states one. Here are the operators that compute; those that only change a tensor's form
are in :mod:`mlsysim.importers.onnx_forms`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mlsysim.errors import InputError
from mlsysim.importers.counting import Shape, einsum_shapes, elements, matrices, turned
from mlsysim.importers.onnx_wire import Node


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
