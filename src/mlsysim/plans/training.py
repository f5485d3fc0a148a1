"""A training plan: one optimizer step on a fleet, the run that it makes up, and what the run costs.

The layout is that of :mod:`mlsysim.plans.training_layout`, the run that of :mod:`mlsysim.plans.training_time`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from mlsysim.cases import failures
from mlsysim.cases.goodput import PATIENCE, Goodput
from mlsysim.cases.losslaw import training_flops
from mlsysim.cases.training_memory import NO_LAYOUT_HELPS, NOTHING_HELPS
from mlsysim.errors import InputError
from mlsysim.models.base import Workload
from mlsysim.plans.answer import Answer
from mlsysim.plans.hours import timed, told
from mlsysim.plans.parts import binding_of, memory_facts, roof_point, run_parts, too_full
from mlsysim.plans.pieces import Limit
from mlsysim.plans.plan import Plan
from mlsysim.plans.resolve import find_fleets, workload_of
from mlsysim.plans.sheet import Sheet
from mlsysim.plans.spending import Share, cost_sentence, energy_sentence, power_band, power_facts, spend, times
from mlsysim.plans.training_layout import (
    Missed,
    check_launcher,
    fitting_step,
    least_fleet,
    step_options,
    training_batch,
)
from mlsysim.plans.training_time import run_of, said_of
from mlsysim.systems.types import Fleet
from mlsysim.timing.power import waiting_power_of
from mlsysim.units.registry import quantity, to_si
from mlsysim.units.text import compact_time, count_text, many
from mlsysim.vocabulary import Setting, worded
from mlsysim.walls.algorithm.complexity import ScalingModel
from mlsysim.walls.fleet.communication import DistributedResult
from mlsysim.zoo.constants import constant

if TYPE_CHECKING:
    from mlsysim.plans.training_run import Simulated

SEEDS, QUICK = 200, 4
"""Runs that are played unless a plan says how many; fewer where plans are compared."""
_SECONDS_PER_DAY = 86400.0
_OF_A_PASS = {"workload": ("phase", "steps", "random_arrivals", "measured_rate"), "parallelism": ("ring",)}
"""Keys of a plan that a training step has no use for."""
_STATE = ("weights", "gradients", "optimizer state")


class Trained(NamedTuple):
    """The step that the answer to a plan is read off, and what the answer says around it."""

    sheet: Sheet
    model: Workload
    fleet: Fleet
    step: DistributedResult
    options: dict[str, Any]
    missed: Missed


def evaluate_training(plan: Plan, quick: bool = False) -> Answer:
    """The answer to a training plan on one kind of accelerator. ``quick`` plays fewer runs where it is simulated."""
    return _answer(trained(plan), quick)


def trained(plan: Plan) -> Trained:
    """The step of a training plan."""
    for part, names in _OF_A_PASS.items():
        for name in names:
            if getattr(getattr(plan, part), name) is not None:
                told = "how long a run is goes by tokens, such as 2T" if name == "steps" else "a training step has none"
                raise InputError(f"{name} belongs to one pass; {told}.", field=name)
    if plan.parallelism.attention_dp is not None:
        raise InputError("attention_dp belongs to serving; a training step has none.", field="attention_dp")
    groups = find_fleets(plan.hardware)
    fleet = groups.one
    if plan.ops.storage_bandwidth is not None:
        fleet = fleet.model_copy(update={"storage_bandwidth": plan.ops.storage_bandwidth})
    model = workload_of(plan.workload)
    sheet = Sheet(plan, groups.assumed, "samples" if model.fixed_shape else "training", "step")
    batch, seq_len = training_batch(plan, fleet, model, sheet.assumed)
    options, missed = step_options(plan, model, fleet, batch, seq_len, sheet.assumed)
    step = sheet.keep(fitting_step(model, fleet, options, sheet.assumed))
    return Trained(sheet, model, fleet, step, options, missed)


def _answer(found: Trained, quick: bool) -> Answer:
    """The answer around a step: read off its ledger."""
    sheet, model, fleet, step, options, missed = found
    plan, ledger = sheet.plan, sheet.read(step.ledger)
    if not (step.feasible or step.remedies or missed.lacks or quick or model.fixed_shape):
        missed = Missed(least=tuple(filter(None, [least_fleet(plan).get("least")])))
    _laid_out(sheet, step, options)
    _facts(sheet, model, fleet, step)
    rate, slower = _stepped(sheet, model, fleet, step)
    by_hour = timed(sheet, model, fleet, step, options, plan.ops.spares or 0) if step.feasible else None
    seeds = (QUICK if quick else plan.ops.seeds or SEEDS) if plan.ops.simulated and step.feasible else 0
    ran = run_of(sheet, model, fleet, options, rate, slower, by_hour, seeds, quick)
    days, tokens, kept, played = ran.days, ran.tokens, ran.kept, ran.played
    sheet.facts |= {"duration": quantity(days, "day"), "work_of_the_run": tokens}
    watts = None if step.accelerator_power is None else to_si(step.accelerator_power, "W")
    chip = fleet.node.accelerator
    draws = power_band(sheet, "energy of training", chip, watts) if slower and watts is not None else None
    sheet.add("accelerator_power", watts, times(watts, draws))
    if (powered := step._facts.context["powered"]) is not None:
        sheet.facts |= power_facts(*powered)
    spares, waiting = plan.ops.spares, None if watts is None else min(waiting_power_of(chip), watts)
    powers = None if watts is None or waiting is None else (watts, waiting)
    drawn = None if powers is None else ran.power(sheet, *powers)
    sheet.add("run_power", drawn, times(drawn, draws))
    shares = [Share(fleet, drawn, step.mfu)]
    if spares:
        shares.append(Share(fleet.model_copy(update={"count": spares, "name": f"spares of {fleet.name}"}), waiting))
    made = tokens if kept.lasting else 0.0
    spend(sheet, days, made, *shares, slower=ran.longer, draws=draws, seen=by_hour and by_hour.place(ran.covered))
    if step.feasible and kept.lasting:
        sheet.shown["run_parts"] = run_parts(kept, days * _SECONDS_PER_DAY, sheet.facts.get("share_of_full_rate", 1.0))
    if played is not None:
        played.tell(sheet, powers)
    if plan.workload.tokens is None:
        sheet.add("tokens", tokens, ran.longer and (tokens / ran.longer[1], tokens / ran.longer[0]))
    _scaling(sheet, model, made)
    hourly = told(sheet, by_hour, ran.covered, ran.computing, tokens) if by_hour is not None and kept.lasting else []
    sheet.shown["roofline"] = roof_point(ledger, chip, options["precision"], "training step of one device")
    return sheet.answer(
        calibrated=options["efficiency"] == "calibrated",
        fidelity="" if played is None else "simulated",
        feasible=bool(step.feasible),
        subject=f"training {model.name} on {fleet.name}",
        headline=missed.lacks or _headline(sheet, fleet, step),
        verdict=(*_verdict(sheet, days, kept, played), *hourly, *sheet.unknown) if step.feasible else missed.least,
        main="tokens_per_second",
        # Memory where the plan does not fit; else the wall with most of the step, or goodput where failures cost more.
        binding=binding_of(ledger, sheet.noun, kept) if step.feasible else _full(step, missed),
    )


def _laid_out(sheet: Sheet, step: DistributedResult, options: dict[str, Any]) -> None:
    """The layout that an answer shows, and its stages."""
    chosen, launcher = step._facts.assumed, sheet.plan.hardware.launcher
    sheet.shown["layout"] = step.parallelism | {
        "micro_batches": step.microbatch_count,
        "virtual_stages": options.get("v_stages", 1),
        "schedule": options.get("schedule", chosen.value("schedule")),
        "zero": options.get("zero_stage", chosen.value("zero_stage", 0)),
        "recompute": options.get("activation_recomputation", chosen.value("activation_recomputation", "none")),
        "batch_size": options["batch_size"],
        "seq_len": options["seq_len"],
    }
    if sheet.shown["layout"]["recompute"] == "selective":
        sheet.shown["layout"]["recomputed"] = options.get("recomputed") or chosen.value("recomputed")
    stages = step._facts.context.get("stages") if step.parallelism["pp"] > 1 else None
    if stages is not None:
        named = {"first": stages.first, "between": stages.between, "last": stages.last, **stages.shares._asdict()}
        named |= {} if stages.layers is None else {"layers": stages.layers}
        sheet.shown["stages"] = {name: float(value) for name, value in named.items()}
    if launcher is not None:
        check_launcher(launcher, sheet.shown["layout"])


def _stepped(
    sheet: Sheet, model: Workload, fleet: Fleet, step: DistributedResult
) -> tuple[float, tuple[float, float] | None]:
    """Metrics of the step: its rate, and the interval of its time, over it."""
    ledger, seconds, band = sheet.ledger, to_si(step.step_latency_total, "s"), step.step_interval
    sheet.add("memory", float(ledger.memory))
    sheet.add("memory_capacity", float(ledger.capacity))
    held = {each.name: float(each.bytes) for each in ledger.held if each.where == "device"}
    sheet.add("model_state", sum(held.get(name, 0.0) for name in _STATE))
    sheet.add("activations", held.get("activations", 0.0))
    sheet.facts |= {name.replace(" ", "_"): quantity(held[name], "byte") for name in _STATE if name in held}
    sheet.ingest(model.data_rate, fleet.node.accelerator)
    sheet.add("latency", seconds, band)
    sheet.add("mfu", float(step.mfu), _inverse(step.mfu, band, seconds))
    sheet.add("hfu", float(step.hfu))
    sheet.add("scaling_efficiency", float(step.scaling_efficiency))
    sheet.add("bubble", float(step.bubble_fraction))
    rate = to_si(step.tokens_per_second, "1/s")
    sheet.add("tokens_per_second", rate, _inverse(rate, band, seconds))
    notes = {3: f"MFU {step.mfu:.1%}", 14: f"scaling efficiency {step.scaling_efficiency:.1%}"}
    sheet.score_walls(notes, fails=not step.feasible)
    return rate, band and (to_si(band[0], "s") / seconds, to_si(band[1], "s") / seconds)


def _full(step: DistributedResult, missed: Missed) -> Limit:
    """What stops a step that does not fit; after a search no other split is hoped for."""
    stopped = too_full(step.binding)
    found = stopped.sentence.replace(NOTHING_HELPS, NO_LAYOUT_HELPS) if missed.lacks else stopped.sentence
    return stopped.model_copy(update={"sentence": found})


def _facts(sheet: Sheet, model: Workload, fleet: Fleet, step: DistributedResult) -> None:
    """What equations of metrics show beside other metrics."""
    shown = step._facts.context
    saved = shown["saved"]
    kept = ("samples_on_a_device", "bytes_a_sample_keeps"), ("layers_kept", "bytes_a_layer_keeps")
    names = kept[0] if model.fixed_shape else kept[1]
    sheet.facts |= {
        **memory_facts(fleet.node.accelerator, float(sheet.ledger.capacity)),
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


def _inverse(value: float, band: Any, seconds: float) -> tuple[float, float] | None:
    """The interval of what is inverse to the step's time."""
    return band and (value * seconds / to_si(band[1], "s"), value * seconds / to_si(band[0], "s"))


