"""Data files, read entry by entry.

A zoo has hundreds of entries and a program touches a few, so a file is not parsed whole: its top-level tables are
found by their headers, and only the text of an entry that somebody asks for goes through the TOML parser. A test
checks for every shipped file that both ways of reading agree.

What comes with the package to start from, by name: ``scenario:llama3-70b-512-h100`` is a plan, ``space:chip-design`` a design space.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

from mlsysim.errors import InputError, ZooFileError, unknown_name
from mlsysim.units.tables import shipped as shipped

_HEADER = re.compile(r"^\[\[?\s*([A-Za-z_][A-Za-z0-9_]*)", re.MULTILINE)
_ALIASES = re.compile(r"^aliases\s*=\s*\[(.*?)\][ \t]*(?:#.*)?$", re.MULTILINE | re.DOTALL)
_STRING_OR_COMMENT = re.compile(r'"((?:[^"\\]|\\.)*)"|#[^\n]*')


class Slice(NamedTuple):
    """The text of one entry in a file."""

    file: str
    key: str
    text: str

    @property
    def aliases(self) -> list[str]:
        found = _ALIASES.search(self.text)
        if not found:
            return []
        strings = (match[1] for match in _STRING_OR_COMMENT.finditer(found[1]) if match[1] is not None)
        return [text.replace('\\"', '"').replace("\\\\", "\\") for text in strings]

    def said(self, field: str) -> str | None:
        """The text of a field, such as its ``namespace`` or the key of an entry of another zoo."""
        return _said(self.text, field)


@cache
def _said(text: str, field: str) -> str | None:
    found = re.search(rf'^{field}\s*=\s*"([^"]*)"', text, re.MULTILINE)
    return found[1] if found else None


def _headers(text: str) -> Iterator[re.Match[str]]:
    """Where tables begin: lines that a bracket opens, which a plain search finds in a fifth of the time that a pattern takes."""
    place = 0 if text.startswith("[") else text.find("\n[") + 1 or len(text)
    while place < len(text):
        if match := _HEADER.match(text, place):
            yield match
        place = text.find("\n[", place) + 1 or len(text)


def slices(file: str, text: str) -> Iterator[Slice]:
    """The entries of a file, unparsed, in order."""
    current: str | None = None
    start = 0
    for match in _headers(text):
        if match[1] != current:
            if current is not None:
                yield Slice(file, current, text[start : match.start()])
            current, start = match[1], match.start()
    if current is not None:
        yield Slice(file, current, text[start:])


@cache
def fitted_over(package: str, name: str, fitted: str, table: str = "") -> dict[str, Any]:
    """The tables of a file with the constants that were fitted for it (those of a ``table`` of another file) laid over, without their errors."""
    found = shipped(package, fitted)
    return _laid(shipped(package, name), found.get(table, {}) if table else found)


def _laid(base: Any, fitted: Any) -> Any:
    if not isinstance(fitted, dict):
        return fitted
    if "least" in fitted:
        return {**base, "value": fitted["value"]} if base and isinstance(base, dict) else fitted["value"]
    return base | {key: _laid(base.get(key, {}), value) for key, value in fitted.items()}


@cache
def entries(package: str, *names: str) -> dict[str, Slice]:
    """The entries of files of a package, unparsed, by key."""
    texts = ((name, files(package).joinpath(name).read_text(encoding="utf-8")) for name in names)
    return {piece.key: piece for name, text in texts for piece in slices(name.rpartition("/")[2], text)}


def parse_slice(entry: Slice) -> dict[str, Any]:
    """The fields of one entry."""
    try:
        return tomllib.loads(entry.text)[entry.key]
    except (tomllib.TOMLDecodeError, KeyError, RecursionError) as error:
        raise ZooFileError(
            f"{entry.file}, entry {entry.key!r}: {error}.", file=entry.file, entry=entry.key, reason=str(error)
        ) from None


FOLDERS = {"scenario": "scenarios", "space": "sweeps"}
"""Where the examples of a kind lie inside ``mlsysim/examples``."""


def shipped_files(kind: str) -> dict[str, Path]:
    """The files of a kind by name."""
    folder = Path(str(files("mlsysim"))) / "examples" / FOLDERS[kind]
    return {path.stem: path for path in sorted(folder.glob("*.toml"))}


def is_example(text: str, kind: str) -> bool:
    """Whether a text names an example of a kind, or means to."""
    return text.lower().startswith(f"{kind}:")


def example(text: str | Path, kind: str) -> Path:
    """The file that a text means: an example by its name, else the path that it is."""
    known = shipped_files(kind)
    if not is_example(str(text), kind):
        path = Path(text)
        if path.stem in known and not path.exists():
            raise InputError(f"{str(text)[-200:]!r} is not there; {kind}:{path.stem} comes with mlsysim.", field="file")
        return path
    name = str(text).partition(":")[2].strip().lower().removesuffix(".toml")
    if name not in known:
        raise unknown_name(kind, name, known, "`mlsysim scenarios` lists them.")
    return known[name]


def examples(kind: str) -> dict[str, dict[str, Any]]:
    """The tables of all examples of a kind by name."""
    return {name: tomllib.loads(path.read_text(encoding="utf-8")) for name, path in shipped_files(kind).items()}
