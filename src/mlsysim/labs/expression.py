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
from dataclasses import is_dataclass
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


def _plain(value: Any) -> float:
    return float(value.to("").magnitude if isinstance(value, Quantity) else value)


def _whole(value: Any, how: Callable[[float], int]) -> int:
    plain = _plain(value)
    # What is a whole number but for the last bits is that number in every mathematical library.
    return round(plain) if math.isclose(plain, round(plain), rel_tol=1e-9) else how(plain)


_OPERATORS: dict[type, Callable[..., Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.Pow: _power, ast.USub: operator.neg,
    ast.Not: operator.not_, ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le,
    ast.Gt: operator.gt, ast.GtE: operator.ge,
}  # fmt: skip
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "q": parse_quantity,
    "ceil": lambda value: _whole(value, math.ceil),
    "floor": lambda value: _whole(value, math.floor),
    "sqrt": lambda value: value**0.5,
    "log2": lambda value: math.log2(_plain(value)),
    **{"abs": abs, "min": min, "max": max, "text": str},
    **{"Hardware": Hardware.get, "Models": Models.get, "Grids": Grids.get},
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
        match node:
            case ast.Constant(value=bool() | int() | float() | str()) | ast.BoolOp() | ast.IfExp():
                pass
            case ast.BinOp(op=op) | ast.UnaryOp(op=op) | ast.Compare(ops=[op]) if type(op) in _OPERATORS:
                pass
            case ast.Name(id=name):
                yield name
            case ast.Attribute(attr=field):
                if field.startswith("_"):
                    raise self._refuse(f"the private field {field!r}")
            case ast.Call(func=ast.Name(id=name), keywords=[]):
                if name not in _FUNCTIONS:
                    raise unknown_name(f"function for the expression {self.text!r}", name, _FUNCTIONS)
            case _:
                raise self._refuse(f"a {type(node).__name__}")
        for part in _parts(node):
            yield from self._checked(part)


formula = lru_cache(maxsize=4096)(Formula)


def _parts(node: ast.AST) -> list[ast.AST]:
    """The expressions that an expression is made of, in their order."""
    if isinstance(node, ast.Call):
        return list(node.args)
    return [part for part in ast.iter_child_nodes(node) if isinstance(part, ast.expr)]


def _value(node: Any, lookup: Callable[[str], Any]) -> Any:
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Name(id=name):
            return lookup(name)
        case ast.BoolOp(op=joined, values=parts):
            return (all if isinstance(joined, ast.And) else any)(_value(part, lookup) for part in parts)
        case ast.IfExp(test=test, body=body, orelse=other):
            return _value(body if _value(test, lookup) else other, lookup)
    values = [_value(part, lookup) for part in _parts(node)]
    match node:
        case ast.Attribute(attr=field):
            return field_of(values[0], field)
        case ast.Call(func=ast.Name(id=name)):
            return _FUNCTIONS[name](*values)
        case ast.Compare(ops=[op]):
            return bool(_OPERATORS[type(op)](*values))
    return _OPERATORS[type(node.op)](*values)


def field_of(owner: Any, name: str) -> Any:
    """A field of a record or of a mapping, or a metric of an answer."""
    if isinstance(owner, Mapping):
        if name in owner:
            return owner[name]
        raise unknown_name("entry", name, [str(key) for key in owner])
    if isinstance(owner, Answer) and name not in type(owner).model_fields:
        return owner.value(name)
    fields = [*getattr(type(owner), "model_fields", ()), *getattr(owner, "__dataclass_fields__", ())]
    value = getattr(owner, name, None) if isinstance(owner, BaseModel) or is_dataclass(owner) else None
    if value is None or callable(value):
        raise unknown_name(f"field of {type(owner).__name__}", name, fields)
    return value
