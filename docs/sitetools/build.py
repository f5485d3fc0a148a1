"""Build the site into a folder, as ``make docs`` does: the pages as plain Markdown, a generator over them, and what the theme must not do taken out.

The generator is MkDocs with its theme Material; ``mkdocs.yml`` names pages, theme and extensions of Markdown, and nothing of the project runs inside it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

__all__ = ["MISSING", "build_site", "installed"]

ROOT = Path(__file__).resolve().parents[2]
MISSING = "MkDocs is not installed (pip install '.[docs]')"
_REMOTE_SCRIPTS = (
    ("https://unpkg.com/resize-observer-polyfill", "data:,"),
    ("https://unpkg.com/mermaid@11/dist/mermaid.min.js", "data:,"),
)
_HOME = ' <a href="../index.html">Docs</a>'
"""The labs have a link to the documentation where they lie beside it."""


def installed() -> bool:
    """Whether what the site is built with is there."""
    return all(find_spec(name) is not None for name in ("mkdocs", "material", "latex2mathml"))


def build_site(folder: Path, labs: Path | None = None, pages: Path | None = None) -> str:
    """Build the site, with the labs where a folder holds them; what was said. Any warning is an error. ``pages`` keeps the Markdown."""
    from .pages import write_pages

    if labs is not None and not (labs / "index.html").is_file():
        raise RuntimeError(f"{labs} holds no built labs; run `mlsysim labs build {labs}` first")
    with tempfile.TemporaryDirectory() as spare:
        there = (pages or Path(spare) / "pages").resolve()
        write_pages(there, labs is not None)
        said = _rendered(there, folder.resolve())
    _finish(folder)
    if labs is not None:
        shutil.copytree(labs, folder / "labs", dirs_exist_ok=True)
        page = folder / "labs" / "index.html"
        page.write_text(page.read_text(encoding="utf-8").replace("</nav>", _HOME + "</nav>", 1), encoding="utf-8")
    return said


def _rendered(pages: Path, folder: Path) -> str:
    surroundings = os.environ | {"NO_MKDOCS_2_WARNING": "1", "MLSYSIM_PAGES": str(pages)}
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, env=surroundings, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stdout + done.stderr)
    return done.stdout + done.stderr


def _finish(folder: Path) -> None:
    """Keep the theme from asking other hosts; a map of a site without an address has nothing in it but a date."""
    for script in (folder / "assets" / "javascripts").glob("bundle.*.js"):
        text = script.read_text(encoding="utf-8")
        for there, here in _REMOTE_SCRIPTS:
            text = text.replace(there, here)
        script.write_text(text, encoding="utf-8")
    for leftover in [*(folder / "assets").rglob("*.map"), *folder.glob("sitemap.xml*")]:
        leftover.unlink()
