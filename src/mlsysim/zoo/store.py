"""``Store``: the entries of one zoo, shipped or the user's, built when they are first asked for.

The environment variable ``MLSYSIM_ZOO`` names the folder of the user's own entries; set but empty, there is none. Without the
variable it is the folder ``mlsysim/zoo`` of the user's configuration: ``$XDG_CONFIG_HOME`` or ``~/.config``, on Windows ``%APPDATA%``.
Nothing is read before somebody asks a registry for a name, and a folder that does not exist is no folder. Registries ask for every
name, so whether a folder exists is found out once for each, and again after something may have been saved there.
"""

from __future__ import annotations

import os
import re
import tomllib
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mlsysim.errors import DataWarning, InputError, ZooFileError
from mlsysim.zoo.files import Slice, entries, parse_slice
from mlsysim.zoo.provenance import Metadata, Source

Builder = Callable[[str, dict[str, Any]], Any]
Problems = list[ZooFileError]

_LARGEST_USER_FILE = 10_000_000
_LONGEST_LABEL, _MOST_LABELS = 200, 4096
VARIABLE = "MLSYSIM_ZOO"


def _configuration() -> str:
    if os.name == "nt":
        return os.environ.get("APPDATA") or os.path.expanduser("~")
    named = os.environ.get("XDG_CONFIG_HOME")
    return named or os.path.join(os.environ.get("HOME") or os.path.expanduser("~"), ".config")


_found: dict[str, str] = {}
"""What ``user_folder`` found for a configuration: the folder, or nothing."""


def chosen_folder() -> Path | None:
    """The folder that saved entries go to, whether or not it exists; None where the variable is set to nothing."""
    _found.clear()
    named = os.environ.get(VARIABLE)
    if named is not None:
        return Path(named) if named else None
    return Path(_configuration(), "mlsysim", "zoo")


def user_folder() -> str:
    """The folder to read, as text; empty where there is none. A folder that the variable names is given even if it is missing,
    so that the mistake is noticed."""
    named = os.environ.get(VARIABLE)
    if named is not None:
        return named
    place = _configuration()
    if place not in _found:
        folder = os.path.join(place, "mlsysim", "zoo")
        _found[place] = folder if os.path.isdir(folder) else ""
    return _found[place]


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
    """What makes a type of the fields of an entry."""

    def build(key: str, table: dict[str, Any]) -> Any:
        fields = dict(table)
        return kind(metadata=provenance(key, fields), **fields)

    return build


def folded_name(name: str) -> str:
    """A name without case and separators, except that two numbers stay apart: 1_3B is not 13B."""
    if name.isalnum():
        return name.lower()
    apart = re.sub(r"(?<=\d)[\s_\-/.]+(?=\d)", ".", name.lower())
    return re.sub(r"[\s_\-/]+", "", apart)


