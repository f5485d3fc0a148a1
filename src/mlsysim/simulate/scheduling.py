"""What an engine's scheduler lets in, and in which order; policies are rows of ``data/software/schedulers.toml``.

    prompts   "mixed": prompts join the steps of answers, cut to the budget; "first": while prompts wait, answers do; "last": prompts are
              read when no answer is written; "static": a full batch is read and answered together, the next begins when all have ended
    order     "arrival", "priority" (the request's own, then arrival), "shortest" (prompt first), "fair" (by tenant)

Fair queueing is that of virtual finishing times (Demers, Keshav and Shenker 1989; for tokens of requests Sheng et al. 2024): a request of w tokens
gets the tag max(V, last tag of its tenant) + w, the smallest tag goes first, and V is the tag that went last, so that a tenant which was away has
no claim on what it did not use. A request is never put behind those that come later without end: tags only grow.
"""

from __future__ import annotations

from collections import deque
from functools import cache
from heapq import heappop, heappush
from typing import Any, NamedTuple

from mlsysim.errors import unknown_name
from mlsysim.simulate.live import Live
from mlsysim.simulate.requests import Request
from mlsysim.timing.engines import Engine
from mlsysim.timing.profile import software_file

ENDLESS = 1 << 29
"""As many requests at a time as caches have room for."""


class Scheduling(NamedTuple):
    """How a replica lets requests in: ``budget`` tokens of a step, ``slots`` requests at a time; whether it ``cuts`` prompts."""

    prompts: str
    order: str
    budget: int
    slots: int
    cuts: bool
    name: str = ""
    fills: bool = True
    """Whether a static batch waits until it is full."""
    whole: bool = False
    """Whether prompts are read whole, one of any length and others beside it as the budget has room."""
    reads: bool = False
    """Whether it only reads: others write."""

    @property
    def flushed(self) -> Scheduling:
        """The same when no more requests come."""
        return self._replace(fills=False)


@cache
def policies() -> dict[str, dict[str, Any]]:
    """Schedulers by name."""
    return dict(software_file("schedulers"))


def scheduling(
    engine: Engine, name: str | None = None, budget: int | None = None, slots: int | None = None
) -> Scheduling:
    """The scheduler of an engine: its own, or the one of that name."""
    table = policies()
    key = {"mixed": "chunked"}.get(engine.policy, engine.policy) if name is None else name.lower().replace("-", "_")
    if key not in table:
        raise unknown_name("scheduler", name or key, table, f"known are {', '.join(table)}.")
    row = table[key]
    return Scheduling(
        row["prompts"],
        row.get("order", "arrival"),
        engine.token_budget if budget is None else budget,
        ENDLESS if slots is None else slots,
        engine.cuts_prompts and not row.get("whole", False),
        key,
        whole=row.get("whole", False),
    )


def _live(ready: float, number: int, request: Request, begun: float) -> Live:
    live = Live(request, int(ready), number)
    live.begun, live.handed = begun, begun >= 0
    return live


class Waiting:
    """Requests that wait: those that were put back first, then by the order."""

    __slots__ = ("_by", "_heap", "_last", "_passed", "_tags", "back", "queue", "size", "tokens")

    def __init__(self, order: str = "arrival") -> None:
        self._by = order
        self.queue: deque[Any] = deque()
        self.back: deque[Any] = deque()
        self._heap: list[tuple[Any, int, Any]] = []
        self._passed: list[tuple[Any, Any]] = []
        self._tags: dict[Any, float] = {}
        self._last = 0.0
        self.tokens = self.size = 0
        """Tokens of their prompts, and how many they are."""

    def __len__(self) -> int:
        return self.size

    @property
    def returned(self) -> int:
        """How many of them were put back."""
        return len(self.back)

    def add(self, ready: int, number: int, request: Request, begun: float) -> None:
        """A request that is ready at a step; others have ``begun`` it where that is 0 or more."""
        self.tokens += request.prompt
        self.size += 1
        if self._by == "arrival":
            self.queue.append((ready, number, request, begun))
            return
        if self._by == "priority":
            key: Any = -request.priority
        elif self._by == "shortest":
            key = request.prompt
        else:
            key = max(self._last, self._tags.get(request.tenant, 0.0)) + request.prompt + request.answer
            self._tags[request.tenant] = key
        heappush(self._heap, (key, number, _live(ready, number, request, begun)))

    def give_back(self, live: Any) -> None:
        """A request whose cache was taken goes before all others."""
        self.tokens += live.prompt
        self.size += 1
        self.back.appendleft(live)

    @property
    def head(self) -> Any:
        """Who is next; None where nobody waits."""
        if self.back:
            return self.back[0]
        if self.queue:
            if not isinstance(self.queue[0], Live):
                self.queue[0] = _live(*self.queue[0])
            return self.queue[0]
        return self._heap[0][2] if self._heap else None

    def pop(self) -> None:
        """Take the next one out."""
        if self.back:
            live = self.back.popleft()
        elif self.queue:
            live = self.queue.popleft()
        else:
            self._last, _, live = heappop(self._heap)
        self.tokens -= live.prompt
        self.size -= 1

    def pass_over(self) -> None:
        """Those behind the next one go first, until it comes again."""
        where: Any = self.back or self.queue or self._heap
        self._passed.append((where, heappop(where) if where is self._heap else where.popleft()))

    def come_again(self) -> bool:
        """Those that were passed over are next again, in their order: whether there were any."""
        found = bool(self._passed)
        while self._passed:
            where, entry = self._passed.pop()
            if where is self._heap:
                heappush(where, entry)
            else:
                where.appendleft(entry)
        return found
