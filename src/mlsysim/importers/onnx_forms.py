"""ONNX operators that change the form of a tensor and compute nothing (reshapes, slices, joins, look-ups): shapes behind them.

Exporters write reshapes as arithmetic on shapes (``Shape``, ``Gather``, ``Concat``, ``Reshape``), so the values of small integer
tensors are carried along beside the shapes (``fold``).
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

from mlsysim.errors import InputError
from mlsysim.importers import named
from mlsysim.importers.counting import Shape, broadcast, elements
from mlsysim.importers.onnx_operators import Applied, axis_of, computed
from mlsysim.importers.onnx_wire import Tensor

MOST = 512
"""Values of one tensor that are carried along."""
_LARGEST = 2.0**62

Values = tuple[float, ...]


SAME, BINARY, REDUCED = (named("onnx", kind) for kind in ("same", "binary", "reduced"))


def known(op: str) -> bool:
    """Whether there is a rule for an operator."""
    return any(op in names for names in (SAME, BINARY, REDUCED, named("onnx", "computing"), named("onnx", "forms")))


def infer(at: Applied) -> list[Shape]:
    """Shapes of the outputs; ``LookupError`` where they cannot be told."""
    op, outputs = at.node.op, at.node.outputs
    if op in SAME:
        return [at.shape(0)] * (1 if op == "BatchNormalization" else max(1, len(outputs)))
    if op in BINARY:
        return [broadcast(*at.inputs())]
    if op.startswith("Reduce") or op in REDUCED:
        return [_reduced(at)]
    if op in ("Split", "TopK"):
        return _parted(at, len(outputs))
    return [_formed(at)] if op in named("onnx", "forms") else computed(at)


def _reduced(at: Applied) -> Shape:
    shape = at.shape(0)
    axes = (at.whole("axis", 0),) if at.node.op.startswith("Arg") else at.ints(1, "axes")
    if not axes and at.whole("noop_with_empty_axes", 0):
        return shape
    chosen = {axis_of(axis, len(shape)) for axis in axes} if axes else set(range(len(shape)))
    if at.whole("keepdims", 1):
        return tuple(1 if i in chosen else size for i, size in enumerate(shape))
    return tuple(size for i, size in enumerate(shape) if i not in chosen)


def _parted(at: Applied, count: int) -> list[Shape]:
    x = at.shape(0)
    if at.node.op == "TopK":
        k, axis = at.ints(1, "k") or (1,), axis_of(at.whole("axis", -1), len(x))
        return [(*x[:axis], k[0], *x[axis + 1 :])] * 2
    axis = axis_of(at.whole("axis", 0), len(x))
    sizes = at.ints(1, "split")
    if not sizes:
        each = -(-x[axis] // count)
        sizes = (*(each,) * (count - 1), x[axis] - each * (count - 1))
    return [(*x[:axis], size, *x[axis + 1 :]) for size in sizes]


def _formed(at: Applied) -> Shape:
    """The shape behind an operator with one result."""
    op = at.node.op
    match op:
        case "Size":
            return ()
        case "Constant":
            found: Any = next(iter(at.node.attributes.values()), None)
            return found.dims if isinstance(found, Tensor) else (len(found),) if isinstance(found, tuple) else ()
        case "ConstantOfShape":
            return at.ints(0) or ()
        case "Range":
            start, stop, step = ((at.ints(i) or (0,))[0] for i in range(3))
            return (len(range(start, stop, step)) if step else 0,)
        case "Concat":
            shapes = at.inputs()
            axis = axis_of(at.whole("axis", 0), len(shapes[0]) if shapes else 0)
            if any(len(shape) != len(shapes[0]) for shape in shapes):
                raise InputError(f"The {at.title} joins tensors of different ranks.")
            return (*shapes[0][:axis], sum(shape[axis] for shape in shapes), *shapes[0][axis + 1 :])
        case "GatherElements":
            return at.shape(1)
    x = at.shape(0)
    match op:
        case "Reshape":
            return _reshape(at)
        case "Slice":
            return _slice(at)
        case "Pad":
            return _pad(at)
        case "Resize" | "Upsample":
            return _resize(at)
        case "Shape":
            return (len(_part_of_shape(at)),)
        case "Flatten":
            cut = at.whole("axis", 1)
            cut = cut + len(x) if cut < 0 else cut
            return (int(elements(x[:cut])), int(elements(x[cut:])))
        case "Transpose":
            order = at.numbers("perm", range(len(x) - 1, -1, -1))
            if sorted(order) != list(range(len(x))):
                raise InputError(f"The {at.title} of {x} has the order {order}.")
            return tuple(x[i] for i in order)
        case "Squeeze":
            axes = at.ints(1, "axes")
            gone = {axis_of(a, len(x)) for a in axes} if axes else {i for i, size in enumerate(x) if size == 1}
            return tuple(size for i, size in enumerate(x) if i not in gone)
        case "Unsqueeze":
            axes = at.ints(1, "axes") or ()
            rank, rest = len(x) + len(axes), iter(x)
            new = {axis_of(a, rank) for a in axes}
            if len(new) != len(axes):
                raise InputError(f"The {at.title} names an axis twice.")
            return tuple(1 if i in new else next(rest) for i in range(rank))
        case "Gather":
            taken, axis = at.shape(1), axis_of(at.whole("axis", 0), len(x))
            return (*x[:axis], *taken, *x[axis + 1 :])
        case "GatherND":
            taken = at.shape(1)
            return (*taken[:-1], *x[at.whole("batch_dims", 0) + (taken[-1] if taken else 0) :])
        case "Expand":
            return broadcast(x, at.ints(1) or ())
        case "Tile":
            return tuple(size * by for size, by in zip(x, at.ints(1) or (), strict=False))
        case "DepthToSpace" | "SpaceToDepth":
            (n, c, h, w), b = x, at.whole("blocksize", 1)
            return (n, c // (b * b), h * b, w * b) if op == "DepthToSpace" else (n, c * b * b, h // b, w // b)
        case "OneHot":
            depth, axis = at.ints(1) or (1,), at.whole("axis", -1)
            axis = max(0, axis if axis >= 0 else len(x) + 1 + axis)
            return (*x[:axis], depth[0], *x[axis:])
    raise LookupError(op)


def _reshape(at: Applied) -> Shape:
    x, wanted = at.shape(0), at.ints(1, "shape")
    if wanted is None:
        raise LookupError("shape")
    copied = not at.whole("allowzero", 0)
    out = [x[i] if size == 0 and copied and i < len(x) else size for i, size in enumerate(wanted)]
    if out.count(-1) > 1 or min(out, default=0) < -1:
        raise InputError(f"The {at.title} asks for {tuple(wanted)}.")
    if -1 in out:
        rest = math.prod(size for size in out if size != -1)
        total = int(elements(x))
        if not rest or total % rest:
            raise InputError(f"The {at.title} of {x} into {tuple(wanted)} does not come out even.")
        out[out.index(-1)] = total // rest
    if elements(out) != elements(x):
        raise InputError(
            f"The {at.title} turns {x} into {tuple(wanted)}: the file holds for other sizes of its inputs than those taken; give them by name."
        )
    return tuple(out)


def _slice(at: Applied) -> Shape:
    x = list(at.shape(0))
    starts, ends = at.ints(1, "starts") or (), at.ints(2, "ends") or ()
    axes = at.ints(3, "axes") or tuple(range(len(starts)))
    steps = at.ints(4) or (1,) * len(starts)
    if not len(starts) == len(ends) == len(axes) == len(steps):
        raise InputError(f"The {at.title} has lists of different lengths.")
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        if step == 0:
            raise InputError(f"The {at.title} has a step of zero.")
        i = axis_of(axis, len(x))
        x[i] = len(range(*slice(start, end if abs(end) < 2**62 else None, step).indices(x[i])))
    return tuple(x)


def _pad(at: Applied) -> Shape:
    x, pads = at.shape(0), at.ints(1, "pads") or ()
    axes = at.ints(3) or tuple(range(len(x)))
    if len(pads) != 2 * len(axes):
        raise InputError(f"The {at.title} of {x} has {len(pads)} sizes.")
    out = list(x)
    for i, axis in enumerate(axes):
        out[axis_of(axis, len(x))] += pads[i] + pads[i + len(axes)]
    return tuple(max(0, size) for size in out)


def _resize(at: Applied) -> Shape:
    x = at.shape(0)
    if at.name(3):
        return at.ints(3) or x
    scales = at.node.attributes.get("scales") or at.values.get(at.name(1 if at.node.op == "Upsample" else 2))
    if not scales or len(scales) != len(x) or not all(math.isfinite(s) and s > 0 for s in scales):
        raise LookupError("scales")
    return tuple(int(size * by) for size, by in zip(x, scales, strict=True))


def _part_of_shape(at: Applied) -> Shape:
    """What ``Shape`` gives: the sizes, or those between ``start`` and ``end``."""
    return at.shape(0)[slice(at.whole("start", 0), at.node.attributes.get("end"))]


def _divide(a: float, b: float) -> float:
    """Division of integers towards zero, of others as it is."""
    if not b:
        raise LookupError("division by zero")
    exact = a / b
    return float(math.trunc(exact)) if a == int(a) and b == int(b) else exact


_PAIRS: dict[str, Callable[[float, float], float]] = {
    "Add": operator.add, "Sub": operator.sub, "Mul": operator.mul, "Div": _divide, "Min": min, "Max": max,
    "Mod": lambda a, b: a % b if b else 0.0, "Equal": operator.eq, "Greater": operator.gt, "Less": operator.lt,
    "GreaterOrEqual": operator.ge, "LessOrEqual": operator.le, "And": lambda a, b: bool(a and b),
    "Or": lambda a, b: bool(a or b),
}  # fmt: skip
_SINGLE: dict[str, Callable[[float], float]] = {
    "Floor": math.floor, "Ceil": math.ceil, "Neg": operator.neg, "Not": operator.not_, "Abs": abs,
    "Sqrt": lambda a: math.sqrt(a) if a >= 0 else 0.0,
}  # fmt: skip
_REDUCED: dict[str, Callable[[Values], float]] = {
    "ReduceProd": math.prod, "ReduceSum": sum, "ReduceMax": max, "ReduceMin": min,
}  # fmt: skip
_KEPT = ("Cast", "Identity", "Reshape", "Squeeze", "Unsqueeze", "Flatten")


def fold(at: Applied) -> Values | None:
    """The values of the first output where they can be told and are few; None otherwise."""
    try:
        found = _folded(at)
    except (LookupError, ValueError, TypeError, OverflowError):
        return None
    if found is None or len(found) > MOST or not all(map(math.isfinite, found)):
        return None
    # The end of a slice is often written as the largest integer.
    return tuple(min(max(v, -_LARGEST), _LARGEST) for v in found)


def _stretched(values: list[Values]) -> list[Values]:
    """Operands of one length; longer shapes than one dimension do not occur in the arithmetic of shapes."""
    length = max(map(len, values))
    return [v * length if len(v) == 1 else v for v in values]


def _folded(at: Applied) -> Values | None:
    op, attributes = at.node.op, at.node.attributes
    if op == "Constant":
        found = next(iter(attributes.values()))
        if isinstance(found, Tensor):
            return found.values
        return tuple(float(v) for v in (found if isinstance(found, tuple) else (found,)))
    if op == "Shape":
        return tuple(map(float, _part_of_shape(at)))
    if op == "Size":
        return (float(math.prod(at.shape(0))),)
    values = [at.values[name] for name in at.node.inputs if name]
    if op in _KEPT:
        whole = op == "Cast" and attributes.get("to") in (6, 7)
        return tuple(float(int(v)) for v in values[0]) if whole else values[0]
    if op in _PAIRS:
        a, b = _stretched(values[:2])
        return tuple(float(_PAIRS[op](x, y)) for x, y in zip(a, b, strict=True))
    if op in _SINGLE:
        return tuple(float(_SINGLE[op](v)) for v in values[0])
    if op == "Where":
        mask, a, b = _stretched(values)
        return tuple(x if chosen else y for chosen, x, y in zip(mask, a, b, strict=True))
    if op == "Concat":
        return tuple(v for part in values for v in part)
    if op == "Range":
        start, stop, step = (int(v[0]) for v in values)
        return tuple(map(float, range(start, stop, step))) if len(range(start, stop, step)) <= MOST else None
    if op == "ConstantOfShape":
        filled = attributes.get("value")
        value = filled.values[0] if isinstance(filled, Tensor) and filled.values else 0.0
        count = math.prod(int(v) for v in values[0])
        return (float(value),) * count if count <= MOST else None
    if op not in ("Gather", "Slice", *_REDUCED) or len(at.shape(0)) != 1:
        return None
    if op == "Gather":
        return tuple(values[0][int(i)] for i in values[1])
    if op == "Slice":
        start, end = ((at.ints(i, name) or (0,))[0] for i, name in ((1, "starts"), (2, "ends")))
        return values[0][slice(start, end if abs(end) < _LARGEST else None, (at.ints(4) or (1,))[0])]
    return (float(_REDUCED[op](values[0])),)
