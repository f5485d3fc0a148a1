"""The least service: how few accelerators answer a traffic within its limits, for each chip and width of a replica.

The closed form finds the fewest replicas whose means keep the limits (more of them are never slower, so they are found by doubling and
halving), and ranks chips and widths by what a day costs. Where the plan asks for percentiles, a trace or bursts, the cheapest few are played: replicas are
added until the simulation keeps the limits too. Each that is found is a plan that ``serve`` repeats.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from mlsysim.cases.layout import divisors
from mlsysim.errors import InputError
from mlsysim.physics.queueing import fewest
from mlsysim.plans.answer import Answer
from mlsysim.plans.arrivals import Arrivals, is_simulated
from mlsysim.plans.limits import demands
from mlsysim.plans.plan import Plan
from mlsysim.plans.resolve import workload_of
from mlsysim.plans.targets import parse_targets
from mlsysim.systems.fleet_text import parse_fleet
from mlsysim.units.registry import to_si

CHIPS = ("A100", "L40S", "H100", "H200", "B200", "MI300X")
_MOST, _LAST, _FURTHER = 100_000, 5, 12
"""Most replicas, designs that are played, and how often replicas are added to one of them."""

Evaluate = Callable[[Plan, bool], Answer]
"""The answer to a plan; of fewer requests where it must be quick."""


@dataclass(frozen=True)
class Service:
    """The least service of a chip and a width of its replicas, or why there is none."""

    chip: str
    tp: int
    answer: Answer | None
    reason: str = ""

    @property
    def replicas(self) -> int:
        return int(self.answer.layout["replicas"]) if self.answer is not None else 0

    @property
    def accelerators(self) -> int:
        return 0 if self.answer is None else parse_fleet(self.answer.plan.hardware.on or "").accelerators

    @property
    def price(self) -> float:
        """What a day costs."""
        held = {} if self.answer is None else self.answer.held
        metric = held.get("rent") or held.get("tco")
        return math.inf if metric is None else float(metric.value.magnitude)

    @property
    def headroom(self) -> float | None:
        """The smallest limit on a time over its value: 1 is at the limit."""
        found = [limit / value for value, limit in _limits(self.answer)] if self.answer is not None else []
        return min(found, default=None)

    @property
    def odds(self) -> float | None:
        """The probability that every limit is kept, where errors of times go together."""
        found = [] if self.answer is None else [check.odds for check in self.answer.checks if check.odds is not None]
        return min(found, default=None)


def _limits(answer: Answer) -> list[tuple[float, float]]:
    held, part = answer.held, answer.plan.serving
    assert part is not None
    asked = [(name, getattr(part, name)) for name in ("ttft", "tpot", "latency")]
    given = [(name, to_si(limit, "s")) for name, limit in asked if limit is not None]
    given += [(target.metric, target.seconds) for target in parse_targets(part.slo)]
    return [(to_si(held[name].value, "s"), limit) for name, limit in given if name in held]


def least_services(plan: Plan, chips: Sequence[str], evaluate: Evaluate) -> list[Service]:
    """The services that keep the plan's limits, cheapest first, then those chips that have none."""
    part = plan.serving
    if part is None or (part.qps is None and part.trace is None):
        raise InputError("A least service needs the requests that come: qps, or a trace.", field="qps")
    steady = _steady(plan)
    found = [each for chip in chips for each in _of_chip(steady, chip, lambda p: evaluate(p, True))]
    able = sorted((each for each in found if each.answer is not None), key=lambda each: (each.price, each.accelerators))
    if is_simulated(part):
        able = [_played(plan, each, evaluate) for each in able[:_LAST]]
    else:
        able = [Service(each.chip, each.tp, evaluate(_plan(plan, each), False)) for each in able[:_LAST]]
    able.sort(key=lambda each: (each.answer is None, each.price, each.accelerators))
    have = {each.chip for each in able}
    missing: dict[str, Service] = {}
    for each in found:
        if each.answer is None and each.chip not in have:
            missing[each.chip] = each
    return [*able, *missing.values()]


