"""A configuration read key by key: every value checked where it is used, every key that nobody used remembered.

A configuration is a stranger's dictionary. ``integer``, ``flag`` and the others take the first of several names under which
families write the same thing, refuse what is not such a value with one sentence, and note the key as read; ``unread`` is
what remains.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from mlsysim.errors import InputError

LARGEST = 1_000_000_000
"""No dimension of a network is larger: vocabularies are below 10 million, widths below 10 million."""

_LONGEST_LIST = 20_000
"""No network has more layers, so no list with an entry for each layer is longer."""


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
        if isinstance(value, list) and value and all(item == value[0] for item in value[:_LONGEST_LIST]):
            value = value[0]
        if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
            raise self._refuse(name, value, "a whole number")
        if not least <= value <= LARGEST:
            raise self._refuse(name, value, f"a whole number from {least} to {LARGEST:,}")
        if value != int(value):
            raise self._refuse(name, value, "a whole number")
        return int(value)

    def optional(self, *names: str, least: int = 1) -> int | None:
        """A whole number, or None where the key is absent or null."""
        self._find(names)
        return self.integer(*names, least=least) if self.has(*names) else None

    def number(self, *names: str, default: float) -> float:
        """A finite number above zero."""
        name, value = self._find(names)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self._refuse(name, value, "a number")
        if (isinstance(value, float) and not math.isfinite(value)) or not 0 < value <= LARGEST:
            raise self._refuse(name, value, f"a number above 0 and at most {LARGEST:,}")
        return float(value)

    def flag(self, *names: str, default: bool) -> bool:
        """True or false; 0 and 1 count as such."""
        name, value = self._find(names)
        if value is None:
            return default
        if value not in (True, False) or not isinstance(value, bool | int):
            raise self._refuse(name, value, "true or false")
        return bool(value)

    def text(self, *names: str, default: str = "") -> str:
        """Text of bounded length."""
        name, value = self._find(names)
        if value is None:
            return default
        if not isinstance(value, str) or len(value) > 10_000:
            raise self._refuse(name, value, "a short text")
        return value

    def sequence(self, *names: str) -> list[Any] | None:
        """A list of bounded length, or None."""
        name, value = self._find(names)
        if value is None:
            return None
        if not isinstance(value, list | tuple) or len(value) > _LONGEST_LIST:
            raise self._refuse(name, value, f"a list of at most {_LONGEST_LIST:,} entries")
        return list(value)

    def integers(self, *names: str) -> list[int] | None:
        """A list of whole numbers of at least zero, or None."""
        values = self.sequence(*names)
        if values is not None and not all(
            isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= LARGEST for value in values
        ):
            raise self._refuse(names[0], values, "a list of whole numbers")
        return values

    def per_layer(self, *names: str, layers: int) -> list[Any] | None:
        """A list with an entry for each layer, or None; a longer list (with layers that predict further tokens) is cut."""
        values = self.sequence(*names)
        if values is not None and len(values) < layers:
            raise InputError(
                f"The key '{self._prefix}{names[0]}' has {len(values)} entries for {layers} layers.", field=names[0]
            )
        return values[:layers] if values is not None else None

    def section(self, *names: str) -> Config | None:
        """A table inside this one, or None."""
        name, value = self._find(names)
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise self._refuse(name, value, "a table of keys")
        if name not in self._sections:
            self._sections[name] = Config(value, f"{self._prefix}{name}.")
        return self._sections[name]

    def raw(self, *names: str) -> Any:
        """Whatever is behind a key."""
        return self._find(names)[1]

    @property
    def unread(self) -> list[str]:
        """The keys that nobody read, sections included."""
        own = [f"{self._prefix}{key}" for key in self._given if isinstance(key, str) and key not in self._read]
        return sorted(own + [key for section in self._sections.values() for key in section.unread])
