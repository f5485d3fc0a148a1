"""What a server allows. A request over a limit is answered with a sentence that names it."""

from __future__ import annotations

import os
from dataclasses import fields

from mlsysim.errors import InputError
from mlsysim.units.records import dataclass


@dataclass(frozen=True)
class Limits:
    """Limits of a server.

    max_body          bytes of a request
    timeout           seconds for one operation, waiting for a worker included; its process is then ended
    workers           processes that compute at the same time
    waiting           requests that may wait for a worker; more are answered 429
    max_points        points of a sweep, before constraints and times the draws of uncertain inputs
    worker_memory     bytes of address space of a worker, where the system can limit it
    retire_memory     bytes that a worker may have held before it is replaced by a fresh one
    """

    max_body: int = 1_000_000
    timeout: float = 30.0
    workers: int = max(1, min(4, os.cpu_count() or 1))
    waiting: int = 32
    max_points: int = 1_000_000
    worker_memory: int = 4 * 2**30
    retire_memory: int = 768 * 2**20

    def __post_init__(self) -> None:
        least = {"workers": 1, "max_body": 2, "max_points": 1, "worker_memory": 2**28, "retire_memory": 2**26}
        for field in fields(self):
            value = getattr(self, field.name)
            low = least.get(field.name, 0)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value < 2**62:
                raise InputError(
                    f"The limit {field.name!r} must be a number of at least {low}, got {value!r}.", field=field.name
                )
        if self.timeout <= 0:
            raise InputError(f"The limit 'timeout' must be above 0 seconds, got {self.timeout!r}.", field="timeout")
