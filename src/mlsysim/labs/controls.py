"""The keys of a plan as the explorer's controls need them, written into the site when it is built.

``site/controls.js`` says how the controls look that a page is drawn around; every other key of a plan gets a plain one from what stands
here, so that a key that is added to the plan is on the page with the next build.
"""

from __future__ import annotations

import json
from typing import Any

from mlsysim.plans.plan import Plan
from mlsysim.plans.plan_parts import FREE
from mlsysim.plans.schema import Leaf

NOT_CONTROLS = {
    "name": "the page names the design itself",
    "description": "it is for files",
    "task": "the segments above the form",
    "hardware.name": "the fleet is one string",
    "hardware.nodes": "the fleet is one string",
    "hardware.accelerators": "the fleet is one string",
    "parallelism.mode": "the button that searches layouts",
    "parallelism.micro_batches": "the size of a micro-batch says it",
    "ops.duration": "one control in days",
    "ops.duration_days": "one control in days",
    "constraints.assert": "limits have controls of their own",
}
"""Keys without a control of their own, and why."""

_LISTS = {
    "workload.model": "models", "workload.precision": "precisions", "workload.optimizer": "optimizers",
    "hardware.on": "chips", "hardware.fabric": "fabrics", "hardware.stack": "stacks",
    "parallelism.schedule": "schedules", "serving.engine": "engines", "serving.cache_precision": "precisions",
    "serving.draft_model": "models", "ops.region": "regions",
}  # fmt: skip
"""The lists of :mod:`mlsysim.labs.catalogue` that a key's values come from."""


def plan_keys() -> list[dict[str, Any]]:
    """Keys with a control: path, label, tasks, meaning, and what values they take."""
    return [_described(leaf) for key, leaf in Plan.leaves().items() if key not in NOT_CONTROLS]


def _described(leaf: Leaf) -> dict[str, Any]:
    least, most = leaf.bounds
    kinds = {int: "whole", bool: "flag", float: "share" if most is not None and most <= 1 else "number"}
    found = {
        "path": leaf.key,
        "label": leaf.flat.replace("_", " ").capitalize(),
        "meaning": leaf.meaning,
        "tasks": list(leaf.tasks),
        "kind": "text" if leaf.type is None else kinds.get(leaf.type, "text"),
        "choices": list(leaf.choices),
        "list": _LISTS.get(leaf.key),
        "least": least,
        "most": most,
        "example": None if leaf.quantity is None else leaf.quantity.example,
    }
    return {name: value for name, value in found.items() if value not in (None, [])}


def keys_module() -> bytes:
    """A module of JavaScript with the keys."""
    said = "// Made from the schema of a plan when the site is built.\n"
    return f"{said}export const KEYS = {json.dumps(plan_keys(), indent=1)};\nexport const FREE = {json.dumps(FREE)};\n".encode()
