"""The keys of a plan as data, from which every face is made: options, bodies of requests, controls, and what they are called.

A part of a plan (:class:`Part`) takes every name of :mod:`mlsysim.vocabulary` for its fields and refuses others with the nearest.
:func:`leaves` lists the fields that hold a value, with kind, unit, choices, meaning and the tasks that they matter to, so that a
field that is added to the plan is an option, a property and a control at once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, cached_property
from typing import Any, ClassVar, Literal, Self, get_args, get_origin

from pydantic import model_validator

from mlsysim.errors import InputError, did_you_mean, either, nearest
from mlsysim.units.fields import QuantityField, Record
from mlsysim.units.registry import number_from, two_meanings
from mlsysim.vocabulary import MEANT, PARTS, VALUES, WRITTEN, Setting, Wording, names_of, plain, remedy, valued
from mlsysim.zoo.files import shipped

ALL_TASKS = ("training", "serving", "inference", "rl")

_KEYS = shipped("mlsysim.data", "keys.toml")
_TASKS: dict[str, tuple[str, ...]] = {
    f"{line['part']}.{name}".rstrip("."): tuple(line["of"])
    for line in _KEYS["tasks"]
    for name in line.get("keys", "").split() or [""]
}
"""Tasks that a part or a key matters to, where it is not all of them."""
COMMON: dict[str, list[str]] = {task: keys.split() for task, keys in _KEYS["common"].items()}
"""Keys that people set, by task."""

_IN_SENTENCES = {"rl": "post-training", "inference": "one pass"}


def tasks_text(*tasks: str) -> str:
    """Tasks as sentences call them."""
    return either((_IN_SENTENCES.get(task, task) for task in tasks), "and")


SAID = ("task", "hardware.name", "hardware.nodes", "hardware.accelerators")
"""Keys that a command or request for one task, on a fleet in one string, says already."""


INSTEAD: dict[tuple[str, ...], str] = {tuple(line["fields"]): line["said"] for line in _KEYS["instead"]}
"""Fields of a part that may not stand beside each other, and what is said where they do."""


def read_number(value: Any) -> Any:
    """A number that may be text as people write it, such as 15e12, 15T, 2 million tokens or 40%; what is none stays, to be refused."""
    if isinstance(value, str) and (words := two_meanings(value)):
        raise ValueError(words)
    found = number_from(re.sub(r"(?i)(?<=\w)\s*tokens?\s*$", "", value)) if isinstance(value, str) else None
    return value if found is None else found


@cache
def _apart(part: type[Part]) -> list[tuple[tuple[str, ...], str]]:
    """Those of a part that may not stand beside each other."""
    return [(fields, sentence) for fields, sentence in INSTEAD.items() if {*fields} <= part.model_fields.keys()]


def said(record: Record, shown: Iterable[tuple[str | None, Any]]) -> Iterator[tuple[str | None, Any]]:
    """Of the fields that a text of a record shows those that say something."""
    fields = type(record).model_fields
    for name, value in shown:
        usual = None if name is None else fields[name].get_default(call_default_factory=True)
        if value is not None and value != usual:
            yield name, value


class Part(Record):
    """A part of a plan: its fields answer to every name of the vocabulary, its numbers may be written as 8k or 40%."""

    part_of: ClassVar[tuple[str, str]] = ("A plan", "")
    reads_booleans: ClassVar[bool] = True

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        yield from said(self, super().__repr_args__())

    @model_validator(mode="after")
    def _one_of(self) -> Self:
        for fields, sentence in _apart(type(self)):
            if all(getattr(self, name) is not None for name in fields):
                raise ValueError(sentence)
        return self

    @model_validator(mode="before")
    @classmethod
    def _by_any_name(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        found: dict[str, Any] = {}
        for name, item in value.items():
            field = cls.field_named(str(name))
            if field in found:
                text = f"{cls.part_of[1] + field!r} is given twice, as {name!r} too."
                raise InputError(text, record="Plan", field=str(name))
            own = cls.model_fields.get(field)
            number = own is not None and _kinds(own.annotation) in ([int], [float])
            if number and isinstance(item, bool):
                text = f"{cls.part_of[1] + field!r} is a number, got {str(item).lower()}."
                raise InputError(text, record="Plan", field=str(name))
            found[field] = read_number(item) if number else _worded(item, own)
        return found

    @classmethod
    def field_named(cls, name: str) -> str:
        """The field that a name stands for."""
        if name in cls.model_fields:
            return name
        path = cls.part_of[1]
        names = {own.alias or key: names_of(path + (own.alias or key)) for key, own in cls.model_fields.items()}
        for field, known in names.items():
            if plain(name) in known:
                return field
        raise unknown_key(path, name, list(names), [other for known in names.values() for other in known])


def _worded(value: Any, field: Any) -> Any:
    """A word of a field that takes some alone, by any of its names and in any case; everything else as it is."""
    kinds = _kinds(field.annotation) if field is not None and isinstance(value, str) else []
    words = [word for kind in kinds if get_origin(kind) is Literal for word in get_args(kind)]
    return next((word for word in words if plain(VALUES.get(plain(value), value)) == plain(str(word))), value)


_OPTION = re.compile(r"--([a-z][a-z-]*)( (?!and\b|or\b|for\b|with\b|is\b))?")


def _as_keys(options: str) -> str:
    """Options of the command line as the keys of a plan.

    >>> _as_keys("--micro-batch 4"), _as_keys("--qps 5, of --isl and --osl tokens")
    ("'micro_batch' = 4", "'qps' = 5, of 'isl' and 'osl' tokens")
    """
    found = _OPTION.sub(lambda each: f"{each[1].replace('-', '_')!r}{' = ' if each[2] else ''}", options)
    return found.replace(" = tokens", " tokens")


def unknown_key(path: str, name: str, fields: list[str], names: list[str], value: object = "") -> InputError:
    """The error for a name that is no key of a plan: the nearest field, else the nearest of all names."""
    if plain(name) in MEANT:
        key, example = MEANT[plain(name)]
        text = f"{path + name[:200]!r} is not a key of a plan; write {key!r}, such as {valued(example, value)!r}."
        return InputError(text, record="Plan", field=name[:200], suggestions=[key])
    instead = _as_keys(WRITTEN.get("--" + plain(name).replace("_", "-"), ""))
    if instead and not re.search(r"`|(^|\s)-", instead):
        text = f"{path + name[:200]!r} is not a key of a plan; {remedy(instead)}."
        return InputError(text, record="Plan", field=name[:200])
    close = nearest(name, fields) or nearest(name, names)
    hint = did_you_mean(close) if close else "the keys are " + ", ".join(fields) + "."
    text = f"{path + name[:200]!r} is not a key of a plan; {hint}"
    return InputError(text, record="Plan", field=name[:200], suggestions=close)


class Leaf:
    """A field of a plan that holds a value.

    ``key`` is its path in a plan, such as ``parallelism.tp``, ``part`` that of the table that it stands in; ``flat`` what it is called
    where all keys stand beside each other, ``names`` every name that it answers to; ``tasks`` those that it matters to.
    """

    def __init__(self, key: str, flat: str, field: Any) -> None:
        self.key, self.flat, self.field = key, flat, field
        self.part = key.rpartition(".")[0]
        self.names = tuple(dict.fromkeys((flat, *names_of(key)[1:])))
        self.meaning = str(field.description or "")
        self.tasks = _TASKS.get(key) or _TASKS.get(key.partition(".")[0]) or ALL_TASKS

    @cached_property
    def quantity(self) -> QuantityField | None:
        """Unit and example of a quantity."""
        for kind in (self.field, *_kinds(self.field.annotation)):
            for mark in (*getattr(kind, "metadata", ()), *getattr(kind, "__metadata__", ())):
                if isinstance(mark, QuantityField):
                    return mark
        return None

    @cached_property
    def choices(self) -> tuple[str, ...]:
        """The words that it takes, where nothing else is taken."""
        kinds = _kinds(self.field.annotation)
        return tuple(map(str, get_args(kinds[0]))) if len(kinds) == 1 and get_origin(kinds[0]) is Literal else ()

    @property
    def type(self) -> type | None:
        """``int``, ``float``, ``bool``; ``str`` for words and quantities; None for what is none of them."""
        kinds = _kinds(self.field.annotation)
        if self.quantity is not None or self.choices:
            return str
        return kinds[0] if len(kinds) == 1 and kinds[0] in (int, float, bool, str) else None

    @property
    def bounds(self) -> tuple[float | None, float | None]:
        """The least and the largest that it may be."""
        ends = [[getattr(mark, name, None) for mark in self.field.metadata] for name in ("ge", "le")]
        low, high = (next((end for end in found if end is not None), None) for found in ends)
        return low, high


def _kinds(annotation: Any) -> list[Any]:
    """The kinds of value that a field takes, but for nothing."""
    if get_origin(annotation) in (None, Literal, tuple) or hasattr(annotation, "__metadata__"):
        return [annotation]
    return [kind for kind in get_args(annotation) if kind is not type(None)]


def record_of(annotation: Any) -> type[Record] | None:
    """The record that a field holds, if it holds one; a list of records is a value."""
    return next((k for k in _kinds(annotation) if isinstance(k, type) and issubclass(k, Record)), None)


def leaves(record: type[Record]) -> dict[str, Leaf]:
    """The fields of a plan that hold values, by key; of two with one name the one nearer to the root keeps it."""
    walked = list(_walk(record, ""))
    flat: dict[str, str] = {}
    for key, _ in sorted(walked, key=lambda pair: pair[0].count(".")):
        name = key.rpartition(".")[2]
        flat[key] = key.replace(".", "_") if name in flat.values() else name
    return {key: Leaf(key, flat[key], field) for key, field in walked}


def _walk(record: type[Record], path: str) -> Iterator[tuple[str, Any]]:
    for name, field in record.model_fields.items():
        key = f"{path}{field.alias or name}"
        inner = record_of(field.annotation)
        if inner is not None:
            yield from _walk(inner, f"{key}.")
        else:
            yield key, field


def gathered(record: type[Record], document: Mapping[str, Any], known: Mapping[str, Leaf]) -> dict[str, Any]:
    """A document whose keys stand beside each other, in parts: ``{"tp": 8}`` becomes ``{"parallelism": {"tp": 8}}``.

    Parts that are already tables stay, so do those within them (``{"chip": {...}}``), and all may be mixed. Where a name is that of two keys, the plan's task decides.
    """
    found: dict[str, Any] = {}
    for name, value in document.items():
        part = PARTS.get(str(name), str(name))
        is_part = part in record.model_fields
        key = None if is_part and not isinstance(value, str) else key_named(str(name), known, document.get("task"))
        if isinstance(value, Mapping) and not is_part:
            key = next((path for path in _inner(known) if str(name) in (path, path.rpartition(".")[2])), key)
        if is_part and key is None:
            old = found.get(part)
            found[part] = {**old, **value} if isinstance(old, dict) and isinstance(value, dict) else value
            continue
        if key is None:
            names = [other for leaf in known.values() for other in leaf.names]
            raise unknown_key("", str(name), list(record.model_fields), names, value)
        *path, last = key.split(".")
        table = found
        for step in path:
            held = {} if table.get(step) is None else table[step]
            if not isinstance(held, dict):
                raise InputError(f"{name!r} cannot stand beside {step} = {held!r}.", record="Plan", field=str(name))
            # A copy, so that no table of the caller's is changed.
            table[step] = held = dict(held)
            table = held
        old = table.get(last)
        table[last] = {**old, **value} if isinstance(old, dict) and isinstance(value, Mapping) else value
    return found


def _inner(known: Mapping[str, Leaf]) -> list[str]:
    """Tables within a part, such as ``hardware.chip``."""
    return [*dict.fromkeys(key.rpartition(".")[0] for key in known if key.count(".") == 2)]


def key_named(name: str, known: Mapping[str, Leaf], task: Any = None) -> str | None:
    """The key that a name stands for: a path, a field's own name, or another of its names."""
    if name in known:
        return name
    wanted = plain(name)
    meant = [key for key, leaf in known.items() if wanted in leaf.names]
    own = [key for key in meant if known[key].flat == wanted]
    serving = [key for key in meant if key.startswith("serving.")] if task == "serving" else []
    return next(iter(serving or own or meant), None)


