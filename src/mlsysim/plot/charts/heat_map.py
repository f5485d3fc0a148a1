"""Heat map and regime map: a grid over two axes, coloured by a number or by a category such as the wall that binds.

Numbers are written into the cells where they fit; categories have a letter besides colour and hatch. ``None`` is a cell
without an answer (it does not fit, say) and is drawn as an empty frame.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

from mlsysim.errors import InputError
from mlsysim.plot.amounts import plain, read_label, sequence
from mlsysim.plot.figure import WIDE, Figure
from mlsysim.plot.frame import BODY, PAD, SMALL, KeyEntry, axis_title, in_sentence, key, with_unit
from mlsysim.plot.scale import amount, axis_unit, number
from mlsysim.plot.svg import Box, Drawing, clean, measure
from mlsysim.plot.theme import RAMP, SERIES
from mlsysim.units.records import dataclass

_FIRST_DARK = 4
_VOID = "no answer"
_SMALLEST_TEXT = 8.5


class _Cell(NamedTuple):
    """What is written into a cell, the whole of it, the number that Matplotlib draws, and how it looks."""

    short: str = ""
    whole: str = _VOID
    value: float = float("nan")
    fill: str = "void"
    ink: str = "muted"
    hatch: int = 0


@dataclass(frozen=True, repr=False)
class _Grid(Figure):
    """What both maps share: columns, rows (the first at the bottom), their titles, and the cells of each row."""

    columns: list[str]
    rows: list[str]
    x_title: str
    y_title: str
    cells: list[list[_Cell]]

    def flat(self) -> list[_Cell]:
        return [cell for row in self.cells for cell in row]

    def void_entry(self) -> list[KeyEntry]:
        return [KeyEntry(_VOID, 0, "void")] if any(cell.fill == "void" for cell in self.flat()) else []

    def grid(self, d: Drawing, y: float) -> float:
        """The cells with their names below and beside them; returns where they end."""
        y = axis_title(d, y + 2, self.y_title, "")
        margin = min(max(measure(row, SMALL) for row in self.rows), d.width * 0.3)
        left, right = PAD + margin + 8, d.width - PAD
        across = (right - left) / len(self.columns)
        down = min(max(300.0 / len(self.rows), 16.0), 40.0)
        # A size at which all cells can carry their text, if there is one.
        size = min(SMALL, (across - 4) / max(measure(cell.short, 1.0) for cell in self.flat()))
        bottom = y + down * len(self.rows)
        for r, row in enumerate(self.rows):
            top = bottom - (r + 1) * down
            low = top + down
            d.text(left - 7, top + down / 2 + 4, row, SMALL, "muted", anchor="end", room=margin)
            for first, last in self._runs(r):
                x, end, cell = left + first * across, left + last * across, self.cells[r][first]
                inset = 1 if cell.fill == "void" else 0
                place = x + inset, top + inset, end - x - 2 * inset, low - top - 2 * inset
                named = ", ".join((self._span(first, last), row))
                d.rect(*place, cell.fill, hatch=cell.hatch, tip=f"{named}: {cell.whole}")
                self._write(d, r, first, last, Box(x, top, end, low), size)
        self._column_names(d, left, across, bottom)
        return axis_title(d, bottom + 22, self.x_title, "", Box(left, y, right, bottom))

    def _runs(self, r: int) -> list[tuple[int, int]]:
        """Cells of a row that are drawn as one: from and to."""
        return [(c, c + 1) for c in range(len(self.columns))]

    def _span(self, first: int, last: int) -> str:
        return self.columns[first] if last == first + 1 else f"{self.columns[first]} to {self.columns[last - 1]}"

    def _write(self, d: Drawing, r: int, first: int, last: int, box: Box, size: float) -> None:
        """What is written into cells that are drawn as one."""
        cell = self.cells[r][first]
        if size >= _SMALLEST_TEXT:
            d.text(
                (box.left + box.right) / 2, (box.top + box.bottom) / 2 + 4, cell.short, size, cell.ink, anchor="middle"
            )

    def _column_names(self, d: Drawing, left: float, across: float, bottom: float) -> None:
        """Names under the columns, every n-th where they are too wide for all."""
        widest = max(measure(name, SMALL) for name in self.columns)
        every = 1
        while every < len(self.columns) and min(widest, 90.0) > every * across - 6:
            every += 1
        for c in range(0, len(self.columns), every):
            middle = left + (c + 0.5) * across
            room = min(every * across - 6, 2 * (d.width - 4 - middle), 2 * (middle - 4))
            d.text(middle, bottom + 15, self.columns[c], SMALL, "muted", anchor="middle", room=room)

    def image(self, ax: Any, **colours: Any) -> Any:
        ax.set_xticks(range(len(self.columns)), self.columns)
        ax.set_yticks(range(len(self.rows)), self.rows)
        ax.set(xlabel=self.x_title, ylabel=self.y_title)
        numbers = [[cell.value for cell in row] for row in self.cells]
        return ax.imshow(numbers, origin="lower", aspect="auto", **colours)


@dataclass(frozen=True, repr=False)
class _HeatMap(_Grid):
    value_title: str
    unit: str
    symbol: str
    """The unit in which the cells are written."""

    def _ends(self) -> list[tuple[_Cell, str]]:
        """The first of the lowest cells and the first of the highest, and where each is."""
        known = [
            (cell, f"{self.columns[c]}, {self.rows[r]}")
            for r, row in enumerate(self.cells)
            for c, cell in enumerate(row)
            if cell.fill != "void"
        ]
        return [pick(known, key=lambda item: item[0].value) for pick in (min, max)]

    @property
    def alt(self) -> str:
        (low, lowest), (high, highest) = self._ends()
        return (
            f"Heat map of {self.value_title} over {self.x_title} ({len(self.columns)} columns) and {self.y_title} "
            f"({len(self.rows)} rows): lowest {low.whole} at {lowest}; highest {high.whole} at {highest}."
        )

    def _body(self, d: Drawing, y: float) -> float:
        low, high = (cell.whole for cell, _ in self._ends())
        d.text(PAD, y + BODY, with_unit(self.value_title, self.symbol), SMALL, room=d.width - 2 * PAD)
        y += 18
        x = PAD + d.text(PAD, y + 10, low, SMALL, "muted").right - PAD + 6
        step = min(22.0, (d.width - PAD - x - measure(high, SMALL) - 6) / RAMP)
        for shade in range(RAMP):
            d.rect(x + shade * step, y, step, 12, f"q{shade} edge")
        d.text(x + RAMP * step + 6, y + 10, high, SMALL, "muted")
        return self.grid(d, key(d, y + 22, self.void_entry()))

    def _axes(self, ax: Any) -> None:
        ax.figure.colorbar(self.image(ax, cmap="Blues"), label=with_unit(self.value_title, self.unit))


@dataclass(frozen=True, repr=False)
class _RegimeMap(_Grid):
    names: list[str]
    here: tuple[int, int] | None
    """Column and row of the plan that the map is around."""

    @property
    def alt(self) -> str:
        cells = [cell.whole if cell.fill != "void" else None for cell in self.flat()]
        counted = ", ".join(f"{name} in {cells.count(name)}" for name in self.names)
        missing = f", {_VOID} in {cells.count(None)}" if None in cells else ""
        plan = ""
        if self.here is not None:
            cell = self.cells[self.here[1]][self.here[0]]
            plan = f" The plan is at {self.columns[self.here[0]]}, {self.rows[self.here[1]]}: {cell.whole}."
        return f"Regime map of {len(cells)} cells over {self.x_title} and {self.y_title}: {counted}{missing}.{plan}"

    def _body(self, d: Drawing, y: float) -> float:
        entries = [KeyEntry(f"{_letter(k)}: {name}", k) for k, name in enumerate(self.names)]
        plan = [KeyEntry("this plan", 0, "ring")] if self.here is not None else []
        return self.grid(d, key(d, y, entries + self.void_entry() + plan))

    def _runs(self, r: int) -> list[tuple[int, int]]:
        """Neighbours in one regime are drawn as one; the plan's cell is apart from them in words only."""
        ends = [
            c
            for c, (one, other) in enumerate(pairwise(self.cells[r]), 1)
            if one.whole != other.whole or one.fill == "void"
        ]
        return list(pairwise([0, *ends, len(self.columns)]))

    def _write(self, d: Drawing, r: int, first: int, last: int, box: Box, size: float) -> None:
        """The name of a regime in the longest of its runs, where it fits, its letter in the others, and a dot at the plan."""
        cell, middle, base = self.cells[r][first], (box.left + box.right) / 2, (box.top + box.bottom) / 2
        own = self.here is not None and self.here[1] == r and first <= self.here[0] < last
        if own and self.here is not None:
            at = box.left + (self.here[0] - first + 0.5) / (last - first) * (box.right - box.left)
            d.marker(0, at, base, 6.5, "dotted", "this plan")
        elif cell.fill == "void":
            return
        elif (first, last, r) == self._longest(cell.whole) and measure(
            cell.whole, BODY, True
        ) + 14 < box.right - box.left:
            wide = measure(cell.whole, BODY, True) + 10
            d.rect(middle - wide / 2, base - 9, wide, 18, cell.fill.replace(" edge", ""), radius=3)
            d.text(middle, base + 4, cell.whole, BODY, "on", anchor="middle", bold=True)
        elif box.right - box.left > 12:
            d.rect(middle - 7, base - 8, 14, 16, cell.fill.replace(" edge", ""), radius=3)
            d.text(middle, base + 4, cell.short, min(max(size, _SMALLEST_TEXT), SMALL), "on", anchor="middle")

    def _longest(self, name: str) -> tuple[int, int, int]:
        """The longest run of a regime that is not the plan's, nearest to the middle of the map."""
        found = [
            (*run, r) for r in range(len(self.rows)) for run in self._runs(r) if self.cells[r][run[0]].whole == name
        ]
        free = [run for run in found if not (self.here and self.here[1] == run[2] and run[0] <= self.here[0] < run[1])]
        return min(free or found, key=lambda run: (run[0] - run[1], abs(run[2] - len(self.rows) / 2)))

    def _axes(self, ax: Any) -> None:
        image = self.image(ax, cmap="tab10", vmin=-0.5, vmax=9.5)
        bar = ax.figure.colorbar(image, ticks=list(range(len(self.names))))
        bar.ax.set_yticklabels(self.names)
        bar.ax.set_ylim(-0.5, len(self.names) - 0.5)


