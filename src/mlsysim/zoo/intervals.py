"""Error bars: how far predictions of each kind have been from measurements.

``data/intervals.toml`` holds, for each regime (a kind of work, on a chip with or without measurements of its own), the 5th
and 95th percentile of measured over predicted. ``interval(regime, measured)`` is the band around a prediction that held for
90 % of the measurements of that kind; a regime that was never validated gets the widest band of its group and says so.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from mlsysim.units.fields import Record
from mlsysim.zoo.files import parse_slice, slices


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


@cache
def _table() -> dict[str, Interval]:
    path = files("mlsysim.data").joinpath("intervals.toml")
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    table = {}
    for piece in slices("intervals.toml", text):
        fields = parse_slice(piece)
        suffix = "" if fields.pop("chip_measured") else " (class)"
        table[fields["regime"] + suffix] = Interval(**fields)
    return table


@cache
def interval(regime: str, measured: bool) -> Interval:
    """The band of a regime; of the nearest wider group where it was not validated itself."""
    table = _table()
    own = table.get(regime + ("" if measured else " (class)"))
    if own is not None:
        return own
    group = regime.split(" ")[0]
    related = [band for name, band in table.items() if name.split(" ")[0] == group]
    if related:
        return Interval(
            low=min(band.low for band in related),
            high=max(band.high for band in related),
            rows=0,
            regime=regime,
            extrapolating=True,
        )
    return Interval(low=0.5, high=2.0, rows=0, regime=regime, extrapolating=True)


def published(band: Interval, accelerators: int) -> str:
    """What a band of training rests on, in words; no published run is on one accelerator."""
    if band.extrapolating:
        return "extrapolating: no measured run is near this one; the interval is the widest of its kind"
    alone = ", none of them on one accelerator" if accelerators == 1 else ""
    return f"90 % of {band.rows} published runs of this kind{alone}"
