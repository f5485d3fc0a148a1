"""Questions to a zoo as text: ``vendor=NVIDIA``, ``memory.capacity>=80GB``, and a field to sort by.

A path goes through declared fields and properties of entries and keys of their tables, and through nothing else of an
object, so that a question may come from anybody.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

from mlsysim.errors import DimensionalityError, InputError, UnknownNameError, either, unknown_name
from mlsysim.units.registry import Quantity, number_from, parse_quantity

_COMPARED = re.compile(r"^\s*([\w.]+)\s*(<=|>=|!=|==?|<|>)\s*(.+?)\s*$")
_LONGEST = 200
_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "=": lambda value, wanted: bool(value == wanted),
    "!=": lambda value, wanted: bool(value != wanted),
    "<": lambda value, wanted: bool(value < wanted),
    ">": lambda value, wanted: bool(value > wanted),
    "<=": lambda value, wanted: bool(value <= wanted),
    ">=": lambda value, wanted: bool(value >= wanted),
}


def field_of(entry: Any, path: str, zoo: str = "the zoo's") -> Any:
    """The value of a (dotted) field of an entry; None where a part of it is not known. ``zoo`` is for the sentence."""
    value = entry
    for step in path.split("."):
        if value is None:
            return None
        if isinstance(value, dict):
            value = value.get(step)
            continue
        declared = getattr(type(value), "model_fields", {})
        derived = not step.startswith("_") and isinstance(getattr(type(value), step, None), property)
        if step not in declared and not (declared and derived):
            inner = [
                f"{name}.{step}"
                for name in declared
                if step in getattr(type(getattr(entry, name, None)), "model_fields", ())
            ]
            known = f"the fields are {', '.join(declared)}." if declared else ""
            if inner:
                raise UnknownNameError(f"{step!r} is a part of a field: {either(inner)}.", name=step, suggestions=inner)
            raise unknown_name(f"field of {zoo} entries", step, declared, known)
        value = getattr(value, step)
    return value


def _part_in(value: Any, wanted: str) -> Any:
    """The first part of a field with parts that is in the unit of a wanted value: the capacity of a memory for 80GB; else the field."""
    parts = getattr(type(value), "model_fields", ())
    if not parts or isinstance(value, Quantity) or not re.search(r"[A-Za-z]", wanted):
        return value
    try:
        unit = parse_quantity(wanted)
    except InputError:
        return value
    named = [getattr(value, name) for name in parts]
    return next((each for each in named if isinstance(each, Quantity) and each.is_compatible_with(unit)), value)


def condition(text: str, word: str = "filter") -> Callable[[Any], bool]:
    """A test of an entry out of ``field op value``; quantities compare with units. ``word`` is what the sentences call it."""
    match = _COMPARED.match(text) if len(text) <= _LONGEST else None
    if match is None:
        raise InputError(
            f"{word} takes a field, a comparison and a value, such as vendor=NVIDIA, got {text[:60]!r}.", field="filter"
        )
    path, operator, wanted = match.groups()
    compare = _COMPARE["=" if operator == "==" else operator]

    def test(entry: Any) -> bool:
        value = _part_in(field_of(entry, path), wanted)
        if value is None:
            return False
        counted = isinstance(value, (int, float)) and not isinstance(value, bool)
        if counted or (isinstance(value, Quantity) and value.dimensionless):
            limit = number_from(wanted)
            if limit is None:
                raise InputError(
                    f"{word} {text[:60]!r}: {path} is a number such as 70B, got {wanted[:30]!r}.", field="filter"
                )
            return compare(value if counted else value.to("").magnitude, limit)
        if isinstance(value, Quantity):
            try:
                limit = parse_quantity(wanted).to(value.units).magnitude
            except DimensionalityError:
                raise InputError(
                    f"{word} {text[:60]!r}: {path} is in {value.units:~P}, and {wanted[:30]!r} is not.", field="filter"
                ) from None
            return compare(value.magnitude, limit)
        parts = value if isinstance(value, dict) else getattr(type(value), "model_fields", ())
        if parts:
            listed = ", ".join(f"{path}.{name}" for name in parts)
            raise InputError(f"{word} {text[:60]!r}: {path} has parts, {listed[:200]}; name one.", field="filter")
        return compare(str(value).lower(), wanted.lower())

    return test


def in_order(entries: Iterable[Any], path: str, *, reverse: bool = True, zoo: str = "the zoo's") -> list[Any]:
    """Entries by a field, largest first; those where it is not known come last."""
    known, unknown = [], []
    for entry in entries:
        value = field_of(entry, path, zoo)
        if value is None:
            unknown.append(entry)
            continue
        number = value.to_base_units().magnitude if isinstance(value, Quantity) else value
        if not isinstance(number, (int, float, str)):
            raise InputError(f"{path[:60]!r} is no number or text to sort by.", field="sort")
        known.append((number, entry))
    if len({isinstance(number, str) for number, _ in known}) > 1:
        raise InputError(f"{path[:60]!r} is text in some entries and a number in others.", field="sort")
    known.sort(key=lambda pair: pair[0], reverse=reverse)
    return [entry for _, entry in known] + unknown
