"""Horizontal bars with a name before and a value behind each: what waterfall and tornado are made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mlsysim.plot.frame import BODY, PAD, SMALL, linear_scale, x_axis
from mlsysim.plot.svg import LINE, Box, Drawing, fit, measure, wrap

_PHONE = 500.0


@dataclass(frozen=True, slots=True)
class Row:
    """A bar from low to high in the colour and hatch of a series, with the text behind it.

    ``also`` is a second bar of the same row, (low, high, series).
    """

    label: str
    low: float
    high: float
    value: str
    series: int
    bold: bool = False
    hatched: bool = True
    also: tuple[float, float, int] | None = None


def paint_rows(
    d: Drawing, y: float, rows: Sequence[Row], title: str, unit: str, *, linked: bool = False, origin: float = 0.0
) -> float:
    """The bars over one axis; names stand left of the plot, on a narrow page above their bars.

    ``linked`` joins the end of a bar with the beginning of the next. Returns where the rest begins.
    """
    narrow = d.width < _PHONE
    value_room = max(measure(row.value, SMALL, row.bold) for row in rows) + 8
    value_room = min(value_room, d.width * (0.46 if narrow else 0.34))
    longest = max(measure(row.label, BODY, row.bold) for row in rows)
    names = 0.0 if narrow else min(longest, d.width * 0.32) + 10
    plot_left, plot_right = PAD + names, d.width - PAD - value_room
    lines = {row: [row.label] if narrow else wrap(row.label, BODY, names - 10, 2, row.bold) for row in rows}
    extents = [value for row in rows for value in (row.low, row.high, *(row.also[:2] if row.also else ()))]
    scale = linear_scale(min([origin, *extents]), max([origin, *extents]), plot_left, plot_right)
    tops: list[float] = []
    height = 16.0 if narrow else 18.0
    cursor = y + 2
    for row in rows:
        above = LINE * BODY + 1 if narrow else 0.0
        tops.append(cursor + above)
        cursor += above + max(height, 0 if narrow else len(lines[row]) * LINE * BODY) + 8
    plot = Box(plot_left, y, plot_right, cursor - 2)
    after = x_axis(d, scale, plot, title, unit)
    d.line(scale(origin), plot.top, scale(origin), plot.bottom, "zero")
    for k, (row, top) in enumerate(zip(rows, tops, strict=True)):
        _row(d, row, scale, top, height, lines[row], names, value_room, plot)
        if linked and k + 2 < len(rows):
            x = scale(row.high)
            d.line(x, top + height, x, tops[k + 1], "leader")
    return after


def _row(
    d: Drawing,
    row: Row,
    scale: object,
    top: float,
    height: float,
    lines: list[str],
    names: float,
    value_room: float,
    plot: Box,
) -> None:
    assert callable(scale)
    bars = [(row.low, row.high, row.series)] + ([row.also] if row.also else [])
    right = plot.left
    for low, high, series in bars:
        left, end = sorted((scale(low), scale(high)))
        d.rect(
            left,
            top,
            max(end - left, 1.0),
            height,
            f"f{series % 8} edge",
            radius=1.5,
            hatch=series if row.hatched else 0,
            tip=f"{row.label}: {row.value}",
        )
        right = max(right, end)
    if names:
        block = len(lines) * LINE * BODY
        for number, line in enumerate(lines):
            base = top + height / 2 - block / 2 + number * LINE * BODY + BODY
            d.text(plot.left - 10, base, line, BODY, anchor="end", bold=row.bold)
    else:
        d.text(PAD, top - 4, row.label, BODY, "ink halo", bold=row.bold, room=d.width - 2 * PAD)
    shown = fit(row.value, SMALL, value_room - 8, row.bold)
    d.text(right + 6, top + height / 2 + 4, shown, SMALL, "ink halo", bold=row.bold)
