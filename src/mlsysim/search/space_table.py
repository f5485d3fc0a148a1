"""The table of a space file, read and checked: what :class:`mlsysim.search.space.Space` is made of, and its JSON Schema."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mlsysim.errors import InputError, refuse_address, unknown_name
from mlsysim.models.registry import Models
from mlsysim.search.axes import read_axis, read_value
from mlsysim.search.expression import Expression
from mlsysim.search.kinds import Kind, kind_named
from mlsysim.search.uncertainty import KEYS, UNCERTAINTY_SCHEMA, read_uncertainty
from mlsysim.vocabulary import same_as
from mlsysim.walls.inputs import CALIBRATED, input_schema

_KEYS = (
    *("name", "description", "kind", "fidelity", "axes", "fixed", "constraints", "subject_to"),
    *("minimize", "maximize", "pareto", "top", *KEYS),
)
_OF_PLANS = (
    *("simulate", "seeds", "start", "pause_above", "demand_response", "elastic", "repair_crews", "maintenance"),
    *("slow_nodes", "preempted_every", "deadline", "prompts", "samples", "response", "split", "staleness"),
)
"""Inputs of runs that are played or counted by the hour, and of post-training, which have no closed form on arrays."""
MOST_TOP = 10_000
"""Designs that may be kept at most."""
OBJECTIVES = (2, 6)
"""Outputs of a Pareto front, at least and at most."""


def read_toml(path: str | Path) -> dict[str, Any]:
    """The table of a space file."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        refuse_address(path)
        reason = getattr(error, "strerror", None) or "not UTF-8 text"
        raise InputError(f"The space file {str(path)!r} cannot be read: {reason}.") from None
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InputError(f"The space file {str(path)!r} is not TOML: {error}.") from None


