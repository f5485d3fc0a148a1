"""``review``: what a launch file costs beside the best settings for the same fleet, flag by flag.

The plan that the file says is evaluated, then the best settings that its target can express are looked for: the layout search of a training plan
(:class:`mlsysim.search.parallelism.ParallelismOptimizer`) refined by single steps, or those steps alone where the target has no pipeline; for
serving, every tensor-parallel degree with the replicas that it leaves. Each difference is then applied to the file's plan alone and evaluated,
so that every flag has a gain of its own; gains need not add up, and a change may fit only together with others.

Only settings are counted as the loss. Narrower number formats change what is computed; their gains are listed apart.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic import Field

from mlsysim.errors import InputError
from mlsysim.launch.reading import Reading
from mlsysim.launch.review_search import (
    SETTINGS,
    SLIGHT,
    attempt,
    best_serving,
    best_training,
    better_of,
    one_change,
    scored,
    setting_of,
)
from mlsysim.launch.targets import TARGETS, read_launch, target_named, written
from mlsysim.plans.answer import Answer
from mlsysim.plans.changes import settled
from mlsysim.plans.evaluate import evaluate_plainly
from mlsysim.plans.plan import Plan
from mlsysim.plans.resolve import find_fleets
from mlsysim.units.fields import Record


class FlagChange(Record):
    """One flag, what the file says, what is better, and what that alone does."""

    field: str
    flag: str
    now: str
    better: str
    gain: float | None = Field(
        default=None, description="of the main metric, alone; None where one of both does not fit"
    )
    effect: str = Field(description="the gain in words")
    reason: str = ""


class Review(Record):
    """A launch file, reviewed."""

    reading: Reading
    answer: Answer
    best: Answer | None = None
    loss: float | None = Field(
        default=None, description="share of the best settings' main metric that the file gives away"
    )
    headline: str
    problems: tuple[str, ...] = ()
    changes: tuple[FlagChange, ...] = ()
    formats: tuple[FlagChange, ...] = Field(
        default=(), description="narrower number formats, which change what is computed"
    )

    @property
    def exit_code(self) -> int:
        """0 where the file's plan fits, 2 where it does not."""
        return 0 if self.answer.feasible else 2

    def corrected(self) -> str:
        """The launch file with the best settings; what the plan has no field for is kept."""
        if self.best is None:
            raise InputError("No settings were found that fit, so there is no better launch file to write.")
        inner = self.reading.inner if self.reading.target in ("slurm", "kubernetes") else None
        return written(self.reading.target, self.best, dict(self.reading.details), inner)

    def to_dict(self) -> dict[str, Any]:
        """Everything as JSON."""

        def rows(changes: tuple[FlagChange, ...]) -> list[dict[str, Any]]:
            return [change.model_dump() for change in changes]

        main = self.answer.main
        return {
            "target": self.reading.target,
            "feasible": self.answer.feasible,
            "headline": self.headline,
            "metric": main,
            "now": self.answer.metric(main).to_dict(),
            "best": None if self.best is None else self.best.metric(main).to_dict(),
            "loss": self.loss,
            "problems": list(self.problems),
            "changes": rows(self.changes),
            "formats": rows(self.formats),
            "unread": list(self.reading.unread),
            "warnings": list(self.reading.warnings),
            "details": dict(self.reading.details),
            "plan": self.answer.plan.document(),
            "best_plan": None if self.best is None else settled(self.best).document(),
        }


def review(
    launch: Reading | str, *, on: str | None = None, model: str | None = None, target: str | None = None
) -> Review:
    """What a launch file costs and what to change; a reading, or the text of a file."""
    reading = launch if isinstance(launch, Reading) else read_launch(launch, target, on=on, model=model)
    if isinstance(launch, Reading) and (on or model):
        reading = reading.placed(on, model)
    plan = reading.plan
    now = evaluate_plainly(plan)
    fields = _fields(reading)
    best = best_training(plan, now, fields) if now.task == "training" else best_serving(plan, now)
    if best is not None and best.feasible and now.feasible and scored(best) <= scored(now) * (1 + SLIGHT):
        best = now
    if best is not None and not best.feasible:
        best = None
    loss = None if best is None or not now.feasible else max(0.0, 1 - scored(now) / scored(best))
    changes = () if best is None or best is now else tuple(_changes(reading, now, best))
    return Review(
        reading=reading,
        answer=now,
        best=best,
        loss=loss,
        headline=_headline(now, best, loss),
        problems=_problems(now),
        changes=changes,
        formats=tuple(_formats(reading, plan, now)),
    )


def _fields(reading: Reading) -> frozenset[str]:
    """The fields that the target, and the command inside of it, express."""
    names = [reading.inner or reading.target]
    return frozenset(field for name in names for field in TARGETS[target_named(name)].FIELDS)


def _changes(reading: Reading, now: Answer, best: Answer) -> Iterator[FlagChange]:
    mine, other = settled(now), settled(best)
    parts = ("parallelism",) if now.task == "training" else ("parallelism", "serving")
    names = {"parallelism": SETTINGS, "serving": ("replicas", "memory_fraction")}
    found = []
    for part in parts:
        for name in names[part]:
            old, new = (setting_of(plan, part, name) for plan in (mine, other))
            if old == new or new is None:
                continue
            found.append(_alone(reading, now, mine, part, name, old, new))
    yield from sorted(found, key=lambda change: (change.gain is None, -(change.gain or 0.0)))


