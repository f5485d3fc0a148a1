"""A plan of post-training: one step, its parts, what binds, the best split of the accelerators, and what a thousand steps cost.

Ways to run the step are those of :mod:`mlsysim.plans.rl_steps`; here the best becomes an answer, with the others beside it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mlsysim.cases import rl as case
from mlsysim.cases.assumptions import INFERRED
from mlsysim.cases.pools import Pool
from mlsysim.plans.answer import Answer
from mlsysim.plans.parts import binding_of, memory_facts, roof_point, too_full, unfit
from mlsysim.plans.plan import Plan
from mlsysim.plans.resolve import find_fleets
from mlsysim.plans.rl_part import AUTO
from mlsysim.plans.rl_steps import OTHERS, Stepper, Way, ledger_of
from mlsysim.plans.serving_costs import power_of
from mlsysim.plans.sheet import Sheet
from mlsysim.plans.spending import Share, cost_sentence, energy_sentence, power_band, spend, times
from mlsysim.systems.types import Fleet
from mlsysim.timing.power import waiting_power_of
from mlsysim.units.registry import quantity, to_si
from mlsysim.units.text import compact_time, count_text, many

_STEPS = 1000
_SAID = 0.1
"""Share of a step from which on the headline names its passes for log-probabilities."""
_DAY = 86400.0
_PARTS = {
    "rollout": (f"{case.ROLLOUT}: ",),
    "long tail": (case.LONG_TAIL,),
    "environment": (case.ENVIRONMENT,),
    "training": (f"{case.TRAINING}: ",),
    "log-probabilities": (case.PASSES,),
    "weight transfer": (case.TRANSFER,),
    "framework between phases": (case.FIXED,),
}
"""What sentences call parts of a step, and how the ledger's names of them begin."""


def evaluate_rl(plan: Plan) -> Answer:
    """The answer to a plan of post-training."""
    stepper = Stepper(plan)
    ways = stepper.ways()
    best = ways[0]
    sheet = Sheet(plan, stepper.groups.assumed, "rl", "step")
    sheet.assumed.learn(stepper.assumed.records)
    sheet.keep(best.trainer.step)
    sheet.assumed.learn(best.trainer.sheet.assumed.records)
    if best.served is not None:
        sheet.assumed.learn(best.served.server.sheet.assumed.records)
        sheet.keep(best.served.result)
    sheet.assumed.pop("interval", None)
    return _answer(sheet, best, ways)


def _answer(sheet: Sheet, way: Way, ways: list[Way]) -> Answer:
    asked, trainer, served, found = way.asked, way.trainer, way.served, way.step
    fits = way.feasible
    full = trainer.step if served is None or not trainer.step.feasible or served.result.feasible else served.result
    ledger = sheet.read(found.ledger if full is trainer.step else served.ledger if served else None)
    _layout(sheet, way)
    _assume(sheet, way, ways)
    samples, own = asked.samples, asked.framework
    total = sheet.shown["layout"]["trainers"] + (way.generators if way.staleness is not None else 0)
    sheet.add("memory", float(ledger.memory))
    sheet.add("memory_capacity", float(ledger.capacity))
    fullest = trainer.fleet.node.accelerator if full is trainer.step else full.named("fullest")
    sheet.facts |= {**memory_facts(fullest, float(ledger.capacity)), "accelerators": total}
    if fits:
        _times(sheet, way, total)
        notes = {3: f"MFU of training {sheet.text('training_mfu')}"}
        sheet.score_walls(notes, fails=False)
        _costs(sheet, way, samples.all * (samples.prompt + samples.lengths.mean))
    else:
        sheet.score_walls({}, fails=True)
    precision = trainer.options["precision"]
    chip = trainer.fleet.node.accelerator
    sheet.shown["roofline"] = roof_point(ledger_of(trainer), chip, precision, "training step of one device")
    sheet.assumed.say("interval", f"post-training {own.name}", INFERRED, _interval(way) if fits else _fitted(own))
    lacks, least = trainer.missed if full is trainer.step else ("", ())
    return sheet.answer(
        calibrated=trainer.options["efficiency"] == "calibrated",
        feasible=fits,
        subject=f"post-training of {trainer.model.name} on {_where(sheet.plan, way)}",
        headline=_headline(sheet, way) if fits else lacks or unfit(full.binding),
        verdict=(*_verdict(sheet, way, ways), *sheet.unknown) if fits else least,
        main="latency" if fits else "memory",
        binding=binding_of(ledger, "step") if fits else too_full(full.binding),
    )


