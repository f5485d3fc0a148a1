"""A training plan: one optimizer step on a fleet, the run that it makes up, and what the run costs.

    days = tokens / (tokens/s x goodput) / 86,400            goodput: what failures and checkpoints leave (wall 15)

The layout is the plan's, or with mode auto the best of :class:`mlsysim.search.parallelism.ParallelismOptimizer`.
"""

from __future__ import annotations

from typing import Any

from mlsysim.errors import InputError
from mlsysim.hardware.types import HardwareNode
from mlsysim.models.base import Workload
from mlsysim.plans.answer import Answer, Limit, MemoryBar, Part, equations_of
from mlsysim.plans.plan import ParallelismPart, Plan
from mlsysim.plans.resolve import find_fleets, find_model
from mlsysim.plans.sheet import FIRST_ORDER_ONLY, Sheet, band_text, compact_time, count_text, limit_of, spend
from mlsysim.search.parallelism import ParallelismOptimizer
from mlsysim.systems.types import Fleet
from mlsysim.units.registry import quantity, to_si
from mlsysim.walls.algorithm.complexity import ScalingModel
from mlsysim.walls.fleet.communication import DistributedModel, DistributedResult
from mlsysim.walls.fleet.fragility import ReliabilityModel
from mlsysim.walls.fleet.layout import divisors
from mlsysim.walls.node.compute_memory import arithmetic_peak

__all__ = ["best_layout", "evaluate_training", "step_options", "training_batch"]

SEQ_LEN = 4096
_SECONDS_PER_DAY = 86400.0
_DAYS = 30.0
_TOKENS_A_STEP = 4e6
_SHARING = 64
"""Accelerators that share a sequence at most, where the batch is ours to choose."""

_NAMES = {
    "tp": "tp_size",
    "pp": "pp_size",
    "ep": "ep_size",
    "cp": "cp_size",
    "virtual_stages": "v_stages",
    "schedule": "schedule",
    "zero": "zero_stage",
    "recompute": "activation_recomputation",
    "sequence_parallel": "sequence_parallel",
    "overlap": "overlap_comm",
}
"""Fields of a plan's parallelism and the inputs of DistributedModel that they are."""


