"""Words of a report: settings as a sentence says them, and names that begin a line."""

from __future__ import annotations

from typing import Any

from mlsysim.plans.schema import Leaf
from mlsysim.zoo.files import shipped

WORDS: dict[str, dict[str, str]] = shipped("mlsysim.report", "words.toml")


def as_said(leaf: Leaf, value: Any) -> str:
    """A setting in words, for readers who run nothing."""
    words = leaf.key.rpartition(".")[2].replace("_", " ")
    if value is None or value is True:
        return words
    if leaf.key == "ops.checkpoint_mode":
        return WORDS["modes"][value]
    return WORDS["said"].get(leaf.key, f"{words} {{}}").format(value)


def capital(text: str) -> str:
    """A text that begins a line; a name with digits, such as int8, stays as it is."""
    return text if any(ch.isdigit() for ch in text.partition(" ")[0]) else text[:1].upper() + text[1:]


def small(text: str) -> str:
    """A text that goes on in a sentence."""
    return text if text[1:2].isupper() else text[:1].lower() + text[1:]


def counted(number: int, noun: str) -> str:
    """A number of things.

    >>> counted(1, "design"), counted(1200, "wall")
    ('1 design', '1,200 walls')
    """
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def listed(items: list[str]) -> str:
    """Things one behind the other.

    >>> listed(["hosts", "network", "power"])
    'hosts, network and power'
    """
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"
