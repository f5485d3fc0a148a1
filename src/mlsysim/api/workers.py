"""Operations in processes of their own, which are ended when they take too long or too much memory.

A server's loop never computes. A request takes a free worker, hands it the document and waits for the answer up to the time
limit; a worker that is late is killed and replaced, so that computations which nobody waits for do not pile up. A worker
limits its own address space, and one whose memory has grown is retired between two requests. Workers are spawned, not
forked, because the process that starts them has threads.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from multiprocessing import get_context
from typing import Any

from mlsysim.api.documents import dump
from mlsysim.api.limits import Limits
from mlsysim.api.service import failure
from mlsysim.api.worker import answer_requests
from mlsysim.units.records import dataclass

_START_S = 60.0
_END_S = 5.0


@dataclass(frozen=True)
class Told:
    """An answer as JSON text, the kind of error where it is one, and the words where there are some."""

    text: bytes
    kind: str | None = None
    words: str = ""


class Pool:
    """Some workers, and who waits for one. Belongs to one event loop at a time."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.started = 0
        self._free: deque[_Worker] = deque()
        self._busy: set[_Worker] = set()
        self._inside = 0
        self._lock = threading.Lock()
        self._turns: asyncio.Semaphore | None = None
        self._threads = ThreadPoolExecutor(limits.workers, thread_name_prefix="mlsysim")

    async def call(self, name: str, document: Any) -> Told:
        """The answer of an operation, or the sentence of the limit that it met."""
        limits = self.limits
        if self._inside >= limits.workers + limits.waiting:
            return _failed(
                "busy", f"This server is busy with {self._inside} requests and takes no more; try again later."
            )
        if self._turns is None:
            self._turns = asyncio.Semaphore(limits.workers)
        self._inside += 1
        deadline = time.monotonic() + limits.timeout
        try:
            await asyncio.wait_for(self._turns.acquire(), limits.timeout)
        except TimeoutError:
            self._inside -= 1
            return _failed("overloaded", f"No worker was free within {limits.timeout:g} s; try again later.")
        except BaseException:
            self._inside -= 1
            raise
        running = asyncio.get_running_loop().run_in_executor(self._threads, self._run, name, document, deadline)
        running.add_done_callback(self._leave)
        # Shielded: where the client hangs up, the worker is busy until it ends or is ended, and its turn is taken so long.
        return await asyncio.shield(running)

    def _leave(self, running: asyncio.Future[Told]) -> None:
        self._inside -= 1
        if self._turns is not None:
            self._turns.release()
        if not running.cancelled():
            running.exception()

    def _run(self, name: str, document: Any, deadline: float) -> Told:
        worker = self._take()
        try:
            told = worker.call(name, document, deadline, self.limits.timeout)
        except BaseException:
            self._drop(worker)
            raise
        if not worker.usable:
            self._drop(worker)
            return told
        with self._lock:
            self._busy.discard(worker)
            self._free.append(worker)
        return told

    def _take(self) -> _Worker:
        with self._lock:
            worker = self._free.pop() if self._free else None
            if worker is None:
                self.started += 1
                worker = _Worker(self.limits)
            self._busy.add(worker)
            return worker

    def _drop(self, worker: _Worker) -> None:
        worker.end()
        with self._lock:
            self._busy.discard(worker)

    def start(self) -> None:
        """Start the workers before the first request; else they start when they are needed."""
        with self._lock:
            while len(self._free) + len(self._busy) < self.limits.workers:
                self.started += 1
                self._free.append(_Worker(self.limits))

    def close(self) -> None:
        with self._lock:
            workers = [*self._free, *self._busy]
            self._free.clear()
        for worker in workers:
            worker.end()
        self._threads.shutdown(wait=False, cancel_futures=True)


def _failed(kind: str, sentence: str) -> Told:
    return Told(dump(failure(kind, sentence).document), kind)


class _Worker:
    """One process and the pipe to it."""

    def __init__(self, limits: Limits) -> None:
        context = get_context("spawn")
        self.limits = limits
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(
            target=answer_requests, args=(theirs, asdict(limits)), daemon=True, name="mlsysim worker"
        )
        self.process.start()
        theirs.close()
        self.ready = False
        self.usable = True

    def call(self, name: str, document: Any, deadline: float, allowed: float) -> Told:
        """The answer, waited for until the deadline."""
        try:
            if not self.ready:
                # Starting takes a second or two, which is not the fault of the request.
                began = time.monotonic()
                if not self.pipe.poll(_START_S):
                    self.usable = False
                    return _failed("overloaded", f"A worker did not start within {_START_S:g} s; try again later.")
                self.pipe.recv()
                self.ready = True
                deadline += time.monotonic() - began
            self.pipe.send((name, document))
            if not self.pipe.poll(max(0.0, deadline - time.monotonic())):
                self.usable = False
                return _failed(
                    "timeout", f"{name} took longer than the {allowed:g} s that this server allows; ask for less."
                )
            text, kind, words, held = self.pipe.recv()
        except (EOFError, OSError):
            self.usable = False
            return _failed("memory", f"The worker of {name} ended, most likely for lack of memory; ask for less.")
        self.usable = held < self.limits.retire_memory
        return Told(text, kind, words)

    def end(self) -> None:
        """Kill the process, wherever it is."""
        self.usable = False
        self.process.kill()
        self.process.join(_END_S)
        self.pipe.close()
