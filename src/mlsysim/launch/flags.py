"""The table of flags: which are read and written, what they mean, where that is documented; and words parsed by it.

A flag has ``takes`` (switch, int, float, text or many) and, where it sets a field of a plan as it stands, ``field``. ``own`` marks flags that their
target's module turns into fields itself, and ``same`` is the flag that is written in place of one. The others are details: no field of a plan has them, and they survive a round trip.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import field
from functools import cache, cached_property
from typing import Any, Literal

from mlsysim.errors import InputError
from mlsysim.launch.shell import is_unresolved
from mlsysim.units.records import dataclass
from mlsysim.zoo.files import shipped

_NEGATIVE = re.compile(r"-\.?\d")
Takes = Literal["switch", "int", "float", "text", "many"]


@dataclass(frozen=True)
class Flag:
    """One flag, or one key of a file."""

    name: str
    takes: Takes
    means: str
    field: str | None = None
    own: bool = False
    aliases: Sequence[str] = ()
    values: Mapping[str, str] | None = None
    same: str | None = None
    needs: Sequence[str] = ()
    default: Any = None

    @property
    def is_detail(self) -> bool:
        """Whether no field of a plan has it."""
        return self.field is None and not self.own


@dataclass(frozen=True)
class Table:
    """The flags of one target and where they are documented."""

    target: str
    source: str
    url: str
    checked: str
    flags: Mapping[str, Flag]
    names: Mapping[str, str]
    notes: Mapping[str, str]

    @cached_property
    def index(self) -> dict[str, Flag]:
        """Flags by name and alias; dashes and underscores are the same."""
        return {name.replace("_", "-"): flag for flag in self.flags.values() for name in (flag.name, *flag.aliases)}

    def find(self, word: str) -> Flag | None:
        return self.index.get(word.replace("_", "-"))


def _all() -> dict[str, Any]:
    return shipped("mlsysim.launch", "flags.toml")


@cache
def table(target: str) -> Table:
    """The flags of a target."""
    entry = _all()[target]
    flags = {name: Flag(name, **row) for name, row in entry["flags"].items()}
    said = (entry.get(part, {}) for part in ("names", "notes"))
    return Table(target, entry["source"], entry["url"], entry["checked"], flags, *said)


def tables_with(key: str) -> list[str]:
    """The targets whose table says something."""
    return [name for name, entry in _all().items() if key in entry]


def data_table(name: str) -> dict[str, Any]:
    """A table of names of the same file, such as torchtitan's models."""
    return dict(_all()[name])


@dataclass
class Parsed:
    """Words of a command, parsed: values by the flag's own name, words without a flag, and what nobody knows."""

    table: Table
    values: dict[str, Any] = field(default_factory=dict)
    positional: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    unresolved: dict[str, str] = field(default_factory=dict)

    def text(self, name: str) -> str | None:
        """The value of a flag, its default where it is not given; None where there is none or only the shell knows it."""
        value = self.values.get(name, self.table.flags[name].default if name in self.table.flags else None)
        return None if value is None or isinstance(value, (bool, list, dict)) else str(value)

    def whole(self, name: str) -> int | None:
        """The value of a flag as a whole number."""
        value = self.text(name)
        return None if value is None else int(number(name, value, whole=True))

    def on(self, name: str) -> bool:
        """Whether a switch is given."""
        return bool(self.values.get(name, False))

    def document(self, **more: Any) -> dict[str, Any]:
        """The fields of a plan that flags set as they stand, and more."""
        out: dict[str, Any] = {}
        said = {*self.values, *self.unresolved}
        left_out = {flag.name: flag.default for flag in self.table.flags.values() if flag.name not in said}
        for name, value in (self.values | left_out).items():
            flag = self.table.flags[name]
            if flag.field is not None and value is not None:
                put(out, flag.field, _converted(flag, value))
        return out | more

    def details(self) -> dict[str, Any]:
        """Flags that no field of a plan has, and those whose value only the shell knows."""
        known = {name: value for name, value in self.values.items() if self.table.flags[name].is_detail}
        return {**known, **self.unresolved}


