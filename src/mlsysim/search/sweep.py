"""Sweeps: every point of a space, reduced as it is computed.

    result = sweep(Space.from_toml("chips.toml"), workers=2, checkpoint="run1")
    result.best[0], result.pareto, result.infeasible_by_wall

A space is cut into parts of consecutive points whose size depends on the space alone (and on whether its points are
stored). :func:`shard` is a pure function of (space, start, stop); it runs here, in a process pool, on a Dask cluster or in
any ``concurrent.futures.Executor``, and its reductions merge in any order. With a checkpoint folder each finished part is
kept: a sweep that was stopped goes on where it was and ends with the same result. With a folder for points every point
is stored as well. An interrupt ends a sweep early with what it has; ``complete`` says so.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor
from contextlib import ExitStack, suppress
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from mlsysim.errors import InputError
from mlsysim.search import executors
from mlsysim.search.executors import Part, Results, uninterrupted
from mlsysim.search.folder import Checkpoint
from mlsysim.search.forecast import check_size
from mlsysim.search.kinds import kind_named
from mlsysim.search.reduce import Reduction
from mlsysim.search.space import Space, points_of
from mlsysim.search.store import LARGEST_PART, PointStore, Rows
from mlsysim.search.tiles import tiles
from mlsysim.search.uncertainty import describe
from mlsysim.units.records import dataclass
from mlsysim.walls.document import Document

LOCAL = "local"
"""Instead of an address: a Dask cluster of processes on this machine."""

_SMALLEST_PART, _LARGEST_PART, _PARTS = 2**18, 2**24, 256
_MOST_WORKERS = 1024
TIMINGS = ("seconds", "cpu_seconds", "points_per_second", "resumed_points")

Progress = Callable[[int, int, Reduction], None]


@dataclass(frozen=True)
class SweepResult(Document):
    """What a sweep found. ``best`` and ``pareto`` hold the inputs and outputs of points, best first."""

    beside: ClassVar = ("explanation",)

    name: str
    size: int
    points: int
    invalid: int
    feasible: int
    unranked: int
    complete: bool
    objective: str
    direction: str
    ties: int
    best: list[dict[str, Any]]
    pareto: list[dict[str, Any]]
    infeasible_by_wall: dict[str, int]
    marginals: dict[str, list[dict[str, Any]]]
    histogram: list[dict[str, float]]
    uncertain: dict[str, Any] | None = None
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    points_per_second: float = 0.0
    resumed_points: int = 0

    def to_dict(self, *, timings: bool = True) -> dict[str, Any]:
        """Everything as JSON; without timings it is the same for the same space, however it was computed."""
        return {name: value for name, value in super().to_dict().items() if timings or name not in TIMINGS}


def part_size(space: Space, stored: bool = False) -> int:
    """Points of a part before constraints; a part whose points are stored is held in memory while it is written."""
    return min(max(math.ceil(space.size / _PARTS), _SMALLEST_PART), LARGEST_PART if stored else _LARGEST_PART)


def shard(space: Space, start: int, stop: int, rows: Rows | None = None) -> Reduction:
    """The reduction of the points from ``start`` to before ``stop``; ``rows`` takes in the points themselves."""
    evaluate = kind_named(space.kind).evaluate
    reduction = Reduction(space)
    for indices in tiles(space.admitted(start, stop)):
        columns = space.decode(indices)
        outputs = evaluate(space, columns)
        feasible = reduction.add(indices, columns, outputs)
        if rows is not None:
            rows.add(indices, columns, outputs, feasible)
    return reduction


@lru_cache(maxsize=4)
def _space(text: str) -> Space:
    return Space.from_document(json.loads(text))


def run_part(
    text: str, digest: str, points: str | None, part: int, start: int, stop: int
) -> tuple[dict[str, Any], float]:
    """State of one part and the processor time that it took; what a worker is asked for."""
    before = time.thread_time()
    space = _space(text)
    if space.digest != digest:
        raise InputError("A worker has another version of mlsysim than the program that started the sweep.")
    store = None if points is None else PointStore.seen_by_worker(points, space)
    rows = None if store is None else Rows(space)
    state = shard(space, start, stop, rows).document()
    if store is not None and rows is not None:
        with uninterrupted():
            store.save(part, rows.columns())
            state["stored"] = store.fingerprint(part)
    return state, time.thread_time() - before


def sweep(
    space: Space,
    *,
    workers: int = 1,
    checkpoint: str | Path | None = None,
    portion: tuple[int, int] | None = None,
    executor: Executor | None = None,
    dask: str | None = None,
    points: str | Path | None = None,
    points_format: str | None = None,
    progress: Progress | None = None,
    points_per_part: int | None = None,
) -> SweepResult:
    """Evaluate a space, or portion ``i`` of ``n`` of its parts (numbered from 1), and reduce it.

    ``dask`` is the address of a cluster's scheduler, or ``"local"`` for one of ``workers`` processes on this machine;
    ``points`` a folder for every point, as ``parquet`` or ``npz``; ``progress`` is called with the finished parts, all parts
    and what is known so far, first before anything is computed.
    """
    if isinstance(workers, bool) or not isinstance(workers, int) or not 1 <= workers <= _MOST_WORKERS:
        raise InputError(f"'workers' must be a whole number between 1 and {_MOST_WORKERS}, got {workers!r}.")
    if dask is not None and executor is not None:
        raise InputError("Give a Dask address or an executor, not both.")
    began = time.perf_counter()
    space = space if space.goal is not None else space.with_goals()
    if portion is None:
        check_size(space, workers)
    size = points_per_part or part_size(space, points is not None)
    if points is not None and size > LARGEST_PART:
        raise InputError(f"Parts whose points are stored have at most {LARGEST_PART:,} points, got {size:,}.")
    (i, n), parts = portion or (1, 1), math.ceil(space.size / size)
    if not 1 <= i <= n:
        raise InputError(f"A shard is i/n with i from 1 to n, got {i}/{n}.")
    mine = range((i - 1) * parts // n, i * parts // n)
    folder = None if checkpoint is None else Checkpoint(checkpoint, space, size)
    store = None if points is None else PointStore(points, space, size, points_format)
    total = Reduction(space)
    there = set()
    for part in () if folder is None else folder.parts():
        if folder is not None and part in mine and (store is None or _kept(store, folder, part)):
            total.merge(folder.load(part)[0])
            there.add(part)
    resumed, finished, cpu = total.points, len(there), 0.0
    missing = ((part, part * size, min((part + 1) * size, space.size)) for part in mine if part not in there)
    where = None if store is None else str(store.folder.resolve())
    task = partial(run_part, json.dumps(space.document()), space.digest, where)
    progress = progress or (lambda *_: None)
    complete = False
    with ExitStack() as stack, suppress(KeyboardInterrupt):
        progress(finished, len(mine), total)
        run = _opened(stack, task, missing, workers, executor, dask) if finished < len(mine) else iter(())
        for part, (state, seconds) in run:
            with uninterrupted():
                stored = state.pop("stored", None)
                if folder is not None:
                    folder.save(part, state, stored)
                total.merge(Reduction.from_document(space, state))
                finished, cpu = finished + 1, cpu + seconds
            progress(finished, len(mine), total)
        complete = True
    return _result(space, total, complete, began, cpu, resumed)


def _kept(store: PointStore, folder: Checkpoint, part: int) -> bool:
    """Whether the file of a part's points is the one that was written."""
    written = store.fingerprint(part)
    return written is not None and written == folder.stored(part)


