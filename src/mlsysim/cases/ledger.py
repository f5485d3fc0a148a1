"""The ledger: parts of a time that add up, and bytes that are held.

What a case consists of, one line a part: seconds on the critical path and hidden beside it, operations, bytes moved and sent,
the wall and the resource that it belongs to. Every number, sentence and chart about a case is read off it.
:mod:`mlsysim.cases.algebra` says how the parts are found, and why they add up.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, NamedTuple

from mlsysim.units.ops import maximum, where
from mlsysim.units.records import dataclass

__all__ = ["CONTEXT", "RESERVE", "STREAMED", "Held", "Ledger", "Part"]

CONTEXT = "driver and libraries"
"""The name of what a process has on its device before it holds anything of its own: context, libraries, buffers of collectives."""
RESERVE = "reserve"
"""The name of what allocator, engine and libraries keep beside what is counted."""
STREAMED = "streamed from the host"
"""The part of a time in which what does not fit comes over the host's link."""


_IN_WORDS = {
    "products": "matrix products",
    "starts of products": "starts of matrix products",
    "starts of kernels": "kernel starts",
    "host launches": "launches",
    "elementwise": "elementwise operations",
    "permutation": "permutation of tokens",
    "conversion": "conversion of formats",
    "loss": "loss function",
    "engine": "engine overhead",
    "weights": "reading weights",
    "updated weights": "casts, gradients and update of weights",
    "weights of experts": "reading weights of experts",
    "caches": "reading caches",
    "sharded state": "gathering of sharded state",
    "the running step": "the step that runs",
}
"""Names that are short for what sentences and charts say."""


def added(values: Iterable[Any]) -> Any:
    """The sum; of floats it is rounded once, and so the same with every release of Python."""
    found = list(values)
    return math.fsum(found) if all(isinstance(each, float | int) for each in found) else sum(found, 0.0)


@dataclass(frozen=True, slots=True)
class Part:
    """One line of a ledger.

    ``exposed`` seconds are on the critical path, ``hidden`` ones beside it; ``elastic`` are the exposed ones with losses handed
    on to what they are made of. ``resource`` is what makes the part faster (``peak``, ``bandwidth``, ``link``, ``fabric``,
    ``host`` ...), empty for a loss. ``flop``, ``moved``, ``sent`` and ``joules`` are of all its seconds, hidden or not.
    """

    name: str
    wall: int
    resource: str
    equation: str
    exposed: Any
    hidden: Any = 0.0
    elastic: Any = 0.0
    flop: Any = 0.0
    moved: Any = 0.0
    sent: Any = 0.0
    joules: Any = 0.0

    @property
    def label(self) -> str:
        """The name in words, behind its phase: ``answer: reading weights``."""
        phase, _, own = self.name.rpartition(": ")
        words = _IN_WORDS.get(own, own)
        return f"{phase}: {words}" if phase else words

    @property
    def said(self) -> str:
        """The label within a sentence."""
        return within(self.label)

    @property
    def is_loss(self) -> bool:
        return not self.resource

    @property
    def key(self) -> tuple[str, int, str, str]:
        return self.name, self.wall, self.resource, self.equation


_WHILE = {"answer": " while it answers", "first token": " before the first token"}


def within(label: str) -> str:
    """The label of a part within a sentence.

    >>> within("answer: reading weights"), within("rollout: sampling"), within("attention")
    ('reading weights while it answers', 'sampling (rollout)', 'attention')
    """
    phase, _, part = label.rpartition(": ")
    return f"{part}{_WHILE.get(phase, f' ({phase})')}" if phase else part


_AMOUNTS = ("exposed", "hidden", "elastic", "flop", "moved", "sent", "joules")


class Held(NamedTuple):
    """Bytes that are held for the whole time, and where: on the ``device``, or with its ``host``."""

    name: str
    bytes: Any
    where: str = "device"


