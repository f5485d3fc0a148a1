"""One request: when it comes, how long it is, what it shares with others; and what was measured of it.

Requests are handed on one by one in order of arrival. A week of traffic is millions of them, so nobody holds a list.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from itertools import islice
from operator import le
from typing import NamedTuple

from mlsysim.errors import InputError

__all__ = ["TOGETHER", "Measured", "Request", "in_order"]

TOGETHER = 1024
"""Requests that are handed out before replicas go on."""
_LAST = sys.float_info.max


class Request(NamedTuple):
    """A request.

    ``blocks`` are hashes of consecutive whole blocks from the prompt's first token on; requests with equal leading hashes share that
    text. A trace or load says how many tokens a block has (``block_tokens``). They may go on over the answer, which a later turn
    repeats; where they end before the prompt does, the rest is the request's own. Without ``blocks`` nothing is known to be shared.
    """

    arrival: float
    """Seconds from the start."""
    prompt: int
    """Tokens of the prompt."""
    answer: int
    """Tokens of the answer."""
    session: str | None = None
    """The conversation that it belongs to."""
    blocks: tuple[int, ...] | None = None
    tenant: str | None = None
    priority: int = 0
    """Larger goes first where a scheduler looks at it."""
    adapter: str | None = None
    """The LoRA adapter that answers it."""


class Measured(NamedTuple):
    """What a log or a benchmark measured of one request, in seconds; None where it does not say."""

    ttft: float | None = None
    """From arrival to the first token."""
    tpot: float | None = None
    """(last token - first token) / (tokens of the answer - 1)."""
    e2e: float | None = None
    """From arrival to the last token."""
    queue: float | None = None
    """From arrival to when a scheduler took it."""


def in_order(requests: Iterable[Request]) -> Iterator[list[Request]]:
    """The same requests, some together; an error at the first that comes before the one ahead of it, or has no tokens to read or to write."""
    asked, before, ahead, many = iter(requests), 0.0, 0, 1
    while block := list(islice(asked, many)):
        arrivals = [request[0] for request in block]
        orderly = all(map(le, (before, *arrivals), (*arrivals, _LAST)))
        if not orderly or min([request[1] for request in block]) < 1 or min([request[2] for request in block]) < 1:
            _refuse(block, before, ahead)
        yield block
        before, ahead, many = arrivals[-1], ahead + len(block), TOGETHER


def _refuse(block: list[Request], before: float, ahead: int) -> None:
    """Say which of some requests is out of order."""
    for number, request in enumerate(block, ahead + 1):
        if not before <= request.arrival <= _LAST:
            raise InputError(
                f"Request {number} comes at {request.arrival:g} s and the one before it at {before:g} s; times must not run "
                "backwards: sort the requests by arrival."
            )
        if request.prompt < 1 or request.answer < 1:
            raise InputError(
                f"Request {number} has a prompt of {request.prompt} and an answer of {request.answer} tokens; each must be 1 or more."
            )
        before = request.arrival
