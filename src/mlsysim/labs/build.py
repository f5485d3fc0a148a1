"""``labs build``: a folder of static files that runs the engine in a browser and asks no other host for anything.

    index.html                 the one document: its views from ``site/views/`` and the gallery put in
    *.html, *.js, *.css        the other files as they are in ``site/``
    figures.css                the style of every chart, which the charts of a page then go without
    plan_keys.js               the keys of a plan, of which the explorer's controls are made
    gallery/                   what the explorer shows of each scenario until Python has started
    labs.json                  the list of labs with a picture of each, and the mark that an instructor's key leaves in result codes
    pyodide/                   CPython for WebAssembly: the few files of the npm package that a browser loads
    memory.bin, library.bin    the memory of Python after its start and what it is linked to, where Node.js is there (``snapshot``)
    ordinary.bin               what is in that memory, for a browser whose own does not fit to it, which starts Python from its modules
    engine.bin                 what is not in that memory of our own package, pint, pydantic and what they need (``package``), compiled (``bytecode``)
    lists.json.gz              what the explorer's menus offer
    licences.txt               what is inside, under which licence
    manifest.json              every file with size and SHA-256; the worker loads what it lists

The folder works below any path of any static host. The same package, lock file and Node.js or none give the same bytes.
"""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Callable
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path, PurePosixPath
from typing import Any

from mlsysim.errors import InputError
from mlsysim.labs.bytecode import SITE, STANDARD, with_bytecode
from mlsysim.labs.catalogue import every_list, keys_module
from mlsysim.labs.codes import derived_key
from mlsysim.labs.fetch import Pin, cache_folder, fetch, pins
from mlsysim.labs.gallery import gallery, picture, told_json
from mlsysim.labs.lab import lab
from mlsysim.labs.package import Files, archive, compressed, licences_of, our_files, packed, standard_files, their_files
from mlsysim.labs.runner import list_labs, list_tracks
from mlsysim.labs.snapshot import with_memory
from mlsysim.plot.theme import stylesheet
from mlsysim.units.records import dataclass
from mlsysim.zoo.writing import write_whole

MANIFEST = "manifest.json"
LOCK_MEMBER = "package/pyodide-lock.json"
RUNTIME = ("pyodide.asm.js", "pyodide.asm.wasm")
LIBRARY = "pyodide/python_stdlib.bin"
ENGINE = "engine.bin"


@dataclass(frozen=True)
class Site:
    """A folder that was built."""

    folder: Path
    files: int
    bytes: int


def build(
    folder: Path, cache: Path | None = None, say: Callable[[str], None] = lambda text: None, key: str = ""
) -> Site:
    """Write the site into ``folder``, which must be new, empty, or a site that was built before.

    ``key`` is an instructor's own, mixed into the result codes of labs.
    """
    before = _previous(folder)
    made = contents(cache, say, key)
    for name in sorted(before - set(made)):
        (folder / name).unlink(missing_ok=True)
    say(f"writing {len(made)} files to {folder}")
    # The manifest first: a folder that was left half-written is known as ours, and the next build repairs it.
    for name in [MANIFEST, *sorted(set(made) - {MANIFEST})]:
        write_whole(folder / name, made[name], folders=True)
    return Site(folder, len(made), sum(len(content) for content in made.values()))


