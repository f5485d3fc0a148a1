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
from mlsysim.plot.svg import ASCENT, DESCENT, LINE, Box, Drawing, measure, wrap

_REACH = (9.0, 16.0, 26.0, 40.0, 58.0, 80.0, 110.0)
# What it costs to have a leader across a line or a point, or across a label, in pixels of distance.
_CROSSED, _HIDDEN = 40.0, 60.0
_BROKEN = 6.0
"""What a further line of text costs."""
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
        """Keep labels off straight lines."""
        self.lines += [(*one, *other) for one, other in pairwise(points)]

    def label(
        self, d: Drawing, x: float, y: float, text: str, size: float, cls: str = "ink halo", room: float = 230.0
    ) -> bool:
        """Write a label beside its point in lines of at most ``room``, with a leader where it is not close; whether there was a place."""
        best: tuple[float, Placed, list[str]] | None = None
        for lines in _broken(text, size, room):
            found = self.place(x, y, max(measure(line, size) for line in lines), size, len(lines))
            if found is not None and (best is None or found[0] < best[0]):
                best = (*found, lines)
        if best is None:
            return False
        _, place, lines = best
        self.taken.append(place.box)
        self.texts.append(place.box)
        if place.leader:
            d.line(x, y, *place.leader, "leader")
        across, anchor = (place.box.left, "start") if place.box.right > x else (place.box.right, "end")
        for number, line in enumerate(lines):
            d.text(across, place.box.top + (ASCENT + number * LINE) * size, line, size, cls, anchor=anchor)
        return True

    def labels(self, d: Drawing, plot: Box, points: Iterable[tuple[float, float, str, str]]) -> str:
        """Write the labels of points (x, y, label, whole name); the names of those that found no place."""
        room = min(230.0, (plot.right - plot.left) * 0.6)
        return "; ".join(name for x, y, label, name in points if not self.label(d, x, y, label, BODY, room=room))

    def place(self, x: float, y: float, width: float, size: float, lines: int = 1) -> tuple[float, Placed] | None:
        """The cheapest place beside the point for so many lines, and its cost: near, on no line of the chart, and with a leader that runs
        through no other label."""
        height = (ASCENT + DESCENT + (lines - 1) * LINE) * size
        best: tuple[float, Placed] | None = None
        for reach in _REACH:
            if best and best[0] <= reach:
                return best
            for right, down in _DIRECTIONS:
                left = x + right * reach + (0 if right > 0 else -width if right < 0 else -width / 2)
                top = y + down * reach + (-height / 2 if down == 0 else 0 if down > 0 else -height)
                box = Box(left, top, left + width, top + height)
                if not box.inside(self.page) or any(box.meets(other, _GAP) for other in self.taken):
                    continue
                around = Box(box.left - _GAP, box.top, box.right + _GAP, box.bottom)
                if any(crosses(line, around) for line in self.lines):
                    continue
                near = min(max(x, box.left), box.right), min(max(y, box.top), box.bottom)
                leader = near if math.hypot(near[0] - x, near[1] - y) > 14 else None
                cost = reach + _BROKEN * (lines - 1)
                if leader is not None:
                    cost += _CROSSED * sum(_meet((x, y, *leader), line) for line in self.lines)
                    cost += _HIDDEN * sum(crosses((x, y, *leader), other) for other in self.texts)
                    cost += _CROSSED * sum(
                        crosses((x, y, *leader), other)
                        for other in self.taken
                        if not (other.left <= x <= other.right and other.top <= y <= other.bottom)
                    )
                if best is None or cost < best[0]:
                    best = cost, Placed(box, leader)
        return best


def _broken(text: str, size: float, room: float) -> list[list[str]]:
    """The text in one, two and three lines of about equal width, where these fit the room; else shortened to three."""
    whole = measure(text, size)
    made: list[list[str]] = []
    for most in (1, 2, 3):
        width = whole / most
        while width <= room and len(wrap(text, size, width, most + 1)) > most:
            width += 3
        if width <= room and max(measure(word, size) for word in text.split()) <= width:
            made.append(wrap(text, size, width, most))
    return made or [wrap(text, size, room, 3)]


def crosses(line: tuple[float, float, float, float], box: Box) -> bool:
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


def _meet(one: tuple[float, float, float, float], other: tuple[float, float, float, float]) -> bool:
    """Whether two segments cross inside both."""

    def side(line: tuple[float, float, float, float], x: float, y: float) -> float:
        return (line[2] - line[0]) * (y - line[1]) - (line[3] - line[1]) * (x - line[0])

    apart = side(one, *other[:2]) * side(one, *other[2:]) < 0
    return apart and side(other, *one[:2]) * side(other, *one[2:]) < 0
