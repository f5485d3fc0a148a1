"""What all charts share: heading, axes, key, and the sizes of type."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

from mlsysim.plot.scale import Linear
from mlsysim.plot.svg import ASCENT, LINE, Box, Drawing, clean, measure, wrap

PAD = 16.0
TITLE, SUBTITLE, BODY, SMALL = 15.0, 12.0, 11.5, 11.0


def heading(d: Drawing, title: str, subtitle: str = "") -> float:
    """Title and subtitle at the top; returns where the rest begins."""
    y = 12.0
    for text, size, most, cls, bold in ((title, TITLE, 3, "ink", True), (subtitle, SUBTITLE, 4, "muted", False)):
        for line in wrap(clean(text), size, d.width - 2 * PAD, most, bold):
            d.text(PAD, y + ASCENT * size, line, size, cls, bold=bold)
            y += LINE * size
    return y + 8


class KeyEntry(NamedTuple):
    """One line of a key: ``kind`` is fill, plain, line, marker, wash, void, faint, frame or limit; ``series`` its colour, hatch, dash and shape."""

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
    match entry.kind:
        case "line" | "limit":
            d.line(x, y + 7, x + 15, y + 7, f"l{colour}" if entry.kind == "line" else "limit")
        case "marker":
            d.marker(entry.series, x + 7.5, y + 7, 4.5, f"f{colour}")
        case "void":
            d.rect(x + 0.5, y + 1.5, 14, 11, "void")
        case "wash":
            d.rect(x, y + 2, 15, 11, f"f{colour} wash")
        case "ring":
            d.marker(0, x + 7.5, y + 7, 5, "dotted")
        case "faint":
            d.rect(x, y + 2, 15, 11, "faint")
        case "plain":
            d.rect(x, y + 2, 15, 11, f"f{colour}")
        case "frame":
            d.rect(x + 1, y + 2, 13, 10, "mark", radius=3)
        case _:
            d.rect(x, y + 1, 15, 12, f"f{colour}", radius=2, hatch=entry.series)


def note(d: Drawing, y: float, remark: str) -> float:
    """A remark under a chart, if there is one; returns where the rest begins."""
    for line in wrap(remark, SMALL, d.width - 2 * PAD, 40):
        d.text(PAD, y + ASCENT * SMALL, line, SMALL, "muted")
        y += LINE * SMALL
    return y + 4 if remark else y


def with_unit(title: str, unit: str) -> str:
    """The title of an axis with its unit behind it."""
    return f"{title} ({unit})" if unit else title


def axis_title(d: Drawing, y: float, title: str, unit: str, plot: Box | None = None) -> float:
    """The title of an axis: of x centred under the plot where it fits there; of y upright, above its ticks, at the left.

    Returns where the rest begins.
    """
    for line in wrap(with_unit(title, unit), SMALL + 0.5, d.width - 2 * PAD, 2):
        x = PAD
        if plot is not None:
            width = measure(line, SMALL + 0.5)
            x = min(max((plot.left + plot.right - width) / 2, PAD), d.width - PAD - width)
        d.text(x, y + ASCENT * 11.5, line, SMALL + 0.5)
        y += LINE * 11.5
    return y + 8


def x_axis(d: Drawing, scale: Linear, plot: Box, title: str, unit: str, *, grid: bool = True) -> float:
    """Ticks and title below the plot; returns where the rest begins."""
    for most in (8, 6, 5, 4, 3, 2, 1):
        values, texts, symbol = scale.ticks(unit, most)
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


ScaleOf = Callable[[float, float], Linear]
"""The scale of an axis between two places of the page."""


def y_ticks(scale_of: ScaleOf, unit: str, height: float) -> tuple[list[float], list[str], str, float]:
    """Values, texts and unit of the ticks of a y axis of that height, and where the plot beside them begins."""
    values, texts, symbol = scale_of(height, 0.0).ticks(unit, max(2, int(height / 38)))
    return values, texts, symbol, PAD + max((measure(text, SMALL) for text in texts), default=0.0) + 8


def y_axis(d: Drawing, scale: Linear, plot: Box, values: Sequence[float], texts: Sequence[str]) -> None:
    """Ticks left of the plot. The title stands above the plot, where it can be read."""
    for value, text in zip(values, texts, strict=True):
        y = scale(value)
        d.line(plot.left, y, plot.right, y, "grid")
        d.text(plot.left - 7, y + 4, text, SMALL, "muted", anchor="end")
    d.line(plot.left, plot.top, plot.left, plot.bottom, "axis")


def plane(
    d: Drawing,
    y: float,
    height: float,
    across: tuple[ScaleOf, str, str],
    up: tuple[ScaleOf, str, str],
    *,
    beside: float = 0.0,
) -> tuple[Box, Linear, Linear, float]:
    """Both axes, each given as (scale, title, unit): the plot between them, their scales, and where the rest begins. ``beside`` is left free
    at the right."""
    values, texts, symbol, left = y_ticks(up[0], up[2], height)
    y = axis_title(d, y, up[1], symbol)
    plot = Box(left, y, d.width - PAD - beside, y + height)
    x_scale, y_scale = across[0](plot.left, plot.right), up[0](plot.bottom, plot.top)
    y = x_axis(d, x_scale, plot, *across[1:])
    y_axis(d, y_scale, plot, values, texts)
    return plot, x_scale, y_scale, y


def in_sentence(title: str) -> str:
    """A title inside a sentence: without its unit, and small unless it is an abbreviation."""
    words = title.split(" (")[0]
    return words if words[:2].isupper() else words[:1].lower() + words[1:]
