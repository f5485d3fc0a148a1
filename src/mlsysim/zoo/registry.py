"""Registries: lazy, searchable views over the data files of a zoo and over what the user adds.

    Hardware.Cloud.H100   Hardware.H100   Hardware["h100-sxm"]   Hardware.get("H100")   "H100" in Hardware
    Hardware.list(sort_by="memory.bandwidth", vendor="NVIDIA")   dir(Hardware)   len(Hardware)

Names are matched exactly first, then by alias, then without case and separators when that is unambiguous; anything
else raises with the nearest names. A user's own entries come from TOML files in the user's folder (the
environment variable ``MLSYSIM_ZOO``, see :mod:`mlsysim.zoo.user_folder`), ``FOLDER/hardware/*.toml`` or ``FOLDER/hardware*.toml`` (and likewise models, nodes,
fabrics, clusters, grids, facilities, racks, prices), or from ``Hardware.add(object, key=...)``. A bad entry is refused
with file, entry and reason and the rest still loads; ``Hardware.problems`` lists what was refused.
"""

from __future__ import annotations

import html
import re
import tomllib
import warnings
from collections.abc import Callable, Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

from mlsysim.errors import DataWarning, InputError, UnknownNameError, ZooFileError, unknown_name
from mlsysim.units.registry import Quantity
from mlsysim.zoo.files import Slice, parse_slice, slices
from mlsysim.zoo.provenance import Metadata, Source
from mlsysim.zoo.user_folder import user_folder

__all__ = ["Builder", "Registry", "provenance"]

Builder = Callable[[str, dict[str, Any]], Any]
Entries = list[Any]
Problems = list[ZooFileError]
Keys = list[str]
Rows = list[list[str]]

_LARGEST_USER_FILE = 10_000_000


def provenance(key: str, table: dict[str, Any]) -> Metadata:
    """Take ``source`` and ``description`` out of a table and make metadata of them."""
    sources = table.pop("source", None)
    if not sources:
        raise InputError(f"entry {key!r} has no 'source'.")
    if isinstance(sources, dict):
        sources = [sources]
    if not isinstance(sources, list) or not all(isinstance(source, dict) for source in sources):
        raise InputError("'source' must be a table, or a list of tables, with title, url, checked and kind.")
    return Metadata.of(key, tuple(Source(**source) for source in sources), table.pop("description", None))


def _squash(name: str) -> str:
    """A name without case and separators, except that two numbers stay apart: 1_3B is not 13B."""
    apart = re.sub(r"(?<=\d)[\s_\-/.]+(?=\d)", ".", name.lower())
    return re.sub(r"[\s_\-/]+", "", apart)


