"""Values as text: quantities and floats with a sensible number of digits, as the tutorial prints them."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Sequence
from decimal import Decimal
from html import escape
from typing import Any

from mlsysim.units.registry import Quantity, format_unit


def format_value(value: Any) -> str:
    """A value as text: quantities and floats with a sensible number of digits, everything else as it is.

    >>> from mlsysim.units.registry import Q_
    >>> format_value(Q_("8 MB/s").to("GB/s")), format_value(Q_("7 GB/s")), format_value(1.06)
    ('8.00e-03 GB/s', '7 GB/s', '1.06')
    """
    if isinstance(value, Quantity):
        return f"{_quantity_digits(value.magnitude)} {format_unit(value.units)}".strip()
    if isinstance(value, float):
        return _float_digits(value)
    return str(value)


def _quantity_digits(magnitude: Any) -> str:
    if not isinstance(magnitude, (int, float)) or not math.isfinite(magnitude):
        return str(magnitude)
    size = abs(magnitude)
    if size == 0:
        return "0"
    if size >= 1 and math.isclose(size, round(size), rel_tol=1e-12):
        return f"{round(magnitude):,}"  # a limit that is worked out, 699.9999999999999 W, is the limit
    if size >= 100:
        return f"{magnitude:,.1f}"
    if size >= 1:
        return f"{magnitude:.2f}"
    return f"{magnitude:.3f}" if size >= 0.01 else f"{magnitude:.2e}"


def _float_digits(value: float) -> str:
    size = abs(value)
    if size >= 1e6:
        return f"{value:,.0f}"
    if size >= 100:
        return f"{value:,.1f}"
    return f"{value:.2f}" if size >= 1 else f"{value:.4f}"


_BYTES = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (0.0, "kB"))


def byte_unit(value: float) -> str:
    """The decimal unit in which bytes read best."""
    return next(unit for least, unit in _BYTES if value >= least)


def time_unit(seconds: float) -> str:
    """The unit in which a time reads best."""
    return "s" if seconds >= 1 or not seconds else "ms" if seconds >= 1e-3 else "us"


def bytes_text(value: float) -> str:
    """Bytes in the unit that suits them, with the digits of a metric: what sentences and charts print.

    >>> bytes_text(141.2e9), bytes_text(85.899e9), bytes_text(16e3)
    ('141.2 GB', '85.90 GB', '16 kB')
    """
    least, unit = next(each for each in _BYTES if value >= each[0])
    return f"{_quantity_digits(value / (least or 1e3))} {unit}"


def compact_time(seconds: float, digits: int = 3) -> str:
    """A duration in the unit that reads best, to some digits.

    >>> compact_time(0.0123), compact_time(8.594), compact_time(93784), compact_time(2.6e6), compact_time(2.6e6, 5)
    ('12.3 ms', '8.59 s', '26.1 h', '30.1 days', '30.093 days')
    """
    sizes = ((1e-3, 1e-6, "µs"), (1.0, 1e-3, "ms"), (180.0, 1.0, "s"), (7200.0, 60.0, "min"), (259200.0, 3600.0, "h"))
    divisor, unit = (
        next((size[1:] for size in sizes if seconds < size[0]), (86400.0, "days")) if seconds else (1.0, "s")
    )
    value = seconds / divisor
    return f"{value:,.0f} {unit}" if value >= 1000 else f"{value:.{digits}g} {unit}"


def period_text(days: float) -> str:
    """A period that is paid for, in the unit that the time of a run has.

    >>> period_text(1), period_text(1.86), period_text(0.0713), period_text(30), period_text(0.01)
    ('a day', '1.86 days', '1.71 h', '30 days', '14.4 min')
    """
    if days == 1:
        return "a day"
    return (
        f"{days:.3g} days"
        if 1 < days < 3
        else f"{days * 24:.3g} h"
        if 1 / 24 <= days < 1
        else compact_time(days * 86400.0)
    )


def count_text(value: float) -> str:
    """A large count in words.

    >>> count_text(15.6e12), count_text(2e8), count_text(1234)
    ('15.6 trillion', '200 million', '1,234')
    """
    for size, word in ((1e12, "trillion"), (1e9, "billion"), (1e6, "million")):
        if value >= size:
            return f"{plainly(value / size)} {word}"
    return f"{value:,.0f}"


def as_given(value: float) -> str:
    """A number that somebody gave, or a limit, with the digits it has: no exponent where people would not write one, and no ``e+``.

    >>> as_given(99.9999999), as_given(1e9), as_given(2048.0), as_given(1e300), as_given(10**400), as_given(1234567)
    ('99.9999999', '1 billion', '2,048', '1e300', '1e400', '1,234,567')
    """
    if 1e9 <= value < 1e24 and value == float(f"{value:.4g}"):
        return count_text(value)
    whole = isinstance(value, int) and abs(value) > sys.float_info.max  # more than a float holds
    return f"{Decimal(value).normalize() if whole else value:,.10g}".replace("e+", "e")


def plainly(value: float, digits: int = 4) -> str:
    """Some significant digits, or all in front of the point, never with an exponent.

    >>> plainly(1.3e7), plainly(12.3456), plainly(0.000021), plainly(0), plainly(12700, 3)
    ('13,000,000', '12.35', '0.000021', '0', '12,700')
    """
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    places = digits - 1 - math.floor(math.log10(abs(value)))
    text = f"{value:,.{max(places, 0)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def figure(value: float) -> str:
    """An estimate with the digits that it warrants: four of them from ten thousand on, in words from a million on.

    >>> figure(16491073), figure(185024), figure(9876.5), figure(-652255)
    ('16.49 million', '185,000', '9,876', '-652,300')
    """
    if abs(value) < 1e4:
        return f"{value:,.0f}"
    rounded = float(f"{value:.4g}")
    return f"{'-' * (value < 0)}{count_text(abs(rounded))}"


def money_text(dollars: float) -> str:
    """Dollars of an estimate: cents below 100, then four digits; what somebody gave is :func:`given_money`.

    >>> money_text(0.0317), money_text(0.9), money_text(12.5), money_text(1234.5), money_text(652255.4), money_text(114910923)
    ('$0.0317', '$0.90', '$12.50', '$1,234', '$652,300', '$114.9 million')
    """
    if abs(dollars) >= 1:
        return f"${figure(dollars)}" if abs(dollars) >= 100 else f"${dollars:,.2f}"
    text = plainly(dollars, 3)
    return f"${text}0" if len(text.partition(".")[2]) == 1 else f"${text}"


def given_money(dollars: float) -> str:
    """Dollars that somebody gave, with the digits they have.

    >>> given_money(1), given_money(652255), given_money(1.5e6)
    ('$1.00', '$652,255', '$1,500,000')
    """
    return money_text(dollars) if dollars < 100 else f"${as_given(dollars)}"


_LARGER = {
    "B": ("kB", "MB", "GB", "TB", "PB"),
    "B/s": ("kB/s", "MB/s", "GB/s", "TB/s", "PB/s"),
    "flop": ("kFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP", "EFLOP", "ZFLOP", "YFLOP"),
    "flop/s": ("kFLOPs/s", "MFLOPs/s", "GFLOPs/s", "TFLOPs/s", "PFLOPs/s", "EFLOPs/s"),
}
_SMALLER = {"s": ("ms", "µs", "ns"), "J/flop": ("nJ/flop", "pJ/flop"), "J/B": ("nJ/B", "pJ/B"), "J": ("mJ", "µJ")}
"""Units that read best with a prefix, by steps of a thousand; J/flop has no mJ and µJ, which nobody would read."""


def number(value: Any, unit: str = "") -> str:
    """A value with four significant digits, or all in front of the point, and its unit with the prefix that suits it.

    >>> number(98304), number(1.507e11, "byte"), number(957134.2, "kWh"), number(1.48e13)
    ('98,304', '150.7 GB', '957,134 kWh', '14.8 trillion')
    >>> number(1.654e-05, "s"), number(9.247e-13, "J/flop"), number(6.25e23, "flop"), number(3e-5)
    ('16.54 µs', '0.9247 pJ/flop', '625 ZFLOP', '0.00003')
    """
    if isinstance(value, Quantity):
        value, unit = value.magnitude, format_unit(value.units)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    unit = unit.replace("byte", "B")
    for larger in _LARGER.get(unit, ()):
        if abs(value) < 1e3:
            break
        value, unit = value / 1e3, larger
    if 0 < abs(value) < 1:
        for smaller in _SMALLER.get(unit, ()):
            step = 1e9 if smaller.startswith("nJ/") else 1e3
            value, unit = value * step, smaller
            if abs(value) >= 1:
                break
    if unit in ("", "USD", "token", "param") and abs(value) >= 1e9:
        return f"{count_text(value)} {unit}".strip()
    return f"{f'{value:,}' if isinstance(value, int) else plainly(value)} {unit}".strip()


def many(number: int, noun: str) -> str:
    """A number of things.

    >>> many(1, "replica"), many(1200, "replica")
    ('1 replica', '1,200 replicas')
    """
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def listed(items: Iterable[Any]) -> str:
    """Things one behind the other.

    >>> listed(["hosts", "network", "power"]), listed([1024, 2048])
    ('hosts, network and power', '1,024 and 2,048')
    """
    words = [f"{item:,}" if isinstance(item, int) else str(item) for item in items]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def lines_of(headers: Sequence[str], rows: Sequence[Sequence[str]], align: str = "") -> list[str]:
    """A table as text. ``align`` has ``<`` or ``>`` for each column, which are left where it does not say.

    >>> lines_of(["chip", "TB/s"], [["H100", "3.35"], ["A100", "2"]], "<>")
    ['chip  TB/s', 'H100  3.35', 'A100     2']
    """
    table = [headers, *rows]
    columns = [(align[k : k + 1] or "<", max(map(len, column))) for k, column in enumerate(zip(*table, strict=True))]
    return [
        "  ".join(f"{cell:{way}{n}}" for cell, (way, n) in zip(row, columns, strict=True)).rstrip() for row in table
    ]


def html_of(headers: Sequence[str], rows: Sequence[Sequence[str]], caption: str = "") -> str:
    """A table of a page; without a head where there are no headers."""

    def row(cells: Sequence[str], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells) + "</tr>"

    title = f"<caption>{escape(caption)}</caption>" if caption else ""
    head = row(headers, "th") if headers else ""
    return f"<table>{title}{head}{''.join(row(cells, 'td') for cells in rows)}</table>"
