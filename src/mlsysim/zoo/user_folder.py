"""Where a user's own entries are kept.

The environment variable ``MLSYSIM_ZOO`` names the folder; set but empty, there is none. Without the variable it is the folder
``mlsysim/zoo`` of the user's configuration: ``$XDG_CONFIG_HOME`` or ``~/.config``, on Windows ``%APPDATA%``. Nothing is read
before somebody asks a registry for a name, and a folder that does not exist is no folder.
"""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["VARIABLE", "chosen_folder", "user_folder"]

VARIABLE = "MLSYSIM_ZOO"


def _configuration() -> str:
    if os.name == "nt":
        return os.environ.get("APPDATA") or os.path.expanduser("~")
    return os.environ.get("XDG_CONFIG_HOME") or os.path.join(
        os.environ.get("HOME") or os.path.expanduser("~"), ".config"
    )


def chosen_folder() -> Path | None:
    """The folder that saved entries go to, whether or not it exists; None where the variable is set to nothing."""
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
    folder = os.path.join(_configuration(), "mlsysim", "zoo")
    return folder if os.path.isdir(folder) else ""
