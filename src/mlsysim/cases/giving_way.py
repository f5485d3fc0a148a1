"""What a run gives way to, and when it starts, as people write it: levels of carbon and price, less power for some hours, dates in UTC."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any, NamedTuple

from mlsysim.errors import InputError
from mlsysim.units.registry import number_from

CARBON, PRICE = "carbon", "price"
UNITS = {CARBON: ("gCO2e/kWh", 1e-3), PRICE: ("USD/MWh", 1e-3)}


class Above(NamedTuple):
    """Hours above a level of carbon (kgCO2e/kWh) or price (USD/kWh)."""

    of: str
    level: float

    @property
    def text(self) -> str:
        unit, scale = UNITS[self.of]
        return f"{self.level / scale:.6g} {unit}"


class Less(NamedTuple):
    """So much less power: above a level, or for some hours, once or daily."""

    share: float
    above: Above | None = None
    hours: float = 0.0
    daily: bool = False

    @property
    def text(self) -> str:
        when = f"for {self.hours:g} h" + " daily" * self.daily if self.above is None else f"above {self.above.text}"
        return f"{self.share * 100:g}% {when}"


_CARBON = re.compile(r"(k?)g\s*(co2(e|eq)?)?\s*(/|per)?\s*(kwh)?")
_PRICE = re.compile(r"(?:usd|dollars?)?\s*(?:/|per)\s*([km])wh")


def above_of(value: Any) -> Above:
    """A level of carbon or price as people write it.

    >>> above_of("300g").text, above_of("$80/MWh").text, above_of("0.08 USD/kWh").text
    ('300 gCO2e/kWh', '80 USD/MWh', '80 USD/MWh')
    """
    text = str(value).strip().lower()[:60]
    found = re.fullmatch(r"(\$|usd)?\s*([-+\d._e]+)\s*(.*)", text)
    number = None if found is None else number_from(found[2])
    if found is not None and number is not None and number >= 0:
        if not found[1] and (unit := _CARBON.fullmatch(found[3])):
            return Above(CARBON, number if unit[1] else number / 1000)
        if unit := _PRICE.fullmatch(found[3]):
            return Above(PRICE, number if unit[1] == "k" else number / 1000)
    raise InputError(f"A level is carbon such as 300g (of a kWh) or a price such as $80/MWh, got {str(value)[:40]!r}.")


def less_of(value: Any) -> Less:
    """Less power as people write it.

    >>> less_of("25% for 3 h daily").text, less_of("40 % above 300g").text
    ('25% for 3 h daily', '40% above 300 gCO2e/kWh')
    """
    text = str(value).strip().lower()[:80]
    found = re.fullmatch(r"([\d.]+)\s*%\s*(?:less\s*)?(?:power\s*)?(for|above)\s*(.+)", text)
    share = None if found is None else number_from(found[1])
    if found is not None and share is not None and 0 < share < 100:
        if found[2] == "above":
            return Less(share / 100, above_of(found[3]))
        time = re.fullmatch(r"([\d.]+)\s*h(?:ours?)?\s*(daily|a day|every day)?", found[3])
        if time is not None and 0 < (hours := number_from(time[1]) or 0.0) <= 24:
            return Less(share / 100, None, hours, bool(time[2]))
    words = "'25% for 3h' (once, at most 24 h), '25% for 3h daily' or '25% above 300g'"
    raise InputError(f"Demand response is such as {words}, with less than 100%, got {str(value)[:40]!r}.")


def start_of(value: Any) -> datetime:
    """A date, or a date and time, in UTC.

    >>> start_of("2026-12-01").isoformat(), start_of("2026-12-01T06:30Z").isoformat()
    ('2026-12-01T00:00:00', '2026-12-01T06:30:00')
    """
    try:
        found = datetime.fromisoformat(str(value).strip())
    except ValueError:
        raise InputError(
            f"A start is a date such as 2026-12-01, or with a time in UTC 2026-12-01T06:00, got {str(value)[:40]!r}."
        ) from None
    if (away := found.utcoffset()) is not None:
        found = found.replace(tzinfo=None) - away
    if not 1900 <= found.year <= 2500:
        raise InputError(f"A start lies between the years 1900 and 2500, got {found.year}.")
    return found
