"""``dataclass`` for records that do not change, at a sixth of what the standard one costs to define.

The standard decorator compiles six functions for each frozen class, about a millisecond where a module is imported, and
most classes of a command are never made. Here ``__init__`` is compiled when it is first asked for, and what compares,
hashes and prints is written once for all. To readers and type checkers it is the standard decorator.
"""

from __future__ import annotations

import dataclasses
from dataclasses import MISSING, FrozenInstanceError
from functools import cache, partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(cls=None, /, *, frozen=False, slots=False, repr=True, eq=True):
        """The standard ``dataclass``, with methods that are made once they are needed where it is frozen."""
        if cls is None:
            return partial(dataclass, frozen=frozen, slots=slots, repr=repr, eq=eq)
        if not frozen:
            return dataclasses.dataclass(cls, slots=slots, repr=repr, eq=eq)
        # Without a text of its own the standard one gives a class its signature, which takes longer than all the rest.
        cls.__doc__ = cls.__doc__ or cls.__name__
        made = dataclasses.dataclass(cls, init=False, repr=False, eq=False, slots=slots)
        methods = {"__init__": _Init(made), "__setattr__": _set, "__delattr__": _delete}
        if slots:
            methods |= {"__getstate__": _state, "__setstate__": _restore}
        if repr:
            methods["__repr__"] = _repr
        if eq:
            methods |= {"__eq__": _eq, "__hash__": _hash}
        for name, method in methods.items():
            # A class that writes __eq__ has None where its hash would be.
            if made.__dict__.get(name) is None:
                setattr(made, name, method)
        return made


class _Init:
    """The ``__init__`` of a class until somebody asks for it."""

    def __init__(self, made: type) -> None:
        self.made = made

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        made = _init(self.made)
        setattr(self.made, "__init__", made)  # noqa: B010
        return made.__get__(instance, owner)


def _init(made: Any) -> Any:
    """``__init__`` with the fields as its parameters, which says what was forgotten as any function does."""
    scope: dict[str, Any] = {"_set": object.__setattr__, "_no_value": MISSING}
    plain: list[str] = []
    named: list[str] = []
    body = []
    for field in dataclasses.fields(made):
        name, factory = field.name, field.default_factory is not MISSING
        default = f"_default_{name}"
        scope[default] = field.default_factory if factory else field.default
        optional = factory or field.default is not MISSING
        if field.init:
            given = name + (f"={'_no_value' if factory else default}" if optional else "")
            (named if field.kw_only else plain).append(given)
            body.append(f"_set(self, {name!r}, {f'{default}() if {name} is _no_value else ' if factory else ''}{name})")
        elif optional:
            body.append(f"_set(self, {name!r}, {default}{'()' if factory else ''})")
    if hasattr(made, "__post_init__"):
        body.append("self.__post_init__()")
    parameters = ", ".join(["self", *plain, *(["*"] if named else []), *named])
    exec(f"def __init__({parameters}):\n  " + "\n  ".join(body or ["pass"]), scope)
    written = scope["__init__"]
    written.__qualname__, written.__module__ = f"{made.__qualname__}.__init__", made.__module__
    written.__annotations__ = {field.name: field.type for field in dataclasses.fields(made) if field.init}
    return written


@cache
def _compared(made: Any) -> Any:
    """What reads the fields that make two of a class equal, as a tuple."""
    names = [field.name for field in dataclasses.fields(made) if field.compare]
    return attrgetter(*(names * 2 if len(names) == 1 else names)) if names else type


def _eq(self: Any, other: Any) -> Any:
    made = self.__class__
    if other.__class__ is not made:
        return NotImplemented
    reader = _compared(made)
    return reader(self) == reader(other)


def _hash(self: Any) -> int:
    return hash(_compared(self.__class__)(self))


def _repr(self: Any) -> str:
    shown = ", ".join(f"{f.name}={getattr(self, f.name)!r}" for f in dataclasses.fields(self) if f.repr)
    return f"{self.__class__.__qualname__}({shown})"


def _set(self: Any, name: str, value: object) -> None:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _delete(self: Any, name: str) -> None:
    raise FrozenInstanceError(f"cannot delete field {name!r}")


def _state(self: Any) -> list[Any]:
    return [getattr(self, field.name) for field in dataclasses.fields(self)]


def _restore(self: Any, state: list[Any]) -> None:
    for field, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, field.name, value)
