"""The best settings that the target of a launch file can express: steps from the file's plan, one setting at a time.

A layout search (:class:`mlsysim.search.parallelism.ParallelismOptimizer`) begins where the target has pipelines; for serving every tensor-parallel
degree is tried with the replicas that it leaves. What a setting is worth is told by :mod:`mlsysim.launch.review`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from mlsysim.errors import InputError
from mlsysim.launch.edits import runs, target_of
from mlsysim.launch.reading import Reading
from mlsysim.launch.reasons import NEUTRAL
from mlsysim.plans.answer import Answer
from mlsysim.plans.changes import score, settled
from mlsysim.plans.evaluate import evaluate_plainly
from mlsysim.plans.plan import Plan
from mlsysim.plans.resolve import find_fleets, workload_of
from mlsysim.timing.engine_device import present
from mlsysim.timing.engines import engine

SETTINGS = (
    "tp", "pp", "cp", "ep", "attention_dp", "virtual_stages", "micro_batch", "zero", "recompute", "sequence_parallel", "overlap", "offload",
)  # fmt: skip
SLIGHT = 0.005
_MOST_STEPS = 24


def attempt(plan: Plan, reading: Reading) -> Answer | None:
    """The answer to a plan; None where it is refused, or the target cannot be told to run it."""
    try:
        found = evaluate_plainly(plan)
    except InputError:
        return None
    return None if runs(reading, found) or not _even(found, reading) else found


def _even(answer: Answer, reading: Reading) -> bool:
    """Whether stages divide the layers, as Megatron-LM wants them where no layout of its own is written down."""
    layers = getattr(workload_of(answer.plan.workload), "layers", None) or 0
    stages = answer.layout.get("pp", 1) * answer.layout.get("virtual_stages", 1)
    return target_of(reading).NAME != "megatron" or layers % stages == 0


def _better_of(first: Answer | None, second: Answer | None) -> Answer | None:
    """The better of two: one that fits before one that does not."""
    if first is None or second is None:
        return first or second
    if first.feasible != second.feasible:
        return first if first.feasible else second
    return second if score(second) > score(first) * (1 + SLIGHT) else first


def best_of(first: Answer | None, plans: Iterable[Plan], reading: Reading) -> Answer | None:
    """The best of an answer and those to plans."""
    for plan in plans:
        first = _better_of(first, attempt(plan, reading))
    return first


def best_training(plan: Plan, now: Answer, reading: Reading) -> Answer:
    """The best layout that the trainer runs: searched where it has pipelines, then refined by single steps."""
    best, fields, trainer = (
        now,
        frozenset(target_of(reading).FIELDS),
        {"hardware": {"launcher": reading.inner or reading.target}},
    )
    if "parallelism.pp" in fields and "parallelism.virtual_stages" in fields:
        free = dict.fromkeys(type(plan.parallelism).model_fields) | {"mode": "auto"}
        widths = [{}, *({"virtual_stages": 2**k} for k in range(4))]
        searched = (plan.replacing(parallelism=free | width, **trainer) for width in widths)
        best = next((found for found in (attempt(each, reading) for each in searched) if found), now)
        best = _better_of(now, best) or now
    faster = getattr(target_of(reading), "FASTER", {}).get(plan.hardware.stack or "")
    if faster is not None:
        best = best_of(best, [settled(best).replacing(hardware={"stack": faster})], reading) or best
    for _ in range(_MOST_STEPS):
        steps = (each.replacing(**trainer) for each in _neighbours(best, fields))
        better = _better_of(best, best_of(None, steps, reading))
        if better is None or better is best:
            break
        best = better
    return _pruned(best, settled(now), reading) if best.feasible and best is not now else best


def _pruned(best: Answer, mine: Plan, reading: Reading) -> Answer:
    """The best settings with every one put back to the file's that makes no difference."""
    for name in reversed(SETTINGS):
        plan = settled(best)
        old = setting_of(mine, "parallelism", name)
        if old is None or old == setting_of(plan, "parallelism", name):
            continue
        for candidate in one_change(plan, name, old):
            tried = attempt(candidate, reading)
            if tried is not None and tried.feasible and score(tried) >= score(best) * (1 - SLIGHT):
                best = tried
                break
    return best