def _alone(reading: Reading, now: Answer, plan: Plan, part: str, name: str, old: Any, new: Any) -> FlagChange:
    """One difference on the file's own plan."""
    if part == "parallelism" and now.task == "training":
        candidates = list(one_change(plan, name, new))
    elif name in ("tp", "pp", "ep"):
        candidates = [plan.replacing(parallelism={name: new}, serving={"replicas": None})]
    else:
        candidates = [plan.replacing(**{part: {name: new}})]
    tried: Answer | None = None
    for candidate in candidates:
        tried = better_of(tried, attempt(candidate))
    return _change(reading, now, tried, f"{part}.{name}", old, new)


def _change(reading: Reading, now: Answer, tried: Answer | None, field: str, old: Any, new: Any) -> FlagChange:
    gain = None
    if tried is None or not tried.feasible:
        effect = "only with the others"
    elif not now.feasible:
        effect = "makes it fit"
    else:
        gain = scored(tried) / scored(now) - 1
        effect = f"{gain:+.1%}"
    return FlagChange(
        field=field,
        flag=reading.flags.get(field, field),
        now=_said(old),
        better=_said(new),
        gain=gain,
        effect=effect,
        reason=_why(now, tried),
    )


def _said(value: Any) -> str:
    return (
        "not set"
        if value is None
        else {True: "on", False: "off"}.get(value, str(value))
        if isinstance(value, bool)
        else str(value)
    )


def _why(now: Answer, then: Answer | None) -> str:
    """What moves most: the part of the time that changes by most, or the memory."""
    if then is None:
        return "alone it does not divide the batch, the layers or the fleet"
    if not then.feasible:
        if then.memory is not None and then.memory.used > then.memory.capacity:
            return f"alone it needs {then.metric('memory').text} of {then.metric('memory_capacity').text}"
        return then.headline.rstrip(".")
    if not now.feasible:
        return "alone it makes the plan fit"
    before, after = (_shares(answer) for answer in (now, then))
    scale = _work(now) / _work(then) if now.task == "training" else 1.0
    moved = {label: after.get(label, 0.0) * scale - before.get(label, 0.0) for label in {*before, *after}}
    label = max(moved, key=lambda key: (abs(moved[key]), key))
    total = sum(before.values()) or 1.0
    if abs(moved[label]) < 0.0005 * total:
        return "no part of the time moves"
    return f"{label} goes from {before.get(label, 0.0) / total:.1%} to {after.get(label, 0.0) * scale / total:.1%} of the time now"


def _shares(answer: Answer) -> dict[str, float]:
    return {part.label: part.value for part in answer.time_parts}


def _work(answer: Answer) -> float:
    return float(answer.layout.get("batch_size", 1)) * float(answer.layout.get("seq_len", 1))


def _headline(now: Answer, best: Answer | None, loss: float | None) -> str:
    metric = now.metric(now.main)
    if not now.feasible:
        base = now.headline.rstrip(".")
        if best is None:
            return f"{base}; no settings for this fleet were found that fit."
        return f"{base}; with the changes below it fits, at {best.metric(best.main).text} ({metric.label.lower()})."
    if best is None or loss is None or loss < 0.01:
        return f"Your flags are within 1 % of the best settings found: {metric.label.lower()} {metric.text}."
    return f"Your flags cost you {loss:.0%}: {metric.label.lower()} {metric.text}, and {best.metric(best.main).text} with the changes below."


def _problems(now: Answer) -> tuple[str, ...]:
    out = []
    if not now.feasible:
        out.append(now.binding.sentence)
    elif now.memory is not None and now.memory.used > 0.95 * now.memory.capacity:
        out.append(f"Memory is nearly full: {now.metric('memory').text} of {now.metric('memory_capacity').text}.")
    return tuple(out)


def _formats(reading: Reading, plan: Plan, now: Answer) -> Iterator[FlagChange]:
    """Narrower number formats on the file's plan."""
    chip = find_fleets(plan.hardware).one.node.accelerator
    precision = plan.workload.precision or "bf16"
    fields = _fields(reading)
    tries: list[tuple[str, str, str, str, Plan]] = []
    narrow = precision in ("bf16", "fp16") and "fp8" in chip.compute.precision_flops and reading.target != "deepspeed"
    if narrow and "workload.precision" in fields:
        tries.append(("workload", "precision", precision, "fp8", plan.replacing(workload={"precision": "fp8"})))
    if now.task == "serving" and plan.serving is not None and plan.serving.cache_precision is None:
        tries.append(
            ("serving", "cache_precision", "16 bits", "fp8", plan.replacing(serving={"cache_precision": "fp8"}))
        )
    for part, name, old, new, candidate in tries:
        tried = attempt(candidate)
        if tried is not None and tried.feasible and (not now.feasible or scored(tried) > scored(now) * (1 + SLIGHT)):
            yield _change(reading, now, tried, f"{part}.{name}", old, new)
