"""Constraints as data: ``"global_batch % (dp * micro_batch) == 0"``, ``"tp <= 8 or precision == 'fp8'"``.

An expression is parsed once, checked against a short list of what may stand in it (names, numbers, text, arithmetic,
comparisons, ``and``/``or``/``not``, ``min``, ``max``, ``abs``, ``log2``) and evaluated on arrays, or over boxes of points in interval arithmetic. ``model.layers`` reads a field of
a zoo entry. Nothing else of Python is reachable.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import reduce
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from mlsysim.errors import InputError, unknown_name
from mlsysim.units.records import dataclass


@dataclass(frozen=True)
class Algebra:
    """What an expression computes with: what a number or text becomes, and what operators and functions do to it."""

    constant: Callable[[Any], Any]
    operators: Mapping[type, Callable[..., Any]]
    functions: Mapping[str, Callable[..., Any]]


_ARITHMETIC: dict[type, Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_COMPARE: dict[type, Callable[..., Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_LOGIC: dict[type, Callable[..., Any]] = {
    ast.Not: np.logical_not,
    ast.And: np.logical_and,
    ast.Or: np.logical_or,
    ast.USub: operator.neg,
}
_ARITIES = {"min": 2, "max": 2, "abs": 1, "log2": 1}
ARRAYS = Algebra(
    lambda value: value,
    {**_ARITHMETIC, **_COMPARE, **_LOGIC},
    {"min": np.minimum, "max": np.maximum, "abs": np.abs, "log2": np.log2},
)
_LONGEST = 500


class Expression:
    """One checked expression; call it with a function that gives the value of a name."""

    def __init__(self, text: Any) -> None:
        if not isinstance(text, str) or not text.strip():
            raise InputError(f"A constraint must be text such as 'heads % tp == 0', got {str(text)[:60]!r}.")
        if len(text) > _LONGEST:
            raise InputError(f"A constraint may have at most {_LONGEST} characters, got {len(text)}.")
        self.text = text.strip()
        try:
            self._tree = ast.parse(self.text, mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            raise InputError(f"The constraint {self.text!r} cannot be read; write it like 'heads % tp == 0'.") from None
        self.names = tuple(dict.fromkeys(self._names(self._tree)))
        compares = isinstance(self._tree, (ast.Compare, ast.BoolOp))
        if not compares and not (isinstance(self._tree, ast.UnaryOp) and isinstance(self._tree.op, ast.Not)):
            raise InputError(f"The constraint {self.text!r} compares nothing; write it like 'heads % tp == 0'.")

    def check_names(self, known: Iterable[str], where: str) -> None:
        """Refuse a name that nothing answers to, with the nearest."""
        valid = list(known)
        for name in self.names:
            if name.split(".")[0] not in valid:
                raise unknown_name(f"name for the constraint {self.text!r} of {where}", name, valid)

    def __call__(self, value: Callable[[str], Any], algebra: Algebra = ARRAYS) -> Any:
        with np.errstate(all="ignore"):
            try:
                return _evaluate(self._tree, value, algebra)
            except TypeError:
                raise InputError(
                    f"The constraint {self.text!r} computes with text, or compares it with a number."
                ) from None

    def _refuse(self, what: str) -> InputError:
        return InputError(
            f"The constraint {self.text!r} holds {what}; it may have names, numbers, + - * / // %, comparisons, and, or, not, "
            f"{', '.join(_ARITIES)}."
        )

    def _names(self, node: ast.AST) -> Iterator[str]:
        """Names in the expression; raises on what may not be in it."""
        parts: list[ast.AST] = []
        match node:
            case ast.Constant(value=bool() | int() | float() | str()):
                pass
            case ast.Constant():
                raise self._refuse("something that is no number or text")
            case ast.Name(id=name):
                yield name
            case ast.Attribute(value=ast.Name(id=name), attr=field) if not field.startswith("_"):
                yield f"{name}.{field}"
            case ast.Attribute():
                raise self._refuse("a field it may not read")
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC:
                parts = [left, right]
                # Python would repeat and format text, to any length.
                if any(isinstance(part, ast.Constant) and isinstance(part.value, str) for part in parts):
                    raise self._refuse("arithmetic on text")
            case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=inner):
                parts = [inner]
            case ast.BoolOp(values=values):
                parts = list(values)
            case ast.Compare(left=left, ops=ops, comparators=others) if all(type(op) in _COMPARE for op in ops):
                parts = [left, *others]
            case ast.Call(func=ast.Name(id=name), args=arguments, keywords=keywords) if name in _ARITIES:
                if len(arguments) != _ARITIES[name] or keywords:
                    raise self._refuse(f"{name} without its {_ARITIES[name]} arguments")
                parts = list(arguments)
            case _:
                raise self._refuse(f"a {type(node).__name__}")
        for part in parts:
            yield from self._names(part)


def among(*tables: Mapping[str, Any]) -> Callable[[str], Any]:
    """What gives the value of a name: the first of some tables that has it, outputs before inputs."""

    def value(name: str) -> Any:
        for table in tables:
            if name in table:
                return table[name]
        raise InputError(f"There is no output {name!r}; there are {', '.join(tables[0])}.")

    return value


def _evaluate(node: ast.AST, value: Callable[[str], Any], algebra: Algebra) -> Any:
    def of(part: ast.AST) -> Any:
        return _evaluate(part, value, algebra)

    operators = algebra.operators
    match node:
        case ast.Constant(value=constant):
            return algebra.constant(constant)
        case ast.Name(id=name):
            return value(name)
        case ast.Attribute(value=ast.Name(id=name), attr=field):
            return value(f"{name}.{field}")
        case ast.BinOp(left=left, op=op, right=right):
            return operators[type(op)](of(left), of(right))
        case ast.UnaryOp(op=op, operand=inner):
            return operators[type(op)](of(inner))
        case ast.BoolOp(op=op, values=parts):
            return reduce(operators[type(op)], map(of, parts))
        case ast.Compare(left=left, ops=ops, comparators=others):
            sides = [of(part) for part in (left, *others)]
            held = [operators[type(op)](*pair) for op, pair in zip(ops, pairwise(sides), strict=True)]
            return reduce(operators[ast.And], held)
    assert isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    return algebra.functions[node.func.id](*map(of, node.args))


# --- over boxes -------------------------------------------------------------------------------------------------------
# A number is a pair (lowest, highest), a comparison a pair (surely, possibly). Each operation rounds as the expression itself does,
# and rounding is monotone, so that the pair of a box of points encloses the value at every point in it. Where little can be said
# (a division by an interval around zero, a remainder of a range) the pair is wide, never wrong.


class Pair(NamedTuple):
    """Lowest and highest; for text, the same value twice where it is one, and None where it is not known."""

    low: Any
    high: Any


def unknown(size: int) -> Pair:
    """Any number."""
    return Pair(np.full(size, -np.inf), np.full(size, np.inf))


def enclose(expression: Expression, value: Callable[[str], Pair]) -> Pair:
    """Where the expression surely holds, and where it possibly does."""
    return expression(value, _PAIRS)


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
