"""``labs build``: a folder of static files that runs the engine in a browser and asks no other host for anything.

    index.html                 the one document: its views from ``site/views/`` and the gallery put in
    *.html, *.js, *.css        the other files as they are in ``site/``
    plan_keys.js               the keys of a plan, of which the explorer's controls are made
    gallery/                   what the explorer shows of each scenario until Python has started
    labs.json                  the list of labs with a picture of each, and the mark that an instructor's key leaves in result codes
    pyodide/                   CPython for WebAssembly: the few files of the npm package that a browser loads
    wheels/                    our own package, pint, pydantic and what they need
    licences.txt               what is inside, under which licence
    manifest.json              every file with size and SHA-256; the worker loads what it lists

The folder works below any path of any static host. The same package and lock file give the same bytes.

Our own package is a wheel written without a build tool. Left out of it is what a page cannot use: the command line (typer and
rich are not there), this room's tools for building and serving, and the measurement tables that calibration fits read with
NumPy. The build number in the file's name (``0browser``) tells it from the wheel of a release. Entries are sorted and carry one
fixed time, so that the same sources give the same bytes.

Reference: https://packaging.python.org/en/latest/specifications/binary-distribution-format/
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import tarfile
import zipfile
from collections.abc import Callable
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path, PurePosixPath
from typing import Any

from mlsysim.errors import InputError
from mlsysim.labs.catalogue import keys_module
from mlsysim.labs.codes import derived_key
from mlsysim.labs.fetch import Pin, fetch, pins
from mlsysim.labs.gallery import gallery, told_json
from mlsysim.labs.lab import lab
from mlsysim.labs.pictures import picture
from mlsysim.labs.runner import list_labs, list_tracks
from mlsysim.units.records import dataclass
from mlsysim.zoo.writing import write_whole

MANIFEST = "manifest.json"
LOCK_MEMBER = "package/pyodide-lock.json"
LEFT_OUT = (
    "__main__.py", "cli/", "calibrate/data/", "examples/", "labs/build.py", "labs/fetch.py", "labs/gallery.py", "labs/lock.toml",
    "labs/serve.py", "labs/site/",
)  # fmt: skip


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
    made = {**_pages(cards), **{f"gallery/{name}.json": told_json(each) for name, each in told.items()}}
    made |= {"plan_keys.js": keys_module(), "labs.json": listed}
    wheels: dict[str, bytes] = {}
    locked = pins()
    for pin in locked:
        say(f"{pin.name} {pin.version}")
        content = fetch(pin, cache)
        if pin.from_npm:
            made |= _runtime(content, pin)
        else:
            wheels[f"wheels/{pin.filename}"] = content
    name, content = browser_wheel([f"{pin.name}=={pin.version}" for pin in locked if pin.name in ("pint", "pydantic")])
    wheels[f"wheels/{name}"] = content
    made |= {**wheels, "licences.txt": _licences(locked)}
    told = {
        name: {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        for name, content in sorted(made.items())
    }
    made[MANIFEST] = _json({"mlsysim": version("mlsysim"), "wheels": list(wheels), "files": told})
    return made


def _pages(cards: str = "") -> dict[str, bytes]:
    """The files of ``site/``; the views become parts of the one document, with the cards of the gallery in theirs."""
    root = Path(str(files("mlsysim.labs"))) / "site"
    found = {path.relative_to(root).as_posix(): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}
    views = {name: found.pop(name) for name in list(found) if name.startswith("views/")}
    document = found["index.html"].decode()
    for _ in range(2):  # a view may have another in it
        for name, content in views.items():
            document = document.replace(f"<!-- view: {PurePosixPath(name).stem} -->", "\n" + content.decode())
    return found | {"index.html": document.replace("<!-- gallery -->", cards).encode()}


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
    return {**made, "pyodide/pyodide-lock.json": _json({"info": info, "packages": {}})}


def _licences(locked: list[Pin]) -> bytes:
    rows = [
        ("mlsysim", version("mlsysim"), "MIT", "this site's own engine"),
        ("CPython", "in pyodide", "PSF-2.0", "https://www.python.org/"),
    ]
    rows += [(pin.name, pin.version, pin.license, pin.url) for pin in locked]
    head = "This site holds the following software, unchanged; each wheel carries the text of its licence.\n\n"
    return (head + "".join(f"{name} {release}: {licence}, {url}\n" for name, release, licence, url in rows)).encode()


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


# --- our own wheel ----------------------------------------------------------------------------------------------------


def browser_wheel(requires: list[str]) -> tuple[str, bytes]:
    """File name and bytes of the wheel; ``requires`` are the requirements that its metadata states."""
    ours = version("mlsysim")
    info = f"mlsysim-{ours}.dist-info"
    entries = {f"mlsysim/{name}": path.read_bytes() for name, path in package_files()}
    needs = [f"Requires-Dist: {requirement}" for requirement in requires]
    about = ["Metadata-Version: 2.1", "Name: mlsysim", f"Version: {ours}", "Requires-Python: >=3.11", *needs]
    entries[f"{info}/METADATA"] = _lines(about)
    form = [
        "Wheel-Version: 1.0",
        "Generator: mlsysim labs",
        "Root-Is-Purelib: true",
        "Build: 0browser",
        "Tag: py3-none-any",
    ]
    entries[f"{info}/WHEEL"] = _lines(form)
    record = []
    for name, content in sorted(entries.items()):
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
        record.append(f"{name},sha256={digest},{len(content)}")
    entries[f"{info}/RECORD"] = _lines([*record, f"{info}/RECORD,,"])
    return f"mlsysim-{ours}-0browser-py3-none-any.whl", archive(entries)


def package_files() -> list[tuple[str, Path]]:
    """The files of the installed package that a page can use, by their name inside the package, sorted."""
    root = Path(str(files("mlsysim")))
    found = {path.relative_to(root).as_posix(): path for path in root.rglob("*") if path.is_file()}
    return sorted(
        (name, path)
        for name, path in found.items()
        if "__pycache__/" not in name and not name.startswith(LEFT_OUT) and not name.endswith((".pyc", "~"))
    )


def archive(entries: dict[str, bytes]) -> bytes:
    """A zip archive whose bytes depend on nothing but names and contents."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as target:
        for name in sorted(entries):
            entry = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.create_system = 3
            entry.external_attr = 0o644 << 16
            target.writestr(entry, entries[name], compresslevel=9)
    return out.getvalue()


def _lines(lines: list[str]) -> bytes:
    return ("\n".join(lines) + "\n").encode()
