"""``mlsysim.core.engine``: the engine under the documents' path."""

from __future__ import annotations

from mlsysim.engine.engine import Engine
from mlsysim.walls.node.performance import PerformanceProfile

__all__ = ["Engine", "PerformanceProfile"]
