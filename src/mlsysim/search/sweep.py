"""Sweeps: every point of a space, reduced as it is computed.

    result = sweep(Space.from_toml("chips.toml"), workers=2, checkpoint="run1")
    result.best[0], result.pareto, result.infeasible_by_wall

A space is cut into parts of consecutive points whose size depends on the space alone. :func:`shard` is a pure function of
(space, start, stop); it runs here, in a process pool, or in any ``concurrent.futures.Executor``, and its reductions merge
in any order. With a checkpoint folder each finished part is kept: a sweep that was stopped goes on where it was and ends
with the same result. An interrupt ends a sweep early with what it has; ``complete`` says so.
"""

from __future__ import annotations

import json
import math
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from multiprocessing import get_context, parent_process
from pathlib import Path
from typing import Any

import numpy as np

from mlsysim.errors import InputError, MLSysError
from mlsysim.search.checkpoint import Checkpoint
from mlsysim.search.kinds import kind_named
from mlsysim.search.reduce import Reduction
from mlsysim.search.space import Space

__all__ = ["TILE", "SweepResult", "merge", "part_size", "shard", "sweep"]

TILE = 8192
"""Points that are evaluated together: few enough to stay in cache."""

_SMALLEST_PART, _LARGEST_PART, _PARTS = 2**16, 2**24, 1024
_MOST_WORKERS = 1024
_RETRIES = 3
_PATIENCE_S = 5.0

Progress = Callable[[int, int, Reduction], None]


@dataclass(frozen=True)
class SweepResult:
    """What a sweep found. ``best`` and ``pareto`` hold the inputs and outputs of points, best first."""

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
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    points_per_second: float = 0.0
    resumed_points: int = 0
    timings: tuple[str, ...] = field(
        default=("seconds", "cpu_seconds", "points_per_second", "resumed_points"), repr=False
    )

    def to_dict(self, *, timings: bool = True) -> dict[str, Any]:
        """Everything as JSON; without timings it is the same for the same space, however it was computed."""
        left_out = {"timings", *(() if timings else self.timings)}
        return {name: value for name, value in self.__dict__.items() if name not in left_out}


def part_size(space: Space) -> int:
    """Points of a part before constraints."""
    return min(max(math.ceil(space.size / _PARTS), _SMALLEST_PART), _LARGEST_PART)


def shard(space: Space, start: int, stop: int) -> Reduction:
    """The reduction of the points from ``start`` to before ``stop``."""
    evaluate = kind_named(space.kind).evaluate
    reduction = Reduction(space)
    for indices in _tiles(space.admitted(start, stop)):
        columns = space.decode(indices)
        reduction.add(indices, columns, evaluate(space, columns))
    return reduction


def _tiles(blocks: Iterable[Any]) -> Iterator[Any]:
    """Full tiles out of blocks of any length."""
    waiting: list[Any] = []
    size = 0
    for block in blocks:
        waiting.append(block)
        size += block.size
        if size >= TILE:
            joined = np.concatenate(waiting) if len(waiting) > 1 else block
            whole = size - size % TILE
            for first in range(0, whole, TILE):
                yield joined[first : first + TILE]
            waiting, size = [joined[whole:]], size - whole
    if size:
        yield np.concatenate(waiting)


@lru_cache(maxsize=4)
def _space(text: str) -> Space:
    return Space.from_document(json.loads(text))


def run_part(text: str, start: int, stop: int) -> tuple[dict[str, Any], float]:
    """State of one part and the processor time that it took; what a worker is asked for."""
    before = time.process_time()
    state = shard(_space(text), start, stop).document()
    return state, time.process_time() - before


def sweep(
    space: Space,
    *,
    workers: int = 1,
    checkpoint: str | Path | None = None,
    portion: tuple[int, int] | None = None,
    executor: Executor | None = None,
    progress: Progress | None = None,
    points_per_part: int | None = None,
) -> SweepResult:
    """Evaluate a space, or portion ``i`` of ``n`` of its parts (numbered from 1), and reduce it."""
    if isinstance(workers, bool) or not isinstance(workers, int) or not 1 <= workers <= _MOST_WORKERS:
        raise InputError(f"'workers' must be a whole number between 1 and {_MOST_WORKERS}, got {workers!r}.")
    began = time.perf_counter()
    space = space if space.goal is not None else space.with_goals()
    size = points_per_part or part_size(space)
    mine = _portion(math.ceil(space.size / size), portion)
    folder = None if checkpoint is None else Checkpoint(checkpoint, space, size)
    total = Reduction(space)
    there = set()
    if folder is not None:
        for part in folder.parts():
            if part in mine:
                total.merge(folder.load(part))
                there.add(part)
    resumed = total.points
    missing = [(part, part * size, min((part + 1) * size, space.size)) for part in mine if part not in there]
    finished, cpu = len(there), 0.0
    text = json.dumps(space.document())
    run = _here(text, missing) if executor is None and workers == 1 else _elsewhere(text, missing, workers, executor)
    complete = False
    try:
        for part, state, seconds in run:
            with _whole():
                if folder is not None:
                    folder.save(part, state)
                total.merge(Reduction.from_document(space, state))
                finished, cpu = finished + 1, cpu + seconds
            if progress is not None:
                progress(finished, len(mine), total)
        complete = True
    except KeyboardInterrupt:
        pass
    finally:
        run.close()
    seconds = time.perf_counter() - began
    return _result(space, total, complete, seconds=seconds, cpu_seconds=cpu, resumed_points=resumed)


