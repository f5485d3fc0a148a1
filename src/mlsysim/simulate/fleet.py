"""A fleet: pools of replicas, a router before each, and what happens to them as requests come.

Time goes from request to request. Before a router that looks at replicas chooses, all of them are as far as the request: every step that begins
before it has been taken. Prompts that were read by then go on to the pool that writes answers, in the order in which they were read. Where no router
looks, replicas of one pool do not know of each other, and each is played by itself (:mod:`mlsysim.simulate.serving`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from mlsysim.simulate.pools import Between
from mlsysim.simulate.replica import NEVER, Replica
from mlsysim.simulate.requests import Request
from mlsysim.simulate.routers import RoundRobin

TOGETHER = 1024
"""Requests that are handed out before replicas go on, where nobody looks at them."""


class Pool:
    """Replicas among which a router chooses."""

    def __init__(self, replicas: list[Replica], router: Callable[[Sequence[Replica]], RoundRobin]) -> None:
        self.replicas, self.router = replicas, router(replicas)
        self.up = list(range(len(replicas)))

    def advance(self, until: float) -> None:
        """All replicas up to a time."""
        for replica in self.replicas:
            replica.advance(until)

    def give(self, request: Request) -> None:
        """A request that comes now."""
        self.replicas[self.router.choose(request, self.up, request.arrival)].push(request)


class Fleet:
    """Pools in a row: one, or one that reads and one that writes."""

    def __init__(self, front: Pool, back: Pool | None = None, between: Between | None = None) -> None:
        self.front, self.back, self.between = front, back, between
        self.looks = front.router.looks or (back is not None and back.router.looks)

    def play(self, requests: Iterable[Request]) -> None:
        """All requests, in order."""
        for number, request in enumerate(requests):
            if self.looks or not number % TOGETHER:
                self.until(request.arrival)
            self.front.give(request)
        self.until(NEVER)

    def until(self, at: float) -> None:
        """Everything that begins before a time."""
        self.front.advance(at)
        if self.back is not None and self.between is not None:
            while (found := self.between.next(at)) is not None:
                read, reader, request, begun = found
                if self.back.router.looks:
                    self.back.advance(read)
                writer = self.back.router.choose(request, self.back.up, read)
                there = self.between.send(read, reader, writer, request.prompt)
                self.back.replicas[writer].push(request, there, begun)
            self.back.advance(at)
