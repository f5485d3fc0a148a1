"""Named times: what a step is put together from, on plain numbers or on a ledger.

``tag(name, wall, resource, equation, seconds, **amounts)`` gives the seconds that it is given (:func:`untagged`), or a line of a ledger
(:mod:`mlsysim.cases.algebra`); amounts are its FLOP, bytes moved and bytes sent. Tags of tags make times longer and leave the work as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Tag = Callable[..., Any]
"""``tag(name, wall, resource, equation, seconds, flop=, moved=)``: a time under a name."""


def untagged(name: str, wall: int, resource: str, equation: str, seconds: Any, **amounts: Any) -> Any:
    """Times as plain numbers or arrays: the name is dropped."""
    return seconds


def clocked(tag: Tag, slower: Any, streaming: Any) -> Tag:
    """``tag`` on a device with a lower clock: its arithmetic and the start of its kernels, and its bytes, take so much longer."""
    longer = {"peak": slower, "vector": slower, "start": slower, "bandwidth": streaming}

    def tagged(name: str, wall: int, resource: str, equation: str, seconds: Any, **amounts: Any) -> Any:
        return tag(name, wall, resource, equation, longer.get(resource, 1.0) * seconds, **amounts)

    return tagged


def scaled(tag: Tag, factor: Any) -> Tag:
    """``tag`` of times that are ``factor`` as long for the same work."""

    def tagged(name: str, wall: int, resource: str, equation: str, seconds: Any, **amounts: Any) -> Any:
        return tag(name, wall, resource, equation, factor * seconds, **amounts)

    return tagged


def uncounted(tag: Tag) -> Tag:
    """``tag`` of times whose work is counted elsewhere."""
    if tag is untagged:
        return tag

    def tagged(name: str, wall: int, resource: str, equation: str, seconds: Any, **amounts: Any) -> Any:
        return tag(name, wall, resource, equation, seconds)

    return tagged
