"""The optimizers of layout, batch and place, asked with a plan."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mlsysim.cases.run_inputs import ALL, run_days
from mlsysim.errors import InputError
from mlsysim.infra.registry import Grids
from mlsysim.models.base import Workload
from mlsysim.plans.evaluate import evaluate_plainly
from mlsysim.plans.hours import seen_from
from mlsysim.plans.plan import Plan
from mlsysim.plans.resolve import find_fleets, precision_of, workload_of
from mlsysim.plans.training_layout import best_layouts as best_parallelism
from mlsysim.search.batching import BatchingOptimizer
from mlsysim.search.placement import PlacementOptimizer
from mlsysim.systems.types import Fleet
from mlsysim.units.registry import Quantity, to_si
from mlsysim.units.text import figure, money_text

__all__ = ["batch_found", "best_batching", "best_parallelism", "best_placement", "layout_found", "place_found"]

_PROMPT_TOKENS = 1024


def _fidelity(plan: Plan, fleet: Fleet, model: Workload) -> dict[str, Any]:
    precision = precision_of(plan, {}, fleet.node.accelerator, model)
    return {"precision": precision, "efficiency": plan.hardware.efficiency or "calibrated"}


def best_batching(plan: Plan, sla_ms: float = 10_000.0, qps: float = 1.0) -> Any:
    """The batch with the highest throughput whose 99th percentile stays within a limit."""
    fleet, serving = find_fleets(plan.hardware).one, plan.serving
    width, model = plan.parallelism.tp or 1, workload_of(plan.workload)
    return BatchingOptimizer().solve(
        model=model,
        hardware=fleet.node.accelerator,
        seq_len=plan.workload.seq_len or (serving.prompt_tokens if serving else None) or _PROMPT_TOKENS,
        sla_latency_ms=sla_ms,
        arrival_rate_qps=qps,
        num_replicas=max(1, fleet.total_accelerators // width),
        tp_size=width,
        **_fidelity(plan, fleet, model),
    )


def best_placement(
    plan: Plan, carbon_tax: float = 100.0, regions: Sequence[str] | str = "all", objective: str = "cost"
) -> Any:
    """The grid on which the run of a plan costs least, its carbon taxed, or emits least: for the time and at the power that the plan's answer has, in the hours
    from its start on where it says when that is."""
    fleet, answer = find_fleets(plan.hardware).one, evaluate_plainly(plan)
    found = {name: metric.value for name, metric in answer.held.items()}
    options: dict[str, Any] = {} if plan.ops.electricity is None else {"kwh_price": plan.ops.electricity}
    if (power := found.get("run_power", found.get("accelerator_power"))) is not None:
        options |= {"average_power": power, "include_host": True}
    options["cost_scope"] = plan.ops.cost_scope or ALL
    if plan.hardware.cooling is not None:
        options["cooling"] = plan.hardware.cooling
    options["duration_days"] = found["run_time"] if "run_time" in found else plan.ops.days or run_days()
    options["regions"] = regions if isinstance(regions, str) else list(regions)
    options["objective"] = objective
    if plan.ops.start is not None:
        for name in ("pause_above", "demand_response"):
            if getattr(plan.ops, name) is not None:
                raise InputError(f"Places are compared for the same run; leave {name} out.", field=name)
        keys = Grids.keys() if regions == "all" else [regions] if isinstance(regions, str) else regions
        days = options["duration_days"]
        hours = to_si(days, "h") if isinstance(days, Quantity) else days * 24.0
        options["regions"] = [seen_from(plan, key, hours) for key in keys]
    result = PlacementOptimizer().solve(fleet=fleet, carbon_tax_per_ton=carbon_tax, **options)
    for name, why in _SAME_EVERYWHERE.items():
        if getattr(plan.ops, name) is not None:
            result.assumptions[name] = f"no effect: {why}"
    return result


_SAME_EVERYWHERE = {
    "price": "a rent is the same on every grid, and places are compared by what owning costs",
    "budget": "places are ordered, and none is left out for its cost",
}
"""Keys of money that do not choose among places, and why."""


def layout_found(result: Any) -> str:
    """The best layout in a sentence."""
    best = result.best_config
    if not result.feasible:
        return "No layout fits."
    return f"Best: TP{best['tp']} PP{best['pp']} DP{best['dp']}, MFU {result.best_mfu:.1%}."


def batch_found(result: Any) -> str:
    """The best batch in a sentence."""
    if not result.is_feasible:
        return "No batch meets the target."
    return f"Best: batch {result.best_batch_size:,}, P99 {result.p99_latency.to('s').magnitude:.3g} s."


def place_found(result: Any) -> str:
    """The best place in a sentence."""
    cost, carbon = result.lowest_tco.magnitude, result.carbon_footprint.magnitude
    return f"Best: {result.best_region_name}, {money_text(cost)} and {figure(carbon)} kg CO2e."
