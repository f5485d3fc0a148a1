"""What the pages of a site ask the engine. Importing this module offers every function to :func:`call`.

A page starts with the explorer's functions; the modules of the others are imported when one of theirs is first called, since every module
that is imported keeps a reader waiting for the first answer.
"""

from __future__ import annotations

import sys
from functools import lru_cache
from importlib.metadata import version
from typing import Any

from mlsysim.labs import explorer
from mlsysim.labs.rpc import call, offer, offer_later, offered

__all__ = ["LATER", "about", "call", "explorer"]

LATER = {
    "submissions": ("class_view",),
    "curves": ("ahead", "curve", "curve_csv"),
    "dropped": ("keep_trace", "take_file", "take_model"),
    "exports": ("numbers_csv",),
    "further": ("cheapest", "compare", "explore", "further", "search_layout", "sensitivity", "settle", "why"),
    "live": ("live",),
    "machines": ("machine", "machines"),
    "runner": ("lab_answer", "lab_compute", "lab_finish", "lab_open", "lab_predict", "list_labs", "list_tracks"),
}
"""Modules of this room by name, and what they offer."""

for module, names in LATER.items():
    offer_later(f"mlsysim.labs.{module}", names)


@offer
@lru_cache
def about() -> dict[str, Any]:
    """Versions and the functions on offer; a page asks this first."""
    python = ".".join(str(part) for part in sys.version_info[:3])
    return {"mlsysim": version("mlsysim"), "python": python, "functions": offered()}
