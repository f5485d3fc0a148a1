"""What a plan demands, checked: its assertions, and the limits that its parts state (deadline, budget, latencies, rate).

A demand that is not kept is what stopped the plan, and so what binds.
"""

from __future__ import annotations

from typing import Any

from mlsysim.plans.answer import Answer, Checked, Limit, check
from mlsysim.plans.sheet import compact_time
from mlsysim.units.registry import to_si
from mlsysim.vocabulary import worded
from mlsysim.walls.catalog import TITLES


def demands(answer: Answer) -> tuple[Checked, ...]:
    """Assertions and limits of the answer's plan, each with whether it holds."""
    return (*check(answer), *limits(answer))


def limits(answer: Answer) -> tuple[Checked, ...]:
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
                limit=label if label != "limit" else name,
            )
        )

    limit("run_time", "deadline", ops.deadline, "s")
    owned = any(metric.name == "tco" for metric in answer.metrics)
    limit("tco" if owned else "rent", "budget", ops.budget, "USD")
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
                    limit="qps",
                )
            )
    return tuple(found)


def stopped(answer: Answer) -> Answer:
    """The answer, bound by the first demand that it does not keep; as it is where all are kept or it does not fit."""
    if not answer.feasible or answer.binding.limit is not None:
        return answer
    missed = next((check for check in demands(answer) if not check.passed), None)
    if missed is None:
        return answer
    # Money is a wall of its own; a time is bound by the wall that has most of it.
    wall = answer.metric(missed.metric).wall if missed.metric.startswith("macro.") else answer.binding.wall
    name, _ = TITLES[wall]
    more = worded(" ", answer.binding.sentence) if wall == answer.binding.wall else ""
    binding = Limit(wall=wall, name=name, limit=missed.limit, sentence=worded(missed.sentence, more))
    scores = tuple(
        score.model_copy(update={"status": "binds"})
        if score.wall == wall and score.status != "fails"
        else score.model_copy(update={"status": "holds"})
        if score.status == "binds"
        else score
        for score in answer.scorecard
    )
    return answer.model_copy(update={"binding": binding, "scorecard": scores})
