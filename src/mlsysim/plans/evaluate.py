"""``evaluate(plan)``: the answer, its assertions checked, and on request the cheapest change and the sensitivities."""

from __future__ import annotations

from typing import Any

from mlsysim.plans.answer import Answer, Checked, check
from mlsysim.plans.changes import cheapest_change, sensitivities
from mlsysim.plans.inference import evaluate_inference
from mlsysim.plans.mixed import evaluate_mixed
from mlsysim.plans.plan import Plan
from mlsysim.plans.resolve import find_fleets
from mlsysim.plans.serving import evaluate_serving
from mlsysim.plans.sheet import compact_time
from mlsysim.plans.training import evaluate_training
from mlsysim.units.registry import to_si

__all__ = ["evaluate", "evaluate_plainly"]

_BY_TASK = {"training": evaluate_training, "serving": evaluate_serving, "inference": evaluate_inference}


def evaluate_plainly(plan: Plan) -> Answer:
    """The answer alone, without assertions, change and sensitivities."""
    if len(find_fleets(plan.hardware).fleets) > 1:
        return evaluate_mixed(plan)
    return _BY_TASK[plan.kind](plan)


def evaluate(plan: Plan | dict[str, Any], *, change: bool = True, sensitivity: bool = False) -> Answer:
    """The answer to a plan. ``change`` looks for the cheapest change, ``sensitivity`` for what each figure is worth."""
    if not isinstance(plan, Plan):
        plan = Plan.model_validate(plan)
    answer = evaluate_plainly(plan)
    update: dict[str, Any] = {"checks": (*check(answer), *_limits(answer))}
    single = len(find_fleets(plan.hardware).fleets) == 1
    if change and single:
        update["change"] = cheapest_change(answer, evaluate_plainly)
    if sensitivity and single:
        update["sensitivities"] = sensitivities(answer, evaluate_plainly)
    return answer.model_copy(update=update)


def _limits(answer: Answer) -> tuple[Checked, ...]:
    """Limits that are parts of a plan: deadline, budget, latencies and rate of serving."""
    ops, serving = answer.plan.ops, answer.plan.serving
    found = []

    def limit(name: str, label: str, most: Any, unit: str) -> None:
        if most is None or not any(metric.name == name for metric in answer.metrics):
            return
        metric = answer.metric(name)
        passed = to_si(metric.value, unit) <= to_si(most, unit) * (1 + 1e-9)
        shown = f"${to_si(most, 'USD'):,.0f}" if unit == "USD" else compact_time(to_si(most, "s"))
        word = "within" if passed else "over"
        found.append(
            Checked(
                metric=metric.path,
                sentence=f"{metric.label} is {metric.text}, {word} the {label} of {shown}.",
                passed=passed,
            )
        )

    limit("run_time", "deadline", ops.deadline, "s")
    limit("tco", "budget", ops.budget, "USD")
    if serving is not None:
        limit("ttft", "limit", serving.ttft, "s")
        limit("tpot", "limit", serving.tpot, "s")
        limit("latency", "limit", serving.latency, "s")
        if serving.qps is not None:
            rate = to_si(answer.value("requests_per_second"), "1/s")
            passed = rate >= serving.qps * 0.999
            found.append(
                Checked(
                    metric="performance.requests_per_second",
                    sentence=f"Requests are answered at {rate:.4g} a second, {'as fast as' if passed else 'slower than'} they come ({serving.qps:g}).",
                    passed=passed,
                )
            )
    return tuple(found)
