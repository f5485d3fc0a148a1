"""The cheapest change that moves the binding wall, and how much each figure of the hardware is worth.

Changes are tried in classes of effort: settings of the software first, then number formats, then another network, then
other or more hardware. The first class in which something helps by 2 % or more (or makes a plan fit, or keep what it was
asked to) wins, and in it what helps most. A change never breaks a demand that the plan keeps, and where nothing is wrong it does
not raise the cost by a larger factor than what it betters. It is a whole plan, so it can be evaluated, compared and launched as it
stands, and it changes what it says alone: a layout that was given stays. Numbers do not say what a narrower format does to
accuracy, or a larger batch to convergence; a network has no price of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

from mlsysim.errors import InputError
from mlsysim.plans.answer import Answer, Change
from mlsysim.plans.limits import demands
from mlsysim.plans.plan import Plan
from mlsysim.plans.resolve import find_fleets, precision_used, workload_of
from mlsysim.systems.registry import Fabrics
from mlsysim.units.registry import Quantity, to_si
from mlsysim.walls.binding import NEGLIGIBLE

LOWER_IS_BETTER = ("latency", "ttft", "tpot", "usd_per_mtoken")
_WORTH_IT = 0.02
_STEP = 0.1
_NODE = 8
"""Accelerators of a node, of a fleet that has not one whole."""

Evaluate = Callable[[Plan], Answer]


def settled(answer: Answer) -> Plan:
    """The plan with everything that was chosen for it written down: layout, batch, lengths."""
    plan, layout = answer.plan, answer.layout
    if answer.task == "training" and layout and "tp" in layout:
        local = layout["batch_size"] // layout["dp"]
        split = {name: layout[name] for name in ("tp", "pp", "cp", "ep", "virtual_stages", "zero", "recompute")}
        split |= {"mode": "given", "micro_batch": max(1, local // layout["micro_batches"]), "dp": layout["dp"]}
        if layout.get("schedule") and layout["pp"] > 1:
            split["schedule"] = layout["schedule"]
        # Sequence parallelism and overlap stay as the plan has them.
        lengths: dict[str, Any] = {"batch_size": layout["batch_size"]}
        if plan.workload.seq_len is not None or "seq_len" in answer.assumptions:
            lengths["seq_len"] = layout["seq_len"]
        return plan.replacing(parallelism=split, workload=lengths, task="training")
    if answer.task == "serving" and layout and "tp" in layout:
        traffic: dict[str, Any] = {"replicas": layout["replicas"]}
        if "qps" in layout:
            traffic["qps"] = layout["qps"]
        else:
            traffic["concurrency"] = layout["concurrency"]
        split = {"mode": "given", **{name: layout[name] for name in ("tp", "pp", "ep")}}
        split |= {"attention_dp": layout["attention_dp"] if layout["attention_dp"] > 1 else None, "dp": None}
        return plan.replacing(parallelism=split, serving=traffic, task="serving")
    return plan


def cheapest_change(answer: Answer, evaluate: Evaluate) -> Change | None:
    """The least effort that betters the answer's main metric, or makes it fit."""
    base, cost = score(answer), _cost(answer)
    wrong = not answer.passed
    for group in _MAKERS[answer.task](settled(answer), answer):
        best: Change | None = None
        gained = 0.0 if wrong else _WORTH_IT
        for words, plan in group:
            try:
                tried = evaluate(plan)
                kept = tried.feasible and all(check.passed for check in demands(tried))
            except InputError:
                continue
            factor = score(tried) / base if base > 0 else 1.0
            spent = _cost(tried)
            # Of what puts a wrong plan right the cheapest, else what helps most.
            gain = factor - 1 if not wrong else 1 / spent if spent else factor
            ratio = spent / cost if spent is not None and cost else None
            dear = not wrong and ratio is not None and ratio > max(factor, 1.0)
            if kept and gain > gained and not dear:
                gained = gain
                told = 1 / factor if answer.main in LOWER_IS_BETTER else factor
                sentence = _sentence(answer, words, factor, ratio)
                best = Change(sentence=sentence, metric=answer.main, factor=told, cost_factor=ratio, plan=plan)
        if best is not None:
            return best
    return None


def score(answer: Answer) -> float:
    """The main metric such that more is better."""
    value = answer.value(answer.main)
    number = float(value.to_base_units().magnitude) if isinstance(value, Quantity) else float(value)
    return 1 / number if answer.main in LOWER_IS_BETTER and number else number


def _cost(answer: Answer) -> float | None:
    held = answer.held
    named = ("usd_per_mtoken", "tco", "purchase")
    return next((float(held[name].value.magnitude) for name in named if name in held), None)


