"""What an answer took for granted, as data: the value, where it comes from, and the words that say so.

``origin`` is one of

    default     the declared default of a resolver or a plan
    software    a property of the named training stack, serving engine or runtime
    chip        a figure of the chip, its node or its fabric
    checkpoint  what the model is published in
    inferred    worked out from what was given
    searched    the best of several that were tried
    idle        given, and without effect where it stands
    unknown     published nowhere
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from mlsysim.units.records import dataclass

DEFAULT, SOFTWARE, CHIP, CHECKPOINT, INFERRED = "default", "software", "chip", "checkpoint", "inferred"
SEARCHED, IDLE, UNKNOWN = "searched", "idle", "unknown"


@dataclass(frozen=True, slots=True)
class Assumption:
    """One value that nobody gave. ``by`` is the resolver that assumed it; without one it is of the whole answer."""

    name: str
    value: Any
    origin: str
    text: str
    by: str = ""


class Assumptions(dict[str, str]):
    """Assumptions by name, as their texts; ``records`` has them whole. ``given`` are the names that the caller set."""

    __slots__ = ("_records", "given")

    def __init__(self, given: Iterable[str] = ()) -> None:
        super().__init__()
        self.given = frozenset(given)
        self._records: dict[str, Assumption] = {}

    def say(self, name: str, value: Any, origin: str, text: str | None = None) -> None:
        """Note a value, its origin and its words; the words are the value's where none are given.

        >>> assumed = Assumptions(given=["model"])
        >>> assumed.say("zero_stage", 1, SOFTWARE, "1 (stack bridge)")
        >>> assumed["zero_stage"], assumed.value("zero_stage"), assumed.origin("zero_stage"), "model" in assumed.given
        ('1 (stack bridge)', 1, 'software', True)
        """
        self.take(Assumption(name, value, origin, shown(value) if text is None else text))

    def take(self, record: Assumption) -> None:
        """Note an assumption that is known whole."""
        super().__setitem__(record.name, record.text)
        self._records[record.name] = record

    def __setitem__(self, name: str, text: str) -> None:
        self.say(name, text, INFERRED, text)

    def idle(self, name: str, why: str, value: Any = None) -> None:
        """Note that what was given under a name changes nothing, and why.

        >>> assumed = Assumptions()
        >>> assumed.idle("adapter_rank", "requests have no adapters")
        >>> assumed["adapter_rank"], assumed.origin("adapter_rank")
        ('no effect: requests have no adapters', 'idle')
        """
        self.say(name, value, IDLE, f"no effect: {why}")

    def setdefault(self, name: str, text: str = "") -> str:
        """The words under a name, which become these where there are none."""
        if name not in self:
            self[name] = text
        return self[name]

    def learn(self, others: Iterable[Assumption], by: str = "") -> None:
        """Note what others assumed, and who they are, where nothing is known under its name.

        >>> assumed, other = Assumptions(), Assumptions()
        >>> other.say("pue", 1.0, DEFAULT)
        >>> assumed.learn(other.records)
        >>> assumed["pue"], assumed.origin("pue")
        ('1', 'default')
        """
        for each in others:
            if each.name not in self:
                self.take(replace(each, by=by))

    def told_to(self, by: str) -> None:
        """Note that all that is assumed so far is of a resolver."""
        for each in self.records:
            self.take(replace(each, by=by))

    def _record(self, name: str) -> Assumption:
        text = self[name]
        found = self._records.get(name)
        return found if found is not None and found.text == text else Assumption(name, text, INFERRED, text)

    @property
    def records(self) -> tuple[Assumption, ...]:
        """All of them, in the order in which they were made."""
        return tuple(self._record(name) for name in self)

    def value(self, name: str, otherwise: Any = None) -> Any:
        """The value that was assumed under a name."""
        return self._record(name).value if name in self else otherwise

    def origin(self, name: str) -> str | None:
        """Where it comes from; None where nothing was assumed."""
        return self._record(name).origin if name in self else None


def shown(value: Any) -> str:
    """A value in words."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, (int, float)) else str(value)
