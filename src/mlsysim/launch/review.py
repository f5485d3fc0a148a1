"""``review``: what a launch file costs beside the best settings for the same fleet, flag by flag.

The plan that the file says is evaluated, then the best settings that its target can express are looked for: the layout search of a training plan
(:class:`mlsysim.search.parallelism.ParallelismOptimizer`) refined by single steps, or those steps alone where the target has no pipeline; for
serving, every tensor-parallel degree with the replicas that it leaves. Each difference is then applied to the file's plan alone and evaluated,
so that every flag has a gain of its own; gains need not add up, and a change may fit only together with others.

Only settings are counted as the loss. Narrower number formats change what is computed; their gains are listed apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar

from pydantic import Field

from mlsysim.errors import InputError
from mlsysim.launch.reading import Reading
from mlsysim.launch.reasons import NEUTRAL
from mlsysim.launch.targets import TARGETS, read_launch, target_named, written
from mlsysim.plans.answer import Answer
from mlsysim.plans.changes import score, settled
from mlsysim.plans.evaluate import evaluate_plainly
from mlsysim.plans.plan import Plan
from mlsysim.plans.resolve import find_fleets, workload_of
from mlsysim.units.fields import Record
from mlsysim.walls.document import Summary

_SETTINGS = (
    "tp", "pp", "cp", "ep", "attention_dp", "virtual_stages", "micro_batch", "zero", "recompute", "sequence_parallel", "overlap",
)  # fmt: skip
_SLIGHT = 0.005
_MOST_STEPS = 24


class FlagChange(Record):
    """One flag, what the file says, what is better, and what that alone does."""

    field: str
    flag: str
    now: str
    better: str
    gain: float | None = Field(None, description="of the main metric, alone; None where one of both does not fit")
    effect: str = Field(description="the gain in words")
    reason: str = ""


class Review(Summary, Record):
    """A launch file, reviewed."""

    told: ClassVar = (
        *("target", "feasible", "headline", "metric", "now", "best", "loss", "problems", "changes", "formats"),
        *("unread", "warnings", "details", "plan", "best_plan"),
    )

    reading: Reading
    answer: Answer
    best: Answer | None = None
    loss: float | None = Field(None, description="share of the best settings' main metric that the file gives away")
    headline: str
    problems: tuple[str, ...] = ()
    changes: tuple[FlagChange, ...] = ()
    formats: tuple[FlagChange, ...] = Field((), description="narrower number formats, which change what is computed")

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
        main = self.answer.main
        return {
            "target": self.reading.target,
            "feasible": self.answer.feasible,
            "headline": self.headline,
            "metric": main,
            "now": self.answer.metric(main).to_dict() if self.answer.runs else None,
            "best": None if self.best is None else self.best.metric(main).to_dict(),
            "loss": self.loss,
            "problems": list(self.problems),
            "changes": [change.model_dump() for change in self.changes],
            "formats": [change.model_dump() for change in self.formats],
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
    reading = (
        launch.placed(on, model) if isinstance(launch, Reading) else read_launch(launch, target, on=on, model=model)
    )
    plan = reading.plan
    now = evaluate_plainly(plan)
    trainer = {"hardware": {"launcher": reading.inner or reading.target}}
    best = _best_training(plan, now, _fields(reading), trainer) if now.task == "training" else _best_serving(plan, now)
    if best is None or not best.feasible:
        best = None
    elif now.feasible and score(best) <= score(now) * (1 + _SLIGHT):
        best = now
    loss = None if best is None or not now.feasible else max(0.0, 1 - score(now) / score(best))
    return Review(
        reading=reading,
        answer=now,
        best=best,
        loss=loss,
        headline=_headline(now, best, loss),
        problems=_problems(now),
        changes=() if best is None or best is now else _changes(reading, now, best),
        formats=tuple(_formats(reading, plan, now)),
    )


def _fields(reading: Reading) -> frozenset[str]:
    """The fields that the target, or the command inside of it, expresses."""
    return frozenset(TARGETS[target_named(reading.inner or reading.target)].FIELDS)


# --- what differs, each alone -------------------------------------------------------------------------------------


def _changes(reading: Reading, now: Answer, best: Answer) -> tuple[FlagChange, ...]:
    mine, other = settled(now), settled(best)
    fields = [("parallelism", name) for name in _SETTINGS]
    fields += [("serving", name) for name in ("replicas", "memory_fraction") if now.task == "serving"]
    found = []
    for part, name in fields:
        old, new = (_setting_of(plan, part, name) for plan in (mine, other))
        if old == new or new is None:
            continue
        if part == "parallelism" and now.task == "training":
            candidates = [*_one_change(mine, name, new)]
        else:
            free = {"serving": {"replicas": None}} if name in ("tp", "pp", "ep", "attention_dp") else {}
            candidates = [mine.replacing(**{part: {name: new}, **free})]
        found.append(_change(reading, now, _best_of(None, candidates), f"{part}.{name}", old, new))
    return tuple(sorted(found, key=lambda change: (change.gain is None, -(change.gain or 0.0))))


def _change(reading: Reading, now: Answer, tried: Answer | None, field: str, old: Any, new: Any) -> FlagChange:
    gain, effect = None, "makes it fit"
    if tried is None or not tried.feasible:
        effect = "only with the others"
    elif now.feasible:
        gain = score(tried) / score(now) - 1
        effect = f"{gain:+.1%}"
    flag, reason = reading.flags.get(field, field), _why(now, tried)
    return FlagChange(
        field=field, flag=flag, now=_said(old), better=_said(new), gain=gain, effect=effect, reason=reason
    )


def _said(value: Any) -> str:
    if value is None:
        return "not set"
    return ("on" if value else "off") if isinstance(value, bool) else str(value)


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
    before, after = ({part.label: part.value for part in answer.time_parts} for answer in (now, then))
    scale = _work(now) / _work(then) if now.task == "training" else 1.0
    moved = {label: after.get(label, 0.0) * scale - before.get(label, 0.0) for label in {*before, *after}}
    label = max(moved, key=lambda key: (abs(moved[key]), key))
    total = sum(before.values()) or 1.0
    if abs(moved[label]) < 0.0005 * total:
        return "no part of the time moves"
    return f"{label} goes from {before.get(label, 0.0) / total:.1%} to {after.get(label, 0.0) * scale / total:.1%} of the time now"


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
    if not now.feasible:
        return (now.binding.sentence,)
    if now.memory is not None and now.memory.used > 0.95 * now.memory.capacity:
        return (f"Memory is nearly full: {now.metric('memory').text} of {now.metric('memory_capacity').text}.",)
    return ()


def _formats(reading: Reading, plan: Plan, now: Answer) -> Iterator[FlagChange]:
    """Narrower number formats on the file's plan."""
    chip = find_fleets(plan.hardware).one.node.accelerator
    precision = plan.workload.precision or "bf16"
    tries: list[tuple[str, str, str]] = []
    narrow = precision in ("bf16", "fp16") and "fp8" in chip.compute.precision_flops and reading.target != "deepspeed"
    if narrow and "workload.precision" in _fields(reading):
        tries.append(("workload", "precision", precision))
    if now.task == "serving" and plan.serving is not None and plan.serving.cache_precision is None:
        tries.append(("serving", "cache_precision", "16 bits"))
    for part, name, old in tries:
        tried = _attempt(plan.replacing(**{part: {name: "fp8"}}))
        if tried is not None and tried.feasible and (not now.feasible or score(tried) > score(now) * (1 + _SLIGHT)):
            yield _change(reading, now, tried, f"{part}.{name}", old, "fp8")


