"""Hatches as lines and dots, cut at the edges of what they fill.

Patterns of SVG would be shorter, but a printed page draws each use of one as a picture of its own: a report of charts would have some twenty
megabytes. The lines lie on one grid, so that neighbours go on in each other. In the colour of the background over a fill; the first is
none.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

_STEP, _RADIUS = 8.0, 1.1
_LINES: tuple[tuple[tuple[int, int, float, float], ...], ...] = (
    (),
    ((1, 1, _STEP, 0.0),),
    (),
    ((1, -1, _STEP, 0.0),),
    ((0, 1, _STEP / 2, 2.0),),
    ((1, 0, _STEP / 2, 2.0),),
    ((1, -1, _STEP, 0.0), (1, 1, _STEP, 0.0)),
    ((0, 1, _STEP, 4.0), (1, 0, _STEP, 4.0)),
)
"""Families of lines a x + b y = c, c from an offset on in steps; the third hatch has dots instead."""
_DOTS = 2
KINDS = len(_LINES)


def hatch_path(kind: int, x: float, y: float, wide: float, high: float) -> tuple[str, str]:
    """The path of a hatch inside of a rectangle, and the class that draws it; nothing where none fits in.

    >>> hatch_path(4, 0, 0, 10, 5), hatch_path(2, 0, 0, 4, 4)[1], hatch_path(1, 0, 0, 0, 9)
    (('M0 2H10', 'hatch'), 'dot', ('', 'hatch'))
    """
    right, bottom = x + wide, y + high
    if kind == _DOTS:
        return "".join(_dots(x, y, right, bottom)), "dot"
    found = []
    for a, b, step, offset in _LINES[kind]:
        ends = [a * px + b * py for px in (x, right) for py in (y, bottom)]
        first = math.floor((min(ends) - offset) / step) + 1
        for number in range(first, math.ceil((max(ends) - offset) / step)):
            found.append(_line(a, b, offset + number * step, x, y, right, bottom))
    return "".join(found), "hatch"


def _line(a: int, b: int, c: float, x: float, y: float, right: float, bottom: float) -> str:
    if a == 0:
        return f"M{_n(x)} {_n(c)}H{_n(right)}"
    if b == 0:
        return f"M{_n(c)} {_n(y)}V{_n(bottom)}"
    low, high = (c - bottom, c - y) if b > 0 else (c + y, c + bottom)
    start, end = max(x, low), min(right, high)
    return f"M{_n(start)} {_n((c - start) * b)}L{_n(end)} {_n((c - end) * b)}"


def _dots(x: float, y: float, right: float, bottom: float) -> Iterator[str]:
    for row in range(math.floor(y / _STEP), math.ceil(bottom / _STEP)):
        for column in range(math.floor(x / _STEP), math.ceil(right / _STEP)):
            for shift in (2.0, 6.0):
                cx, cy = column * _STEP + shift, row * _STEP + shift
                if x <= cx - _RADIUS and cx + _RADIUS <= right and y <= cy - _RADIUS and cy + _RADIUS <= bottom:
                    yield f"M{_n(cx - _RADIUS)} {_n(cy)}a1.1 1.1 0 1 0 2.2 0a1.1 1.1 0 1 0-2.2 0"


def _n(value: float) -> str:
    """A coordinate with one decimal, which is enough for a texture."""
    text = f"{value:.1f}".removesuffix(".0")
    return "0" if text == "-0" else text
