"""Labels that do not collide: a place for each beside its point, or none.

Candidates lie around the point, near ones first; the first that stays on the page and meets no text, point or box taken
before is chosen. What finds no place is handed back, for the caller to name it elsewhere.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from mlsysim.plot.svg import ASCENT, DESCENT, Box, measure

_REACH = (9.0, 16.0, 26.0, 40.0, 58.0, 80.0)
# What it costs to lie on a line, or to have a leader across a label, in pixels of distance.
_CROSSED, _HIDDEN = 20.0, 60.0
_DIRECTIONS = (
    *((1.0, 0.0), (0.7, -0.7), (0.7, 0.7), (-1.0, 0.0), (-0.7, -0.7), (-0.7, 0.7)),
    *((0.0, -1.0), (0.0, 1.0), (0.25, -1.0), (0.25, 1.0), (-0.25, -1.0), (-0.25, 1.0)),
)


@dataclass(frozen=True, slots=True)
class Placed:
    """Where a label goes: left end and baseline, its box, and the end of a leader line where it is not close by."""

    x: float
    baseline: float
    box: Box
    leader: tuple[float, float] | None


@dataclass
class Placer:
    """Finds places within ``page`` and keeps them."""

    page: Box
    taken: list[Box] = field(default_factory=list)
    lines: list[tuple[float, float, float, float]] = field(default_factory=list)
    texts: list[Box] = field(default_factory=list)
    gap: float = 2.0

    def block(self, box: Box) -> None:
        """Keep labels off a box."""
        self.taken.append(box)

    def block_line(self, x1: float, y1: float, x2: float, y2: float) -> None:
        """Keep labels off a straight line where there is another place."""
        self.lines.append((x1, y1, x2, y2))

    def place(self, x: float, y: float, text: str, size: float, bold: bool = False) -> Placed | None:
        """The cheapest place beside the point: near, off lines, and with a leader that runs through no other label."""
        width = measure(text, size, bold)
        height = (ASCENT + DESCENT) * size
        best: tuple[float, Placed] | None = None
        for reach in _REACH:
            if best is not None and best[0] <= reach:
                break
            for right, down in _DIRECTIONS:
                left = x + right * reach + (0 if right > 0 else -width if right < 0 else -width / 2)
                top = y + down * reach + (-height / 2 if down == 0 else 0 if down > 0 else -height)
                box = Box(left, top, left + width, top + height)
                if not box.inside(self.page) or any(box.meets(other, self.gap) for other in self.taken):
                    continue
                near = min(max(x, box.left), box.right), min(max(y, box.top), box.bottom)
                leader = near if math.hypot(near[0] - x, near[1] - y) > 14 else None
                cost = reach + _CROSSED * sum(_crosses(line, box) for line in self.lines)
                if leader is not None:
                    cost += _HIDDEN * sum(_crosses((x, y, *leader), other) for other in self.texts)
                    cost += _CROSSED * sum(
                        _crosses((x, y, *leader), other)
                        for other in self.taken
                        if not (other.left <= x <= other.right and other.top <= y <= other.bottom)
                    )
                if best is None or cost < best[0]:
                    best = cost, Placed(left, top + ASCENT * size, box, leader)
        return None if best is None else self._keep(best[1])

    def _keep(self, found: Placed) -> Placed:
        self.taken.append(found.box)
        self.texts.append(found.box)
        return found


def _crosses(line: tuple[float, float, float, float], box: Box) -> bool:
    """Whether a segment passes through a box (Liang and Barsky's clipping)."""
    x1, y1, x2, y2 = line
    enter, leave = 0.0, 1.0
    for start, delta, low, high in ((x1, x2 - x1, box.left, box.right), (y1, y2 - y1, box.top, box.bottom)):
        if delta == 0:
            if not low <= start <= high:
                return False
            continue
        first, second = sorted(((low - start) / delta, (high - start) / delta))
        enter, leave = max(enter, first), min(leave, second)
        if enter > leave:
            return False
    return True
