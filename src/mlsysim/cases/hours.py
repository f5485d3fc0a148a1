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
from collections.abc import Iterable, Iterator
from dataclasses import field
from datetime import datetime, timedelta
from random import Random
from typing import Any, NamedTuple

from mlsysim.cases.footprint import Site
from mlsysim.cases.giving_way import CARBON, PRICE, UNITS, Above, Less
from mlsysim.errors import InputError
from mlsysim.infra.hours import DAYS, Table, Zone, yearly
from mlsysim.units.kernel import kernel
from mlsysim.units.records import dataclass
from mlsysim.units.registry import to_si
from mlsysim.zoo.constants import constant

FULL, LESS, PAUSED = range(3)
"""How a run goes in an hour, from most power to least."""
_YEAR = sum(DAYS)
_RARE = 0.01
"""Share of the hours of a year below which a run that pauses in all others has no end worth telling."""


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
    _known: dict[Any, Covered] = field(default_factory=dict, init=False, repr=False, compare=False)
    _windows: dict[int, list[int]] = field(default_factory=dict, init=False, repr=False, compare=False)

    def window(self, month: int) -> list[int]:
        """Hours of a day of the month in which less power is asked, dearest first: by price, else by carbon."""
        if self.less is None or self.less.above is not None:
            return []
        if month in self._windows:
            return self._windows[month]
        price, carbon = self.place.price[month - 1], self.place.carbon[month - 1]
        count = math.ceil(self.less.hours)
        first = max(
            range(24), key=lambda h: sum(price[(h + k) % 24] + 1e-9 * carbon[(h + k) % 24] for k in range(count))
        )
        self._windows[month] = [(first + k) % 24 for k in range(count)]
        return self._windows[month]

    def mode(self, when: datetime, carbon: float, first: bool) -> int:
        """The mode of an hour with this carbon; ``first`` is the day of the start."""
        month, hour = when.month, when.hour
        values = {CARBON: carbon, PRICE: self.place.price[month - 1][hour]}
        if self.pause is not None and values[self.pause.of] > self.pause.level:
            return PAUSED
        if self.less is None:
            return FULL
        if self.less.above is not None:
            return LESS if values[self.less.above.of] > self.less.above.level else FULL
        return LESS if (first or self.less.daily) and hour in self.window(month) else FULL

    def hour(self, when: datetime, first: bool = False) -> Covered:
        """What is covered in an hour on the mean of days."""
        key = when.month, when.hour, first
        if key not in self._known:
            found = Covered()
            for share, carbon in self._days(self.place.carbon[when.month - 1][when.hour]):
                if share > 0:
                    found = found.plus(self._taken(when, self.mode(when, carbon, first), share, carbon))
            self._known[key] = found
        return self._known[key]

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

    def walk(self, work: float | None = None, until: float = math.inf) -> Covered:
        """From the start until an amount of work (hours at full rate) is done, or for some hours, on the mean of days."""
        when, found, done, first = self.start, Covered(), 0.0, self.start.date()
        asked = math.inf if work is None else work
        year = self._year()
        if asked < math.inf and not year.work > _RARE * 24 * _YEAR:
            raise self._never()
        while True:
            left = max(0.0, asked - found.work)
            if left <= 1e-12 * max(asked if asked < math.inf else 0.0, 1e-300) or until - done <= 1e-9:
                return found
            if when.date() != first:
                # Whole years are alike.
                years = int(min(left / year.work if year.work else math.inf, (until - done) / (24 * _YEAR)) - 1e-9)
                if years > 0:
                    found, done = found.plus(year, years), done + years * 24 * _YEAR
                    continue
                day = self._day(when.month)
                if when.hour == when.minute == when.second == 0 and day.work < left and done + 24 < until:
                    found, done, when = found.plus(day), done + 24, when + timedelta(days=1)
                    continue
            rest = 1.0 - (when.minute + when.second / 60) / 60
            here = self.hour(when, when.date() == first)
            part = min(rest, until - done, left / here.work if here.work > 0 else math.inf)
            found, done = found.plus(here, part), done + part
            when = when + timedelta(hours=rest)

    def _year(self) -> Covered:
        found = Covered()
        for month, days in enumerate(DAYS, 1):
            found = found.plus(self._day(month), days)
        return found

    def _day(self, month: int) -> Covered:
        if month not in self._known:
            found = Covered()
            for hour in range(24):
                found = found.plus(self.hour(datetime(2001, month, 1, hour)))
            self._known[month] = found
        return self._known[month]

    def _never(self) -> InputError:
        assert self.pause is not None
        rows = self.place.carbon if self.pause.of == CARBON else self.place.price
        least, most = (pick(map(pick, rows)) / UNITS[self.pause.of][1] for pick in (min, max))
        return InputError(
            f"The run would go on in less than {_RARE:.0%} of the hours: those of this place have {least:.0f} to {most:.0f} {UNITS[self.pause.of][0]} on average, which {self.pause.text} is below.",
            field="pause_above",
        )

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


class Days:
    """The hours of one run, with its good and bad days: carbon over its mean as drawn. Times are seconds from the start."""

    def __init__(self, hours: Hours, random: Random) -> None:
        self.hours, self._random = hours, random
        self._begin = hours.start.replace(minute=0, second=0, microsecond=0)
        self._late = (hours.start - self._begin).total_seconds()
        self._seen: list[tuple[int, float, float, float]] = []
        self._state = random.gauss(0.0, 1.0)

    def hour(self, number: int) -> tuple[int, float, float, float]:
        """Mode, carbon, PUE and price of an hour, counted from that of the start."""
        place, seen = self.hours.place, self._seen
        keep = math.exp(-1 / place.memory)
        fresh, sigma = math.sqrt(1 - keep * keep), place.sigma
        while len(seen) <= number:
            when = self._begin + timedelta(hours=len(seen))
            month, hour = when.month - 1, when.hour
            carbon = place.carbon[month][hour] * math.exp(sigma * self._state - sigma * sigma / 2)
            mode = self.hours.mode(when, carbon, len(seen) + self._begin.hour < 24)
            seen.append((mode, carbon, place.pue[month][hour], place.price[month][hour]))
            self._state = keep * self._state + fresh * self._random.gauss(0.0, 1.0)
        return seen[number]

    def allowed(self, time: float) -> tuple[float, float]:
        """The rate over the full one at a time, and until when."""
        number = math.floor((time + self._late) / 3600 + 1e-9)
        mode, end = self.hour(number)[0], number + 1
        while end < number + 24 and self.hour(end)[0] == mode:
            end += 1
        return self.hours.modes[mode].rate, end * 3600 - self._late

    def taken(self, spans: Iterable[tuple[float, float, float]]) -> Covered:
        """What stretches of time take (from, to, and the share of it that it computes); what does not compute waits."""
        sums = [0.0] * len(Covered._fields)
        for start, end, computes in spans:
            number = math.floor((start + self._late) / 3600 + 1e-9)
            while start < end:
                stop = min(end, (number + 1) * 3600 - self._late)
                mode, carbon, pue, price = self.hour(number)
                for at, share in ((mode, computes), (PAUSED, 1 - computes)):
                    rate, power = self.hours.modes[at]
                    hours = share * (stop - start) / 3600
                    energy = power * hours * pue
                    taken = (rate * hours, power * hours, energy, energy * carbon, energy * price)
                    for k, value in enumerate(taken):
                        sums[k] += value
                    sums[len(taken) + at] += hours
                start, number = stop, number + 1
        return Covered(*sums)


def _phi(x: float) -> float:
    return 0.5 * math.erfc(-x / math.sqrt(2))
