"""Hours of a grid: means of carbon intensity, wholesale price and outside temperature for every hour of the day in every month.

A grid names its zone (``zone`` of ``data/grids.toml``); the tables stand in ``data/hours`` with their own terms (its README). All hours
are UTC. A grid without a zone has no hours, and its yearly figures hold at all of them.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import NamedTuple

from mlsysim.errors import unknown_name
from mlsysim.infra.types import GridProfile
from mlsysim.zoo.files import shipped

Table = tuple[tuple[float, ...], ...]
"""Twelve months of 24 hours."""
DAYS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_PACKAGE, _FOLDER = "mlsysim.infra", "data/hours/"


class Zone(NamedTuple):
    """What is known of the hours of a zone. ``variation`` is the deviation of hours from their mean over it, which falls to 1/e in
    ``memory`` hours."""

    key: str
    title: str
    year: int
    carbon: Table
    price: Table | None
    temperature: Table | None
    variation: float
    memory: float
    note: str
    sources: tuple[str, ...]


def yearly(table: Table) -> float:
    """The mean of a table over a year."""
    return sum(days * sum(hours) / 24 for days, hours in zip(DAYS, table, strict=True)) / sum(DAYS)


def zone_of(grid: GridProfile | None) -> Zone | None:
    """The zone of a grid; None where its hours are not known."""
    return None if grid is None or grid.zone is None else zone(grid.zone)


@cache
def zone(key: str) -> Zone:
    """A zone by its key."""
    known = shipped(_PACKAGE, f"{_FOLDER}zones.toml")
    if key not in known or key == "sources":
        raise unknown_name("zone of hours", key, [name for name in known if name != "sources"])
    own = known[key]
    named = (own["carbon"], "prices", "open_meteo")
    tables = [_tables(name).get(key) for name in named]
    cited = tuple(known["sources"][name]["title"] for name, table in zip(named, tables, strict=True) if table)
    carbon, price, temperature = tables
    assert carbon is not None
    days = own["variation"], float(own["memory"])
    return Zone(key, own["title"], own["year"], carbon, price, temperature, *days, own.get("note", ""), cited)


@cache
def _tables(name: str) -> dict[str, Table]:
    """The tables of a file by zone."""
    rows: dict[str, list[tuple[float, ...]]] = {}
    for line in files(_PACKAGE).joinpath(f"{_FOLDER}{name}.csv").read_text().splitlines()[1:]:
        key, _, *hours = line.split(",")
        rows.setdefault(key, []).append(tuple(map(float, hours)))
    return {key: tuple(months) for key, months in rows.items()}