class Store:
    """Entries of one zoo: shipped slices, user entries and objects, built when first asked for."""

    def __init__(self, word: str, package: str, files_of: tuple[str, ...], build: Builder, folder: str) -> None:
        self.word = word
        self.package = package
        self.files_of = files_of
        self.build = build
        self.folder = folder
        self.added: dict[str, tuple[str | None, Any]] = {}
        self.aliases_added: dict[str, str] = {}
        self._shipped: dict[str, Slice] | None = None
        self._aliases: dict[str, str] = {}
        self._built: dict[str, Any] = {}
        self._user_for: str | None = None
        self._user: dict[str, tuple[str | None, Any]] = {}
        self._user_aliases: dict[str, str] = {}
        self._squashed: dict[str, str | None] | None = None
        self.problems: list[ZooFileError] = []

    # --- indexes ----------------------------------------------------------------------------------------------

    @property
    def shipped(self) -> dict[str, Slice]:
        if self._shipped is None:
            index: dict[str, Slice] = {}
            folder = files(self.package).joinpath("data")
            for name in self.files_of:
                for entry in slices(name, folder.joinpath(name).read_text(encoding="utf-8")):
                    index[entry.key] = entry
                    for alias in entry.aliases:
                        self._aliases[alias] = entry.key
            self._shipped = index
        return self._shipped

    def user(self) -> dict[str, tuple[str | None, Any]]:
        folder = user_folder()
        if folder != self._user_for:
            self._user_for, self._user, self._user_aliases = folder, {}, {}
            self.problems, self._squashed = [], None
            if folder:
                self._read_user_folder(Path(folder))
        return self._user

    def forget_user(self) -> None:
        self._user_for = None

    def _read_user_folder(self, folder: Path) -> None:
        if not folder.is_dir():
            self._refuse(str(folder), "", "MLSYSIM_ZOO names a folder that does not exist")
            return
        for path in sorted([*folder.glob(f"{self.folder}/*.toml"), *folder.glob(f"{self.folder}*.toml")]):
            try:
                if path.stat().st_size > _LARGEST_USER_FILE:
                    raise ValueError(f"larger than {_LARGEST_USER_FILE:,} bytes")
                tables = tomllib.loads(path.read_text(encoding="utf-8"))
            except (OSError, ValueError, RecursionError) as error:
                self._refuse(str(path), "", str(error))
                continue
            for key, table in tables.items():
                self._read_user_entry(str(path), key, table)

    def _read_user_entry(self, path: str, key: str, table: Any) -> None:
        try:
            if not isinstance(table, dict):
                raise InputError("expected a table of fields")
            if not key.isidentifier():
                raise InputError("the key must be a Python identifier, such as My_Chip")
            table = dict(table)
            override = bool(table.pop("override", False))
            if key in self.shipped and not override:
                raise InputError("the zoo has an entry of that name already; choose another, or say override = true")
            if key in self._user:
                raise InputError("another file of the folder has an entry of that name already")
            namespace, aliases = table.pop("namespace", None), table.pop("aliases", [])
            if namespace is not None and not isinstance(namespace, str):
                raise InputError("'namespace' must be a string")
            if not isinstance(aliases, list) or not all(isinstance(alias, str) for alias in aliases):
                raise InputError("'aliases' must be a list of strings")
            entry = self.build(key, {**table, "namespace": namespace} if namespace else table)
        except Exception as error:
            self._refuse(path, key, str(error))
            return
        self._user[key] = (namespace, entry)
        for alias in aliases:
            self._user_aliases[alias] = key

    def _refuse(self, path: str, key: str, reason: str) -> None:
        where = f"{path}, entry {key!r}" if key else path
        problem = ZooFileError(f"{where}: {reason.rstrip('.')}.", file=path, entry=key, reason=reason)
        self.problems.append(problem)
        warnings.warn(f"refused {problem}", DataWarning, stacklevel=6)

    # --- look-up ----------------------------------------------------------------------------------------------

    def keys(self) -> list[str]:
        user = self.user()
        return [
            *self.shipped,
            *(k for k in user if k not in self.shipped),
            *(k for k in self.added if k not in self.shipped and k not in user),
        ]

    def namespace_of(self, key: str) -> str | None:
        for layer in (self.added, self.user()):
            if key in layer:
                return layer[key][0]
        return self.shipped[key].namespace

    def find(self, name: str) -> str | None:
        """The key that a name means, or None."""
        user = self.user()
        shipped = self.shipped
        if name in self.added or name in user or name in shipped:
            return name
        for aliases in (self.aliases_added, self._user_aliases, self._aliases):
            if name in aliases:
                return aliases[name]
        if self._squashed is None:
            squashed: dict[str, str | None] = {}
            pairs = [(k, k) for k in self.keys()]
            pairs += [*self._aliases.items(), *self._user_aliases.items(), *self.aliases_added.items()]
            for alias, key in pairs:
                short = _squash(alias)
                squashed[short] = key if squashed.get(short, key) == key else None
            self._squashed = squashed
        return self._squashed.get(_squash(name))

    def entries(self, keys: list[str]) -> list[Any]:
        """Entries by their keys; the user's folder is looked up once."""
        user = self.user()
        return [self.entry(key, user) for key in keys]

    def entry(self, key: str, user: dict[str, tuple[str | None, Any]] | None = None) -> Any:
        if key in self.added:
            return self.added[key][1]
        user = self.user() if user is None else user
        if key in user:
            return user[key][1]
        if key not in self._built:
            piece = self.shipped[key]
            table = parse_slice(piece)
            table.pop("aliases", None)
            try:
                self._built[key] = self.build(key, table)
            except InputError as error:
                raise ZooFileError(
                    f"{piece.file}, entry {key!r}: {error}", file=piece.file, entry=key, reason=str(error)
                ) from None
        return self._built[key]

    def names(self) -> list[str]:
        """Every name that something answers to."""
        return [*self.keys(), *self._aliases, *self._user_aliases, *self.aliases_added]

    def add(self, key: str, entry: Any, namespace: str | None, aliases: tuple[str, ...]) -> None:
        if not key.isidentifier():
            raise InputError(f"the key {key!r} must be a Python identifier, such as My_Chip.")
        self.added[key] = (namespace, entry)
        self.aliases_added.update(dict.fromkeys(aliases, key))
        self._squashed = None


