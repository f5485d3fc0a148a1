"""A curve: how one value goes along a setting, with its interval, a limit, and what binds behind each stretch of it.

Points where there is no value are gaps with a reason. "You are here" marks one point; a second curve, dashed, is another design.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby, pairwise
from typing import Any, NamedTuple

from mlsysim.errors import InputError
from mlsysim.plot.amounts import plain, read_amount, read_label, sequence
from mlsysim.plot.figure import BELOW, WIDE, Figure
from mlsysim.plot.frame import BODY, SMALL, KeyEntry, heading, in_sentence, key, note, plane, with_unit
from mlsysim.plot.labels import Placer
from mlsysim.plot.scale import Linear, Log, amount, is_log, linear_scale, scale_for
from mlsysim.plot.svg import ASCENT, LINE, Box, Drawing, clean, wrap
from mlsysim.units.records import dataclass
from mlsysim.units.text import number

_HEIGHT, _NARROW, _LINES, _DOT = 260.0, 34.0, 2, 7.0
"""Height of the plot, the least width of a stretch that is labelled inside of it, and the lines of its label."""
_STRIP = _LINES * LINE * SMALL + 10
"""The strip at the top of the plot where what binds is named, which no line enters."""
_GEOMETRIC = 8.0
"""A setting that spans more than this factor has a logarithmic axis."""
_FEWEST = 3
"""Ticks of an axis that shows whole numbers alone."""


Points = list[tuple[float, float]]
"""Places on the page."""


class Stop(NamedTuple):
    """A point of a curve: the setting, the value and its interval (None where there is none; of ``high`` alone where it has no
    upper end), what binds there with the colour that this has, why there is no value, and the value as it is printed elsewhere."""

    x: float
    y: float | None
    low: float | None = None
    high: float | None = None
    binds: str = ""
    series: int = 0
    reason: str = ""
    text: str = ""


@dataclass(frozen=True)
class _Stops(Linear):
    """A scale with its ticks at the stops of a setting, at whole numbers where enough stops are; logarithmic where they are geometric."""

    stops: tuple[float, ...] = ()

    def __call__(self, value: float) -> float:
        shape = Log if self.low > 0 and self.high / self.low > _GEOMETRIC else Linear
        return shape(self.low, self.high, self.start, self.end)(value)

    def ticks(self, unit: str, most: int) -> tuple[list[float], list[str], str]:
        whole = [stop for stop in self.stops if stop == int(stop)]
        shown = whole if len(whole) >= _FEWEST else list(self.stops)
        shown = shown[:: -(-len(shown) // max(most, 1))]
        return shown, [number(value) for value in shown], unit


@dataclass(frozen=True, repr=False)
class Curve(Figure):
    """A figure that can say where its stops are drawn."""

    stops: list[Stop]
    ghost: list[Stop]
    ghost_name: str
    titles: tuple[str, str]
    units: tuple[str, str]
    limit: float | None
    least: bool
    here: int | None

    def _values(self) -> list[float]:
        every = [value for stop in (*self.stops, *self.ghost) for value in stop[1:4] if value is not None]
        return [*every, *([] if self.limit is None else [self.limit])] or [0.0, 1.0]

    def stretches(self) -> list[tuple[list[int], Stop]]:
        """Numbers of neighbouring stops at which the same binds, or which have no value for the same reason, with the first of them."""
        grouped = groupby(range(len(self.stops)), lambda k: (self.stops[k].binds, self.stops[k].series))
        listed = [list(numbers) for _, numbers in grouped]
        return [(numbers, self.stops[numbers[0]]) for numbers in listed]

    def _at(self, numbers: Sequence[int]) -> str:
        ends = [number(self.stops[k].x) for k in (numbers[0], numbers[-1])]
        return ends[0] if len(numbers) == 1 else " to ".join(ends)

    def reasons(self) -> str:
        """Where there is no value, and why."""
        stretches = self.stretches()
        return " ".join(f"{self._at(numbers)}: {first.reason}" for numbers, first in stretches if first.reason)

    def _short_reasons(self) -> str:
        """The same up to what would help."""
        told = [(numbers, first.reason.partition("; ")[0]) for numbers, first in self.stretches() if first.reason]
        return " ".join(f"{self._at(numbers)}: {reason.removesuffix('.')}." for numbers, reason in told)

    @property
    def alt(self) -> str:
        known = [stop for stop in self.stops if stop.y is not None]
        said = [f"{self.titles[1]} by {in_sentence(self.titles[0])}"]
        if known:
            ends = " to ".join(self._text(stop) for stop in (known[0], known[-1]))
            said.append(f"{ends} from {number(known[0].x)} to {number(known[-1].x)}")
        else:
            said.append("no value is known")
        said += [f"{first.binds} at {self._at(numbers)}" for numbers, first in self.stretches() if first.binds]
        if self.limit is not None:
            said.append(f"the limit is at {'least' if self.least else 'most'} {amount(self.limit, self.units[1])}")
        if self.here is not None:
            said.append(f"you are at {self._here_text()}")
        return f"{said[0]}: {'; '.join(said[1:])}. {self.reasons()}".strip()

    def _here_text(self) -> str:
        stop = self.stops[self.here or 0]
        return f"{number(stop.x)}: {'no value' if stop.y is None else self._text(stop)}"

    def _text(self, stop: Stop) -> str:
        return stop.text or amount(stop.y or 0.0, self.units[1])

    def _across(self, start: float, end: float) -> Linear:
        values, edge = tuple(stop.x for stop in self.stops), _DOT + 1
        made = linear_scale(min(values), max(values), start + edge, end - edge)
        return _Stops(made.low, made.high, start + edge, end - edge, values)

    def _up(self, start: float, end: float) -> Linear:
        values = self._values()
        return scale_for(values if is_log(values) else [0.0, *values], start, end + _STRIP)

    def _entries(self) -> list[KeyEntry]:
        entries = []
        if any(stop.low is not None for stop in self.stops):
            entries.append(KeyEntry("90 % interval", 0, "wash"))
        if self.limit is not None:
            word = "at least" if self.least else "at most"
            entries.append(KeyEntry(f"limit: {word} {amount(self.limit, self.units[1])}", 0, "limit"))
        if self.ghost:
            entries.append(KeyEntry(self.ghost_name, 7, "line"))
        return entries

    def _body(self, d: Drawing, y: float) -> float:
        return self._paint_all(d, y)[0]

    def _paint_all(self, d: Drawing, y: float) -> tuple[float, Points, Box]:
        y = key(d, y, self._entries())
        sides = (self._across, self.titles[0], self.units[0]), (self._up, self.titles[1], self.units[1])
        plot, across, up, y = plane(d, y, _HEIGHT, *sides)
        untold = self._backs(d, plot, across)
        paths: list[Points] = [] if self.limit is None else [[(x, up(self.limit)) for x in (plot.left, plot.right)]]
        for path in paths:
            d.polyline(path, "limit")
        for run in _runs(self.stops):
            both = [(across(stop.x), stop.low, stop.high) for stop in run if stop.low is not None]
            # What has no upper end goes on beyond the plot.
            edge = [(x, plot.top if high is None else up(high)) for x, _, high in both]
            edge += [(x, up(low)) for x, low, _ in both[::-1]]
            if edge:
                d.polyline(edge, "f0 wash", closed=True)
        for stops, cls in ((self.ghost, "l7"), (self.stops, "l0")):
            for run in _runs(stops):
                paths.append([(across(stop.x), up(stop.y or 0.0)) for stop in run])
                d.polyline(paths[-1], cls)
        for stop in (stop for stop in self.stops if stop.y is not None):
            d.marker(0, across(stop.x), up(stop.y or 0.0), 3, "f0 edge", f"{number(stop.x)}: {self._text(stop)}")
        places = [(across(stop.x), plot.bottom if stop.y is None else up(stop.y)) for stop in self.stops]
        untold.append(self._mark(d, plot, places, paths))
        return note(d, y, " ".join(filter(None, [*untold, self._short_reasons()]))), places, plot

    def _backs(self, d: Drawing, plot: Box, across: Linear) -> list[str]:
        """The ground in the colour of what binds, named where there is room; sentences for what is named nowhere."""
        middle = [(across(one.x) + across(other.x)) / 2 for one, other in pairwise(self.stops)]
        edges = [plot.left, *middle, plot.right]
        named, narrow = set(), {}
        for numbers, first in self.stretches():
            left, right = edges[numbers[0]], edges[numbers[-1] + 1]
            if not first.binds:
                continue
            where = f"{first.binds} at {self._at(numbers)}"
            cls = "void" if first.reason else f"tint f{first.series % 8}"
            d.rect(left, plot.top, right - left, plot.bottom - plot.top, cls, tip=where)
            lines = wrap(first.binds, SMALL, right - left - 8, _LINES)
            if not lines or right - left < _NARROW or any("…" in line for line in lines):
                narrow[first.binds] = f"{where}." if not first.reason else ""
                continue
            named.add(first.binds)
            for row, line in enumerate(lines):
                d.text(left + 5, plot.top + 4 + ASCENT * SMALL + row * LINE * SMALL, line, SMALL, "ink halo")
        return [sentence for name, sentence in narrow.items() if name not in named]

    def _mark(self, d: Drawing, plot: Box, places: Points, paths: Sequence[Points]) -> str:
        """The design on its curve; the sentence of it where a label has no place."""
        if self.here is None:
            return ""
        x, y = places[self.here]
        d.line(x, plot.top, x, plot.bottom, "leader")
        d.marker(0, x, y, _DOT, "f0 edge", self._here_text())
        placer = Placer(Box(plot.left + 4, plot.top + _STRIP - 6, plot.right - 4, plot.bottom - 4))
        placer.block(x, y, 8)
        for path in paths:
            placer.block_path(path)
        text = f"you are at {self._here_text()}"
        return (
            ""
            if placer.label(d, x, y, text, BODY, room=plot.right - plot.left - 16)
            else f"{text[:1].upper()}{text[1:]}."
        )

    def drawn(self) -> tuple[str, Points, Box]:
        """The SVG text, where each stop is drawn in it, and the plot around them: for a page on which they can be dragged."""
        d = Drawing(self.width)
        end, places, plot = self._paint_all(d, heading(d, self.title, self.subtitle))
        d.height = round(end + BELOW)
        return d.document(self.title, self.alt), places, plot

    def _axes(self, ax: Any) -> None:
        for run in _runs(self.stops):
            xs = [stop.x for stop in run]
            ax.plot(xs, [stop.y for stop in run], marker="o", color="C0")
            if all(stop.low is not None for stop in run):
                highs = [max(self._values()) if stop.high is None else stop.high for stop in run]
                ax.fill_between(xs, [stop.low for stop in run], highs, color="C0", alpha=0.2)
        for run in _runs(self.ghost):
            ax.plot([stop.x for stop in run], [stop.y for stop in run], linestyle="--", color="grey")
        if self.limit is not None:
            ax.axhline(self.limit, linestyle="--", color="red", label="limit")
        values = [stop.x for stop in self.stops]
        if min(values) > 0 and max(values) / min(values) > _GEOMETRIC:
            ax.set(xscale="log")
        if is_log(self._values()):
            ax.set(yscale="log")
        ax.set(xlabel=with_unit(self.titles[0], self.units[0]), ylabel=with_unit(self.titles[1], self.units[1]))


def _runs(stops: Sequence[Stop]) -> list[list[Stop]]:
    """Neighbouring stops that have a value."""
    return [list(run) for known, run in groupby(stops, lambda stop: stop.y is not None) if known]


def curve(
    stops: Any,
    *,
    x_title: str,
    y_title: str,
    x_unit: str = "",
    y_unit: str = "",
    limit: float | None = None,
    least: bool = False,
    here: int | None = None,
    ghost: Any = (),
    ghost_name: str = "pinned",
    title: str | None = None,
    subtitle: str = "",
    width: int = WIDE,
) -> Curve:
    """Stops (x, y, low, high, binds, series, reason, text) of a setting, in its order and in the given units; only x and y are needed.

    ``limit`` is a most, or with ``least`` a least value; ``here`` the number of the stop where the design is; ``ghost`` the stops of another
    design, which has the name ``ghost_name``.

    >>> curve([(1, 2.0), (2, 3.0), (4, None, None, None, "does not fit", 0, "Too large.")], x_title="Batch", y_title="Time", y_unit="s").alt
    'Time by batch: 2 s to 3 s from 1 to 2; does not fit at 4. 4: Too large.'
    """
    factor, symbol = read_amount(1.0, "unit", y_unit)
    read = _read(sequence(stops, "stops"), factor)
    if any(other.x <= one.x for one, other in pairwise(read)):
        raise InputError("The stops of a curve go from the least setting to the most, each once.")
    if here is not None and not 0 <= here < len(read):
        raise InputError(f"One is at one of {len(read)} stops, from 0 on; got {here!r}.", field="here")
    titles = read_label(x_title), read_label(y_title)
    bound = None if limit is None else factor * plain(limit, "limit")
    title = read_label(title) if title is not None else f"{titles[1]} by {in_sentence(titles[0])}"
    shadow = _read(sequence(ghost, "stops"), factor) if ghost else []
    more = read, shadow, read_label(ghost_name), titles, (clean(x_unit), symbol), bound, least, here
    return Curve(title, subtitle, width, *more)


def _read(stops: Sequence[Any], factor: float) -> list[Stop]:
    found = []
    for item in stops:
        stop = Stop(*item)
        values = [None if value is None else factor * plain(value, "value of a stop") for value in stop[1:4]]
        low, high = values[1:] if None not in values[:2] else (None, None)
        words = clean(stop.binds), int(stop.series), clean(stop.reason), clean(stop.text)
        found.append(Stop(plain(stop.x, "setting"), values[0], low, high, *words))
    return found
