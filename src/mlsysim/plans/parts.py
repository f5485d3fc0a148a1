"""What an answer shows of a ledger: parts of the time, the memory bar, the wall that would bind next."""

from __future__ import annotations

from mlsysim.cases.ledger import Ledger
from mlsysim.plans.answer import Limit, MemoryBar, Part
from mlsysim.plans.sheet import compact_time
from mlsysim.walls.catalog import TITLES

__all__ = ["memory_bar", "next_wall", "time_parts"]

_ASPECTS = {"peak": "arithmetic", "bandwidth": "memory"}


def time_parts(ledger: Ledger) -> tuple[Part, ...]:
    """Parts of the critical path, which add up to the time. A name with several resources says which."""
    shown = [part for part in ledger.parts if part.exposed > 0]
    aspects: dict[str, set[str]] = {}
    for part in shown:
        aspects.setdefault(part.name, set()).add(part.resource)
    found: dict[tuple[str, int], float] = {}
    for part in shown:
        alone = len(aspects[part.name]) == 1
        label = part.name if alone else f"{part.name}: {_ASPECTS.get(part.resource, part.resource)}"
        found[label, part.wall] = found.get((label, part.wall), 0.0) + float(part.exposed)
    return tuple(Part(label=label, value=value, wall=wall) for (label, wall), value in found.items())


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
