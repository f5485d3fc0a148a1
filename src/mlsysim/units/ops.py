"""The few functions that kernels need beyond arithmetic, for floats, NumPy arrays and quantities alike.

A kernel is written once and runs on a float (interactive use), on an array (a sweep) and on a quantity (the proof of
its dimensions). Floats go to :mod:`math`, quantities are checked (``log`` wants a dimensionless argument, ``maximum``
two of the same dimension), and anything else is taken to be an array; NumPy is imported only then. A type with an
algebra of its own says so by ``__maximum__``, ``__minimum__`` and ``__where__``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from mlsysim.units.registry import Quantity

__all__ = ["ceil", "exp", "expm1", "floor", "log", "log2", "maximum", "minimum", "power"]
__all__ += ["either", "some", "sqrt", "taken", "where"]

_SCALARS = (float, int)
_PLAIN = frozenset((float, int, bool))
"""Types of nearly all that is asked for one by one; to look a type up here is faster than to ask what it derives from."""


def arrays() -> Any:
    """NumPy, where there are arrays."""
    import numpy

    return numpy


def maximum(a: Any, b: Any) -> Any:
    """The larger of two, element by element."""
    if type(a) in _PLAIN and type(b) in _PLAIN:
        return a if a >= b else b
    if isinstance(a, _SCALARS) and isinstance(b, _SCALARS):
        return a if a >= b else b
    return _pair("maximum", a, b)


def minimum(a: Any, b: Any) -> Any:
    """The smaller of two, element by element."""
    if type(a) in _PLAIN and type(b) in _PLAIN:
        return a if a <= b else b
    if isinstance(a, _SCALARS) and isinstance(b, _SCALARS):
        return a if a <= b else b
    return _pair("minimum", a, b)


def _pair(name: str, a: Any, b: Any) -> Any:
    if isinstance(a, Quantity) or isinstance(b, Quantity):
        a, b = _same_unit(a, b)
        function = maximum if name == "maximum" else minimum
        return Quantity(function(a.magnitude, b.magnitude), a.units)
    own = getattr(a, f"__{name}__", None) or getattr(b, f"__{name}__", None)
    return own(a, b) if own is not None else getattr(arrays(), name)(a, b)


def _same_unit(a: Any, b: Any) -> tuple[Any, Any]:
    """Both in one unit; a plain zero is a zero of anything, as in pint's sums."""
    a = a if isinstance(a, Quantity) else Quantity(a, b.units if _is_zero(a) else "")
    b = b if isinstance(b, Quantity) else Quantity(b, a.units if _is_zero(b) else "")
    return a, b.to(a.units)


def _is_zero(x: Any) -> bool:
    return isinstance(x, _SCALARS) and x == 0


def where(condition: Any, a: Any, b: Any) -> Any:
    """``a`` where the condition holds, else ``b``. Both are evaluated."""
    if type(condition) is bool and type(a) in _PLAIN and type(b) in _PLAIN:
        return a if condition else b
    if isinstance(a, Quantity) or isinstance(b, Quantity):
        a, b = _same_unit(a, b)
        return Quantity(where(condition, a.magnitude, b.magnitude), a.units)
    if isinstance(condition, bool):
        return a if condition else b
    own = getattr(a, "__where__", None) or getattr(b, "__where__", None)
    if own is not None:
        return own(condition, a, b)
    return arrays().where(condition, a, b)


def either(condition: Any, yes: Callable[..., Any], no: Any, *values: Any) -> Any:
    """``yes(*values)`` where the condition holds, else ``no(*values)``, or ``no`` where that is a value; of arrays each is evaluated at its own
    points alone."""
    if isinstance(condition, bool) or condition.ndim == 0:
        return yes(*values) if condition else _called(no, values)
    if condition.all() or not condition.any():
        return yes(*values) if condition.any() else _called(no, values)
    if not all(_of_shape(value, condition.shape) for value in (values if callable(no) else (*values, no))):
        return where(condition, yes(*values), _called(no, values))
    numpy, at = arrays(), condition.nonzero()[0]
    part = yes(*(taken(value, at) for value in values))
    if callable(no):
        rest = (~condition).nonzero()[0]
        other = no(*(taken(value, rest) for value in values))
        found = numpy.empty(condition.shape, numpy.result_type(part, other))
        found[rest] = other
    else:
        found = numpy.full(condition.shape, no, numpy.result_type(part, no))
    found[at] = part
    return found


