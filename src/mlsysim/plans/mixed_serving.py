"""Serving on groups of different accelerators: requests are routed by speed, and the slowest group sets what is promised."""

from __future__ import annotations

from mlsysim.plans.answer import Answer, Metric
from mlsysim.plans.equations import Together, equations_of
from mlsysim.plans.mixed_sums import added, fullest, on_group, sums, together_of
from mlsysim.plans.plan import Plan
from mlsysim.plans.resolve import find_fleets, workload_of
from mlsysim.plans.serving import evaluate_serving
from mlsysim.units.registry import quantity, to_si
from mlsysim.vocabulary import worded


def serve_on_groups(plan: Plan, texts: list[str]) -> Answer:
    """The answer of all groups to one stream of requests."""
    traffic = plan.serving
    alone = [
        evaluate_serving(on_group(plan, text, serving={"qps": None, "concurrency": None, "replicas": None}))
        for text in texts
    ]
    rates = [to_si(answer.value("requests_per_second"), "1/s") for answer in alone]
    answers = alone
    if traffic is not None and (traffic.qps is not None or traffic.concurrency is not None):
        scale = sum(rates)
        answers = []
        for text, rate in zip(texts, rates, strict=True):
            share = rate / scale
            load = (
                {"qps": traffic.qps * share}
                if traffic.qps is not None
                else {"concurrency": max(1, round((traffic.concurrency or 1) * share))}
            )
            answers.append(evaluate_serving(on_group(plan, text, serving={**load, "replicas": None})))
    names = [fleet.name for fleet in find_fleets(plan.hardware).fleets]
    slowest = max(range(len(answers)), key=lambda i: to_si(answers[i].value("tpot"), "s"))
    slow = answers[slowest]
    feasible = all(answer.feasible for answer in answers)
    full = fullest(answers)
    metrics = [
        full.metric("memory"),
        full.metric("memory_capacity"),
        slow.metric("ttft"),
        slow.metric("tpot"),
        slow.metric("latency"),
    ]
    for name in ("tokens_per_second", "requests_per_second"):
        held_by = [answer.metric(name) for answer in answers]
        sides = {
            side: quantity(sum(to_si(getattr(each, side), "1/s") for each in held_by), "1/s")
            for side in ("value", "low", "high")
            if all(getattr(each, side) is not None for each in held_by)
        }
        metrics.append(slow.metric(name).model_copy(update={"low": None, "high": None, **sides}))
    metrics += sums(answers)
    made = sum(to_si(a.value("tokens_per_second"), "1/s") for a in answers) * 86400.0 * (plan.ops.days or 1.0)
    held = {m.name: m.value for m in metrics}
    cost = held.get("tco", held.get("rent"))
    if cost is not None and made:
        metrics.append(
            Metric(
                name="usd_per_mtoken",
                label="Cost of a million output tokens",
                level="macro",
                value=cost / made * 1e6,
                wall=17,
            )
        )
    together = together_of(answers, names)
    for name in ("tokens_per_second", "requests_per_second"):
        each = {group: answer.metric(name).amount for group, answer in zip(names, answers, strict=True)}
        together[name] = Together("sum over groups", r"\sum_i x_i", each)
    of_groups = [metric for metric in metrics if metric.name in together or metric.name == "usd_per_mtoken"]
    equations = [
        *(equation for name in ("memory", "memory_capacity") for equation in full.explain(name)),
        *(equation for name in ("ttft", "tpot", "latency") for equation in slow.explain(name)),
        *equations_of(of_groups, (), {"cost": cost, "work_of_the_run": made}, (), None, together),
    ]
    routed = ", ".join(
        f"{name} answers {to_si(a.value('requests_per_second'), '1/s'):.3g} requests a second"
        for name, a in zip(names, answers, strict=True)
    )
    unfit = next(
        (
            worded(f"Does not fit on {n}: ", a.headline.removeprefix("Does not fit: "))
            for n, a in zip(names, answers, strict=True)
            if not a.feasible
        ),
        None,
    )
    return slow.model_copy(
        update={
            "name": plan.name,
            "plan": plan,
            "feasible": feasible,
            "subject": f"serving {workload_of(plan.workload).name} on {' + '.join(names)}",
            "headline": unfit
            or f"Fits: the slowest group, {names[slowest]}, gives a token each {slow.metric('tpot').text}.",
            "verdict": () if unfit else (f"Requests are routed by speed: {routed}.",),
            "metrics": tuple(metrics),
            "memory": full.memory,
            "equations": tuple(equations),
            "cost_parts": added(answer.cost_parts for answer in answers),
            "carbon_parts": added(answer.carbon_parts for answer in answers),
            "layout": {name: dict(a.layout) for name, a in zip(names, answers, strict=True)},
        }
    )
