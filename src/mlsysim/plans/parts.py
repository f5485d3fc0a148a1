"""What an answer shows of a ledger: parts of the time, the memory bar, the wall that would bind next."""

from __future__ import annotations

from collections import Counter

from mlsysim.cases.ledger import Ledger
from mlsysim.plans.answer import Limit, MemoryBar, Part
from mlsysim.plans.sheet import compact_time
from mlsysim.walls.catalog import TITLES

__all__ = ["memory_bar", "next_wall", "time_parts"]

_ASPECTS = {"peak": "arithmetic", "bandwidth": "memory"}


def time_parts(ledger: Ledger) -> tuple[Part, ...]:
    """Parts of the critical path, which add up to the time. A name with several resources says which."""
    shown = [part for part in ledger.parts if part.exposed > 0]
    names = Counter(part.name for part in shown)
    return tuple(
        Part(
            label=part.name if names[part.name] == 1 else f"{part.name}: {_ASPECTS.get(part.resource, part.resource)}",
            value=float(part.exposed),
            wall=part.wall,
        )
        for part in shown
    )


def memory_bar(ledger: Ledger) -> MemoryBar:
    """What fills the device; it adds up to the memory that is needed."""
    held = [each for each in ledger.held if each.where == "device" and each.bytes > 0]
    return MemoryBar(
        capacity=float(ledger.capacity),
        parts=tuple(Part(label=each.name, value=float(each.bytes), wall=2) for each in held),
    )


def next_wall(ledger: Ledger, binding: Limit) -> Limit | None:
    """The wall that would bind next: the longest of the others, what it hides included."""
    exposed, hidden = ledger.walls("exposed"), ledger.walls("hidden")
    others = {wall: exposed[wall] + hidden[wall] for wall in exposed if wall != binding.wall}
    wall = max(others, key=lambda number: others[number], default=None)
    if wall is None or others[wall] <= 0:
        return None
    name, _ = TITLES[wall]
    return Limit(wall=wall, name=name, sentence=f"Wall {wall} ({name}), at {compact_time(others[wall])}.")