def training_batch(plan: Plan, fleet: Fleet, model: Workload, assumed: dict[str, str]) -> tuple[int, int]:
    """Sequences of a step and tokens of a sequence; four to sixteen million tokens a step where nothing is said."""
    seq_len = plan.workload.seq_len
    if seq_len is None:
        seq_len = 1 if model.fixed_shape else SEQ_LEN
        if not model.fixed_shape:
            assumed["seq_len"] = f"{SEQ_LEN:,} tokens"
    batch = plan.workload.batch_size
    if batch is None:
        accelerators = fleet.total_accelerators
        wanted = max(1, round(_TOKENS_A_STEP / seq_len)) if not model.fixed_shape else 32 * accelerators
        batch = max(accelerators, wanted // accelerators * accelerators)
        if batch > 4 * wanted and plan.parallelism.automatic:
            # Tensor and pipeline parallelism share a sequence: fewer sequences than accelerators will do.
            shared = [k for k in divisors(accelerators) if k <= _SHARING]
            batch = accelerators // next((k for k in shared if accelerators // k <= 4 * wanted), shared[-1])
        assumed["batch_size"] = f"{batch:,} sequences a step"
    return batch, seq_len


def step_options(
    plan: Plan, model: Workload, fleet: Fleet, batch: int, seq_len: int, assumed: dict[str, str]
) -> dict[str, Any]:
    """Keyword arguments of DistributedModel for a plan."""
    work, hard, split = plan.workload, plan.hardware, plan.parallelism
    options: dict[str, Any] = {
        "batch_size": batch,
        "seq_len": seq_len,
        "precision": precision_of(plan, assumed, fleet.node.accelerator),
        "efficiency": _fidelity(plan, model, assumed),
        "overlap_comm": True if split.overlap is None else split.overlap,
    }
    if work.optimizer is not None:
        options["optimizer"] = work.optimizer
    if work.lora_rank is not None:
        options |= {"is_lora": True, "lora_rank": work.lora_rank}
    if hard.stack is not None:
        options["stack"] = hard.stack
    if hard.power_cap is not None:
        options["power_cap"] = hard.power_cap
    if split.automatic:
        split = best_layout(plan, model, fleet, options, assumed)
    for name, target in _NAMES.items():
        value = getattr(split, name)
        if value is not None:
            options[target] = value
    _check_degrees(split, fleet)
    if split.micro_batch is not None:
        local = batch / (split.dp or data_degree(split, fleet))
        if local % split.micro_batch:
            raise InputError(
                f"A replica has {local:g} sequences of the batch, which micro-batches of {split.micro_batch} do not divide.",
                field="micro_batch",
            )
        options["microbatch_count"] = int(local // split.micro_batch)
    return options


def data_degree(split: ParallelismPart, fleet: Fleet) -> int:
    """Data-parallel degree that is left by the others."""
    others = (split.tp or 1) * (split.pp or 1) * (split.cp or 1)
    return max(1, fleet.total_accelerators // others)


def _check_degrees(split: ParallelismPart, fleet: Fleet) -> None:
    if split.dp is None:
        return
    product = (split.tp or 1) * (split.pp or 1) * (split.cp or 1) * split.dp
    if product != fleet.total_accelerators:
        raise InputError(
            f"TP x PP x CP x DP is {product:,}, but the fleet has {fleet.total_accelerators:,} accelerators.",
            field="dp",
        )


def precision_of(plan: Plan, assumed: dict[str, str], chip: HardwareNode) -> str:
    """The plan's precision; where none is given bf16, or the widest of the usual formats that the chip computes in."""
    if plan.workload.precision is not None:
        return plan.workload.precision
    have = chip.compute.precision_flops
    chosen = next((name for name in ("bf16", "fp16", "fp32", "int8") if name in have), "bf16")
    assumed["precision"] = chosen
    return chosen


def fidelity_of(plan: Plan) -> float | str:
    """The plan's efficiency; calibrated where none is given."""
    given = plan.hardware.efficiency
    return "calibrated" if given is None else given


def _fidelity(plan: Plan, model: Workload, assumed: dict[str, str]) -> float | str:
    """Calibrated where nothing is said and the model has layers to sum over."""
    if plan.hardware.efficiency is None and not getattr(model, "has_dimensions", False):
        assumed["fidelity"] = f"first order at efficiency 0.5: {model.name} states no layers to sum over"
        return 0.5
    return fidelity_of(plan)


def best_layout(
    plan: Plan, model: Workload, fleet: Fleet, options: dict[str, Any], assumed: dict[str, str]
) -> ParallelismPart:
    """The best layout that fits, with what the plan has fixed kept."""
    split = plan.parallelism
    limits: dict[str, Any] = {"max_cp": 16 if options["seq_len"] >= 32768 else 1}
    search = {
        key: options[key]
        for key in ("batch_size", "seq_len", "precision", "efficiency", "overlap_comm", "optimizer")
        if key in options
    }
    if split.schedule is not None:
        limits["schedule"] = split.schedule
    found = ParallelismOptimizer().solve(model=model, fleet=fleet, **search, **limits)
    best = found.best_config
    if not found.feasible:
        raise InputError(found.binding.sentence, field="parallelism")
    dp = best["dp"]
    micro = max(1, options["batch_size"] // dp // best["microbatch_count"])
    assumed["layout"] = f"the best of {found.total_searched:,} searched"
    chosen = {
        "tp": best["tp"],
        "pp": best["pp"],
        "ep": best["ep"],
        "cp": best["cp"],
        "virtual_stages": best["v_stages"],
        "micro_batch": micro,
        "zero": best["zero_stage"],
        "recompute": best["recompute"],
    }
    for name in ("schedule",):
        if best.get(name) is not None:
            chosen[name] = best[name]
    given = {
        name: getattr(split, name) for name in ("sequence_parallel", "overlap") if getattr(split, name) is not None
    }
    return ParallelismPart(**chosen, **given)


def evaluate_training(plan: Plan) -> Answer:
    """The answer to a training plan on one kind of accelerator."""
    groups = find_fleets(plan.hardware)
    fleet = groups.one
    if plan.ops.mtbf is not None:
        fleet = fleet.model_copy(update={"mtbf_hours": to_si(plan.ops.mtbf, "h")})
    model = find_model(plan.workload.model)
    sheet = Sheet(plan, groups.assumed)
    batch, seq_len = training_batch(plan, fleet, model, sheet.assumed)
    options = step_options(plan, model, fleet, batch, seq_len, sheet.assumed)
    step = sheet.keep(_fitting_step(model, fleet, options, sheet.assumed))
    return answer_for_step(sheet, model, fleet, step, options)


def _fitting_step(model: Workload, fleet: Fleet, options: dict[str, Any], assumed: dict[str, str]) -> DistributedResult:
    """The step; where the plan leaves the micro-batch open and it does not fit, with the largest one that does."""
    step = DistributedModel().solve(model, fleet, **options)
    if step.feasible or "microbatch_count" in options:
        return step
    local = options["batch_size"] // step.parallelism["dp"]
    for count in divisors(local):
        if count <= step.microbatch_count:
            continue
        smaller = DistributedModel().solve(model, fleet, **options, microbatch_count=count)
        if smaller.feasible:
            options["microbatch_count"] = count
            assumed["micro_batch"] = f"{local // count}: the largest that fits"
            return smaller
    return step


def answer_for_step(
    sheet: Sheet, model: Workload, fleet: Fleet, step: DistributedResult, options: dict[str, Any]
) -> Answer:
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
    sheet.score(2, f"{used / 1e9:.1f} of {capacity / 1e9:.1f} GB", used / capacity, fails=not step.feasible)
    sheet.ingest(model.data_rate, fleet.node.accelerator)

    sheet.add("performance", "latency", "Time of a step", step.step_latency_total.to("s"), 14, band)
    sheet.add("performance", "mfu", "Model FLOP utilisation", float(step.mfu), 3, _rate_band(step.mfu, band, seconds))
    sheet.add("performance", "hfu", "Hardware FLOP utilisation", float(step.hfu), 3)
    sheet.add("performance", "scaling_efficiency", "Scaling efficiency", float(step.scaling_efficiency), 14)
    sheet.add("performance", "bubble", "Pipeline bubble", float(step.bubble_fraction), 14)
    noun = "Samples a second" if model.fixed_shape else "Tokens a second"
    sheet.add("performance", "tokens_per_second", noun, step.tokens_per_second.to("1/s"), 14)
    sheet.score(1, f"{sheet.time_parts[0].value / seconds:.1%} of the step", sheet.time_parts[0].value / seconds)
    sheet.score(3, f"MFU {step.mfu:.1%}", step.mfu)
    lost = 1 - sheet.time_parts[0].value / seconds
    sheet.score(14, f"{lost:.1%} of the step", lost, note=f"scaling efficiency {step.scaling_efficiency:.1%}")

    days, goodput = _reliability(sheet, fleet, tokens_per_second)
    spent = spend(sheet, fleet, days, step.mfu)
    tokens = plan.workload.tokens or tokens_per_second * goodput * days * _SECONDS_PER_DAY
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
    return Answer(
        name=plan.name,
        task="training",
        fidelity="calibrated" if calibrated else "first order",
        feasible=bool(step.feasible),
        subject=f"training {model.name} on {fleet.name}",
        headline=_headline(sheet, model, fleet, step, band),
        verdict=_verdict(sheet, fleet, step, days, goodput, spent),
        metrics=tuple(sheet.metrics),
        main="tokens_per_second",
        binding=binding,
        next_wall=following,
        interval=sheet.interval,
        time_parts=sheet.time_parts,
        memory=sheet.memory,
        roofline=tuple(sheet.roofline),
        scorecard=sheet.scorecard(binding.wall),
        layout=sheet.layout,
        assumptions=sheet.assumed,
        sources=sheet.sources,
        equations=equations_of(sheet.results),
        plan=plan,
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
        if label == "compute" or value > 1e-6 * seconds
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


def _rate_band(rate: float, band: Any, seconds: float) -> tuple[float, float] | None:
    if band is None:
        return None
    low, high = (to_si(side, "s") for side in band)
    return rate * seconds / high, min(1.0, rate * seconds / low)


def _reliability(sheet: Sheet, fleet: Fleet, rate: float) -> tuple[float, float]:
    """Days of the run and goodput; metrics of walls 15 and 19."""
    plan = sheet.plan
    given = {}
    if plan.ops.checkpoint_time is not None:
        given["checkpoint_time_s"] = plan.ops.checkpoint_time
    days, tokens = plan.ops.days, plan.workload.tokens
    goodput = ReliabilityModel().solve(fleet=fleet, job_duration_hours=24.0, **given).goodput_ratio
    if tokens is not None:
        days = tokens / (rate * goodput) / _SECONDS_PER_DAY if goodput > 0 else None
    if days is None:
        days = _DAYS
        sheet.assumed["duration"] = f"{_DAYS:g} days"
    result = sheet.keep(ReliabilityModel().solve(fleet=fleet, job_duration_hours=days * 24.0, **given))
    if tokens is not None:
        sheet.add("performance", "run_time", "Time of the run", quantity(days, "day"), 15)
    sheet.add("performance", "mtbf", "Time between failures", result.fleet_mtbf.to("h"), 15)
    sheet.add("performance", "expected_failures", "Failures to expect", float(result.expected_failures), 15)
    sheet.add("performance", "goodput", "Goodput", float(result.goodput_ratio), 15)
    interval = result.optimal_checkpoint_interval.to("min")
    sheet.add("performance", "checkpoint_interval", "Checkpoint every", interval, 19)
    sheet.score(
        15, f"goodput {result.goodput_ratio:.1%}", result.total_overhead_fraction, fails=result.goodput_ratio <= 0
    )
    overhead = result.checkpoint_overhead_fraction
    sheet.score(19, f"every {compact_time(to_si(interval, 's'))}", overhead, note=f"{overhead:.1%} of the time")
    return days, float(result.goodput_ratio)


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
    return (
        f"Fits: {used / 1e9:.1f} of {capacity / 1e9:.1f} GB on each of {fleet.total_accelerators:,} accelerators"
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
