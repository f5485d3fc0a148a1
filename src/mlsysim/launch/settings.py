"""Settings with their reasons, and the forms that launch files have: arrays of a shell script, TOML, YAML (read with PyYAML's safe loader)."""

from __future__ import annotations

import json
import shlex
from collections.abc import Container, Iterable, Mapping
from typing import Any, NamedTuple

from mlsysim.importers.limits import check_bounds
from mlsysim.importers.markup import DEEPEST, read_yaml, toml
from mlsysim.launch.shell import bounded

KEPT = "kept from the file that was read"
_YAML_WORDS = {*("true", "false", "yes", "no", "on", "off", "null", "none", "y", "n", "inf", "nan")}


Details = Mapping[str, Any] | None
"""Flags and keys that a plan has no field for."""
Rows = dict[str, tuple[Any, str]]
"""Flags or dotted keys, the value of each, and its reason: a sentence, or the field of the plan whose reason it is."""
Written = tuple[list[str], list[str]]
"""Lines, and what they cannot say of a plan."""


class Setting(NamedTuple):
    """A flag or a dotted key, its value (True for a switch of a command), and why."""

    flag: str
    value: Any
    reason: str = ""


class Why(NamedTuple):
    """A value of a YAML document with the comment that stands above it."""

    value: Any
    reason: str


def settings(rows: Rows, why: Mapping[str, str]) -> list[Setting]:
    """The settings of rows. What is None is left out, and so is a switch of a command that is off."""
    return [
        Setting(flag, value, why.get(reason, reason))
        for flag, (value, reason) in rows.items()
        if value is not None and not (value is False and flag.startswith("-"))
    ]


def kept(details: Details, written: Iterable[Setting], known: Container[str]) -> list[Setting]:
    """Keys that were kept from a file, without those that are written already."""
    taken = {setting.flag for setting in written}
    found = (details or {}).items()
    return [Setting(name, value, KEPT) for name, value in found if name in known and name not in taken]


def kept_flags(details: Details, written: Iterable[Setting]) -> list[Setting]:
    """The same of a command's flags, said once."""
    flags = {name: value for name, value in (details or {}).items() if name.startswith("-") and value is not False}
    found = kept(flags, written, flags)
    return [*found[:1], *(setting._replace(reason="") for setting in found[1:])]


def one_line(text: str) -> str:
    """Text that cannot end a comment."""
    return " ".join(str(text).split())


def comment(lines: Iterable[str]) -> list[str]:
    """Lines as comments."""
    return [f"# {one_line(line)}".rstrip() for line in lines]


def array(name: str, settings: Iterable[Setting]) -> list[str]:
    """A bash array of arguments, each reason above its flag: there lines may be comments."""
    out = [f"{name}=("]
    for flag, value, reason in settings:
        out += [f"    # {one_line(reason)}"] if reason else []
        out.append("    " + words_of(flag, value))
    return [*out, ")"]


def words_of(flag: str, value: Any) -> str:
    """A flag and its value, or its values, as a shell reads them."""
    values = () if value is True else value if isinstance(value, (list, tuple)) else (str(value),)
    return " ".join(_quoted(word) for word in (flag, *values))


def _quoted(word: str) -> str:
    # What only the shell knows stays for the shell.
    return f'"{word}"' if "$" in word and not set(word) & set("'\"` ") else shlex.quote(word)


def write_toml(settings: Iterable[Setting]) -> list[str]:
    """Lines of TOML, a table for each beginning of a dotted key."""
    sections: dict[str, list[str]] = {}
    for path, value, reason in settings:
        section, _, key = path.rpartition(".")
        lines = sections.setdefault(section, [f"[{section}]"])
        lines += [*comment([reason] if reason else []), f"{key} = {toml(value)}"]
    return "\n\n".join("\n".join(lines) for lines in sections.values()).split("\n")


def read_documents(text: str, name: str) -> list[Any]:
    """The documents of a launch file in YAML."""
    documents = read_yaml(bounded(text, name), name)
    for document in documents:
        check_bounds(document, DEEPEST, name=name)
    return documents


def write_yaml(document: Any, indent: int = 0) -> list[str]:
    """Lines of a document of tables, lists and plain values; comments of :class:`Why` above their keys."""
    pad = "  " * indent
    out: list[str] = []
    for key, value in document.items() if isinstance(document, dict) else [(None, item) for item in document]:
        if isinstance(value, Why):
            value, reason = value
            out += [f"{pad}# {one_line(reason)}"] if reason else []
        head = f"{pad}-" if key is None else f"{pad}{key}:"
        if isinstance(value, str) and "\n" in value:
            out += [f"{head} |", *(f"{pad}  {line}".rstrip() for line in value.rstrip("\n").split("\n"))]
        elif not isinstance(value, (dict, list)) or not value:
            out.append(f"{head} {_scalar(value)}")
        elif key is not None:
            out += [head, *write_yaml(value, indent + 1)]
        else:
            # The first line that is no comment follows the dash.
            lines = write_yaml(value, indent + 1)
            first = next(i for i, line in enumerate(lines) if not line.lstrip().startswith("#"))
            out += [*(line[2:] for line in lines[:first]), f"{head} {lines[first].lstrip()}", *lines[first + 1 :]]
    return out


def _scalar(value: Any) -> str:
    if isinstance(value, str):
        word = value.translate(str.maketrans("", "", "-_/.")).isalnum() and not value[0].isdigit()
        if word and value[0] not in "-./" and value.lower() not in _YAML_WORDS:
            return value
    return json.dumps(value, ensure_ascii=False)