def _scaling(sheet: Sheet, model: Workload, tokens: float) -> None:
    """Wall 11: tokens for each parameter beside the compute-optimal number."""
    if model.fixed_shape or model.parameters is None or tokens <= 0:
        return
    worked = model.active_parameter_count
    cost = to_si(constant("training_flops_per_parameter_token").quantity, "flop")
    budget = quantity(training_flops(cost, worked, tokens), "flop")
    found = sheet.keep(ScalingModel().solve(compute_budget=budget, target_model_size=quantity(worked, "param")))
    sheet.add("tokens_per_parameter", float(tokens / worked))
    sheet.score(11, f"{tokens / worked:,.1f} tokens/param", note=found.regime)


def _headline(sheet: Sheet, fleet: Fleet, step: DistributedResult) -> str:
    layout, count = sheet.shown["layout"], fleet.total_accelerators
    split = " ".join(f"{name.upper()}{layout[name]}" for name in ("tp", "pp", "cp", "ep", "dp") if layout[name] > 1)
    where = "one accelerator" if count == 1 else f"each of {count:,} accelerators"
    memory = f"{sheet.text('memory')} of {sheet.text('memory_capacity')}"
    if not step.feasible:
        remedy = next(iter(step.remedies), NOTHING_HELPS)
        return worded(f"Does not fit: {where} needs {memory}; ", remedy, ".")
    return (
        f"Fits: {memory} on {where}{' with ' + split if split else ''}; a step takes {sheet.text('latency')}"
        f"{sheet.band('latency')} at {sheet.text('mfu')} MFU."
    )


