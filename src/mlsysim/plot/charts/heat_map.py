"""Heat map and regime map: a grid over two axes, coloured by a number or by a category such as the wall that binds.

Numbers are written into the cells where they fit; categories have a letter besides colour and hatch. ``None`` is a cell
without an answer (it does not fit, say) and is drawn as an empty frame.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mlsysim.errors import InputError
from mlsysim.plot.amounts import plain, read_label, sequence
from mlsysim.plot.figure import WIDE, Figure
from mlsysim.plot.frame import BODY, PAD, SMALL, KeyEntry, axis_title, finish, heading, in_sentence, key, y_title
from mlsysim.plot.scale import amount, axis_unit, number
from mlsysim.plot.svg import Box, Drawing, clean, measure
from mlsysim.plot.theme import RAMP, SERIES

_FIRST_DARK = 4
_VOID = "no answer"
_SMALLEST_TEXT = 8.5


@dataclass(frozen=True)
class _Grid:
    """What both maps share: columns, rows (the first at the bottom) and their titles."""

    title: str
    subtitle: str
    columns: tuple[str, ...]
    rows: tuple[str, ...]
    x_title: str
    y_title: str

    def cell_texts(self) -> list[list[str]]:
        raise NotImplementedError

    def paint_key(self, d: Drawing, y: float) -> float:
        raise NotImplementedError

    def paint_cell(self, d: Drawing, row: int, column: int, box: Box, tip: str) -> str:
        """Fill a cell; returns the class of the text on it."""
        raise NotImplementedError

    def paint(self, width: float) -> Drawing:
        d = Drawing(width)
        y = heading(d, self.title, self.subtitle)
        y = self.paint_key(d, y)
        y = y_title(d, y + 2, self.y_title, "")
        margin = min(max(measure(row, SMALL) for row in self.rows), width * 0.3)
        left, right = PAD + margin + 8, width - PAD
        across = (right - left) / len(self.columns)
        down = min(max(300.0 / len(self.rows), 16.0), 40.0)
        texts = self.cell_texts()
        size = self._text_size(across - 4)
        bottom = y + down * len(self.rows)
        for r, row in enumerate(self.rows):
            top = bottom - (r + 1) * down
            d.text(left - 7, top + down / 2 + 4, row, SMALL, "muted", anchor="end", room=margin)
            for c, column in enumerate(self.columns):
                box = Box(left + c * across, top, left + (c + 1) * across, top + down)
                cls = self.paint_cell(d, r, c, box, f"{column}, {row}: {texts[r][c]}")
                if size is not None:
                    middle = (box.left + box.right) / 2, (box.top + box.bottom) / 2 + 4
                    d.text(*middle, self.short(r, c), size, cls, anchor="middle")
        self._column_names(d, left, across, bottom)
        plot = Box(left, y, right, bottom)
        return finish(d, axis_title(d, bottom + 22, self.x_title, "", plot))

    def short(self, row: int, column: int) -> str:
        """What is written into a cell."""
        raise NotImplementedError

    def _text_size(self, room: float) -> float | None:
        """A size at which all cells can carry their text, if there is one."""
        widest = max(measure(self.short(r, c), 1.0) for r in range(len(self.rows)) for c in range(len(self.columns)))
        size = min(SMALL, room / widest)
        return size if size >= _SMALLEST_TEXT else None

    def _column_names(self, d: Drawing, left: float, across: float, bottom: float) -> None:
        """Names under the columns, every n-th where they are too wide for all."""
        widest = max(measure(name, SMALL) for name in self.columns)
        every = 1
        while every < len(self.columns) and min(widest, 90.0) > every * across - 6:
            every += 1
        for c in range(0, len(self.columns), every):
            room = min(every * across - 6, 2 * (d.width - 4 - (left + (c + 0.5) * across)))
            d.text(left + (c + 0.5) * across, bottom + 15, self.columns[c], SMALL, "muted", anchor="middle", room=room)


@dataclass(frozen=True)
class _HeatMap(_Grid):
    values: tuple[tuple[float | None, ...], ...]
    unit: str
    value_title: str

    def _extent(self) -> tuple[float, float]:
        known = [value for row in self.values for value in row if value is not None]
        return min(known), max(known)

    def _shade(self, value: float) -> int:
        low, high = self._extent()
        return min(int((value - low) / (high - low) * RAMP), RAMP - 1) if high > low else RAMP // 2

    def cell_texts(self) -> list[list[str]]:
        return [[_VOID if value is None else amount(value, self.unit) for value in row] for row in self.values]

    def short(self, row: int, column: int) -> str:
        value = self.values[row][column]
        return "" if value is None else number(value * self._unit()[0])

    def _unit(self) -> tuple[float, str]:
        """Factor and symbol in which the cells are written."""
        return axis_unit(max(abs(end) for end in self._extent()), self.unit)

    def paint_cell(self, d: Drawing, row: int, column: int, box: Box, tip: str) -> str:
        value = self.values[row][column]
        if value is None:
            _void(d, box, tip)
            return "muted"
        shade = self._shade(value)
        d.rect(box.left, box.top, box.right - box.left, box.bottom - box.top, f"q{shade} edge", tip=tip)
        return "on" if shade >= _FIRST_DARK else "ink"

    def paint_key(self, d: Drawing, y: float) -> float:
        low, high = self._extent()
        ends = amount(low, self.unit), amount(high, self.unit)
        room = d.width - 2 * PAD
        symbol = self._unit()[1]
        d.text(PAD, y + BODY, f"{self.value_title} ({symbol})" if symbol else self.value_title, SMALL, room=room)
        y += 18
        x = PAD + d.text(PAD, y + 10, ends[0], SMALL, "muted").right - PAD + 6
        step = min(22.0, (d.width - PAD - x - measure(ends[1], SMALL) - 6) / RAMP)
        for shade in range(RAMP):
            d.rect(x + shade * step, y, step, 12, f"q{shade} edge")
        d.text(x + RAMP * step + 6, y + 10, ends[1], SMALL, "muted")
        y += 22
        voids = any(value is None for row in self.values for value in row)
        return key(d, y, [KeyEntry(_VOID, 0, "void")] if voids else [])

    def describe(self) -> str:
        low, high = self._extent()
        cells = [(v, r, c) for r, row in enumerate(self.values) for c, v in enumerate(row) if v is not None]
        best, worst = min(cells), max(cells, key=lambda cell: cell[0])
        return (
            f"Heat map of {self.value_title} over {self.x_title} ({len(self.columns)} columns) and {self.y_title} "
            f"({len(self.rows)} rows): lowest {amount(low, self.unit)} at {self.columns[best[2]]}, {self.rows[best[1]]}; "
            f"highest {amount(high, self.unit)} at {self.columns[worst[2]]}, {self.rows[worst[1]]}."
        )

    def axes(self, ax: Any) -> None:
        numbers = [[float("nan") if value is None else value for value in row] for row in self.values]
        image = ax.imshow(numbers, origin="lower", aspect="auto", cmap="Blues")
        ax.figure.colorbar(image, label=f"{self.value_title} ({self.unit})" if self.unit else self.value_title)
        _axes_names(self, ax)


@dataclass(frozen=True)
class _RegimeMap(_Grid):
    regimes: tuple[tuple[str | None, ...], ...]

    def names(self) -> list[str]:
        return list(dict.fromkeys(name for row in self.regimes for name in row if name is not None))

    def cell_texts(self) -> list[list[str]]:
        return [[_VOID if name is None else name for name in row] for row in self.regimes]

    def short(self, row: int, column: int) -> str:
        name = self.regimes[row][column]
        return "" if name is None else _letter(self.names().index(name))

    def paint_cell(self, d: Drawing, row: int, column: int, box: Box, tip: str) -> str:
        name = self.regimes[row][column]
        if name is None:
            _void(d, box, tip)
            return "muted"
        series = self.names().index(name)
        d.rect(
            box.left,
            box.top,
            box.right - box.left,
            box.bottom - box.top,
            f"f{series % SERIES} edge",
            hatch=series,
            tip=tip,
        )
        return "on"

    def paint_key(self, d: Drawing, y: float) -> float:
        entries = [KeyEntry(f"{_letter(k)}: {name}", k) for k, name in enumerate(self.names())]
        if any(name is None for row in self.regimes for name in row):
            entries.append(KeyEntry(_VOID, 0, "void"))
        return key(d, y, entries)

    def describe(self) -> str:
        cells = [name for row in self.regimes for name in row]
        counted = ", ".join(f"{name} in {cells.count(name)}" for name in self.names())
        missing = f", {_VOID} in {cells.count(None)}" if None in cells else ""
        return f"Regime map of {len(cells)} cells over {self.x_title} and {self.y_title}: {counted}{missing}."

    def axes(self, ax: Any) -> None:
        names = self.names()
        numbers = [[float("nan") if name is None else names.index(name) for name in row] for row in self.regimes]
        image = ax.imshow(numbers, origin="lower", aspect="auto", cmap="tab10", vmin=-0.5, vmax=9.5)
        bar = ax.figure.colorbar(image, ticks=list(range(len(names))))
        bar.ax.set_yticklabels(names)
        bar.ax.set_ylim(-0.5, len(names) - 0.5)
        _axes_names(self, ax)


def _letter(k: int) -> str:
    return chr(ord("A") + k)


def _void(d: Drawing, box: Box, tip: str) -> None:
    d.rect(box.left + 1, box.top + 1, box.right - box.left - 2, box.bottom - box.top - 2, "void", tip=tip)


def _axes_names(grid: _Grid, ax: Any) -> None:
    ax.set_xticks(range(len(grid.columns)), grid.columns)
    ax.set_yticks(range(len(grid.rows)), grid.rows)
    ax.set(xlabel=grid.x_title, ylabel=grid.y_title)


def _axis_names(values: Any, what: str) -> tuple[str, ...]:
    names = []
    for value in sequence(values, what):
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            found = plain(value, f"value of the {what}", negative=True)
            names.append(f"{found:,.0f}" if found.is_integer() and abs(found) < 1e6 else number(found, 4))
        else:
            names.append(read_label(str(value) if hasattr(value, "magnitude") else value))
    return tuple(names)


def _shaped(cells: Any, columns: tuple[str, ...], rows: tuple[str, ...]) -> list[list[Any]]:
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
    cells = tuple(
        tuple(None if value is None else plain(value, "value of a cell", negative=True) for value in row)
        for row in _shaped(values, columns, rows)
    )
    named = read_label(value_title)
    chart = _HeatMap(
        read_label(title or f"{named} by {in_sentence(read_label(x_title))} and {in_sentence(read_label(y_title))}"),
        subtitle,
        columns,
        rows,
        read_label(x_title),
        read_label(y_title),
        cells,
        clean(unit),
        named,
    )
    return Figure(chart.title, chart.describe(), chart.paint, chart.axes, width)


def regime_map(
    x: Any,
    y: Any,
    regimes: Any,
    *,
    x_title: str,
    y_title: str,
    title: str = "What binds where",
    subtitle: str = "",
    width: int = WIDE,
) -> Figure:
    """Categories on a grid, such as the wall that binds: ``regimes[row][column]`` for ``y[row]`` and ``x[column]``."""
    columns, rows = _axis_names(x, "x values"), _axis_names(y, "y values")
    cells = tuple(
        tuple(None if name is None else read_label(name) for name in row) for row in _shaped(regimes, columns, rows)
    )
    chart = _RegimeMap(read_label(title), subtitle, columns, rows, read_label(x_title), read_label(y_title), cells)
    if len(chart.names()) > SERIES:
        raise InputError(
            f"A regime map tells at most {SERIES} categories apart, got {len(chart.names())}.", field="regimes"
        )
    return Figure(chart.title, chart.describe(), chart.paint, chart.axes, width)