def number(name: str, text: str, whole: bool = False) -> float:
    """The number that a flag has."""
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not abs(value) < 1e18 or (whole and value != int(value)):
        kind = "whole number" if whole else "number"
        raise InputError(f"{name} takes a {kind}, got {text[:40]!r}.", field=name.lstrip("-"))
    return value


def _converted(flag: Flag, value: Any) -> Any:
    if flag.takes == "switch":
        return bool(value)
    if isinstance(value, (bool, list, dict)):
        raise InputError(f"{flag.name} takes one value, got {str(value)[:40]!r}.", field=flag.name.lstrip("-"))
    if flag.takes == "int":
        return int(number(flag.name, str(value), whole=True))
    if flag.takes == "float":
        return number(flag.name, str(value))
    return next((ours for ours, theirs in (flag.values or {}).items() if theirs == value), value)


def put(document: dict[str, Any], path: str, value: Any) -> None:
    """Set a field such as ``parallelism.tp`` in nested tables."""
    *parts, last = path.split(".")
    for part in parts:
        document = document.setdefault(part, {})
    document[last] = value


def parse(words: Sequence[str], flags: Table) -> Parsed:
    """The words of a command after its name."""
    found = Parsed(flags)
    i = 0
    while i < len(words):
        word = words[i]
        i += 1
        if not _is_flag(word):
            found.positional.append(word)
            continue
        name, mark, given = word.partition("=")
        flag = flags.find(name)
        values = [given] if mark else []
        many = flag is None or flag.takes == "many"
        if not mark and not (flag is not None and flag.takes == "switch"):
            while i < len(words) and not _is_flag(words[i]) and (many or not values):
                values.append(words[i])
                i += 1
        if flag is None:
            found.unread.append(word if mark else " ".join([word, *values]))
        elif flag.takes == "switch":
            found.values[flag.name] = given.lower() not in ("false", "0", "no")
        elif not values:
            raise InputError(f"{flag.name} is given without a value.", field=flag.name.lstrip("-"))
        else:
            _enter(found, flag, values if len(values) > 1 and flag.is_detail else " ".join(values))
    return found


def _enter(found: Parsed, flag: Flag, value: Any) -> None:
    if flag.is_detail:
        found.values[flag.name] = value
    elif is_unresolved(value) or value == "auto":
        found.unresolved[flag.name] = value
        who = "the program that reads the file fills in" if value == "auto" else "only the shell knows"
        found.warnings.append(f"The value of {flag.name} is {value[:60]!r}, which {who}; it was not read.")
    else:
        found.values[flag.name] = value


def _is_flag(word: str) -> bool:
    return len(word) > 1 and word.startswith("-") and not _NEGATIVE.match(word)


def parse_tables(document: Mapping[str, Any], flags: Table, ignored: tuple[str, ...] = ()) -> Parsed:
    """The keys of a file of nested tables, dotted. A table that is a key of its own is kept whole."""
    found = Parsed(flags)
    waiting: list[tuple[str, Any]] = [(str(key), value) for key, value in document.items() if key not in ignored]
    while waiting:
        path, value = waiting.pop(0)
        flag = flags.find(path)
        if flag is None and isinstance(value, dict):
            waiting = [(f"{path}.{key}", item) for key, item in value.items()] + waiting
        elif flag is None:
            found.unread.append(f"{path} = {value!r}"[:200])
        elif value is not None:
            _enter(found, flag, _plain_value(flag, value))
    return found


def _plain_value(flag: Flag, value: Any) -> Any:
    if flag.takes != "switch" or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return {"true": True, "yes": True, "false": False, "no": False}.get(value.lower(), value)
    if not flag.is_detail:
        raise InputError(f"{flag.name} is true or false, got {str(value)[:40]!r}.", field=flag.name)
    return value
