"""A configuration read key by key: every value checked where it is used, every key that nobody used remembered.

A configuration is a stranger's dictionary. ``integer``, ``flag`` and the others take the first of several names under which
families write the same thing, refuse what is not such a value with one sentence, and note the key as read; ``unread`` is
what remains.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from typing import Any

from mlsysim.errors import InputError, UnknownNameError, unknown_name
from mlsysim.importers import table
from mlsysim.physics.precision import FORMATS, precision_name

LARGEST = 1_000_000_000
"""No dimension of a network is larger: vocabularies are below 10 million, widths below 10 million."""

_LONGEST_LIST = 20_000
"""No network has more layers, so no list with an entry for each layer is longer."""

KEYS: dict[str, tuple[str, ...]] = {field: tuple(keys) for field, keys in table("names")["keys"].items()}
"""What families call the same thing."""

_ONE = (*KEYS["layers"], *KEYS["width"], *KEYS["vocabulary"])
"""What a network has one of; other sizes some families write for each layer."""

_IN_LAYERS = tuple(key for field in ("heads", "kv_heads", "ffn", "expert_width") for key in KEYS[field])
"""What a list has an entry for each layer of."""


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


class Config:
    """One table of a configuration; ``section`` gives a table inside it."""

    def __init__(self, data: Mapping[str, Any], prefix: str = "") -> None:
        if not isinstance(data, Mapping):
            raise InputError(f"A model's configuration is a table of keys, not {type(data).__name__}.")
        self._data = data
        self._given = tuple(data)
        self._prefix = prefix
        self._read: set[str] = set()
        self._sections: dict[str, Config] = {}
        self._cut: dict[str, str] = {}

    def fill(self, defaults: Mapping[str, Any]) -> list[str]:
        """Take values for keys that are not there; returns those keys."""
        filled = [key for key in defaults if self._data.get(key) is None]
        self._data = {**self._data, **{key: defaults[key] for key in filled}}
        return filled

    def has(self, *names: str) -> bool:
        """Whether one of the keys is there with a value."""
        return any(self._data.get(name) is not None for name in names)

    def _find(self, names: tuple[str, ...]) -> tuple[str, Any]:
        for name in names:
            if name in self._data:
                self._read.add(name)
                if self._data[name] is not None:
                    return name, self._data[name]
        return names[0], None

    def _refuse(self, name: str, value: Any, expected: str) -> InputError:
        return InputError(f"The key '{self._prefix}{name}' must be {expected}, got {repr(value)[:60]}.", field=name)

    def _take(self, names: tuple[str, ...], default: Any, fits: Callable[[Any], bool], expected: str) -> Any:
        name, value = self._find(names)
        if value is not None and not fits(value):
            raise self._refuse(name, value, expected)
        return default if value is None else value

    def ignore(self, *names: str) -> None:
        """Note keys as read that say nothing about sizes."""
        self._read.update(name for name in names if name in self._data)

    def ignore_all(self) -> None:
        """Note every key of this table as read."""
        self._read.update(key for key in self._given if isinstance(key, str))

    def integer(self, *names: str, default: int | None = None, least: int = 1) -> int:
        """A whole number; without a default the key must be there."""
        name, value = self._find(names)
        if value is None:
            if default is None:
                raise InputError(f"The configuration has no '{self._prefix}{names[0]}'.", field=names[0])
            return default
        if isinstance(value, list) and len(value) > 1 and name not in _ONE and all(item == value[0] for item in value):
            if name in _IN_LAYERS and self.has(*KEYS["layers"]):
                self.per_layer(name, layers=self.integer(*KEYS["layers"]))
            value = value[0]
        number = _is_number(value) and value == value
        if number and not least <= value <= LARGEST:
            raise self._refuse(name, value, f"a whole number from {least} to {LARGEST:,}")
        if not number or value != int(value):
            raise self._refuse(name, value, "a whole number")
        return int(value)

    def optional(self, *names: str, least: int = 1) -> int | None:
        """A whole number, or None where the key is absent or null."""
        return None if self._find(names)[1] is None else self.integer(*names, least=least)

    def sizes(self, row: str) -> dict[str, Any]:
        """The whole numbers of a row of sizes in ``names.toml``, by the field of a workload that each fills."""
        found: dict[str, Any] = {}
        for field, keys in table("names")["sizes"][row].items():
            parts = [KEYS[key[1:]] if key.startswith("$") else (key,) for key in keys if isinstance(key, str)]
            names, last = tuple(itertools.chain(*parts)), keys[-1]
            default = None if isinstance(last, str) else last
            found[field] = self.optional(*names) if last is False else self.integer(*names, default=default)
        return found

    def number(self, *names: str, default: float) -> float:
        """A finite number above zero."""
        value = self._take(names, default, _is_number, "a number")
        within = math.isfinite(value) if isinstance(value, float) else True
        if not within or not 0 < value <= LARGEST:
            raise self._refuse(self._find(names)[0], value, f"a number above 0 and at most {LARGEST:,}")
        return float(value)

    def flag(self, *names: str, default: bool) -> bool:
        """True or false; 0 and 1 count as such."""
        return bool(
            self._take(names, default, lambda v: isinstance(v, bool | int) and v in (True, False), "true or false")
        )

    def text(self, *names: str, default: str = "") -> str:
        """Text of bounded length."""
        return self._take(names, default, lambda v: isinstance(v, str) and len(v) <= 10_000, "a short text")

    def format(self, *names: str) -> str | None:
        """A number format by the name that frameworks give it; None where it is left open."""
        named = self.text(*names).removeprefix("torch.")
        if named in ("", "auto"):
            return None
        try:
            return precision_name(named)
        except UnknownNameError:
            known = (*FORMATS, "float32", "float16", "bfloat16")
            raise unknown_name(f"format for the key '{self._prefix}{self._find(names)[0]}'", named, known) from None

    def sequence(self, *names: str) -> list[Any] | None:
        """A list of bounded length, or None."""
        expected = f"a list of at most {_LONGEST_LIST:,} entries"
        found = self._take(names, None, lambda v: isinstance(v, list | tuple) and len(v) <= _LONGEST_LIST, expected)
        return None if found is None else list(found)

    def integers(self, *names: str) -> list[int] | None:
        """A list of whole numbers of at least zero, or None."""
        values = self.sequence(*names)
        if not all(isinstance(v, int) and not isinstance(v, bool) and 0 <= v <= LARGEST for v in values or ()):
            raise self._refuse(names[0], values, "a list of whole numbers")
        return values

    def per_layer(self, *names: str, layers: int) -> list[Any] | None:
        """A list with an entry for each layer, or None; a longer one is cut, and said to be but for layers that predict further tokens."""
        name, values = self._find(names)[0], self.sequence(*names)
        if values is None:
            return None
        found = f"The key '{self._prefix}{name}' has {len(values)} entries for {layers} layers"
        if len(values) < layers:
            raise InputError(f"{found}.", field=name)
        if len(values) > layers + self.integer(*KEYS["further"], default=0, least=0):
            self._cut[name] = f"{found}: the first {layers} are taken."
        return values[:layers]

    def numbers_of_layers(self, *names: str, layers: int, first: int = 0) -> set[int]:
        """The layers that a list of their numbers names, counted from ``first``; each is there and named once."""
        values = self.integers(*names) or []
        name = self._find(names)[0]
        odd = next((n for n in values if not first <= n < first + layers or values.count(n) > 1), None)
        if odd is not None:
            fault = f"names layer {odd} twice" if values.count(odd) > 1 else f"names layer {odd} of {layers}"
            raise InputError(f"The key '{self._prefix}{name}' {fault}, numbered from {first}.", field=name)
        return {n - first for n in values}

    def section(self, *names: str) -> Config | None:
        """A table inside this one, or None."""
        value = self._take(names, None, lambda v: isinstance(v, Mapping), "a table of keys")
        name = self._find(names)[0]
        if value is not None and name not in self._sections:
            self._sections[name] = Config(value, f"{self._prefix}{name}.")
        return None if value is None else self._sections[name]

    def raw(self, *names: str) -> Any:
        """Whatever is behind a key."""
        return self._find(names)[1]

    @property
    def cut(self) -> list[str]:
        """A sentence for each list that has more entries than there are layers, sections included."""
        return [*self._cut.values(), *(note for section in self._sections.values() for note in section.cut)]

    @property
    def unread(self) -> list[str]:
        """The keys that nobody read, sections included."""
        own = [f"{self._prefix}{key}" for key in self._given if isinstance(key, str) and key not in self._read]
        return sorted(own + [key for section in self._sections.values() for key in section.unread])
