"""Axes of a design space: values written out, ranges, powers, divisors, zoo queries, and inputs that move together.

batch_size = [1, 2, 4]                                     the values
bandwidth  = {range = [1, 8], step = 0.5, unit = "TB/s"}   both ends included; or count = 15, or scale = "log" with count
tp         = {powers_of = 2, from = 1, to = 64}
dp         = {divisors_of = 4096, from = 1, to = 512}
hardware   = {zoo = "Hardware.Cloud", where = {vendor = "NVIDIA"}}
memory     = {linked = [{capacity = "80 GB", bandwidth = "3.35 TB/s"}, {capacity = "141 GB", bandwidth = "4.8 TB/s"}]}
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from mlsysim.errors import InputError, unknown_name
from mlsysim.units.records import dataclass
from mlsysim.units.registry import Q_, number_from
from mlsysim.walls.inputs import Input, read_input

_FORMS: dict[str, tuple[str, ...]] = {
    "values": ("unit",),
    "range": ("step", "count", "scale", "unit"),
    "powers_of": ("from", "to", "unit"),
    "divisors_of": ("from", "to"),
    "zoo": ("where",),
    "linked": (),
}
"""Forms of an axis, and what may stand beside each."""
_KEYS = (*_FORMS, "step", "count", "scale", "from", "to", "unit", "where")
_LARGEST = 1_000_000
_WORDS = ("sort_by", "reverse", "where")
"""Arguments of a registry's ``list`` that are no fields."""
_NAMES = ("model", "hardware", "fleet", "grid", "fabric")


@dataclass(frozen=True)
class Axis:
    """One digit of a point: ``columns`` gives, for each input that it sets, the values in order."""

    name: str
    columns: Mapping[str, tuple[Any, ...]]

    @property
    def size(self) -> int:
        return len(next(iter(self.columns.values())))


def read_axis(name: str, spec: Any, inputs: Mapping[str, Input], where: str) -> Axis:
    """An axis from its entry in a space file."""
    what = f"The axis {name!r} of {where}"
    if isinstance(spec, list):
        spec = {"values": spec}
    if not isinstance(spec, dict):
        raise InputError(f"{what} must be a list of values or a table such as {{range = [1, 8], step = 1}}.")
    for key in spec:
        if key not in _KEYS:
            raise unknown_name(f"key for the axis {name!r} of {where}", key, _KEYS, f"use one of {', '.join(_FORMS)}.")
    form, *others = [form for form in _FORMS if form in spec] or [""]
    if others or not form:
        raise InputError(f"{what} needs exactly one of {', '.join(_FORMS)}, got {len(others) + bool(form)}.")
    for key in spec:
        if key not in (form, *_FORMS[form]):
            raise InputError(f"{what}: {key!r} has no meaning beside {form!r}.")
    columns = _linked(what, spec["linked"]) if form == "linked" else {name: _FORM[form](what, spec)}
    sizes = {len(values) for values in columns.values()}
    if sizes == {0}:
        raise InputError(f"{what} has no values.")
    if max(sizes) > _LARGEST:
        raise InputError(f"{what} has {max(sizes):,} values; at most {_LARGEST:,} are kept.")
    read = {}
    for column, values in columns.items():
        if inputs and column not in inputs:
            raise unknown_name(f"input for {where}", column, inputs)
        known = inputs.get(column)
        if "unit" in spec:
            values = tuple(_in_unit(what, where, column, known, value, spec["unit"]) for value in values)
        read[column] = tuple(_plain(read_value(where, column, known, value)) for value in values)
        if len({(type(value) is str, value) for value in read[column]}) != len(values) and form != "linked":
            raise InputError(f"{what} has the same value twice.")
        if len({isinstance(value, str) for value in read[column]}) > 1:
            raise InputError(f"{what} mixes text and numbers.")
    return Axis(name, read)


def read_value(where: str, name: str, spec: Input | None, value: Any) -> Any:
    """A checked value: quantities as numbers in the declared unit, zoo entries by their name."""
    if spec is None:
        return value
    read = read_input(where, name, spec, value)
    return value if spec.kind in _NAMES else read


def _in_unit(what: str, where: str, name: str, spec: Input | None, value: Any, unit: Any) -> Any:
    """A plain number with the unit of its axis."""
    if not isinstance(unit, str) or isinstance(value, (str, bool)):
        raise InputError(f"{what}: 'unit' must be text beside plain numbers.")
    if spec is None:
        return value
    if spec.kind != "quantity":
        raise InputError(f"The {name!r} input of {where} is a plain number and takes no unit.", field=name)
    return Q_(value, unit)


def _plain(value: Any) -> Any:
    if not isinstance(value, (bool, int, float, str)):
        raise InputError(f"An axis holds numbers, text or true and false, got {type(value).__name__}.")
    if isinstance(value, float) and not math.isfinite(value):
        raise InputError(f"An axis needs finite values, got {value}.")
    return value


def _number(what: str, key: str, value: Any, *, whole: bool = False) -> Any:
    value = (number_from(value) or value) if isinstance(value, str) else value
    if isinstance(value, bool) or not isinstance(value, int if whole else (int, float)) or not math.isfinite(value):
        raise InputError(f"{what}: {key!r} must be a {'whole ' if whole else ''}number, got {str(value)[:40]!r}.")
    return value


