"""Functions that a page may call by name: JSON in, JSON out, errors as one sentence.

A function offers itself with the decorator; the worker hands :func:`call` a name and the arguments as a JSON object.
The answer is ``{"ok": true, "value": ...}`` or ``{"ok": false, "error": "one sentence", "kind": "input" | "internal"}``;
``input`` is something that the person at the page can change.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterable
from functools import lru_cache
from importlib import import_module
from typing import Any, TypeVar

from mlsysim.errors import DimensionalityError, InputError, MLSysError, unknown_name
from mlsysim.importers.limits import nesting

Offered = TypeVar("Offered", bound=Callable[..., Any])

_FUNCTIONS: dict[str, Callable[..., Any]] = {}
_LATER: dict[str, str] = {}
_DEEPEST = 64
"""How deep arguments may be nested: those of plans are so nested that their own sentence is the first."""


def offer(function: Offered) -> Offered:
    """Let pages call this function by its name. Its arguments and its value must be what JSON can carry."""
    name, room = function.__name__, function.__module__
    other = _FUNCTIONS.setdefault(name, function).__module__
    if other != room:
        raise ValueError(f"{name!r} is offered by {other} already, so {room} cannot offer it.")
    _FUNCTIONS[name] = function
    return function


def offer_later(module: str, names: Iterable[str]) -> None:
    """Import a module, which offers these functions, when one of them is first called."""
    _LATER.update(dict.fromkeys(names, module))


def offered() -> list[str]:
    """The names that :func:`call` answers to."""
    return sorted({*_FUNCTIONS, *_LATER})


def call(name: str, arguments: str = "{}") -> str:
    """Call an offered function with the arguments in a JSON object; never raises."""
    try:
        answer = {"ok": True, "value": _run(name, arguments)}
        return json.dumps(answer, allow_nan=False)
    except (MLSysError, DimensionalityError) as error:
        return _failure(str(error), "input")
    except Exception as error:
        return _failure(f"{name} failed: {type(error).__name__}: {error}", "internal")


def _run(name: str, arguments: str) -> Any:
    if name not in _FUNCTIONS and name in _LATER:
        import_module(_LATER[name])
    if name not in _FUNCTIONS:
        raise unknown_name("function", name, offered())
    function = _FUNCTIONS[name]
    if nesting(arguments) > _DEEPEST:
        raise InputError(f"The arguments of {name} are nested more than {_DEEPEST} deep.")
    try:
        given = json.loads(arguments)
    except json.JSONDecodeError as error:
        raise InputError(f"The arguments of {name} are no JSON: {error}.") from None
    if not isinstance(given, dict):
        raise InputError(f"The arguments of {name} must be a JSON object, not {type(given).__name__}.")
    try:
        bound = _signature(function).bind(**given)
    except TypeError as error:
        raise InputError(f"{name}: {error}; its arguments are {_signature(function)}.") from None
    return function(*bound.args, **bound.kwargs)


_signature = lru_cache(inspect.signature)


def _failure(sentence: str, kind: str) -> str:
    return json.dumps({"ok": False, "error": " ".join(sentence.split()), "kind": kind})
