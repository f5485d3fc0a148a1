"""Groups of different accelerators: ``8xB200 + 8xH100``.

Training is :mod:`mlsysim.plans.mixed_training`. Serving routes requests in proportion to what each group answers at most, within the limits;
the rates add up and the slower group sets the latency that is promised.
"""

from __future__ import annotations

from typing import Any

from mlsysim.errors import InputError
from mlsysim.plans.answer import Answer
from mlsysim.plans.equations import equations_of
from mlsysim.plans.metrics import metric
from mlsysim.plans.mixed_groups import fullest, joined, on_group, seconds_of, sums
from mlsysim.plans.mixed_training import evaluate_mixed_training
from mlsysim.plans.plan import Plan
from mlsysim.plans.resolve import find_fleets
from mlsysim.plans.served import ANY_RATE
from mlsysim.plans.serving import evaluate_serving
from mlsysim.plans.serving_load import is_limited
from mlsysim.plans.spending import TAKEN, paid
from mlsysim.units.registry import to_si
from mlsysim.units.text import plainly


def evaluate_mixed(plan: Plan) -> Answer:
    """The answer to a plan on several kinds of accelerator."""
    texts = [piece.strip() for piece in (plan.hardware.on or "").split("+")]
    if plan.kind == "inference":
        raise InputError("One pass runs on one accelerator; give one chip.", field="hardware")
    if plan.kind == "serving":
        return _serving(plan, texts)
    return evaluate_mixed_training(plan, texts)


def _serving(plan: Plan, texts: list[str]) -> Answer:
    """Requests are routed by speed, and the slowest group sets what is promised."""
    traffic = plan.serving
    free: dict[str, Any] = {"qps": None, "concurrency": None, "replicas": None}
    if traffic is not None and traffic.qps is not None and not is_limited(traffic):
        # In proportion to the most that each answers: one is overloaded where all of them are.
        free["qps"] = ANY_RATE
    answers = [evaluate_serving(on_group(plan, text, serving=free)) for text in texts]
    if traffic is not None and (traffic.qps is not None or traffic.concurrency is not None):
        qps, clients = traffic.qps, traffic.concurrency or 1
        names = ("most_requests_per_second", "requests_per_second")
        rates = [to_si(a.value(next((n for n in names if n in a.held), names[-1])), "1/s") for a in answers]
        shares = [rate / sum(rates) for rate in rates]
        loads = [{"qps": qps * s} if qps is not None else {"concurrency": max(1, round(clients * s))} for s in shares]
        plans = [on_group(plan, t, serving={**load, "replicas": None}) for t, load in zip(texts, loads, strict=True)]
        answers = [evaluate_serving(each) for each in plans]
    groups = list(zip([fleet.name for fleet in find_fleets(plan.hardware).fleets], answers, strict=True))
    slowest, slow = max(groups, key=lambda each: seconds_of(each[1]))
    full, times = fullest(answers), [name for name in ("ttft", "tpot", "latency") if name in slow.held]
    kept = [(full, "memory"), (full, "memory_capacity"), *((slow, name) for name in times)]
    of_groups, together = sums(groups, ("tokens_per_second", "requests_per_second", "most_requests_per_second", *TAKEN))
    values = {m.name: m.value for m in of_groups}
    made = to_si(values["tokens_per_second"], "1/s") * 86400.0 * (plan.ops.days or 1.0)
    cost = paid(plan, values.get("tco"), values.get("rent"))
    if cost is not None and made:
        of_groups.append(metric("usd_per_mtoken", cost / made * 1e6, "serving"))
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
            *equations_of(of_groups, (), {"cost": cost, "work_of_the_run": made}, (), None, together),
        ),
        layout={name: dict(answer.layout) for name, answer in groups},
    )
