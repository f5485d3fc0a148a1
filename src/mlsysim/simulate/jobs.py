"""Batch jobs beside online traffic: a backlog of requests that nobody waits for, which fills what a replica has free.

A request of a job is let in when no other waits and its whole answer has room, and is read with what the prompts of others leave of a step. It is put
back when another needs its slot or its room, and goes on later (its tokens are read again, or its cache comes from the host). Steps are as long as all of
their tokens make them, so that others still notice it: answers come more slowly, and a prompt waits for a fuller step.
"""

from __future__ import annotations

from mlsysim.simulate.live import Live
from mlsysim.simulate.requests import Request

JOB = 1 << 50
"""Numbers of requests from here on are those of jobs: they come last, and are put back first."""


class Jobs:
    """Requests of a job that are left for one replica."""

    def __init__(self, prompt: int, answer: int, many: int, at_once: int) -> None:
        self.request, self.left, self.at_once = Request(0.0, prompt, answer, priority=-1), many, at_once
        self.back: list[Live] = []
        self.reading = self.running = 0
        """Those that are being read and written."""
        self.read = self.wrote = self.ended = 0
        """Tokens that were, and requests that ended."""
        self._number = JOB

    def next(self, turns: int) -> Live | None:
        """The request that goes on next."""
        if self.reading + self.running >= self.at_once:
            return None
        if self.back:
            return self.back[-1]
        if self.left < 1:
            return None
        self.left -= 1
        self._number += 1
        self.back.append(Live(self.request, turns, self._number))
        return self.back[-1]
