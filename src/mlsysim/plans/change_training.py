"""Rounds of changes of training and of post-training, each the whole plan with one thing changed.

Few are tried, for each is evaluated: a layout that was searched has the best recomputation and micro-batch already; a power limit needs
electricity that matters. Numbers of accelerators are halved, not listed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mlsysim.cases.failures import enough_spares
from mlsysim.cases.goodput import PATIENCE
from mlsysim.plans.answer import Answer
from mlsysim.plans.change_candidates import (
    CAVEAT,
    EIGHTHS,
    NODE,
    Candidate,
    Holds,
    Rounds,
    capped,
    degrees,
    fewest,
    fleet_of,
    instead,
    more,
    narrower,
    other_chips,
)
from mlsysim.plans.plan import Plan
from mlsysim.plans.resolve import find_fleets, workload_of
from mlsysim.plans.ruling import LOST
from mlsysim.plans.training_layout import least_fleet
from mlsysim.plans.training_time import said_of
from mlsysim.systems.registry import Fabrics
from mlsysim.units.registry import to_si
from mlsysim.units.text import compact_time, many

_LARGER = "a batch twice as large{} (half as many updates for the same {}: check that it learns as much)"


def of_training(plan: Plan, answer: Answer, holds: Holds) -> Rounds:
    """Rounds of changes of training: its layout, batch and format, what failures cost, the network, other chips and more of them."""
    layout, given, micro = answer.layout, answer.plan.parallelism, plan.parallelism.micro_batch or 1
    settings: list[Candidate] = []
    if "goodput" in answer.held and answer.held["goodput"].value * PATIENCE <= 1:
        # A run that does not end is no better for steps that are quicker.
        yield list(_sturdier(plan, answer))
        return
    if not given.automatic:
        searching = plan.replacing(parallelism=None)
        settings = [Candidate(lambda tried: f"let the layout be searched ({_other(layout, tried.layout)})", searching)]
        splits: list[tuple[str, dict[str, Any]]] = [
            (words, {"recompute": mode}) for mode, words in _RECOMPUTE.items() if mode != layout.get("recompute")
        ]
        splits += [(f"ZeRO stage {k}", {"zero": k}) for k in (1, 2, 3) if k > layout.get("zero", 0)]
        splits += [
            (f"micro-batches of {size}", {"micro_batch": size}) for size in {max(1, micro // 2), micro * 2} - {micro}
        ]
        settings += [Candidate(words, plan.replacing(parallelism=split)) for words, split in splits]
    formats = [*_larger(plan, answer, micro), *_of_format(plan, answer)]
    own = given.model_dump(exclude_none=True) if given.automatic else {}
    searched = plan.replacing(parallelism=dict.fromkeys(type(given).model_fields) | own | {"mode": "auto"})
    if not answer.passed:
        yield settings
        yield formats
        yield list(_faster_network(plan))
        late = "run_time" in answer.held and plan.ops.deadline is not None
        asked = to_si(answer.value("run_time"), "s") / to_si(plan.ops.deadline, "s") if late else 1.0
        yield [*other_chips(searched), *more(searched, asked, EIGHTHS), *_enough(plan, searched, answer)]
        return
    yield [*settings, *formats, *_sturdier(plan, answer), *capped(plan, answer), *_shorter(plan, answer, holds)]
    yield list(_faster_network(plan))
    yield list(other_chips(searched))


def _enough(plan: Plan, searched: Plan, answer: Answer) -> Iterator[Candidate]:
    """The smallest fleet that holds what does not fit, which its verdict names, and the next that is 2, 4, 8 ... times as large, which more layouts divide.
    Networks of fixed shape keep their batch, whose samples the smallest need not divide."""
    if not answer.feasible and plan.hardware.chip is None and (enough := least_fleet(searched).get("fleet")):
        least, batch = enough
        own, same = find_fleets(plan.hardware).one.total_accelerators, answer.layout["batch_size"]
        counts = {least, own << max(0, -(-least // own) - 1).bit_length()}
        if batch != same and workload_of(plan.workload).fixed_shape:
            counts, batch = counts - {least}, same
        beside = "" if batch == same else f" and a batch of {batch:,}"
        for count in sorted(counts):
            hard, work = fleet_of(plan, count), {"batch_size": batch}
            yield Candidate(f"{instead(plan, count)}{beside}", searched.replacing(hardware=hard, workload=work))


def _larger(plan: Plan, answer: Answer, micro: int) -> Iterator[Candidate]:
    """Twice the batch: in twice as many micro-batches; of networks of fixed shape, whose layouts are not searched, also in micro-batches twice as
    large where nobody gave their size."""
    larger, given = plan.replacing(workload={"batch_size": answer.layout["batch_size"] * 2}), answer.plan.parallelism
    fixed = workload_of(plan.workload).fixed_shape
    seen = "samples" if fixed else "tokens"
    yield Candidate(_LARGER.format("", seen), larger, True)
    if fixed and given.micro_batch is None and given.micro_batches is None:
        words = _LARGER.format(f", in micro-batches of {2 * micro}", seen)
        yield Candidate(words, larger.replacing(parallelism={"micro_batch": 2 * micro}), True)


def _of_format(plan: Plan, answer: Answer) -> Iterator[Candidate]:
    """Narrower arithmetic; of weights that are frozen beside adapters, narrower storage (QLoRA)."""
    if plan.workload.lora_rank is None:
        yield from narrower(plan, answer, "compute", ("fp8",))
    elif answer.precision in ("bf16", "fp16"):
        stored = plan.replacing(workload={"precision": "nf4"})
        yield Candidate(f"frozen weights stored in nf4, as QLoRA has them{CAVEAT}", stored, True)


_SAVED = {
    "asynchronous": "checkpoints written in the background",
    "in_memory": "checkpoints in the memory of neighbouring nodes",
}


def _sturdier(plan: Plan, answer: Answer) -> Iterator[Candidate]:
    """What failures cost less with, where they cost something: other checkpoints, and a quicker restart."""
    held, ops = answer.held, plan.ops
    if "goodput" not in held or held["goodput"].value > 1 - LOST or ops.simulated:
        # What was played says it itself, of many runs.
        return
    if ops.spares is not None:
        fleet = find_fleets(plan.hardware).one
        enough = enough_spares(to_si(held["mtbf"].value, "h"), said_of(plan, fleet))[1]
        if enough > ops.spares:
            yield Candidate(
                f"{many(enough, 'spare node')} instead of {ops.spares:,}", plan.replacing(ops={"spares": enough})
            )
    for mode, words in _SAVED.items():
        if mode != ops.checkpoint_mode:
            saved = {"checkpoint_mode": mode, "checkpoint_time": None, "checkpoint_interval": None}
            yield Candidate(words, plan.replacing(ops=saved))
    seconds = to_si(held["restart_time"].value, "s")
    words = f"being back from a failure in {compact_time(seconds / 2)} instead of {compact_time(seconds)}"
    yield Candidate(words, plan.replacing(ops={"restart_time": f"{seconds / 2:.6g} s"}))


_RECOMPUTE = {"none": "no recomputation", "selective": "selective recomputation", "full": "full recomputation"}


def _other(was: dict[str, Any], now: dict[str, Any]) -> str:
    """What of a layout is another."""
    told = [f"{degrees(now)} instead of {degrees(was)}"] if degrees(now) != degrees(was) else []
    told += [_RECOMPUTE[now["recompute"]]] if now["recompute"] != was["recompute"] else []
    told += [f"ZeRO stage {now['zero']}"] if now["zero"] != was["zero"] else []
    told += (
        [f"{now['micro_batches']:,} micro-batch{'es' * (now['micro_batches'] != 1)}"]
        if now["micro_batches"] != was["micro_batches"]
        else []
    )
    told += [f"{now['virtual_stages']} chunks a stage"] if now["virtual_stages"] != was["virtual_stages"] else []
    return ", ".join(told) or "in other details"


def _shorter(plan: Plan, answer: Answer, holds: Holds) -> Iterator[Candidate]:
    """The fewest accelerators that keep a deadline, with as much of the batch for each replica more as there are fewer."""
    layout, fleet = answer.layout, find_fleets(plan.hardware).fleets[0]
    if (
        plan.ops.deadline is None
        or plan.workload.tokens is None
        or plan.hardware.chip is not None
        or "dp" not in layout
    ):
        return
    total, dp, micro = fleet.total_accelerators, layout["dp"], plan.parallelism.micro_batch or 1
    unit, node = total // dp, fleet.node.accelerators_per_node
    made = {
        each * unit: plan.replacing(parallelism={"dp": each}, hardware=fleet_of(plan, each * unit))
        for each in range(1, dp)
        if layout["batch_size"] % (each * micro) == 0 and (each * unit <= NODE or each * unit % node == 0)
    }
    count = fewest(sorted(made), lambda count: holds(made[count]))
    if count is not None:
        yield Candidate(instead(plan, count), made[count])


def _faster_network(plan: Plan) -> Iterator[Candidate]:
    fleet = find_fleets(plan.hardware).fleets[0]
    rate = to_si(fleet.fabric.bandwidth, "byte/s")
    for key in ("InfiniBand_NDR", "InfiniBand_XDR") if fleet.count > 1 else ():
        fabric = Fabrics.get(key)
        if to_si(fabric.bandwidth, "byte/s") > rate * 1.01:
            words = f"{fabric.name} instead of {fleet.fabric.name} (whose price is not counted)"
            yield Candidate(words, plan.replacing(hardware={"fabric": key}))


def of_post_training(plan: Plan, answer: Answer, holds: Holds) -> Rounds:
    """Rounds of changes of post-training: pools of their own, other chips."""
    part = plan.rl
    if part is None:
        return
    if part.split in (None, "none") and answer.layout.get("generator_tp"):
        words = "pools of their own for trainer and generator, one step apart (samples are of weights one update old)"
        yield [Candidate(words, plan.replacing(rl={"split": "auto"}), True)]
    yield list(other_chips(plan))
