"""Lines: how one or several values go with another, such as percentiles with replicas, or a queue with time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mlsysim.errors import InputError
from mlsysim.plot.amounts import fields, plain, read_amount, read_label, sequence
from mlsysim.plot.figure import WIDE, Figure
from mlsysim.plot.frame import SMALL, KeyEntry, in_sentence, key, plane, with_unit
from mlsysim.plot.scale import Linear, amount, is_log, linear_scale, scale_for
from mlsysim.plot.svg import LINE, Drawing, fit, measure
from mlsysim.units.records import dataclass

_MOST, _MARKED = 500, 24
"""Points of a line at most, and up to how many have a mark each."""
_HEIGHT, _OFF, _PUSHED, _BESIDE = 260.0, 9.0, 9.0, 0.3
"""Of the plot; between the end of a line and its name; how far a name may be pushed from it; share of the width that names may have."""

Points = list[tuple[float, float]]


@dataclass(frozen=True)
class _Names(Linear):
    """Names one beside the other, the first at 0."""

    names: tuple[str, ...] = ()

    def ticks(self, unit: str, most: int) -> tuple[list[float], list[str], str]:
        every = -(-len(self.names) // max(most, 1))
        shown = [fit(name, SMALL, abs(self.end - self.start)) for name in self.names[::every]]
        return [float(k) for k in range(0, len(self.names), every)], shown, unit


@dataclass(frozen=True, repr=False)
class _Lines(Figure):
    series: list[tuple[str, Points]]
    names: tuple[str, ...]
    titles: tuple[str, str]
    units: tuple[str, str]
    limit: float | None

    def values(self, axis: int) -> list[float]:
        found = [point[axis] for _, points in self.series for point in points]
        return [*found, self.limit] if axis and self.limit is not None else found

    @property
    def alt(self) -> str:
        said = []
        for label, points in self.series:
            ends = " to ".join(amount(points[k][1], self.units[1]) for k in ((0, -1) if len(points) > 1 else (0,)))
            most = max(y for _, y in points)
            said.append(f"{label} {ends}, at most {amount(most, self.units[1])}")
        limit = "" if self.limit is None else f" The limit is {amount(self.limit, self.units[1])}."
        return f"{self.titles[1]} by {in_sentence(self.titles[0])}: {'; '.join(said)}.{limit}"

    def _across(self, start: float, end: float) -> Linear:
        if self.names:
            return _Names(-0.25, len(self.names) - 0.75, start, end, self.names)
        values = self.values(0)
        return linear_scale(min(values), max(values), start, end)

    def _up(self, start: float, end: float) -> Linear:
        values = self.values(1)
        return scale_for(values if is_log(values) else [0.0, *values], start, end)

    def _body(self, d: Drawing, y: float) -> float:
        entries = [KeyEntry(label, k, "line") for k, (label, _) in enumerate(self.series)]
        if self.limit is not None:
            entries.append(KeyEntry(f"limit ({amount(self.limit, self.units[1])})", 0, "limit"))
        beside = max(measure(entry.label, SMALL) for entry in entries) + _OFF
        names = self._at_ends(entries) if beside < _BESIDE * d.width else None
        y = key(d, y, entries if names is None else [])
        sides = (self._across, self.titles[0], self.units[0]), (self._up, self.titles[1], self.units[1])
        plot, across, up, y = plane(d, y, _HEIGHT, *sides, beside=0.0 if names is None else beside)
        for label, down in names or ():
            d.text(plot.right + _OFF, plot.top + down + 4, label, SMALL)
        if self.limit is not None:
            d.line(plot.left, up(self.limit), plot.right, up(self.limit), "limit")
        for k, (label, points) in enumerate(self.series):
            d.polyline([(across(px), up(py)) for px, py in points], f"l{k % 8}")
            for px, py in points if len(points) <= _MARKED else ():
                d.marker(k, across(px), up(py), 4, f"f{k % 8} edge", f"{label}: {amount(py, self.units[1])}")
        return y

    def _at_ends(self, entries: list[KeyEntry]) -> list[tuple[str, float]] | None:
        """Names of the lines beside their right ends, and how far down; None where ends are apart or their names would not be."""
        ends = [points[-1] for _, points in self.series]
        if len({x for x, _ in ends}) > 1 or ends[0][0] < max(self.values(0)):
            return None
        up = self._up(_HEIGHT, 0.0)
        heights = [*(y for _, y in ends), *(() if self.limit is None else (self.limit,))]
        places = sorted((up(height), entry.label) for height, entry in zip(heights, entries, strict=True))
        told: list[tuple[str, float]] = []
        for place, label in places:
            down = place if not told else max(place, told[-1][1] + LINE * SMALL)
            if down - place > _PUSHED:
                return None
            told.append((label, down))
        return told

    def _axes(self, ax: Any) -> None:
        for label, points in self.series:
            ax.plot([x for x, _ in points], [y for _, y in points], label=label)
        if self.limit is not None:
            ax.axhline(self.limit, linestyle="--", label="limit")
        if self.names:
            ax.set_xticks(range(len(self.names)), self.names)
        if is_log(self.values(1)):
            ax.set(yscale="log")
        ax.set(xlabel=with_unit(self.titles[0], self.units[0]), ylabel=with_unit(self.titles[1], self.units[1]))
        ax.legend()


def lines(
    series: Any,
    *,
    x_title: str,
    y_title: str,
    x_unit: str = "",
    y_unit: str = "",
    names: Sequence[str] = (),
    limit: Any = None,
    title: str | None = None,
    subtitle: str = "",
    width: int = WIDE,
) -> Figure:
    """Lines (label, points (x, y)) of numbers in the given units, and a limit across them.

    With ``names`` x is the number of a name, from 0 on. The y axis is logarithmic where values are spread far.
    """
    read: list[tuple[str, Points]] = []
    units = tuple(read_amount(1.0, "unit", unit) for unit in (x_unit, y_unit))
    factors, symbols = tuple(f for f, _ in units), tuple(symbol for _, symbol in units)
    for item in sequence(series, "lines"):
        label, points = fields(item, "A line is (label, points)", 2)
        if not isinstance(points, (list, tuple)) or not 1 <= len(points) <= _MOST:
            raise InputError(f"A line has 1 to {_MOST} points (x, y), got {points!r:.60}.")
        pairs = [fields(point, "A point of a line is (x, y)", 2) for point in points]
        values = [tuple(plain(v, f"value of {label!r:.40}", negative=True) for v in pair) for pair in pairs]
        read.append((read_label(label), [(x * factors[0], y * factors[1]) for x, y in values]))
    most = max(x for _, points in read for x, _ in points)
    if names and not most < len(names):
        raise InputError(f"x is the number of one of {len(names)} names, from 0 on; got {most:g}.")
    across = None if limit is None else read_amount(limit, "limit", None if isinstance(limit, str) else y_unit)[0]
    titles = read_label(x_title), read_label(y_title)
    title = read_label(title) if title is not None else f"{titles[1]} by {in_sentence(titles[0])}"
    return _Lines(title, subtitle, width, read, tuple(map(read_label, names)), titles, (symbols[0], symbols[1]), across)