def _where(plan: Plan, way: Way) -> str:
    beside = plan.rl is not None and plan.rl.generate_on
    return " and ".join(fleet.name for fleet in (find_fleets(plan.hardware).one, *([way.generating] if beside else [])))


def _interval(way: Way) -> str:
    """How sure a step is; of one that the framework's constant has more of than where it was fitted, that as well."""
    own, said = way.asked.framework, _fitted(way.asked.framework)
    if _band(way)[0] == own.interval[0]:
        return said
    fixed, most = own.fixed(way.staleness), own.seen(way.staleness)
    share = f"{own.name}'s constant of {fixed:.0f} s is {fixed / way.seconds:.0%} of this step and was at most {most:.0%} of those"
    return f"{said}; {share}, so that a step may be shorter"


def _band(way: Way) -> tuple[float, float]:
    return way.asked.framework.band(way.seconds, way.staleness, way.served is not None)


def _fitted(own: case.Framework) -> str:
    if not own.known:
        few, more = own.interval
        return f"extrapolating: with constants of {case.DEFAULT} 90 % of another framework's steps took {few:.2f} to {more:.2f} times what is predicted"
    if own.foreign:
        beside = f"those of {own.name} that are published are on {' and '.join(own.chips)}"
        return f"extrapolating: no step on {own.foreign} was fitted ({beside}), so it is no surer than for another framework"
    return f"90 % of {own.rows} published steps of {own.name}, each left out of the fit, fell within the interval"


def _layout(sheet: Sheet, way: Way) -> None:
    """Degrees of both sides."""
    options, step = way.trainer.options, way.trainer.step
    chosen = step._facts.assumed
    shown: dict[str, Any] = {**step.parallelism, "micro_batches": step.microbatch_count}
    for name, key in (("zero", "zero_stage"), ("recompute", "activation_recomputation")):
        shown[name] = options.get(key, chosen.value(key))
    if shown["recompute"] == "selective":
        shown["recomputed"] = options.get("recomputed") or chosen.value("recomputed")
    shown |= {"virtual_stages": options.get("v_stages", 1), "schedule": options.get("schedule")}
    shown |= {"batch_size": options["batch_size"], "seq_len": options["seq_len"]}
    shown |= {"trainers": way.trainer.fleet.total_accelerators, "generators": way.generators}
    if way.served is not None:
        split = way.served.split
        shown |= {"generator_tp": split.tp, "generator_pp": split.pp, "generator_ep": split.experts}
        shown["generator_replicas"] = way.served.replicas
    shown["staleness"] = way.staleness or 0.0
    sheet.shown["layout"] = shown


def _assume(sheet: Sheet, way: Way, ways: list[Way]) -> None:
    asked, assumed = way.asked, sheet.assumed
    part = None if way.served is None else way.served.server.part
    if part is not None and (sheet.plan.serving is None or sheet.plan.serving.memory_fraction is None):
        beside = "alone" if way.staleness is not None else "the trainer sleeps in the host's memory"
        assumed["memory_fraction"] = f"{part.memory_fraction:g} of the memory for a generator, {beside}"
    if asked.batch == asked.samples.all and sheet.plan.workload.batch_size is None:
        assumed["batch_size"] = f"{asked.batch:,}: one update of all samples"
    if asked.passes and sheet.plan.rl and sheet.plan.rl.logprob_passes is None and sheet.plan.rl.teacher is None:
        assumed["logprob_passes"] = f"{asked.passes:g} of the trained model's size, beside training"
    if asked.algorithm.trained > 1:
        assumed["critic"] = "as large as the policy and trained after it; its state is in the host's memory meanwhile"
    if way.staleness is not None and sheet.plan.rl and sheet.plan.rl.staleness is None:
        assumed["staleness"] = f"{way.staleness:g}: {1 + way.staleness:g} batches in flight"
    if way.rollout is not None and not way.rollout.fits:
        assumed["rollout"] = f"event by event: caches of {way.rollout.each:.0f} samples have no room at once"
    if len(ways) > 1:
        others = "; ".join(
            f"{each.text}: {compact_time(each.seconds)}" for each in ways[1 : 1 + OTHERS] if each.feasible
        )
        assumed["split"] = f"{way.text}, the best of {len(ways)} splits; next {others}" if others else way.text


