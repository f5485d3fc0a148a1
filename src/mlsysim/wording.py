"""Sentences with settings in them, which each face writes in its own words.

A resolver says that a job ``fits with zero_stage=3``, a plan file calls that ``zero = 3`` and the command line ``--zero 3``. The
sentence keeps what it names as data beside its text, so that a face writes it again instead of reading prose.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting by the name that resolvers know, and its value; without one the name alone."""

    name: str
    value: Any = None

    def __str__(self) -> str:
        return self.name if self.value is None else f"{self.name}={self.value!r}"


class Wording(str):
    """A text and the pieces that it is put together from."""

    pieces: tuple[str | Setting, ...]

    def __new__(cls, text: str, pieces: Iterable[str | Setting] = ()) -> Wording:
        made = super().__new__(cls, text)
        made.pieces = tuple(pieces) or (text,)
        return made

    def __getnewargs__(self) -> tuple[str, tuple[str | Setting, ...]]:  # type: ignore[override]
        return str(self), self.pieces

    def written(self, write: Callable[[Setting], str]) -> Wording:
        """The same with its settings in other words.

        >>> said = worded("it fits with ", Setting("zero_stage", 3), ".")
        >>> str(said), str(said.written(lambda setting: f"--{setting.name} {setting.value}"))
        ('it fits with zero_stage=3.', 'it fits with --zero_stage 3.')
        """
        return Wording(
            "".join(write(piece) if isinstance(piece, Setting) else piece for piece in self.pieces), self.pieces
        )

    def removeprefix(self, prefix: str, /) -> Wording:
        """The same without its first words."""
        first, *rest = self.pieces
        return worded(first.removeprefix(prefix) if isinstance(first, str) else first, *rest)


def worded(*pieces: str | Setting) -> Wording:
    """The sentence that pieces make: texts, settings, and other such sentences."""
    flat = [inner for piece in pieces for inner in (piece.pieces if isinstance(piece, Wording) else (piece,))]
    return Wording("".join(map(str, flat)), flat)


def listed(settings: Iterable[Setting], between: str = " and ") -> Wording:
    """Settings one after the other."""
    first, *rest = settings
    return worded(first, *(piece for each in rest for piece in (between, each)))