# --- the best settings that a target can express: steps from the file's plan, one setting at a time -----------------


def _attempt(plan: Plan) -> Answer | None:
    """The answer to a plan; None where it is refused."""
    try:
        return evaluate_plainly(plan)
    except InputError:
        return None


def _better_of(first: Answer | None, second: Answer | None) -> Answer | None:
    """The better of two: one that fits before one that does not."""
    if first is None or second is None:
        return first or second
    if first.feasible != second.feasible:
        return first if first.feasible else second
    return second if score(second) > score(first) * (1 + _SLIGHT) else first


def _best_of(first: Answer | None, plans: Iterable[Plan]) -> Answer | None:
    """The best of an answer and those to plans."""
    for plan in plans:
        first = _better_of(first, _attempt(plan))
    return first


def _best_training(plan: Plan, now: Answer, fields: frozenset[str], trainer: dict[str, Any]) -> Answer:
    """The best layout that the trainer runs: searched where it has pipelines, then refined by single steps."""
    best = now
    if "parallelism.pp" in fields and "parallelism.virtual_stages" in fields:
        free = dict.fromkeys(type(plan.parallelism).model_fields) | {"mode": "auto"}
        best = _best_of(now, [plan.replacing(parallelism=free, **trainer)]) or now
    for _ in range(_MOST_STEPS):
        better = _better_of(best, _best_of(None, (each.replacing(**trainer) for each in _neighbours(best, fields))))
        if better is None or better is best:
            break
        best = better
    return _pruned(best, settled(now)) if best.feasible and best is not now else best


