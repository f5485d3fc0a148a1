"""Shell scripts with a comment for each value: the arguments stand in arrays, where lines may be comments."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

KEPT = "kept from the file that was read"


@dataclass(frozen=True)
class Setting:
    """A flag, its value (None for a switch), and why."""

    flag: str
    value: Any = None
    reason: str = ""

    @property
    def words(self) -> list[str]:
        return [self.flag] if self.value is None else [self.flag, str(self.value)]


def one_line(text: str) -> str:
    """Text that cannot end a comment."""
    return " ".join(str(text).split())


def comment(lines: Iterable[str]) -> list[str]:
    """Lines as comments."""
    return [f"# {one_line(line)}".rstrip() for line in lines]


def array(name: str, settings: Iterable[Setting]) -> list[str]:
    """A bash array of arguments, each reason above its flag."""
    out = [f"{name}=("]
    for setting in settings:
        if setting.reason:
            out.append(f"    # {one_line(setting.reason)}")
        out.append("    " + " ".join(_quoted(word) for word in setting.words))
    return [*out, ")"]


def _quoted(word: str) -> str:
    # What only the shell knows stays for the shell.
    return f'"{word}"' if "$" in word and not set(word) & set("'\"` ") else shlex.quote(word)


def details_of(details: Mapping[str, Any] | None, taken: Iterable[str]) -> list[Setting]:
    """Flags that were kept from a file, without those that are written already."""
    known = set(taken)
    out: list[Setting] = []
    for name, value in (details or {}).items():
        if name in known or not name.startswith("-") or value is False:
            continue
        out.append(Setting(name, None if value is True else str(value), "" if out else KEPT))
    return out
