"""Where the parts of a sweep are computed: here, in a pool of processes, or on a Dask cluster.

    with local_cluster(4) as address:                # or the address of any cluster: tcp://10.0.0.7:8786
        sweep(space, dask=address)

A task is a pure function of (part, start, stop). Parts are handed out a few ahead of the workers and come back in any
order. What a dead worker had in hand is done again: a pool that broke is replaced, and Dask's scheduler gives the lost
part to another worker. A part that keeps killing its worker ends the sweep with a sentence.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, CancelledError, Executor, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from itertools import islice
from multiprocessing import get_context, parent_process
from typing import Any

from mlsysim.errors import InputError, MLSysError

Part = tuple[int, int, int]
"""Number, first point, point after the last."""
Task = Callable[[int, int, int], Any]
Results = Generator[tuple[int, Any], None, None]

_RETRIES = 3
_AHEAD = 2
_PATIENCE_S = 5.0
_CONNECT_S = 10.0
_IDLE_S = 600.0
_LOOK_S = 5.0
_NOTICE_S = 4.0
_DEAF = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)"
"""What a local worker runs first: an interrupt at the terminal is for the program that started it."""
_KEPT = "with a checkpoint folder the finished parts are kept"


def in_process(task: Task, parts: Iterable[Part]) -> Results:
    """The parts one after another, here."""
    for part in parts:
        yield part[0], task(*part)


def in_pool(task: Task, parts: Iterable[Part], workers: int) -> Results:
    """Parts from a pool as they are finished; a pool that loses a worker is replaced and what it lost is done again."""
    fresh, lost = iter(parts), deque[Part]()
    failures = 0
    while True:
        pool = ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=_attend)
        try:
            for result in _flow(pool, task, fresh, lost, _watched(pool, workers)):
                failures = 0
                yield result
            return
        except BrokenProcessPool:
            failures += 1
            if failures > _RETRIES:
                died = f"A worker process died {failures} times in a row on the same parts"
                raise MLSysError(f"{died}; {_KEPT}.") from None
        finally:
            _stop(pool)


def _watched(pool: ProcessPoolExecutor, workers: int) -> Callable[[], int]:
    """How many parts a pool can work on; where a worker is dead and the pool has not noticed, make it.

    A worker that dies while it writes a result leaves half a message, for whose rest the pool waits as long as anybody
    could write it: its other workers, and this process. Without them it finds the message broken, and itself.
    """
    dead_since: list[float] = []

    def width() -> int:
        processes = list((pool._processes or {}).values())
        if all(process.exitcode is None for process in processes):
            dead_since.clear()
        elif not dead_since:
            dead_since.append(time.monotonic())
        elif time.monotonic() - dead_since[0] > _NOTICE_S:
            for process in processes:
                process.kill()
            results: Any = pool._result_queue
            results._writer.close()
        return workers

    return width


def in_executor(task: Task, parts: Iterable[Part], executor: Executor, width: Callable[[], int]) -> Results:
    """Parts from somebody else's executor, of which ``width`` can be worked on at a time."""
    try:
        yield from _flow(executor, task, iter(parts), deque(), width)
    except BrokenProcessPool:
        raise MLSysError(f"The executor lost a worker process; {_KEPT}.") from None
    except CancelledError:
        raise MLSysError(f"The executor dropped parts of the sweep, as when its scheduler ends; {_KEPT}.") from None
    except Exception as error:
        if type(error).__module__.partition(".")[0] != "distributed":
            raise
        raise MLSysError(f"The Dask cluster gave up on a part ({type(error).__name__}); {_KEPT}.") from None


