"""A run by the hour: when it works at full power, at less, or not at all, and what its hours cost and emit.

    CI(h) = CI_year x c(h) / mean(c)                    carbon: the shape of the zone's hours, around the grid's own yearly figure
    p(h) = p_year + w(h) - mean(w)                      price: fees and taxes stay, what is wholesale moves
    PUE(h) = 1 + (PUE_year - 1) (1 - s + s o(T) / mean(o))       of the facility's own power the share s cools, with o(T) of computing
    o(T) = a + b T + c T^2                              outside air, and compressors for warm hours (Xu, Feng, Li 2013)

over hours h of months (UTC), so that the means of a year are the yearly figures (those of a run weigh hours by its energy), and a place whose hours are not known
has them always. An hour of a month is not the same on all days: carbon is lognormal around its mean, with the variation that was seen, so
that a run that stops above a level L works in this hour on the share of days, and at the mean of the days, that are below,

    P(X < L) = Phi(d),   E[X; X < L] = CI Phi(d - sigma),   d = ln(L / CI) / sigma + sigma / 2,   sigma^2 = ln(1 + v^2)

which is what many runs see on average. One run (a seed) draws days: ln X is an Ornstein-Uhlenbeck process by the hour, whose memory is such that
an hour resembles the same hour of the next day as much as was seen. Prices and temperatures have their means on all days; spikes of
a market are in the means of their hours, not apart.

A run that is held keeps its program: accelerators wait, hosts and network draw what they always do, and what is owned or rented is paid. Stopping
therefore lessens carbon only where clean hours lie below dirty ones by more than waiting takes: CI_clean / CI_dirty < 1 - P_wait / P.
Less power is asked at the meter; hosts and network do not give way, so that accelerators give more, by their clock. Left out: forecasts (levels
are judged by the hour as it comes), the marginal plant, the time to stop and to start, payments for demand response.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from random import Random
from typing import Any, NamedTuple

from mlsysim.cases.footprint import Site
from mlsysim.errors import InputError
from mlsysim.infra.hours import DAYS, Table, Zone, yearly
from mlsysim.units.kernel import kernel
from mlsysim.units.registry import number_from, to_si
from mlsysim.zoo.constants import constant

FULL, LESS, PAUSED = range(3)
"""How a run goes in an hour, from most power to least."""
CARBON, PRICE = "carbon", "price"
_UNITS = {CARBON: ("gCO2e/kWh", 1e-3), PRICE: ("USD/MWh", 1e-3)}
_YEAR = sum(DAYS)


@kernel("""
    above_freezing: K [1, 50], at_freezing [0.01, 0.5], slope: 1/K [1e-3, 0.01], curve: 1/K**2 [1e-5, 1e-4] -> overhead
