"""Values as text: quantities and floats with a sensible number of digits, as the tutorial prints them."""

from __future__ import annotations

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
    if not isinstance(magnitude, (int, float)):
        return str(magnitude)
    size = abs(magnitude)
    if size == 0:
        return "0"
    if size >= 1 and float(magnitude).is_integer():
        return f"{int(magnitude):,}"
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
    return "s" if seconds >= 1 else "ms" if seconds >= 1e-3 else "us"


def bytes_text(value: float) -> str:
    """Bytes in the unit that suits them, with the digits of a metric: what sentences and charts print.

    >>> bytes_text(141.2e9), bytes_text(85.899e9), bytes_text(16e3)
    ('141.2 GB', '85.90 GB', '16 kB')
    """
    least, unit = next(each for each in _BYTES if value >= each[0])
    return f"{_quantity_digits(value / (least or 1e3))} {unit}"