def _pruned(best: Answer, mine: Plan) -> Answer:
    """The best settings with every one put back to the file's that makes no difference."""
    for name in reversed(_SETTINGS):
        plan = settled(best)
        old = _setting_of(mine, "parallelism", name)
        if old is None or old == _setting_of(plan, "parallelism", name):
            continue
        for candidate in _one_change(plan, name, old):
            tried = _attempt(candidate)
            if tried is not None and tried.feasible and score(tried) >= score(best) * (1 - _SLIGHT):
                best = tried
                break
    return best


def _neighbours(answer: Answer, fields: frozenset[str]) -> Iterator[Plan]:
    """Plans that differ in one setting that the target has."""
    plan = settled(answer)
    split = plan.parallelism
    heads = getattr(workload_of(plan.workload), "heads", None) or 1
    per_node = find_fleets(plan.hardware).one.node.accelerators_per_node
    tp = split.tp or 1
    moves: dict[str, Sequence[Any]] = {
        "tp": [degree for degree in _beside(tp) if heads % degree == 0 and degree <= per_node],
        "pp": _beside(split.pp or 1),
        "micro_batch": _beside(split.micro_batch or 1),
        "zero": (0, 1, 2, 3),
        "recompute": ("none", "selective", "full"),
        "overlap": (True,),
        "sequence_parallel": (True,) if tp > 1 else (),
    }
    for name, values in moves.items():
        for value in values:
            if f"parallelism.{name}" in fields and value != getattr(split, name):
                yield from _one_change(plan, name, value)


def _beside(count: int) -> list[int]:
    return [count * 2, count // 2] if count > 1 else [2]


def _one_change(plan: Plan, name: str, value: Any) -> Iterator[Plan]:
    """The plan with one other setting: what follows from it is left open."""
    update: dict[str, Any] = {name: value, "dp": None}
    if name in ("pp", "virtual_stages"):
        update["schedule"] = None
        if name == "pp" and value == 1:
            update["virtual_stages"] = None
    yield plan.replacing(parallelism=update)
    if name in ("tp", "pp", "cp") and plan.parallelism.micro_batch is not None:
        yield plan.replacing(parallelism={**update, "micro_batch": None})


def _best_serving(plan: Plan, now: Answer) -> Answer | None:
    """The best tensor-parallel degree with the replicas that it leaves, and more memory where the file holds some back."""
    free: dict[str, Any] = dict.fromkeys(("mode", "tp", "pp", "ep", "attention_dp", "dp"))
    load = {"replicas": None}
    if plan.serving is not None and plan.serving.concurrency is None and now.layout.get("concurrency"):
        load["concurrency"] = now.layout["concurrency"]
    plans = [plan.replacing(parallelism=free, serving=load)]
    ep, given = plan.parallelism.ep or 1, plan.serving.memory_fraction if plan.serving is not None else None
    if ep > 1:
        plans.append(plan.replacing(parallelism={**free, "ep": ep}, serving=load))
    more = [fraction for fraction in (0.9, 0.95) if given is not None and given < fraction]
    plans += [plan.replacing(parallelism=free, serving={**load, "memory_fraction": fraction}) for fraction in more]
    return _best_of(now, plans)


def _setting_of(plan: Plan, part: str, name: str) -> Any:
    """What a plan says of a setting, or what saying nothing means."""
    value = getattr(getattr(plan, part), name, None)
    if name == "sequence_parallel":
        return (plan.parallelism.tp or 1) > 1 if value is None else value
    return NEUTRAL.get(f"{part}.{name}") if value is None else value
