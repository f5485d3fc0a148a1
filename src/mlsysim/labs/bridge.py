"""What the pages of a site ask the engine. Importing this module offers every function to :func:`call`."""

from __future__ import annotations

import sys
from importlib.metadata import version
from typing import Any

from mlsysim.engine.scenario import Scenario
from mlsysim.labs.rpc import call, offer, offered

__all__ = ["about", "call", "evaluate"]


@offer
def about() -> dict[str, Any]:
    """Versions and the functions on offer; a page asks this first."""
    python = ".".join(str(part) for part in sys.version_info[:3])
    return {"mlsysim": version("mlsysim"), "python": python, "functions": offered()}


@offer
def evaluate(efficiency: float | str = 0.5, **scenario: Any) -> dict[str, Any]:
    """The three levels of a scenario; the arguments are the fields of :class:`~mlsysim.engine.scenario.Scenario`."""
    return Scenario(**scenario).evaluate(efficiency=efficiency).to_dict()
