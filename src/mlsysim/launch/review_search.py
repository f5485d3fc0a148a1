"""The best settings that a target can express, for :mod:`mlsysim.launch.review`: steps from the file's plan, one setting at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mlsysim.errors import InputError
from mlsysim.plans.answer import Answer
from mlsysim.plans.changes import LOWER_IS_BETTER, settled
from mlsysim.plans.evaluate import evaluate_plainly
from mlsysim.plans.plan import Plan
from mlsysim.plans.resolve import find_fleets, workload_of
from mlsysim.units.registry import Quantity

SETTINGS = (
    "tp", "pp", "cp", "ep", "virtual_stages", "micro_batch", "zero", "recompute", "sequence_parallel", "overlap",
)  # fmt: skip
_NEUTRAL = {
    "tp": 1, "pp": 1, "cp": 1, "ep": 1, "virtual_stages": 1, "zero": 0, "recompute": "none", "overlap": True,
    "replicas": 1,
}  # fmt: skip
SLIGHT = 0.005
_MOST_STEPS = 24


def scored(answer: Answer) -> float:
    """The main number, larger being better."""
    value = answer.value(answer.main)
    number = float(value.to_base_units().magnitude) if isinstance(value, Quantity) else float(value)
    return 1 / number if answer.main in LOWER_IS_BETTER and number else number


def attempt(plan: Plan) -> Answer | None:
    """The answer to a plan; None where it is refused."""
    try:
        return evaluate_plainly(plan)
    except InputError:
        return None


def better_of(first: Answer | None, second: Answer | None) -> Answer | None:
    """The better of two: one that fits before one that does not."""
    if first is None or second is None:
        return first or second
    if first.feasible != second.feasible:
        return first if first.feasible else second
    return second if scored(second) > scored(first) * (1 + SLIGHT) else first


def best_training(plan: Plan, now: Answer, fields: frozenset[str]) -> Answer | None:
    """The best layout: searched where the target has pipelines, then refined by single steps."""
    start: Answer | None = now
    if "parallelism.pp" in fields and "parallelism.virtual_stages" in fields:
        free = dict.fromkeys(type(plan.parallelism).model_fields) | {"mode": "auto"}
        start = better_of(now, attempt(plan.replacing(parallelism=free)))
    best = start or now
    for _ in range(_MOST_STEPS):
        step = None
        for candidate in _neighbours(best, fields):
            step = better_of(step, attempt(candidate))
        better = better_of(best, step)
        if better is None or better is best:
            break
        best = better
    return _pruned(best, settled(now)) if best.feasible and best is not now else best


def _pruned(best: Answer, mine: Plan) -> Answer:
    """The best settings with every one put back to the file's that makes no difference."""
    for name in reversed(SETTINGS):
        plan = settled(best)
        old = setting_of(mine, "parallelism", name)
        if old is None or old == setting_of(plan, "parallelism", name):
            continue
        for candidate in one_change(plan, name, old):
            tried = attempt(candidate)
            if tried is not None and tried.feasible and scored(tried) >= scored(best) * (1 - SLIGHT):
                best = tried
                break
    return best


def _neighbours(answer: Answer, fields: frozenset[str]) -> Iterator[Plan]:
    """Plans that differ in one setting that the target has."""
    plan = settled(answer)
    split = plan.parallelism
    heads = getattr(workload_of(plan.workload), "heads", None) or 1
    per_node = find_fleets(plan.hardware).one.node.accelerators_per_node

    def move(name: str, value: Any) -> Iterator[Plan]:
        if f"parallelism.{name}" in fields and value != getattr(split, name):
            yield from one_change(plan, name, value)

    tp, pp, micro = split.tp or 1, split.pp or 1, split.micro_batch or 1
    for value in (tp * 2, tp // 2):
        if value and heads % value == 0 and value <= per_node:
            yield from move("tp", value)
    for value in (pp * 2, pp // 2):
        if value:
            yield from move("pp", value)
    for value in (micro * 2, micro // 2):
        if value:
            yield from move("micro_batch", value)
    for stage in (0, 1, 2, 3):
        yield from move("zero", stage)
    for mode in ("none", "selective", "full"):
        yield from move("recompute", mode)
    yield from move("overlap", True)
    if tp > 1:
        yield from move("sequence_parallel", True)


def one_change(plan: Plan, name: str, value: Any) -> Iterator[Plan]:
    """The plan with one other setting: what follows from it is left open."""
    update: dict[str, Any] = {name: value, "dp": None}
    if name in ("pp", "virtual_stages"):
        update["schedule"] = None
        if name == "pp" and value == 1:
            update["virtual_stages"] = None
    yield plan.replacing(parallelism=update)
    if name in ("tp", "pp", "cp") and plan.parallelism.micro_batch is not None:
        yield plan.replacing(parallelism={**update, "micro_batch": None})


def best_serving(plan: Plan, now: Answer) -> Answer | None:
    """The best tensor-parallel degree with the replicas that it leaves, and more memory where the file holds some back."""
    free = {"mode": None, "tp": None, "pp": None, "ep": None}
    load = {"replicas": None}
    if plan.serving is not None and plan.serving.concurrency is None and now.layout.get("concurrency"):
        load["concurrency"] = now.layout["concurrency"]
    best = better_of(now, attempt(plan.replacing(parallelism=free, serving=load)))
    ep = plan.parallelism.ep
    if ep is not None and ep > 1:
        best = better_of(best, attempt(plan.replacing(parallelism={**free, "ep": ep}, serving=load)))
    for fraction in (0.9, 0.95):
        given = plan.serving.memory_fraction if plan.serving is not None else None
        if given is not None and given < fraction:
            more = {**load, "memory_fraction": fraction}
            best = better_of(best, attempt(plan.replacing(parallelism=free, serving=more)))
    return best


def setting_of(plan: Plan, part: str, name: str) -> Any:
    """What a plan says of a setting, or what saying nothing means."""
    value = getattr(getattr(plan, part), name, None)
    if name == "sequence_parallel":
        return (plan.parallelism.tp or 1) > 1 if value is None else value
    return _NEUTRAL.get(name) if value is None else value
