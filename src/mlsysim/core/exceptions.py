"""``mlsysim.core.exceptions``: the errors under the documents' path."""

from __future__ import annotations

from mlsysim.errors import MLSysError, OOMError, SLAViolation, ThermalThrottleWarning

__all__ = ["MLSysError", "OOMError", "SLAViolation", "ThermalThrottleWarning"]
