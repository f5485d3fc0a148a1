"""The task of a plan that says none, where a question about it needs one.

One pass runs on one accelerator. A plan for several says its task, or a key that only one task has; where a comparison or a question about a metric
is asked without either, the metric tells, and else what such a fleet is mostly for: a language model on one node is served, all else is trained. What
was taken is the first word of the answer's subject, and saying the task decides.
"""

from __future__ import annotations

from mlsysim.errors import InputError
from mlsysim.models.transformer import TransformerWorkload
from mlsysim.plans.plan import Plan
from mlsysim.plans.resolve import find_fleets, served_of, workload_of

_TELLS = {
    "serving": ("ttft", "tpot", "itl", "requests_per_second", "most_requests_per_second", "longest_context"),
    "training": ("step_time", "run_time", "goodput"),
}
"""Metrics that one task alone has, by how their names begin."""


def with_task(plan: Plan, metric: str | None = None) -> Plan:
    """The plan, with the task that a question about it means; as it is where it says one, or is one pass on one accelerator."""
    if plan.task is not None or plan.kind != "inference" or plan.workload.phase is not None:
        return plan
    told = [task for task, names in _TELLS.items() if metric and metric.lower().rpartition(".")[2].startswith(names)]
    if told:
        return plan.replacing(task=told[0])
    try:
        fleets = find_fleets(plan.hardware).fleets
        served = isinstance(served_of(workload_of(plan.workload)), TransformerWorkload)
    except InputError:
        # What is wrong is said where the plan is answered.
        return plan
    if sum(fleet.total_accelerators for fleet in fleets) == 1:
        return plan
    return plan.replacing(task="serving" if served and sum(fleet.count for fleet in fleets) == 1 else "training")


def of_one_task(*plans: Plan) -> list[Plan]:
    """Plans that are compared: one that says no task, and could be one pass, has that of the other."""
    found = [with_task(plan) for plan in plans]
    told = next((plan.kind for plan in found if plan.kind != "inference"), None)
    open_ = [plan.task is None and plan.kind == "inference" and plan.workload.phase is None for plan in found]
    return [plan.replacing(task=told) if told and free else plan for plan, free in zip(found, open_, strict=True)]
