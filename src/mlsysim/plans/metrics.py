"""What the metrics of an answer are, as data (``data/metrics.toml``), and how their values are printed.

The texts of metrics are made here once, so that the terminal, a report and the browser print the same digits.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache, cached_property
from typing import Any, ClassVar, Literal

from pydantic import Field

from mlsysim.errors import InputError
from mlsysim.plans.targets import TIMES, percent, rank_text
from mlsysim.units.fields import Record
from mlsysim.units.records import dataclass
from mlsysim.units.registry import Quantity, format_unit, quantity, to_si, unit_name
from mlsysim.units.text import byte_unit, count_text, figure, format_value, money_text, number, plainly, time_unit
from mlsysim.walls.document import Document
from mlsysim.walls.explanation import Equation, written
from mlsysim.zoo.files import shipped

Level = Literal["feasibility", "performance", "macro"]

_SIZES = {
    "W": ((1e6, "MW"), (1e3, "kW"), (0.0, "W")),
    "kWh": ((1e3, "MWh"), (1.0, "kWh"), (0.0, "Wh")),
    "J": ((1e3, "kJ"), (0.1, "J"), (0.0, "mJ")),
}
"""Units by the least value that is printed in them."""
_LARGER = {
    "kgCO2e": ((1e3, "tCO2e"), (0.01, "kgCO2e"), (0.0, "gCO2e")),
    "kilowatt_hour": ((1e6, "GWh"), (1e3, "MWh")),
    "megawatt_hour": ((1e3, "GWh"),),
    "watt": ((1e6, "MW"), (1e3, "kW")),
    "kilowatt": ((1e3, "MW"),),
    "day": ((1.0, "day"), (1 / 24, "h"), (1 / 1440, "min"), (0.0, "s")),
    "minute": ((1440.0, "day"), (120.0, "h"), (1.0, "min"), (0.0, "s")),
    "millisecond": ((1e3, "s"),),
    "second": ((7200.0, "h"), (1000.0, "min"), (1.0, "s"), (1e-3, "ms"), (0.0, "us")),
    "hour": ((1000.0, "day"),),
    "gigabyte": ((1e3, "TB"),),
}
"""Units that a value is told in, and those that it is printed in from some size on."""


def readable(value: float, unit: str) -> Any:
    """A plain number as a quantity in the unit that it reads best in."""
    if unit in ("s", "byte"):
        return quantity(value, unit).to(time_unit(value) if unit == "s" else byte_unit(value))
    return quantity(value, unit).to(next(name for least, name in _SIZES[unit] if value >= least))


@dataclass(frozen=True)
class Kind:
    """What a metric is; the fields are those of the file."""

    name: str
    level: Level
    label: str | dict[str, str]
    wall: int = 0
    unit: str = ""
    shown: str = ""
    plain: str = ""
    share: bool = False
    field: str = ""
    made_from: Sequence[str] = ()
    aliases: Sequence[str] = ()
    formulas: Sequence[tuple[str, str, str]] = ()
    listed: bool = True
    """Whether tables of metrics show it; percentiles have a table of their own."""

    def label_of(self, task: str) -> str:
        """What it is called in a task."""
        return self.label if isinstance(self.label, str) else self.label.get(task) or self.label["training"]

    def packed(self, value: Any) -> Any:
        """A plain number in the unit that it is printed in; a quantity as it is."""
        if not self.unit or isinstance(value, Quantity):
            return value
        if self.shown == "best":
            return readable(value, self.unit)
        return quantity(value, self.unit).to(self.shown or self.unit)

    @cached_property
    def equations(self) -> tuple[Equation, ...]:
        """Its equations where no resolver gives it."""
        return written(
            "\n".join(f"{self.name}: {text}\n    {latex}\n    {listed}" for text, latex, listed in self.formulas)
        )


class _Kinds(dict[str, Kind]):
    """Metrics by name; of percentiles those that people ask for most, and others when they are asked for."""

    def __missing__(self, name: str) -> Kind:
        kind, _, level = name.rpartition("_")
        if kind not in TIMES:
            raise KeyError(name)
        return _percentile(self[{"e2e": "latency"}.get(kind, kind)], level)


@cache
def kinds() -> dict[str, Kind]:
    """All metrics by name."""
    levels = shipped("mlsysim.data", "metrics.toml")
    found = _Kinds()
    for level, held in levels.items():
        for name, entry in held.items():
            percentiles = entry.pop("percentiles", ())
            found[name] = Kind(name, level, **entry)  # type: ignore[arg-type]
            for each in percentiles:
                made = _percentile(found[name], each)
                found[made.name] = made
    return found


def _percentile(of: Kind, level: str) -> Kind:
    """The metric of a percentile of another's times."""
    kind, share = {"latency": "e2e"}.get(of.name, of.name), f"{percent(level):g}"
    label = f"{of.label_of('serving')}, {rank_text(level)} percentile"
    form = (
        f"the value at place int({share}/100 n) of n sorted times",
        f"t_{{{share}}}",
        f"t = {kind}_{level}_seen in s, n = requests_played",
    )
    return replace(
        of,
        shown="best",
        name=f"{kind}_{level}",
        label=label,
        made_from=(),
        aliases=(),
        formulas=(form,),
        field="",
        listed=False,
    )


