"""How a service is run beside what the case says of its machine and its clients."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import field

from mlsysim.cases.machines import Engines
from mlsysim.errors import InputError
from mlsysim.simulate.record import LEVELS
from mlsysim.units.records import dataclass

Progress = Callable[[int, int], None]
"""``tell(answered, expected)``: requests that have been answered, and about how many there will be. Every play tells (0, expected) at its begin, then
about every thousand requests, and how many there were at its end; an answer is several plays, one for each design and end of an interval."""

_watching: ContextVar[Progress | None] = ContextVar("watching", default=None)


@contextmanager
def watched(tell: Progress) -> Iterator[None]:
    """Within it ``tell`` hears how far every play of this thread is, however deep in an answer: ``with watched(bar): evaluate(plan)``."""
    before = _watching.set(tell)
    try:
        yield
    finally:
        _watching.reset(before)


def watcher() -> Progress | None:
    """Who watches."""
    return _watching.get()


@dataclass(frozen=True)
class Failures:
    """Replicas fail at random, each ``every`` so many seconds of work on average, and are back ``repair`` seconds later, empty. Their requests
    begin again with others; so many of the first pool's units ``spare`` stand by with their weights, and the next one is there at once."""

    every: float
    repair: float
    spare: int = 0

    def __post_init__(self) -> None:
        if not (self.every > 0 and self.repair >= 0):
            raise InputError(
                f"Replicas fail every so many seconds above 0, got {self.every:g}, and are back 0 or more later, got {self.repair:g}."
            )


@dataclass(frozen=True)
class Backlog:
    """A batch job beside the traffic: so many requests of one length for all replicas together, which fill what is free
    (:mod:`mlsysim.simulate.jobs`), ``at_once`` of a replica at most."""

    prompt: int
    answer: int
    requests: int = 1 << 40
    at_once: int = 1 << 40

    def __post_init__(self) -> None:
        if not (self.prompt >= 1 and self.answer >= 1 and self.requests >= 1 and self.at_once >= 1):
            raise InputError(
                f"A job has 1 or more requests of 1 or more tokens, 1 or more at once, got {self.requests} of {self.prompt} + "
                f"{self.answer}, {self.at_once} at once."
            )


@dataclass(frozen=True)
class Scaling:
    """A service grows and shrinks between ``least`` and ``most`` replicas, as Kubernetes' autoscaler does it.

    Every ``interval`` seconds the load of a replica, ``by`` the "rate" of requests that came to it over the last four of them, the "requests" it has,
    those in its "queue", or the "utilisation" of its room for caches or slots, is held against the ``target``: up x load / target replicas are wanted,
    rounded up, unless that is within a tenth of those up. (The time in which it works says nothing, since it works as long as one request is
    answered.) That is right where the load of each is as 1 / up, as a rate is. Requests in flight are more than in proportion to it (Little's law, with
    an answer that takes longer the more there are), so that a service by them wants too many when it is short of some and too few when it has some too
    many, and may swing between both at an even load. More are started at once, and are up ``start``
    seconds later: by default the time of their weights over ``load_rate`` bytes a second of each device, its link to the host where that is not
    given. Fewer are wanted when they have been for ``settle`` seconds; those answer what they have, and get no more.
    """

    most: int
    least: int = 1
    target: float = 0.7
    by: str = "utilisation"
    interval: float = 15.0
    settle: float = 300.0
    start: float | None = None
    load_rate: float | None = None
    first: int | None = None
    """Replicas that are up at the beginning; as many as there are unless given."""

    def __post_init__(self) -> None:
        if self.by not in ("rate", "requests", "queue", "utilisation"):
            raise InputError(
                f"A service grows by its rate, its requests, its queue or its utilisation, got {self.by!r}."
            )
        if not (1 <= self.least <= self.most and self.target > 0 and self.interval > 0):
            raise InputError(
                f"A service grows from 1 or more replicas to no fewer, got {self.least} to {self.most}, towards a target above 0, got "
                f"{self.target:g}, looked at every so many seconds, got {self.interval:g}."
            )


@dataclass(frozen=True)
class Settings:
    """How replicas are run beside what the case says. ``limits`` in seconds by kind of time: what a request must keep to count as good."""

    scheduler: str | None = None
    limits: dict[str, float] | None = None
    levels: dict[str, float] = field(default_factory=lambda: LEVELS)
    """Percentiles of times that are told, by name."""
    block_tokens: int | None = None
    """Tokens of a hashed block where requests name theirs; None: no cache of prefixes."""
    clients: int | None = None
    """Requests are sent one after another by so many clients, each when its last one is answered; their arrivals are not looked at."""
    skip: float = 0.0
    """Seconds at the start whose requests are not counted."""
    router: str = "round_robin"
    """Who chooses the replica of a request: a name of :data:`mlsysim.simulate.routers.ROUTERS`."""
    overload: float = 1.5
    """Times as many requests as the idlest replica has, beyond which a router does not send more for a prefix."""
    preempts: str = "recompute"
    """What becomes of a cache that is taken: "recompute", its tokens are read again, or "swap", it goes to the host and comes back."""
    host_memory: float = 0.0
    """Bytes of the host's memory, for each device, for prefixes that the device forgets; over ``host_link`` bytes a second, the chip's own
    unless given."""
    host_link: float | None = None
    disk: float = 0.0
    """Bytes of disk, for each device, for prefixes that the host forgets, which are read at ``disk_rate`` bytes a second."""
    disk_rate: float | None = None
    others: tuple[tuple[Engines, int], ...] = ()
    """Replicas of other machines beside those of the first, and how many."""
    failures: Failures | None = None
    scaling: Scaling | None = None
    backlog: Backlog | None = None
    executor: Executor | None = None
    """Where replicas are played that no router looks at; here unless given."""
    progress: Progress | None = None
    """Who is told how far a play is; who watches (:func:`watched`) unless given."""
    seed: int = 0
    """Of what routers and failures draw."""
    devices: int | None = None
    """Accelerators of the whole service, where a part of it is played."""