def _opened(
    stack: ExitStack, task: Any, missing: Iterator[Part], workers: int, executor: Executor | None, dask: str | None
) -> Results:
    """The results of the parts, from wherever they are to be computed; the stack closes what was opened."""
    run: Any
    if dask is not None:
        address = stack.enter_context(executors.local_cluster(workers)) if dask == LOCAL else dask
        run = executors.in_executor(task, missing, *stack.enter_context(executors.dask_executor(address)))
    elif executor is not None:
        run = executors.in_executor(task, missing, executor, lambda: workers)
    else:
        run = executors.in_process(task, missing) if workers == 1 else executors.in_pool(task, missing, workers)
    stack.callback(run.close)
    return iter(run)


def merge(folders: Iterable[str | Path]) -> SweepResult:
    """The result of checkpoint folders of one space, as job arrays leave them; parts found twice must be equal."""
    began = time.perf_counter()
    first: Checkpoint | None = None
    total: Reduction | None = None
    seen: dict[int, tuple[str, Path]] = {}
    for folder in folders:
        found = Checkpoint.existing(folder)
        if first is None or total is None:
            first, total = found, Reduction(found.space)
        elif (found.space.digest, found.part_size) != (first.space.digest, first.part_size):
            raise InputError(f"The sweep in {str(folder)!r} is of another space than that in {str(first.folder)!r}.")
        for part in found.parts():
            reduction, fingerprint = found.load(part)
            if part not in seen:
                seen[part] = (fingerprint, found.path(part))
                total.merge(reduction)
            elif seen[part][0] != fingerprint:
                raise InputError(
                    f"The parts {str(seen[part][1])!r} and {str(found.path(part))!r} are of the same points and differ; "
                    "delete the one that is wrong, or both, and compute it again."
                )
    if first is None or total is None:
        raise InputError("Name at least one folder to merge.")
    return _result(first.space, total, len(seen) == first.count, began, 0.0, total.points)


def _result(space: Space, total: Reduction, complete: bool, began: float, cpu: float, resumed: int) -> SweepResult:
    seconds = time.perf_counter() - began
    return SweepResult(
        name=space.name,
        size=space.size,
        points=total.points,
        invalid=total.invalid,
        feasible=total.feasible,
        unranked=total.unranked,
        complete=complete,
        objective=total.goal.output,
        direction=total.goal.direction,
        ties=total.ties,
        best=_points(space, total.best_indices),
        pareto=_points(space, total.archive.indices) if space.pareto else [],
        infeasible_by_wall=dict(sorted(total.infeasible.items())),
        marginals=total.marginals(space),
        histogram=total.bins(),
        uncertain=None if space.uncertain is None else space.uncertain.document(),
        seconds=seconds,
        cpu_seconds=cpu,
        points_per_second=(total.points - resumed) / seconds if seconds > 0 else 0.0,
        resumed_points=resumed,
    )


def _points(space: Space, indices: Any) -> list[dict[str, Any]]:
    """Inputs and outputs of some points, and over draws how those spread."""
    found, kind = [], kind_named(space.kind)
    for tile in tiles([np.asarray(indices, dtype=np.int64)]):
        columns = space.decode(tile)
        outputs = points_of(space, tile, kind.evaluate(space, columns))
        over_draws = [{}] * tile.size if space.uncertain is None else describe(kind, space, columns)
        found += [point | draws for point, draws in zip(outputs, over_draws, strict=True)]
    return found
