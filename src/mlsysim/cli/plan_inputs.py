"""From words of the command line to a plan."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mlsysim.cli.options import is_plan_file
from mlsysim.errors import InputError

if TYPE_CHECKING:
    from mlsysim.plans.plan import Plan

__all__ = ["given", "layout_of", "limits_of", "load", "named_plan", "plan_of"]


def given(**fields: Any) -> dict[str, Any]:
    """Fields that the command line gives."""
    return {name: value for name, value in fields.items() if value is not None}


def plan_of(**parts: Any) -> Plan:
    """A plan of its parts, those left out that are empty."""
    from mlsysim.plans.plan import Plan

    return Plan.model_validate({name: part for name, part in parts.items() if part not in (None, {})})


def layout_of(text: str | None) -> Any:
    """The value of --layout as a plan's parallelism."""
    if text is None or text.strip() == "auto":
        return text and "auto"
    found: dict[str, Any] = {}
    for piece in text.split(","):
        name, mark, value = piece.partition("=")
        if not mark:
            raise InputError(f"--layout takes pairs such as tp=8,pp=4, got {piece.strip()[:40]!r}.", field="layout")
        value = value.strip()
        number = value.lstrip("-").isdigit()
        found[name.strip()] = int(value) if number else {"true": True, "false": False}.get(value, value)
    return found


def limits_of(text: str | None) -> dict[str, str]:
    """The value of --slo as limits of a plan's serving."""
    if text is None:
        return {}
    found = {}
    for piece in text.split(","):
        name, mark, value = piece.partition("=")
        if not mark:
            raise InputError(f"--slo takes pairs such as ttft=500ms, got {piece.strip()[:40]!r}.", field="slo")
        found[name.strip()] = value.strip()
    known = ("ttft", "tpot", "latency")
    for name in found:
        if name not in known:
            raise InputError(f"--slo knows {', '.join(known)}, got {name[:40]!r}.", field="slo")
    return found


def load(path: str) -> Plan:
    """The plan of a file."""
    from mlsysim.plans.files import load_plan

    return load_plan(path)


def named_plan(text: str, task: str | None) -> Plan:
    """The plan that a target means: a plan file, or MODEL@FLEET with a task."""
    if is_plan_file(text):
        return load(text)
    model, mark, fleet = text.partition("@")
    if not mark:
        raise InputError(f"{text[:60]!r} is neither a plan file nor MODEL@FLEET, such as Llama3_70B@512xH100.")
    return plan_of(task=task, workload={"model": model}, hardware={"on": fleet})
