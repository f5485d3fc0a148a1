"""A training plan: one optimizer step on a fleet, the run that it makes up, and what the run costs.

The layout is that of :mod:`mlsysim.plans.training_layout`, the run that of :mod:`mlsysim.plans.training_run`.
"""

from __future__ import annotations

from typing import Any

from mlsysim.hardware.arithmetic import arithmetic_peak
from mlsysim.models.base import Workload
from mlsysim.plans.answer import Answer, Limit, MemoryBar, Part
from mlsysim.plans.plan import Plan
from mlsysim.plans.resolve import find_fleets, workload_of
from mlsysim.plans.sheet import FIRST_ORDER_ONLY, Sheet, band_text, compact_time, count_text, limit_of, spend
from mlsysim.plans.training_layout import fitting_step, step_options, training_batch
from mlsysim.plans.training_run import training_run
from mlsysim.systems.types import Fleet
from mlsysim.units.registry import quantity, to_si
from mlsysim.walls.algorithm.complexity import ScalingModel
from mlsysim.walls.fleet.communication import DistributedResult

__all__ = ["evaluate_training"]

_SECONDS_PER_DAY = 86400.0


def evaluate_training(plan: Plan) -> Answer:
    """The answer to a training plan on one kind of accelerator."""
    groups = find_fleets(plan.hardware)
    fleet = groups.one
    if plan.ops.mtbf is not None:
        fleet = fleet.model_copy(update={"mtbf_hours": to_si(plan.ops.mtbf, "h")})
    model = workload_of(plan.workload)
    sheet = Sheet(plan, groups.assumed)
    batch, seq_len = training_batch(plan, fleet, model, sheet.assumed)
    options = step_options(plan, model, fleet, batch, seq_len, sheet.assumed)
    step = sheet.keep(fitting_step(model, fleet, options, sheet.assumed))
    return _answer(sheet, model, fleet, step, options)


def _answer(sheet: Sheet, model: Workload, fleet: Fleet, step: DistributedResult, options: dict[str, Any]) -> Answer:
    """The answer around a step."""
    plan = sheet.plan
    calibrated = options["efficiency"] == "calibrated"
    sheet.layout = {**step.parallelism, "micro_batches": step.microbatch_count, **_chosen(options, step)}
    sheet.memory = _memory(step)
    sheet.time_parts = _time_parts(step)
    seconds = to_si(step.step_latency_total, "s")
    tokens_per_second = to_si(step.tokens_per_second, "1/s")
    band = step.step_interval
    sheet.interval = _interval(step, calibrated)

    used, capacity = sheet.memory.used, sheet.memory.capacity
    sheet.add("feasibility", "memory", "Memory of each accelerator", step.memory_per_accelerator.to("GB"), 2)
    sheet.add("feasibility", "memory_capacity", "Memory there is", step.memory_capacity.to("GB"), 2)
    held = {name: to_si(value, "byte") for name, value in step.memory_breakdown.items()}
    state = sum(held.get(name, 0.0) for name in ("weights", "gradients", "optimizer_state"))
    sheet.add("feasibility", "model_state", "Weights, gradients, optimizer", quantity(state, "byte").to("GB"), 2)
    sheet.add("feasibility", "activations", "Activations", quantity(held.get("activations", 0.0), "byte").to("GB"), 2)
    sheet.score(2, f"{used / 1e9:.1f} of {capacity / 1e9:.1f} GB", used / capacity, fails=not step.feasible)
    sheet.ingest(model.data_rate, fleet.node.accelerator)

    sheet.add("performance", "latency", "Time of a step", step.step_latency_total.to("s"), 14, band)
    sheet.add("performance", "mfu", "Model FLOP utilisation", float(step.mfu), 3, _share_band(step.mfu, band, seconds))
    sheet.add("performance", "hfu", "Hardware FLOP utilisation", float(step.hfu), 3)
    sheet.add("performance", "scaling_efficiency", "Scaling efficiency", float(step.scaling_efficiency), 14)
    sheet.add("performance", "bubble", "Pipeline bubble", float(step.bubble_fraction), 14)
    noun = "Samples a second" if model.fixed_shape else "Tokens a second"
    rate = step.tokens_per_second.to("1/s")
    sheet.add("performance", "tokens_per_second", noun, rate, 14, _rate_band(rate, band, seconds))
    sheet.score(1, f"{sheet.time_parts[0].value / seconds:.1%} of the step", sheet.time_parts[0].value / seconds)
    sheet.score(3, f"MFU {step.mfu:.1%}", step.mfu)
    lost = 1 - sheet.time_parts[0].value / seconds
    sheet.score(14, f"{lost:.1%} of the step", lost, note=f"scaling efficiency {step.scaling_efficiency:.1%}")

    run = training_run(sheet, model, fleet, options, tokens_per_second)
    days, tokens, goodput = run.days, run.tokens, run.goodput
    spent = spend(sheet, fleet, days, step.mfu)
    if spent.price is not None and goodput > 0:
        each = "samples" if model.fixed_shape else "tokens"
        cost = quantity(spent.price / tokens * 1e6, "USD")
        sheet.add("macro", "usd_per_mtoken", f"Cost of a million {each}", cost, 17)
    if plan.workload.tokens is None:
        what = "Samples of the run" if model.fixed_shape else "Tokens of the run"
        sheet.add("performance", "tokens", what, quantity(tokens, "token"), 11)
    _scaling(sheet, model, tokens)
    sheet.roofline = _roofline(step, fleet, options)

    binding, following = _walls(sheet, step)
    return sheet.answer(
        task="training",
        calibrated=calibrated,
        feasible=bool(step.feasible),
        subject=f"training {model.name} on {fleet.name}",
        headline=_headline(sheet, model, fleet, step, band),
        verdict=_verdict(sheet, fleet, step, days, goodput, spent),
        main="tokens_per_second",
        binding=binding,
        next_wall=following,
    )


