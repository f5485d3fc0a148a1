"""What one call of an operator asks for, from the shapes of its tensors; and a workload from all calls of a graph.

The ONNX and the PyTorch importers differ in how they find shapes and agree on what shapes mean, which is here. Operations
are counted for products of matrices, convolutions and attention, two for each multiply-add; everything else moves elements
and is charged no arithmetic (as PyTorch's own FlopCounterMode does). Views move nothing.

    convolution   F = 2 x elements out x elements of the weight / channels out      (transposed: elements in, channels in)
    product       F = 2 m n k for each pair of matrices
    attention     F = 2 (d_qk + d_v) for each query-key pair; where the call says that it is causal, the unmasked pairs
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from mlsysim.errors import InputError
from mlsysim.models.fixed_shape import BY_GROUPS, GraphOperator, GraphWorkload

Shape = tuple[int, ...]

_MOST_KINDS = 20_000
_LARGEST_DIMENSION = 10**12


Call = GraphOperator
"""One call, of the whole batch until ``workload_of`` takes a sample's share."""


def elements(shape: Sequence[int]) -> float:
    """Elements of a tensor; a scalar has one.

    >>> elements((2, 3, 4)), elements(())
    (24.0, 1.0)
    """
    total = 1.0
    for size in shape:
        if not 0 <= size <= _LARGEST_DIMENSION:
            raise InputError(f"A tensor has a dimension of {str(size)[:30]}, which no tensor has.")
        total *= size
    return total


def moved(name: str, inputs: Iterable[Shape], outputs: Iterable[Shape]) -> Call:
    """An operator that only reads and writes."""
    read, written = sum(map(elements, inputs)), list(outputs)
    out = sum(map(elements, written))
    last = float(written[0][-1]) if written and written[0] else 1.0
    return Call(name=name, kind="elementwise", m=out / last if last else 0.0, n=last, inputs=read, outputs=out)


def convolution(name: str, x: Shape, weight: Shape, out: Shape, transposed: bool = False) -> Call:
    """A convolution over any number of dimensions, with weights (out, in / groups, kernel...)."""
    if len(weight) < 3 or len(x) != len(weight) or len(out) != len(x) or not all(weight) or not out[1] or not x[1]:
        raise InputError(
            f"The convolution {name[:60]!r} has shapes {x}, {weight} and {out}, which do not belong together."
        )
    held, area = elements(weight), math.prod(weight[2:])
    channels_out = out[1]
    groups = max(1.0, (channels_out if transposed else x[1]) / weight[1])
    flops = 2 * elements(x) * held / x[1] if transposed else 2 * elements(out) * held / channels_out
    rows = elements(out) / channels_out
    own: dict[str, Any] = {"flops": flops, "weights": held, "inputs": elements(x), "outputs": elements(out)}
    if groups > 1 and groups == x[1]:
        return Call(name=name, kind="depthwise_conv", m=rows, n=channels_out, k=area, **own)
    return Call(name=name, kind="conv", m=rows, n=channels_out / groups, k=area * x[1] / groups, groups=groups, **own)


def turned(shape: Shape) -> Shape:
    """The shape of a transposed matrix, or of many."""
    return (*shape[:-2], shape[-1], shape[-2]) if len(shape) > 1 else shape


def matrices(name: str, a: Shape, b: Shape) -> tuple[Shape, Shape, Shape]:
    """Two factors as ``numpy.matmul`` takes them, vectors as matrices, and the leading sizes of their product."""
    if not a or not b:
        raise InputError(f"The product {name[:60]!r} has a scalar among its factors.")
    left, right = (1, *a) if len(a) == 1 else a, (*b, 1) if len(b) == 1 else b
    if left[-1] != right[-2]:
        raise InputError(f"The product {name[:60]!r} of {a} with {b} has inner sizes {left[-1]} and {right[-2]}.")
    return left, right, broadcast(left[:-2], right[:-2])


