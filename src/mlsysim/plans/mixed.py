"""Groups of different accelerators: ``8xB200 + 8xH100``, what they add up to, and the answer of all of them.

Training is :mod:`mlsysim.plans.mixed_training`. Serving routes requests in proportion to what each group answers at most, within the limits;
the rates add up and the slower group sets the latency that is promised.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from mlsysim.cases.assumptions import INFERRED, Assumption
from mlsysim.errors import InputError
from mlsysim.plans.answer import Answer
from mlsysim.plans.equations import Together, equations_of, summed
from mlsysim.plans.metrics import Metric, metric
from mlsysim.plans.pieces import MemoryBar, Part
from mlsysim.plans.plan import Plan
from mlsysim.plans.resolve import find_fleets, workload_of
from mlsysim.plans.served import ANY_RATE
from mlsysim.plans.serving import best_served, evaluate_serving
from mlsysim.plans.serving_load import is_limited
from mlsysim.plans.spending import TAKEN, paid
from mlsysim.plans.targets import TIMES
from mlsysim.units.registry import to_si
from mlsysim.units.text import plainly
from mlsysim.vocabulary import worded

_RATES = ("tokens_per_second", "requests_per_second", "most_requests_per_second", "goodput_requests")
Named = list[tuple[str, Answer]]
"""The answers of groups with their names."""


def on_group(plan: Plan, text: str, **parts: Any) -> Plan:
    """The plan on one group alone."""
    return plan.replacing(hardware={"on": text}, constraints=None, **parts)


def seconds_of(answer: Answer) -> float:
    """Time of a step or request; infinite where there is none."""
    return to_si(answer.value("latency"), "s") if "latency" in answer.held else math.inf


def fullest(answers: list[Answer]) -> Answer:
    """The answer of the group whose accelerators are fullest."""
    return max(answers, key=lambda a: to_si(a.value("memory"), "byte") / to_si(a.value("memory_capacity"), "byte"))


def sums(groups: Named, names: Iterable[str], banded: bool = True) -> tuple[list[Metric], dict[str, Together]]:
    """Metrics that all groups have together, with their intervals where all have one, and the equations of these sums."""
    metrics, equations = [], {}
    for name in names:
        held = [(group, answer.held[name]) for group, answer in groups if name in answer.held]
        if len(held) == len(groups):
            sides = {side: [getattr(m, side) for _, m in held] for side in ("value", "low", "high")}
            sums = {side: None if None in each else sum(each[1:], start=each[0]) for side, each in sides.items()}
            unknown = {} if banded else {"low": None, "high": None}  # days that follow from the work have no interval
            metrics.append(held[0][1].model_copy(update=sums | unknown))
            equations[name] = summed({group: m.amount for group, m in held})
    return metrics, equations


def _added(groups: Iterable[tuple[Part, ...]]) -> tuple[Part, ...]:
    """Parts of several groups, those of one name together; none where a group has none."""
    held = list(groups)
    if not all(held):
        return ()
    sums: dict[str, Part] = {}
    for part in (each for parts in held for each in parts):
        known = sums.get(part.label)
        sums[part.label] = part if known is None else known.model_copy(update={"value": known.value + part.value})
    return tuple(sums.values())


def _fullest_bar(groups: Named) -> MemoryBar | None:
    """The memory of the fullest group, which it names."""
    full = fullest([answer for _, answer in groups])
    name = next(name for name, answer in groups if answer is full)
    return full.memory and full.memory.model_copy(update={"of": name.partition(" x ")[2] or name})


def joined(plan: Plan, one: Answer, groups: Named, costs: list[Answer], headline: str, **found: Any) -> Answer:
    """The answer of all groups: that of one of them, with what holds for all in its place."""
    names = [fleet.name for fleet in find_fleets(plan.hardware).fleets]
    if unfit := [answer for _, answer in groups if not answer.feasible]:
        # Of what does not fit the fullest is told; those that are overloaded share what comes by what they answer, so that the first says it.
        full = fullest(too_full) if (too_full := [answer for answer in unfit if not answer.overloaded]) else unfit[0]
        verdict, colon, _ = full.headline.partition(": ")
        where = next(name for name, answer in groups if answer is full)
        headline = worded(f"{verdict} on {where}: ", full.headline.removeprefix(verdict + colon))
        found |= {"verdict": full.verdict, "binding": full.binding, "scorecard": full.scorecard}
    update = {
        "name": plan.name,
        "plan": plan,
        "feasible": not unfit,
        "subject": f"{plan.kind} {workload_of(plan.workload).name} on {' + '.join(names)}",
        "headline": headline,
        "memory": _fullest_bar(groups),
        "assumed": assumed_of_all(groups),
        # What failures take of one group says little of all of them.
        "run_parts": (),
        "cost_parts": _added(answer.cost_parts for answer in costs),
        "carbon_parts": _added(answer.carbon_parts for answer in costs),
        "energy_parts": _added(answer.energy_parts for answer in costs),
    }
    return one.model_copy(update=update | found)


def assumed_of_all(groups: Named) -> tuple[Assumption, ...]:
    """What was assumed for the groups, and for each where it is not the same."""
    found: dict[str, dict[str, Assumption]] = {}
    for group, answer in groups:
        for each in answer.assumed:
            found.setdefault(each.name, {})[group] = each
    return tuple(map(_of_all, found.values()))


def _of_all(each: dict[str, Assumption]) -> Assumption:
    """One assumption of the groups that have it."""
    first = next(iter(each.values()))
    if len({one.text for one in each.values()}) == 1:
        return first
    texts = "; ".join(f"{group}: {one.text}" for group, one in each.items())
    origin = first.origin if len({one.origin for one in each.values()}) == 1 else INFERRED
    return replace(first, value={group: one.value for group, one in each.items()}, origin=origin, text=texts)


def _over(end: Any, rate: Metric) -> float:
    return 1.0 if end is None else float(rate.value / end)


def _times_of(answer: Answer) -> list[str]:
    """Means and percentiles of times of requests that an answer has."""
    return [name for name in answer.held if name == "latency" or name.partition("_")[0] in TIMES]


def groups_of(plan: Plan) -> list[str]:
    """The groups of a plan's hardware, each as it is written."""
    return [piece.strip() for piece in (plan.hardware.on or "").split("+")]


