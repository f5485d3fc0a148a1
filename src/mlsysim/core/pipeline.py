"""``mlsysim.core.pipeline``: composition under the documents' path."""

from __future__ import annotations

from mlsysim.engine.pipeline import CompositionError, Pipeline

__all__ = ["CompositionError", "Pipeline"]