def _letter(k: int) -> str:
    return chr(ord("A") + k)


def _axis_names(values: Any, what: str) -> list[str]:
    names = []
    for value in sequence(values, what):
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            found = plain(value, f"value of the {what}", negative=True)
            names.append(f"{found:,.0f}" if found.is_integer() and abs(found) < 1e6 else number(found, 4))
        else:
            names.append(read_label(str(value) if hasattr(value, "magnitude") else value))
    return names


def _shaped(cells: Any, columns: list[str], rows: list[str]) -> list[list[Any]]:
    listed = [list(row) if isinstance(row, (list, tuple)) else row for row in sequence(cells, "rows of cells")]
    if len(listed) != len(rows) or any(not isinstance(row, list) or len(row) != len(columns) for row in listed):
        raise InputError(
            f"The cells must be {len(rows)} rows of {len(columns)}, one row for each value of y.", field="values"
        )
    if all(cell is None for row in listed for cell in row):
        raise InputError("A map needs at least one cell with an answer.", field="values")
    return listed


def heat_map(
    x: Any,
    y: Any,
    values: Any,
    *,
    x_title: str,
    y_title: str,
    value_title: str,
    unit: str = "",
    title: str | None = None,
    subtitle: str = "",
    width: int = WIDE,
) -> Figure:
    """Numbers on a grid: ``values[row][column]`` for ``y[row]`` and ``x[column]``, in ``unit`` ("s" and "B" take prefixes)."""
    columns, rows = _axis_names(x, "x values"), _axis_names(y, "y values")
    numbers = [
        [None if value is None else plain(value, "value of a cell", negative=True) for value in row]
        for row in _shaped(values, columns, rows)
    ]
    known = [value for row in numbers for value in row if value is not None]
    low, high, unit = min(known), max(known), clean(unit)
    factor, symbol = axis_unit(max(abs(low), abs(high)), unit)

    def cell(value: float | None) -> _Cell:
        if value is None:
            return _Cell()
        shade = min(int((value - low) / (high - low) * RAMP), RAMP - 1) if high > low else RAMP // 2
        ink = "on" if shade >= _FIRST_DARK else "ink"
        return _Cell(number(value * factor), amount(value, unit), value, f"q{shade} edge", ink)

    named, across, up = read_label(value_title), read_label(x_title), read_label(y_title)
    title = read_label(title or f"{named} by {in_sentence(across)} and {in_sentence(up)}")
    cells = [[cell(value) for value in row] for row in numbers]
    return _HeatMap(title, subtitle, width, columns, rows, across, up, cells, named, unit, symbol)