def product(name: str, a: Shape, b: Shape, weight: bool) -> Call:
    """A matrix product as ``numpy.matmul`` defines it; ``weight`` says that the right one is a parameter.

    A parameter without leading dimensions makes one product of all rows; otherwise each leading index is a group.
    """
    a, b, lead = matrices(name, a, b)
    m, k, n, groups = float(a[-2]), float(a[-1]), float(b[-1]), elements(lead)
    held, read = elements(b), elements(a)
    weights, inputs = (held, read) if weight else (0.0, read + held)
    own: dict[str, Any] = {"n": n, "k": k, "flops": 2 * groups * m * n * k, "weights": weights, "inputs": inputs}
    own["outputs"] = groups * m * n
    if elements(b[:-2]) == 1 and (weight or groups == 1 or elements(a[:-2]) == groups):
        return Call(name=name, kind="gemm", m=m * groups, **own)
    return Call(name=name, kind="grouped_gemm" if weight else "batched_gemm", m=m, groups=groups, **own)


def attention(name: str, query: Shape, key: Shape, value: Shape, causal: bool = False) -> Call:
    """Attention of (..., heads, queries, d) with (..., heads, keys, d); leading sizes are groups."""
    if min(len(query), len(key), len(value)) < 2 or not all((*query, *key, *value)):
        raise InputError(f"The attention {name[:60]!r} has shapes {query}, {key} and {value}.")
    groups = elements(query[:-2])
    queries, keys = float(query[-2]), float(key[-2])
    pairs = queries * keys
    if causal:
        # The last query sees every key, the one before it one less.
        pairs = queries * keys - queries * (queries - 1) / 2 if keys >= queries else keys * (keys + 1) / 2
    own: dict[str, Any] = {"kind": "attention", "layer": "attention", "kv_heads": key[-3] if len(key) > 2 else 1}
    own |= {"m": queries, "n": keys, "k": query[-1], "groups": groups, "cache": elements(key) + elements(value)}
    own |= {"inputs": elements(query), "outputs": groups * queries * value[-1]}
    return Call(name=name, flops=2 * groups * pairs * (query[-1] + value[-1]), **own)


def einsum_shapes(equation: str, shapes: Sequence[Shape]) -> tuple[list[str], str, dict[str, int]]:
    """Letters of the operands and of the result of an equation, and their sizes; an ellipsis gets letters of its own."""
    left, arrow, result = equation.replace(" ", "").partition("->")
    operands = left.split(",")
    if len(operands) != len(shapes):
        raise InputError(f"The equation {equation[:60]!r} has {len(operands)} operands for {len(shapes)} tensors.")
    sizes: dict[str, int] = {}
    written, hidden = [], ""
    for letters, shape in zip(operands, shapes, strict=True):
        if "..." in letters:
            missing = len(shape) - len(letters) + 3
            own = "".join(chr(0x3B1 + i) for i in range(max(0, missing)))[::-1]
            hidden = max(hidden, own, key=len)
            letters = letters.replace("...", own)
        if len(letters) != len(shape):
            raise InputError(f"The equation {equation[:60]!r} does not fit a tensor of {shape}.")
        for letter, size in zip(letters, shape, strict=True):
            sizes[letter] = max(size, sizes.get(letter, 1))
        written.append(letters)
    if not arrow:
        every = "".join(written)
        result = hidden + "".join(sorted(x for x in set(every) - set(hidden) if every.count(x) == 1))
    result = result.replace("...", hidden)
    if any(letter not in sizes for letter in result):
        raise InputError(f"The equation {equation[:60]!r} has a letter in its result alone.")
    return written, result, sizes


