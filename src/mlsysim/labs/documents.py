"""What travels between the explorer and the engine: a plan as its document, read as plan files are."""

from __future__ import annotations

import json
from typing import Any

from mlsysim.errors import InputError
from mlsysim.plans.files import plan_from_text
from mlsysim.plans.plan import Plan

Document = dict[str, Any]


def plan_of(document: Document) -> Plan:
    """The plan of a document; unknown keys are refused with the nearest valid one."""
    if not isinstance(document, dict):
        raise InputError(f"A plan is a table of workload, hardware and so on, not {type(document).__name__}.")
    return plan_from_text(json.dumps(document), "json", "The plan")
