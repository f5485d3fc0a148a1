"""What all charts share: heading, axes, key, and the sizes of type."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from mlsysim.plot.scale import Linear, Log, axis_unit, linear_ticks, log_ticks, number, tick_texts
from mlsysim.plot.svg import ASCENT, LINE, Box, Drawing, clean, measure, wrap

PAD = 16.0
TITLE, SUBTITLE, BODY, SMALL = 15.0, 12.0, 11.5, 11.0


def heading(d: Drawing, title: str, subtitle: str = "") -> float:
    """Title and subtitle at the top; returns where the rest begins."""
    room = d.width - 2 * PAD
    y = 12.0
    for line in wrap(clean(title), TITLE, room, 3, bold=True):
        d.text(PAD, y + ASCENT * TITLE, line, TITLE, bold=True)
        y += LINE * TITLE
    for line in wrap(clean(subtitle), SUBTITLE, room, 4):
        d.text(PAD, y + ASCENT * SUBTITLE, line, SUBTITLE, "muted")
        y += LINE * SUBTITLE
    return y + 8


@dataclass(frozen=True, slots=True)
class KeyEntry:
    """One line of a key: ``kind`` is fill, line, marker, wash, void, frame or limit; ``series`` its colour, hatch, dash and shape."""

    label: str
    series: int
    kind: str = "fill"


def key(d: Drawing, y: float, entries: Sequence[KeyEntry]) -> float:
    """Entries side by side, as many to a row as fit; returns where the rest begins."""
    room = d.width - 2 * PAD
    x, height = PAD, 18.0
    for entry in entries:
        width = min(measure(entry.label, SMALL) + 24, room)
        if x > PAD and x + width > PAD + room + 0.01:
            x, y, height = PAD, y + height, 18.0
        _sample(d, entry, x, y)
        lines = wrap(entry.label, SMALL, width - 22, 3)
        for row, line in enumerate(lines):
            d.text(x + 20, y + 11 + row * LINE * SMALL, line, SMALL)
        height = max(height, 4 + len(lines) * LINE * SMALL)
        x += width + 14
    return y + height + 4 if entries else y


def _sample(d: Drawing, entry: KeyEntry, x: float, y: float) -> None:
    colour = entry.series % 8
    if entry.kind == "line":
        d.line(x, y + 7, x + 15, y + 7, f"l{colour}")
    elif entry.kind == "marker":
        d.marker(entry.series, x + 7.5, y + 7, 4.5, f"f{colour}")
    elif entry.kind == "void":
        d.rect(x + 0.5, y + 1.5, 14, 11, "void")
    elif entry.kind == "wash":
        d.rect(x, y + 2, 15, 11, f"f{colour} wash")
    elif entry.kind == "frame":
        d.rect(x + 1, y + 2, 13, 10, "mark", radius=3)
    elif entry.kind == "limit":
        d.line(x, y + 7, x + 15, y + 7, "limit")
    else:
        d.rect(x, y + 1, 15, 12, f"f{colour}", radius=2, hatch=entry.series)


def notes(d: Drawing, y: float, lines: Sequence[str], most: int = 40) -> float:
    """Remarks under a chart; returns where the rest begins."""
    for remark in lines:
        for line in wrap(remark, SMALL, d.width - 2 * PAD, most):
            d.text(PAD, y + ASCENT * SMALL, line, SMALL, "muted")
            y += LINE * SMALL
    return y + 4 if lines else y


def finish(d: Drawing, y: float) -> Drawing:
    """Close the page below y."""
    d.height = round(y + 8)
    return d


def linear_scale(low: float, high: float, start: float, end: float) -> Linear:
    """A scale that has an extent even where all values are equal."""
    if high - low <= 1e-12 * max(abs(low), abs(high)):
        spread = abs(high) * 0.5 or 1.0
        low, high = low - spread, high + spread
    return Linear(low, high, start, end)


def log_scale(low: float, high: float, start: float, end: float) -> Log:
    """A logarithmic scale of at least one decade."""
    if high < low * 10:
        middle = (low * high) ** 0.5
        low, high = middle / 10**0.5, middle * 10**0.5
    return Log(low, high, start, end)


def ticks_of(scale: Linear | Log, unit: str, most: int) -> tuple[list[float], list[str], str]:
    """Values, their texts, and the symbol of the unit in which these are."""
    if isinstance(scale, Log):
        values = log_ticks(scale.low, scale.high, most)
        return values, [number(value) for value in values], unit
    factor, symbol = axis_unit(max(abs(scale.low), abs(scale.high)), unit)
    values = [tick / factor for tick in linear_ticks(scale.low * factor, scale.high * factor, most)]
    return values, tick_texts(values, factor), symbol


def x_axis(d: Drawing, scale: Linear | Log, plot: Box, title: str, unit: str, *, grid: bool = True) -> float:
    """Ticks and title below the plot; returns where the rest begins."""
    texts: list[str] = []
    for most in (8, 6, 5, 4, 3, 2, 1):
        values, texts, symbol = ticks_of(scale, unit, most)
        boxes = [_tick_box(scale(value), text, plot, d.width) for value, text in zip(values, texts, strict=True)]
        if all(not one.meets(other, 8) for one, other in pairwise(boxes)):
            break
    for value, text, box in zip(values, texts, boxes, strict=True):
        x = scale(value)
        if grid:
            d.line(x, plot.top, x, plot.bottom, "grid")
        d.line(x, plot.bottom, x, plot.bottom + 4, "axis")
        d.text((box.left + box.right) / 2, plot.bottom + 17, text, SMALL, "muted", anchor="middle")
    d.line(plot.left, plot.bottom, plot.right, plot.bottom, "axis")
    return axis_title(d, plot.bottom + 22, title, symbol, plot)


def _tick_box(x: float, text: str, plot: Box, page: float) -> Box:
    half = measure(text, SMALL) / 2
    x = min(max(x, half + 2), page - half - 2)
    return Box(x - half, plot.bottom, x + half, plot.bottom + SMALL)


def axis_title(d: Drawing, y: float, title: str, unit: str, plot: Box) -> float:
    """The title of the x axis, centred under the plot where it fits there; returns where the rest begins."""
    text = f"{title} ({unit})" if unit else title
    room = d.width - 2 * PAD
    for line in wrap(text, SMALL + 0.5, room, 2):
        width = measure(line, SMALL + 0.5)
        x = min(max((plot.left + plot.right - width) / 2, PAD), d.width - PAD - width)
        d.text(x, y + ASCENT * 11.5, line, SMALL + 0.5)
        y += LINE * 11.5
    return y + 8


def y_ticks(
    scale_of: Callable[[float, float], Linear | Log], unit: str, height: float
) -> tuple[list[float], list[str], str, float]:
    """Ticks of a y axis of that height, and the width that their texts take."""
    values, texts, symbol = ticks_of(scale_of(height, 0.0), unit, max(2, int(height / 38)))
    return values, texts, symbol, max((measure(text, SMALL) for text in texts), default=0.0)


def y_axis(d: Drawing, scale: Linear | Log, plot: Box, values: Sequence[float], texts: Sequence[str]) -> None:
    """Ticks left of the plot. The title stands above the plot, where it can be read (see :func:`y_title`)."""
    for value, text in zip(values, texts, strict=True):
        y = scale(value)
        d.line(plot.left, y, plot.right, y, "grid")
        d.text(plot.left - 7, y + 4, text, SMALL, "muted", anchor="end")
    d.line(plot.left, plot.top, plot.left, plot.bottom, "axis")


def y_title(d: Drawing, y: float, title: str, unit: str) -> float:
    """The title of the y axis, upright, above its ticks; returns where the plot may begin."""
    text = f"{title} ({unit})" if unit else title
    for line in wrap(text, SMALL + 0.5, d.width - 2 * PAD, 2):
        d.text(PAD, y + ASCENT * 11.5, line, SMALL + 0.5)
        y += LINE * 11.5
    return y + 8


def in_sentence(title: str) -> str:
    """A title inside a sentence: without its unit, and small unless it is an abbreviation."""
    words = title.split(" (")[0]
    return words if words[:2].isupper() else words[:1].lower() + words[1:]
