"""The optimizers of layout, batch and place, asked with a plan."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mlsysim.cases.assumptions import Assumptions
from mlsysim.cases.run_inputs import ALL, run_days
from mlsysim.errors import InputError, either
from mlsysim.infra.registry import Grids
from mlsysim.models.base import Workload
from mlsysim.plans.evaluate import evaluate_plainly
from mlsysim.plans.hours import seen_from
from mlsysim.plans.plan import Plan
from mlsysim.plans.plan_parts import ServingPart
from mlsysim.plans.resolve import find_fleets, precision_of, workload_of
from mlsysim.plans.serving_load import OUTPUT, PROMPT
from mlsysim.plans.targets import parse_targets
from mlsysim.plans.training_layout import best_layouts as best_parallelism
from mlsysim.search.batching import BatchingOptimizer
from mlsysim.search.placement import PlacementOptimizer
from mlsysim.systems.types import Fleet
from mlsysim.units.registry import Quantity, to_si
from mlsysim.units.text import figure, money_text

__all__ = ["batch_found", "best_batching", "best_parallelism", "best_placement", "layout_found", "place_found"]

_SLA_MS, _RATE = 10_000.0, 1.0
_WHOLE = "e2e_p99"
_BATCHED = ("prompt_tokens", "output_tokens", "length_cv", "cache_precision", "qps", "replicas", "slo")
"""What a plan says of its service that the search over batches takes."""


def _fidelity(plan: Plan, fleet: Fleet, model: Workload, assumed: Assumptions) -> dict[str, Any]:
    precision = precision_of(plan, assumed, fleet.node.accelerator, model)
    return {"precision": precision, "efficiency": plan.hardware.efficiency or "calibrated"}


def best_batching(plan: Plan, sla_ms: float | None = None, qps: float | None = None) -> Any:
    """The batch with the highest throughput whose 99th percentile stays within a limit: the shortest of the one that is given and those that the plan has on
    the whole request (e2e_p99). What else the plan says of its service has no effect, which the result says."""
    fleet, serving = find_fleets(plan.hardware).one, plan.serving or ServingPart()
    split, model = plan.parallelism, workload_of(plan.workload)
    degrees = {f"{name}_size": getattr(split, name) or 1 for name in ("tp", "pp", "ep")}
    targets = parse_targets(serving.slo)
    limits = [1e3 * target.seconds for target in targets if target.metric == _WHOLE]
    given = {} if serving.cache_precision is None else {"cache_precision": serving.cache_precision}
    assumed = Assumptions()
    prompt, answer = plan.workload.seq_len or serving.prompt_tokens, serving.output_tokens
    if prompt is None:
        assumed["prompt_tokens"] = f"{PROMPT:,}"
    if answer is None:
        assumed["output_tokens"] = f"{OUTPUT:,}"
    if serving.length_cv is None:
        assumed["length_cv"] = "0: prompts and answers all of the stated length"
    if not limits and sla_ms is None:
        assumed["e2e_p99"] = f"{_SLA_MS / 1e3:g} s: the 99th percentile of a whole request"
    if qps is None and serving.qps is None:
        assumed["qps"] = f"{_RATE:g} request a second"
    result = BatchingOptimizer().solve(
        model=model,
        hardware=fleet.node.accelerator,
        seq_len=prompt or PROMPT,
        output_len=answer or OUTPUT,
        sla_latency_ms=min([*limits, *([] if sla_ms is None else [sla_ms])], default=_SLA_MS),
        arrival_rate_qps=qps or serving.qps or _RATE,
        service_time_cv=serving.length_cv or 0.0,
        num_replicas=serving.replicas or max(1, fleet.total_accelerators // (degrees["tp_size"] * degrees["pp_size"])),
        **degrees,
        **given,
        **_fidelity(plan, fleet, model, assumed),
    )
    held = [target.metric for target in targets if target.metric != _WHOLE]
    unused = [name for name in plan.serving.model_fields_set if name not in _BATCHED] if plan.serving else []
    if idle := [*held, *sorted(unused)]:
        words = "batches of like requests are compared by their throughput, within the P99 of a whole request (e2e_p99)"
        assumed.idle(either(idle, "and"), f"{words}; `mlsysim serve` and `mlsysim plan` take all of it")
    return result.assuming(assumed.records)


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
    assumed = Assumptions()
    for name, why in _SAME_EVERYWHERE.items():
        if getattr(plan.ops, name) is not None:
            assumed.idle(name, why)
    assumed.learn(each for each in answer.assumed if each.name not in _OF_A_PLACE)
    return result.assuming(assumed.records)


_OF_A_PLACE = ("kwh_price", "pue")
"""What the answer to a plan assumes of its place, which is compared here."""
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
