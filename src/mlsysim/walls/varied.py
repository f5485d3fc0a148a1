"""Fields of objects that vary: ``hardware.memory.bandwidth``, ``grid.carbon_intensity_g_kwh``, ``fleet.node.unit_cost``.

A path names an input of a resolver and then fields of what is given there. Records are frozen, so each value makes new ones
along the path, checked as if somebody had written them. The peak of a chip (``compute.peak_flops``) moves the peaks of all its
precisions in proportion, because one clock drives them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import reduce
from typing import Any, get_args

from pydantic import BaseModel

from mlsysim.errors import InputError, unknown_name
from mlsysim.hardware.types import ComputeCore
from mlsysim.units.fields import QuantityField
from mlsysim.units.registry import Quantity, format_unit
from mlsysim.walls.inputs import Input, read_input

_UNITS_OF_NAMES = {"_g_kwh": "gCO2e/kWh", "_hours": "h", "_kg": "kgCO2e", "_pct": "percent"}
"""Plain numbers whose name says their unit."""


def field_spec(entry: Any, path: tuple[str, ...], name: str) -> Input:
    """Unit and range of the field at the end of a path; an error where there is no such number."""
    owner = entry
    for step in path[:-1]:
        owner = _step(owner, step, name)
        if owner is None:
            raise InputError(f"{name!r} cannot vary: {step!r} is not known there.", field=name)
    last = path[-1]
    current = _step(owner, last, name)
    if isinstance(owner, Mapping):
        return _spec_of_value(current, name)
    return _spec_of_field(type(owner), last, name)


def with_field(entry: Any, path: tuple[str, ...], value: Any, spec: Input, name: str) -> Any:
    """The entry with another value at the end of a path."""
    if spec.kind != "quantity" or spec.plain_unit:
        value = read_input("solve", name, spec, value)
    return _replaced(entry, path, value, name)


def multiplied(entry: Any, path: str, factor: float) -> Any:
    """The entry with the value at the end of a path (``memory.bandwidth``) times a factor; as it is where none is known."""
    value = reduce(lambda owner, step: getattr(owner, step, None), path.split("."), entry)
    return entry if value is None else _replaced(entry, tuple(path.split(".")), value * factor, path)


def _replaced(entry: Any, path: tuple[str, ...], value: Any, name: str) -> Any:
    first, rest = path[0], path[1:]
    if rest:
        value = _replaced(_step(entry, first, name), rest, value, name)
    if isinstance(entry, Mapping):
        return {**entry, first: value}
    given = {field: getattr(entry, field) for field in entry.model_fields_set}
    if isinstance(entry, ComputeCore) and first == "peak_flops":
        ratio = float((value / entry.peak_flops).to("").magnitude)
        for peaks in ("precision_flops", "sparse_flops"):
            given[peaks] = {precision: rate * ratio for precision, rate in getattr(entry, peaks).items()}
    return type(entry)(**given | {first: value})


def _step(owner: Any, step: str, name: str) -> Any:
    if isinstance(owner, Mapping):
        if step not in owner:
            raise unknown_name(f"entry for {name!r}", step, owner)
        return owner[step]
    if not isinstance(owner, BaseModel):
        raise InputError(f"{name!r} cannot vary: there are no fields before {step!r}.", field=name)
    if step not in type(owner).model_fields:
        fields = type(owner).model_fields
        raise unknown_name(f"field of {type(owner).__name__} (in {name!r})", step, fields, f"use {', '.join(fields)}.")
    return getattr(owner, step)


def _spec_of_value(value: Any, name: str) -> Input:
    if isinstance(value, Quantity):
        unit = format_unit(value.units)
        return Input(name, "quantity", unit, low=0.0, example=f"{value:~P}")
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InputError(f"{name!r} cannot vary: it is not a number.", field=name)
    return Input(name, whole=isinstance(value, int))


def _spec_of_field(kind: type[BaseModel], field: str, name: str) -> Input:
    info = kind.model_fields[field]
    limits: dict[str, Any] = {}
    for note in info.metadata:
        for key, target in (("ge", "low"), ("gt", "low"), ("le", "high"), ("lt", "high")):
            end = getattr(note, key, None)
            if end is not None:
                limits |= {target: float(end), **({"low_open": True} if key == "gt" else {})}
    notes = [*info.metadata, *_notes(info.annotation)]
    quantity = next((note for note in notes if isinstance(note, QuantityField)), None)
    if quantity is not None:
        low = 0.0 if quantity.positive else None
        plain = "" if quantity.plain_number else None
        return Input(name, "quantity", quantity.unit, low=low, example=quantity.example, plain_unit=plain)
    types = {info.annotation, *get_args(info.annotation)}
    if not types & {int, float}:
        raise InputError(f"{name!r} cannot vary: it is not a number.", field=name)
    for suffix, unit in _UNITS_OF_NAMES.items():
        if field.endswith(suffix):
            return Input(name, "quantity", unit, plain_unit=unit, example=f"1 {unit}", **limits)
    return Input(name, whole=float not in types, **limits)


def _notes(annotation: Any) -> Iterator[Any]:
    """What ``Annotated`` says inside a union."""
    yield from getattr(annotation, "__metadata__", ())
    for part in get_args(annotation):
        yield from _notes(part)