def _times(sheet: Sheet, way: Way, total: int) -> None:
    """Times, rates, and what their equations show."""
    asked, trainer, found = way.asked, way.trainer, way.step
    samples, own, ledger = asked.samples, asked.framework, sheet.ledger
    seconds = float(ledger.seconds)
    band = _band(way)
    late = ledger.gross(case.ENVIRONMENT)
    uneven = ledger.gross(case.UNEVEN) / min(own.training, 1.0)
    tokens = samples.all * (samples.prompt + samples.lengths.mean)
    base = trainer.step._facts.context
    worked = base["model_flops"] * samples.all / asked.batch * asked.algorithm.trained
    worked *= (samples.prompt + samples.lengths.mean) / trainer.options["seq_len"]
    sheet.facts |= {
        "rollout_alone": quantity((found.rollout - late) / own.generation, "s"),
        "generation_factor": own.generation,
        "environment_wait": quantity(late, "s"),
        "training_alone": quantity(found.training / own.training - uneven, "s"),
        "fullest_rank_wait": quantity(uneven, "s"),
        "training_factor": own.training,
        "passes": asked.passes * own.passes,
        "forward_pass": quantity(found.passes / own.training / (asked.passes * own.passes or 1.0), "s"),
        "transfer_alone": quantity(found.transfer / own.transfer, "s"),
        "transfer_factor": own.transfer,
        "work_of_a_step": tokens,
        "devices_that_serve": total,
        "trainers": trainer.fleet.total_accelerators,
        "model_operations": quantity(worked, "flop"),
        "peak": quantity(base["peak"], "flop/s"),
        "tail_deviations": samples.lengths.far,
    }
    if way.served is not None:
        sides = ("pool_that_generates", "pool_that_trains")
        if not way.staleness:
            sides = "generation_and_environment", "training_and_forward_passes"
        both = found.rollout, found.training + found.passes
        apart = {"sleep_wake_and_data": own.fixed(way.staleness), "weights_on_their_way": found.transfer}
        sheet.facts |= {name: quantity(value, "s") for name, value in (*zip(sides, both, strict=True), *apart.items())}
    sheet.add("latency", seconds, times(seconds, band))
    if way.rollout is not None:
        writes = own.part_band("generation")
        sheet.add("rollout_time", found.rollout, times(found.rollout, writes))
        tail = ledger.gross(case.LONG_TAIL)
        sheet.facts |= {"even_lengths": quantity((found.rollout - late - tail) / own.generation, "s")}
        sheet.add("tail_time", tail, times(tail, writes))
        sheet.add("clipped", samples.lengths.clipped if samples.lengths.spread else None)
    trains = own.part_band("training")
    sheet.add("training_time", found.training, times(found.training, trains))
    sheet.add("logprob_time", found.passes or None, times(found.passes, trains))
    sheet.add("transfer_time", found.transfer or None, times(found.transfer, own.part_band("transfer")))
    used = worked / (found.training * trainer.fleet.total_accelerators * base["peak"])
    sheet.add("training_mfu", float(used), (used / trains[1], min(1.0, used / trains[0])))
    rate = tokens / seconds
    sheet.add("tokens_per_second", rate, (rate / band[1], rate / band[0]))
    each = rate / total
    sheet.add("tokens_per_second_per_device", each, (each / band[1], each / band[0]))


def _costs(sheet: Sheet, way: Way, tokens: float) -> None:
    """Power, energy and money of a thousand steps: of one fleet, also where it is split into pools, or of one that trains and one that generates."""
    trainer, found, seconds = way.trainer, way.step, way.seconds
    training, rollout = (found.training + found.passes) / seconds, found.rollout / seconds
    fleet, trainers = find_fleets(sheet.plan.hardware).one, trainer.fleet.total_accelerators
    writers = way.generators if way.staleness is not None else trainers
    count = fleet.total_accelerators
    beside = sheet.plan.rl is not None and sheet.plan.rl.generate_on is not None
    own = (training * trainers / count, 0.0 if beside else rollout * writers / count)
    used = sheet.metrics["training_mfu"].value * found.training / seconds * trainers / count
    shares = []
    if beside:
        shares.append(Share(way.generating, _power(sheet, way, way.generating, 0.0, rollout)))
    drawn = _power(sheet, way, fleet, *own)
    shares.insert(0, Share(fleet, drawn, used))
    # Errors of power are those of what takes most of the energy.
    facts = sheet.facts
    writing = (
        drawn is not None
        and facts["share_generating"] * facts["generating_power"] > facts["share_training"] * facts["training_power"]
    )
    kind = "energy per token" if writing else "energy of training"
    draws = None if drawn is None else power_band(sheet, kind, fleet.node.accelerator, drawn)
    sheet.add("run_power", drawn, times(drawn, draws))
    sheet.assumed.pop("idle_devices", None)
    days = _STEPS * seconds / _DAY
    sheet.facts |= {"duration": quantity(days, "day"), "work_of_the_run": _STEPS * tokens}
    spend(sheet, days, _STEPS * tokens, *shares, slower=_band(way), draws=draws)