def _chosen(options: dict[str, Any], step: DistributedResult) -> dict[str, Any]:
    schedule = step.assumptions.get("schedule", options.get("schedule"))
    # A stage that nobody gave is the stack's own: "1 (stack bridge)".
    zero = options.get("zero_stage", int(step.assumptions.get("zero_stage", "0").split()[0]))
    return {
        "virtual_stages": options.get("v_stages", 1),
        "schedule": schedule,
        "zero": zero,
        "recompute": options.get("activation_recomputation", "none"),
        "batch_size": options["batch_size"],
        "seq_len": options["seq_len"],
    }


def _memory(step: DistributedResult) -> MemoryBar:
    parts = [
        Part(label=name.replace("_", " "), value=to_si(value, "byte"), wall=2)
        for name, value in step.memory_breakdown.items()
        if to_si(value, "byte") > 0
    ]
    return MemoryBar(capacity=to_si(step.memory_capacity, "byte"), parts=tuple(parts))


def _time_parts(step: DistributedResult) -> tuple[Part, ...]:
    """Parts of a step that add up to it: communication is what is exposed."""
    seconds = to_si(step.step_latency_total, "s")
    compute = to_si(step.compute_latency, "s")
    bubble, data = to_si(step.pipeline_bubble_latency, "s"), to_si(step.dp_exposed_latency, "s")
    inside = max(0.0, seconds - compute - bubble - data)
    full = {
        "tensor parallelism": to_si(step.tp_communication_latency, "s"),
        "expert parallelism": to_si(step.ep_communication_latency, "s"),
        "context parallelism": to_si(step.cp_communication_latency, "s"),
        "pipeline sends": to_si(step.pp_communication_latency, "s"),
    }
    total = sum(full.values())
    shrink = min(1.0, inside / total) if total else 0.0
    parts = [("compute", compute, 1)]
    parts += [(label, value * shrink, 14) for label, value in full.items()]
    parts += [("pipeline bubble", bubble, 14), ("gradient synchronisation", data, 14)]
    parts.append(("optimizer and host", inside - total * shrink, 3))
    return tuple(
        Part(label=label, value=value, wall=wall)
        for label, value, wall in parts
        if label == "compute" or value > 1e-9 * seconds
    )


def _interval(step: DistributedResult, calibrated: bool) -> str:
    if not calibrated:
        return FIRST_ORDER_ONLY
    band = step._context.get("band")
    if band is None:
        return ""
    if band.extrapolating:
        return "Extrapolating: no measured run is near this one; the interval is the widest of its kind."
    return f"90 % of {band.rows} published runs of this kind lay in the interval."


def _rate_band(rate: Any, band: Any, seconds: float) -> tuple[Any, Any] | None:
    """The interval of what is inverse to the step's time."""
    if band is None:
        return None
    low, high = (to_si(side, "s") for side in band)
    return rate * seconds / high, rate * seconds / low


def _share_band(share: float, band: Any, seconds: float) -> tuple[float, float] | None:
    found = _rate_band(share, band, seconds)
    return None if found is None else (found[0], min(1.0, found[1]))


def _scaling(sheet: Sheet, model: Workload, tokens: float) -> None:
    """Wall 11: tokens for each parameter beside the compute-optimal number."""
    if model.fixed_shape or model.parameters is None:
        return
    size = float(model.parameters.to("param").magnitude)
    active = getattr(model, "active_parameters", None)
    worked = float(active.to("param").magnitude) if active is not None else size
    budget = quantity(6.0 * worked * tokens, "flop")
    found = sheet.keep(ScalingModel().solve(compute_budget=budget, target_model_size=quantity(worked, "param")))
    sheet.add("performance", "tokens_per_parameter", "Tokens for each parameter", float(tokens / worked), 11)
    sheet.score(11, f"{tokens / worked:.1f} tokens/param", note=found.regime)


