"""Horizontal bars with a name before and a value behind each.

Waterfall: parts that add up to a whole, each bar beginning where the one before it ended. Tornado: what an answer does when
one input at a time is lower or higher, the strongest on top.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from mlsysim.errors import InputError
from mlsysim.plans.parts import time_parts
from mlsysim.plot.amounts import Parts, fields, plain, read_amount, read_label, read_parts, sequence
from mlsysim.plot.figure import WIDE, Figure
from mlsysim.plot.frame import BODY, PAD, SMALL, KeyEntry, key, with_unit, x_axis
from mlsysim.plot.scale import amount, linear_scale
from mlsysim.plot.svg import LINE, Box, Drawing, fit, measure, wrap
from mlsysim.units.records import dataclass
from mlsysim.units.registry import quantity
from mlsysim.walls.analysis.sensitivity import SensitivityResult
from mlsysim.walls.fleet.communication import DistributedResult
from mlsysim.walls.result import Result

_LOWER, _HIGHER = 1, 0
_MANY, _SLIGHT = 8, 0.01
"""Parts up to which each has a bar, and of more the share of the whole below which they have one together."""


class Row(NamedTuple):
    """Bars (from, to, series) in the colours and hatches of their series, with a text behind them; a bold one is plain, and one without bars
    a heading of those below it."""

    label: str
    value: str
    bars: Sequence[tuple[float, float, int]]
    bold: bool = False


def paint_rows(
    d: Drawing, y: float, rows: Sequence[Row], title: str, unit: str, *, linked: bool = False, origin: float = 0.0
) -> float:
    """The bars over one axis; names stand left of the plot, on a narrow page above their bars. Values stand at the bars, so that there is
    no grid; the line that bars begin at leaves out the names.

    ``linked`` joins the end of a bar with the beginning of the next. Returns where the rest begins.
    """
    value_room = max(measure(row.value, SMALL, row.bold) for row in rows) + 8
    value_room = min(value_room, d.width * (0.46 if d.narrow else 0.34))
    labels = [measure(row.label, BODY, row.bold) for row in rows if row.bars]
    names = 0.0 if d.narrow else min(max(labels), d.width * 0.32) + 10
    rooms = [names - 10 if row.bars else d.width - 2 * PAD for row in rows]
    lines = [
        [row.label] if d.narrow and row.bars else wrap(row.label, BODY, room, 2, row.bold)
        for row, room in zip(rows, rooms, strict=True)
    ]
    height, above = (16.0, LINE * BODY + 1) if d.narrow else (18.0, 0.0)
    tops, cursor, named = [], y + 2, [0.0] * len(rows)
    for row, wrapped in zip(rows, lines, strict=True):
        tops.append(cursor + (above if row.bars else 4))
        words = 0 if d.narrow and row.bars else len(wrapped) * LINE * BODY
        cursor = tops[-1] + (max(height, words) + 8 if row.bars else words + 4)
    plot = Box(PAD + names, y, d.width - PAD - value_room, cursor - 2)
    extents = [origin, *(end for row in rows for bar in row.bars for end in bar[:2])]
    scale = linear_scale(min(extents), max(extents), plot.left, plot.right)
    after = x_axis(d, scale, plot, title, unit, grid=False)
    for top in (top for row, top in zip(rows, tops, strict=True) if row.bars and d.narrow and min(extents) < origin):
        d.line(scale(origin), top - 1, scale(origin), top + height + 1, "zero")
    if not d.narrow:
        begins = [k for k, row in enumerate(rows) if not row.bars]
        for start, stop in zip([-1, *begins], [*begins, len(rows)], strict=True):
            if stop > start + 1:
                low = plot.bottom if stop == len(rows) else tops[stop - 1] + height + 4
                d.line(scale(origin), tops[start + 1] - 4 if start >= 0 else plot.top, scale(origin), low, "zero")
    for k, (row, top) in enumerate(zip(rows, tops, strict=True)):
        right = scale(origin)
        if not row.bars:
            for number, line in enumerate(lines[k]):
                d.text(PAD, top + (number + 1) * LINE * BODY - 4, line, BODY, bold=True)
            continue
        for low, high, series in row.bars:
            left, end = sorted((scale(low), scale(high)))
            hatch, tip = 0 if row.bold else series, f"{row.label}: {row.value}"
            d.rect(left, top, max(end - left, 1.0), height, f"f{series % 8} edge", radius=1.5, hatch=hatch, tip=tip)
            right = max(right, end)
        if d.narrow:
            named[k] = d.text(PAD, top - 5, row.label, BODY, bold=row.bold, room=d.width - 2 * PAD).right
        for number, line in enumerate([] if d.narrow else lines[k]):
            base = top + height / 2 - len(lines[k]) * LINE * BODY / 2 + number * LINE * BODY + BODY
            d.text(plot.left - 10, base, line, BODY, anchor="end", bold=row.bold)
        shown = fit(row.value, SMALL, value_room - 8, row.bold)
        d.text(right + 7, top + height / 2 + 4, shown, SMALL, bold=row.bold)
    for k in range(len(rows) - 1 if linked else 0):
        if not rows[k].bars or not rows[k + 1].bars or rows[k + 1].bold:
            continue
        x = scale(rows[k].bars[0][1])
        if x > named[k + 1] + 3:
            d.line(x, tops[k] + height, x, tops[k + 1], "leader")
    return after


def _gathered(parts: Parts, slight: float) -> Parts:
    """The parts; of many those below ``slight`` together and last, where a reader would see lines only."""
    small = [value for _, value in parts if value < slight]
    if len(parts) <= _MANY or len(small) < 2:
        return parts
    kept = [(label, value) for label, value in parts if value >= slight]
    return [*kept, (f"{len(small)} parts below {_SLIGHT:.0%}", sum(small))]


class _Whole(NamedTuple):
    """What a waterfall is of: its name where there are several, its parts, what the sum is called, and the sum as it is printed: the digits of
    the metric that it is, where that is known."""

    name: str
    parts: Parts
    total_label: str
    total_text: str

    def shown(self) -> Parts:
        return _gathered(self.parts, _SLIGHT * sum(value for _, value in self.parts))

    def rows(self, unit: str, labels: Sequence[str]) -> list[Row]:
        """A bar for each part, in the colour of its place among the labels of all wholes; the last colour is that of all small ones."""
        total = sum(value for _, value in self.parts)
        rows, before = [Row(self.name, "", (), bold=True)] if self.name else [], 0.0
        for label, value in self.shown():
            part = value / total if total else 0.0
            share = "" if not total else f", {part:.0%}" if part >= 0.005 or not part else ", <1%"
            rows.append(
                Row(label, amount(value, unit) + share, [(before, before + value, min(labels.index(label), 6))])
            )
            before += value
        return [*rows, Row(self.total_label, self.total_text, [(0.0, before, 7)], bold=True)]


@dataclass(frozen=True, repr=False)
class _Waterfall(Figure):
    wholes: list[_Whole]
    unit: str

    def _axis(self) -> str:
        return "Time" if self.unit == "s" else "Cumulated"

    def rows(self) -> list[Row]:
        # The largest first, as a bar of shares has them, so that a part has one colour on a page.
        largest: dict[str, float] = {}
        for label, value in (part for whole in self.wholes for part in whole.shown()):
            largest[label] = max(value, largest.get(label, 0.0))
        labels = sorted(largest, key=lambda label: -largest[label])
        return [row for whole in self.wholes for row in whole.rows(self.unit, labels)]

    @property
    def alt(self) -> str:
        said = []
        for whole in self.wholes:
            named = "; ".join(f"{label} {amount(value, self.unit)}" for label, value in whole.parts)
            of = f" ({whole.name})" if whole.name else ""
            said.append(f"Waterfall of {len(whole.parts)} parts{of}: {named}; {whole.total_label} {whole.total_text}.")
        return " ".join(said)

    def _body(self, d: Drawing, y: float) -> float:
        return paint_rows(d, y, self.rows(), self._axis(), self.unit, linked=True)

    def _axes(self, ax: Any) -> None:
        rows = [row for row in self.rows() if row.bars]
        starts, ends, _ = zip(*(row.bars[0] for row in rows), strict=True)
        ax.barh(range(len(rows)), [b - a for a, b in zip(starts, ends, strict=True)], left=starts)
        ax.set_yticks(range(len(rows)), [row.label for row in rows])
        ax.invert_yaxis()
        ax.set_xlabel(with_unit(self._axis(), self.unit))


def step_parts(result: Any) -> list[tuple[str, Any]]:
    """What a result's time consists of, as its ledger has it; the parts add up to the whole."""
    ledger = result.ledger if isinstance(result, Result) else None
    if ledger is None:
        raise InputError(f"A waterfall is drawn of parts, a step or a pass, got {type(result).__name__}.")
    return [(part.label, quantity(part.value, "s")) for part in time_parts(ledger)]


