"""Constraints as data: ``"global_batch % (dp * micro_batch) == 0"``, ``"tp <= 8 or precision == 'fp8'"``.

An expression is parsed once, checked against a short list of what may stand in it (names, numbers, text, arithmetic,
comparisons, ``and``/``or``/``not``, ``min``, ``max``, ``abs``, ``log2``) and evaluated on arrays. ``model.layers`` reads a field of
a zoo entry. Nothing else of Python is reachable.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from mlsysim.errors import InputError, unknown_name

_BINARY: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_COMPARE: dict[type, Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_FUNCTIONS: dict[str, tuple[int, Callable[..., Any]]] = {
    "min": (2, np.minimum),
    "max": (2, np.maximum),
    "abs": (1, np.abs),
    "log2": (1, np.log2),
}
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

    def __call__(self, value: Callable[[str], Any]) -> Any:
        with np.errstate(divide="ignore", invalid="ignore"):
            try:
                return _evaluate(self._tree, value)
            except TypeError:
                raise InputError(
                    f"The constraint {self.text!r} computes with text, or compares it with a number."
                ) from None

    def _refuse(self, what: str) -> InputError:
        return InputError(
            f"The constraint {self.text!r} holds {what}; it may have names, numbers, + - * / // %, comparisons, and, or, not, "
            f"{', '.join(_FUNCTIONS)}."
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
        elif isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
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
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _FUNCTIONS:
            arity, _ = _FUNCTIONS[node.func.id]
            if len(node.args) != arity or node.keywords:
                raise self._refuse(f"{node.func.id} without its {arity} arguments")
            for part in node.args:
                self._check(part)
        else:
            raise self._refuse(f"a {type(node).__name__}")

    def _add(self, name: str) -> None:
        if name not in self.names:
            self.names = (*self.names, name)


def _evaluate(node: ast.AST, value: Callable[[str], Any]) -> Any:
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        return value(node.id)
    if isinstance(node, ast.Attribute):
        return value(f"{node.value.id}.{node.attr}")  # type: ignore[attr-defined]
    if isinstance(node, ast.BinOp):
        return _BINARY[type(node.op)](_evaluate(node.left, value), _evaluate(node.right, value))
    if isinstance(node, ast.UnaryOp):
        inner = _evaluate(node.operand, value)
        return np.logical_not(inner) if isinstance(node.op, ast.Not) else -inner
    if isinstance(node, ast.BoolOp):
        join = np.logical_and if isinstance(node.op, ast.And) else np.logical_or
        result = _evaluate(node.values[0], value)
        for part in node.values[1:]:
            result = join(result, _evaluate(part, value))
        return result
    if isinstance(node, ast.Compare):
        left = _evaluate(node.left, value)
        held: Any = True
        for op, part in zip(node.ops, node.comparators, strict=True):
            right = _evaluate(part, value)
            held = np.logical_and(held, _COMPARE[type(op)](left, right))
            left = right
        return held
    assert isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    return _FUNCTIONS[node.func.id][1](*(_evaluate(part, value) for part in node.args))