def _power(sheet: Sheet, way: Way, fleet: Fleet, works: float, writes: float) -> float | None:
    """Mean watts of an accelerator of a fleet that trains and generates so much of its time, and waits for the rest; None where no TDP is known."""
    chip, step, served = fleet.node.accelerator, way.trainer.step, way.served
    if chip.tdp is None or step.accelerator_power is None:
        return None
    trains, wait = to_si(step.accelerator_power, "W"), waiting_power_of(chip, sheet.plan.hardware.power_cap)
    told = wait
    if served is not None and writes:
        told = power_of(sheet, served, chip, Pool(served.replicas, served.split.devices)) or wait
    powers = {"training_power": trains, "generating_power": told, "waiting_power": wait}
    sheet.facts |= {name: quantity(value, "W") for name, value in powers.items()}
    sheet.facts |= {"share_training": works, "share_generating": writes}
    return works * trains + writes * told + max(1 - works - writes, 0.0) * wait


def _shares(way: Way) -> Iterator[tuple[str, float]]:
    """Shares of the step by what sentences call its parts; the long tail apart."""
    ledger = way.step.ledger
    for name, begins in _PARTS.items():
        found = sum(p.exposed for p in ledger.parts if p.name.startswith(begins))
        if name == "rollout":
            found -= ledger.exposed(case.LONG_TAIL)
        if found >= 0.005 * ledger.seconds:
            yield name, float(found / ledger.seconds)


def _headline(sheet: Sheet, way: Way) -> str:
    memory = f"{sheet.text('memory')} of {sheet.text('memory_capacity')}"
    parts = [f"training {sheet.text('training_time')}"]
    if way.served is not None:
        late, named = sheet.ledger.gross(case.ENVIRONMENT), []
        if sheet.ledger.gross(case.LONG_TAIL):
            named.append(f"{sheet.text('tail_time')} is the long tail")
        if late:
            named.append(f"{compact_time(late)} the environment")
        parts.insert(0, f"rollout {sheet.text('rollout_time')}{', of which ' * bool(named)}{' and '.join(named)}")
    if way.step.passes >= _SAID * way.seconds:
        parts.append(f"log-probabilities {sheet.text('logprob_time')}")
    at_once = ", two pools at once" if way.staleness else ""
    return (
        f"Fits: {memory} on each accelerator; a step takes {sheet.text('latency')}{sheet.band('latency')}{at_once}: "
        f"{', '.join(parts)}; {sheet.text('tokens_per_second_per_device')} tokens a second for each accelerator."
    )


def _split_text(layout: dict[str, Any], prefix: str, names: tuple[str, ...]) -> str:
    return " ".join(f"{name.upper()}{layout[prefix + name]}" for name in names if layout[prefix + name] > 1) or "TP1"


def _verdict(sheet: Sheet, way: Way, ways: list[Way]) -> Iterator[str]:
    shares, layout = dict(_shares(way)), sheet.shown["layout"]
    listed = ", ".join(f"{name} {share:.0%}" for name, share in shares.items())
    most = max(shares, key=lambda name: shares[name])
    together = sum(shares.get(name, 0.0) for name in ("rollout", "long tail"))
    both = f", and rollout and long tail together take {together:.0%}" if "long tail" in shares else ""
    what = "step, with what runs at once shared out" if way.staleness else "step"
    yield f"Of the {what}: {listed}; {most} is the largest part{both}."
    trains = _split_text(layout, "", ("tp", "pp", "cp", "ep", "dp"))
    if way.served is not None:
        writes = _split_text(layout, "generator_", ("tp", "pp", "ep"))
        copies = f"{many(layout['generator_replicas'], 'generator')} of {writes}"
        pools = way.text[0].upper() + way.text[1:]
        yield f"{pools}: a trainer of {trains}, {copies}; MFU of training is {sheet.text('training_mfu')}."
    else:
        yield f"The trainer has {trains}; its MFU is {sheet.text('training_mfu')}."
    others = [each for each in ways[1 : 1 + OTHERS] if each.feasible]
    if others and sheet.plan.rl and sheet.plan.rl.split == AUTO:
        told = ", ".join(f"{each.text} ({each.seconds / way.seconds - 1:+.0%})" for each in others)
        yield f"Other splits: {told}."
    yield f"A step trains on {count_text(sheet.facts['work_of_a_step'])} tokens of {many(way.asked.samples.all, 'sample')}."
    yield from cost_sentence(sheet, _STEPS * way.seconds / _DAY, "A run of a thousand steps")
    yield from energy_sentence(sheet)
