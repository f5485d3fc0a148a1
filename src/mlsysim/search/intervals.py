"""What an expression can be over a box of points: interval arithmetic on checked expressions.

A number is a pair (lowest, highest), a comparison a pair (surely, possibly). Each operation rounds as the expression itself
does, and rounding is monotone, so that the pair of a box encloses the value at every point in it. Where little can be said
(a division by an interval around zero, a remainder of a range) the pair is wide, never wrong.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from mlsysim.search.expression import Algebra, Expression


class Pair(NamedTuple):
    """Lowest and highest; for text, the same value twice where it is one, and None where it is not known."""

    low: Any
    high: Any


def unknown(size: int) -> Pair:
    """Any number."""
    return Pair(np.full(size, -np.inf), np.full(size, np.inf))


def enclose(expression: Expression, value: Callable[[str], Pair]) -> Pair:
    """Where the expression surely holds, and where it possibly does."""
    found: Pair = expression(value, _PAIRS)
    return found


def _below(a: Pair, b: Pair) -> Pair:
    return Pair(np.less(a.high, b.low), ~np.less_equal(b.high, a.low))


def _not_above(a: Pair, b: Pair) -> Pair:
    return Pair(np.less_equal(a.high, b.low), ~np.less(b.high, a.low))


def _not(a: Pair) -> Pair:
    return Pair(np.logical_not(a.high), np.logical_not(a.low))


def _equal(a: Pair, b: Pair) -> Pair:
    if any(_is_text(side) for side in (*a, *b)):
        first, second = np.asarray(a.low, dtype=object), np.asarray(b.low, dtype=object)
        known = (first != None) & (second != None)  # noqa: E711 - element by element
        same = np.asarray(first == second, dtype=bool)
        return Pair(known & same, ~np.asarray(known, dtype=bool) | same)
    one = np.equal(a.low, a.high) & np.equal(b.low, b.high) & np.equal(a.low, b.low)
    return Pair(one, ~(np.less(a.high, b.low) | np.less(b.high, a.low)))


def _is_text(side: Any) -> bool:
    return isinstance(side, str) or (isinstance(side, np.ndarray) and side.dtype.kind in "OU")


def _hull(*values: Any) -> Pair:
    """The pair around some products; what is not a number could be anything."""
    stack = np.stack(np.broadcast_arrays(*values)).astype(float)
    broken = np.isnan(stack).any(axis=0)
    return Pair(np.where(broken, -np.inf, stack.min(axis=0)), np.where(broken, np.inf, stack.max(axis=0)))


def _over(a: Pair, b: Pair) -> Pair:
    around = np.less_equal(b.low, 0) & np.greater_equal(b.high, 0)
    found = _hull(*(np.divide(x, y) for x in a for y in b))
    return Pair(np.where(around, -np.inf, found.low), np.where(around, np.inf, found.high))


def _one(a: Pair, b: Pair) -> Any:
    return np.equal(a.low, a.high) & np.equal(b.low, b.high) & np.not_equal(b.low, 0)


def _whole_parts(a: Pair, b: Pair) -> Pair:
    ratio, exact = _over(a, b), np.floor_divide(a.low, b.low)
    # The quotient rounds otherwise than the division that it stands for, by one at most.
    single = _one(a, b)
    return Pair(np.where(single, exact, np.floor(ratio.low) - 1), np.where(single, exact, np.floor(ratio.high) + 1))


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
    low, high = (np.log2(np.maximum(end, 1e-300)) for end in a)
    return Pair(np.where(np.less_equal(a.low, 0), -np.inf, low), np.where(np.less_equal(a.high, 0), np.inf, high))


def _joined(join: Callable[[Any, Any], Any]) -> Callable[[Pair, Pair], Pair]:
    return lambda a, b: Pair(join(a.low, b.low), join(a.high, b.high))


_PAIRS = Algebra(
    lambda value: Pair(value, value),
    {
        ast.Add: _joined(operator.add),
        ast.Sub: lambda a, b: Pair(a.low - b.high, a.high - b.low),
        ast.Mult: lambda a, b: _hull(*(np.multiply(x, y) for x in a for y in b)),
        ast.Div: _over,
        ast.FloorDiv: _whole_parts,
        ast.Mod: _remainder,
        ast.Lt: _below,
        ast.LtE: _not_above,
        ast.Gt: lambda a, b: _below(b, a),
        ast.GtE: lambda a, b: _not_above(b, a),
        ast.Eq: _equal,
        ast.NotEq: lambda a, b: _not(_equal(a, b)),
        ast.Not: _not,
        ast.USub: lambda a: Pair(-a.high, -a.low),
        ast.And: _joined(np.logical_and),
        ast.Or: _joined(np.logical_or),
    },
    {"min": _joined(np.minimum), "max": _joined(np.maximum), "abs": _absolute, "log2": _logarithm},
)
