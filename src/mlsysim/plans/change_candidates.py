"""What the cheapest change is chosen from: rounds of candidates for each task, each the whole plan with one thing changed.

Few are tried, for each is evaluated: a layout that was searched has the best recomputation and micro-batch already; chunks, pools and
prefixes need long prompts; a power limit needs electricity that matters; with a rate to be carried the cost is that of the accelerators,
so that fewer of them come first. Numbers of accelerators are halved, not listed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from mlsysim.physics.precision import format_of
from mlsysim.plans.answer import Answer
from mlsysim.plans.limits import demands
from mlsysim.plans.plan import Plan
from mlsysim.plans.resolve import find_fleets, precision_used
from mlsysim.plans.ruling import LOST
from mlsysim.systems.registry import Fabrics
from mlsysim.units.registry import to_si
from mlsysim.units.text import compact_time

WORTH_IT = 0.02
"""What helps enough to be said."""
_SPARE = 1.25
"""How many times the rate that is asked for fewer accelerators must carry: arrivals are not even, nor is the model exact."""
_NODE = 8
"""Accelerators of a node, of a fleet that has not one whole."""


class Candidate(NamedTuple):
    """A change: what it is in words (of the answer that it gives, where that chooses something), and the plan so. One that is ``risky``
    may cost what no number here says."""

    words: str | Callable[[Answer], str]
    plan: Plan
    risky: bool = False


Rounds = Iterator[list[Candidate]]
Holds = Callable[[Plan], bool]


def _training(plan: Plan, answer: Answer, holds: Holds) -> Rounds:
    layout, given, micro = answer.layout, answer.plan.parallelism, plan.parallelism.micro_batch or 1
    settings: list[Candidate] = []
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
    larger = plan.replacing(workload={"batch_size": layout["batch_size"] * 2})
    formats = [Candidate(_LARGER, larger, True), *narrower(plan, answer, "compute", ("fp8",))]
    own = given.model_dump(exclude_none=True) if given.automatic else {}
    searched = plan.replacing(parallelism=dict.fromkeys(type(given).model_fields) | own | {"mode": "auto"})
    if not answer.passed:
        yield settings
        yield formats
        yield list(_faster_network(plan))
        late = "run_time" in answer.held and plan.ops.deadline is not None
        asked = to_si(answer.value("run_time"), "s") / to_si(plan.ops.deadline, "s") if late else 1.0
        yield [*_other_chips(searched), *_more(searched, asked, _EIGHTHS)]
        return
    yield [*settings, *formats, *_sturdier(plan, answer), *_capped(plan, answer), *_shorter(plan, answer, holds)]
    yield list(_faster_network(plan))
    yield list(_other_chips(searched))


_SAVED = {
    "asynchronous": "checkpoints written in the background",
    "in_memory": "checkpoints in the memory of neighbouring nodes",
}


def _sturdier(plan: Plan, answer: Answer) -> Iterator[Candidate]:
    """What failures cost less with, where they cost something: other checkpoints, and a quicker restart."""
    held, ops = answer.held, plan.ops
    if "goodput" not in held or held["goodput"].value > 1 - LOST:
        return
    for mode, words in _SAVED.items():
        if mode != ops.checkpoint_mode:
            saved = {"checkpoint_mode": mode, "checkpoint_time": None, "checkpoint_interval": None}
            yield Candidate(words, plan.replacing(ops=saved))
    seconds = to_si(held["restart_time"].value, "s")
    words = f"being back from a failure in {compact_time(seconds / 2)} instead of {compact_time(seconds)}"
    yield Candidate(words, plan.replacing(ops={"restart_time": f"{seconds / 2:.6g} s"}))


_RECOMPUTE = {"none": "no recomputation", "selective": "selective recomputation", "full": "full recomputation"}


def _split(layout: dict[str, Any]) -> str:
    """Degrees as people write them, such as TP4 PP2 DP64."""
    widths = [(name, layout.get(name) or 1) for name in ("tp", "pp", "cp", "ep", "dp")]
    return " ".join(f"{name.upper()}{width}" for name, width in widths if width > 1 or name == "tp")


def _other(was: dict[str, Any], now: dict[str, Any]) -> str:
    """What of a layout is another."""
    told = [f"{_split(now)} instead of {_split(was)}"] if _split(now) != _split(was) else []
    told += [_RECOMPUTE[now["recompute"]]] if now["recompute"] != was["recompute"] else []
    told += [f"ZeRO stage {now['zero']}"] if now["zero"] != was["zero"] else []
    told += [f"{now['micro_batches']:,} micro-batches"] if now["micro_batches"] != was["micro_batches"] else []
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
        if layout["batch_size"] % (each * micro) == 0 and (each * unit <= _NODE or each * unit % node == 0)
    }
    count = fewest(sorted(made), lambda count: holds(made[count]))
    if count is not None:
        yield Candidate(_instead(plan, count), made[count])


def fewest(counts: list[int], holds: Callable[[int], bool]) -> int | None:
    """The least of some numbers with which all holds, if it does with all that are larger."""
    low, high = -1, len(counts)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(counts[middle]) else (middle, high)
    return counts[high] if high < len(counts) else None


def _serving(plan: Plan, answer: Answer, holds: Holds) -> Rounds:
    from mlsysim.plans.arrivals import is_simulated

    given, part = answer.plan.serving, plan.serving
    assert part is not None
    parallel = dict.fromkeys(("mode", "tp", "pp", "ep", "attention_dp", "dp"))
    chosen = answer.plan.parallelism.tp is None
    loose = plan.replacing(parallelism=parallel, serving={"replicas": None})
    rate = given is not None and given.qps is not None
    if given is None or (given.concurrency is None and given.qps is None):
        # The load was ours to find, and is found again for each change.
        plan = plan.replacing(serving={"concurrency": None, "qps": None})
        loose = loose.replacing(serving={"concurrency": None, "qps": None})
    settings = [] if chosen else [Candidate("let the tensor-parallel degree be chosen", loose)]
    prompt = part.prompt_tokens or 0
    if prompt >= _LONG:
        chunks = (size for size in _CHUNKS if size != part.chunk_tokens)
        settings += [
            Candidate(f"prefill chunks of {size:,} tokens", plan.replacing(serving={"chunk_tokens": size}))
            for size in chunks
        ]
        fleet = find_fleets(plan.hardware).fleets[0]
        units = fleet.total_accelerators if fleet.count == 1 else fleet.count
        if chosen and part.decode_on is None and answer.fidelity != "simulated" and 1 < units <= _NODE:
            settings.append(Candidate(_apart, loose.replacing(serving={"decode_on": "auto"})))
    formats = list(narrower(plan, answer, "weights and arithmetic", ("fp8", "int8")))
    caches = plan.replacing(serving={"cache_precision": "fp8"})
    narrow = [Candidate(f"caches in fp8{_CAVEAT}", caches, True)] if part.cache_precision is None else []
    if not answer.passed:
        for spare in (_SPARE, 1.0) if rate and answer.feasible else ():
            yield list(_smaller(plan, loose if chosen else plan, answer, holds, spare))
        yield settings
        yield [*formats, *narrow]
        more = (
            _enough(loose, _short(answer), holds) if rate and not is_simulated(part) else _more(loose, _short(answer))
        )
        yield [*_other_chips(loose), *more]
        return
    if rate:
        # The same requests on the same accelerators cost the same.
        yield list(_smaller(plan, loose if chosen else plan, answer, holds))
        of_format = [(each, loose.replacing(workload={"precision": each.plan.workload.precision})) for each in formats]
        yield [
            fewer._replace(words=_both(each.words, fewer.words), risky=True)
            for each, free in of_format
            for fewer in _smaller(each.plan, free if chosen else each.plan, answer, holds)
        ]
    yield [*settings, *formats, *narrow, *_capped(plan, answer)]
    if prompt >= _LONG and not any((part.cached_prefix, part.prefix_hits, part.turns, part.trace)):
        words = "a prefix cache, if prompts share half of their tokens"
        yield [Candidate(words, plan.replacing(serving={"cached_prefix": prompt // 2}))]
    yield list(_other_chips(loose))


_LONG, _CHUNKS = 2000, (512, 2048, 8192)
"""Tokens of a prompt from which chunks, pools and prefixes are tried; and tokens of a chunk."""


def _apart(tried: Answer) -> str:
    return f"prefill and decode apart ({tried.assumptions['decode_on'].partition(',')[0]} for decode)"


def _both(*words: str | Callable[[Answer], str]) -> Callable[[Answer], str]:
    return lambda tried: " and ".join(each if isinstance(each, str) else each(tried) for each in words)


def _smaller(plan: Plan, free: Plan, answer: Answer, holds: Holds, spare: float = _SPARE) -> Iterator[Candidate]:
    """The fewest accelerators that carry so many times a rate within its limits."""
    fleet, part = find_fleets(plan.hardware).fleets[0], plan.serving
    if part is None or part.qps is None or part.decode_on is not None or plan.hardware.chip is not None:
        return
    total, replicas, node = fleet.total_accelerators, answer.layout["replicas"], fleet.node.accelerators_per_node
    given = free is plan
    unit = max(1, total // replicas) if given else 1
    counts = [each for each in range(unit, total, unit) if each <= _NODE or each % node == 0]
    if plan.ops.budget is not None and answer.paid is not None:
        # What is paid goes with their number.
        afforded = total * to_si(plan.ops.budget, "USD") / to_si(answer.paid.value, "USD")
        counts = [each for each in counts if each <= afforded]

    def made(count: int, rate: float = 1.0) -> Plan:
        fewer = {"replicas": count // unit if given else None, "qps": ((part and part.qps) or 1.0) * rate}
        return free.replacing(hardware=fleet_of(plan, count), serving=fewer)

    count = fewest(counts, lambda count: holds(made(count, spare)))
    if count is not None:
        was = "" if given else f" ({_replicas(answer)})"

        def words(tried: Answer) -> str:
            now = "" if given else f" ({_replicas(tried)})"
            kept = "every limit kept up to" if len(demands(tried)) > 1 else "room for"
            room = f", with {kept} {spare:g} times the rate" if spare > 1 else ", with little to spare"
            return f"{_instead(plan, count or 0, now)}{was}{room}"

        yield Candidate(words, made(count))


def _replicas(answer: Answer) -> str:
    split, number = _split({**answer.layout, "dp": 1}), answer.layout["replicas"]
    return split if number == 1 else f"{number:,} replicas of {split}"


def _inference(plan: Plan, answer: Answer, holds: Holds) -> Rounds:
    precision = precision_used(plan, answer)
    narrower = {
        "fp64": "fp32 fp16",
        "fp32": "fp16 int8",
        "tf32": "fp16 int8",
        "fp16": "fp8 int8",
        "bf16": "fp8 int8",
        "fp8": "int4",
        "int8": "int4",
    }
    yield [
        Candidate(f"{name} instead of {precision}{_CAVEAT}", plan.replacing(workload={"precision": name}), True)
        for name in narrower.get(precision, "").split()
    ]
    yield list(_other_chips(plan))


def _rl(plan: Plan, answer: Answer, holds: Holds) -> Rounds:
    part = plan.rl
    if part is None:
        return
    if part.split in (None, "none") and answer.layout.get("generator_tp"):
        words = "pools of their own for trainer and generator, one step apart (samples are of weights one update old)"
        yield [Candidate(words, plan.replacing(rl={"split": "auto"}), True)]
    yield list(_other_chips(plan))


ROUNDS = {"training": _training, "serving": _serving, "inference": _inference, "rl": _rl}
_CAVEAT = " (check the accuracy)"
_LARGER = "a batch twice as large (half as many updates for the same tokens: check that it learns as much)"


def narrower(plan: Plan, answer: Answer, what: str, formats: tuple[str, ...]) -> Iterator[Candidate]:
    """The first of some formats that all chips compute in, for a plan in sixteen bits; sixteen bits for one in more."""
    used = precision_used(plan, answer)
    if format_of(used).wide:
        formats = "bf16", "fp16"
    elif used not in ("bf16", "fp16"):
        return
    have = [fleet.node.accelerator.compute.precision_flops for fleet in find_fleets(plan.hardware).fleets]
    name = next((name for name in formats if all(name in each for each in have)), None)
    if name is not None:
        yield Candidate(f"{what} in {name}{_CAVEAT}", plan.replacing(workload={"precision": name}), True)


_CAP = 0.75


def _capped(plan: Plan, answer: Answer) -> Iterator[Candidate]:
    """A lower power limit, where electricity is so much of what is paid that it could matter."""
    held, tdp = answer.held, find_fleets(plan.hardware).fleets[0].node.accelerator.tdp
    if plan.hardware.power_cap is not None or tdp is None or answer.paid is not held.get("tco"):
        return
    if "electricity" in held and held["electricity"].value * (1 - _CAP) > held["tco"].value * WORTH_IT:
        watts = round(to_si(tdp, "W") * _CAP)
        yield Candidate(f"a power limit of {watts:,} W", plan.replacing(hardware={"power_cap": f"{watts} W"}))


def _faster_network(plan: Plan) -> Iterator[Candidate]:
    fleet = find_fleets(plan.hardware).fleets[0]
    rate = to_si(fleet.fabric.bandwidth, "byte/s")
    for key in ("InfiniBand_NDR", "InfiniBand_XDR") if fleet.count > 1 else ():
        fabric = Fabrics.get(key)
        if to_si(fabric.bandwidth, "byte/s") > rate * 1.01:
            words = f"{fabric.name} instead of {fleet.fabric.name} (whose price is not counted)"
            yield Candidate(words, plan.replacing(hardware={"fabric": key}))


SUCCESSORS = {
    "A100": ("H100", "H200"),
    "H100": ("H200", "B200"),
    "H200": ("B200",),
    "B200": ("B300",),
    "V100": ("A100", "H100"),
}


def _other_chips(plan: Plan) -> Iterator[Candidate]:
    """The same number of the next generation of a family of data-centre GPUs."""
    fleet = find_fleets(plan.hardware).fleets[0]
    key = fleet.node.accelerator.metadata.key or ""
    for name in SUCCESSORS.get(key.split("_")[0], ()) if plan.hardware.chip is None else ():
        on = {"on": f"{fleet.total_accelerators}x{name}", "fabric": None}
        yield Candidate(f"{name} instead of {key}", plan.replacing(hardware=on))


def fleet_of(plan: Plan, count: int) -> dict[str, Any]:
    """The hardware of a plan with another number of accelerators."""
    fleet = find_fleets(plan.hardware).fleets[0]
    key, fabric = fleet.node.accelerator.metadata.key, fleet.fabric.metadata.key
    joined = f"@{fabric}" if fleet.count > 1 and fabric and count > fleet.node.accelerators_per_node else ""
    return {"on": f"{count}x{key}{joined}", "fabric": None}


def _instead(plan: Plan, count: int, beside: str = "") -> str:
    fleet = find_fleets(plan.hardware).fleets[0]
    return f"{count:,} x {fleet.node.accelerator.metadata.key}{beside} instead of {fleet.total_accelerators:,}"


def _short(answer: Answer) -> float:
    """How many times as many requests come as are answered; 1 where none are, or nobody said how many come."""
    asked = None if answer.plan.serving is None else answer.plan.serving.qps
    answered = to_si(answer.value("requests_per_second"), "1/s") if answer.feasible or answer.overloaded else 0.0
    return asked / answered if asked and answered else 1.0


def _enough(plan: Plan, asked: float, holds: Holds) -> Iterator[Candidate]:
    """As few more as keep what is asked, which is ``asked`` times as much: twice as many until they do, then the fewest between, in whole nodes
    beyond one."""
    fleet = find_fleets(plan.hardware).fleets[0]
    node, known = max(fleet.node.accelerators_per_node, _NODE), fleet.node.accelerator.metadata.key is not None
    made: dict[int, Plan] = {}

    def on(count: int) -> Plan:
        return made.setdefault(count, plan.replacing(hardware=fleet_of(plan, count)))

    count = fleet.total_accelerators * max(2, int(asked / 2))
    for _ in range(_DOUBLINGS if known and plan.hardware.chip is None else 0):
        count = count if count <= node else math.ceil(count / node) * node
        if holds(on(count)):
            # Of many nodes, sixteenths.
            step = node * max(1, count // (32 * node))
            between = [n for n in range(count // 2 + 1, count + 1) if n < node or n % step == 0]
            least = fewest(between, lambda count: holds(on(count))) or count
            yield Candidate(_instead(plan, least), on(least))
            return
        count *= 2


_DOUBLINGS = 8
"""How often a service is tried on twice as many."""
_EIGHTHS = (10, 12, 14, 16, 20, 24, 28, 32, 64)
"""Eighths of a fleet that more accelerators are, so that batches divide by them."""


def _more(plan: Plan, asked: float = 1.0, eighths: tuple[int, ...] = (16, 32, 64)) -> Iterator[Candidate]:
    """Some times as many, at least ``asked``; and, for a rate, as few as might do, in whole nodes beyond one."""
    fleet = find_fleets(plan.hardware).fleets[0]
    total, node = fleet.total_accelerators, max(fleet.node.accelerators_per_node, _NODE)
    counts = {total * each // 8 for each in eighths if each >= 8 * asked and total * each % 8 == 0}
    counts = {count for count in counts if count < node or count % node == 0 or count % total == 0}
    if eighths is _EIGHTHS:
        counts = set(sorted(counts)[:4]) | {total * 8}
    elif asked > 1:
        step = 1 if total * asked < _NODE else node
        least = math.ceil(total * asked / step) * step
        counts |= {least, least + step}
    if fleet.node.accelerator.metadata.key and plan.hardware.chip is None:
        for count in sorted(counts):
            yield Candidate(_instead(plan, count), plan.replacing(hardware=fleet_of(plan, count)))
