"""Documents: what is written as JSON and reads back into an equal object, by the types of its fields.

A class that inherits :class:`Document`, a frozen dataclass or a Pydantic record, has ``to_dict`` and ``from_dict``. Fields are written under
their names, quantities as {"magnitude", "unit"}; beside them stand the properties that ``beside`` names, which are made of the
fields and are passed over when read, and what a face adds. What is written in another form overrides ``to_dict`` and ``_fields_of``.
"""

from __future__ import annotations

import json
import math
import typing
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from functools import lru_cache
from types import UnionType
from typing import Any, ClassVar, Self, get_args, get_origin

from pydantic import BaseModel, ValidationError

from mlsysim.errors import InputError, unknown_name
from mlsysim.units.fields import sentence_for
from mlsysim.units.records import dataclass
from mlsysim.units.registry import Quantity, format_unit, ureg
from mlsysim.walls.binding import Binding

_INFINITE = "Infinity"
_BINDING = Binding.__dataclass_fields__.keys()


class Document:
    """What is written as JSON and read back."""

    beside: ClassVar[tuple[str, ...]] = ()

    def to_dict(self) -> dict[str, Any]:
        """All fields, and what stands beside them; quantities as {"magnitude", "unit"}."""
        return {name: as_plain(getattr(self, name)) for name in (*types_of(type(self)), *self._made())}

    def _made(self) -> list[str]:
        return [name for name in self.beside if hasattr(self, name)]

    def to_json(self, indent: int | None = None) -> str:
        """The same as strict JSON, which :meth:`from_json` reads back; infinities are written as "Infinity"."""
        return json.dumps(finite(self.to_dict(), named=True), indent=indent, ensure_ascii=False)

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Self:
        """What a document of :meth:`to_dict` or :meth:`to_json` was written from.

        It is equal to it in all fields; what stood behind it (ledger, equations, sources, draws) was not written.
        """
        if not isinstance(document, Mapping):
            raise InputError(f"A {cls.__name__} is read from a table of its fields, got {type(document).__name__}.")
        types = types_of(cls)
        try:
            told = {name: value for name, value in cls._fields_of(document).items() if name not in cls.beside}
            unknown = next((name for name in told if name not in types), None)
            if unknown is not None:
                raise unknown_name(f"field of {cls.__name__}", str(unknown), types)
            read = cls(**{name: _read(types[name], value) for name, value in told.items()})
            # What is made of the fields cannot be made of any.
            read._made()
            return read
        except ValidationError as error:
            assert issubclass(cls, BaseModel)
            raise sentence_for(cls, error) from None
        except (TypeError, ValueError, AttributeError, KeyError) as error:
            if isinstance(error, InputError):
                raise
            raise InputError(f"This is no {cls.__name__} as to_dict() writes it: {error}.") from None

    @classmethod
    def _fields_of(cls, document: Mapping[str, Any]) -> Mapping[str, Any]:
        """The fields of a document, by their names: those that are written in another form are put back here."""
        return document

    @classmethod
    def from_json(cls, text: str | bytes | bytearray) -> Self:
        """What a text of :meth:`to_json`, or of ``--json``, was written from."""
        try:
            return cls.from_dict(json.loads(text))
        except ValueError as error:
            if isinstance(error, InputError):
                raise
            raise InputError(f"A {cls.__name__} is read from JSON, and this is none: {error}.") from None

    def model_dump_json(self, *, indent: int | None = None, **_: Any) -> str:
        """Pydantic's name of :meth:`to_json`: quantities have a form of their own."""
        return self.to_json(indent)

    @classmethod
    def model_validate_json(cls, json_data: str | bytes | bytearray, **_: Any) -> Self:
        """Pydantic's name of :meth:`from_json`."""
        return cls.from_json(json_data)


class Summary(Document):
    """A document that is made of what it does not write (rows, samples, files, answers): it reads back as :class:`Told`."""

    told: ClassVar[tuple[str, ...]] = ()
    """Names of its entries."""
    at_times: ClassVar[tuple[str, ...]] = ()
    """Names of those that it may leave out."""

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Any:
        """What a document told, equal to what wrote it."""
        if not isinstance(document, Mapping):
            raise InputError(f"A {cls.__name__} is read from a table of its entries, got {type(document).__name__}.")
        names = (*cls.told, *cls.at_times)
        unknown = next((name for name in document if name not in names), None)
        if unknown is not None:
            raise unknown_name(f"entry of a {cls.__name__}", str(unknown), names)
        missing = next((name for name in cls.told if name not in document), None)
        if missing is not None:
            raise InputError(f"This is no {cls.__name__} as to_dict() writes it: {missing!r} is missing.")
        return Told(cls.__name__, dict(document))


