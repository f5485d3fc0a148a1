"""Our own package as a wheel for the browser, written without a build tool.

Left out is what a page cannot use: the command line (typer and rich are not there), this room's tools for building and
serving, and the measurement tables that calibration fits read with NumPy. The build number in the file's name
(``0browser``) tells it from the wheel of a release. Entries are sorted and carry one fixed time, so that the
same sources give the same bytes.

Reference: https://packaging.python.org/en/latest/specifications/binary-distribution-format/
"""

from __future__ import annotations

import base64
import hashlib
import io
import zipfile
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path

LEFT_OUT = (
    "__main__.py", "cli/", "calibrate/data/", "labs/build.py", "labs/fetch.py", "labs/lock.toml", "labs/serve.py",
    "labs/site/", "labs/wheel.py",
)  # fmt: skip


def browser_wheel(requires: list[str]) -> tuple[str, bytes]:
    """File name and bytes of the wheel; ``requires`` are the requirements that its metadata states."""
    ours = version("mlsysim")
    info = f"mlsysim-{ours}.dist-info"
    entries = {f"mlsysim/{name}": path.read_bytes() for name, path in package_files()}
    entries[f"{info}/METADATA"] = _lines(
        "Metadata-Version: 2.1",
        "Name: mlsysim",
        f"Version: {ours}",
        "Requires-Python: >=3.11",
        *(f"Requires-Dist: {requirement}" for requirement in requires),
    )
    entries[f"{info}/WHEEL"] = _lines(
        "Wheel-Version: 1.0", "Generator: mlsysim labs", "Root-Is-Purelib: true", "Build: 0browser", "Tag: py3-none-any"
    )
    record = [f"{name},{_record_hash(content)},{len(content)}" for name, content in sorted(entries.items())]
    entries[f"{info}/RECORD"] = _lines(*record, f"{info}/RECORD,,")
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


def _record_hash(content: bytes) -> str:
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")


def _lines(*lines: str) -> bytes:
    return ("\n".join(lines) + "\n").encode()
