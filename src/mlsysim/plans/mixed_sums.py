"""What groups of different accelerators add up to: costs, equations of sums, parts, and the group that is fullest."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from mlsysim.plans.answer import Answer, Metric, Part
from mlsysim.plans.equations import Together
from mlsysim.plans.plan import Plan
from mlsysim.units.registry import to_si


def on_group(plan: Plan, text: str, **parts: Any) -> Plan:
    """The plan on one group alone."""
    return plan.replacing(hardware={"on": text}, constraints=None, **parts)


def fullest(answers: list[Answer]) -> Answer:
    """The answer of the group whose accelerators are fullest."""
    return max(answers, key=lambda a: to_si(a.value("memory"), "byte") / to_si(a.value("memory_capacity"), "byte"))


def sums(answers: list[Answer]) -> list[Metric]:
    """Costs of the groups together."""
    found = []
    for name in ("tco", "rent", "purchase", "power", "energy", "carbon_footprint", "water"):
        held = [m for a in answers for m in a.metrics if m.name == name]
        if len(held) == len(answers):
            total = held[0].value
            for metric in held[1:]:
                total = total + metric.value
            found.append(held[0].model_copy(update={"value": total, "low": None, "high": None}))
    return found


def together_of(answers: list[Answer], names: list[str]) -> dict[str, Together]:
    """The equations of those sums."""
    found = {}
    for metric in sums(answers):
        each = {name: answer.metric(metric.name).amount for name, answer in zip(names, answers, strict=True)}
        found[metric.name] = Together("sum over groups", r"\sum_i x_i", each)
    return found


def added(groups: Iterable[tuple[Part, ...]]) -> tuple[Part, ...]:
    """Parts of several groups, those of one name together; none where a group has none."""
    held = list(groups)
    if not all(held):
        return ()
    sums: dict[str, Part] = {}
    for part in (each for parts in held for each in parts):
        known = sums.get(part.label)
        sums[part.label] = part if known is None else known.model_copy(update={"value": known.value + part.value})
    return tuple(sums.values())