def _values(what: str, spec: dict[str, Any]) -> tuple[Any, ...]:
    if not isinstance(spec["values"], list):
        raise InputError(f"{what}: 'values' must be a list.")
    return tuple(spec["values"])


def _range(what: str, spec: dict[str, Any]) -> tuple[Any, ...]:
    ends = spec["range"]
    if not isinstance(ends, list) or len(ends) != 2:
        raise InputError(f"{what}: 'range' must be [first, last].")
    first, last = (_number(what, "range", end) for end in ends)
    scale = spec.get("scale", "linear")
    if scale not in ("linear", "log"):
        raise unknown_name("scale of a range", scale, ("linear", "log"), "use linear or log.")
    if last < first or (scale == "log" and first <= 0):
        raise InputError(f"{what}: 'range' must go upwards{' from above 0' if scale == 'log' else ''}.")
    if "count" in spec:
        if "step" in spec:
            raise InputError(f"{what} needs 'step' or 'count', not both.")
        count = _number(what, "count", spec["count"], whole=True)
        if not 2 <= count <= _LARGEST:
            raise InputError(f"{what}: 'count' must be between 2 and {_LARGEST:,}, got {count}.")
        points = np.geomspace(first, last, count) if scale == "log" else np.linspace(first, last, count)
        return tuple(points.tolist())
    if scale == "log":
        raise InputError(f"{what}: a range on a log scale needs 'count'.")
    step = _number(what, "step", spec.get("step", 1))
    if step <= 0 or (last - first) / step > _LARGEST:
        raise InputError(f"{what}: 'step' must be above 0 and give at most {_LARGEST:,} values, got {step}.")
    count = math.floor((last - first) / step + 1e-9) + 1
    return tuple(first + step * i for i in range(count))


def _ends(what: str, spec: dict[str, Any], high: int) -> tuple[int, int]:
    return _number(what, "from", spec.get("from", 1)), _number(what, "to", spec.get("to", high))


def _powers(what: str, spec: dict[str, Any]) -> tuple[Any, ...]:
    base = _number(what, "powers_of", spec["powers_of"], whole=True)
    if base < 2 or "to" not in spec:
        raise InputError(f"{what}: 'powers_of' needs a base of at least 2 and an end, 'to'.")
    low, high = _ends(what, spec, 1)
    if high > 2**62:
        raise InputError(f"{what}: 'to' may be at most 2^62.")
    powers = (base**exponent for exponent in range(63))
    return tuple(power for power in powers if low <= power <= high)


def _divisors(what: str, spec: dict[str, Any]) -> tuple[Any, ...]:
    whole = _number(what, "divisors_of", spec["divisors_of"], whole=True)
    if not 1 <= whole <= 10**12:
        raise InputError(f"{what}: 'divisors_of' must be between 1 and 10^12, got {whole}.")
    low, high = _ends(what, spec, whole)
    small = [d for d in range(1, math.isqrt(whole) + 1) if whole % d == 0]
    return tuple(sorted({d for s in small for d in (s, whole // s) if low <= d <= high}))


def _zoo(what: str, spec: dict[str, Any]) -> tuple[Any, ...]:
    from mlsysim.hardware.registry import Hardware
    from mlsysim.infra.registry import Grids
    from mlsysim.models.registry import Models
    from mlsysim.systems.registry import Clusters, Fabrics, Nodes

    names = ("Hardware", "Models", "Grids", "Nodes", "Fabrics", "Clusters")
    zoos: dict[str, Any] = dict(zip(names, (Hardware, Models, Grids, Nodes, Fabrics, Clusters), strict=True))
    query, wanted = spec["zoo"], spec.get("where", {})
    if not isinstance(query, str) or not isinstance(wanted, dict):
        raise InputError(f"{what}: 'zoo' must be a name such as \"Hardware.Cloud\" and 'where' a table of fields.")
    first, *rest = query.split(".")
    if first not in zoos:
        raise unknown_name("zoo", first, zoos, f"use one of {', '.join(zoos)}.")
    registry = zoos[first]
    for part in rest:
        spaces = registry.namespaces
        if part not in spaces:
            raise unknown_name(f"part of the zoo {first!r}", part, spaces)
        registry = spaces[part]
    for key in wanted:
        if key in _WORDS:
            raise unknown_name(f"field of {first} entries", key, ())
    chosen = {id(entry) for entry in registry.list(**wanted)}
    return tuple(key for key in registry.keys() if id(registry.get(key)) in chosen)  # noqa: SIM118


def _linked(what: str, rows: Any) -> dict[str, tuple[Any, ...]]:
    if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) and row for row in rows):
        raise InputError(f"{what}: 'linked' must be a list of tables, each with the same inputs.")
    if any(row.keys() != rows[0].keys() for row in rows):
        raise InputError(f"{what}: every table of 'linked' must set the same inputs ({', '.join(rows[0])}).")
    return {column: tuple(row[column] for row in rows) for column in rows[0]}


_FORM = {"values": _values, "range": _range, "powers_of": _powers, "divisors_of": _divisors, "zoo": _zoo}