class Metric(Document, Record):
    """A number of the answer, the wall that it belongs to, and its 90 % interval where there is one."""

    beside: ClassVar = ("text", "interval")

    name: str
    label: str
    level: Level
    value: Any
    wall: int
    low: Any = Field(default=None, description="lower end of the 90 % interval; null where there is no interval")
    high: Any = Field(default=None, description="upper end of it; null beside a lower end where it has no upper end")

    @classmethod
    def written_as(cls) -> dict[str, Any]:
        """What a document has in another form than the fields."""
        return {"value": bool | int | float | str | Quantity, **dict.fromkeys(("low", "high"), float | Quantity | None)}

    @classmethod
    def _fields_of(cls, document: Mapping[str, Any]) -> Mapping[str, Any]:
        for end in ("value", "low", "high"):
            told = document.get(end)
            size = told.get("magnitude") if isinstance(told, Mapping) else told
            if size != size or (size is None and (end == "value" or told is not None)):
                raise InputError(f"The {end!r} of the metric {document.get('name')!r} is not a number.", field=end)
        return document

    def __str__(self) -> str:
        return f"{self.label}: {self.text}" + (f" ({self.interval})" if self.interval else "")

    __repr__ = __str__

    @property
    def path(self) -> str:
        return f"{self.level}.{self.name}"

    @property
    def text(self) -> str:
        return value_text(self.name, kinds()[self.name].packed(self.value))

    def plainly(self, unit: str) -> "Metric":
        """The same in plain numbers of a unit."""
        ends = {end: value for end in ("value", "low", "high") if (value := getattr(self, end)) is not None}
        return self.model_copy(update={end: float(to_si(value, unit)) for end, value in ends.items()})

    def text_of(self, bound: Any) -> str:
        """A limit of it as it is printed, in the unit that suits it: that need not be the value's."""
        kind = kinds()[self.name]
        if isinstance(bound, Quantity) and kind.shown == "best":
            bound = kind.packed(float(f"{to_si(bound, kind.unit):.12g}"))
        return value_text(self.name, bound)

    @property
    def amount(self) -> str:
        """The same with its unit, where the label says that: of counts a second."""
        rate = isinstance(self.value, Quantity) and unit_name(self.value.units) in _RATES
        return f"{self.text} 1/s" if rate else self.text

    @property
    def listed(self) -> bool:
        """Whether tables of metrics show it."""
        return kinds()[self.name].listed

    @property
    def factors(self) -> tuple[float, float] | None:
        """The ends of its interval over it; infinite where it has no upper end."""
        if self.low is None:
            return None
        low, high = (math.inf if side is None else side / self.value for side in (self.low, self.high))
        return to_si(low, ""), to_si(high, "")

    @property
    def interval(self) -> str:
        """The interval as it is printed, in the unit of the value, or nothing."""
        if self.low is None:
            return ""
        low = value_text(self.name, self.low, self.value)
        return f"{low} or more" if self.high is None else f"{low} to {value_text(self.name, self.high, self.value)}"


def metric(name: str, value: Any, task: str, band: Any = None, wall: int = 0, binding: int = 0) -> Metric:
    """The metric of a value, plain or a quantity, with its interval in the same unit, whose upper end is None where it is infinite; where
    neither it nor the caller has a ``wall`` for it, it belongs to the one that binds."""
    kind = kinds()[name]
    value = kind.packed(value)
    ends = (None, None) if band is None else tuple(map(kind.packed, band))
    low, high = (side.to(value.units) if isinstance(side, Quantity) else side for side in ends)
    high = None if high is None or math.isinf(getattr(high, "magnitude", high)) else high
    label, wall = kind.label_of(task), wall or kind.wall or binding
    return Metric(name=name, label=label, level=kind.level, value=value, wall=wall, low=low, high=high)


_SMALL = 0.01
"""Below it a quantity has another unit, or all its zeros."""

_LEAST = 0.0005
"""Below it a share has two digits that count, not one behind the point, which would be nothing."""

_RATES = ("1 / second", "1 / s")
"""Units of counts a second, which labels name in words."""


def value_text(name: str, value: Any, beside: Any = None) -> str:
    """A value as it is printed: fractions as per cent, money with thousands, the rest as the tutorial prints it, in the unit that suits its size, or that of
    the one that it stands ``beside``."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Quantity):
        size, unit = value.magnitude, unit_name(value.units)
        if unit == "USD":
            return money_text(size)
        if unit == "token" and size >= 1e6:
            return count_text(size)
        if unit in _RATES:
            return f"{size:,.4g}" if size < 1e4 else figure(size)
        size = size if beside is None else beside.magnitude
        larger = next((each for least, each in _LARGER.get(unit, ()) if size and abs(size) >= least), unit)
        value = value if larger == unit else value.to(larger)
        large = isinstance(value.magnitude, float) and abs(value.magnitude) >= 1e3
        if 0 < abs(value.magnitude) < _SMALL:
            return number(value)
        return f"{figure(value.magnitude)} {format_unit(value.units)}".strip() if large else format_value(value)
    if isinstance(value, float):
        if name in kinds() and kinds()[name].share:
            return f"{plainly(100 * value, 2)}%" if 0 < abs(value) < _LEAST else f"{value:.1%}"
        return figure(value) if abs(value) >= 1e3 else format_value(value)
    return f"{value:,}" if isinstance(value, int) else str(value)
