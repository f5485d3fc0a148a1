"""What the pages of a site ask the engine. Importing this module offers every function to :func:`call`."""

from __future__ import annotations

import sys
from importlib.metadata import version
from typing import Any

from mlsysim.labs import classroom, curves, dropped, explorer, exports, live, machines, runner
from mlsysim.labs.rpc import call, offer, offered

__all__ = ["about", "call", "classroom", "curves", "dropped", "explorer", "exports", "live", "machines", "runner"]


@offer
def about() -> dict[str, Any]:
    """Versions and the functions on offer; a page asks this first."""
    python = ".".join(str(part) for part in sys.version_info[:3])
    return {"mlsysim": version("mlsysim"), "python": python, "functions": offered()}
