"""Registries: lazy, searchable views over the data files of a zoo and over what the user adds.

    Hardware.Cloud.H100   Hardware.H100   Hardware["h100-sxm"]   Hardware.get("H100")   "H100" in Hardware
    Hardware.list(sort_by="memory.bandwidth", vendor="NVIDIA")   dir(Hardware)   len(Hardware)

Names are matched exactly first, then by alias, then without case and separators when that is unambiguous, then as labels that people write
(:mod:`mlsysim.zoo.labels`, :mod:`mlsysim.zoo.checkpoints`); anything else raises with the nearest names. A user's own entries come from TOML files in the user's folder (the
environment variable ``MLSYSIM_ZOO``, see :mod:`mlsysim.zoo.store`), ``FOLDER/hardware/*.toml`` or ``FOLDER/hardware*.toml`` (and likewise models, nodes,
fabrics, clusters, grids, facilities, racks, prices), or from ``Hardware.add(object, key=...)``. A bad entry is refused
with file, entry and reason and the rest still loads; ``Hardware.problems`` lists what was refused.

Checks over entries: one named function for each thing that must hold, run by tests and on users' own entries.

A check takes an entry and returns None, or one sentence that says what is wrong.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from copy import copy
from typing import Any

from mlsysim.errors import InputError, UnknownNameError, unknown_name
from mlsysim.units.records import dataclass
from mlsysim.units.registry import Quantity
from mlsysim.units.text import html_of, lines_of, plainly
from mlsysim.zoo.query import field_of, in_order
from mlsysim.zoo.store import Builder, Problems, Store, builder, provenance

__all__ = ["Builder", "Registry", "builder", "provenance"]

Entries = list[Any]
Keys = list[str]
Rows = list[list[str]]


class Registry:
    """A zoo, or one namespace of it. See the module's text.

    ``kind`` is the type of its entries, whose package has the data: ``names`` of files, or the one that is called like the zoo.
    ``columns`` are fields that a table shows between an entry's name and the kind of its source.
    """

    def __init__(
        self,
        name: str,
        word: str,
        kind: type,
        columns: dict[str, str],
        build: Builder | None = None,
        *,
        names: tuple[str, ...] | None = None,
        namespaces: tuple[str, ...] = (),
        beyond: Callable[[str], Any] | None = None,
        reads: Any = None,
    ) -> None:
        folder = name.rpartition(".")[2].lower()
        package = kind.__module__.rpartition(".")[0]
        self._name, self._kind, self._beyond, self._only = name, kind, beyond, ""
        self._columns = {"name": "name", **columns, "source": "metadata.kind"}
        self._store = Store(
            word, package, (f"{folder}.toml",) if names is None else names, build or builder(kind), folder, reads
        )
        self._namespaces = {space: self._part(space) for space in namespaces}

    def _part(self, space: str) -> Registry:
        part = copy(self)
        part._name, part._only, part._beyond, part._namespaces = f"{self._name}.{space}", space, None, {}
        return part

    def keys(self) -> list[str]:
        """Keys of the entries, in the order of the data files."""
        keys = self._store.keys()
        return [k for k in keys if self._store.namespace_of(k) == self._only] if self._only else keys

    @property
    def namespaces(self) -> dict[str, Registry]:
        """Parts of the zoo by name, such as Cloud."""
        return dict(self._namespaces)

    def __dir__(self) -> list[str]:
        return sorted({*object.__dir__(self), *self._namespaces, *self.keys()})

    def __iter__(self) -> Iterator[Any]:
        return (self._store.entry(key) for key in self.keys())

    def of(self, field: str, key: str | None) -> Iterator[Any]:
        """Entries whose ``field`` may be another zoo's entry of this key; those whose file names another are not built."""
        store, shipped = self._store, self._store.shipped
        built = {*store.added, *store.user()}
        return (store.entry(k) for k in self.keys() if k in built or shipped[k].said(field) in (None, key))

    def __len__(self) -> int:
        return len(self.keys())

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and (self._find(name) is not None or self._other(name) is not None)

    def _other(self, name: str) -> Any:
        """An entry that no list shows: ``beyond`` knows names of its own, such as ``timm/resnet50``."""
        return None if self._beyond is None else self._beyond(name)

    def _find(self, name: str) -> str | None:
        key = self._store.find(name)
        return None if key and self._only and self._store.namespace_of(key) != self._only else key

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if name in self._namespaces:
            return self._namespaces[name]
        return self.get(name)

    def __getitem__(self, name: str) -> Any:
        return self.get(name)

    def get(self, name: Any, *default: Any) -> Any:
        """The entry behind a name; an entry object passes through. Raises with the nearest names, or gives the default."""
        if isinstance(name, self._kind):
            return name
        if isinstance(name, str):
            found = None if self.has(name) else self._other(name)
            if found is None and (key := self._find(name)) is not None:
                found = self._store.entry(key)
            if found is not None:
                return found
        if default:
            return default[0]
        raise self._unknown(name)

    def has(self, name: str) -> bool:
        """Whether an entry is called so itself, without reading what else a label says."""
        return self._store.named(name) is not None

    def capped(self, name: str) -> tuple[Any, float] | None:
        """The entry that a label means which names another power limit than the entry's, and that limit in watts."""
        found = None if self._store.reads is None else self._store.reads.capped(name, self._store)
        return None if found is None or found[1] is None else (self._store.entry(found[0]), found[1])

    def generations(self, name: str) -> Entries:
        """Entries of a family and size where a name says no generation, the newest first."""
        return [self._store.entry(key) for key in self._store.reads.generations(name, self._store)]

    def why(self, name: str) -> str:
        """A sentence about a label that is read but means no entry, empty where nothing is known of it."""
        store = self._store
        return "" if store.reads is None or store.find(name) else str(store.reads.why(name[:200], store))

    def _unknown(self, name: Any) -> UnknownNameError:
        if isinstance(name, str) and (why := self.why(name)):
            return UnknownNameError(why, kind=self._store.word, name=name[:80], suggestions=[])
        names = self.keys() if self._only else self._store.names()
        return unknown_name(
            self._store.word, name, [*names, *self._namespaces], remedy=f"list({self._name}) shows what there is."
        )

    def key_of(self, name: str) -> str:
        """The key that a name or alias means."""
        key = self._find(name)
        if key is None:
            raise self._unknown(name)
        return key

    def aliases_of(self, name: str) -> tuple[str, ...]:
        """The other names of an entry, in the order of its file."""
        key = self.key_of(name)
        return tuple(alias for layer in self._store.aliases for alias, entry in layer.items() if entry == key)

    def list(
        self,
        sort_by: str | None = None,
        *,
        reverse: bool = False,
        where: Callable[[Any], bool] | None = None,
        **equals: Any,
    ) -> Entries:
        """Entries, filtered by a function and by field values, sorted by a (dotted) field; unknown values come last."""
        entries = [*self]
        for path, wanted in equals.items():
            entries = [e for e in entries if _same(field_of(e, path.replace("__", "."), self._name), wanted)]
        if where is not None:
            entries = [e for e in entries if where(e)]
        return entries if sort_by is None else in_order(entries, sort_by, reverse=reverse, zoo=self._name)

    def filter(self, where: Callable[[Any], bool] | None = None, **equals: Any) -> Entries:
        """Entries for which the function holds and whose fields have these values."""
        return self.list(where=where, **equals)

    def add(self, entry: Any, *, key: str, aliases: tuple[str, ...] = (), namespace: str | None = None) -> Any:
        """Add an object for as long as the program runs."""
        if not isinstance(entry, self._kind):
            raise InputError(f"{self._name}.add needs a {self._kind.__name__}, got {type(entry).__name__}.")
        self._store.add(key, entry, namespace or self._only or None, tuple(aliases))
        return entry

    def name_for(self, entry: Any) -> str:
        """The key of an object; another one than the zoo's is found under its name from then on, with a number where that is taken."""
        known = entry.metadata.key
        if known is not None and self.get(known, None) == entry:
            return str(known)
        name = key = re.sub(r"\W", "_", f"_{entry.name}" if entry.name[:1].isdigit() else entry.name)
        number = 1
        while key in self and self.get(key) != entry:
            number += 1
            key = f"{name}_{number}"
        if key not in self:
            self._store.met[key] = (self._only or None, entry)
        return key

    def user_keys(self) -> Keys:
        """Keys of the entries that come from the user's files."""
        return [*self._store.user()]

    def is_shipped(self, name: str) -> bool:
        """Whether a name or alias means an entry that comes with the package."""
        key = self._find(name)
        return key is not None and key in self._store.shipped

    def reload(self) -> None:
        """Read the user's files anew when next asked."""
        self._store.forget_user()

    @property
    def problems(self) -> Problems:
        """What was refused of the user's files."""
        self._store.user()
        return [*self._store.problems]

    def rows(self) -> Rows:
        """Cells of the table: the key and one column for each field that the registry shows."""
        return [
            [key, *(_show(field_of(self._store.entry(key), path, self._name)) for path in self._columns.values())]
            for key in self.keys()
        ]

    def __repr__(self) -> str:
        return "\n".join([f"{self._name}: {len(self)} entries", *lines_of(["", *self._columns], self.rows())])

    def _repr_html_(self) -> str:
        return html_of(["", *self._columns], self.rows(), self._name)