def _sentence(before: Answer, words: str, factor: float, ratio: float | None) -> str:
    if not before.feasible:
        return f"Cheapest change: {words}; then it fits."
    if not before.passed:
        return f"Cheapest change: {words}; then all that was asked holds."
    money = ""
    if ratio is not None and abs(ratio - 1) >= 0.01:
        money = f" and {abs(ratio - 1):.0%} {'lower' if ratio < 1 else 'higher'} cost"
        if "usd_per_mtoken" in before.held:
            money += " per sample" if workload_of(before.plan.workload).fixed_shape else " per token"
    what = {
        "tokens_per_second": "throughput",
        "latency": "speed",
        "tpot": "speed of tokens",
        "ttft": "speed of first tokens",
    }[before.main]
    gain = f"{factor - 1:.0%} more" if factor < 2 else f"{factor:.2g} times the"
    return f"Cheapest change: {words}: {gain} {what}{money}."


Candidates = Iterator[list[tuple[str, Plan]]]
"""Classes of effort: what is changed in words, and the plan so."""


def _training(plan: Plan, answer: Answer) -> Candidates:
    layout = answer.layout
    given = answer.plan.parallelism
    if not given.automatic:
        micro = plan.parallelism.micro_batch or 1
        settings: list[tuple[str, dict[str, Any] | None]] = [("let the layout be searched", None)]
        modes = [mode for mode in ("none", "selective", "full") if mode != layout.get("recompute")]
        settings += [(f"recompute {mode}", {"recompute": mode}) for mode in modes]
        settings += [(f"ZeRO stage {k}", {"zero": k}) for k in (1, 2, 3) if k > layout.get("zero", 0)]
        sizes = {max(1, micro // 2), micro * 2} - {micro}
        settings += [(f"micro-batches of {size}", {"micro_batch": size}) for size in sizes]
        yield [(words, plan.replacing(parallelism=split)) for words, split in settings]
    own = given.model_dump(exclude_none=True) if given.automatic else {}
    searched = plan.replacing(parallelism=dict.fromkeys(type(given).model_fields) | own | {"mode": "auto"})
    kept = searched if given.automatic else plan
    yield [
        (_LARGER, kept.replacing(workload={"batch_size": layout["batch_size"] * 2})),
        *_narrower(plan, answer, "compute", ("fp8",)),
    ]
    yield list(_faster_network(plan))
    yield list(_other_chips(searched))
    yield list(_more(searched))


def _serving(plan: Plan, answer: Answer) -> Candidates:
    part, given = plan.serving, answer.plan.serving
    parallel = dict.fromkeys(("mode", "tp", "pp", "ep", "attention_dp", "dp"))
    if answer.plan.parallelism.tp is not None:
        free = plan.replacing(parallelism=parallel, serving={"replicas": None})
        yield [("let the tensor-parallel degree be chosen", free)]
    if given is None or (given.concurrency is None and given.qps is None):
        # The load was ours to find, and is found again for each change.
        plan = plan.replacing(serving={"concurrency": None, "qps": None})
    narrow = list(_narrower(plan, answer, "weights and arithmetic", ("fp8", "int8")))
    if part is not None and part.cache_precision is None:
        narrow.append((f"caches in fp8{_CAVEAT}", plan.replacing(serving={"cache_precision": "fp8"})))
    yield narrow
    loose = plan.replacing(parallelism=parallel, serving={"replicas": None})
    yield list(_other_chips(loose))
    answered = to_si(answer.value("requests_per_second"), "1/s")
    yield list(_more(loose, part.qps / answered if part is not None and part.qps and answered else 1.0))


def _inference(plan: Plan, answer: Answer) -> Candidates:
    precision = precision_used(plan, answer)
    narrower = {"fp32": "fp16 int8", "fp16": "fp8 int8", "bf16": "fp8 int8", "fp8": "int4", "int8": "int4"}
    yield [
        (f"{name} instead of {precision}{_CAVEAT}", plan.replacing(workload={"precision": name}))
        for name in narrower.get(precision, "").split()
    ]
    yield list(_other_chips(plan))


_MAKERS = {"training": _training, "serving": _serving, "inference": _inference}
_CAVEAT = " (check the accuracy)"
_LARGER = "a batch twice as large (half as many updates for the same tokens: check that it learns as much)"


def _narrower(plan: Plan, answer: Answer, what: str, formats: tuple[str, ...]) -> Iterator[tuple[str, Plan]]:
    """The first of some formats that the chip computes in, for a plan in sixteen bits."""
    if precision_used(plan, answer) not in ("bf16", "fp16"):
        return
    have = find_fleets(plan.hardware).fleets[0].node.accelerator.compute.precision_flops
    name = next((name for name in formats if name in have), None)
    if name is not None:
        yield f"{what} in {name}{_CAVEAT}", plan.replacing(workload={"precision": name})


def _faster_network(plan: Plan) -> Iterator[tuple[str, Plan]]:
    fleet = find_fleets(plan.hardware).fleets[0]
    rate = to_si(fleet.fabric.bandwidth, "byte/s")
    for key in ("InfiniBand_NDR", "InfiniBand_XDR") if fleet.count > 1 else ():
        fabric = Fabrics.get(key)
        if to_si(fabric.bandwidth, "byte/s") > rate * 1.01:
            yield (
                f"{fabric.name} instead of {fleet.fabric.name} (whose price is not counted)",
                plan.replacing(hardware={"fabric": key}),
            )


_SUCCESSORS = {
    "A100": ("H100", "H200"),
    "H100": ("H200", "B200"),
    "H200": ("B200",),
    "B200": ("B300",),
    "V100": ("A100", "H100"),
}


def _other_chips(plan: Plan) -> Iterator[tuple[str, Plan]]:
    """The same number of the next generation of a family of data-centre GPUs."""
    fleet = find_fleets(plan.hardware).fleets[0]
    key = fleet.node.accelerator.metadata.key or ""
    for name in _SUCCESSORS.get(key.split("_")[0], ()) if plan.hardware.chip is None else ():
        on = {"on": f"{fleet.total_accelerators}x{name}", "fabric": None}
        yield f"{name} instead of {key}", plan.replacing(hardware=on)


def _more(plan: Plan, asked: float = 1.0) -> Iterator[tuple[str, Plan]]:
    """Two, four and eight times as many; and as few as ``asked`` times the rate might do with, in whole nodes beyond one."""
    fleet = find_fleets(plan.hardware).fleets[0]
    key, fabric = fleet.node.accelerator.metadata.key, fleet.fabric.metadata.key
    joined = f"@{fabric}" if fleet.count > 1 and fabric else ""
    total, counts = fleet.total_accelerators, {fleet.total_accelerators * factor for factor in (2, 4, 8)}
    if asked > 1:
        step = 1 if total * asked < _NODE else max(fleet.node.accelerators_per_node, _NODE)
        least = math.ceil(total * asked / step) * step
        counts |= {least, least + step}
    for count in sorted(counts) if key and plan.hardware.chip is None else ():
        on = {"on": f"{count}x{key}{joined}", "fabric": None}
        yield f"{count:,} x {key} instead of {fleet.total_accelerators:,}", plan.replacing(hardware=on)


_RESOURCES = {
    "peak_flops": ("peak", "vector"),
    "memory_bandwidth": ("bandwidth",),
    "link_bandwidth": ("link",),
    "fabric_bandwidth": ("fabric",),
    "host_speed": ("host", "start"),
    "host_link_bandwidth": ("host link",),
}
"""Figures of the hardware, and the resources of the ledger whose time they scale."""

_OF_ANY_CHIP = ("peak_flops", "memory_bandwidth")
_OF_THE_HOST = ("host_speed", "host_link_bandwidth")
"""Figures that have a line always; and only where something waits for them."""


def sensitivities(answer: Answer) -> dict[str, tuple[float | None, float | None]]:
    """Change of the main metric (a fraction of it) with 10 % less and with 10 % more of each figure of the hardware.

    Read off the ledger. ``elastic`` seconds of a resource are t dT/dt, losses handed on to what they are made of; x times the
    resource takes 1/x of them:

        T(x) / T = 1 - e + e / x,     e the elastic share

    That is exact to first order in the change, and exact while no overlap changes sides; a time that is hidden now and would show
    counts nothing. Of the capacity of memory it says whether the plan still fits (None where not).
    """
    ledger, memory = answer.ledger_of_main, answer.memory
    if ledger is None or not ledger.seconds:
        return {}
    elastic = ledger.resources()
    found: dict[str, tuple[float | None, float | None]] = {}
    for name, resources in _RESOURCES.items():
        share = float(sum(elastic.get(resource, 0.0) for resource in resources) / ledger.seconds)
        there = name in _OF_ANY_CHIP or (name not in _OF_THE_HOST and any(each in elastic for each in resources))
        if there or share >= NEGLIGIBLE:
            times = [1 - share + share / factor for factor in (1 - _STEP, 1 + _STEP)]
            less, more = (time - 1 if answer.main in LOWER_IS_BETTER else 1 / time - 1 for time in times)
            found[name] = (less, more)
    if memory is not None:
        short = answer.feasible and memory.used > (1 - _STEP) * memory.capacity
        found["memory_capacity"] = (None if short else 0.0, 0.0)
    return found
