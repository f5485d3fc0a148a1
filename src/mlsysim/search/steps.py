"""What a step away from the best is worth: the form in which every optimizer reports its sensitivity.

``worth`` is relative to the best objective and positive where the step is an improvement (of a setting that the search could
not choose, such as a price); a step that leads to nothing allowed has ``worth`` None and says in ``rejected_by`` what forbids
it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from mlsysim.search.kinds import kind_named
from mlsysim.units.registry import Q_
from mlsysim.units.text import plainly

SCALED = ("flop/s", "byte/s", "byte", "W")
"""Units that values show with a prefix."""


def worth(value: float | None, best: float, larger: bool) -> float | None:
    """The relative gain of a value over the best; None where there is nothing to compare."""
    if value is None or best == 0:
        return None
    change = value / best - 1 if best > 0 else 1 - value / best
    return change if larger else -change


def behind(value: float | None, best: float, larger: bool) -> float | None:
    """How far a value lies behind the best, as a fraction of it."""
    change = worth(value, best, larger)
    return None if change is None else -change


def step(to: Any, value: float | None, best: float, larger: bool, rejected_by: str | None = None) -> dict[str, Any]:
    """One step: where it leads, what it is worth, or what forbids it."""
    found: dict[str, Any] = {"to": to, "worth": worth(value, best, larger)}
    if found["worth"] is None:
        found["rejected_by"] = rejected_by or "nothing to compare"
    return found


def neighbours(value: Any, values: Iterable[Any]) -> dict[str, Any]:
    """The next value below and above, by name of the direction."""
    below = [other for other in values if other < value]
    above = [other for other in values if other > value]
    found = {}
    if below:
        found["down"] = max(below)
    if above:
        found["up"] = min(above)
    return found


def best_by_value(column: Sequence[Any]) -> dict[Any, int]:
    """For each value of a column of ranked rows the place of its best row."""
    return dict(zip(reversed(column), range(len(column) - 1, -1, -1), strict=True))


def said(sensitivity: Mapping[str, Mapping[str, Any]], kind: str = "") -> list[str]:
    """One line for each setting of a kind of space: what a step up and a step down are worth."""
    lines = []
    for name, entry in sensitivity.items():
        parts = [
            f"{direction} to {shown(entry[direction]['to'], name, kind)} {_value(entry[direction])}"
            for direction in ("up", "down", "other")
            if entry.get(direction)
        ]
        if parts:
            lines.append(f"{name} = {shown(entry['at'], name, kind)}: " + "; ".join(parts))
    return lines


def _value(found: Mapping[str, Any]) -> str:
    change, free = found["worth"], found.get("worth_with_others_free")
    told = f"is forbidden by {found['rejected_by']}" if change is None else f"is worth {change:+.2%}"
    return told if free is None or free == change else f"{told} ({free:+.2%} with the others free)"


def shown(value: Any, name: str = "", kind: str = "") -> str:
    """A value with few digits, that of an input of a kind of space with its unit."""
    if not isinstance(value, float):
        return str(value)
    declared = kind_named(kind).inputs.get(name) if kind else None
    return in_unit(value, "" if declared is None else declared.unit)


def in_unit(value: float, unit: str) -> str:
    """A number in the unit that an axis has; large ones in a larger unit.

    >>> in_unit(3.35e12, "byte/s"), in_unit(128.0, ""), in_unit(1.5e12, "")
    ('3.35 TB/s', '128', '1,500,000,000,000')
    """
    return f"{Q_(value, unit).to_compact():.4g~P}" if unit in SCALED else plainly(value, 6)