def _same(value: Any, wanted: Any) -> bool:
    if isinstance(value, Quantity) and isinstance(wanted, str):
        wanted = Quantity(wanted)
    return bool(value == wanted)


def _show(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, Quantity):
        return f"{plainly(value.magnitude)} {value.units:~P}".strip()
    if isinstance(value, float):
        return plainly(value)
    return str(value)


Check = Callable[[Any], str | None]


@dataclass(frozen=True, slots=True)
class Problem:
    """An entry that fails a check."""

    registry: str
    key: str
    check: str
    sentence: str

    def __str__(self) -> str:
        return f"{self.registry} {self.key}: {self.sentence} ({self.check})"


def run_checks(registry: Registry, checks: Iterable[Check], keys: Iterable[str] | None = None) -> list[Problem]:
    """Every problem that the checks find in a registry, or in some of its entries."""
    problems = []
    for key in keys if keys is not None else registry.keys():
        entry = registry.get(key)
        for check in checks:
            sentence = check(entry)
            if sentence:
                problems.append(Problem(registry._name, key, check.__name__, sentence))
    return problems


def has_sources(entry: Any) -> str | None:
    """Every entry says where it comes from."""
    if not entry.metadata.sources:
        return "has no source"
    for source in entry.metadata.sources:
        if source.kind != "user" and not source.url.startswith(("https://", "http://")):
            return f"source {source.title!r} has no URL"
    return None
