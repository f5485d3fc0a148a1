"""Where a number comes from: sources and the metadata that every entry carries.

What every kind of zoo entry is: a record that prints as a card, with its figures and where they are from.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from pydantic import BaseModel, Field

from mlsysim.errors import InputError
from mlsysim.units.fields import BEYOND, Record
from mlsysim.units.registry import Quantity
from mlsysim.units.text import as_given, format_value

Kind = Literal["datasheet", "paper", "config", "statistics", "pricelist", "measured", "seed", "estimate", "user"]

KINDS: dict[str, str] = {
    "datasheet": "the maker's own figures",
    "paper": "a publication",
    "config": "the published configuration of a model",
    "statistics": "official or collected statistics",
    "pricelist": "a seller's published price",
    "measured": "a measurement",
    "seed": "the MLSys·im documents, kept so that their examples reproduce",
    "estimate": "an estimate; the note says of what",
    "user": "the user's own entry, read from a file of theirs",
}


class Source(Record):
    """One document behind an entry. ``fields`` says which fields it covers; empty means all."""

    title: str
    url: str
    checked: str = Field(pattern=r"^\d{4}-\d{2}-\d{2}$")
    kind: Kind
    fields: tuple[str, ...] = ()
    note: str | None = None

    def model_post_init(self, context: Any) -> None:
        if self.kind == "estimate" and not self.note:
            raise InputError(f"the estimate {self.title!r} must say what it is an estimate of in 'note'.")


class Metadata(Record):
    """Provenance of an entry: its key in the zoo and its sources. An object made by hand may have none."""

    key: str | None = None
    source_url: str | None = None
    source_title: str | None = None
    last_verified: str | None = None
    kind: Kind | None = None
    description: str | None = None
    version: str | None = None
    sources: tuple[Source, ...] = ()

    @classmethod
    def of(cls, key: str, sources: tuple[Source, ...], description: str | None = None) -> "Metadata":
        """Metadata of a zoo entry; the first source speaks for it."""
        first = sources[0]
        return cls(
            key=key,
            source_url=first.url,
            source_title=first.title,
            last_verified=min(s.checked for s in sources),
            kind=first.kind,
            description=description,
            sources=sources,
        )

    def source_of(self, field: str) -> Source | None:
        """The source that covers a field: the one that names it, else the first that covers all."""
        for source in self.sources:
            if field in source.fields:
                return source
        return next((s for s in self.sources if not s.fields), self.sources[0] if self.sources else None)


def cite(metadata: Any) -> str:
    """The title of what speaks for an entry."""
    return metadata.source_title or "given by the user"


class Entry(Record):
    """A chip, model, node, fabric, fleet, grid or facility."""

    name: str

    def __init__(self, **data: Any) -> None:
        for field, value in data.items():
            if isinstance(value, (int, float)) and BEYOND < abs(value) < math.inf:
                raise InputError(f"{field!r} is {as_given(value)}, beyond anything physical.", field=field)
        super().__init__(**data)

    def card(self) -> list[tuple[str, str]]:
        """Its figures: paths of fields and their texts, without those that are as they are unless somebody says so."""
        return [row for name, value in _told(self) if name != "name" for row in _rows(value, name)]

    def __str__(self) -> str:
        rows = [*self.card(), *self._source()]
        width = max((len(path) for path, _ in rows), default=0)
        return "\n".join([self.name, *(f"  {path.ljust(width)}  {text}" for path, text in rows)])

    def __repr__(self) -> str:
        known = getattr(self, "metadata", None)
        return f"<{type(self).__name__} {known.key if known and known.key else 'of its own'}: {self.name}>"

    def _repr_html_(self) -> str:
        """As a notebook shows it."""
        from html import escape

        rows = "".join(f"<tr><th>{escape(path)}</th><td>{escape(text)}</td></tr>" for path, text in self.card())
        source = "".join(f"<p>{escape(text)}</p>" for _, text in self._source())
        return f"<table><caption>{escape(self.name)}</caption>{rows}</table>{source}"

    def _source(self) -> list[tuple[str, str]]:
        known: Metadata | None = getattr(self, "metadata", None)
        return [("source", known.source_title)] if known and known.source_title else []


def _told(record: BaseModel) -> Iterator[tuple[str, Any]]:
    for name, field in type(record).model_fields.items():
        value = getattr(record, name)
        if name != "metadata" and not (value is field.default or value == field.default):
            yield name, value


def listed(values: Sequence[Any]) -> str:
    """Words with commas between them; sentences one after the other."""
    texts = [*map(str, values)]
    return (" " if any(text.endswith(".") for text in texts) else ", ").join(texts)


def _rows(value: Any, path: str) -> Iterator[tuple[str, str]]:
    """A value as rows; records and tables have one for each of their fields."""
    if value is None or (isinstance(value, (tuple, list, dict)) and not value):
        return
    if isinstance(value, Quantity):
        yield path, format_value(value)
    elif isinstance(value, Entry):
        yield path, value.name
    elif isinstance(value, BaseModel):
        for name, each in _told(value):
            yield from _rows(each, f"{path}.{name}")
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _rows(item, f"{path}.{key}")
    elif isinstance(value, (tuple, list)) and isinstance(value[0], (BaseModel, Mapping)):
        for place, item in enumerate(value):
            yield from _rows(item, f"{path}[{place}]")
    elif isinstance(value, (tuple, list)):
        yield path, listed(value)
    elif isinstance(value, bool):
        yield path, "yes" if value else "no"
    else:
        yield path, f"{value:,}" if isinstance(value, int) and value > 9999 else str(value)
