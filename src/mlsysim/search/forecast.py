"""How long a sweep will take and how much its points will fill, from a small sample, before it starts.

The share of points that the constraints allow is counted on random points; the time of a point and the bytes of a row are
measured on full tiles at random places, as the sweep would evaluate them. A sample says nothing certain: where the
constraints allow none of the sample, the forecast is an upper bound, and a busy machine is slower.
"""

from __future__ import annotations

import shutil
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np

from mlsysim.errors import InputError
from mlsysim.search.kinds import kind_named
from mlsysim.search.reduce import Reduction
from mlsysim.search.space import Space
from mlsysim.search.store import Rows, row_bytes
from mlsysim.search.tiles import tiles
from mlsysim.units.records import dataclass
from mlsysim.units.text import count_text
from mlsysim.zoo.writing import written

LARGEST_SWEEP = 10**11
"""A larger space is swept in one go only where its constraints leave little of it."""

_ONE_GO_S = 6 * 3600.0
_SAMPLE = 2**16
_TILES = 5
_BUDGET_S = 1.0
_GB = 1e9
_UNITS = (("years", 365.25 * 86400.0), ("days", 86400.0), ("hours", 3600.0), ("minutes", 60.0))


@dataclass(frozen=True)
class Forecast:
    """What a sweep of a whole space will take: points after constraints, seconds of one core, bytes of its rows."""

    points: float
    seconds: float
    stored_bytes: float = 0.0


def forecast(space: Space, form: str | None = None) -> Forecast:
    """The forecast for a space; ``form`` is the format in which its points will be stored."""
    space = space if space.goal is not None else space.with_goals()
    random = np.random.default_rng(0)
    sample = random.integers(0, space.size, _SAMPLE)
    allowed = sample[space.allowed(sample)]
    points = space.size * max(allowed.size, 1) / _SAMPLE
    evaluate = kind_named(space.kind).evaluate
    reduction, rows = Reduction(space), Rows(space)
    each: list[float] = []
    began = time.perf_counter()
    for start in random.choice(allowed if allowed.size else sample, 1 + _TILES).tolist():
        before = time.perf_counter()
        tile = next(tiles(space.admitted(start, space.size)), None)
        if tile is None:
            continue
        columns = space.decode(tile)
        outputs = evaluate(space, columns)
        feasible = reduction.add(tile, columns, outputs)
        each.append((time.perf_counter() - before) / tile.size)
        if form is not None:
            rows.add(tile, columns, outputs, feasible)
        if time.perf_counter() - began > _BUDGET_S:
            break
    # The first tile fills tables that a sweep fills once; it counts only where it is alone.
    seconds = statistics.median(each[1:] or each or [0.0])
    if form is None:
        return Forecast(points, seconds * points)
    with tempfile.TemporaryDirectory() as folder:
        return Forecast(points, seconds * points, row_bytes(Path(folder), form, rows.columns()) * points)


def _about(points: float) -> str:
    return count_text(float(f"{points:.2g}"))


def check_size(space: Space, workers: int) -> None:
    """Refuse a space that is too large to be swept in one go, with the time that it would take."""
    if space.size <= LARGEST_SWEEP:
        return
    found = forecast(space)
    if found.seconds / workers > _ONE_GO_S:
        raise InputError(
            f"The space {space.name!r} has {_about(space.size)} points, some {_about(found.points)} after constraints, which would "
            f"take about {duration(found.seconds / workers)} here; narrow its axes, add constraints, or cut it into jobs "
            "with --shard i/n (--shard 1/1 is all of it)."
        )


def check_storage(space: Space, form: str, folder: str | Path, share: float = 1.0) -> str:
    """A sentence about the room that the points of a share of a space will take; refused where the disk is too small."""
    found = forecast(space, form)
    there = Path(folder).absolute()
    there_already = sum(path.stat().st_size for path in there.glob("part-*")) if there.exists() else 0
    while not there.exists():
        there = there.parent
    needed, free = max(0.0, found.stored_bytes * share - there_already), shutil.disk_usage(there).free
    sentence = (
        f"Some {_about(found.points * share)} points take about {found.stored_bytes * share / _GB:,.2g} GB as {form} in "
        f"{str(folder)!r}, where {free / _GB:,.2g} GB are free"
    )
    if needed > free:
        # A file system that cannot be written has nothing free, which is another sentence.
        with written(folder), tempfile.TemporaryFile(dir=there):
            pass
        raise InputError(f"{sentence}; name a folder on a larger disk, or leave the points out with --points none.")
    return sentence + "."


def duration(seconds: float) -> str:
    """A time in words."""
    for name, unit in _UNITS:
        if seconds >= 2 * unit:
            return f"{seconds / unit:,.0f} {name}"
    return f"{seconds:.0f} seconds" if seconds >= 10 else f"{seconds:.1f} seconds"
