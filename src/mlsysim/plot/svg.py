"""A small SVG writer: shapes, text whose width is known, and one document with a title, a description and its own style.

Text has to be placed before anybody knows the font it is shown in. The widths here are those of DejaVu Sans, the widest
of the sans-serif fonts in common use, so that the box of a text is an upper bound: in Helvetica, Arial, Segoe, Roboto or
San Francisco it is some 10 % narrower. Letters outside ASCII take the width of their base letter; East Asian ones and
symbols that we do not know a whole em.

Hatches as lines and dots, cut at the edges of what they fill.

Patterns of SVG would be shorter, but a printed page draws each use of one as a picture of its own: a report of charts would have some twenty
megabytes. The lines lie on one grid, so that neighbours go on in each other. In the colour of the background over a fill; the first is
none.
"""

from __future__ import annotations

import hashlib
import math
import re
import unicodedata
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple
from xml.sax.saxutils import escape

from mlsysim.errors import InputError
from mlsysim.plot.theme import stylesheet

# Hundredths of an em of the printable ASCII characters, from the space on (DejaVu Sans 2.37).
_ASCII = (
    "32 41 46 84 64 96 78 28 40 40 50 84 32 37 32 34 64 64 64 64 64 64 64 64 64 64 34 34 84 84 84 54 100 69 69 70 78 64 "
    "58 78 76 30 30 66 56 87 75 79 61 79 70 64 62 74 69 99 69 62 69 40 34 40 84 50 50 62 64 55 64 62 36 64 64 28 28 58 "
    "28 98 64 62 64 64 42 53 40 64 60 82 60 60 53 64 34 64 84"
)
_WIDTH = {chr(32 + index): int(width) / 100 for index, width in enumerate(_ASCII.split())}
_WIDTH |= {"·": 0.38, "–": 0.5, "°": 0.5, "²": 0.45, "³": 0.45, "µ": 0.74, "•": 0.64}
# Bold widens narrow letters most.
_BOLD, _BOLD_NARROW = 1.13, 1.27
_NARROW = set("ilIjft1!|.,:;'\"()[]{}r-/ ")

# Ascent and descent of a line of text over its size.
ASCENT, DESCENT = 0.93, 0.25
LINE = 1.3


@lru_cache(maxsize=4096)
def _character(ch: str) -> float:
    if ch in _WIDTH:
        return _WIDTH[ch]
    if unicodedata.combining(ch):
        return 0.0
    base = unicodedata.normalize("NFD", ch)[0]
    if base in _WIDTH:
        return _WIDTH[base]
    if ch.isalpha() and unicodedata.east_asian_width(ch) in "NaA" and ord(ch) < 0x530:
        return 0.95 if ch.isupper() else 0.85
    return 1.1


@lru_cache(maxsize=16384)
def measure(text: str, size: float, bold: bool = False) -> float:
    """Width of a line of text, in the units of ``size``.

    >>> round(measure("H100", 10), 2)
    26.8
    """
    total = 0.0
    for ch in text:
        total += _character(ch) * ((_BOLD_NARROW if ch in _NARROW else _BOLD) if bold else 1.0)
    return total * size


def clean(text: object) -> str:
    """One line without characters that XML or a reader could stumble over."""
    kept = (
        ch if unicodedata.category(ch) not in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp") else " " for ch in str(text)
    )
    return " ".join("".join(kept).split())


@lru_cache(maxsize=8192)
def fit(text: str, size: float, room: float, bold: bool = False) -> str:
    """The text, or its first and last words with an ellipsis between them where it is wider than ``room``; only of a word that alone is
    too wide its two ends."""
    if measure(text, size, bold) <= room:
        return text
    words = text.split(" ")
    for kept in range(len(words) - 1, 0, -1):
        head = (kept * 2 + 2) // 3
        short = " ".join([*words[:head], "…", *words[len(words) - (kept - head) :]])
        if measure(short, size, bold) <= room:
            return short
    for kept in range(len(text) - 1, 0, -1):
        head = (kept * 2 + 2) // 3
        short = text[:head].rstrip() + "…" + text[len(text) - (kept - head) :].lstrip() * (kept > head)
        if measure(short, size, bold) <= room:
            return short
    return ""


