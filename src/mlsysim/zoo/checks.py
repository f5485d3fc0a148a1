"""Checks over entries: one named function for each thing that must hold, run by tests and on users' own entries.

A check takes an entry and returns None, or one sentence that says what is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from mlsysim.units.records import dataclass
from mlsysim.zoo.registry import Registry

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
