"""Modules as bytecode: a page starts in a third of the time when it does not have to parse Python.

Bytecode belongs to one release of Python, so the pinned runtime itself compiles, in Node.js; a build without Node.js has sources, and its pages the
same answers later. What was compiled is kept in the cache by runtime, place and source. Docstrings, assertions and where in a source each instruction
came from are left out (``-OO``), and nothing is checked against a source at import (PEP 552), since there is none.

Reference: https://peps.python.org/pep-0552/
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory

from mlsysim.errors import InputError
from mlsysim.labs.package import Files, archive, members
from mlsysim.zoo.writing import write_whole

SITE = "/lib/python3.14/site-packages/"
STANDARD = "/lib/python314.zip/"
NEEDED = ("pyodide.js", "pyodide.asm.js", "pyodide.asm.wasm", "python_stdlib.zip", "pyodide-lock.json")
_LONGEST_SECONDS = 600
_READ_TOO = "mlsysim/walls/"
"""Modules whose sources are read as text, for the cards of the walls: they stay, and their bytecode lies beside them."""


def with_bytecode(places: Mapping[str, Files], runtime: Files, cache: Path) -> dict[str, Files]:
    """The same files, each ``.py`` as ``.pyc``, by the folder that Python finds them in; as they are where there is no Node.js."""
    node = shutil.which("node")
    if node is None or any(name not in runtime for name in NEEDED):
        return {place: dict(held) for place, held in places.items()}
    script = (Path(str(files("mlsysim.labs"))) / "bytecode.mjs").read_bytes()
    same = hashlib.sha256(b"".join([script, *(runtime[name] for name in NEEDED)])).digest()
    sources = {
        place + name: text for place, held in places.items() for name, text in held.items() if name.endswith(".py")
    }
    kept = {path: cache / f"{_digest(same, path, text)}.pyc" for path, text in sources.items()}
    missing = {path: text for path, text in sources.items() if not kept[path].is_file()}
    if missing:
        for path, code in _compiled(node, script, missing, runtime).items():
            write_whole(kept[path], code, folders=True)
    made = {path: file.read_bytes() for path, file in kept.items()}
    return {
        place: _replaced(held, {name: made[place + name] for name in held if place + name in made})
        for place, held in places.items()
    }


def _replaced(held: Files, made: Files) -> Files:
    """Bytecode in place of its source, or beside it."""
    found = {name: content for name, content in held.items() if name not in made or name.startswith(_READ_TOO)}
    for name, content in made.items():
        path = PurePosixPath(name)
        beside = path.parent / "__pycache__" / f"{path.stem}.cpython-314.pyc"
        found[str(beside) if name in found else f"{name}c"] = content
    return found


def _digest(same: bytes, path: str, text: bytes) -> str:
    return hashlib.sha256(same + path.encode() + b"\0" + text).hexdigest()[:40]


def _compiled(node: str, script: bytes, sources: Files, runtime: Files) -> Files:
    """Bytecode of sources by the path that their code is to name."""
    with TemporaryDirectory() as folder:
        here = Path(folder)
        written = {**{name: runtime[name] for name in NEEDED}, "compile.mjs": script, "sources.zip": archive(sources)}
        for name, content in {**written, "package.json": b'{"type": "module"}'}.items():
            (here / name).write_bytes(content)
        command = [node, "compile.mjs", "sources.zip", "compiled.zip"]
        try:
            done = subprocess.run(command, cwd=here, capture_output=True, text=True, timeout=_LONGEST_SECONDS)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise InputError(f"Node.js could not compile the modules of the site ({error}).") from None
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
            raise InputError(f"Node.js could not compile the modules of the site: {last[:300]}")
        return members((here / "compiled.zip").read_bytes())
