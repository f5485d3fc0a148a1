"""Groups of different accelerators: ``8xB200 + 8xH100``.

Training is data parallel between the groups. Each group takes the share of the batch that its speed is of the sum (whole
sequences), so that all end at nearly the same time; the step is that of the slowest, and the gradients of the groups then
meet once more over the slower network:

    T = max_i T_i(b_i) + 2 (G - 1) / G x M / B,     b_i ~ tokens/s of group i,   M the gradient bytes of one accelerator

Serving routes requests in proportion to speed; the rates add up and the slower group sets the latency that is promised.
Left out: overlap of that last exchange (it is paid in full), and pipelines with stages on different chips.
"""

from __future__ import annotations

from typing import Any

from mlsysim.errors import InputError
from mlsysim.plans.answer import Answer, Limit, Metric, Part
from mlsysim.plans.inference import time_unit
from mlsysim.plans.plan import Plan
from mlsysim.plans.resolve import find_fleets, find_model
from mlsysim.plans.serving import evaluate_serving
from mlsysim.plans.sheet import compact_time
from mlsysim.plans.training import evaluate_training, training_batch
from mlsysim.units.registry import quantity, to_si

__all__ = ["evaluate_mixed"]

_ROUNDS = 4


def evaluate_mixed(plan: Plan) -> Answer:
    """The answer to a plan on several kinds of accelerator."""
    texts = [piece.strip() for piece in (plan.hardware.on or "").split("+")]
    if plan.kind == "inference":
        raise InputError("One pass runs on one accelerator; give one chip.", field="hardware")
    if plan.kind == "training":
        return _training(plan, texts)
    return _serving(plan, texts)


def _on(plan: Plan, text: str, **parts: Any) -> Plan:
    return plan.replacing(hardware={"on": text}, constraints=None, **parts)


def _training(plan: Plan, texts: list[str]) -> Answer:
    groups = find_fleets(plan.hardware)
    model = find_model(plan.workload.model)
    assumed: dict[str, str] = {}
    # A batch that each group alone would take; the sum of accelerators decides where none is given.
    total, seq_len = training_batch(plan, _joined(groups), model, assumed)
    counts = [fleet.total_accelerators for fleet in groups.fleets]
    shares = _split(total, [float(count) for count in counts], counts)
    answers: list[Answer] = []
    seen: list[list[int]] = []
    for _ in range(_ROUNDS):
        answers = [
            evaluate_training(_on(plan, text, workload={"batch_size": share, "seq_len": seq_len}))
            for text, share in zip(texts, shares, strict=True)
        ]
        rates = [to_si(answer.value("tokens_per_second"), "1/s") for answer in answers]
        seen.append(shares)
        following = _split(total, rates, counts)
        if following in seen:
            break
        shares = following
    times = [to_si(answer.value("latency"), "s") for answer in answers]
    slowest = max(range(len(times)), key=lambda i: times[i])
    exchange = _exchange(groups, answers)
    step = times[slowest] + exchange
    return _joint_training(plan, groups, answers, shares, slowest, step, exchange, total * seq_len)


def _joined(groups: Any) -> Any:
    first = groups.fleets[0]
    nodes = max(1, round(groups.accelerators / first.node.accelerators_per_node))
    return first.model_copy(update={"count": nodes})


def _split(total: int, weights: list[float], counts: list[int]) -> list[int]:
    """Whole shares of a batch, multiples of each group's accelerators where the batch is large enough, that add up to it."""
    scale = sum(weights)
    shares = [
        max(count, round(total * weight / scale / count) * count) for weight, count in zip(weights, counts, strict=True)
    ]
    shares[-1] = total - sum(shares[:-1])
    if shares[-1] < 1:
        raise InputError(
            f"A batch of {total:,} is too small for groups of {' + '.join(map(str, counts))} accelerators.",
            field="batch_size",
        )
    return shares


def _exchange(groups: Any, answers: list[Answer]) -> float:
    """The last sum of gradients between groups, over the slower port."""
    gradients = [next((p.value for p in a.memory.parts if p.label == "gradients"), 0.0) for a in answers if a.memory]
    rate = min(to_si(fleet.fabric.bandwidth, "byte/s") for fleet in groups.fleets)
    many = len(groups.fleets)
    return 2 * (many - 1) / many * max(gradients, default=0.0) / rate