def in_words(error: InputError, say: Callable[[Leaf], str], known: Mapping[str, Leaf]) -> InputError:
    """An error about keys of a plan in the words of a face, whose name for a field is what ``say`` makes of it."""

    text, path = str(error), str(error.details.get("field"))
    field = known.get(path)
    if field is not None:
        for form in (f"The {path!r} field", f"the {path!r} field"):
            text = text.replace(form, say(field))
    details = {**error.details, "field": field.flat} if field is not None else error.details
    return type(error)(text[:1].upper() + text[1:], **details)


# --- settings in sentences ----------------------------------------------------------------------------------------

Write = Callable[[Leaf, Any], str]
"""How a face writes a setting; without a value the name alone."""


def spoken(sentence: str, write: Write, known: Mapping[str, Leaf]) -> str:
    """A sentence with its settings as a face writes them; one that names none as it is."""

    def written(setting: Setting) -> str:
        key = key_named(setting.name, known)
        return str(setting) if key is None else write(known[key], setting.value)

    return sentence.written(written) if isinstance(sentence, Wording) else sentence


def as_in_a_plan(leaf: Leaf, value: Any) -> str:
    """A setting as a plan file writes it: ``zero = 3``, ``recompute = "full"``."""
    name = leaf.key.rpartition(".")[2]
    if value is None:
        return name
    plain_text = isinstance(value, str) and not re.fullmatch(r"-?[\d.]+(e-?\d+)?", value)
    return f"{name} = {json.dumps(value) if plain_text or isinstance(value, bool) else value}"