def _never_ends(sheet: Sheet, kept: Goodput) -> str:
    """Why a run does not end: too few spares for the nodes in repair, or failures as such."""
    said, never = (
        said_of(sheet.plan, find_fleets(sheet.plan.hardware).one),
        "no run of this kind ends in ten times its work.",
    )
    if said.spares is None or float(kept.ratio) * PATIENCE <= 1 - float(kept.waiting):
        return f"The fleet fails faster than it recovers: {never}"
    broken, enough = failures.enough_spares(kept.mtbf, said)
    have = f"{many(said.spares, 'spare')} stand{'s' * (said.spares == 1)} in for" if said.spares else "none is replaced"
    words = f"The run waits for repairs, of about {broken:,.2g} nodes at a time, of which {have}: {never[:-1]} ("
    return worded(words, Setting("spares", enough), " would do).")


def _verdict(sheet: Sheet, days: float, kept: Goodput, played: Simulated | None) -> Iterator[str]:
    """What is found of a run that fits; what does not will have no time and no cost."""
    wanted = sheet.plan.workload.tokens
    if kept.lasting:
        what = f"{count_text(wanted)} {sheet.counted} take" if wanted is not None else "The run lasts"
        time = sheet.text("run_time") if wanted is not None else compact_time(days * _SECONDS_PER_DAY)
        yield f"{what} {time}, with failures and checkpoints (goodput {sheet.text('goodput')})."
    else:
        yield _never_ends(sheet, kept)
    if played is not None:
        yield from played.verdict(sheet)
    yield from cost_sentence(sheet, days, "The run" if kept.lasting else "Trying")
    taken = [sheet.text(name) for name in ("energy", "carbon_footprint") if name in sheet.metrics]
    if taken:
        yield f"It uses {' and emits '.join(taken)}."
    yield from energy_sentence(sheet)