class Store:
    """Entries of one zoo: objects that were added, the user's entries and shipped slices, in that order of precedence."""

    def __init__(
        self, word: str, package: str, names: tuple[str, ...], build: Builder, folder: str, reads: Any = None
    ) -> None:
        self.word, self.build, self.folder, self.reads = word, build, folder, reads
        self._place = (package, *(f"data/{name}" for name in names))
        self.added: dict[str, tuple[str | None, Any]] = {}
        self.met: dict[str, tuple[str | None, Any]] = {}
        """Objects that a plan was made of: found by their key, and in no list."""
        self._user: dict[str, tuple[str | None, Any]] = {}
        self._user_for: str | None = None
        self._built: dict[str, Any] = {}
        self._added_aliases: dict[str, str] = {}
        self._user_aliases: dict[str, str] = {}
        self._shipped_aliases: dict[str, str] | None = None
        self._folded: dict[str, str | None] | None = None
        self._by_name: dict[str, str] = {}
        self._read: dict[str, str | None] = {}
        self.problems: Problems = []

    @property
    def shipped(self) -> dict[str, Slice]:
        return entries(*self._place)

    @property
    def aliases(self) -> tuple[dict[str, str], ...]:
        """Aliases of what was added, of the user's entries and of the shipped ones."""
        if self._shipped_aliases is None:
            self._shipped_aliases = {alias: key for key, piece in self.shipped.items() for alias in piece.aliases}
        return self._added_aliases, self._user_aliases, self._shipped_aliases

    def user(self) -> dict[str, tuple[str | None, Any]]:
        folder = user_folder()
        if folder != self._user_for:
            self._user_for, self._user, self._user_aliases = folder, {}, {}
            self.problems, self._folded = [], None
            if folder:
                self._read_user_folder(Path(folder))
        return self._user

    def forget_user(self) -> None:
        _found.clear()
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
            namespace, aliases = table.get("namespace"), table.pop("aliases", [])
            if namespace is not None and not isinstance(namespace, str):
                raise InputError("'namespace' must be a string")
            if not isinstance(aliases, list) or not all(isinstance(alias, str) for alias in aliases):
                raise InputError("'aliases' must be a list of strings")
            entry = self.build(key, table)
        except Exception as error:
            self._refuse(path, key, str(error))
            return
        self._user[key] = (namespace, entry)
        self._user_aliases.update(dict.fromkeys(aliases, key))

    def _refuse(self, path: str, key: str, reason: str) -> None:
        where = f"{path}, entry {key!r}" if key else path
        problem = ZooFileError(f"{where}: {reason.rstrip('.')}.", file=path, entry=key, reason=reason)
        self.problems.append(problem)
        warnings.warn(f"refused {problem}", DataWarning, stacklevel=6)

    def keys(self) -> list[str]:
        return list(dict.fromkeys((*self.shipped, *self.user(), *self.added)))

    def names(self) -> list[str]:
        """Every name that something answers to."""
        return [*self.keys(), *(alias for aliases in reversed(self.aliases) for alias in aliases)]

    def namespace_of(self, key: str) -> str | None:
        for layer in (self.added, self.user(), self.met):
            if key in layer:
                return layer[key][0]
        return self.shipped[key].said("namespace")

    def find(self, name: str) -> str | None:
        """The key that a name means, or a label that is read, or None."""
        key = self.named(name)
        if key is not None or self.reads is None or len(name) > _LONGEST_LABEL:
            return key
        if name not in self._read:
            if len(self._read) >= _MOST_LABELS:
                self._read.clear()
            self._read[name] = self.reads.key(name, self)
        return self._read[name]

    def named(self, name: str) -> str | None:
        """The key that a name means by itself, or None."""
        user = self.user()
        if name in self.added or name in user or name in self.shipped or name in self.met:
            return name
        for aliases in self.aliases:
            if name in aliases:
                return aliases[name]
        return self._fold().get(folded_name(name))

    def keys_by_name(self) -> dict[str, str]:
        """Keys by every name, those that come first in precedence first; the same object until names change."""
        self._fold()
        return self._by_name

    def _fold(self) -> dict[str, str | None]:
        if self._folded is None:
            self._folded, self._by_name, self._read = {}, {}, {}
            for pairs in ({key: key for key in self.keys()}, *self.aliases):
                for alias, key in pairs.items():
                    short = folded_name(alias)
                    self._folded[short] = key if self._folded.get(short, key) == key else None
                    self._by_name.setdefault(alias, key)
        return self._folded

    def entry(self, key: str) -> Any:
        for layer in (self.added, self.user(), self.met):
            if key in layer:
                return layer[key][1]
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

    def add(self, key: str, entry: Any, namespace: str | None, aliases: tuple[str, ...]) -> None:
        if not key.isidentifier():
            raise InputError(f"the key {key!r} must be a Python identifier, such as My_Chip.")
        self.added[key] = (namespace, entry)
        self._added_aliases.update(dict.fromkeys(aliases, key))
        self._folded = None
