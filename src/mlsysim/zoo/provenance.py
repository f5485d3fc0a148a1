"""Where a number comes from: sources and the metadata that every entry carries."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from mlsysim.errors import InputError
from mlsysim.units.fields import Record

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
    def of(cls, key: str, sources: tuple[Source, ...], description: str | None = None) -> Metadata:
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
