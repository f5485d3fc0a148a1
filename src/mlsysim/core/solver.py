"""``mlsysim.core.solver``: every resolver under the documents' path."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from mlsysim.search import OPTIMIZERS
from mlsysim.walls.base import Resolver
from mlsysim.walls.catalog import RESOLVERS

_HOMES = {**RESOLVERS, **OPTIMIZERS}

ForwardModel = Resolver
"""The documents' name for the base class of resolvers."""

__all__ = ["ForwardModel", *_HOMES]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'mlsysim.core.solver' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
