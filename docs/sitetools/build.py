"""Build the site into a folder, as ``make docs`` does."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

__all__ = ["MISSING", "build_site", "installed"]

ROOT = Path(__file__).resolve().parents[2]
MISSING = "MkDocs is not installed (pip install '.[docs]')"


def installed() -> bool:
    """Whether what the site is built with is there."""
    return all(find_spec(name) is not None for name in ("mkdocs", "material", "latex2mathml"))


def build_site(folder: Path, labs: Path | None = None) -> str:
    """Build the site, with the labs where a folder holds them; what was said. Any warning is an error."""
    surroundings = os.environ | {"NO_MKDOCS_2_WARNING": "1", "MLSYSIM_LABS": str(labs or "")}
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, env=surroundings, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stdout + done.stderr)
    return done.stdout + done.stderr