def _called(no: Any, values: tuple[Any, ...]) -> Any:
    return no(*values) if callable(no) else no


def _of_shape(value: Any, shape: tuple[int, ...]) -> bool:
    """Whether a value is a number that all points share or has one for each of them."""
    if isinstance(value, tuple):
        return all(_of_shape(each, shape) for each in value)
    return value is None or isinstance(value, _SCALARS) or (len(shape) == 1 and getattr(value, "shape", None) == shape)


Once = Callable[..., Any]
"""What a function gives of some values, once for a key that says all it depends on, or each time: ``once(key, make, *values)``."""


def each_time(key: tuple[Any, ...], make: Callable[..., Any], *values: Any) -> Any:
    """The function is called whatever its key."""
    return make(*values)


def _dimensionless(x: Any) -> Any:
    return x.to("").magnitude if isinstance(x, Quantity) else x


def _plain(name: str, words: str, whole: bool = False) -> Callable[[Any], Any]:
    """A function of one dimensionless argument that :mod:`math` and NumPy know by the same name."""
    on_float = getattr(math, name)

    def function(x: Any) -> Any:
        if type(x) in _PLAIN:
            return float(on_float(x)) if whole else on_float(x)
        x = _dimensionless(x)
        if not isinstance(x, _SCALARS):
            return getattr(arrays(), name)(x)
        return float(on_float(x)) if whole else on_float(x)

    function.__name__, function.__doc__ = name, words
    return function


ceil = _plain("ceil", "The next whole number; for counts, which have no dimension.", whole=True)
floor = _plain("floor", "The whole number below; for counts, which have no dimension.", whole=True)
log = _plain("log", "Natural logarithm of a dimensionless argument.")
log2 = _plain("log2", "Binary logarithm of a dimensionless argument.")
exp = _plain("exp", "Exponential of a dimensionless argument.")
expm1 = _plain("expm1", "Exponential minus one of a dimensionless argument, exact where the argument is small.")


def sqrt(x: Any) -> Any:
    """Square root; of a quantity it has the square root of the unit."""
    if isinstance(x, Quantity):
        return x**0.5
    return math.sqrt(x) if isinstance(x, _SCALARS) else arrays().sqrt(x)


def power(x: Any, exponent: Any) -> Any:
    """``x`` to a dimensionless exponent; a base with a dimension needs a constant exponent, so it is refused here.

    A root of a negative number is not a number, on floats as on arrays.
    """
    if not (isinstance(x, float) and isinstance(exponent, float)):
        x, exponent = _dimensionless(x), _dimensionless(exponent)
    result = x**exponent
    return math.nan if isinstance(result, complex) else result


def taken(value: Any, index: Any) -> Any:
    """Of an array, or of each in a tuple or a record, the elements at some places; a number that all share stays."""
    if type(value) in _PLAIN:
        return value
    if hasattr(value, "dtype"):
        # All places are there; an array that need not check them is several times faster.
        return value.take(index, mode="clip") if value.ndim else value
    if hasattr(value, "take"):
        return value.take(index)
    if isinstance(value, tuple):
        each = [taken(one, index) for one in value]
        return type(value)(*each) if hasattr(value, "_fields") else tuple(each)
    if hasattr(value, "__dataclass_fields__"):
        own = {name: getattr(value, name) for name in value.__dataclass_fields__}
        new = {name: part for name, one in own.items() if (part := taken(one, index)) is not one}
        return replace(value, **new) if new else value
    return value


def some(condition: Any) -> bool:
    """Whether a condition holds, of an array anywhere."""
    return bool(condition.any()) if hasattr(condition, "any") else bool(condition)
