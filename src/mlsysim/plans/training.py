"""A training plan: one optimizer step on a fleet, the run that it makes up, and what the run costs.

The layout is that of :mod:`mlsysim.plans.training_layout`, the run that of :mod:`mlsysim.plans.training_run`.
"""

from __future__ import annotations

from typing import Any

from mlsysim.cases.losslaw import training_flops
from mlsysim.errors import InputError
from mlsysim.models.base import Workload
from mlsysim.plans.answer import Answer
from mlsysim.plans.parts import binding_of, roof_point, too_full
from mlsysim.plans.plan import Plan
from mlsysim.plans.resolve import find_fleets, workload_of
from mlsysim.plans.sheet import Sheet, compact_time, count_text
from mlsysim.plans.spending import Share, spend
from mlsysim.plans.training_layout import fitting_step, step_options, training_batch
from mlsysim.plans.training_run import TrainingRun, training_run
from mlsysim.systems.types import Fleet
from mlsysim.units.registry import quantity, to_si
from mlsysim.vocabulary import worded
from mlsysim.walls.algorithm.complexity import ScalingModel
from mlsysim.walls.fleet.communication import DistributedResult
from mlsysim.zoo.constants import constant

_SECONDS_PER_DAY = 86400.0
_OF_A_PASS = {"workload": ("phase", "steps", "random_arrivals", "measured_rate"), "parallelism": ("ring",)}
"""Keys of a plan that a training step has no use for."""
_STATE = ("weights", "gradients", "optimizer state")


def evaluate_training(plan: Plan) -> Answer:
    """The answer to a training plan on one kind of accelerator."""
    for part, names in _OF_A_PASS.items():
        for name in names:
            if getattr(getattr(plan, part), name) is not None:
                raise InputError(f"{name} belongs to one pass; a training step has none.", field=name)
    groups = find_fleets(plan.hardware)
    fleet = groups.one
    if plan.ops.mtbf is not None:
        fleet = fleet.model_copy(update={"mtbf_hours": to_si(plan.ops.mtbf, "h")})
    model = workload_of(plan.workload)
    sheet = Sheet(plan, groups.assumed, "samples" if model.fixed_shape else "training", "step")
    batch, seq_len = training_batch(plan, fleet, model, sheet.assumed)
    options = step_options(plan, model, fleet, batch, seq_len, sheet.assumed)
    step = sheet.keep(fitting_step(model, fleet, options, sheet.assumed))
    return _answer(sheet, model, fleet, step, options)


def _answer(sheet: Sheet, model: Workload, fleet: Fleet, step: DistributedResult, options: dict[str, Any]) -> Answer:
    """The answer around a step: read off its ledger."""
    plan, ledger = sheet.plan, sheet.read(step.ledger)
    sheet.layout = {**step.parallelism, "micro_batches": step.microbatch_count, **_chosen(options, step)}
    seconds, band = to_si(step.step_latency_total, "s"), step.step_interval
    _facts(sheet, model, fleet, step)

    sheet.add("memory", float(ledger.memory))
    sheet.add("memory_capacity", float(ledger.capacity))
    held = {each.name: float(each.bytes) for each in ledger.held if each.where == "device"}
    sheet.add("model_state", sum(held.get(name, 0.0) for name in _STATE))
    sheet.add("activations", held.get("activations", 0.0))
    sheet.facts |= {name.replace(" ", "_"): quantity(held[name], "byte") for name in _STATE if name in held}
    sheet.ingest(model.data_rate, fleet.node.accelerator)

    sheet.add("latency", seconds, band)
    used = _inverse(step.mfu, band, seconds)
    sheet.add("mfu", float(step.mfu), used and (used[0], min(1.0, used[1])))
    for name, share in (
        ("hfu", step.hfu),
        ("scaling_efficiency", step.scaling_efficiency),
        ("bubble", step.bubble_fraction),
    ):
        sheet.add(name, float(share))
    rate = to_si(step.tokens_per_second, "1/s")
    sheet.add("tokens_per_second", rate, _inverse(rate, band, seconds))
    sheet.score_walls(
        {3: f"MFU {step.mfu:.1%}", 14: f"scaling efficiency {step.scaling_efficiency:.1%}"}, fails=not step.feasible
    )

    run = training_run(sheet, model, fleet, options, rate)
    sheet.facts |= {"duration": quantity(run.days, "day"), "work_of_the_run": run.tokens}
    spend(sheet, run.days, run.tokens if run.goodput > 0 else 0.0, Share(fleet, step.mfu))
    if plan.workload.tokens is None:
        sheet.add("tokens", run.tokens)
    _scaling(sheet, model, run.tokens)
    sheet.roofline = roof_point(ledger, fleet.node.accelerator, options["precision"], "training step of one device")
    return sheet.answer(
        calibrated=options["efficiency"] == "calibrated",
        feasible=bool(step.feasible),
        subject=f"training {model.name} on {fleet.name}",
        headline=_headline(sheet, fleet, step),
        verdict=_verdict(sheet, run, bool(step.feasible)),
        main="tokens_per_second",
        # Memory where the plan does not fit; else the wall with most of the step, or goodput where failures cost more.
        binding=binding_of(ledger, sheet.noun, run.kept) if step.feasible else too_full(step.binding),
    )


