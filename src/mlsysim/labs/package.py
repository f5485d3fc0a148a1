"""What Python finds in a page: its standard library, the pinned wheels and our own package, as few and as small files as a start can do with.

The wheels are put together as an installer would lay them out, and go into one compressed file that the worker unpacks by itself: a name and a
length each, then the contents. The standard library stays a zip archive, which is what Python imports it from, of stored entries, compressed
as a whole. Left out is what a page cannot use: of our package the command line (typer and rich are not there) with the servers and the fits
that it alone leads to, and this room's tools for building and serving; of the others their tests, type stubs, former versions and other systems; of
the standard library what talks to terminals, processes and mail, and alphabets of one country. Names are sorted and carry one fixed time: the same sources give the same bytes.
"""

from __future__ import annotations

import gzip
import io
import json
import re
import tomllib
import zipfile
from collections.abc import Mapping
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path

Files = dict[str, bytes]

LEFT_OUT = (
    "__main__.py", "api/", "calibrate/", "cli/", "examples/", "labs/build.py", "labs/bytecode", "labs/fetch.py", "labs/gallery.py",
    "labs/lock.toml", "labs/package.py", "labs/serve.py", "labs/site/", "labs/snapshot",
)  # fmt: skip
PARSED = re.compile(r"mlsysim/data/(software/)?\w+\.toml")
"""Data that an answer reads whole: its tables lie beside it as JSON (``zoo.files.shipped``)."""
OTHERS_LEFT_OUT = (
    "annotated_types/test_cases.py", "flexcache/testsuite/", "flexparser/testsuite/", "pint/matplotlib.py", "pint/pint_convert.py", "pint/testing.py",
    "pint/testsuite/", "platformdirs/android.py", "platformdirs/ios.py", "platformdirs/macos.py", "platformdirs/testing.py",
    "platformdirs/windows.py", "pydantic/mypy.py", "pydantic/v1/",
)  # fmt: skip
STANDARD_LEFT_OUT = (
    "_pyrepl/", "bdb.py", "cProfile.py", "cmd.py", "compileall.py", "concurrent/interpreters/", "ctypes/", "doctest.py", "fileinput.py", "ftplib.py",
    "getpass.py", "http/cookie", "http/server.py", "imaplib.py", "logging/config.py", "logging/handlers.py", "mailbox.py", "modulefinder.py",
    "multiprocessing/", "netrc.py", "optparse.py", "pdb.py", "pickletools.py", "plistlib.py", "poplib.py", "profile.py", "pstats.py", "pyclbr.py",
    "pydoc.py", "shelve.py", "smtplib.py", "socketserver.py", "sqlite3/", "symtable.py", "tabnanny.py", "timeit.py", "trace.py", "tracemalloc.py",
    "turtle.py", "unittest/", "wave.py", "wsgiref/", "xml/dom/", "xmlrpc/", "zipapp.py",
)  # fmt: skip
ALPHABET = re.compile(
    r"encodings/(cp(?!437|1252)|mac|iso|koi|kz|hp|ptcp|palmos|tis|big5|gb|hz|euc|shift|johab|bz2|uu|rot|quopri)"
)
"""Encodings of no text that a page reads."""


def our_files() -> Files:
    """The files of the installed package that a page can use, and the metadata that tell its version."""
    root = Path(str(files("mlsysim")))
    found = {path.relative_to(root).as_posix(): path for path in root.rglob("*") if path.is_file()}
    kept = {
        f"mlsysim/{name}": path.read_bytes()
        for name, path in found.items()
        if "__pycache__/" not in name and not name.startswith(LEFT_OUT) and not name.endswith((".pyc", "~"))
    }
    tables = {name: tomllib.loads(text.decode()) for name, text in kept.items() if PARSED.fullmatch(name)}
    kept |= {f"{name[:-4]}json": json.dumps(held, separators=(",", ":")).encode() for name, held in tables.items()}
    about = f"Metadata-Version: 2.1\nName: mlsysim\nVersion: {version('mlsysim')}\n"
    return {**kept, f"mlsysim-{version('mlsysim')}.dist-info/METADATA": about.encode()}


def their_files(wheel: bytes) -> Files:
    """The files of a wheel that a page can use; of its description the fields alone."""
    found = {}
    for name, content in members(wheel).items():
        if name.endswith(".dist-info/METADATA"):
            found[name] = content.replace(b"\r\n", b"\n").partition(b"\n\n")[0] + b"\n"
        elif (
            ".dist-info/" not in name and not name.startswith(OTHERS_LEFT_OUT) and not name.endswith((".pyi", ".typed"))
        ):
            found[name] = content
    return found


def licences_of(wheel: bytes) -> str:
    """The texts of its licences that a wheel carries."""
    return "\n".join(
        content.decode("utf-8", "replace").strip() + "\n"
        for name, content in sorted(members(wheel).items())
        if ".dist-info/" in name and ("LICEN" in name.upper() or "COPYING" in name.upper())
    )


def standard_files(library: bytes) -> Files:
    """The modules of the standard library's archive that a page can use."""
    return {
        name: content
        for name, content in members(library).items()
        if not name.startswith(STANDARD_LEFT_OUT) and not ALPHABET.match(name)
    }


def members(archive: bytes) -> Files:
    """The files of a zip archive by name."""
    with zipfile.ZipFile(io.BytesIO(archive)) as found:
        return {entry.filename: found.read(entry) for entry in found.infolist() if not entry.is_dir()}


def archive(entries: Mapping[str, bytes]) -> bytes:
    """A zip archive of stored entries whose bytes depend on nothing but names and contents."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as target:
        for name in sorted(entries):
            entry = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
            entry.create_system = 3
            entry.external_attr = 0o644 << 16
            target.writestr(entry, entries[name])
    return out.getvalue()


def packed(entries: Mapping[str, bytes]) -> bytes:
    """Names and lengths as JSON behind the length of that JSON in four bytes, little end first, then the contents one after another."""
    head = json.dumps([[name, len(entries[name])] for name in sorted(entries)], separators=(",", ":")).encode()
    return len(head).to_bytes(4, "little") + head + b"".join(entries[name] for name in sorted(entries))


def compressed(content: bytes) -> bytes:
    """As gzip has it, without a time."""
    return gzip.compress(content, 9, mtime=0)