def _joint_training(
    plan: Plan,
    groups: Any,
    answers: list[Answer],
    shares: list[int],
    slowest: int,
    step: float,
    exchange: float,
    tokens: int,
) -> Answer:
    first, slow = answers[0], answers[slowest]
    feasible = all(answer.feasible for answer in answers)
    rate = tokens / step
    metrics = [
        Metric(name="latency", label="Time of a step", level="performance", value=quantity(step, "s"), wall=14),
        Metric(
            name="tokens_per_second", label="Tokens a second", level="performance", value=quantity(rate, "1/s"), wall=14
        ),
        *_sums(answers),
    ]
    names = [fleet.name for fleet in groups.fleets]
    parts = [*slow.time_parts, Part(label="sum between groups", value=exchange, wall=14)]
    wait = ", ".join(
        f"{name} takes {share:,} sequences in {a.metric('latency').text}"
        for name, share, a in zip(names, shares, answers, strict=True)
    )
    unfit = next((a for a in answers if not a.feasible), None)
    binding = slow.binding if unfit is None else unfit.binding
    headline = (
        f"Fits: a step takes {compact_time(step)}; the slowest stage is {names[slowest]}."
        if unfit is None
        else f"Does not fit on {names[answers.index(unfit)]}: {unfit.headline.removeprefix('Does not fit: ')}"
    )
    return first.model_copy(
        update={
            "name": plan.name,
            "plan": plan,
            "feasible": feasible,
            "subject": f"training {find_model(plan.workload.model).name} on {' + '.join(names)}",
            "headline": headline,
            "verdict": (f"Load is balanced by speed: {wait}.",),
            "metrics": tuple(metrics),
            "binding": binding,
            "next_wall": Limit(
                wall=14,
                name="Communication",
                sentence=f"Wall 14 (Communication): the groups exchange gradients for {compact_time(exchange)} of each step.",
            ),
            "time_parts": tuple(p for p in parts if p.value > 0),
            "memory": slow.memory,
            "layout": {
                name: {**a.layout, "sequences": share} for name, a, share in zip(names, answers, shares, strict=True)
            },
            "assumptions": {
                **slow.assumptions,
                "groups": "data parallel between groups; costs are of the same time on each",
            },
        }
    )


def _sums(answers: list[Answer]) -> list[Metric]:
    """Costs of the groups together."""
    found = []
    for name in ("tco", "purchase", "energy", "carbon_footprint", "water"):
        held = [m for a in answers for m in a.metrics if m.name == name]
        if len(held) == len(answers):
            total = held[0].value
            for metric in held[1:]:
                total = total + metric.value
            found.append(held[0].model_copy(update={"value": total, "low": None, "high": None}))
    return found


def _serving(plan: Plan, texts: list[str]) -> Answer:
    traffic = plan.serving
    alone = [
        evaluate_serving(_on(plan, text, serving={"qps": None, "concurrency": None, "replicas": None}))
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
            answers.append(evaluate_serving(_on(plan, text, serving={**load, "replicas": None})))
    names = [fleet.name for fleet in find_fleets(plan.hardware).fleets]
    slowest = max(range(len(answers)), key=lambda i: to_si(answers[i].value("tpot"), "s"))
    slow = answers[slowest]
    feasible = all(answer.feasible for answer in answers)
    metrics = [slow.metric("ttft"), slow.metric("tpot"), slow.metric("latency")]
    for name in ("tokens_per_second", "requests_per_second"):
        total = sum(to_si(answer.value(name), "1/s") for answer in answers)
        metrics.append(slow.metric(name).model_copy(update={"value": quantity(total, "1/s")}))
    metrics += _sums(answers)
    made = sum(to_si(a.value("tokens_per_second"), "1/s") for a in answers) * 86400.0 * (plan.ops.days or 1.0)
    cost = next((m.value for m in metrics if m.name == "tco"), None)
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
    routed = ", ".join(
        f"{name} answers {to_si(a.value('requests_per_second'), '1/s'):.3g} requests a second"
        for name, a in zip(names, answers, strict=True)
    )
    token = to_si(slow.value("tpot"), "s")
    return slow.model_copy(
        update={
            "name": plan.name,
            "plan": plan,
            "feasible": feasible,
            "subject": f"serving {find_model(plan.workload.model).name} on {' + '.join(names)}",
            "headline": slow.headline
            if not feasible
            else f"Fits: the slowest group, {names[slowest]}, gives a token each {quantity(token, 's').to(time_unit(token)):.3g~P}.",
            "verdict": (f"Requests are routed by speed: {routed}.",),
            "metrics": tuple(metrics),
            "layout": {name: dict(a.layout) for name, a in zip(names, answers, strict=True)},
        }
    )