def _facts(sheet: Sheet, model: Workload, fleet: Fleet, step: DistributedResult) -> None:
    """What equations of metrics show beside other metrics."""
    shown = step._facts.context
    saved = shown["saved"]
    names = (
        ("samples_on_a_device", "bytes_a_sample_keeps") if model.fixed_shape else ("layers_kept", "bytes_a_layer_keeps")
    )
    sheet.facts |= {
        "memory_stated": fleet.node.accelerator.memory.capacity,
        "accelerators": fleet.total_accelerators,
        "peak": quantity(shown["peak"], "flop/s"),
        "model_operations": quantity(shown["model_flops"], "flop"),
        "hardware_operations": quantity(shown["hardware_flops"], "flop"),
        "work_of_a_step": shown["work"],
        names[0]: float(saved.layers),
        names[1]: quantity(saved.each, "byte"),
        "bytes_of_the_layer_computed_again": quantity(saved.again, "byte"),
        "bytes_of_the_logits": quantity(saved.logits, "byte"),
        "bytes_of_cast_weights": quantity(saved.casts, "byte"),
    }
    if model.parameters is not None:
        sheet.facts["parameters"] = model.active_parameter_count


def _chosen(options: dict[str, Any], step: DistributedResult) -> dict[str, Any]:
    assumed = step._facts.assumed
    return {
        "virtual_stages": options.get("v_stages", 1),
        "schedule": options.get("schedule", assumed.value("schedule")),
        "zero": options.get("zero_stage", assumed.value("zero_stage", 0)),
        "recompute": options.get("activation_recomputation", "none"),
        "batch_size": options["batch_size"],
        "seq_len": options["seq_len"],
    }


def _inverse(value: float, band: Any, seconds: float) -> tuple[float, float] | None:
    """The interval of what is inverse to the step's time."""
    return band and (value * seconds / to_si(band[1], "s"), value * seconds / to_si(band[0], "s"))


def _scaling(sheet: Sheet, model: Workload, tokens: float) -> None:
    """Wall 11: tokens for each parameter beside the compute-optimal number."""
    if model.fixed_shape or model.parameters is None:
        return
    worked = model.active_parameter_count
    cost = to_si(constant("training_flops_per_parameter_token").quantity, "flop")
    budget = quantity(training_flops(cost, worked, tokens), "flop")
    found = sheet.keep(ScalingModel().solve(compute_budget=budget, target_model_size=quantity(worked, "param")))
    sheet.add("tokens_per_parameter", float(tokens / worked))
    sheet.score(11, f"{tokens / worked:.1f} tokens/param", note=found.regime)


def _headline(sheet: Sheet, fleet: Fleet, step: DistributedResult) -> str:
    layout, count = sheet.layout, fleet.total_accelerators
    split = " ".join(f"{name.upper()}{layout[name]}" for name in ("tp", "pp", "cp", "ep", "dp") if layout[name] > 1)
    where = "one accelerator" if count == 1 else f"each of {count:,} accelerators"
    memory = f"{sheet.text('memory')} of {sheet.text('memory_capacity')}"
    if not step.feasible:
        remedy = next(iter(step.remedies), "no smaller change than more accelerators or a smaller batch helps")
        return worded(f"Does not fit: {where} needs {memory}; ", remedy, ". Times are given as if it fitted.")
    return (
        f"Fits: {memory} on {where}{' with ' + split if split else ''}; a step takes {sheet.text('latency')}"
        f"{sheet.band('latency')} at {sheet.text('mfu')} MFU."
    )


def _verdict(sheet: Sheet, run: TrainingRun, fits: bool) -> tuple[str, ...]:
    """What is found; of what does not fit no time or cost, which it will not have."""
    lines: list[str] = []
    wanted = sheet.plan.workload.tokens
    if not fits:
        return tuple(sheet.unknown)
    if run.goodput > 0:
        what = f"{count_text(wanted)} tokens take" if wanted is not None else "The run lasts"
        time = sheet.text("run_time") if wanted is not None else compact_time(run.days * _SECONDS_PER_DAY)
        lines.append(f"{what} {time}, with failures and checkpoints (goodput {sheet.text('goodput')}).")
    else:
        lines.append("The fleet fails faster than it recovers: no run of this kind ends.")
    paid = next((name for name in ("tco", "rent") if sheet.has(name)), None)
    taken = [sheet.text(name) for name in ("energy", "carbon_footprint") if sheet.has(name)]
    if paid is not None:
        taken.insert(0, sheet.text(paid) + (" of rent" if paid == "rent" else ""))
    if taken:
        lines.append(("It costs " if paid is not None else "It takes ") + ", ".join(taken) + ".")
    lines.extend(sheet.unknown)
    return tuple(lines)
