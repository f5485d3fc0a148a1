"""Plans as launch text."""

from __future__ import annotations

from typing import Any

from mlsysim.api.requests import ExportRequest
from mlsysim.errors import InputError

__all__ = ["export"]


def export(request: ExportRequest) -> dict[str, Any]:
    """The text of a plan for a target."""
    raise InputError("This installation writes no launch files.", field="to")
