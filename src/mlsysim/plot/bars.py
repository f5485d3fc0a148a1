"""Horizontal bars with a name before and a value behind each: what waterfall and tornado are made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from mlsysim.plot.frame import BODY, PAD, SMALL, x_axis
from mlsysim.plot.scale import linear_scale
from mlsysim.plot.svg import LINE, Box, Drawing, fit, measure, wrap


class Row(NamedTuple):
    """Bars (from, to, series) in the colours and hatches of their series, with a text behind them; a bold one is plain."""

    label: str
    value: str
    bars: Sequence[tuple[float, float, int]]
    bold: bool = False


def paint_rows(
    d: Drawing, y: float, rows: Sequence[Row], title: str, unit: str, *, linked: bool = False, origin: float = 0.0
) -> float:
    """The bars over one axis; names stand left of the plot, on a narrow page above their bars.

    ``linked`` joins the end of a bar with the beginning of the next. Returns where the rest begins.
    """
    value_room = max(measure(row.value, SMALL, row.bold) for row in rows) + 8
    value_room = min(value_room, d.width * (0.46 if d.narrow else 0.34))
    names = 0.0 if d.narrow else min(max(measure(row.label, BODY, row.bold) for row in rows), d.width * 0.32) + 10
    lines = [[row.label] if d.narrow else wrap(row.label, BODY, names - 10, 2, row.bold) for row in rows]
    height, above = (16.0, LINE * BODY + 1) if d.narrow else (18.0, 0.0)
    tops, cursor = [], y + 2
    for wrapped in lines:
        tops.append(cursor + above)
        cursor += above + max(height, 0 if d.narrow else len(wrapped) * LINE * BODY) + 8
    plot = Box(PAD + names, y, d.width - PAD - value_room, cursor - 2)
    extents = [origin, *(end for row in rows for bar in row.bars for end in bar[:2])]
    scale = linear_scale(min(extents), max(extents), plot.left, plot.right)
    after = x_axis(d, scale, plot, title, unit)
    d.line(scale(origin), plot.top, scale(origin), plot.bottom, "zero")
    for k, (row, top) in enumerate(zip(rows, tops, strict=True)):
        right = plot.left
        for low, high, series in row.bars:
            left, end = sorted((scale(low), scale(high)))
            hatch, tip = 0 if row.bold else series, f"{row.label}: {row.value}"
            d.rect(left, top, max(end - left, 1.0), height, f"f{series % 8} edge", radius=1.5, hatch=hatch, tip=tip)
            right = max(right, end)
        if d.narrow:
            d.text(PAD, top - 4, row.label, BODY, "ink halo", bold=row.bold, room=d.width - 2 * PAD)
        for number, line in enumerate([] if d.narrow else lines[k]):
            base = top + height / 2 - len(lines[k]) * LINE * BODY / 2 + number * LINE * BODY + BODY
            d.text(plot.left - 10, base, line, BODY, anchor="end", bold=row.bold)
        shown = fit(row.value, SMALL, value_room - 8, row.bold)
        d.text(right + 6, top + height / 2 + 4, shown, SMALL, "ink halo", bold=row.bold)
        if linked and k + 2 < len(rows):
            x = scale(row.bars[0][1])
            d.line(x, top + height, x, tops[k + 1], "leader")
    return after