def _flow(pool: Executor, task: Task, fresh: Iterator[Part], lost: deque[Part], width: Callable[[], int]) -> Results:
    """Keep a pool busy with parts that were lost, then with fresh ones; what was handed out and not finished is lost again."""
    flying: dict[Future[Any], Part] = {}
    seen = time.monotonic()
    try:
        while True:
            capacity = width()
            while len(flying) < _AHEAD * max(capacity, 1):
                if not lost:
                    lost.extend(islice(fresh, 1))
                if not lost:
                    break
                flying[pool.submit(task, *lost[0])] = lost[0]
                lost.popleft()
            if not flying:
                return
            done, _ = wait(flying, timeout=_LOOK_S, return_when=FIRST_COMPLETED)
            if done or capacity:
                seen = time.monotonic()
            elif time.monotonic() - seen > _IDLE_S:
                raise MLSysError(f"The cluster has had no worker for {_IDLE_S:.0f} seconds; {_KEPT}.")
            for future in done:
                found = future.result()
                yield flying.pop(future)[0], found
    finally:
        for future, part in flying.items():
            future.cancel()
            lost.append(part)


def _attend() -> None:
    """In a worker: leave an interrupt to the program that started it, and end when that program does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = parent_process()

    def end() -> None:
        assert parent is not None
        parent.join()
        os._exit(1)

    if parent is not None:
        threading.Thread(target=end, daemon=True).start()


def _stop(pool: Executor) -> None:
    """End a pool without waiting for parts that nobody will read."""
    processes = list((getattr(pool, "_processes", None) or {}).values())
    pool.shutdown(wait=False, cancel_futures=True)
    for process in processes:
        process.terminate()
    for process in processes:
        process.join(_PATIENCE_S)


@contextmanager
def uninterrupted() -> Iterator[None]:
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


def _distributed() -> Any:
    try:
        import distributed
    except ImportError:
        needed = "the package 'distributed': install mlsysim with its extra, mlsysim[dask]"
        raise InputError(f"A Dask cluster needs {needed}.") from None
    return distributed


@contextmanager
def dask_executor(address: str) -> Iterator[tuple[Executor, Callable[[], int]]]:
    """An executor on the cluster whose scheduler has this address, and how many parts it can work on at a time."""
    distributed = _distributed()
    try:
        # Looks at the scheme alone; a client that fails on it complains again when it is collected.
        distributed.comm.get_address_host(address)
        client = distributed.Client(address, timeout=_CONNECT_S, set_as_default=False)
    except (OSError, ValueError, TimeoutError) as error:
        why = str(error).splitlines()[0].rstrip(".") or type(error).__name__
        expected = "expected an address such as tcp://10.0.0.7:8786"
        raise InputError(f"There is no Dask scheduler at {address!r}: {why}; {expected}.") from None
    looked, threads = 0.0, 0

    def width() -> int:
        nonlocal looked, threads
        if time.monotonic() - looked > _LOOK_S or not threads:
            threads, looked = sum(client.nthreads().values()), time.monotonic()
        return threads

    with _without_tracebacks():
        try:
            executor = client.get_executor(pure=False)
            yield executor, width
            executor.shutdown(wait=False)
        finally:
            _close(client)


def _close(what: Any) -> None:
    """Say goodbye to a client or a cluster; on a busy machine one may be late to answer, and nothing is asked of it any more."""
    with suppress(TimeoutError):
        what.close(timeout=_PATIENCE_S)


@contextmanager
def _without_tracebacks() -> Iterator[None]:
    """Where a scheduler is lost, Dask logs the traceback of each of its tasks; the sweep has a sentence of its own."""
    loggers = [logging.getLogger(name) for name in ("asyncio", "distributed.client", "distributed.core")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


@contextmanager
def local_cluster(workers: int) -> Iterator[str]:
    """A Dask cluster of processes on this machine, one thread each; gives the address of its scheduler."""
    distributed = _distributed()
    if isinstance(workers, bool) or not isinstance(workers, int) or workers < 1:
        raise InputError(f"A local cluster needs a whole number of workers from 1, got {workers!r}.")
    # Nobody looks at the profile of these workers, and taking it costs them time.
    with distributed.dask.config.set({"distributed.worker.profile.enabled": False}):
        quiet = {"dashboard_address": None, "silence_logs": logging.CRITICAL, "preload": [_DEAF]}
        cluster = distributed.LocalCluster(
            n_workers=workers, threads_per_worker=1, processes=True, memory_limit=0, **quiet
        )
    try:
        yield cluster.scheduler_address
    finally:
        _close(cluster)
