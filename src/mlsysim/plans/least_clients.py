"""The least fleet for so many users at once: how few accelerators of each chip answer clients who ask again as soon as they are answered.

A closed loop has no rate to keep up with: any fleet that holds the model answers, and fewer accelerators make everybody wait longer. So the goal is that
caches have room for all requests at once, since who waits for a place is not answered at once, and that the plan's limits hold. Numbers are those that
divide a node, then whole nodes: twice as many until the goal is met, then halves of what lies between. More accelerators leave fewer clients to each.
Left out: parts of a node that do not divide it, and pools that read and write apart but where the plan names one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from mlsysim.cases.layout import divisors
from mlsysim.errors import InputError
from mlsysim.plans.answer import Answer
from mlsysim.plans.least_fleet import Candidate
from mlsysim.plans.plan import Plan
from mlsysim.systems.fleet_text import parse_fleet
from mlsysim.units.text import many

_MOST_NODES = 1 << 12


def daily(answer: Answer) -> float:
    """What a day costs; infinite where no price is known."""
    paid = answer.paid
    return math.inf if paid is None else float(paid.value.magnitude) / (answer.plan.ops.days or 1.0)


def least_for_clients(plan: Plan, chips: Sequence[str], evaluate: Callable[[Plan], Answer]) -> list[Candidate]:
    """For each chip the fewest accelerators that the plan's clients share within its limits, cheapest first."""
    found = [_of_chip(plan, chip, evaluate) for chip in dict.fromkeys(chips)]
    refused = found[0].refused
    if refused is not None and all(str(each.refused) == str(refused) for each in found):
        # A mistake in what is asked, whatever it is on.
        raise refused
    return sorted(found, key=lambda each: math.inf if each.answer is None else daily(each.answer))


def _of_chip(plan: Plan, chip: str, evaluate: Callable[[Plan], Answer]) -> Candidate:
    assert plan.serving is not None and plan.serving.concurrency is not None
    clients = plan.serving.concurrency
    width = parse_fleet(f"64x{chip}").one.node.accelerators_per_node
    reason, refused = "", None

    def meets(count: int) -> Answer | None:
        nonlocal reason, refused
        asked = {"on": f"{count}x{chip}", "name": None, "nodes": None, "accelerators": None}
        try:
            answer = evaluate(plan.replacing(task="serving", hardware=asked))
        except InputError as error:
            refused, reason = refused or error, reason or error.message
            return None
        missed = [check.sentence for check in answer.checks if not check.passed and check.limit != "budget"]
        each = answer.held.get("max_batch")
        places = math.inf if each is None else int(each.value) * answer.layout["replicas"]
        if answer.feasible and places < clients:
            missed.append(f"caches have room for {many(int(places), 'request')} at once.")
        if answer.feasible and not missed:
            return answer
        refused, reason = None, f"{count:,} of them: {missed[0] if answer.feasible else answer.headline}"
        return None

    for count in divisors(width)[:-1]:
        if (answer := meets(count)) is not None:
            return Candidate(chip, answer)
    few, nodes, best = 0, 1, meets(width)
    while best is None and nodes < min(_MOST_NODES, clients):
        few, nodes = nodes, 2 * nodes
        best = meets(nodes * width)
    if best is None:
        return Candidate(chip, None, reason, refused)
    while nodes - few > 1:
        middle = (few + nodes) // 2
        found = meets(middle * width)
        few, nodes, best = (few, middle, found) if found is not None else (middle, nodes, best)
    return Candidate(chip, best)
