"""One table of names. A concept has one key, that of a plan, and every face takes every name of it.

    parallelism.tp   `tp` in a plan file, `--tp` on the command line, `tp_size` in Python, `tp` on an axis of a sweep

The first name behind a key is what resolvers call it; the others are what people write. Keys that are not listed have the name
of their field alone. Meaning, unit and range of a key stand where it is declared: in :mod:`mlsysim.plans.plan_parts` and in the inputs
of the resolvers; the table itself is data/vocabulary.toml. Nothing but the reader of it is imported, so that every
room above may ask.

Sentences that name settings keep them as data (:class:`Wording`): a resolver says that a job ``fits with zero_stage=3``, a plan
file calls that ``zero = 3`` and the command line ``--zero 3``, and each face writes the sentence in its own words.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

PARTS = {"layout": "parallelism"}
"""Other names of the parts of a plan."""

RUNS = {"training": "stack", "inference": "stack", "serving": "engine", "rl": "framework"}
"""The key that names the software which runs a task."""

_SOFTWARE = (*RUNS.values(), "runtime", "backend")


def _named(table: dict[str, list[str]], kind: Callable[[str], Any] = str) -> dict[str, Any]:
    return {word: kind(meant) for meant, words in table.items() for word in words}


def _instead(lines: list[dict[str, Any]]) -> dict[str, str]:
    return {word: line["instead"] for line in lines for word in line["words"]}


_MADE: dict[str, Callable[[dict[str, Any]], Any]] = {
    # Names by key; the resolvers' own first.
    "NAMES": lambda tables: {key: tuple(names) for key, names in tables["names"].items()},
    # Words that are no names of a key: the key that was meant, with an example.
    "MEANT": lambda tables: {word: (m["key"], m["example"]) for m in tables["meant"] for word in m["words"]},
    "VALUES": lambda tables: _named(tables["values"]),
    "WALLS": lambda tables: _named(tables["walls"], int),
    # Columns of traces, and what they are.
    "COLUMNS": lambda tables: _named(tables["columns"]),
    # Columns of tables of measurements, the same; of a key of a plan all its names.
    "MEASURED": lambda tables: {
        name: column
        for column, words in reversed(tables["measured"].items())
        for word in words
        for name in (names_of(word) if "." in word else (word,))
    },
    "WRITTEN": lambda tables: _instead(tables["written"]),
    "ASKED": lambda tables: _instead(tables["asked"]),
}


@cache
def _table(name: str) -> Any:
    """A table of data/vocabulary.toml, which is read when one is asked for: help needs none."""
    from mlsysim.zoo.files import shipped

    return _MADE[name](shipped("mlsysim.data", "vocabulary.toml"))


def __getattr__(name: str) -> Any:
    if name not in _MADE:
        raise AttributeError(name)
    return _table(name)


def names_of(key: str) -> tuple[str, ...]:
    """Every name of a key, the field's own first.

    >>> names_of("parallelism.zero"), names_of("ops.budget")
    (('zero', 'zero_stage'), ('budget',))
    """
    return tuple(dict.fromkeys((key.rpartition(".")[2], *_table("NAMES").get(key, ()))))


def python_name(key: str) -> str:
    """What resolvers call a key.

    >>> python_name("parallelism.virtual_stages"), python_name("parallelism.schedule")
    ('v_stages', 'schedule')
    """
    return str(_table("NAMES").get(key, (key.rpartition(".")[2],))[0])


def meant_for(name: str, task: str) -> str | None:
    """The key of a task that says what another task's key says there; None where there is none.

    >>> meant_for("--stack", "serving"), meant_for("runtime", "training"), meant_for("tp", "serving")
    ('engine', 'stack', None)
    """
    return RUNS.get(task) if plain(name) in _SOFTWARE and plain(name) != RUNS.get(task) else None


def valued(example: str, given: object) -> str:
    """An example with the value that somebody gave, where it is of the same kind: a number for a number, or something that has one.

    >>> valued("16", 200), valued("512xH100", "64"), valued("30d", "12h"), valued("32k", "128000"), valued("5/day", "1M")
    ('200', '64xH100', '12h', '128000', '1M/day')
    """
    found, text = re.fullmatch(r"\d+([dhk]|x\w+|/\w+)?", example), str(given)[:40]
    if found is None or not text or not (text.isdigit() or found[1]):
        return example
    if found[1] and found[1][0] == "/":
        return text + found[1] if text[0].isdigit() and "/" not in text else example
    return text + found[1] if text.isdigit() and found[1] not in (None, "k") else text


def remedy(instead: str) -> str:
    """What to do instead, as the end of a sentence: to write something, or to leave it out.

    >>> remedy("--tp 8"), remedy("leave it out, as it costs nothing")
    ('write --tp 8', 'leave it out, as it costs nothing')
    """
    return instead if instead.startswith("leave it out") else f"write {instead}"


def plain(name: object) -> str:
    """A name as the table writes it: ``--TP-size`` becomes ``tp_size``."""
    return str(name).strip().lstrip("-").replace("-", "_").lower()


@cache
def _keys() -> dict[str, list[str]]:
    """The keys that a name may stand for."""
    found: dict[str, list[str]] = {}
    for key in _table("NAMES"):
        for name in names_of(key):
            found.setdefault(name, []).append(key)
    return found


def same_as(name: str, valid: Collection[str]) -> str | None:
    """The one of some valid names that a name stands for, None where there is none.

    >>> same_as("tp", ["tp_size", "seq_len"]), same_as("isl", ["tp_size", "seq_len"]), same_as("speed", ["tp_size"])
    ('tp_size', 'seq_len', None)
    """
    if name in valid:
        return name
    wanted = plain(name)
    keys = _keys().get(wanted, ())
    return next(
        (other for key in keys for other in names_of(key) if other in valid), wanted if wanted in valid else None
    )


def with_aliases(valid: Iterable[str]) -> dict[str, str]:
    """Further names of some valid ones: each with the valid name that it stands for.

    >>> with_aliases(["zero_stage", "model"])
    {'zero': 'zero_stage'}
    """
    held = dict.fromkeys(valid)
    meant = {name: same_as(name, held) for name in _keys() if name not in held}
    return {name: own for name, own in meant.items() if own is not None}


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

    def removesuffix(self, suffix: str, /) -> Wording:
        """The same without its last words."""
        *rest, last = self.pieces
        return worded(*rest, last.removesuffix(suffix) if isinstance(last, str) else last)


def worded(*pieces: str | Setting) -> Wording:
    """The sentence that pieces make: texts, settings, and other such sentences."""
    flat = [inner for piece in pieces for inner in (piece.pieces if isinstance(piece, Wording) else (piece,))]
    return Wording("".join(map(str, flat)), flat)


def listed(settings: Iterable[Setting], between: str = " and ") -> Wording:
    """Settings one after the other."""
    first, *rest = settings
    return worded(first, *(piece for each in rest for piece in (between, each)))
