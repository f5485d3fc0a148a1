"""Tiles: as many points as are evaluated together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

TILE = 16384
"""Points of a tile: few enough to stay in cache, and so many that the interpreter's time for each operation does not count."""

_FREED = 2**21


def tiles(blocks: Iterable[Any]) -> Iterator[Any]:
    """Full tiles out of blocks of any length."""
    import numpy as np

    # glibc gives the end of its heap back whenever arrays of a tile are freed, and asks for it anew, until a larger block was freed once.
    np.empty(_FREED)
    waiting: list[Any] = []
    size = 0
    for block in blocks:
        waiting.append(block)
        size += block.size
        if size >= TILE:
            joined = np.concatenate(waiting) if len(waiting) > 1 else block
            whole = size - size % TILE
            for first in range(0, whole, TILE):
                yield joined[first : first + TILE]
            waiting, size = [joined[whole:]], size - whole
    if size:
        yield np.concatenate(waiting)
