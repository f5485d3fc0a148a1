"""The memory of Python after its start, so that a page does not go through the start: no module is imported, no table read before the first answer.

The pinned runtime starts in Node.js as it would in a page, imports the engine, answers a training and a serving plan, forgets the answers and is
written down (``snapshot.mjs``), less what a runtime in which nothing has run has at the same places. Modules that are in the memory need no
bytecode beside it, but for a browser whose memory is another one: it takes them from ``ordinary.bin`` and starts. Time stands still and chance is fixed meanwhile, so that the same sources give the same bytes. A build without Node.js has
no memory, and its pages the same answers later.

Reference: https://pyodide.org/en/stable/usage/api/js-api.html (``_makeSnapshot``, ``_loadSnapshot``)
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from mlsysim.errors import InputError
from mlsysim.labs.bytecode import NEEDED, SITE, STANDARD
from mlsysim.labs.package import Files, archive, packed
from mlsysim.plans.audit import AUDITED
from mlsysim.zoo.writing import write_whole

BESIDE = "/lib/python3.14/"
"""Where Python is told to look before its archive (``worker.js``)."""
_LONGEST_SECONDS = 600
_SERVING = {
    "task": "serving",
    "workload": {"model": "Llama3_8B"},
    "hardware": {"on": "1xH100"},
    "serving": {"prompt_tokens": 512, "output_tokens": 128, "concurrency": 32},
}


def start() -> list[tuple[str, dict[str, Any]]]:
    """What is asked before the memory is written down."""
    training, serving = ({"plan": plan} for plan in (AUDITED.document(), _SERVING))
    return [("about", {}), ("at_once", training), ("further", training), ("at_once", serving), ("further", serving)]


def with_memory(places: Mapping[str, Files], runtime: Files, cache: Path) -> tuple[dict[str, Files], Files]:
    """The files that Python still has to find, by folder; by name the memory, the library that it is linked to, and the others for a start without it.

    Without Node.js there is none of those three.
    """
    found = {place: dict(held) for place, held in places.items()}
    node = shutil.which("node")
    library = next((name for name in found[SITE] if name.endswith(".so")), None)
    if node is None or library is None or any(name not in runtime for name in NEEDED):
        return found, {}
    script = (Path(str(files("mlsysim.labs"))) / "snapshot.mjs").read_bytes()
    calls = json.dumps(start())
    given = {name: runtime[name] for name in NEEDED} | {
        "python_stdlib.zip": archive(found[STANDARD]),
        "modules.bin": packed(found[SITE]),
        "snapshot.mjs": script,
        "package.json": b'{"type": "module"}',
    }
    digest = hashlib.sha256(calls.encode() + b"".join(given[name] for name in sorted(given))).hexdigest()[:40]
    kept = {name: cache / f"{digest}.{name}" for name in ("memory.bin", "held.json")}
    if not all(path.is_file() for path in kept.values()):
        for name, content in _written(node, given, library, calls, list(kept)).items():
            write_whole(kept[name], content, folders=True)
    held = set(json.loads(kept["held.json"].read_bytes())) | {SITE + library}
    left = {
        place: {name: text for name, text in each.items() if place + name not in held} for place, each in found.items()
    }
    ordinary = {path.removeprefix("/"): text for path, text in _ordinary(found, left).items() if path != SITE + library}
    memory = {"memory.bin": kept["memory.bin"].read_bytes(), "library.bin": found[SITE][library]}
    return left, memory | {"ordinary.bin": packed(ordinary)}


def _ordinary(found: Mapping[str, Files], left: Mapping[str, Files]) -> Files:
    """By path what a start without the memory needs beside the files that are left.

    The standard library's archive is short of what is held, and Python looks into a folder before it: there those modules lie, and their packages
    whole, since a package is in one place.
    """
    made = {SITE + name: text for name, text in found[SITE].items() if name not in left[SITE]}
    tops = {name.split("/")[0] for name in found[STANDARD] if name not in left[STANDARD]}
    return made | {BESIDE + name: text for name, text in found[STANDARD].items() if name.split("/")[0] in tops}


def _written(node: str, given: Files, library: str, calls: str, wanted: list[str]) -> Files:
    with TemporaryDirectory() as folder:
        for name, content in given.items():
            (Path(folder) / name).write_bytes(content)
        command = [node, "snapshot.mjs", library, calls]
        try:
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=_LONGEST_SECONDS)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise InputError(f"Node.js could not write the memory of the site ({error}).") from None
        if done.returncode:
            lines = [line for line in done.stderr.splitlines() if "Error" in line[:60]] or ["it said nothing"]
            raise InputError(f"Node.js could not write the memory of the site: {lines[-1][:300]}")
        return {name: (Path(folder) / name).read_bytes() for name in wanted}
