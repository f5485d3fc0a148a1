"""pint without what a command does not use of it: arrays, and the reader of files of definitions.

Both take longer to import than the rest of pint. A quantity of a command is one number, so that NumPy is not looked for; units are
defined as data (:mod:`mlsysim.units.registry`), so that pint's reader, and the two packages under it, are put in place only once
something is asked of them: a registry makes a reader when it begins, and ours never uses it. pint and pydantic also import
what reads the metadata of packages, with the readers of mail and archives under it: it is imported once something is asked of it.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any

_ARRAYS = ("numpy", "dask")
_METADATA = "importlib.metadata"
_READERS = ("pint.delegates.base_defparser", "pint.delegates.txt_defparser")


def import_pint() -> None:
    """Import pint, its reader of definitions later; where it is there already, or made otherwise than known here, as anybody imports it."""
    if "pint" in sys.modules:
        return
    hidden = [name for name in _ARRAYS if name not in sys.modules]
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]
    sys.modules.update({name: _Later(name) for name in _READERS})
    if _METADATA not in sys.modules:
        importlib.metadata = sys.modules[_METADATA] = _Metadata(_METADATA)
    try:
        import_module("pint")
    except Exception:
        for name in [name for name in sys.modules if name.partition(".")[0] == "pint"]:
            del sys.modules[name]
    for name in hidden:
        del sys.modules[name]


class _Metadata(ModuleType):
    """``importlib.metadata`` once one of its names is asked for. pint asks for its own version while it is imported, and does without."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name not in ("version", "entry_points"):
            return getattr(self._real(), name)
        return lambda *args, **options: self._asked(name, *args, **options)

    def _asked(self, name: str, *args: Any, **options: Any) -> Any:
        if name == "version" and "pint" in sys.modules and not hasattr(sys.modules["pint"], "__version__"):
            raise LookupError(name)
        return getattr(self._real(), name)(*args, **options)

    def _real(self) -> ModuleType:
        if sys.modules.get(_METADATA) is self:
            del sys.modules[_METADATA]
        return import_module(_METADATA)


class _Later(ModuleType):
    """A module that is imported once something that it made is used."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__path__: list[str] = []

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *args, **options: _Made(lambda: getattr(_real(self.__name__), name)(*args, **options))


class _Made:
    """What is made of a class once it is used."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make

    def __getattr__(self, name: str) -> Any:
        made = self._make()
        self.__dict__.update(made.__dict__)
        self.__class__ = made.__class__
        return getattr(self, name)


def _real(name: str) -> ModuleType:
    """The module itself, in place of what stood for it."""
    for each in _READERS:
        if isinstance(sys.modules.get(each), _Later):
            del sys.modules[each]
    for each in _READERS:
        parent, _, own = each.rpartition(".")
        setattr(sys.modules[parent], own, import_module(each))
    return sys.modules[name]
