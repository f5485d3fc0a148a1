"""What comes with the package to start from, by name: ``scenario:llama3-70b-512-h100`` is a plan, ``space:chip-design`` a design space."""

from __future__ import annotations

import tomllib
from importlib.resources import files
from pathlib import Path
from typing import Any

from mlsysim.errors import InputError, unknown_name

FOLDERS = {"scenario": "scenarios", "space": "sweeps"}
"""Where the examples of a kind lie inside ``mlsysim/examples``."""


def shipped_files(kind: str) -> dict[str, Path]:
    """The files of a kind by name."""
    folder = Path(str(files("mlsysim"))) / "examples" / FOLDERS[kind]
    return {path.stem: path for path in sorted(folder.glob("*.toml"))}


def is_example(text: str, kind: str) -> bool:
    """Whether a text names an example of a kind, or means to."""
    return text.lower().startswith(f"{kind}:")


def example(text: str | Path, kind: str) -> Path:
    """The file that a text means: an example by its name, else the path that it is."""
    known = shipped_files(kind)
    if not is_example(str(text), kind):
        path = Path(text)
        if path.stem in known and not path.exists():
            raise InputError(f"{str(text)[-200:]!r} is not there; {kind}:{path.stem} comes with mlsysim.", field="file")
        return path
    name = str(text).partition(":")[2].strip().lower().removesuffix(".toml")
    if name not in known:
        raise unknown_name(kind, name, known, "`mlsysim scenarios` lists them.")
    return known[name]


def examples(kind: str) -> dict[str, dict[str, Any]]:
    """The tables of all examples of a kind by name."""
    return {name: tomllib.loads(path.read_text(encoding="utf-8")) for name, path in shipped_files(kind).items()}
