"""Tornado: what an answer does when one input at a time is lower or higher, the strongest on top."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mlsysim.errors import InputError
from mlsysim.plot.amounts import fields, plain, read_amount, read_label, sequence
from mlsysim.plot.bars import Row, paint_rows
from mlsysim.plot.figure import WIDE, Figure
from mlsysim.plot.frame import KeyEntry, key, with_unit
from mlsysim.plot.scale import amount
from mlsysim.plot.svg import Drawing
from mlsysim.walls.analysis.sensitivity import SensitivityResult

_LOWER, _HIGHER = 1, 0


@dataclass(frozen=True, kw_only=True, repr=False)
class _Tornado(Figure):
    swings: list[tuple[str, float, float]]
    base: float
    unit: str
    axis: str
    names: tuple[str, ...]

    def rows(self) -> list[Row]:
        rows = []
        for label, low, high in self.swings:
            said = f"{amount(low, self.unit)} to {amount(high, self.unit)}" if low != high else "no change"
            rows.append(Row(label, said, [(self.base, high, _HIGHER), (self.base, low, _LOWER)]))
        return rows

    @property
    def alt(self) -> str:
        named = "; ".join(f"{row.label}: {row.value}" for row in self.rows())
        return f"Tornado chart around {amount(self.base, self.unit)}, strongest first ({self.names[0]} to {self.names[1]}): {named}."

    def body(self, d: Drawing, y: float) -> float:
        y = key(d, y, [KeyEntry(self.names[0], _LOWER), KeyEntry(self.names[1], _HIGHER)])
        return paint_rows(d, y, self.rows(), self.axis, self.unit, origin=self.base)

    def axes(self, ax: Any) -> None:
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
    return _Tornado(
        title=read_label(title or f"What moves the {axis.lower()}"),
        subtitle=subtitle,
        width=width,
        swings=sorted(swings, key=lambda swing: (-abs(swing[2] - swing[1]), swing[0]))[: max(int(most), 1)],
        base=centre,
        unit=symbol,
        axis=read_label(axis),
        names=tuple(read_label(name) for name in names),
    )
