"""``review``: what a launch file costs beside the best settings for the same fleet, flag by flag.

The plan that the file says is evaluated, then the best settings that its target can express are looked for (:mod:`mlsysim.launch.best_settings`). Each difference is then applied to the file's plan alone and evaluated,
so that every flag has a gain of its own; gains need not add up. What gains nothing alone and does with the others stands in one row.
Flags and values are those that the target's own writer makes of the plans (:mod:`mlsysim.launch.edits`).

Only settings are counted as the loss. Narrower number formats change what is computed; their gains are listed apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from pydantic import Field

from mlsysim.errors import InputError
from mlsysim.launch import best_settings
from mlsysim.launch.edits import (
    Edit,
    Saving,
    edits_of,
    flags_of,
    headline_of,
    load_of,
    pasted,
    problems_of,
    runs,
    saving,
    stops_of,
    target_of,
    why,
)
from mlsysim.launch.reading import Reading
from mlsysim.launch.targets import read_launch, timed_as, written
from mlsysim.plans.answer import Answer
from mlsysim.plans.changes import LOWER_IS_BETTER, score, settled
from mlsysim.plans.evaluate import evaluate_plainly
from mlsysim.plans.plan import Plan
from mlsysim.plans.resolve import find_fleets
from mlsysim.units.fields import Record
from mlsysim.walls.document import Summary


class FlagChange(Record):
    """One change of the plan: what to write into the file, and what that alone does."""

    fields: tuple[str, ...] = Field(description="the fields of the plan that change")
    edits: tuple[Edit, ...] = Field(description="flags and keys, and the text to paste")
    gain: float | None = Field(None, description="of the main metric, alone; None where one of both does not fit")
    saves: Saving | None = None
    effect: str = Field(description="the gain in words")
    reason: str = ""

    def lines(self) -> list[tuple[str, str]]:
        """The text of each flag, and below it what the change does."""
        saves = self.saves.text if self.saves else ""
        number = len(self.edits)
        how = "alone" if number == 1 else f"with just these {number}"
        does = [f"{self.effect}, {how}" if self.gain else self.effect, saves and f"saves {saves}", self.reason]
        flags = [(f"  {edit.text}  (now {edit.now})", "flag") for edit in self.edits]
        return [*flags, ("    " + "; ".join(part for part in does if part), "effect")]


class Review(Summary, Record):
    """A launch file, reviewed."""

    told: ClassVar = (
        *("target", "feasible", "headline", "metric", "now", "best", "loss", "saves"),
        *("problems", "changes", "paste", "formats", "unread", "warnings", "details", "plan", "best_plan"),
    )

    reading: Reading
    answer: Answer
    best: Answer | None = None
    loss: float | None = Field(None, description="share of the best settings' main metric that the file gives away")
    saves: Saving | None = Field(None, description="what the best settings save")
    headline: str
    stops: tuple[str, ...] = Field((), description="what keeps a server from starting or taking the requests")
    problems: tuple[str, ...] = ()
    changes: tuple[FlagChange, ...] = ()
    paste: tuple[Edit, ...] = Field((), description="all changes of settings together")
    formats: tuple[FlagChange, ...] = Field((), description="narrower number formats, which change results")

    @property
    def exit_code(self) -> int:
        """0 where the file's plan fits, 2 where it does not, or does not start."""
        return 0 if self.answer.feasible and not self.stops else 2

    @property
    def kept(self) -> list[str]:
        """Flags that have no part in the review; the longest request and the tokens of caches have."""
        entry = getattr(target_of(self.reading), "entry", {})
        parts = [entry.get(key) for key in ("lengths", "cache_tokens")]
        return [flag for flag in self.reading.details if flag not in parts]

    @property
    def pasted(self) -> list[str]:
        """All changes of settings as lines to paste, flags of a command in one, and what to take away."""
        gone = [edit.flag for edit in self.paste if not edit.paste]
        lines = pasted(self.reading, {edit.flag: edit.value for edit in self.paste if edit.paste})
        return [*lines, *([f"without {', '.join(gone)}"] if gone else [])]

    def sentences(self) -> list[tuple[str, str]]:
        """The review in words, each line with what it is: subject, stop, well, headline, problem, binding, title, flag, effect, warning or note."""
        well = self.exit_code == 0 and (self.loss or 0) < 0.01
        lines = [(self.answer.subject, "subject"), *((stop, "stop") for stop in self.stops)]
        lines.append((self.headline, "well" if well else "headline"))
        lines += [(problem, "problem") for problem in self.problems if problem not in self.stops]
        lines += [(str(self.answer.binding.sentence), "binding")] if self.answer.feasible else []
        for title, changes in (
            ("What to change", self.changes),
            ("Narrower number formats, which change results", self.formats),
        ):
            if changes:
                lines += [("", ""), (title, "title"), *(line for change in changes for line in change.lines())]
            if changes is self.changes and self.pasted != [edit.text for edit in self.paste]:
                lines += [("Together, to paste", "title"), *((f"  {line}", "") for line in self.pasted)]
        lines += [(warning, "warning") for warning in self.reading.warnings]
        if self.reading.unread:
            lines.append(("Not read: " + "; ".join(self.reading.unread), "warning"))
        if self.kept:
            lines.append(("Kept, without a part in the plan: " + ", ".join(self.kept), "note"))
        return lines

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
            "saves": None if self.saves is None else self.saves.model_dump(),
            "problems": list(self.problems),
            "changes": [change.model_dump() for change in self.changes],
            "paste": self.pasted,
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
    if plan.kind == "rl":
        words = "it is evaluated as a plan: mlsysim import FILE, and rl with those keys"
        raise InputError(f"What settings of a post-training step cost is not reviewed; {words}.", field="file")
    if plan.kind == "training":
        plan = timed_as(reading.inner or reading.target, plan)
    now = evaluate_plainly(plan)
    reading = reading.model_copy(update={"warnings": (*reading.warnings, *load_of(reading, now))})
    best = (best_settings.best_training if now.task == "training" else best_settings.best_serving)(plan, now, reading)
    if best is None or not best.feasible:
        best = None
    elif now.feasible and score(best) <= score(now) * (1 + best_settings.SLIGHT):
        best = now
    loss = None if best is None or not now.feasible else max(0.0, 1 - score(now) / score(best))
    refused, stops = runs(reading, now), stops_of(reading, now)
    mine = reading.given if refused else flags_of(reading, now)
    together = () if best is None or best is now else edits_of(reading, mine, flags_of(reading, best))
    changes = _changes(reading, now, best, mine, together) if best is not None and best is not now else ()
    saves = None if best is None or best is now or not now.feasible else saving(now, best)
    headline = headline_of(now, best, loss, saves)
    return Review(
        reading=reading,
        answer=now,
        best=best,
        loss=loss,
        saves=saves,
        headline=f"With that put right: {headline[0].lower()}{headline[1:]}" if stops else headline,
        stops=stops,
        problems=(*stops, *problems_of(reading, now), *([refused] if refused else [])),
        changes=changes,
        paste=together,
        formats=tuple(_formats(reading, plan, now, mine)),
    )


