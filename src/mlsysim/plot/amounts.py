"""What the charts are given: labels, and values that carry a unit, read into plain numbers of one unit.

A value is a quantity, a text such as ``"12 ms"``, or a number beside its unit: ``("compute", 5.3, "s")``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from mlsysim.errors import InputError, UnitError
from mlsysim.plot.svg import clean
from mlsysim.units.registry import DimensionalityError, Quantity, Unit, format_unit, parse_quantity, ureg

# Units in which values are kept, and the symbol that takes prefixes.
_BASES = (
    ("s", "s"),
    ("byte", "B"),
    ("flop", "FLOP"),
    ("flop/s", "FLOP/s"),
    ("byte/s", "B/s"),
    ("flop/byte", "FLOP/B"),
)
_SMALLEST, _LARGEST = 1e-36, 1e36
_MOST = 200


@dataclass(frozen=True)
class Amounts:
    """Labels and their values in one unit, whose symbol is ``unit``."""

    labels: tuple[str, ...]
    values: tuple[float, ...]
    unit: str


def plain(value: Any, what: str, *, negative: bool = False, zero: bool = True) -> float:
    """A finite number that can be drawn, with what it is for the error."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InputError(f"The {what} must be a number, got {value!r:.60}.")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number) or abs(number) > _LARGEST:
        raise InputError(f"The {what} must be a finite number up to {_LARGEST:g}, got {str(value)[:40]}.")
    if abs(number) < _SMALLEST:
        number = 0.0
    if number < 0 and not negative:
        raise InputError(f"The {what} must not be negative, got {number:g}.")
    if number == 0 and not zero:
        raise InputError(f"The {what} must be greater than zero.")
    return number


def read_label(label: Any) -> str:
    """A label as one clean line."""
    text = clean(label)
    if not isinstance(label, str) or not text:
        raise InputError(f"A label is a text such as 'compute', got {label!r:.60}.")
    return text


def sequence(items: Any, what: str) -> list[Any]:
    """The items as a list that is neither empty nor endless."""
    if isinstance(items, (str, bytes)) or not isinstance(items, Iterable):
        raise InputError(f"A chart needs a list of {what}, got {items!r:.60}.")
    listed = list(items.items()) if isinstance(items, Mapping) else list(items)
    if not listed:
        raise InputError(f"A chart needs at least one of its {what}, got none.")
    if len(listed) > _MOST:
        raise InputError(f"A chart shows at most {_MOST} {what}, got {len(listed)}.")
    return listed


def _as_quantity(value: Any, unit: Any, what: str) -> Any:
    if isinstance(value, str) and unit is None:
        return parse_quantity(value)
    if isinstance(value, Quantity):
        return value if unit is None else value.to(unit)
    if unit is None:
        unit = ""
    if not isinstance(unit, (str, Unit)):
        raise UnitError(f"The unit of the {what} must be a text such as 's', got {unit!r:.60}.")
    return Quantity(plain(value, what, negative=True), ureg.Unit(unit) if isinstance(unit, str) else unit)


def read_amount(
    value: Any, what: str, unit: Any = None, *, negative: bool = False, zero: bool = True
) -> tuple[float, str]:
    """A value in the unit in which it is kept, and that unit's symbol.

    >>> read_amount("80 GB", "capacity")
    (80000000000.0, 'B')
    """
    quantity = _as_quantity(value, unit, what)
    for base, symbol in _BASES:
        if quantity.check(ureg.Unit(base).dimensionality):
            return plain(float(quantity.to(base).magnitude), what, negative=negative, zero=zero), symbol
    symbol = format_unit(quantity.units).replace("percent", "%")
    return plain(float(quantity.magnitude), what, negative=negative, zero=zero), symbol


def read_parts(parts: Any) -> Amounts:
    """Pairs (label, amount) or triples (label, number, unit), or a mapping, all of one dimension."""
    labels, values, unit = [], [], None
    for item in sequence(parts, "parts"):
        if isinstance(item, (str, bytes)) or not hasattr(item, "__len__") or len(item) not in (2, 3):
            raise InputError(f"Each of the parts is (label, amount) or (label, number, unit), got {item!r:.60}.")
        label = read_label(item[0])
        given = item[2] if len(item) == 3 else None
        value, symbol = read_amount(item[1], f"value of {label[:40]!r}", given)
        if unit is None:
            unit = symbol
        elif symbol != unit:
            value = _converted(value, symbol, unit, label)
        labels.append(label)
        values.append(value)
    assert unit is not None
    return Amounts(tuple(labels), tuple(values), unit)


def _converted(value: float, symbol: str, unit: str, label: str) -> float:
    try:
        return float(Quantity(value, ureg.Unit(symbol)).to(ureg.Unit(unit)).magnitude)
    except (DimensionalityError, UnitError):
        raise UnitError(
            f"{label[:60]!r} is in {symbol or 'no unit'}, but the parts before it are in {unit or 'no unit'}."
        ) from None