def _neighbours(answer: Answer, fields: frozenset[str]) -> Iterator[Plan]:
    """Plans that differ in one setting that the target has."""
    plan = settled(answer)
    split = plan.parallelism
    heads = getattr(workload_of(plan.workload), "heads", None) or 1
    per_node = find_fleets(plan.hardware).one.node.accelerators_per_node
    tp = split.tp or 1
    moves: dict[str, Sequence[Any]] = {
        "tp": [degree for degree in _beside(tp) if heads % degree == 0 and degree <= per_node],
        "pp": _beside(split.pp or 1),
        "micro_batch": _beside(split.micro_batch or 1),
        "zero": (0, 1, 2, 3),
        "recompute": ("none", "selective", "full"),
        "overlap": (True,),
        "sequence_parallel": (True,) if tp > 1 else (),
        "offload": (0.0,) if split.offload else (),
    }
    for name, values in moves.items():
        for value in values:
            if f"parallelism.{name}" in fields and value != getattr(split, name):
                yield from one_change(plan, name, value)


def _beside(count: int) -> list[int]:
    return [count * 2, count // 2] if count > 1 else [2]


def one_change(plan: Plan, name: str, value: Any) -> Iterator[Plan]:
    """The plan with one other setting: what follows from it is left open."""
    update: dict[str, Any] = {name: value, "dp": None}
    if name in ("pp", "virtual_stages"):
        update["schedule"] = None
        if name == "pp" and value == 1:
            update["virtual_stages"] = None
    if name == "offload":
        update |= {"host_update": None, "offload_weights": None}
    yield plan.replacing(parallelism=update)
    if name in ("tp", "pp", "cp") and plan.parallelism.micro_batch is not None:
        yield plan.replacing(parallelism={**update, "micro_batch": None})


def best_serving(plan: Plan, now: Answer, reading: Reading) -> Answer | None:
    """The best tensor-parallel degree with the replicas that it leaves, more memory where the file holds some back, and graphs where it does without."""
    free: dict[str, Any] = dict.fromkeys(("mode", "tp", "pp", "ep", "attention_dp", "dp"))
    load, part = {"replicas": None}, plan.serving
    # Requests that come at a rate do so to any layout; the number in flight that nobody gave is the file's own.
    open_ = part is not None and (part.qps is not None or part.trace is not None)
    if part is not None and not open_ and part.concurrency is None and now.layout.get("concurrency"):
        load["concurrency"] = now.layout["concurrency"]
    plans = [plan.replacing(parallelism=free, serving=load)]
    ep, given = plan.parallelism.ep or 1, part.memory_fraction if part is not None else None
    if ep > 1:
        plans.append(plan.replacing(parallelism={**free, "ep": ep}, serving=load))
    more = [fraction for fraction in (0.9, 0.95) if given is not None and given < fraction]
    plans += [plan.replacing(parallelism=free, serving={**load, "memory_fraction": fraction}) for fraction in more]
    if part is not None and part.engine and present(engine(part.engine).answer_operator):
        server = target_of(reading)
        with_graphs = [
            name for name in (server.ENGINE, *server.settings.values()) if not present(engine(name).answer_operator)
        ]
        plans += [each.replacing(serving={"engine": name}) for each in (plan, *plans) for name in with_graphs]
    return best_of(now, plans, reading)


def setting_of(plan: Plan, part: str, name: str) -> Any:
    """What a plan says of a setting, or what saying nothing means."""
    value = getattr(getattr(plan, part), name, None)
    if name == "sequence_parallel":
        return (plan.parallelism.tp or 1) > 1 if value is None else value
    return NEUTRAL.get(f"{part}.{name}") if value is None else value
