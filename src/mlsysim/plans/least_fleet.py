"""The least fleet: how few accelerators train a model by a deadline and within a budget.

Time falls with accelerators and the cost of a run hardly changes until communication eats what they bring, so the smallest
number of nodes that meets the deadline is found by doubling and bisection over whole nodes whose batch divides; the budget
is then checked, and what each chip needs is compared.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mlsysim.errors import InputError
from mlsysim.plans.answer import Answer
from mlsysim.plans.fleet_text import parse_fleet
from mlsysim.plans.plan import Plan
from mlsysim.units.registry import to_si

__all__ = ["Candidate", "least_fleet"]

CHIPS = ("A100", "H100", "H200", "B200", "MI300X", "TPU_v5p")
_MOST_NODES = 1 << 17


@dataclass(frozen=True)
class Candidate:
    """The least fleet of one chip, or why there is none."""

    chip: str
    answer: Answer | None
    reason: str = ""

    @property
    def accelerators(self) -> int | None:
        return None if self.answer is None else parse_fleet(self.answer.plan.hardware.on or "").accelerators


def least_fleet(plan: Plan, chips: Sequence[str], evaluate: Callable[[Plan], Answer]) -> list[Candidate]:
    """For each chip the fewest accelerators that meet the plan's deadline, cheapest run first."""
    if plan.ops.deadline is None:
        raise InputError("A least fleet needs a deadline, such as '14 day'.", field="deadline")
    if plan.workload.tokens is None:
        raise InputError("A least fleet needs the tokens to train on, such as 15e12.", field="tokens")
    found = [_for_chip(plan, chip, evaluate) for chip in chips]

    def rank(candidate: Candidate) -> tuple[bool, float]:
        if candidate.answer is None:
            return True, 0.0
        cost = next((m.value.magnitude for m in candidate.answer.metrics if m.name == "tco"), float("inf"))
        return False, cost

    return sorted(found, key=rank)


def _for_chip(plan: Plan, chip: str, evaluate: Callable[[Plan], Answer]) -> Candidate:
    deadline = to_si(plan.ops.deadline, "s")
    per_node = parse_fleet(chip).one.node.accelerators_per_node
    whole = parse_fleet(f"64x{chip}").one.node.accelerators_per_node
    step = max(per_node, whole)
    reason = ""

    def meets(nodes: int) -> Answer | None:
        nonlocal reason
        try:
            answer = evaluate(plan.replacing(task="training", hardware={"on": f"{nodes * step}x{chip}", "name": None}))
        except InputError as error:
            reason = str(error)
            return None
        if not answer.feasible:
            reason = answer.headline
            return None
        seconds = to_si(answer.value("run_time"), "s")
        if seconds > deadline:
            reason = f"{nodes * step:,} x {chip} take {seconds / 86400:.3g} days."
            return None
        return answer

    low, high = 0, 1
    best = meets(high)
    while best is None and high < _MOST_NODES:
        low, high = high, 2 * high
        best = meets(high)
    if best is None:
        return Candidate(chip, None, reason)
    # Powers of two divide batches; between two of them, multiples of a quarter of the smaller one do as a rule.
    grain = max(1, low // 8)
    while high - low > grain:
        middle = (low + high) // 2 // grain * grain
        if middle in (low, high):
            break
        tried = meets(middle)
        if tried is not None:
            best, high = tried, middle
        else:
            low = middle
    return Candidate(chip, best)
