"""What binds, read off a ledger: the wall with most of the critical path, and the one after it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mlsysim.cases.ledger import Ledger, Part
from mlsysim.units.records import dataclass
from mlsysim.vocabulary import worded
from mlsysim.walls.catalog import TITLES
from mlsysim.zoo.files import shipped

NAMES = {number: name for number, (name, _) in TITLES.items()}
"""Walls as their cards call them."""

RESOURCES: dict[str, dict[str, str]] = shipped("mlsysim.data", "resources.toml")["resource"]
"""What parts of a time wait for, in words."""

_TOGETHER = {"start": "host"}
"""Resources that one figure makes faster: launches and starts of kernels are software's."""

_WHOLE = ("arithmetic", "memory traffic")
"""Parts that are all of their wall at first order."""

NEGLIGIBLE = 0.001
"""Share of the time below which a wall is no next wall."""


AS_IF = " Times are given as if it fitted."
"""What a resolver says of the times of what does not fit."""


@dataclass(frozen=True)
class Binding:
    """What binds: the wall, by how much it leads over the next (a factor), and a sentence."""

    wall: int
    name: str
    margin: float | None
    sentence: str

    def to_dict(self) -> dict[str, Any]:
        return {"wall": self.wall, "name": self.name, "margin": self.margin, "sentence": self.sentence}


class LazyBinding(Binding):
    """A binding that is worked out when somebody asks, as a tape takes longer than the time that it explains."""

    def __init__(self, find: Callable[[], Binding]) -> None:
        object.__setattr__(self, "_find", find)

    def __getattr__(self, name: str) -> Any:
        if name not in Binding.__dataclass_fields__:
            raise AttributeError(name)
        found = self._find()
        for field in Binding.__dataclass_fields__:
            object.__setattr__(self, field, getattr(found, field))
        return getattr(found, name)

    def __reduce__(self) -> tuple[Any, ...]:
        return Binding, (self.wall, self.name, self.margin, self.sentence)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Binding) and self.to_dict() == other.to_dict()

    __hash__ = Binding.__hash__


MEMORY = "Wall 2 (Memory): "
"""How sentences about what does not fit begin."""


def wall_says(wall: int, margin: float | None, words: str) -> Binding:
    """A wall and what its sentence says after its number and name."""
    return Binding(wall, NAMES[wall], margin, f"Wall {wall} ({NAMES[wall]}){words}")


def too_full(words: str, needed: float, capacity: float, remedy: str, after: str = "") -> Binding:
    """The binding of what does not fit: what is needed and what there is, in words, and the smallest change that helps."""
    return Binding(2, "Memory", needed / capacity, worded(f"{MEMORY}{words}; ", remedy, f".{after}"))


def made_of(resource: str, otherwise: str) -> str:
    """A resource in words."""
    return RESOURCES.get(resource, {}).get("made_of", otherwise)


def cause(part: Part, ledger: Ledger) -> str:
    """Which resource a loss grows with."""
    return f" (set by {made_of(ledger.made_of(), 'other parts')})" if part.is_loss else ""


def share_text(ledger: Ledger, wall: int, noun: str) -> str:
    """How much of the time a wall has, and the largest part of it."""
    share = ledger.walls()[wall] / ledger.seconds
    most = ledger.largest(wall)
    words = "" if most.name in _WHOLE else f", {ledger.led(wall)}{cause(most, ledger)}"
    return f"{share:.1%} of the {noun}{words}"


def bound_text(ledger: Ledger, wall: int, noun: str) -> str:
    """The same of a wall that binds. Losses are time of other resources, and several walls may wait for one of them: where most of
    the time follows a resource of another wall, that is said."""
    text = share_text(ledger, wall, noun)
    worth: dict[str, Any] = {}
    for resource, elastic in ledger.resources().items():
        whose = _TOGETHER.get(resource, resource)
        worth[whose] = worth.get(whose, 0.0) + elastic
    most = max(worth, key=lambda name: worth[name])
    resources = {part.resource for part in ledger.parts if part.wall == wall and part.exposed > 0}
    own = {_TOGETHER.get(resource, resource) for resource in resources}
    seconds, words = worth[most], made_of(most, most)
    if most in own or words in text:
        return text
    return f"{text}; {seconds / ledger.seconds:.1%} of the {noun} is set by {words}"


def lead(ledger: Ledger) -> tuple[int, int | None, float | None]:
    """The binding wall, the next one (None where it has no time to speak of), and by what factor the first leads."""
    walls = ledger.walls()
    order = list(walls)
    following = order[1] if len(order) > 1 and walls[order[1]] > NEGLIGIBLE * ledger.seconds else None
    return order[0], following, None if following is None else float(walls[order[0]] / walls[following])


def binding_of(ledger: Ledger, noun: str) -> Binding:
    """The binding wall of a time that fits and holds its limits."""
    wall, following, margin = lead(ledger)
    more = ""
    if following is not None:
        more = f"; the next wall is {following} ({NAMES[following]}): {share_text(ledger, following, noun)}"
    return wall_says(wall, margin, f" binds: {bound_text(ledger, wall, noun)}{more}.")