class Registry:
    """A zoo, or one namespace of it. See the module's text."""

    def __init__(
        self,
        name: str,
        word: str,
        package: str,
        files_of: tuple[str, ...],
        build: Builder,
        columns: dict[str, str],
        namespaces: tuple[str, ...] = (),
        kind: type | None = None,
        *,
        folder: str | None = None,
        store: Store | None = None,
        only: str | None = None,
    ) -> None:
        self._name = name
        self._columns = columns
        self._kind = kind
        self._only = only
        self._store = store or Store(word, package, files_of, build, folder or name.lower())
        self._namespaces = {
            space: Registry(
                f"{name}.{space}", word, package, files_of, build, columns, (), kind, store=self._store, only=space
            )
            for space in namespaces
        }

    # --- names ------------------------------------------------------------------------------------------------

    def keys(self) -> list[str]:
        """Keys of the entries, in the order of the data files."""
        keys = self._store.keys()
        return keys if self._only is None else [k for k in keys if self._store.namespace_of(k) == self._only]

    @property
    def namespaces(self) -> dict[str, Registry]:
        """Parts of the zoo by name, such as Cloud."""
        return dict(self._namespaces)

    def __dir__(self) -> list[str]:
        return sorted({*object.__dir__(self), *self._namespaces, *self.keys()})

    def __iter__(self) -> Iterator[Any]:
        return iter(self.list())

    def __len__(self) -> int:
        return len(self.keys())

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self._find(name) is not None

    def _find(self, name: str) -> str | None:
        key = self._store.find(name)
        if key is None or (self._only is not None and self._store.namespace_of(key) != self._only):
            return None
        return key

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
        if self._kind is not None and isinstance(name, self._kind):
            return name
        key = self._find(name) if isinstance(name, str) else None
        if key is not None:
            return self._store.entry(key)
        if default:
            return default[0]
        raise self._unknown(name)

    def _unknown(self, name: Any) -> UnknownNameError:
        names = self._store.names() if self._only is None else self.keys()
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
        store = self._store
        pairs = (*store.aliases_added.items(), *store._user_aliases.items(), *store._aliases.items())
        return tuple(alias for alias, entry in pairs if entry == key)

    # --- contents ---------------------------------------------------------------------------------------------

    def list(
        self,
        sort_by: str | None = None,
        *,
        reverse: bool = False,
        where: Callable[[Any], bool] | None = None,
        **equals: Any,
    ) -> Entries:
        """Entries, filtered by a function and by field values, sorted by a (dotted) field; unknown values come last."""
        entries = self._store.entries(self.keys())
        for path, wanted in equals.items():
            entries = [e for e in entries if _same(_follow(e, path, self._name), wanted)]
        if where is not None:
            entries = [e for e in entries if where(e)]
        if sort_by is not None:
            known = [(e, _sortable(_follow(e, sort_by, self._name))) for e in entries]
            ranked = sorted((pair for pair in known if pair[1] is not None), key=lambda pair: pair[1], reverse=reverse)
            entries = [e for e, _ in ranked] + [e for e, value in known if value is None]
        return entries

    def filter(self, where: Callable[[Any], bool] | None = None, **equals: Any) -> Entries:
        """Entries for which the function holds and whose fields have these values."""
        return self.list(where=where, **equals)

    def add(self, entry: Any, *, key: str, aliases: tuple[str, ...] = (), namespace: str | None = None) -> Any:
        """Add an object for as long as the program runs."""
        if self._kind is not None and not isinstance(entry, self._kind):
            raise InputError(f"{self._name}.add needs a {self._kind.__name__}, got {type(entry).__name__}.")
        self._store.add(key, entry, namespace or self._only, tuple(aliases))
        return entry

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

    # --- display ----------------------------------------------------------------------------------------------

    def rows(self) -> Rows:
        """Cells of the table: the key and one column for each field that the registry shows."""
        return [
            [key, *(_show(_follow(self._store.entry(key), path, self._name)) for path in self._columns.values())]
            for key in self.keys()
        ]

    def __repr__(self) -> str:
        rows = [["", *self._columns], *self.rows()]
        widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
        return f"{self._name}: {len(self)} entries\n" + "\n".join(lines)

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{html.escape(cell)}</th>" for cell in ["", *self._columns])
        body = "".join(
            "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in self.rows()
        )
        return f"<table><caption>{html.escape(self._name)}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _follow(entry: Any, path: str, registry: str) -> Any:
    value = entry
    for step in path.replace("__", ".").split("."):
        if value is None:
            return None
        if isinstance(value, dict):
            value = value.get(step)
            continue
        if not hasattr(value, step):
            fields = getattr(type(value), "model_fields", {})
            raise unknown_name(
                f"field of {registry} entries", step, fields, remedy=f"the fields are {', '.join(fields)}."
            )
        value = getattr(value, step)
    return value


def _sortable(value: Any) -> Any:
    return value.to_base_units().magnitude if isinstance(value, Quantity) else value


def _same(value: Any, wanted: Any) -> bool:
    if isinstance(value, Quantity) and isinstance(wanted, str):
        wanted = Quantity(wanted)
    return bool(value == wanted)


def _show(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, Quantity):
        return f"{value.magnitude:,.4g} {value.units:~P}".strip()
    if isinstance(value, float):
        return f"{value:,.4g}"
    return str(value)
