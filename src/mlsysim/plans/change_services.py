"""Rounds of changes of a service and of one pass, each the whole plan with one thing changed.

Few are tried, for each is evaluated: chunks, pools and prefixes need long prompts; a power limit needs electricity that matters; with a rate to be
carried the cost is that of the accelerators, so that fewer of them come first. Numbers of accelerators are halved, not listed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator

from mlsysim.plans.answer import Answer
from mlsysim.plans.change_candidates import (
    CAVEAT,
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
from mlsysim.plans.limits import demands
from mlsysim.plans.plan import Plan
from mlsysim.plans.resolve import find_fleets, workload_of
from mlsysim.timing.runtimes import has_inventory, runtime_for
from mlsysim.units.registry import to_si

_SPARE = 1.25
"""How many times the rate that is asked for fewer accelerators must carry: arrivals are not even, nor is the model exact."""


def of_a_service(plan: Plan, answer: Answer, holds: Holds) -> Rounds:
    """Rounds of changes of a service: its split, formats and chunks, how many accelerators, other chips."""
    from mlsysim.plans.arrivals import is_simulated

    given, part = answer.plan.serving, plan.serving
    assert part is not None
    parallel = dict.fromkeys(("mode", "tp", "pp", "ep", "attention_dp", "dp"))
    chosen = answer.plan.parallelism.tp is None
    pools = {name: getattr(given, name, None) for name in ("decode_tp", "decode_replicas")}
    loose = plan.replacing(parallelism=parallel, serving={"replicas": None, **pools})
    rate = given is not None and given.qps is not None
    if given is None or (given.concurrency is None and given.qps is None):
        # The load was ours to find, and is found again for each change.
        plan = plan.replacing(serving={"concurrency": None, "qps": None})
        loose = loose.replacing(serving={"concurrency": None, "qps": None})

    def other(tried: Answer) -> str:
        return f"let the layout be chosen ({_replicas(tried)} instead of {_replicas(answer)})"

    settings = [] if chosen else [Candidate(other, loose)]
    if chosen:
        settings += _in_groups(plan, answer)
    if (by_itself := re.sub(r"[-_ ]eager$", "", part.engine or "", flags=re.IGNORECASE)) != (part.engine or ""):
        words = f"steps captured in CUDA graphs (the engine {by_itself})"
        settings.append(Candidate(words, plan.replacing(serving={"engine": by_itself})))
    prompt = part.prompt_tokens or 0
    if prompt >= _LONG:
        chunks = (size for size in _CHUNKS if size != part.chunk_tokens)
        settings += [
            Candidate(f"prefill chunks of {size:,} tokens", plan.replacing(serving={"chunk_tokens": size}))
            for size in chunks
        ]
        fleet = find_fleets(plan.hardware).fleets[0]
        units = fleet.total_accelerators if fleet.count == 1 else fleet.count
        if chosen and part.decode_on is None and answer.fidelity != "simulated" and 1 < units <= NODE:
            settings.append(Candidate(_apart, loose.replacing(serving={"decode_on": "auto"})))
    formats = list(narrower(plan, answer, "weights and arithmetic", ("fp8", "int8")))
    caches = plan.replacing(serving={"cache_precision": "fp8"})
    narrow = [Candidate(f"caches in fp8{CAVEAT}", caches, True)] if part.cache_precision is None else []
    if not answer.passed:
        for spare in (_SPARE, 1.0) if rate and answer.feasible else ():
            yield list(_smaller(plan, loose if chosen else plan, answer, holds, spare))
        yield settings
        yield [*formats, *narrow]
        grown = (
            _enough(loose, _short(answer), holds) if rate and not is_simulated(part) else more(loose, _short(answer))
        )
        yield [*other_chips(loose), *grown]
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
    yield [*_without_idle(plan, answer), *settings, *formats, *narrow, *capped(plan, answer)]
    if prompt >= _LONG and not any((part.cached_prefix, part.prefix_hits, part.turns, part.trace)):
        words = "a prefix cache, if prompts share half of their tokens"
        yield [Candidate(words, plan.replacing(serving={"cached_prefix": prompt // 2}))]
    yield list(other_chips(loose))


_LONG, _CHUNKS = 2000, (512, 2048, 8192)
"""Tokens of a prompt from which chunks, pools and prefixes are tried; and tokens of a chunk."""


def _apart(tried: Answer) -> str:
    writers = tried.assumed_value("decode_on")
    total = find_fleets(tried.plan.hardware).accelerators + writers
    return f"prefill and decode apart ({writers} of {total} accelerators for decode)"


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
    counts = [each for each in range(unit, total, unit) if each <= NODE or each % node == 0]
    if plan.ops.budget is not None and answer.paid is not None:
        # What is paid goes with their number.
        afforded = total * to_si(plan.ops.budget, "USD") / to_si(answer.paid.value, "USD")
        counts = [each for each in counts if each <= afforded]

    def made(count: int, rate: float = 1.0) -> Plan:
        fewer = {"replicas": count // unit if given else None, "qps": ((part and part.qps) or 1.0) * rate}
        return free.replacing(hardware=fleet_of(plan, count), serving=fewer)

    count = fewest(counts, lambda count: holds(made(count, spare)))
    # Numbers that nothing divides into break the order: powers of two are asked for themselves.
    count = next((n for n in (1, 2, 4) if n in counts and n < (count or 0) and holds(made(n, spare))), count)
    if count is not None:
        was = "" if given else f" ({_replicas(answer)})"

        def words(tried: Answer) -> str:
            now = "" if given else f" ({_replicas(tried)})"
            kept = "every limit kept up to" if len(demands(tried)) > 1 else "room for"
            room = f", with {kept} {spare:g} times the rate" if spare > 1 else ", with little to spare"
            return f"{instead(plan, count or 0, now)}{was}{room}"

        yield Candidate(words, made(count))


def _without_idle(plan: Plan, answer: Answer) -> Iterator[Candidate]:
    """No more replicas than clients: the others never get a request."""
    fleet, part, replicas = find_fleets(plan.hardware).fleets[0], plan.serving, answer.layout["replicas"]
    clients = None if answer.plan.serving is None else answer.plan.serving.concurrency
    if part is None or clients is None or clients >= replicas or part.decode_on is not None or part.spare:
        return
    total, node = fleet.total_accelerators, fleet.node.accelerators_per_node
    unit = total // replicas
    count = clients * unit if clients * unit <= node else math.ceil(clients * unit / node) * node
    if plan.hardware.chip is None and count < total and count % unit == 0:
        only = f"{clients:,} {'request keeps' if clients == 1 else 'requests keep'} no more than {clients:,} replica{'s' * (clients > 1)} busy"
        fewer = plan.replacing(hardware=fleet_of(plan, count), serving={"replicas": count // unit})
        yield Candidate(f"{instead(plan, count)} ({only})", fewer)


def _replicas(answer: Answer) -> str:
    split, number, groups = (
        degrees({**answer.layout, "dp": 1}),
        answer.layout["replicas"],
        answer.layout["attention_dp"],
    )
    split += f" attention-DP{groups}" if groups > 1 else ""
    return split if number == 1 else f"{number:,} replicas of {split}"


def _in_groups(plan: Plan, answer: Answer) -> Iterator[Candidate]:
    """Attention of a mixture in groups of one device that share its experts, where requests wait for caches: a tensor group wider than the keys'
    heads (one, of latent attention) has copies of them. Such groups are never the layout that is chosen while another holds the requests."""
    layout, room, fleet = answer.layout, answer.held.get("max_batch"), find_fleets(plan.hardware).fleets[0]
    width = min(fleet.total_accelerators, fleet.node.accelerators_per_node)
    experts = getattr(workload_of(plan.workload), "experts", 1)
    waits = room is not None and layout["concurrency"] > layout["replicas"] * float(room.value)
    if waits and layout["attention_dp"] == layout["pp"] == 1 and experts > 1 and width > 1 and experts % width == 0:
        split = {"tp": 1, "ep": width, "attention_dp": width}

        def words(tried: Answer) -> str:
            return f"attention in groups of one device that share the experts ({_replicas(tried)} instead of {_replicas(answer)})"

        yield Candidate(words, plan.replacing(parallelism=split, serving={"replicas": None}))


def _short(answer: Answer) -> float:
    """How many times as many requests come as are answered; 1 where none are, or nobody said how many come."""
    asked = None if answer.plan.serving is None else answer.plan.serving.qps
    most = answer.held.get("most_requests_per_second") or answer.held.get("requests_per_second")
    answered = to_si(most.value, "1/s") if most is not None and (answer.feasible or answer.overloaded) else 0.0
    return asked / answered if asked and answered else 1.0


def _enough(plan: Plan, asked: float, holds: Holds) -> Iterator[Candidate]:
    """As few more as keep what is asked, which is ``asked`` times as much: twice as many until they do, then the fewest between, in whole nodes
    beyond one."""
    fleet = find_fleets(plan.hardware).fleets[0]
    node, known = max(fleet.node.accelerators_per_node, NODE), fleet.node.accelerator.metadata.key is not None
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
            yield Candidate(instead(plan, least), on(least))
            return
        count *= 2


_DOUBLINGS = 8
"""How often a service is tried on twice as many."""


def of_one_pass(plan: Plan, answer: Answer, holds: Holds) -> Rounds:
    """Rounds of changes of one pass: compiled code, narrower formats, other chips."""
    precision = answer.precision
    narrower = {
        "fp64": "fp32 fp16",
        "fp32": "fp16 int8",
        "tf32": "fp16 int8",
        "fp16": "fp8 int8",
        "bf16": "fp8 int8",
        "fp8": "int4",
        "int8": "int4",
    }
    have = [fleet.node.accelerator.compute.precision_flops for fleet in find_fleets(plan.hardware).fleets]
    model, chip = workload_of(plan.workload), find_fleets(plan.hardware).fleets[0].node.accelerator
    timed = answer.fidelity == "calibrated" and has_inventory(model, chip) and chip.family == "gpu"
    launched = timed and runtime_for(model, "inference", plan.hardware.stack)[0].launched
    compiled = Candidate("torch.compile (the stack compiled)", plan.replacing(hardware={"stack": "compiled"}))
    yield [compiled] * launched + [
        Candidate(f"{name} instead of {precision}{CAVEAT}", plan.replacing(workload={"precision": name}), True)
        for name in narrower.get(precision, "").split()
        # Weights of 8 bits are integers where a chip has no arithmetic in fp8.
        if name != "fp8" or all(name in each for each in have)
    ]
    yield list(other_chips(plan))
