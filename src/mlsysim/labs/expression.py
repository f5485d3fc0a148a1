"""The arithmetic of lab files: ``"one.latency * tokens"``, ``"least(8, heads)"``, ``"'Memory' if t > c else 'Compute'"``.

An expression is parsed once and checked against a short list of what may stand in it: names and fields of what a lab
computes, numbers, text, ``+ - * / // % **``, comparisons, ``and or not``, ``A if B else C`` and the functions below. It is
then walked by :meth:`Formula.value`; nothing else of Python is reachable. Numbers are plain or quantities, so that
units are checked in passing: adding a time to a number of bytes is an error. A unit is written as ``q('2 min')``.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any

from pydantic import BaseModel

from mlsysim.errors import InputError, unknown_name
from mlsysim.hardware.registry import Hardware
from mlsysim.infra.registry import Grids
from mlsysim.models.registry import Models
from mlsysim.plans.answer import Answer
from mlsysim.units.registry import DimensionalityError, Quantity, parse_quantity

_LONGEST = 400
_MOST_POWER = 64


def _power(base: Any, exponent: Any) -> Any:
    if isinstance(exponent, Quantity) or abs(exponent) > _MOST_POWER:
        raise InputError(f"A power in a lab is a plain number of at most {_MOST_POWER}, got {exponent}.")
    return base**exponent


def _rounded(how: Callable[[float], int]) -> Callable[[Any], int]:
    def apply(value: Any) -> int:
        plain = float(value.to("").magnitude) if isinstance(value, Quantity) else float(value)
        # What is a whole number but for the last bits is that number in every mathematical library.
        return round(plain) if math.isclose(plain, round(plain), rel_tol=1e-9) else how(plain)

    return apply


def _root(value: Any) -> Any:
    return value**0.5


def _log2(value: Any) -> float:
    return math.log2(value.to("").magnitude if isinstance(value, Quantity) else value)


_OPERATORS: dict[type, Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: _power,
    ast.USub: operator.neg,
    ast.Not: operator.not_,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "q": parse_quantity,
    "ceil": _rounded(math.ceil),
    "floor": _rounded(math.floor),
    "sqrt": _root,
    "log2": _log2,
    "abs": abs,
    "min": min,
    "max": max,
    "text": str,
    "Hardware": Hardware.get,
    "Models": Models.get,
    "Grids": Grids.get,
}


class Formula:
    """One checked expression."""

    def __init__(self, text: str) -> None:
        self.text = text.strip()
        if not self.text or len(self.text) > _LONGEST:
            raise InputError(f"An expression has 1 to {_LONGEST} characters, got {len(self.text)}.")
        try:
            self._tree = ast.parse(self.text, mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            raise InputError(f"The expression {self.text!r} cannot be read; write it like 'one.latency * 2'.") from None
        self.names = tuple(dict.fromkeys(self._checked(self._tree)))

    def value(self, lookup: Callable[[str], Any]) -> Any:
        """The value, with ``lookup`` for names."""
        try:
            return _value(self._tree, lookup)
        except (TypeError, ZeroDivisionError, OverflowError, DimensionalityError) as error:
            raise InputError(f"The expression {self.text!r} has no value: {error}.") from None

    def _refuse(self, what: str) -> InputError:
        return InputError(
            f"The expression {self.text!r} holds {what}; it may have names, fields, numbers, text, arithmetic, comparisons, "
            f"'A if B else C' and {', '.join(_FUNCTIONS)}."
        )

    def _checked(self, node: ast.AST) -> Iterator[str]:
        """Names that stand free in the expression; raises on what may not be in it."""
        parts: list[ast.AST]
        match node:
            case ast.Constant(value=bool() | int() | float() | str()):
                parts = []
            case ast.Name(id=name):
                yield name
                parts = []
            case ast.Attribute(value=inner, attr=field):
                if field.startswith("_"):
                    raise self._refuse(f"the private field {field!r}")
                parts = [inner]
            case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]):
                if name not in _FUNCTIONS:
                    raise unknown_name(f"function for the expression {self.text!r}", name, _FUNCTIONS)
                parts = list(arguments)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
                parts = [left, right]
            case ast.UnaryOp(op=op, operand=inner) if type(op) in _OPERATORS:
                parts = [inner]
            case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _OPERATORS:
                parts = [left, right]
            case ast.BoolOp(values=values):
                parts = list(values)
            case ast.IfExp(test=test, body=body, orelse=other):
                parts = [test, body, other]
            case _:
                raise self._refuse(f"a {type(node).__name__}")
        for part in parts:
            yield from self._checked(part)


formula = lru_cache(maxsize=4096)(Formula)


def _value(node: Any, lookup: Callable[[str], Any]) -> Any:
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Name(id=name):
            return lookup(name)
        case ast.Attribute(value=inner, attr=field):
            return field_of(_value(inner, lookup), field)
        case ast.Call(func=function, args=arguments):
            return _FUNCTIONS[function.id](*(_value(part, lookup) for part in arguments))  # type: ignore[attr-defined]
        case ast.BinOp(left=left, op=op, right=right):
            return _OPERATORS[type(op)](_value(left, lookup), _value(right, lookup))
        case ast.UnaryOp(op=op, operand=inner):
            return _OPERATORS[type(op)](_value(inner, lookup))
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            return bool(_OPERATORS[type(op)](_value(left, lookup), _value(right, lookup)))
        case ast.BoolOp(op=op, values=values):
            decide = all if isinstance(op, ast.And) else any
            return decide(_value(part, lookup) for part in values)
        case _:
            return _value(node.body if _value(node.test, lookup) else node.orelse, lookup)


def field_of(owner: Any, name: str) -> Any:
    """A field of a record or of a mapping, or a metric of an answer."""
    if isinstance(owner, Mapping):
        if name in owner:
            return owner[name]
        raise unknown_name("entry", name, [str(key) for key in owner])
    if isinstance(owner, Answer) and name not in type(owner).model_fields:
        return owner.value(name)
    value = (
        getattr(owner, name, None) if isinstance(owner, BaseModel) or hasattr(owner, "__dataclass_fields__") else None
    )
    if value is None or callable(value):
        fields = [*getattr(type(owner), "model_fields", ()), *getattr(owner, "__dataclass_fields__", ())]
        raise unknown_name(f"field of {type(owner).__name__}", name, fields)
    return value
