"""Error bars: how far predictions of each kind have been from measurements.

``data/intervals.toml`` holds, for each regime (a kind of work, on a chip with or without measurements of its own), the 5th
and 95th percentile of measured over predicted. ``interval(regime, measured)`` is the band around a prediction that held for
90 % of the measurements of that kind; a regime that was never validated gets the widest band of its group and says so.
"""

from __future__ import annotations

import math
import re
from functools import cache

from mlsysim.units.fields import Record
from mlsysim.zoo.files import Slice, entries, parse_slice


class Interval(Record):
    """Factors on a prediction between which 90 % of measurements lay."""

    low: float
    high: float
    rows: int
    regime: str
    extrapolating: bool = False

    def around(self, predicted: float) -> tuple[float, float]:
        """The band around a predicted value."""
        return predicted * self.low, predicted * self.high

    @property
    def factors(self) -> Factors:
        return self.low, self.high


Factors = tuple[float, float]
"""Ends of an interval over the value."""


def independent(*bands: Factors | None) -> Factors | None:
    """The interval of a product of values whose errors are independent: logarithms add in squares. A band that is None is not
    known, and adds nothing; all of them None give None."""
    known = [band for band in bands if band is not None]
    low, high = (math.hypot(*(math.log(band[side]) for band in known)) for side in (0, 1))
    return (math.exp(-low), math.exp(high)) if known else None


def to_power(band: Factors | None, share: float) -> Factors | None:
    """The interval of a sum of which a share has this one, to first order."""
    return band and (band[0] ** share, band[1] ** share)


def _band(piece: Slice) -> Interval:
    fields = parse_slice(piece)
    del fields["chip_measured"]
    return Interval(**fields)


@cache
def interval(regime: str, measured: bool) -> Interval:
    """The band of a regime; of the nearest wider group where it was not validated itself."""
    table = entries("mlsysim.data", "intervals.toml")
    own = re.sub(r"\W+", "_", regime) + ("" if measured else "_class")
    if own in table:
        return _band(table[own])
    group = regime.split(" ")[0]
    related = [band for band in map(_band, table.values()) if band.regime.split(" ")[0] == group]
    low, high = min((band.low for band in related), default=0.5), max((band.high for band in related), default=2.0)
    return Interval(low=low, high=high, rows=0, regime=regime, extrapolating=True)


def widest(bands: list[Interval], regime: str) -> Interval:
    """A band that holds all of these, for what none of them was measured on."""
    low, high = min(band.low for band in bands), max(band.high for band in bands)
    return Interval(low=low, high=high, rows=0, regime=regime, extrapolating=True)


def published(band: Interval, accelerators: int, measured: bool) -> str:
    """What a band of training rests on, in words; no published run is on one accelerator. Without runs of this software on the
    chip (``measured``) it is that of runs predicted with another generation's constants."""
    if band.extrapolating:
        return "extrapolating: no measured run is near this one; the interval is the widest of its kind"
    alone = ", none of them on one accelerator" if accelerators == 1 else ""
    if not measured:
        alone = ", none of them with this software on this chip, predicted with the constants of another generation of chips,"
    return f"90 % of {band.rows} published runs of this kind{alone}"
