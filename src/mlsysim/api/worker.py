"""What runs in a worker process: requests from a pipe, answers into it.

The module imports nothing of ours before it has said how many threads linear algebra may use: each reserves address
space, which is limited here.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from multiprocessing import parent_process
from typing import Any

READY = "ready"
_ONE_THREAD = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


def answer_requests(pipe: Any, settings: dict[str, Any]) -> None:
    """Answer until the pipe closes or the parent ends: (operation, document) in, (text, kind of error, words, bytes held) out."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    os.environ.update(dict.fromkeys(_ONE_THREAD, "1"))

    from mlsysim.api.limits import Limits
    from mlsysim.api.service import answer

    limits = Limits(**settings)
    _limit_memory(limits.worker_memory)
    pipe.send(READY)
    while True:
        try:
            name, document = pipe.recv()
        except (EOFError, OSError):
            return
        pipe.send((*answer(name, document, limits), _held()))


def _end_with(parent: Any) -> None:
    parent.join()
    os._exit(1)


def _limit_memory(most: int) -> None:
    try:
        import resource
    except ModuleNotFoundError:
        # Windows has no such limit; the time limit stays.
        return
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    if hard == resource.RLIM_INFINITY or most < hard:
        resource.setrlimit(resource.RLIMIT_AS, (most, hard))


def _held() -> int:
    """Bytes of memory that this process has held at most.

    Linux tells it of the program that runs; what ``getrusage`` tells there begins with what the parent held when it started this process.
    """
    try:
        with open("/proc/self/status", encoding="ascii") as told:
            return next(int(line.split()[1]) * 1024 for line in told if line.startswith("VmHWM:"))
    except (OSError, StopIteration):
        pass
    try:
        import resource
    except ModuleNotFoundError:
        return 0
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024
