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
