"""A request on its way through a replica, and what the time of all of them was spent on."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from mlsysim.simulate.requests import Request

NEVER, MANY = math.inf, 1 << 60
WAITS = ("running", "slots", "caches", "prompts", "put back", "adapters")
"""What requests wait for: the step that runs when they come and those scheduled ahead, a slot, room in the caches, prompts before them,
again after their caches were taken, and for room for their adapter."""


class Live:
    """A request on its way through a replica."""

    __slots__ = (
        *("request", "ready", "begun", "first", "written", "prompt", "left", "unread", "ends"),
        *("handed", "since", "load", "slope", "held", "growth", "number", "away"),
    )

    since: int
    load: float
    slope: float
    held: float
    growth: float

    def __init__(self, request: Request, ready: int, number: int) -> None:
        self.request, self.ready, self.number = request, ready, number
        self.prompt = request.prompt
        """Tokens to read: those of the prompt, and of the answer so far where it was put back."""
        self.left = request.answer
        self.begun = self.first = -1.0
        self.unread = self.written = 0
        self.ends = 0
        self.handed = False
        self.away = 0.0
        """Bytes of its cache that are with the host."""


Ended = tuple[Request, float, float, float]
"""A request that was answered: when it was begun, when its first and last token were there."""
Done = Callable[[Ended], Any]
"""What is told of it."""


@dataclass(slots=True)
class Spent:
    """Seconds of requests, added up over all of them, by what they were spent on; and what the replica did."""

    waits: dict[str, float] = field(default_factory=lambda: dict.fromkeys(WAITS, 0.0))
    reading: float = 0.0
    writing: float = 0.0
    disturbed: float = 0.0
    """Being written for while prompts of others are read."""
    handed: float = 0.0
    """Between replicas that read and those that write."""
    busy: float = 0.0
    steps: int = 0
    read: int = 0
    found: int = 0
    """Tokens of prompts that were read, and that were found in the cache."""
    repeated: int = 0
    """Tokens that were read again."""
    wrote: int = 0
    lost: int = 0
    """Tokens that were written, and lost with their replica."""
    ended: int = 0
    preempted: int = 0
    moving: float = 0.0
    """Seconds in which engines waited for their host: caches that were put there, adapters that came."""

    @property
    def of_requests(self) -> float:
        """Seconds of all requests from when they were seen to the last token."""
        return math.fsum(self.waits.values()) + self.reading + self.writing + self.disturbed + self.handed
