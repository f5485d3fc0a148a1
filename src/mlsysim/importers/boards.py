"""Which chip of the zoo a driver, a profiler or a tracker means by the name that it prints."""

from __future__ import annotations

import re

from mlsysim.hardware.registry import Hardware
from mlsysim.hardware.types import HardwareNode

_MAKER = re.compile(r"^(NVIDIA|AMD|Intel|Apple|Tesla|GeForce|Virtualized)\s+", re.IGNORECASE)


def board_key(name: str) -> str | None:
    """The zoo's key for a device: its name or alias, with or without the maker, else the one entry that has all its words.

    >>> board_key("NVIDIA H100 80GB HBM3"), board_key("Some GPU 9000")
    ('H100', None)
    """
    texts = [name.strip()[:200]]
    while (shorter := _MAKER.sub("", texts[-1])) != texts[-1]:
        texts.append(shorter)
    for text in texts:
        if text and text in Hardware:
            return Hardware.key_of(text)
    words = _words(texts[-1]) - {""}
    close = [chip.metadata.key for chip in Hardware if words and words <= _words(f"{chip.name} {chip.metadata.key}")]
    return close[0] if len(close) == 1 else None


def _words(text: str) -> set[str]:
    return set(re.split(r"[\s\-_/]+", text.lower()))


def board_named(name: str) -> HardwareNode | None:
    """The chip itself, or None where the zoo has none by that name."""
    key = board_key(name)
    return None if key is None else Hardware.get(key)