def regime_map(
    x: Any,
    y: Any,
    regimes: Any,
    *,
    x_title: str,
    y_title: str,
    here: tuple[int, int] | None = None,
    title: str = "What binds where",
    subtitle: str = "",
    width: int = WIDE,
) -> Figure:
    """Categories on a grid, such as the wall that binds: ``regimes[row][column]`` for ``y[row]`` and ``x[column]``; ``here`` is the column and
    the row that a ring marks."""
    columns, rows = _axis_names(x, "x values"), _axis_names(y, "y values")
    read = [[None if name is None else read_label(name) for name in row] for row in _shaped(regimes, columns, rows)]
    names = list(dict.fromkeys(name for row in read for name in row if name is not None))
    if len(names) > SERIES:
        raise InputError(f"A regime map tells at most {SERIES} categories apart, got {len(names)}.", field="regimes")
    looks = {name: _Cell(_letter(k), name, k, f"f{k % SERIES} edge", "on", k) for k, name in enumerate(names)}
    cells = [[_Cell() if name is None else looks[name] for name in row] for row in read]
    titles = read_label(x_title), read_label(y_title)
    if here is not None and not (0 <= here[0] < len(columns) and 0 <= here[1] < len(rows)):
        raise InputError(f"'here' is a column and a row of the map, from 0 on, got {here!r:.40}.", field="here")
    return _RegimeMap(read_label(title), subtitle, width, columns, rows, *titles, cells, names, here)