def wrap(text: str, size: float, room: float, most: int = 3, bold: bool = False) -> list[str]:
    """The text in at most ``most`` lines; words wider than the room and what is left over are shortened."""
    lines: list[str] = []
    words = text.split()
    while words and len(lines) < most:
        line = words.pop(0)
        while words and measure(f"{line} {words[0]}", size, bold) <= room:
            line += " " + words.pop(0)
        if len(lines) == most - 1 and words:
            line = " ".join([line, *words])
            words = []
        lines.append(fit(line, size, room, bold))
    return lines


class Box(NamedTuple):
    """A rectangle on the page."""

    left: float
    top: float
    right: float
    bottom: float

    def meets(self, box: Box, gap: float = 0.0) -> bool:
        """Whether the two overlap, or come closer than ``gap``."""
        across = self.left < box.right + gap and box.left < self.right + gap
        return across and self.top < box.bottom + gap and box.top < self.bottom + gap

    def inside(self, box: Box) -> bool:
        """Whether this box lies within the other."""
        return box.left <= self.left <= self.right <= box.right and box.top <= self.top <= self.bottom <= box.bottom


def text_box(x: float, y: float, text: str, size: float, anchor: str = "start", bold: bool = False) -> Box:
    """The box of a line of text with its baseline at y."""
    width = measure(text, size, bold)
    left = x - {"start": 0.0, "middle": width / 2, "end": width}[anchor]
    return Box(left, y - ASCENT * size, left + width, y + DESCENT * size)


def _n(value: float) -> str:
    """A coordinate: two decimals, none that are zero."""
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text in ("-0", "") else text


_MARKERS = (
    "M{0} 0A{0} {0} 0 1 0 -{0} 0A{0} {0} 0 1 0 {0} 0Z",
    "M-{1} -{1}H{1}V{1}H-{1}Z",
    "M0 -{2}L{0} {1}H-{0}Z",
    "M0 -{2}L{2} 0L0 {2}L-{2} 0Z",
    "M0 {2}L{0} -{1}H-{0}Z",
    "M-{3} -{2}H{3}V-{3}H{2}V{3}H{3}V{2}H-{3}V{3}H-{2}V-{3}H-{3}Z",
    "M-{2} 0L-{3} -{0}H{3}L{2} 0L{3} {0}H-{3}Z",
    "M0 -{2}L{1} 0L0 {2}L-{1} 0Z",
)