@dataclass(frozen=True, slots=True)
class Ledger:
    """Parts whose exposed seconds add up to ``seconds``, and bytes held on the fullest device, of ``capacity``."""

    seconds: Any
    parts: tuple[Part, ...]
    held: tuple[Held, ...] = ()
    capacity: Any = None

    # --- time ---------------------------------------------------------------------------------------------------

    def walls(self, field: str = "exposed") -> dict[int, Any]:
        """Seconds (or another column) by wall, largest first."""
        return self._by("wall", field)

    def resources(self, field: str = "elastic") -> dict[str, Any]:
        """Seconds (or another column) by resource, largest first."""
        return self._by("resource", field)

    def _by(self, key: str, field: str) -> dict[Any, Any]:
        return dict(sorted(self._sums(key, field).items(), key=lambda item: -item[1]))

    def _sums(self, key: str, field: str) -> dict[Any, Any]:
        found: dict[Any, Any] = {}
        for part in self.parts:
            name = getattr(part, key)
            found[name] = found.get(name, 0.0) + getattr(part, field)
        return found

    @property
    def binding_wall(self) -> Any:
        """The wall with most of the critical path; of arrays, at each place."""
        most: Any = -1.0
        binding: Any = 0
        for wall, seconds in self._sums("wall", "exposed").items():
            binding, most = where(seconds > most, wall, binding), maximum(most, seconds)
        return binding if getattr(binding, "ndim", 0) else int(binding)

    def largest(self, wall: int) -> Part:
        """The part of a wall that has most of the critical path; parts of one name count together."""
        own, whole = [part for part in self.parts if part.wall == wall], dict[str, Any]()
        for part in own:
            whole[part.label] = whole.get(part.label, 0.0) + part.exposed
        return max(own, key=lambda part: (whole[part.label], part.exposed))

    def led(self, wall: int) -> str:
        """What :meth:`largest` is of a wall: "most of it" where it has at least half of its time, else "led by" it."""
        most = self.largest(wall)
        return f"{'most of it' if 2 * most.exposed >= self.walls()[wall] else 'led by'} {most.said}"

    def made_of(self) -> str:
        """The resource that losses of this ledger are mostly made of."""
        gained: dict[str, Any] = {}
        for part in self.parts:
            if part.resource:
                gained[part.resource] = gained.get(part.resource, 0.0) + part.elastic - part.exposed
        return max(gained, key=lambda name: gained[name]) if gained else ""

    def exposed(self, *names: str) -> Any:
        """Seconds on the critical path of the parts of these names."""
        return self._of(names, "exposed")

    def elastic(self, *resources: str) -> Any:
        """Seconds that some resources would gain if they were infinitely fast, to first order."""
        return added(part.elastic for part in self.parts if part.resource in resources)

    def gross(self, *names: str) -> Any:
        """Seconds of the parts of these names, hidden or not."""
        return self._of(names, "exposed") + self._of(names, "hidden")

    def _of(self, names: tuple[str, ...], field: str) -> Any:
        return added(getattr(part, field) for part in self.parts if part.name in names)

    def total(self, field: str) -> Any:
        """A column, added up."""
        return added(getattr(part, field) for part in self.parts)

    # --- memory -------------------------------------------------------------------------------------------------

    @property
    def memory(self) -> Any:
        """Bytes on the device, the reserve included: one after the other, as a device adds up what it uses, to the last digit."""
        total: Any = 0.0
        for each in self.held:
            total = total + each.bytes if each.where == "device" else total
        return total

    @property
    def fits(self) -> Any:
        """Whether the device holds them: what is held adds up to at most what there is."""
        return True if self.capacity is None else self.memory <= self.capacity

    # --- ledgers of ledgers -------------------------------------------------------------------------------------

    def __add__(self, other: Ledger) -> Ledger:
        """One after the other; what is held is that of the first."""
        lines: dict[tuple[Any, ...], Part] = {part.key: part for part in self.parts}
        for part in other.parts:
            known = lines.get(part.key)
            lines[part.key] = part if known is None else _added(known, part)
        return replace(self, seconds=self.seconds + other.seconds, parts=tuple(lines.values()))

    def __mul__(self, times: Any) -> Ledger:
        """The same so many times."""
        parts = tuple(replace(part, **{name: times * getattr(part, name) for name in _AMOUNTS}) for part in self.parts)
        return replace(self, seconds=times * self.seconds, parts=parts)

    __rmul__ = __mul__

    def renamed(self, name: Callable[[str], str]) -> Ledger:
        """The same under other names, such as those of a phase."""
        return replace(self, parts=tuple(replace(part, name=name(part.name)) for part in self.parts))

    def holding(self, held: Iterable[Held], capacity: Any) -> Ledger:
        """The same with what is held."""
        return replace(self, held=tuple(held), capacity=capacity)


def _added(one: Part, other: Part) -> Part:
    return replace(one, **{name: getattr(one, name) + getattr(other, name) for name in _AMOUNTS})