def _steady(plan: Plan) -> Plan:
    """The plan without what only a simulation has: its means, at random."""
    part = plan.serving
    assert part is not None
    means = ",".join(f"{t.kind}={t.seconds}s" for t in parse_targets(part.slo) if t.level == "mean")
    changes: dict[str, Any] = dict.fromkeys(
        ("trace", "burst", "scheduler", "router", "autoscale", "seed", "requests")
    ) | {"slo": means or None}
    if part.trace is not None:
        found = Arrivals.of(part, 1, 1, workload_of(plan.workload))
        changes |= {"qps": found.rate, "prompt_tokens": found.prompt, "output_tokens": found.answer}
        changes["length_cv"] = found.length_cv
    return plan.replacing(task="serving", serving=changes)


def _at(plan: Plan, chip: str, tp: int, replicas: int) -> Plan:
    # Beyond one node there are whole ones alone; what is left over waits, and is paid for.
    width, needed = parse_fleet(f"64x{chip}").one.node.accelerators_per_node, tp * replicas
    needed += tp * ((plan.serving and plan.serving.spare) or 0)
    count = needed if needed <= width else -(-needed // width) * width
    on = {"on": f"{count}x{chip}", "name": None, "nodes": None, "accelerators": None}
    return plan.replacing(hardware=on, parallelism={"tp": tp}, serving={"replicas": replicas})


def _plan(plan: Plan, service: Service, more: int = 0) -> Plan:
    return _at(plan.replacing(task="serving"), service.chip, service.tp, service.replicas + more)


def _of_chip(plan: Plan, chip: str, evaluate: Callable[[Plan], Answer]) -> list[Service]:
    heads = getattr(workload_of(plan.workload), "heads", None) or 1
    width = parse_fleet(f"64x{chip}").one.node.accelerators_per_node
    given = plan.parallelism.tp
    degrees = [given] if given is not None else [tp for tp in divisors(width) if heads % tp == 0]
    return [_narrowest(plan, chip, tp, evaluate) for tp in degrees]


def _narrowest(plan: Plan, chip: str, tp: int, evaluate: Callable[[Plan], Answer]) -> Service:
    """The fewest replicas of a width whose means keep the limits."""
    kept: dict[int, Answer] = {}
    reason = ""

    def enough(replicas: int) -> bool:
        nonlocal reason
        answer = evaluate(_at(plan, chip, tp, replicas))
        missed = [check.sentence for check in demands(answer) if not check.passed]
        reason = answer.headline if not answer.feasible else missed[0] if missed else ""
        if not reason:
            kept[replicas] = answer
        return not reason

    part = plan.serving
    assert part is not None and part.qps is not None
    try:
        alone = evaluate(_at(plan, chip, tp, 1))
        if not alone.feasible and not alone.overloaded:
            return Service(chip, tp, None, alone.headline)
        most = to_si(alone.value("requests_per_second"), "1/s") if alone.overloaded else part.qps
        least = max(1, math.ceil(part.qps / most * (1 - 1e-9)))
        # Not even a server that hardly anybody asks keeps the limits: no number does.
        if not enough(min(_MOST, 64 * least)):
            return Service(chip, tp, None, reason)
        found = fewest(enough, least)
    except InputError as error:
        return Service(chip, tp, None, str(error))
    return Service(chip, tp, None, reason) if found is None else Service(chip, tp, kept[found])


def _played(plan: Plan, service: Service, evaluate: Evaluate) -> Service:
    """The same with as many more replicas as a simulation needs."""
    more, reason = 0, ""
    for _ in range(_FURTHER):
        tried = _plan(plan, service, more)
        answer = evaluate(tried, True)
        missed = [check.sentence for check in demands(answer) if not check.passed]
        if answer.feasible and not missed:
            answer = evaluate(tried, False)
            missed = [check.sentence for check in demands(answer) if not check.passed]
            if not missed:
                return Service(service.chip, service.tp, answer)
        reason = missed[0] if missed else answer.headline
        more += max(1, (service.replicas + more) // 8)
    return Service(service.chip, service.tp, None, f"{service.replicas + more:,} replicas of TP{service.tp}: {reason}")