def read_table(table: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Fields of the space that a table describes, all but its goals."""
    for key in table:
        if key not in _KEYS:
            raise unknown_name("key of a space", key, _KEYS, f"use one of {', '.join(_KEYS)}.")
    if "kind" not in table:
        raise InputError("A space needs a 'kind', such as kind = \"node\".")
    kind = kind_named(table["kind"])
    name = str(table.get("name", name))
    inputs, where = kind.inputs, f"{name!r}"
    axes = _by_their_names(_table(table, "axes"), inputs)
    if not axes:
        raise InputError(f"The space {where} needs at least one axis under [axes].")
    read = tuple(read_axis(axis_name, spec, inputs, where) for axis_name, spec in axes.items())
    columns: dict[str, tuple[Any, ...]] = {}
    for axis in read:
        for column in axis.columns:
            if column in columns:
                raise InputError(f"The input {column!r} of {where} is on two axes.")
        columns |= axis.columns
    fixed = {}
    for key, value in _by_their_names(_table(table, "fixed"), inputs).items():
        if inputs and key not in inputs:
            raise unknown_name(f"input for {where}", key, inputs)
        if key in columns:
            raise InputError(f"The input {key!r} of {where} is both fixed and on an axis.")
        fixed[key] = read_value(where, key, inputs.get(key), value)
    _check_named_once([*columns, *fixed], inputs, where)
    if _calibrated(table.get("fidelity", "first order"), kind):
        if "efficiency" in columns or fixed.get("efficiency", CALIBRATED) != CALIBRATED:
            raise InputError(f"The space {where} is calibrated, so that it takes no efficiency.")
        fixed["efficiency"] = CALIBRATED
    elif "fidelity" in table and _has_calibrated(kind) and "efficiency" not in {*columns, *fixed}:
        fixed["efficiency"] = inputs["efficiency"].default
    uncertain = read_uncertainty(table, inputs, fixed, columns, where)
    known = {*columns, *fixed, *(uncertain.inputs if uncertain is not None else ())}
    for key, spec in inputs.items():
        if spec.required and key not in known:
            raise InputError(f"The space {where} needs {key!r} ({spec.meaning}), fixed or on an axis.")
    if "precision" in inputs and "precision" not in known and kind.name in ("serving", "node"):
        own = {
            Models.get(model).native_format for model in columns.get("model", (fixed.get("model"),)) if model in Models
        }
        if len(own) == 1 and (native := own.pop()) is not None:
            fixed["precision"] = native
    if kind.is_calibrated(known, columns.get("model", (fixed.get("model"),))):
        fixed["efficiency"] = CALIBRATED
    return {
        "kind": kind.name,
        "axes": read,
        "fixed": fixed,
        "constraints": _expressions(table, "constraints"),
        "subject_to": _expressions(table, "subject_to"),
        "name": name,
        "description": str(table.get("description", "")),
        "uncertain": uncertain,
    }


def _check_named_once(names: list[str], inputs: Mapping[str, Any], where: str) -> None:
    """Refuse an input that stands there under two of its names, which are declared as one."""
    seen: dict[int, str] = {}
    for name in names:
        other = seen.setdefault(id(inputs[name]), name) if name in inputs else name
        if other != name:
            raise InputError(f"{other!r} and {name!r} of {where} are names of one input; give one of them.", field=name)


def _by_their_names(table: dict[str, Any], inputs: Mapping[str, Any]) -> dict[str, Any]:
    """A table whose keys may be other names of the vocabulary, by the names of the inputs."""
    found: dict[str, Any] = {}
    for name, value in table.items():
        key = same_as(name, inputs) or name
        if key in _OF_PLANS and key not in inputs:
            words = "needs whole answers, which a space has not; sweep a plan instead"
            raise InputError(f"{key!r} {words}: mlsysim sweep PLAN {key}=VALUE,VALUE.", field=key)
        if key in found:
            raise InputError(f"{name!r} and another name of {key!r} are given; give one of them.", field=name)
        found[key] = value
    return found


def schema(kind: str) -> dict[str, Any]:
    """JSON Schema of a space file of a kind."""
    inputs = {name: input_schema(spec) for name, spec in kind_named(kind).inputs.items()}
    texts = {"type": "array", "items": {"type": "string"}}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "required": ["kind", "axes"],
        "additionalProperties": False,
        "properties": {
            "name": {"type": "string"},
            "description": {"type": "string"},
            "kind": {"const": kind},
            "fidelity": {"enum": ["first order", *([CALIBRATED] if _has_calibrated(kind_named(kind)) else [])]},
            "axes": {"type": "object", "minProperties": 1},
            "fixed": {"type": "object", "properties": inputs, "additionalProperties": not inputs},
            "constraints": texts,
            "subject_to": texts,
            "minimize": {"type": "string"},
            "maximize": {"type": "string"},
            "pareto": {**texts, "minItems": OBJECTIVES[0], "maxItems": OBJECTIVES[1]},
            "top": {"type": "integer", "minimum": 1, "maximum": MOST_TOP},
            **UNCERTAINTY_SCHEMA,
        },
    }


def _table(table: Mapping[str, Any], key: str) -> dict[str, Any]:
    found = table.get(key, {})
    if not isinstance(found, dict):
        raise InputError(f"{key!r} of a space must be a table, [{key}].")
    return found


def _expressions(table: Mapping[str, Any], key: str) -> tuple[Expression, ...]:
    texts = table.get(key, [])
    if not isinstance(texts, list):
        raise InputError(f"{key!r} of a space must be a list of texts such as 'heads % tp == 0'.")
    return tuple(Expression(text) for text in texts)


def _has_calibrated(kind: Kind) -> bool:
    return "efficiency" in kind.inputs and CALIBRATED in kind.inputs["efficiency"].choices


def _calibrated(value: Any, kind: Kind) -> bool:
    """Whether a space says that it is calibrated; ``efficiency = "calibrated"`` among its fixed inputs says the same."""
    if value not in ("first order", "first_order", CALIBRATED):
        raise unknown_name("fidelity", value, ("first order", CALIBRATED), 'use "first order" or "calibrated".')
    if value == CALIBRATED and not _has_calibrated(kind):
        raise InputError(f"Spaces of kind {kind.name!r} are first order.")
    return bool(value == CALIBRATED)
