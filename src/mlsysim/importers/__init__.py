"""Readers of what others write: model configurations, checkpoints' headers, operator graphs and traces.

Nothing that is read is executed or unpickled, and every reader bounds what it loads (``limits.py``). What others call things
stands in ``names.toml``, what families of decoders leave unsaid in ``families.toml``.
"""

from functools import cache
from typing import Any

from mlsysim.zoo.files import shipped


def table(name: str) -> dict[str, Any]:
    """One of the tables beside this file."""
    return shipped(__name__, f"{name}.toml")


@cache
def named(section: str, name: str) -> frozenset[str]:
    """A set of names of ``names.toml``."""
    return frozenset(table("names")[section][name])