def contraction(name: str, equation: str, shapes: Sequence[Shape], weight: bool) -> Call | None:
    """An Einstein sum over two tensors as a product; None for other numbers of tensors.

    Letters of both tensors and of the result are groups, of one and the result rows or columns, of both alone the inner size.
    """
    operands, result, sizes = einsum_shapes(equation, shapes)
    if len(operands) != 2:
        return None
    a, b, kept = set(operands[0]), set(operands[1]), set(result)
    groups, m, n, k = (
        math.prod(sizes[x] for x in letters)
        for letters in (a & b & kept, (a - b) & kept, (b - a) & kept, (a & b) - kept)
    )
    left, right = ((groups, m, k), (groups, k, n)) if groups > 1 else ((m, k), (k, n))
    return product(name, left, right, weight)


def lookup(name: str, out: Shape) -> Call:
    """Rows taken from a table: what is read is what is written."""
    width, size = float(out[-1]) if out else 1.0, elements(out)
    own: dict[str, Any] = {"kind": "embedding", "layer": "embedding", "inputs": size, "outputs": size}
    return Call(name=name, m=size / width if width else 0.0, n=width, **own)


def recurrent(name: str, x: Shape, weights: float, out: Iterable[Shape]) -> Call:
    """A recurrent layer: each step of each sequence passes through all its matrices, which stay on chip between steps."""
    width = float(x[-1]) if x else 0.0
    m, n = (elements(x) / width, weights / width) if width else (0.0, 0.0)
    own: dict[str, Any] = {"weights": weights, "inputs": elements(x), "outputs": sum(map(elements, out))}
    return Call(name=name, kind="scan", m=m, n=n, k=width, flops=2 * m * weights, **own)


def broadcast(*shapes: Shape) -> Shape:
    """The shape of operands that are stretched to each other, or a sentence."""
    out: list[int] = []
    for i in range(1, max(map(len, shapes), default=0) + 1):
        sizes = {shape[-i] for shape in shapes if len(shape) >= i} - {1}
        if len(sizes) > 1:
            raise InputError(f"The shapes {' and '.join(map(str, shapes))} do not stretch to each other.")
        out.append(sizes.pop() if sizes else 1)
    return tuple(reversed(out))


def with_weights(call: Call, read: float, parameters: float) -> Call:
    """The call with further weights that it reads (biases, scales), and the parameters that it is the first to hold."""
    return call.model_copy(update={"weights": call.weights + read, "parameters": parameters})


def unknown_operators(counts: Mapping[str, int]) -> list[str]:
    """The warning of operators that nobody here knows, where there are any."""
    shown = ", ".join(f"{op[:60]} ({n} times)" if n > 1 else op[:60] for op, n in sorted(counts.items())[:12])
    return [f"Operators that are not known were counted with no operations: {shown}."] if counts else []


def workload_of(calls: Iterable[Call], name: str, batch: float, inputs: Iterable[tuple[str, Shape]]) -> GraphWorkload:
    """The workload of one sample. Calls that are equal in everything but their name become one with a count."""
    grouped: dict[Call, int] = {}
    for call in calls:
        # A sample's share of the call; weights are there once for all.
        grown = ("flops", "inputs", "outputs", "cache", "groups" if call.kind in BY_GROUPS else "m")
        key = call.model_copy(update={field: getattr(call, field) / batch for field in grown})
        grouped[key] = grouped.get(key, 0) + 1
        if len(grouped) > _MOST_KINDS:
            raise InputError(f"{name[:80]!r} has more than {_MOST_KINDS:,} different operators.")
    if not grouped:
        raise InputError(f"{name[:80]!r} has no operator that computes anything.")
    operators = tuple(Call(**{**dict(call), "count": count}) for call, count in grouped.items())
    kinds = {op.kind for op in operators}
    convolutional = bool(kinds & {"conv", "depthwise_conv"}) and not kinds & {"attention", "batched_gemm"}
    sample = ", ".join(f"{key} {'x'.join(map(str, shape)) or 'scalar'}" for key, shape in inputs)
    kind = "cnn" if convolutional else "graph"
    return GraphWorkload(name=name, operators=operators, sample=sample, architecture=kind)