def waterfall(
    parts: Any,
    *,
    total_label: str = "Total",
    total_text: str = "",
    title: str | None = None,
    subtitle: str = "",
    width: int = WIDE,
) -> Figure:
    """Parts (label, amount) or (label, number, unit) in their order, or the result of a training step or a pass.

    >>> waterfall([("compute", "5 s"), ("bubble", 600, "ms")]).alt
    'Waterfall of 2 parts: compute 5 s; bubble 600 ms; Total 5.6 s.'
    """
    if isinstance(parts, Result):
        step = isinstance(parts, DistributedResult)
        title = title or ("Where the time of a training step goes" if step else "Where the time of a pass goes")
        total_label = "Step" if step and total_label == "Total" else total_label
        if not subtitle and parts.binding is not None:
            subtitle = parts.binding.sentence
        parts = step_parts(parts)
    read, unit = read_parts(parts)
    title, total_label = read_label(title or "What the whole consists of"), read_label(total_label)
    total_text = total_text or amount(sum(value for _, value in read), unit)
    return _Waterfall(title, subtitle, width, [_Whole("", read, total_label, total_text)], unit)


def waterfalls(wholes: Any, *, title: str, subtitle: str = "", width: int = WIDE) -> Figure:
    """Several wholes (name, parts, what the sum is called, its text) one below the other, on one scale.

    >>> waterfalls([("now", [("compute", "5 s")], "Step", ""), ("then", [("compute", "2 s")], "Step", "")], title="Time").alt
    'Waterfall of 1 parts (now): compute 5 s; Step 5 s. Waterfall of 1 parts (then): compute 2 s; Step 2 s.'
    """
    read, units = [], set()
    for item in sequence(wholes, "wholes"):
        name, parts, label, text = fields(item, "A whole is (name, parts, what the sum is called, its text)", 4)
        listed, unit = read_parts(parts)
        units.add(unit)
        total = text or amount(sum(value for _, value in listed), unit)
        read.append(_Whole(read_label(name), listed, read_label(label), total))
    if len(units) > 1:
        raise InputError(f"Wholes on one scale have one unit, got {' and '.join(sorted(units))}.")
    return _Waterfall(read_label(title), subtitle, width, read, units.pop())