def _most(plan: Plan) -> float:
    """Requests a second that a group answers at most where they come at a rate, else those that it answers."""
    served = best_served(plan)[1]
    open_loop = served.come is not None and served.server.calibrated and served.result.feasible
    return served.most_answered() if open_loop else served.delivered()


def evaluate_mixed_serving(plan: Plan) -> Answer:
    """Requests are routed by speed, and the slowest group sets what is promised."""
    if plan.kind == "inference":
        raise InputError("One pass runs on one accelerator; give one chip.", field="hardware")
    traffic, texts = plan.serving, groups_of(plan)
    if traffic is not None and traffic.trace is not None:
        each = ", ".join(texts)
        words = f"A recorded trace is played on accelerators of one kind: ask for each group ({each}) with its share of the requests, or give qps."
        raise InputError(words, field="trace")
    free: dict[str, Any] = {"qps": None, "concurrency": None, "replicas": None}
    if traffic is not None and traffic.qps is not None and not is_limited(traffic):
        # In proportion to the most that each answers: one is overloaded where all of them are.
        free["qps"] = ANY_RATE
    plans = [on_group(plan, text, serving=free) for text in texts]
    if traffic is not None and (traffic.qps is not None or traffic.concurrency is not None):
        qps, clients = traffic.qps, traffic.concurrency or 1
        rates = [_most(each) for each in plans]
        shares = [rate / sum(rates) for rate in rates]
        loads = [{"qps": qps * s} if qps is not None else {"concurrency": max(1, round(clients * s))} for s in shares]
        plans = [on_group(plan, t, serving={**load, "replicas": None}) for t, load in zip(texts, loads, strict=True)]
    answers = [evaluate_serving(each) for each in plans]
    groups = list(zip([fleet.name for fleet in find_fleets(plan.hardware).fleets], answers, strict=True))
    slowest, slow = max(groups, key=lambda each: seconds_of(each[1]))
    # A limit holds for all requests where it does in the group that keeps it worst.
    worst = {
        name: max((a for a in answers if name in a.held), key=lambda a: to_si(a.value(name), "s"))
        for name in _times_of(slow)
    }
    full = fullest(answers)
    kept = [(full, "memory"), (full, "memory_capacity"), *((each, name) for name, each in worst.items())]
    of_groups, together = sums(groups, (*_RATES, *TAKEN))
    summed_up = {m.name: m for m in of_groups}
    rate, bill = summed_up["tokens_per_second"], paid(plan, summed_up.get("tco"), summed_up.get("rent"))
    made = to_si(rate.value, "1/s") * 86400.0 * (plan.ops.days or 1.0)
    if bill is not None and made:
        each = bill.value / made * 1e6
        known = None not in (bill.low, bill.high)
        # Fewest dollars on most tokens, and the other way round; a rate that requests set is certain.
        band = (
            [bill.low / made * 1e6 * _over(rate.high, rate), bill.high / made * 1e6 * _over(rate.low, rate)]
            if known
            else None
        )
        of_groups.append(metric("usd_per_mtoken", each, "serving", band))
    routed = ", ".join(
        f"{name} answers {plainly(to_si(a.value('requests_per_second'), '1/s'), 3)} requests a second"
        for name, a in groups
    )
    return joined(
        plan,
        slow,
        groups,
        answers,
        f"Fits: the slowest group, {slowest}, gives {slow.headline.partition('; ')[2]}",
        verdict=(f"Requests are routed by speed: {routed}.",),
        metrics=(*(answer.metric(name) for answer, name in kept), *of_groups),
        equations=(
            *(equation for answer, name in kept for equation in answer.explain(name)),
            *equations_of(
                of_groups,
                (),
                {bill.name if bill else "tco": bill and bill.value, "work_of_the_run": made},
                (),
                None,
                together,
            ),
        ),
        layout={name: dict(answer.layout) for name, answer in groups},
    )