class Drawing:
    """Shapes in the order in which they are drawn. Colours and weights come from classes of the theme."""

    def __init__(self, width: float) -> None:
        self.width = width
        self.narrow = width < 500
        self.height = 0.0
        self._parts: list[str] = []

    def rect(
        self, x: float, y: float, wide: float, high: float, cls: str, radius: float = 0, hatch: int = 0, tip: str = ""
    ) -> None:
        """A rectangle, with the hatch of a series over its fill (0: none). The ninth series repeats a colour, not the pair."""
        place = f'x="{_n(x)}" y="{_n(y)}" width="{_n(max(wide, 0))}" height="{_n(max(high, 0))}"'
        if radius:
            place += f' rx="{_n(radius)}"'
        self._add("rect", place, cls, tip)
        shape, over = hatch_path((hatch + hatch // KINDS) % KINDS, x, y, wide, high)
        if shape:
            self._add("path", f'd="{shape}"', over)

    def blocks(self, places: Sequence[tuple[float, float, float, float]], cls: str) -> None:
        """Many rectangles (x, y, width, height) as one shape."""
        parts = (f"M{_n(x)} {_n(y)}h{_n(wide)}v{_n(high)}h{_n(-wide)}z" for x, y, wide, high in places)
        self._add("path", f'd="{"".join(parts)}"', cls)

    def line(self, x1: float, y1: float, x2: float, y2: float, cls: str) -> None:
        self._add("line", f'x1="{_n(x1)}" y1="{_n(y1)}" x2="{_n(x2)}" y2="{_n(y2)}"', cls)

    def polyline(self, points: Sequence[tuple[float, float]], cls: str, *, closed: bool = False) -> None:
        text = " ".join(f"{_n(x)},{_n(y)}" for x, y in points)
        self._add("polygon" if closed else "polyline", f'points="{text}"', cls)

    def marker(self, number: int, x: float, y: float, radius: float, cls: str, tip: str = "") -> None:
        """One of eight shapes of about the same area."""
        shape = _MARKERS[number % len(_MARKERS)].format(*(_n(radius * part) for part in (1, 0.87, 1.2, 0.42)))
        self._add("path", f'd="{shape}" transform="translate({_n(x)} {_n(y)})"', cls, tip)

    def text(
        self,
        x: float,
        y: float,
        content: str,
        size: float,
        cls: str = "ink",
        *,
        anchor: str = "start",
        bold: bool = False,
        room: float | None = None,
    ) -> Box:
        """A line of text with its baseline at y, shortened to ``room``; the whole of it stays as a tip."""
        shown = content if room is None else fit(content, size, room, bold)
        if shown:
            more = f' text-anchor="{anchor}"' if anchor != "start" else ""
            more += ' font-weight="600"' if bold else ""
            tip = f"<title>{escape(content)}</title>" if shown != content else ""
            place = f'x="{_n(x)}" y="{_n(y)}" font-size="{_n(size)}"'
            self._parts.append(f'<text {place}{more} class="{cls}">{tip}{escape(shown)}</text>')
        return text_box(x, y, shown, size, anchor, bold)

    def _add(self, tag: str, attributes: str, cls: str, tip: str = "") -> None:
        inner = f"><title>{escape(tip)}</title></{tag}>" if tip else "/>"
        self._parts.append(f'<{tag} {attributes} class="{cls}"{inner}')

    def document(self, title: str, description: str, identity: str | None = None) -> str:
        """The SVG. Ids start with ``identity``, by default a digest of the content."""
        body = "\n".join(self._parts)
        if identity is None:
            digest = hashlib.sha256("\n".join((title, description, _n(self.width), body)).encode()).hexdigest()
            identity = f"mlp-{digest[:12]}"
        elif not re.fullmatch(r"[A-Za-z][A-Za-z0-9_.-]{0,80}", identity):
            raise InputError(
                f"The id of a figure is a letter with letters, digits, '-', '_' or '.' behind it, got {identity!r:.60}."
            )
        width, height = _n(self.width), _n(self.height)
        lines = [
            f'<svg xmlns="http://www.w3.org/2000/svg" class="mlp" id="{identity}" viewBox="0 0 {width} {height}" '
            f'width="100%" style="max-width:{width}px;height:auto" role="img" '
            f'aria-labelledby="{identity}-t {identity}-d">',
            f'<title id="{identity}-t">{escape(title)}</title>',
            f'<desc id="{identity}-d">{escape(description)}</desc>',
            f"<style>{stylesheet()}</style>",
            f'<rect width="{width}" height="{height}" class="bg"/>',
            body,
            "</svg>",
        ]
        return "\n".join(lines) + "\n"


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
        return f"M{_tenths(x)} {_tenths(c)}H{_tenths(right)}"
    if b == 0:
        return f"M{_tenths(c)} {_tenths(y)}V{_tenths(bottom)}"
    low, high = (c - bottom, c - y) if b > 0 else (c + y, c + bottom)
    start, end = max(x, low), min(right, high)
    return f"M{_tenths(start)} {_tenths((c - start) * b)}L{_tenths(end)} {_tenths((c - end) * b)}"


def _dots(x: float, y: float, right: float, bottom: float) -> Iterator[str]:
    for row in range(math.floor(y / _STEP), math.ceil(bottom / _STEP)):
        for column in range(math.floor(x / _STEP), math.ceil(right / _STEP)):
            for shift in (2.0, 6.0):
                cx, cy = column * _STEP + shift, row * _STEP + shift
                if x <= cx - _RADIUS and cx + _RADIUS <= right and y <= cy - _RADIUS and cy + _RADIUS <= bottom:
                    yield f"M{_tenths(cx - _RADIUS)} {_tenths(cy)}a1.1 1.1 0 1 0 2.2 0a1.1 1.1 0 1 0-2.2 0"


def _tenths(value: float) -> str:
    """A coordinate with one decimal, which is enough for a texture."""
    text = f"{value:.1f}".removesuffix(".0")
    return "0" if text == "-0" else text
