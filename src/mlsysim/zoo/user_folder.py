"""Where a user's own entries are kept.

The environment variable ``MLSYSIM_ZOO`` names the folder; set but empty, there is none. Without the variable it is the folder
``mlsysim/zoo`` of the user's configuration: ``$XDG_CONFIG_HOME`` or ``~/.config``, on Windows ``%APPDATA%``. Nothing is read
before somebody asks a registry for a name, and a folder that does not exist is no folder. Registries ask for every name, so
whether a folder exists is found out once for each, and again after something may have been saved there.
"""

from __future__ import annotations

import os
from pathlib import Path

VARIABLE = "MLSYSIM_ZOO"


def _configuration() -> str:
    if os.name == "nt":
        return os.environ.get("APPDATA") or os.path.expanduser("~")
    return os.environ.get("XDG_CONFIG_HOME") or os.path.join(
        os.environ.get("HOME") or os.path.expanduser("~"), ".config"
    )


_found: dict[str, str] = {}
"""What ``user_folder`` found for a configuration: the folder, or nothing."""


def chosen_folder() -> Path | None:
    """The folder that saved entries go to, whether or not it exists; None where the variable is set to nothing."""
    _found.clear()
    named = os.environ.get(VARIABLE)
    if named is not None:
        return Path(named) if named else None
    return Path(_configuration(), "mlsysim", "zoo")


def user_folder() -> str:
    """The folder to read, as text; empty where there is none. A folder that the variable names is given even if it is missing,
    so that the mistake is noticed."""
    named = os.environ.get(VARIABLE)
    if named is not None:
        return named
    place = _configuration()
    if place not in _found:
        folder = os.path.join(place, "mlsysim", "zoo")
        _found[place] = folder if os.path.isdir(folder) else ""
    return _found[place]
