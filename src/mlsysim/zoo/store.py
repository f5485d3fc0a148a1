"""``Store``: the entries of one zoo, shipped or the user's, built when they are first asked for."""

from __future__ import annotations

import re
import tomllib
import warnings
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

from mlsysim.errors import DataWarning, InputError, ZooFileError
from mlsysim.zoo.files import Slice, parse_slice, slices
from mlsysim.zoo.provenance import Metadata, Source
from mlsysim.zoo.user_folder import user_folder

Builder = Callable[[str, dict[str, Any]], Any]
Problems = list[ZooFileError]

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


def builder(kind: Callable[..., Any]) -> Builder:
    """What makes a type of the fields of an entry as they stand."""

    def build(key: str, table: dict[str, Any]) -> Any:
        fields = dict(table)
        return kind(metadata=provenance(key, fields), **fields)

    return build


def folded_name(name: str) -> str:
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
                short = folded_name(alias)
                squashed[short] = key if squashed.get(short, key) == key else None
            self._squashed = squashed
        return self._squashed.get(folded_name(name))

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
