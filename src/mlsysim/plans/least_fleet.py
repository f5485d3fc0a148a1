"""The least fleet: how few accelerators train a model by a deadline and within a budget.

Time falls with accelerators and the cost of a run hardly changes until communication eats what they bring. Numbers of nodes
are powers of two and 5, 6 and 7 eighths of them. Powers of two are tried upwards from what even the peak could not beat;
below the first that meets the deadline the eighths are, fewest first. The budget is a demand on the answer, and what each
chip needs is compared.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from mlsysim.cases.losslaw import training_flops
from mlsysim.errors import InputError
from mlsysim.plans.answer import Answer
from mlsysim.plans.plan import Plan
from mlsysim.plans.resolve import workload_of
from mlsysim.systems.fleet_text import parse_fleet
from mlsysim.units.records import dataclass
from mlsysim.units.registry import to_si
from mlsysim.units.text import compact_time
from mlsysim.zoo.constants import constant

CHIPS = ("A100", "H100", "H200", "B200", "MI300X", "TPU_v5p")
_MOST_NODES, _SLOWER = 1 << 17, 2
"""Most nodes, and how often twice as many may be no faster before a search ends."""


@dataclass(frozen=True)
class Candidate:
    """The least fleet of one chip, or why there is none."""

    chip: str
    answer: Answer | None
    reason: str = ""
    refused: InputError | None = None
    """What it was refused with, in whatever number."""

    @property
    def accelerators(self) -> int | None:
        return None if self.answer is None else parse_fleet(self.answer.plan.hardware.on or "").accelerators

    def to_dict(self) -> dict[str, Any]:
        """As JSON: what it is, the plan that ``train`` repeats, and the answer."""
        told = {"chip": self.chip, "accelerators": self.accelerators, "reason": self.reason or None}
        return told | outline(self.answer) | {"answer": None if self.answer is None else self.answer.to_dict()}


def outline(answer: Answer | None) -> dict[str, Any]:
    """What a list says of an answer: headline, metrics, and the plan."""
    return {
        "headline": None if answer is None else answer.headline,
        "metrics": {} if answer is None else {metric.path: metric.to_dict() for metric in answer.metrics},
        "plan": None if answer is None else answer.plan.document(),
    }


def least_fleet(plan: Plan, chips: Sequence[str], evaluate: Callable[[Plan], Answer]) -> list[Candidate]:
    """For each chip the fewest accelerators that meet the plan's deadline, cheapest run first."""
    if plan.ops.deadline is None:
        raise InputError("The smallest fleet needs a deadline, such as '14 day'.", field="deadline")
    if plan.workload.tokens is None:
        raise InputError("The smallest fleet needs the tokens to train on, such as 15e12.", field="tokens")

    def rank(candidate: Candidate) -> tuple[bool, float, int]:
        if candidate.answer is None:
            return True, 0.0, 0
        price = candidate.answer.paid
        return False, math.inf if price is None else price.value.magnitude, candidate.accelerators or 0

    found = sorted((_for_chip(plan, chip, evaluate) for chip in chips), key=rank)
    refused = found[0].refused
    if refused is not None and all(str(each.refused) == str(refused) for each in found):
        # A mistake in what is asked, whatever it is on.
        raise refused
    return found


def _for_chip(plan: Plan, chip: str, evaluate: Callable[[Plan], Answer]) -> Candidate:
    step = parse_fleet(f"64x{chip}").one.node.accelerators_per_node
    deadline = to_si(plan.ops.deadline, "s")
    reason, fastest, refusals = "", math.inf, list[InputError]()

    def meets(nodes: int) -> Answer | None:
        nonlocal reason, fastest
        try:
            answer = evaluate(plan.replacing(task="training", hardware={"on": f"{nodes * step}x{chip}", "name": None}))
        except InputError as error:
            reason = reason or error.message
            refusals.append(error)
            return None
        if not answer.feasible or "run_time" not in answer.held:
            ends = f"{nodes * step:,} x {chip} fail faster than they recover, and no run ends."
            reason = reason if fastest < math.inf else ends if answer.feasible else answer.headline
            return None
        seconds = to_si(answer.value("run_time"), "s")
        if seconds < fastest:
            told = "a" if plan.workload.batch_size else "an assumed"
            told = f"{compact_time(seconds)} with {told} batch of {answer.layout['batch_size']:,}"
            fastest, reason = seconds, f"the fastest, {nodes * step:,} x {chip}, takes {told}."
        return None if seconds > deadline else answer

    nodes, slower, best = _floor(plan, chip, step), 0, None
    while slower < _SLOWER and nodes <= _MOST_NODES:
        before = fastest
        best = meets(nodes)
        if best is not None:
            break
        if [*map(str, refusals)] == [reason, reason]:
            # Twice as many are refused in the same words.
            return Candidate(chip, None, reason, refusals[0])
        # From some number on more of them only fail more often and wait longer for each other.
        slower += before < math.inf and fastest == before
        nodes *= 2
    if best is None:
        # The peak asks for more than work together: how soon fewer would be there.
        nodes, before = _floor(plan, chip, step) // 2, math.inf
        while nodes and (fastest == math.inf or fastest < before):
            before = fastest
            meets(nodes)
            nodes //= 2
        return Candidate(chip, None, reason)
    # Eighths of a power of two are numbers that batches divide by and that are bought; fewer than half did not do.
    for eighths in (5, 6, 7):
        if nodes * eighths % 8 == 0 and (fewer := meets(nodes * eighths // 8)) is not None:
            return Candidate(chip, fewer)
    return Candidate(chip, best)


def _floor(plan: Plan, chip: str, step: int) -> int:
    """Nodes, a power of two, of which half could not do it even at the peak: 6 N D / (peak x deadline) accelerators."""
    model = workload_of(plan.workload)
    accelerator = parse_fleet(chip).one.node.accelerator
    peak = max(to_si(rate, "flop/s") for rate in accelerator.compute.precisions.values())
    if model.fixed_shape or model.parameters is None:
        return 1
    cost = to_si(constant("training_flops_per_parameter_token").quantity, "flop")
    work = training_flops(cost, model.active_parameter_count, plan.workload.tokens or 0.0)
    needed = work / (peak * to_si(plan.ops.deadline, "s")) / step
    return min(_MOST_NODES, 1 << max(0, int(needed).bit_length() - 1))
