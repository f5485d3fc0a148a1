"""What the charts are given: labels, and values that carry a unit, read into plain numbers of one unit.

A value is a quantity, a text such as ``"12 ms"``, or a number beside its unit: ``("compute", 5.3, "s")``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from mlsysim.errors import InputError, UnitError
from mlsysim.plot.svg import clean
from mlsysim.units.registry import DimensionalityError, Quantity, Unit, format_unit, parse_quantity, ureg

# Units in which values are kept, and the symbol that takes prefixes.
_BASES = {"s": "s", "byte": "B", "flop": "FLOP", "flop/s": "FLOP/s", "byte/s": "B/s", "flop/byte": "FLOP/B"}
_SMALLEST, _LARGEST = 1e-36, 1e36
MOST = 200
"""Items that a chart shows at most."""


def plain(value: Any, what: str, *, negative: bool = False, zero: bool = True) -> float:
    """A finite number that can be drawn, with what it is for the error."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InputError(f"The {what} must be a number, got {value!r:.60}.")
    if not abs(value) <= _LARGEST:
        raise InputError(f"The {what} must be a finite number up to {_LARGEST:g}, got {str(value)[:40]}.")
    number = float(value) if abs(value) >= _SMALLEST else 0.0
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
    if len(listed) > MOST:
        raise InputError(f"A chart shows at most {MOST} {what}, got {len(listed)}.")
    return listed


def fields(item: Any, said: str, *counts: int, **details: Any) -> Any:
    """An item that has so many fields; else the sentence of what it should be."""
    listed = all(hasattr(item, name) for name in ("__len__", "__getitem__"))
    if not listed or isinstance(item, (str, bytes, Mapping)) or len(item) not in counts:
        raise InputError(f"{said}, got {item!r:.60}.", **details)
    return item


def read_amount(
    value: Any, what: str, unit: Any = None, *, negative: bool = False, zero: bool = True
) -> tuple[float, str]:
    """A value in the unit in which it is kept, and that unit's symbol.

    >>> read_amount("80 GB", "capacity")
    (80000000000.0, 'B')
    """
    if isinstance(value, str) and unit is None:
        quantity = parse_quantity(value)
    elif isinstance(value, Quantity):
        quantity = value if unit is None else value.to(unit)
    elif unit is not None and not isinstance(unit, (str, Unit)):
        raise UnitError(f"The unit of the {what} must be a text such as 's', got {unit!r:.60}.")
    else:
        quantity = Quantity(plain(value, what, negative=True), ureg.Unit("" if unit is None else unit))
    for base, symbol in _BASES.items():
        if quantity.check(ureg.Unit(base).dimensionality):
            return plain(float(quantity.to(base).magnitude), what, negative=negative, zero=zero), symbol
    symbol = format_unit(quantity.units).replace("percent", "%")
    return plain(float(quantity.magnitude), what, negative=negative, zero=zero), symbol


Parts = list[tuple[str, float]]


def read_parts(parts: Any) -> tuple[Parts, str]:
    """Pairs (label, amount) or triples (label, number, unit), or a mapping: labels with values, and the unit of them all."""
    read: Parts = []
    unit = None
    for item in sequence(parts, "parts"):
        label, value, *given = fields(item, "Each of the parts is (label, amount) or (label, number, unit)", 2, 3)
        label = read_label(label)
        number, symbol = read_amount(value, f"value of {label[:40]!r}", *given)
        unit = symbol if unit is None else unit
        if symbol != unit:
            try:
                number = float(Quantity(number, ureg.Unit(symbol)).to(ureg.Unit(unit)).magnitude)
            except (DimensionalityError, UnitError):
                raise UnitError(
                    f"{label[:60]!r} is in {symbol or 'no unit'}, but the parts before it are in {unit or 'no unit'}."
                ) from None
        read.append((label, number))
    return read, unit or ""
