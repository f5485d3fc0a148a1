"""The JSON Schema of a document, by the types of its fields: what :mod:`mlsysim.walls.document` writes of them.

Written are records, dataclasses and typed dictionaries; quantities as {"magnitude", "unit"}; properties that stand beside the fields by what
they return. A number that is not finite becomes null, so every float may be null. What a class writes in another form than its fields stands in
``written_as``, its own table of names and types.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Mapping
from dataclasses import is_dataclass
from types import NoneType, UnionType
from typing import Any, get_args, get_origin

from pydantic import BaseModel, WithJsonSchema

from mlsysim.units.registry import Quantity
from mlsysim.walls.document import types_of

_PLAIN: dict[Any, dict[str, Any]] = {
    bool: {"type": "boolean"}, int: {"type": "integer"}, str: {"type": "string"}, float: {"type": ["number", "null"]},
    NoneType: {"type": "null"}, Any: {}, object: {},
}  # fmt: skip
QUANTITY = {
    "type": "object",
    "description": "a number and its unit",
    "properties": {"magnitude": {"type": ["number", "null"]}, "unit": {"type": "string"}},
    "required": ["magnitude", "unit"],
    "additionalProperties": False,
}


class Schemas:
    """Schemas of types; those of classes are kept by name and referred to. ``known`` are schemas that are made elsewhere."""

    def __init__(self, place: str = "#/$defs/", known: Mapping[Any, dict[str, Any]] | None = None) -> None:
        self.place = place
        self.known = dict(known or {})
        self.made: dict[str, dict[str, Any]] = {}
        self._classes: dict[str, Any] = {}

    def of(self, kind: Any) -> dict[str, Any]:
        if kind in self.known:
            return self.known[kind]
        if kind in _PLAIN:
            return _PLAIN[kind]
        origin, inside = get_origin(kind), get_args(kind)
        if origin is typing.NotRequired:
            return self.of(inside[0])
        if origin is typing.Annotated:
            return self._annotated(inside[0], inside[1:])
        if origin is typing.Literal:
            return {"enum": list(inside)}
        if origin in (typing.Union, UnionType):
            return self._either([self.of(each) for each in inside])
        if origin is tuple and inside[-1] is not ...:
            listed = [self.of(each) for each in inside]
            return {"type": "array", "prefixItems": listed, "minItems": len(listed), "maxItems": len(listed)}
        if origin in (list, tuple):
            return {"type": "array", "items": self.of(inside[0])}
        if origin in (dict, Mapping):
            return {"type": "object", "additionalProperties": self.of(inside[1]) or True}
        if kind in (dict, Mapping):
            return {"type": "object"}
        return self._named(kind) if inspect.isclass(kind) else {}

    def _annotated(self, kind: Any, notes: tuple[Any, ...]) -> dict[str, Any]:
        said = next((note.json_schema for note in notes if isinstance(note, WithJsonSchema)), None)
        if said is not None:
            return dict(said)
        # A field of a result with a unit holds a quantity.
        return self.of(Quantity) if kind is Any and any(hasattr(note, "unit") for note in notes) else self.of(kind)

    @staticmethod
    def _either(forms: list[dict[str, Any]]) -> dict[str, Any]:
        if {} in forms:
            return {}
        null = {"type": "null"}
        # A float may be null by itself.
        may = any("null" in form.get("type", ()) for form in forms if form != null)
        kept = [form for place, form in enumerate(forms) if form not in forms[:place] and not (may and form == null)]
        return kept[0] if len(kept) == 1 else {"anyOf": kept}

    def _named(self, kind: Any) -> dict[str, Any]:
        name = "Quantity" if kind is Quantity else kind.__name__
        if self._classes.setdefault(name, kind) is not kind:
            raise ValueError(f"two classes are named {name}")
        if name not in self.made:
            self.made[name] = {}
            self.made[name] = QUANTITY if kind is Quantity else self._object(kind)
        return {"$ref": f"{self.place}{name}"}

    def _object(self, kind: Any) -> dict[str, Any]:
        needed: Any
        if typing.is_typeddict(kind):
            fields = typing.get_type_hints(kind, include_extras=True)
            needed = [name for name, form in fields.items() if get_origin(form) is not typing.NotRequired]
        elif issubclass(kind, BaseModel) or is_dataclass(kind):
            fields = {**types_of(kind), **_beside(kind)} | getattr(kind, "written_as", dict)()
            needed = fields
        else:
            return {}
        told = {name: self.of(form) for name, form in fields.items()}
        for name, info in kind.model_fields.items() if issubclass(kind, BaseModel) else ():
            if name in told and info.metadata and name not in getattr(kind, "written_as", dict)():
                told[name] = self._annotated(info.annotation, tuple(info.metadata))
            if info.description and name in told:
                told[name] = {**told[name], "description": info.description}
        words = " ".join((inspect.getdoc(kind) or "").split("\n\n")[0].split())
        required = [name for name in told if name in needed]
        return {
            "type": "object",
            "description": words,
            "properties": told,
            "required": required,
            "additionalProperties": False,
        }


def _beside(kind: Any) -> dict[str, Any]:
    found = {}
    for name in getattr(kind, "beside", ()):
        held = getattr(kind, name, None)
        if isinstance(held, property):
            found[name] = typing.get_type_hints(held.fget).get("return", Any)
    return found