@dataclass(frozen=True, repr=False)
class _Tornado(Figure):
    swings: list[tuple[str, float, float]]
    base: float
    unit: str
    axis: str
    names: tuple[str, ...]

    def rows(self) -> list[Row]:
        rows = []
        for label, low, high in self.swings:
            said = f"{self._said(low)} to {self._said(high)}" if low != high else "no change"
            rows.append(Row(label, said, [(self.base, high, _HIGHER), (self.base, low, _LOWER)]))
        return rows

    def _said(self, value: float) -> str:
        if self.unit != "%":
            return amount(value, self.unit)
        digits = 1 if abs(value) >= 0.05 or not value else 2
        return f"{value:+.{digits}f} %".replace("-", "\N{MINUS SIGN}") if round(value, 2) else "0 %"

    @property
    def alt(self) -> str:
        named = "; ".join(f"{row.label}: {row.value}" for row in self.rows())
        return f"Tornado chart around {amount(self.base, self.unit)}, strongest first ({self.names[0]} to {self.names[1]}): {named}."

    def _body(self, d: Drawing, y: float) -> float:
        y = key(d, y, [KeyEntry(self.names[0], _LOWER), KeyEntry(self.names[1], _HIGHER)])
        return paint_rows(d, y, self.rows(), self.axis, self.unit, origin=self.base)

    def _axes(self, ax: Any) -> None:
        labels, *both_ends = zip(*self.swings, strict=True)
        for name, ends in zip(self.names, both_ends, strict=True):
            ax.barh(labels, [end - self.base for end in ends], left=self.base, label=name)
        ax.axvline(self.base, color="black", linewidth=1)
        ax.invert_yaxis()
        ax.set_xlabel(with_unit(self.axis, self.unit))
        ax.legend()


def tornado(
    items: Any,
    *,
    base: Any = None,
    unit: str | None = None,
    axis: str = "Result",
    names: tuple[str, str] = ("input lower", "input higher"),
    title: str | None = None,
    subtitle: str = "",
    most: int = 20,
    width: int = WIDE,
) -> Figure:
    """Sensitivities (label, value with the input lower, value with it higher) around ``base``, or a sensitivity result.

    Of a result the bars are the change of the output for one per cent less and more of each parameter.

    >>> tornado([("bandwidth", 9, 12), ("peak", 10, 10.5)], base=10, unit="ms", axis="Latency").alt
    'Tornado chart around 10 ms, strongest first (input lower to input higher): bandwidth: 9 ms to 12 ms; peak: 10 ms to 10.5 ms.'
    """
    swings = []
    if isinstance(items, SensitivityResult):
        for name, value in {**items.sensitivities, **items.all_sensitivities}.items():
            ends = [plain(end, name, negative=True) for end in (-items.from_below[name], value)]
            swings.append((read_label(name.replace("_", " ")), ends[0], ends[1]))
        centre, symbol, axis, names = 0.0, "%", f"Change of {items.output}", ("1 % less of it", "1 % more of it")
        title, subtitle, most = title or f"What moves the {items.output}", items.binding.sentence, 20
    else:
        if base is None:
            raise InputError("A tornado needs the 'base' value that its bars start from.", field="base")
        centre, symbol = read_amount(base, "base", unit, negative=True)
        for item in sequence(items, "sensitivities"):
            label = read_label(fields(item, "A sensitivity is (label, low, high)", 3)[0])
            read = [read_amount(value, f"value of {label[:40]!r}", unit, negative=True) for value in item[1:]]
            if any(found != symbol for _, found in read):
                raise InputError(
                    f"{label[:60]!r} has values in another unit than the base, which is in {symbol or 'no unit'}."
                )
            swings.append((label, read[0][0], read[1][0]))
    strongest = sorted(swings, key=lambda swing: (-abs(swing[2] - swing[1]), swing[0]))[: max(int(most), 1)]
    title, axis = read_label(title or f"What moves the {axis.lower()}"), read_label(axis)
    said = tuple(read_label(name) for name in names)
    return _Tornado(title, subtitle, width, strongest, centre, symbol, axis, said)
