"""Constraints as data: ``"global_batch % (dp * micro_batch) == 0"``, ``"tp <= 8 or precision == 'fp8'"``.

An expression is parsed once, checked against a short list of what may stand in it (names, numbers, text, arithmetic,
comparisons, ``and``/``or``/``not``, ``min``, ``max``, ``abs``, ``log2``) and evaluated on arrays, or in another algebra. ``model.layers`` reads a field of
a zoo entry. Nothing else of Python is reachable.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from typing import Any

import numpy as np

from mlsysim.errors import InputError, unknown_name


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
            tree = ast.parse(self.text, mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            raise InputError(f"The constraint {self.text!r} cannot be read; write it like 'heads % tp == 0'.") from None
        self.names: tuple[str, ...] = ()
        self._check(tree)
        self._tree = tree
        if not isinstance(tree, (ast.Compare, ast.BoolOp)) and not (
            isinstance(tree, ast.UnaryOp) and isinstance(tree.op, ast.Not)
        ):
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

    def _check(self, node: ast.AST) -> None:
        if isinstance(node, ast.Constant):
            if not isinstance(node.value, (bool, int, float, str)):
                raise self._refuse("something that is no number or text")
        elif isinstance(node, ast.Name):
            self._add(node.id)
        elif isinstance(node, ast.Attribute):
            if not isinstance(node.value, ast.Name) or node.attr.startswith("_"):
                raise self._refuse("a field it may not read")
            self._add(f"{node.value.id}.{node.attr}")
        elif isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
            for part in (node.left, node.right):
                # Python would repeat and format text, to any length.
                if isinstance(part, ast.Constant) and isinstance(part.value, str):
                    raise self._refuse("arithmetic on text")
                self._check(part)
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.Not, ast.USub)):
            self._check(node.operand)
        elif isinstance(node, ast.BoolOp):
            for part in node.values:
                self._check(part)
        elif isinstance(node, ast.Compare) and all(type(op) in _COMPARE for op in node.ops):
            for part in (node.left, *node.comparators):
                self._check(part)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _ARITIES:
            arity = _ARITIES[node.func.id]
            if len(node.args) != arity or node.keywords:
                raise self._refuse(f"{node.func.id} without its {arity} arguments")
            for part in node.args:
                self._check(part)
        else:
            raise self._refuse(f"a {type(node).__name__}")

    def _add(self, name: str) -> None:
        if name not in self.names:
            self.names = (*self.names, name)


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
