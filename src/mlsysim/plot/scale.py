"""Numbers on axes: linear and logarithmic scales, ticks at round values, and amounts with unit and prefix."""

from __future__ import annotations

import math
from collections.abc import Sequence

from mlsysim.units.records import dataclass
from mlsysim.units.text import bytes_text, count_text, money_text

_PREFIXES = dict(zip(range(-5, 9), (*"fpnµm", "", *"kMGTPEZY"), strict=True))
_PREFIXED = {"B", "FLOP", "FLOP/s", "B/s", "W", "J", "Wh", "token/s"}
_DOLLARS = ((1e9, "$ billion"), (1e6, "$ million"), (1e4, "$ thousand"), (0.0, "$"))
_LONG_TIMES = ((172800.0, 86400.0, "d"), (7200.0, 3600.0, "h"), (600.0, 60.0, "min"))
_LEAST = 0.1
"""The least of a logarithmic axis in a longer unit than seconds."""


@dataclass(frozen=True)
class Linear:
    """Values from low to high on the page from start to end."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)

    def ticks(self, unit: str, most: int) -> tuple[list[float], list[str], str]:
        """Values, their texts, and the symbol of the unit in which these are."""
        factor, symbol = axis_unit(max(abs(self.low), abs(self.high)), unit)
        values = [tick / factor for tick in linear_ticks(self.low * factor, self.high * factor, most)]
        return values, tick_texts(values, factor), symbol


class Log(Linear):
    """The same for the logarithm of positive values."""

    def __call__(self, value: float) -> float:
        share = math.log10(value / self.low) / math.log10(self.high / self.low)
        return self.start + share * (self.end - self.start)

    def ticks(self, unit: str, most: int) -> tuple[list[float], list[str], str]:
        """The same at powers of ten; times are in the unit of the longest, where that of the shortest is not lost."""
        factor, symbol = axis_unit(self.high, unit) if unit == "s" else (1.0, "$" if unit == "USD" else unit)
        if self.low * factor < _LEAST and factor < 1:
            factor, symbol = 1.0, unit
        shown = log_ticks(self.low * factor, self.high * factor, most)
        return [tick / factor for tick in shown], [number(tick) for tick in shown], symbol


def linear_scale(low: float, high: float, start: float, end: float) -> Linear:
    """A scale that has an extent even where all values are equal."""
    if high - low <= 1e-12 * max(abs(low), abs(high)):
        spread = abs(high) * 0.5 or 1.0
        low, high = low - spread, high + spread
    return Linear(low, high, start, end)


def log_scale(low: float, high: float, start: float, end: float) -> Log:
    """A logarithmic scale of at least one decade."""
    if high < low * 10:
        middle = (low * high) ** 0.5
        low, high = middle / 10**0.5, middle * 10**0.5
    return Log(low, high, start, end)


def is_log(values: Sequence[float]) -> bool:
    """Whether values are spread so far that a linear axis would hide the small ones."""
    return min(values) > 0 and max(values) / min(values) > 50


def scale_for(values: Sequence[float], start: float, end: float) -> Linear:
    """A scale with some room around values, logarithmic where they are spread far."""
    low, high = min(values), max(values)
    if is_log(values):
        return log_scale(low / 1.5, high * 1.5, start, end)
    margin = (high - low) * 0.06
    return linear_scale(max(low - margin, 0.0) if low >= 0 else low - margin, high + margin, start, end)


def linear_ticks(low: float, high: float, most: int) -> list[float]:
    """At most ``most`` round values (1, 2, 2.5 or 5 times a power of ten apart) in [low, high]; two where possible.

    >>> linear_ticks(0, 7.3, 5)
    [0.0, 2.0, 4.0, 6.0]
    """
    span = high - low
    if span <= 0:
        return [low]
    power = math.floor(math.log10(span / max(most, 1))) - 1
    for exponent in range(power, power + 5):
        for mantissa in (1.0, 2.0, 2.5, 5.0):
            step = mantissa * 10.0**exponent
            first = math.ceil(low / step - 1e-9)
            last = math.floor(high / step + 1e-9)
            if last - first + 1 <= max(most, 2):
                return [k * step for k in range(first, last + 1)] or [low]
    return [low]


def log_ticks(low: float, high: float, most: int) -> list[float]:
    """Powers of ten in [low, high], every n-th where there are too many; 2 and 5 between them where there are few.

    >>> log_ticks(0.5, 1200, 8)
    [1.0, 10.0, 100.0, 1000.0]
    """
    first, last = math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9)
    powers = list(range(first, last + 1))
    if len(powers) < 3:
        fine = [m * 10.0**e for e in range(first - 1, last + 2) for m in (1, 2, 5)]
        fine = [value for value in fine if low * (1 - 1e-9) <= value <= high * (1 + 1e-9)]
        if len(powers) < len(fine) <= most:
            return fine
    every = max(1, math.ceil(len(powers) / max(most, 1)))
    return [10.0**power for power in powers if power % every == 0] or [10.0**power for power in powers[:1]]


def _rounded(value: float, digits: int = 3) -> float:
    return float(f"{value:.{digits}g}")


def _thousands(value: float) -> int:
    return math.floor(math.log10(abs(value)) / 3 + 1e-12)


def number(value: float, digits: int = 3) -> str:
    """A number with three significant digits and, where it is long, a prefix behind it.

    >>> number(0.25), number(1234567), number(999.7), number(0)
    ('0.25', '1.23 M', '1 k', '0')
    """
    rounded = _rounded(value, digits)
    if rounded == 0:
        return "0"
    size = _thousands(rounded)
    if size > 0 and size in _PREFIXES:
        return f"{_rounded(rounded / 1000.0**size, digits):.{digits}g} {_PREFIXES[size]}"
    return _plain(rounded, digits)


def _plain(value: float, digits: int = 3) -> str:
    if 1e3 <= abs(value) < 1e6:
        return f"{_rounded(value, digits):,.0f}".replace("-", "−")
    mantissa, e, exponent = f"{value:.{digits}g}".partition("e")
    return mantissa.replace("-", "−") + (f"e{int(exponent)}" if e else "")


def axis_unit(largest: float, unit: str) -> tuple[float, str]:
    """Factor and symbol under which values up to ``largest`` are short: (1e-9, "GB") for 74e9 and "B"."""
    if unit == "USD":
        least, symbol = next(each for each in _DOLLARS if abs(largest) >= each[0])
        return 1 / {1e4: 1e3, 0.0: 1.0}.get(least, least), symbol
    if unit == "kgCO2e" and abs(largest) >= 1e3:
        return 1e-3, "tCO2e"
    if unit == "s":
        for limit, length, symbol in _LONG_TIMES:
            if abs(largest) >= limit:
                return 1 / length, symbol
    if (unit in _PREFIXED or unit == "s") and largest:
        size = _thousands(_rounded(largest))
        size = min(size, 0) if unit == "s" else size
        if size in _PREFIXES:
            return 1000.0**-size, _PREFIXES[size] + unit
    return 1.0, unit


def amount(value: float, unit: str) -> str:
    """A value with its unit.

    >>> amount(0.0048, "s"), amount(74.98e9, "B"), amount(295.2, "FLOP/B"), amount(1.5e6, "USD"), amount(6.9735e6, "kgCO2e")
    ('4.8 ms', '74.98 GB', '295 FLOP/B', '$1.5 million', '6,970 tCO2e')
    """
    if unit == "USD":
        return f"${count_text(_rounded(value))}" if abs(value) >= 1e6 else money_text(value)
    if unit == "B" and value >= 1e3:
        return bytes_text(value)
    factor, symbol = axis_unit(value, unit)
    if symbol == unit:
        return f"{number(value)} {unit}".strip()
    return f"{_plain(_rounded(value * factor))} {symbol}"


def tick_texts(values: Sequence[float], factor: float = 1.0) -> list[str]:
    """Ticks of one axis as text, all with the same number of decimals."""
    scaled = [value * factor for value in values]
    largest = max((abs(value) for value in scaled), default=0.0)
    if largest >= 1e6 or 0 < largest < 1e-3:
        return [number(value) for value in scaled]
    decimals = 0
    while decimals < 6 and any(abs(round(value, decimals) - value) > 1e-9 * largest for value in scaled):
        decimals += 1
    return [f"{value:,.{decimals}f}".replace("-", "−") if value else "0" for value in scaled]