""")
def cooling_overhead(above_freezing: Any, at_freezing: Any, slope: Any, curve: Any) -> Any:
    """Cooling power over computing power at a temperature outside."""
    return at_freezing + slope * above_freezing + curve * above_freezing * above_freezing


@kernel("pue [1.01, 3], share [0.1, 1], overhead [0.01, 1], mean [0.01, 1] -> at_hour")
def weather_pue(pue: Any, share: Any, overhead: Any, mean: Any) -> Any:
    """PUE of an hour: of what is not computing, so much cools, as the weather has it."""
    return 1 + (pue - 1) * (1 - share + share * overhead / mean)


# --- what is asked ----------------------------------------------------------------------------------------------------


class Above(NamedTuple):
    """Hours above a level of carbon (kgCO2e/kWh) or price (USD/kWh)."""

    of: str
    level: float

    @property
    def text(self) -> str:
        unit, scale = _UNITS[self.of]
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


# --- a place ----------------------------------------------------------------------------------------------------------


class Place(NamedTuple):
    """Carbon (kgCO2e/kWh), price (USD/kWh) and PUE by month and hour; ``sigma`` of days around carbon, and its memory in hours."""

    carbon: Table
    price: Table
    pue: Table
    sigma: float = 0.0
    memory: float = 24.0


def place_of(site: Site, price: float, zone: Zone | None) -> Place:
    """The hours of a place, whose means over a year are its yearly figures. Unknown carbon counts as none."""

    def even(value: float) -> Table:
        return ((float(value),) * 24,) * 12

    carbon, cost, pue = even(site.carbon or 0.0), even(price), even(site.pue)
    if zone is None:
        return Place(carbon, cost, pue)
    scale = (site.carbon or 0.0) / yearly(zone.carbon)
    carbon = _each(zone.carbon, lambda c: c * scale)
    if zone.price is not None:
        usual = yearly(zone.price)
        cost = _each(zone.price, lambda p: price + (p - usual) / 1000)
    if zone.temperature is not None:
        slopes = (("cooling_slope", "1/kelvin"), ("cooling_curve", "1/kelvin^2"))
        form = constant("cooling_at_freezing").number, *(to_si(constant(name).quantity, unit) for name, unit in slopes)
        cooling = _each(zone.temperature, lambda t: max(0.0, cooling_overhead(t, *form)))
        mean, share = yearly(cooling), constant("cooling_share").number
        pue = _each(cooling, lambda o: weather_pue(site.pue, share, o, mean))
    return Place(carbon, cost, pue, math.sqrt(math.log1p(zone.variation**2)), zone.memory)


def _each(table: Table, form: Any) -> Table:
    return tuple(tuple(float(form(value)) for value in hours) for hours in table)


# --- a run ------------------------------------------------------------------------------------------------------------


class Mode(NamedTuple):
    """How fast a run goes, over its full rate, and what all of its computers draw (kW)."""

    rate: float
    power: float


class Covered(NamedTuple):
    """What a run covered: work in hours at full rate, kWh of computers and of the building, kgCO2e, USD of electricity, and hours at
    full power, at less, and held."""

    work: float = 0.0
    computing: float = 0.0
    energy: float = 0.0
    carbon: float = 0.0
    cost: float = 0.0
    full: float = 0.0
    less: float = 0.0
    paused: float = 0.0

    def plus(self, other: Covered, times: float = 1.0) -> Covered:
        """Both, the other so many times."""
        return Covered(*(mine + times * its for mine, its in zip(self, other, strict=True)))

    @property
    def hours(self) -> float:
        return self.full + self.less + self.paused


@dataclass(frozen=True)
class Hours:
    """A run from a start on, at a place, in modes (full, less, paused), with what it gives way to."""

    start: datetime
    place: Place
    modes: tuple[Mode, Mode, Mode]
    pause: Above | None = None
    less: Less | None = None
    _known: dict[Any, Covered] = field(default_factory=dict, repr=False, compare=False)

    def window(self, month: int) -> list[int]:
        """Hours of a day of the month in which less power is asked, dearest first: by price, else by carbon."""
        if self.less is None or self.less.above is not None:
            return []
        price, carbon = self.place.price[month - 1], self.place.carbon[month - 1]
        count = math.ceil(self.less.hours)
        first = max(
            range(24), key=lambda h: sum(price[(h + k) % 24] + 1e-9 * carbon[(h + k) % 24] for k in range(count))
        )
        return [(first + k) % 24 for k in range(count)]

    def mode(self, when: datetime, deviation: float = 1.0, first: bool = True) -> int:
        """The mode of an hour whose carbon is so many times its mean; ``first`` is the day of the start."""
        month, hour = when.month, when.hour
        values = {CARBON: self.place.carbon[month - 1][hour] * deviation, PRICE: self.place.price[month - 1][hour]}
        if self.pause is not None and values[self.pause.of] > self.pause.level:
            return PAUSED
        if self.less is None:
            return FULL
        if self.less.above is not None:
            return LESS if values[self.less.above.of] > self.less.above.level else FULL
        return LESS if (first or self.less.daily) and hour in self.window(month) else FULL

    def hour(self, when: datetime, deviation: float | None = None, first: bool = False) -> Covered:
        """What is covered in an hour: of one day, or of the mean of days."""
        key = (when.month, when.hour, first) if deviation is None else None
        if key in self._known:
            return self._known[key]
        mean = self.place.carbon[when.month - 1][when.hour]
        found = Covered()
        for share, carbon in self._days(mean) if deviation is None else ((1.0, mean * deviation),):
            if share > 0:
                mode = self.mode(when, carbon / mean if mean else 1.0, first)
                found = found.plus(self._taken(when, mode, share, carbon))
        if key is not None:
            self._known[key] = found
        return found

    def _taken(self, when: datetime, mode: int, hours: float, carbon: float) -> Covered:
        """What some hours in a mode take."""
        rate, power = self.modes[mode]
        of_window = (
            self.less.hours / math.ceil(self.less.hours) if mode == LESS and self.less and self.less.hours else 1.0
        )
        if of_window < 1:
            # A part of an hour asks for less power in a part of it.
            rest = self._taken(when, FULL, hours * (1 - of_window), carbon)
            hours *= of_window
        else:
            rest = Covered()
        energy = power * hours * self.place.pue[when.month - 1][when.hour]
        spent = energy * carbon, energy * self.place.price[when.month - 1][when.hour]
        by_mode = [hours * (each == mode) for each in (FULL, LESS, PAUSED)]
        return Covered(rate * hours, power * hours, energy, *spent, *by_mode).plus(rest)

    def _days(self, mean: float) -> Iterator[tuple[float, float]]:
        """Shares of days between the levels of carbon, with their mean carbon."""
        asked = (self.pause, self.less and self.less.above)
        levels = sorted({each.level for each in asked if each is not None and each.of == CARBON})
        sigma, below, part = self.place.sigma, 0.0, 0.0
        for level in (*levels, math.inf):
            here, inside = 1.0, mean
            if level < math.inf and mean > 0:
                away = math.inf * (1 if level >= mean else -1)
                if sigma > 0:
                    away = (math.log(level / mean) if level > 0 else -math.inf) / sigma + sigma / 2
                here, inside = _phi(away), mean * _phi(away - sigma)
            share = here - below
            yield share, (inside - part) / share if share > 1e-12 else 0.0
            below, part = here, inside

    def walk(self, work: float | None = None, until: float = math.inf, drawn: Iterator[float] | None = None) -> Covered:
        """From the start until an amount of work (hours at full rate) is done, or for some hours; the mean of days, or drawn ones."""
        when, found, done, first = self.start, Covered(), 0.0, self.start.date()
        asked = math.inf if work is None else work
        year = self._year() if drawn is None else None
        if year is not None and asked < math.inf and not year.work > 0:
            raise self._never()
        while True:
            left = max(0.0, asked - found.work)
            if left <= 1e-12 * max(asked if asked < math.inf else 0.0, 1e-300) or until - done <= 1e-9:
                return found
            if year is not None and when.date() != first:
                # Whole years are alike.
                years = int(min(left / year.work if year.work else math.inf, (until - done) / (24 * _YEAR)) - 1e-9)
                if years > 0:
                    found, done = found.plus(year, years), done + years * 24 * _YEAR
                    continue
            rest = 1.0 - (when.minute + when.second / 60) / 60
            here = self.hour(when, None if drawn is None else next(drawn), when.date() == first)
            part = min(rest, until - done, left / here.work if here.work > 0 else math.inf)
            found, done = found.plus(here, part), done + part
            when = when + timedelta(hours=rest)

    def _year(self) -> Covered:
        found = Covered()
        for month, days in enumerate(DAYS, 1):
            for hour in range(24):
                found = found.plus(self.hour(datetime(2001, month, 1, hour)), days)
        return found

    def _never(self) -> InputError:
        assert self.pause is not None
        rows = self.place.carbon if self.pause.of == CARBON else self.place.price
        least, most = (pick(map(pick, rows)) / _UNITS[self.pause.of][1] for pick in (min, max))
        return InputError(
            f"The run would never go on: hours of this place have {least:.0f} to {most:.0f} {_UNITS[self.pause.of][0]} on average, which {self.pause.text} is below.",
            field="pause_above",
        )

    def drawn(self, random: Random) -> Iterator[float]:
        """Carbon of hour after hour over its mean, with good and bad days."""
        sigma, keep = self.place.sigma, math.exp(-1 / self.place.memory)
        if sigma == 0:
            while True:
                yield 1.0
        fresh, state = math.sqrt(1 - keep * keep), random.gauss(0.0, 1.0)
        while True:
            yield math.exp(sigma * state - sigma * sigma / 2)
            state = keep * state + fresh * random.gauss(0.0, 1.0)

    def best_start(self, length: float) -> tuple[datetime, float]:
        """The hour within a year after the start from which so many hours at full power emit least, and what they emit over now."""
        begin = self.start.replace(minute=0, second=0, microsecond=0)
        rate = [
            self.place.carbon[w.month - 1][w.hour] * self.place.pue[w.month - 1][w.hour]
            for w in (begin + timedelta(hours=i) for i in range(24 * _YEAR))
        ]
        span = max(1, min(round(length), 24 * _YEAR))
        now = total = best = sum(rate[:span])
        at = 0
        for i in range(1, 24 * _YEAR):
            total += rate[(i + span - 1) % len(rate)] - rate[i - 1]
            if total < best * (1 - 1e-9):
                at, best = i, total
        return begin + timedelta(hours=at), best / now if now > 0 else 1.0


def _phi(x: float) -> float:
    return 0.5 * math.erfc(-x / math.sqrt(2))
