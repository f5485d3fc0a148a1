"""Labels that do not collide: a place for each beside its point, or none.

Candidates lie around the point, near ones first; the first that stays on the page and meets no text, point or box taken
before is chosen. What finds no place is handed back, for the caller to name it elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple

from mlsysim.plot.frame import BODY
from mlsysim.plot.svg import ASCENT, DESCENT, Box, Drawing, fit, measure

_REACH = (9.0, 16.0, 26.0, 40.0, 58.0, 80.0)
# What it costs to lie on a line, or to have a leader across a label, in pixels of distance.
_CROSSED, _HIDDEN = 20.0, 60.0
_GAP = 2.0
_DIRECTIONS = (
    *((1.0, 0.0), (0.7, -0.7), (0.7, 0.7), (-1.0, 0.0), (-0.7, -0.7), (-0.7, 0.7)),
    *((0.0, -1.0), (0.0, 1.0), (0.25, -1.0), (0.25, 1.0), (-0.25, -1.0), (-0.25, 1.0)),
)


class Placed(NamedTuple):
    """The box of a label, and the end of a leader line where it is not close by."""

    box: Box
    leader: tuple[float, float] | None


class Placer:
    """Finds places within ``page`` and keeps them."""

    def __init__(self, page: Box) -> None:
        self.page = page
        self.taken: list[Box] = []
        self.texts: list[Box] = []
        self.lines: list[tuple[float, float, float, float]] = []

    def block(self, x: float, y: float, reach: float) -> None:
        """Keep labels off a point."""
        self.taken.append(Box(x - reach, y - reach, x + reach, y + reach))

    def block_path(self, points: Iterable[tuple[float, float]]) -> None:
        """Keep labels off straight lines where there is another place."""
        self.lines += [(*one, *other) for one, other in pairwise(points)]

    def label(self, d: Drawing, x: float, y: float, text: str, size: float, cls: str = "ink halo") -> bool:
        """Write a label beside its point, with a leader where it is not close; whether there was a place."""
        place = self.place(x, y, text, size)
        if place is None:
            return False
        if place.leader:
            d.line(x, y, *place.leader, "leader")
        d.text(place.box.left, place.box.top + ASCENT * size, text, size, cls)
        return True

    def labels(self, d: Drawing, plot: Box, points: Iterable[tuple[float, float, str, str]]) -> str:
        """Write the labels of points (x, y, label, whole name); the names of those that found no place."""
        room = min(230.0, (plot.right - plot.left) * 0.6)
        return "; ".join(name for x, y, label, name in points if not self.label(d, x, y, fit(label, BODY, room), BODY))

    def place(self, x: float, y: float, text: str, size: float) -> Placed | None:
        """The cheapest place beside the point: near, off lines, and with a leader that runs through no other label."""
        width, height = measure(text, size), (ASCENT + DESCENT) * size
        best: tuple[float, Placed] | None = None
        for reach in _REACH:
            if best and best[0] <= reach:
                break
            for right, down in _DIRECTIONS:
                left = x + right * reach + (0 if right > 0 else -width if right < 0 else -width / 2)
                top = y + down * reach + (-height / 2 if down == 0 else 0 if down > 0 else -height)
                box = Box(left, top, left + width, top + height)
                if not box.inside(self.page) or any(box.meets(other, _GAP) for other in self.taken):
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
                    best = cost, Placed(box, leader)
        if best is None:
            return None
        self.taken.append(best[1].box)
        self.texts.append(best[1].box)
        return best[1]


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