def contents(
    cache: Path | None = None, say: Callable[[str], None] = lambda text: None, key: str = ""
) -> dict[str, bytes]:
    """Every file of the site by its name below the folder."""
    say("the pictures of the labs")
    shown = [{**each, "picture": picture(lab(each["id"]))} for each in list_labs()]
    listed = _json({"key": derived_key(key), "tracks": list_tracks(), "labs": shown})
    say("the answers of the gallery")
    cards, told = gallery()
    made = {**_pages(cards), **{f"gallery/{name}.json.gz": compressed(told_json(each)) for name, each in told.items()}}
    made |= {"plan_keys.js": keys_module(), "labs.json": listed, "lists.json.gz": compressed(_json(every_list()))}
    runtime: Files = {}
    wheels: dict[str, bytes] = {}
    locked = pins()
    for pin in locked:
        say(f"{pin.name} {pin.version}")
        content = fetch(pin, cache)
        if pin.from_npm:
            runtime |= _runtime(content, pin)
        else:
            wheels[pin.name] = content
    say("the modules of Python")
    made |= _python(runtime, wheels, (cache_folder() if cache is None else cache) / "labs")
    made["licences.txt"] = _licences(locked, wheels)
    told = {
        name: {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        for name, content in sorted(made.items())
    }
    made[MANIFEST] = _json({"mlsysim": version("mlsysim"), "files": told})
    return made


def _python(runtime: Files, wheels: Files, cache: Path) -> Files:
    """The runtime, and the modules for it: the standard library, and everything else in one file."""
    installed = our_files()
    for wheel in wheels.values():
        installed |= their_files(wheel)
    given = {SITE: installed, STANDARD: standard_files(runtime["python_stdlib.zip"])}
    found, memory = with_memory(with_bytecode(given, runtime, cache / "bytecode"), runtime, cache / "memory")
    others = {name: content for name, content in runtime.items() if name not in (*RUNTIME, "python_stdlib.zip")}
    made = {f"pyodide/{name}": content for name, content in others.items()}
    large = {LIBRARY: archive(found[STANDARD]), ENGINE: packed(found[SITE]), **memory}
    large |= {f"pyodide/{name}.bin": runtime[name] for name in RUNTIME if name in runtime}
    return made | {name: compressed(content) for name, content in large.items()}


def _pages(cards: str = "") -> dict[str, bytes]:
    """The files of ``site/``; the views become parts of the one document, with the cards of the gallery in theirs."""
    root = Path(str(files("mlsysim.labs"))) / "site"
    found = {path.relative_to(root).as_posix(): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}
    views = {name: found.pop(name) for name in list(found) if name.startswith("views/")}
    document = found["index.html"].decode()
    for _ in range(2):  # a view may have another in it
        for name, content in views.items():
            document = document.replace(f"<!-- view: {PurePosixPath(name).stem} -->", "\n" + content.decode())
    return found | {
        "index.html": document.replace("<!-- gallery -->", cards).encode(),
        "figures.css": stylesheet().encode(),
    }


def _runtime(tarball: bytes, pin: Pin) -> dict[str, bytes]:
    """The members of the npm package that a browser loads, and a lock file that offers no further package."""
    with tarfile.open(fileobj=io.BytesIO(tarball)) as package:

        def read(name: str) -> bytes:
            member = package.extractfile(name)
            if member is None:
                raise InputError(f"The pinned Pyodide package has no file {name!r}; check lock.toml.")
            return member.read()

        made = {name: read(member) for member, name in pin.members.items()}
        info = json.loads(read(LOCK_MEMBER))["info"]
    return {**made, "pyodide-lock.json": _json({"info": info, "packages": {}})}


def _licences(locked: list[Pin], wheels: Files) -> bytes:
    rows = [
        ("mlsysim", version("mlsysim"), "MIT", "this site's own engine"),
        ("CPython", "in pyodide", "PSF-2.0", "https://www.python.org/"),
    ]
    rows += [(pin.name, pin.version, pin.license, pin.url) for pin in locked]
    head = "This site holds the following software; modules of Python may be compiled, and their sources are at these addresses.\n\n"
    listed = "".join(f"{name} {release}: {licence}, {url}\n" for name, release, licence, url in rows)
    texts = "".join(f"\n\n{name}\n\n{licences_of(wheel)}" for name, wheel in wheels.items())
    return (head + listed + texts).encode()


def _json(value: Any) -> bytes:
    return (json.dumps(value, indent=1) + "\n").encode()


def _previous(folder: Path) -> set[str]:
    """The files of the site that is in the folder now; a folder with anything else in it is refused."""
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file; give a folder for the site.")
    if not folder.exists() or not any(folder.iterdir()):
        return set()
    try:
        names = set(json.loads((folder / MANIFEST).read_bytes())["files"])
    except (OSError, ValueError, KeyError, TypeError):
        raise InputError(f"{folder} is not empty and holds no site of ours; give a new or empty folder.") from None
    if any(PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts for name in names):
        raise InputError(f"The {MANIFEST} in {folder} names files outside of it; give a new or empty folder.")
    return names
