"""What an expression can be over a box of points: interval arithmetic on checked expressions.

A number is a pair (lowest, highest), a comparison a pair (surely, possibly). Each operation rounds as the expression itself
does, and rounding is monotone, so that the pair of a box encloses the value at every point in it. Where little can be said
(a division by an interval around zero, a remainder of a range) the pair is wide, never wrong.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from mlsysim.search.expression import Expression


class Pair(NamedTuple):
    """Lowest and highest; for text, the same value twice where it is one, and None where it is not known."""

    low: Any
    high: Any


Lookup = Callable[[str], Pair]


def unknown(size: int) -> Pair:
    """Any number."""
    return Pair(np.full(size, -np.inf), np.full(size, np.inf))


def enclose(expression: Expression, value: Lookup) -> Pair:
    """Where the expression surely holds, and where it possibly does."""
    with np.errstate(all="ignore"):
        return _of(ast.parse(expression.text, mode="eval").body, value)


def _of(node: ast.AST, value: Lookup) -> Pair:
    if isinstance(node, ast.Constant):
        return Pair(node.value, node.value)
    if isinstance(node, ast.Name):
        return value(node.id)
    if isinstance(node, ast.Attribute):
        assert isinstance(node.value, ast.Name)
        return value(f"{node.value.id}.{node.attr}")
    if isinstance(node, ast.BinOp):
        return _BINARY[type(node.op)](_of(node.left, value), _of(node.right, value))
    if isinstance(node, ast.UnaryOp):
        inner = _of(node.operand, value)
        if isinstance(node.op, ast.Not):
            return Pair(np.logical_not(inner.high), np.logical_not(inner.low))
        return Pair(-inner.high, -inner.low)
    if isinstance(node, ast.BoolOp):
        join = np.logical_and if isinstance(node.op, ast.And) else np.logical_or
        found = _of(node.values[0], value)
        for part in node.values[1:]:
            other = _of(part, value)
            found = Pair(join(found.low, other.low), join(found.high, other.high))
        return found
    if isinstance(node, ast.Compare):
        held = Pair(True, True)
        left = _of(node.left, value)
        for op, part in zip(node.ops, node.comparators, strict=True):
            right = _of(part, value)
            found = _compared(type(op), left, right)
            held = Pair(np.logical_and(held.low, found.low), np.logical_and(held.high, found.high))
            left = right
        return held
    assert isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    return _CALLS[node.func.id](*(_of(part, value) for part in node.args))


def _compared(op: type, a: Pair, b: Pair) -> Pair:
    if op is ast.Lt:
        return Pair(_less(a.high, b.low), ~_less_equal(b.high, a.low))
    if op is ast.LtE:
        return Pair(_less_equal(a.high, b.low), ~_less(b.high, a.low))
    if op is ast.Gt:
        return _compared(ast.Lt, b, a)
    if op is ast.GtE:
        return _compared(ast.LtE, b, a)
    equal = _equal(a, b)
    return equal if op is ast.Eq else Pair(~equal.high, ~equal.low)


def _less(a: Any, b: Any) -> Any:
    return np.asarray(np.less(a, b), dtype=bool)


def _less_equal(a: Any, b: Any) -> Any:
    return np.asarray(np.less_equal(a, b), dtype=bool)


def _equal(a: Pair, b: Pair) -> Pair:
    if any(_is_text(side) for side in (*a, *b)):
        first, second = np.asarray(a.low, dtype=object), np.asarray(b.low, dtype=object)
        known = (first != None) & (second != None)  # noqa: E711 - element by element
        same = np.asarray(first == second, dtype=bool)
        return Pair(known & same, ~np.asarray(known, dtype=bool) | same)
    apart = _less(a.high, b.low) | _less(b.high, a.low)
    one = np.asarray((np.equal(a.low, a.high)) & np.equal(b.low, b.high) & np.equal(a.low, b.low), dtype=bool)
    return Pair(one, ~apart)


def _is_text(side: Any) -> bool:
    return isinstance(side, str) or (isinstance(side, np.ndarray) and side.dtype.kind in "OU")


def _hull(*values: Any) -> Pair:
    """The pair around some products; what is not a number could be anything."""
    stack = np.stack(np.broadcast_arrays(*values)).astype(float)
    broken = np.isnan(stack).any(axis=0)
    return Pair(np.where(broken, -np.inf, stack.min(axis=0)), np.where(broken, np.inf, stack.max(axis=0)))


def _times(a: Pair, b: Pair) -> Pair:
    return _hull(*(np.multiply(x, y) for x in a for y in b))


def _over(a: Pair, b: Pair) -> Pair:
    around = np.less_equal(b.low, 0) & np.greater_equal(b.high, 0)
    found = _hull(*(np.divide(x, y) for x in a for y in b))
    return Pair(np.where(around, -np.inf, found.low), np.where(around, np.inf, found.high))


def _one(a: Pair, b: Pair) -> Any:
    return np.equal(a.low, a.high) & np.equal(b.low, b.high) & np.not_equal(b.low, 0)


def _whole_parts(a: Pair, b: Pair) -> Pair:
    ratio, exact = _over(a, b), np.floor_divide(a.low, b.low)
    # The quotient rounds otherwise than the division that it stands for, by one at most.
    return Pair(
        np.where(_one(a, b), exact, np.floor(ratio.low) - 1), np.where(_one(a, b), exact, np.floor(ratio.high) + 1)
    )


def _remainder(a: Pair, b: Pair) -> Pair:
    exact, single = np.mod(a.low, b.low), _one(a, b)
    positive = np.greater(b.low, 0)
    return Pair(
        np.where(single, exact, np.where(positive, 0.0, -np.inf)),
        np.where(single, exact, np.where(positive, b.high, np.inf)),
    )


def _absolute(a: Pair) -> Pair:
    around = np.less_equal(a.low, 0) & np.greater_equal(a.high, 0)
    low, high = np.abs(a.low), np.abs(a.high)
    return Pair(np.where(around, 0.0, np.minimum(low, high)), np.maximum(low, high))


def _logarithm(a: Pair) -> Pair:
    low = np.where(np.less_equal(a.low, 0), -np.inf, np.log2(np.maximum(a.low, 1e-300)))
    high = np.where(np.less_equal(a.high, 0), np.inf, np.log2(np.maximum(a.high, 1e-300)))
    return Pair(low, high)


_BINARY: dict[type, Callable[[Pair, Pair], Pair]] = {
    ast.Add: lambda a, b: Pair(a.low + b.low, a.high + b.high),
    ast.Sub: lambda a, b: Pair(a.low - b.high, a.high - b.low),
    ast.Mult: _times,
    ast.Div: _over,
    ast.FloorDiv: _whole_parts,
    ast.Mod: _remainder,
}
_CALLS: dict[str, Callable[..., Pair]] = {
    "min": lambda a, b: Pair(np.minimum(a.low, b.low), np.minimum(a.high, b.high)),
    "max": lambda a, b: Pair(np.maximum(a.low, b.low), np.maximum(a.high, b.high)),
    "abs": _absolute,
    "log2": _logarithm,
}