@dataclass(frozen=True, eq=False)
class Told:
    """What a :class:`Summary` told: its entries by name, and the same document again."""

    kind: str
    entries: dict[str, Any]

    def __getattr__(self, name: str) -> Any:
        try:
            return from_plain(self.__dict__["entries"][name])
        except KeyError:
            raise AttributeError(f"a {self.__dict__.get('kind')} tells no {name!r}") from None

    def __eq__(self, other: object) -> bool:
        kind = other.kind if isinstance(other, Told) else type(other).__name__
        return kind == self.kind and self.to_json() == other.to_json()  # type: ignore[attr-defined]

    def __repr__(self) -> str:
        return f"{self.kind} read back: {self.entries.get('sentence') or ', '.join(self.entries)}"

    __hash__ = None  # type: ignore[assignment]

    def to_dict(self) -> dict[str, Any]:
        return dict(self.entries)

    def to_json(self, indent: int | None = None) -> str:
        return json.dumps(finite(self.entries, named=True), indent=indent, ensure_ascii=False)


def _declared(kind: Any) -> dict[str, Any]:
    """The fields of a record or dataclass, with their types."""
    if issubclass(kind, BaseModel):
        return {name: info.annotation for name, info in kind.model_fields.items()}
    hints = typing.get_type_hints(kind)
    return {each.name: hints[each.name] for each in fields(kind) if each.init}


types_of: Callable[[Any], dict[str, Any]] = lru_cache(maxsize=512)(_declared)


def _read(kind: Any, value: Any) -> Any:
    """A value of JSON as its type has it; one that is no JSON any more stays."""
    origin, inside = get_origin(kind), get_args(kind)
    if origin is typing.Annotated:
        return _read(inside[0], value)
    if origin in (typing.Union, UnionType):
        known = [each for each in inside if each is not type(None)]
        return None if value is None else _read(known[0] if len(known) == 1 else Any, value)
    if origin in (list, tuple) and isinstance(value, (list, tuple)):
        each = inside if origin is tuple and inside[-1] is not ... else inside[:1] * len(value)
        return origin(_read(form, item) for form, item in zip(each, value, strict=True))
    if origin is dict and isinstance(value, Mapping):
        names = int if inside[0] is int else str
        return {names(name): _read(inside[1], item) for name, item in value.items()}
    if isinstance(kind, type) and isinstance(value, Mapping):
        if hasattr(kind, "from_dict"):
            return kind.from_dict(value)
        if is_dataclass(kind):
            types = types_of(kind)
            return kind(**{name: _read(types.get(name, Any), item) for name, item in value.items()})
    return from_plain(value)


def as_plain(value: Any) -> Any:
    """A value as JSON has it: quantities become a magnitude and a unit."""
    if isinstance(value, Quantity):
        return {"magnitude": value.magnitude, "unit": format_unit(value.units)}
    if hasattr(value, "to_dict"):
        return value.to_dict()
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if is_dataclass(value) and not isinstance(value, type):
        return {name: as_plain(getattr(value, name)) for name in types_of(type(value))}
    if isinstance(value, Mapping):
        return {str(key): as_plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [as_plain(item) for item in value]
    return value


def from_plain(value: Any) -> Any:
    """A value of JSON as results have it, the inverse of :func:`as_plain`: quantities by their magnitude and unit, infinities
    by their name, and what binds by its four fields."""
    if isinstance(value, list):
        return [from_plain(item) for item in value]
    if not isinstance(value, dict):
        return math.inf if value == _INFINITE else -math.inf if value == f"-{_INFINITE}" else value
    read = {name: from_plain(item) for name, item in value.items()}
    if read.keys() == {"magnitude", "unit"} and isinstance(read["unit"], str):
        if not isinstance(read["magnitude"], int | float | None):
            raise ValueError(f"the magnitude of a quantity is a number, got {str(read['magnitude'])[:60]!r}")
        return Quantity(read["magnitude"], ureg.parse_units(read["unit"]))
    return Binding(**read) if read.keys() == _BINDING else read


def finite(value: Any, named: bool = False) -> Any:
    """A plain value as strict JSON has it, keys as text: numbers that are not finite become null, or infinities their name."""
    if isinstance(value, float) and not math.isfinite(value):
        return None if not named or value != value else f"{'-' * (value < 0)}{_INFINITE}"
    if isinstance(value, dict):
        return {str(key): finite(item, named) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item, named) for item in value]
    return value
