"""Tornado: what an answer does when one input at a time is lower or higher, the strongest on top."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mlsysim.errors import InputError
from mlsysim.plot.amounts import plain, read_amount, read_label, sequence
from mlsysim.plot.bars import Row, paint_rows
from mlsysim.plot.figure import WIDE, Figure
from mlsysim.plot.frame import KeyEntry, finish, heading, key
from mlsysim.plot.scale import amount
from mlsysim.plot.svg import Drawing
from mlsysim.walls.analysis.sensitivity import SensitivityResult

_LOWER, _HIGHER = 1, 0


@dataclass(frozen=True)
class _Swing:
    label: str
    low: float
    high: float

    @property
    def size(self) -> float:
        return max(self.low, self.high) - min(self.low, self.high)


@dataclass(frozen=True)
class _Tornado:
    title: str
    subtitle: str
    swings: tuple[_Swing, ...]
    base: float
    unit: str
    axis: str
    names: tuple[str, str]

    def rows(self) -> list[Row]:
        return [
            Row(
                swing.label,
                self.base,
                swing.high,
                f"{amount(swing.low, self.unit)} to {amount(swing.high, self.unit)}" if swing.size else "no change",
                _HIGHER,
                also=(self.base, swing.low, _LOWER),
            )
            for swing in self.swings
        ]

    def describe(self) -> str:
        named = "; ".join(f"{row.label}: {row.value}" for row in self.rows())
        return f"Tornado chart around {amount(self.base, self.unit)}, strongest first ({self.names[0]} to {self.names[1]}): {named}."

    def paint(self, width: float) -> Drawing:
        d = Drawing(width)
        y = heading(d, self.title, self.subtitle)
        y = key(d, y, [KeyEntry(self.names[0], _LOWER), KeyEntry(self.names[1], _HIGHER)])
        return finish(d, paint_rows(d, y, self.rows(), self.axis, self.unit, origin=self.base))

    def axes(self, ax: Any) -> None:
        names = [swing.label for swing in self.swings]
        for label, ends in zip(self.names, ([s.low for s in self.swings], [s.high for s in self.swings]), strict=True):
            ax.barh(names, [end - self.base for end in ends], left=self.base, label=label)
        ax.axvline(self.base, color="black", linewidth=1)
        ax.invert_yaxis()
        ax.set_xlabel(f"{self.axis} ({self.unit})" if self.unit else self.axis)
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
    if isinstance(items, SensitivityResult):
        return _of_result(items, title, width)
    if base is None:
        raise InputError("A tornado needs the 'base' value that its bars start from.", field="base")
    centre, symbol = read_amount(base, "base", unit, negative=True)
    swings = []
    for item in sequence(items, "sensitivities"):
        if isinstance(item, (str, bytes)) or not hasattr(item, "__len__") or len(item) != 3:
            raise InputError(f"A sensitivity is (label, low, high), got {item!r:.60}.")
        label = read_label(item[0])
        ends = [read_amount(value, f"value of {label[:40]!r}", unit, negative=True) for value in item[1:]]
        if any(found != symbol for _, found in ends):
            raise InputError(
                f"{label[:60]!r} has values in another unit than the base, which is in {symbol or 'no unit'}."
            )
        swings.append(_Swing(label, ends[0][0], ends[1][0]))
    return _figure(
        swings, centre, symbol, axis, names, title or f"What moves the {axis.lower()}", subtitle, most, width
    )


def _of_result(result: SensitivityResult, title: str | None, width: int) -> Figure:
    more = {**result.sensitivities, **result.all_sensitivities}
    swings = [
        _Swing(
            read_label(name.replace("_", " ")),
            plain(-result.from_below[name], name, negative=True),
            plain(value, name, negative=True),
        )
        for name, value in more.items()
    ]
    return _figure(
        swings,
        0.0,
        "%",
        f"Change of {result.output}",
        ("1 % less of it", "1 % more of it"),
        title or f"What moves the {result.output}",
        result.binding.sentence,
        20,
        width,
    )


def _figure(
    swings: list[_Swing],
    base: float,
    unit: str,
    axis: str,
    names: tuple[str, str],
    title: str,
    subtitle: str,
    most: int,
    width: int,
) -> Figure:
    strongest = sorted(swings, key=lambda swing: (-swing.size, swing.label))[: max(int(most), 1)]
    low, high = (read_label(name) for name in names)
    chart = _Tornado(read_label(title), subtitle, tuple(strongest), base, unit, read_label(axis), (low, high))
    return Figure(chart.title, chart.describe(), chart.paint, chart.axes, width)