def _roofline(step: DistributedResult, fleet: Fleet, options: dict[str, Any]) -> list[dict[str, Any]]:
    context = step._context
    chip = fleet.node.accelerator
    peak, _ = arithmetic_peak(chip, options["precision"])
    flops, moved = context.get("device_flops"), context.get("device_bytes")
    if not flops or not moved:
        return []
    compute = to_si(step.compute_latency, "s") / context["micro_batches"]
    return [
        {
            "label": "training step of one device",
            "chip": chip.name,
            "precision": options["precision"],
            "peak_flops": peak,
            "bandwidth": to_si(chip.memory.bandwidth, "byte/s"),
            "intensity": flops / moved,
            "achieved": flops / compute,
        }
    ]


def _headline(sheet: Sheet, model: Workload, fleet: Fleet, step: DistributedResult, band: Any) -> str:
    layout = sheet.layout
    split = " ".join(f"{name.upper()}{layout[name]}" for name in ("tp", "pp", "cp", "ep", "dp") if layout[name] > 1)
    if not step.feasible:
        return f"Does not fit: {step.binding.sentence.removeprefix('Wall 2 (Memory): ')}"
    used, capacity = sheet.memory.used, sheet.memory.capacity  # type: ignore[union-attr]
    count = fleet.total_accelerators
    where = "one accelerator" if count == 1 else f"each of {count:,} accelerators"
    return (
        f"Fits: {used / 1e9:.1f} of {capacity / 1e9:.1f} GB on {where}"
        f"{' with ' + split if split else ''}; a step takes {compact_time(to_si(step.step_latency_total, 's'))}"
        f"{band_text(band)} at {step.mfu:.1%} MFU."
    )


def _verdict(
    sheet: Sheet, fleet: Fleet, step: DistributedResult, days: float, goodput: float, spent: Any
) -> tuple[str, ...]:
    lines = []
    plan = sheet.plan
    what = f"{count_text(plan.workload.tokens)} tokens take" if plan.workload.tokens is not None else "The run lasts"
    if goodput > 0:
        lines.append(
            f"{what} {compact_time(days * _SECONDS_PER_DAY)}, with failures and checkpoints (goodput {goodput:.1%})."
        )
    else:
        lines.append("The fleet fails faster than it recovers: no run of this kind ends.")
    money = []
    if spent.price is not None:
        owned = "" if spent.usd is not None else " of rent"
        money.append(f"${spent.price:,.0f}{owned}" if spent.price >= 10 else f"${spent.price:,.2f}{owned}")
    if spent.kwh is not None:
        money.append(f"{spent.kwh / 1e3:,.0f} MWh" if spent.kwh >= 1e4 else f"{spent.kwh:,.3g} kWh")
    if spent.kg is not None:
        money.append(f"{spent.kg / 1e3:,.1f} t CO2e" if spent.kg >= 1e3 else f"{spent.kg:,.3g} kg CO2e")
    if money:
        lines.append(("It costs " if spent.price is not None else "It takes ") + ", ".join(money) + ".")
    lines.extend(sheet.unknown)
    return tuple(lines)


def _walls(sheet: Sheet, step: DistributedResult) -> tuple[Limit, Limit | None]:
    """The wall that takes the largest part of the step, and the one after it; memory where it does not fit or is nearly full."""
    memory = sheet.memory
    total = sum(part.value for part in sheet.time_parts)
    shares: dict[int, float] = {}
    for part in sheet.time_parts:
        shares[part.wall or 0] = shares.get(part.wall or 0, 0.0) + part.value / total
    order = sorted((wall for wall in shares if shares[wall] > 0.001), key=lambda wall: -shares[wall])

    def limit(wall: int, margin: float | None, verb: str) -> Limit:
        cause = max((p for p in sheet.time_parts if p.wall == wall), key=lambda part: part.value)
        most = "" if cause.label == "compute" else f", most of it {cause.label}"
        name = sheet.scores[wall].name
        sentence = f"Wall {wall} ({name}){verb}: {shares[wall]:.1%} of the step{most}."
        return Limit(wall=wall, name=name, margin=margin, sentence=sentence)

    following = None
    if not step.feasible:
        return limit_of(step.binding), limit(order[0], None, "")
    lead = shares[order[0]] / shares[order[1]] if len(order) > 1 else None
    if memory is not None and memory.used / memory.capacity > 0.85:
        share = memory.used / memory.capacity
        following = Limit(
            wall=2, name="Memory", margin=1 / share, sentence=f"Wall 2 (Memory): {share:.0%} of it is full."
        )
    elif len(order) > 1:
        following = limit(order[1], None, "")
    return limit(order[0], lead, " binds"), following