def _changes(
    reading: Reading, now: Answer, best: Answer, before: Mapping[str, Any], together: tuple[Edit, ...]
) -> tuple[FlagChange, ...]:
    """The changes that gain something alone, the largest first, and in one row what does so with the others only."""
    mine, other = settled(now), settled(best)
    fields = [("hardware", "stack"), *(("parallelism", name) for name in best_settings.SETTINGS)]
    fields += [("serving", name) for name in ("engine", "replicas", "memory_fraction") if now.task == "serving"]
    found: list[FlagChange] = []
    rest: dict[str, Answer | None] = {}
    for part, name in fields:
        old, new = (best_settings.setting_of(plan, part, name) for plan in (mine, other))
        if old == new or new is None:
            continue
        if part == "parallelism" and now.task == "training":
            candidates = [*best_settings.one_change(mine, name, new)]
        else:
            free = {"serving": {"replicas": None}} if name in ("tp", "pp", "ep", "attention_dp") else {}
            candidates = [mine.replacing(**{part: {name: new}, **free})]
        field, tried = f"{part}.{name}", best_settings.best_of(None, candidates, reading)
        alone = None if tried is None else _change(reading, now, tried, field, before, (old, new))
        if alone is None:
            rest[field] = tried
        else:
            found.append(alone)
    listed = {edit.flag for change in found for edit in change.edits}
    others = tuple(edit for edit in together if edit.flag not in listed)
    if others:
        effect = "only with the others"
        if not found:
            effect = (
                f"{_gained(now, score(best) / score(now) - 1)} together" if now.feasible else "makes it fit together"
            )
        reason = why(now, *rest.values()) if len(rest) == 1 else ""
        found.append(FlagChange(fields=tuple(rest), edits=others, gain=None, effect=effect, reason=reason))
    return tuple(sorted(found, key=lambda change: (change.gain is None, -(change.gain or 0.0))))


def _gained(now: Answer, gain: float) -> str:
    """A gain of the main metric, and what it is of."""
    return f"{gain:.1%} faster" if now.main in LOWER_IS_BETTER else f"{gain:+.1%} {now.metric(now.main).label.lower()}"


def _change(
    reading: Reading, now: Answer, tried: Answer, field: str, before: Mapping[str, Any], values: tuple[Any, ...] = ()
) -> FlagChange | None:
    """A change by itself; None where it gains nothing so, or does not fit. What no flag says is told by the plan's ``values``."""
    if not tried.feasible or (now.feasible and score(tried) <= score(now) * (1 + best_settings.SLIGHT)):
        return None
    edits = edits_of(reading, before, flags_of(reading, tried))
    if not edits and not values:
        return None
    if not edits:
        old, new = map(str, values)
        edits = (Edit(flag=reading.flags.get(field, field), now=old, better=new, paste=""),)
    gain, saves, effect = None, None, "makes it fit"
    if now.feasible:
        gain, saves = score(tried) / score(now) - 1, saving(now, tried)
        effect = _gained(now, gain)
    return FlagChange(fields=(field,), edits=edits, gain=gain, saves=saves, effect=effect, reason=why(now, tried))


def _formats(reading: Reading, plan: Plan, now: Answer, before: Mapping[str, Any]) -> Iterator[FlagChange]:
    """Narrower number formats on the file's plan, where its target has a word for them."""
    chip = find_fleets(plan.hardware).one.node.accelerator
    tries: list[tuple[str, str]] = []
    if (plan.workload.precision or "bf16") in ("bf16", "fp16") and "fp8" in chip.compute.precision_flops:
        tries.append(("workload", "precision"))
    if now.task == "serving" and plan.serving is not None and plan.serving.cache_precision is None:
        tries.append(("serving", "cache_precision"))
    for part, name in tries:
        tried = best_settings.attempt(plan.replacing(**{part: {name: "fp8"}}), reading)
        change = None if tried is None else _change(reading, now, tried, f"{part}.{name}", before)
        if change is not None:
            made = name != "precision" or "fp8" in getattr(target_of(reading), "QUANTISES", ("fp8",))
            told = "" if made else "; the checkpoint must be quantised so"
            yield change.model_copy(update={"reason": change.reason + told})
