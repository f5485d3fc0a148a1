"""Values of small tensors that later become shapes: the arithmetic that exporters write in front of a Reshape."""

from __future__ import annotations

import math
from collections.abc import Callable

from mlsysim.importers.onnx_shapes import Known, whole
from mlsysim.importers.onnx_wire import Node, Tensor

_MOST = 512
_LARGEST = 2.0**62

Values = tuple[float, ...]


def _divide(a: float, b: float) -> float:
    """Division of integers towards zero, of others as it is."""
    if not b:
        raise LookupError("division by zero")
    exact = a / b
    return float(math.trunc(exact)) if a == int(a) and b == int(b) else exact


_PAIRS: dict[str, Callable[[float, float], float]] = {
    "Add": lambda a, b: a + b,
    "Sub": lambda a, b: a - b,
    "Mul": lambda a, b: a * b,
    "Div": _divide,
    "Mod": lambda a, b: a % b if b else 0.0,
    "Min": min,
    "Max": max,
    "Equal": lambda a, b: float(a == b),
    "Greater": lambda a, b: float(a > b),
    "Less": lambda a, b: float(a < b),
    "GreaterOrEqual": lambda a, b: float(a >= b),
    "LessOrEqual": lambda a, b: float(a <= b),
    "And": lambda a, b: float(bool(a) and bool(b)),
    "Or": lambda a, b: float(bool(a) or bool(b)),
}
_SINGLE: dict[str, Callable[[float], float]] = {
    "Floor": math.floor,
    "Ceil": math.ceil,
    "Neg": lambda a: -a,
    "Not": lambda a: float(not a),
    "Sqrt": lambda a: math.sqrt(a) if a >= 0 else 0.0,
    "Abs": abs,
}
_REDUCED: dict[str, Callable[[Values], float]] = {
    "ReduceProd": lambda values: float(math.prod(values)),
    "ReduceSum": lambda values: float(sum(values)),
    "ReduceMax": lambda values: max(values),
    "ReduceMin": lambda values: min(values),
}
_KEPT = ("Cast", "Identity", "Reshape", "Squeeze", "Unsqueeze", "Flatten")


def fold(node: Node, known: Known) -> Values | None:
    """The values of the first output where they can be told and are few; None otherwise."""
    try:
        found = _folded(node, known)
    except (LookupError, ValueError, TypeError, OverflowError):
        return None
    if found is None or len(found) > _MOST or not all(map(math.isfinite, found)):
        return None
    # The end of a slice is often written as the largest integer.
    return tuple(min(max(v, -_LARGEST), _LARGEST) for v in found)


def _stretched(values: list[Values]) -> list[Values]:
    """Operands of one length; longer shapes than one dimension do not occur in the arithmetic of shapes."""
    length = max(map(len, values))
    return [v * length if len(v) == 1 else v for v in values]


def _folded(node: Node, known: Known) -> Values | None:
    op = node.op
    if op == "Constant":
        found = next(iter(node.attributes.values()))
        if isinstance(found, Tensor):
            return found.values
        return tuple(float(v) for v in (found if isinstance(found, tuple) else (found,)))
    if op == "Shape":
        shape = known.shape(node, 0)
        return tuple(float(s) for s in shape[slice(whole(node, "start", 0), node.attributes.get("end"))])
    if op == "Size":
        return (float(math.prod(known.shape(node, 0))),)
    values = [known.values[name] for name in node.inputs if name]
    if op in _KEPT:
        target = node.attributes.get("to")
        first = values[0]
        return tuple(float(int(v)) for v in first) if op == "Cast" and target in (6, 7) else first
    if op in _PAIRS:
        a, b = _stretched(values[:2])
        return tuple(_PAIRS[op](x, y) for x, y in zip(a, b, strict=True))
    if op in _SINGLE:
        return tuple(float(_SINGLE[op](v)) for v in values[0])
    if op == "Where":
        mask, a, b = _stretched(values)
        return tuple(x if chosen else y for chosen, x, y in zip(mask, a, b, strict=True))
    if op == "Concat":
        return tuple(v for part in values for v in part)
    if op == "Gather" and len(known.shape(node, 0)) == 1:
        return tuple(values[0][int(i)] for i in values[1])
    if op == "Slice" and len(known.shape(node, 0)) == 1:
        start, end = ((known.ints(node, i, name) or (0,))[0] for i, name in ((1, "starts"), (2, "ends")))
        step = (known.ints(node, 4) or (1,))[0]
        return values[0][slice(start, end if abs(end) < _LARGEST else None, step)]
    if op == "Range":
        start, stop, step = (int(v[0]) for v in values)
        return tuple(float(v) for v in range(start, stop, step)) if len(range(start, stop, step)) <= _MOST else None
    if op == "ConstantOfShape":
        filled = node.attributes.get("value")
        value = filled.values[0] if isinstance(filled, Tensor) and filled.values else 0.0
        count = math.prod(int(v) for v in values[0])
        return (float(value),) * count if count <= _MOST else None
    if op in _REDUCED:
        return (_REDUCED[op](values[0]),) if len(known.shape(node, 0)) == 1 else None
    return None