@contextmanager
def _whole() -> Iterator[None]:
    """Put off an interrupt until the block is through."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    asked: list[Any] = []
    before = signal.signal(signal.SIGINT, lambda *_: asked.append(True))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if asked:
        raise KeyboardInterrupt


def merge(folders: Iterable[str | Path]) -> SweepResult:
    """The result of checkpoint folders of one space, as job arrays leave them; parts found twice must be equal."""
    began = time.perf_counter()
    first: Checkpoint | None = None
    total: Reduction | None = None
    seen: set[int] = set()
    for folder in folders:
        found = Checkpoint.existing(folder)
        if first is None or total is None:
            first, total = found, Reduction(found.space)
        elif (found.space.digest, found.part_size) != (first.space.digest, first.part_size):
            raise InputError(f"The sweep in {str(folder)!r} is of another space than that in {str(first.folder)!r}.")
        for part, reduction in found.load_all():
            if part not in seen:
                seen.add(part)
                total.merge(reduction)
    if first is None or total is None:
        raise InputError("Name at least one folder to merge.")
    missing = math.ceil(first.space.size / first.part_size) - len(seen)
    seconds = time.perf_counter() - began
    return _result(first.space, total, missing == 0, seconds=seconds, cpu_seconds=0.0, resumed_points=total.points)


def _portion(parts: int, portion: tuple[int, int] | None) -> range:
    if portion is None:
        return range(parts)
    i, n = portion
    if not 1 <= i <= n:
        raise InputError(f"A shard is i/n with i from 1 to n, got {i}/{n}.")
    return range((i - 1) * parts // n, i * parts // n)


Part = tuple[int, int, int]
Parts = Iterator[tuple[int, dict[str, Any], float]]


def _here(text: str, missing: list[Part]) -> Any:
    for part, start, stop in missing:
        yield (part, *run_part(text, start, stop))


def _attend() -> None:
    """In a worker: leave an interrupt to the program that started it, and end when that program does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: Any) -> None:
    parent.join()
    os._exit(1)


def _elsewhere(text: str, missing: list[Part], workers: int, executor: Executor | None) -> Any:
    """Parts from a pool as they are finished; a pool that loses a worker is replaced and what it lost is done again."""
    left = {part: (start, stop) for part, start, stop in missing}
    failures = 0
    while left:
        own = executor is None
        pool: Executor = (
            ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=_attend)
            if executor is None
            else executor
        )
        waiting: dict[Future[Any], int] = {}
        todo = iter(list(left.items()))
        try:
            while True:
                while len(waiting) < 2 * max(workers, 1) and (item := next(todo, None)) is not None:
                    waiting[pool.submit(run_part, text, *item[1])] = item[0]
                if not waiting:
                    break
                done, _ = wait(waiting, return_when=FIRST_COMPLETED)
                for future in done:
                    part = waiting.pop(future)
                    state, seconds = future.result()
                    del left[part]
                    failures = 0
                    yield part, state, seconds
        except BrokenProcessPool:
            failures += 1
            if not own or failures > _RETRIES:
                raise MLSysError(
                    f"A worker process died {failures} times in a row on the same parts; with a checkpoint folder the "
                    "finished parts are kept."
                ) from None
        finally:
            for future in waiting:
                future.cancel()
            if own:
                _stop(pool)
        if not own:
            return


def _stop(pool: Executor) -> None:
    """End a pool without waiting for parts that nobody will read."""
    processes = list((getattr(pool, "_processes", None) or {}).values())
    pool.shutdown(wait=False, cancel_futures=True)
    for process in processes:
        process.terminate()
    for process in processes:
        process.join(_PATIENCE_S)


def _result(space: Space, total: Reduction, complete: bool, **timings: Any) -> SweepResult:
    fresh = total.points - timings["resumed_points"]
    seconds = timings["seconds"]
    return SweepResult(
        name=space.name,
        size=space.size,
        points=total.points,
        invalid=total.invalid,
        feasible=total.feasible,
        unranked=total.unranked,
        complete=complete,
        objective=total.goal.output,
        direction="maximize" if total.goal.larger else "minimize",
        ties=total.ties,
        best=_points(space, total.best_indices),
        pareto=_points(space, total.archive.indices) if space.pareto else [],
        infeasible_by_wall=dict(sorted(total.infeasible.items())),
        marginals=total.marginals(space),
        histogram=total.bins(),
        points_per_second=fresh / seconds if seconds > 0 else 0.0,
        **timings,
    )


def _points(space: Space, indices: Any) -> list[dict[str, Any]]:
    """Inputs and outputs of some points; an output that is not known is None."""
    found = []
    evaluate = kind_named(space.kind).evaluate
    for first in range(0, len(indices), TILE):
        tile = np.asarray(indices[first : first + TILE], dtype=np.int64)
        if not tile.size:
            break
        outputs = {
            name: np.broadcast_to(v, tile.shape).tolist() for name, v in evaluate(space, space.decode(tile)).items()
        }
        for i, index in enumerate(tile.tolist()):
            values = {
                name: _known(column[i]) for name, column in outputs.items() if name not in ("valid", "feasible", "wall")
            }
            found.append({"point": index, "inputs": space.point(index), "outputs": values})
    return found


def _known(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
