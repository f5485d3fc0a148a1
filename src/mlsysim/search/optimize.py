"""optimize: the best point of a space, what came next, what rejected the rest, and what a step from it is worth.

    result = optimize("chips.toml", minimize="usd_per_mtoken", subject_to=["latency_s <= 0.05"])
    print(result)

A space is a :class:`~mlsysim.search.space.Space`, the path of a space file, or a table with its keys. Up to two hundred million
points are all evaluated; larger spaces go to branch and bound (:mod:`mlsysim.search.branch`) where the objective is monotone along
most axes, with the same optimum. ``method`` chooses by name.

The sensitivity has three parts. For each axis a step up and a step down with everything else unchanged, and with everything
else free to follow where all points were evaluated. For each number that the kind takes, on an axis, fixed or by default,
what one per cent more of it is worth. Positive is better; an axis whose step is worth more than zero is held back by
what ``rejected_by`` names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from mlsysim.errors import InputError, MLSysError, unknown_name
from mlsysim.search.steps import behind, said, shown
from mlsysim.units.records import dataclass
from mlsysim.walls.document import Document

try:
    from mlsysim.search.branch import branch_and_bound, refusal
    from mlsysim.search.expression import Expression
    from mlsysim.search.neighbourhood import SAME, elasticity, point_at, rejecter, steps_from, what_binds
    from mlsysim.search.space import Goal, Space
    from mlsysim.search.sweep import sweep
    from mlsysim.search.uncertainty import certain
except ModuleNotFoundError as missing:
    if missing.name != "numpy":
        raise
    raise MLSysError(
        "Searching a space needs NumPy; the optimizers of parallelism, batching and placement run without it."
    ) from None

METHODS = ("auto", "exhaustive", "branch")
_MOST_EXHAUSTIVE = 200_000_000
_KEPT = 100
_NOTABLE = 5e-5
_RUNNER_UP_EVALUATIONS = 20_000_000


@dataclass(frozen=True)
class OptimizeResult(Document):
    """The best point of a space.

    ``best`` and ``runner_up`` hold a point's number, inputs and outputs; the runner-up is the best point whose objective differs, and
    ``distance`` is how far it lies behind, as a fraction of the best. ``rejected`` counts points by wall and by constraint.
    Branch and bound drops points without looking at each: then ``feasible`` and ``ties`` are None, ``rejected`` counts points
    in boxes that a wall or constraint rules out as a whole, and ``outranked`` those that cannot be better.
    """

    name: str
    kind: str
    method: str
    objective: str
    direction: str
    value: float | None
    best: dict[str, Any] | None
    size: int
    evaluated: int
    feasible: int | None
    ties: int | None
    runner_up: dict[str, Any] | None
    distance: float | None
    rejected: dict[str, int]
    outranked: int | None
    sensitivity: dict[str, Any]
    elasticity: dict[str, Any]
    binding: str

    def summary(self) -> str:
        """The answer in a few lines."""
        head = f"{self.name}: {self.direction} {self.objective} over {self.size:,} points, {self.evaluated:,} evaluated"
        if self.feasible is not None:
            head += f", {self.feasible:,} feasible"
        lines = [head + f" ({self.method})"]
        if self.best is not None:
            chosen = ", ".join(
                f"{name} = {shown(value, name, self.kind)}" for name, value in self.best["inputs"].items()
            )
            lines.append(f"best: {self.objective} = {shown(self.value)} at {chosen}")
            if self.ties is not None and self.ties > 1:
                lines.append(f"ties: {self.ties:,} points have this value; the first is shown")
        if self.runner_up is not None and self.distance is not None:
            best = {} if self.best is None else self.best["inputs"]
            others = {name: value for name, value in self.runner_up["inputs"].items() if value != best.get(name)}
            differs = ", ".join(f"{name} = {shown(value, name, self.kind)}" for name, value in others.items())
            lines.append(f"runner-up: {self.distance:.3%} behind, with {differs}")
        if self.rejected:
            lines.append("rejected: " + "; ".join(f"{count:,} by {reason}" for reason, count in self.rejected.items()))
        lines += [f"  {line}" for line in said(self.sensitivity, self.kind)]
        notable = {name: entry["worth"] for name, entry in self.elasticity.items() if abs(entry["worth"]) >= _NOTABLE}
        if notable:
            steps = ", ".join(f"{name} {gain:+.2%}" for name, gain in notable.items())
            lines.append(f"one per cent more of an input is worth: {steps}")
        return "\n".join([*lines, f"binding: {self.binding}"])

    def __str__(self) -> str:
        return self.summary()


def read_space(space: Any, subject_to: str | Iterable[str] = ()) -> Space:
    """A space from a Space, the path of its file, or a table with the keys of such a file; with further constraints."""
    if isinstance(space, (str, Path)):
        space = Space.from_toml(space)
    elif isinstance(space, Mapping):
        space = Space.from_dict(space)
    elif not isinstance(space, Space):
        raise InputError(f"A space is a Space, the path of a TOML file or a table, got {type(space).__name__}.")
    certain(space, "optimize()")
    return space.subjected(_listed("subject_to", subject_to))


def optimize(
    space: Any,
    *,
    minimize: str | None = None,
    maximize: str | None = None,
    subject_to: str | Iterable[str] = (),
    method: str = "auto",
    workers: int = 1,
) -> OptimizeResult:
    """The best point of a space under its constraints and those of ``subject_to``."""
    if method not in METHODS:
        raise unknown_name("method of optimize()", method, METHODS, f"use one of {', '.join(METHODS)}.")
    whole = read_space(space, subject_to)
    if minimize is not None or maximize is not None or whole.goal is None:
        whole = whole.with_goals(minimize=minimize, maximize=maximize)
    goal = whole.goal
    assert goal is not None
    if goal.output in ("feasible", "wall", "valid"):
        raise InputError(f"{goal.output!r} is not something to make least or most of.")
    branched = method == "branch" or (method == "auto" and whole.size > _MOST_EXHAUSTIVE and not refusal(whole))
    best, runner_up, marginals, counts = _branched(whole, goal) if branched else _exhausted(whole, goal, workers)
    value = None if best is None else best["outputs"][goal.output]
    steps: dict[str, Any] = {}
    per_cent: dict[str, Any] = {}
    reason, count = next(iter(counts["rejected"].items()), ("", 0))
    binds = f"nothing is feasible; {reason} rejects most ({count:,} points)."
    binds = binds if count else "no point of the space is a design."
    if best is not None and value is not None:
        steps = steps_from(whole, goal, best, value, marginals)
        per_cent = elasticity(whole, goal, best, value)
        binds = what_binds(whole, best, steps)
    second = None if runner_up is None else runner_up["outputs"][goal.output]
    return OptimizeResult(
        name=whole.name,
        kind=whole.kind,
        objective=goal.output,
        direction=goal.direction,
        value=value,
        best=best,
        size=whole.size,
        runner_up=runner_up,
        distance=None if value is None else behind(second, value, goal.larger),
        sensitivity=steps,
        elasticity=per_cent,
        binding=binds,
        **counts,
    )


def pareto(
    space: Any, objectives: str | Iterable[str], *, subject_to: str | Iterable[str] = (), workers: int = 1
) -> list[dict[str, Any]]:
    """The points of a space that no other point beats in all of two to six outputs, sorted by the first.

    Each is a point's number, inputs and outputs. Outputs of which more is better (throughput, accuracy) are made most of,
    the others least.
    """
    whole = read_space(space, subject_to)
    names = objectives.split(",") if isinstance(objectives, str) else _listed("objectives", objectives)
    whole = replace(whole, pareto=()).with_goals(pareto=names, top=1)
    first = whole.pareto[0]
    front = sweep(whole, workers=workers).pareto
    return sorted(front, key=lambda point: (point["outputs"][first.output] * first.sign, point["point"]))


def _listed(what: str, given: Any) -> list[Any]:
    if isinstance(given, str):
        return [given]
    if not isinstance(given, Iterable):
        raise InputError(f"{what!r} must be a text or a list of texts, got {type(given).__name__}.", field=what)
    return list(given)


Found = tuple[dict[str, Any] | None, dict[str, Any] | None, Mapping[str, Any], dict[str, Any]]
"""The best point, the next one, the best for each value of each axis, and fields of the result that count."""


def _exhausted(space: Space, goal: Goal, workers: int) -> Found:
    found = sweep(replace(space, pareto=(), top=_KEPT), workers=workers)
    if not found.complete:
        raise MLSysError("The search was interrupted; sweep() with a checkpoint folder can go on where it stopped.")
    best, runner_up = found.best[0] if found.best else None, None
    if best is not None:
        value = best["outputs"][goal.output]
        worse = (p for p in found.best if abs(p["outputs"][goal.output] - value) > SAME * abs(value))
        runner_up = next(worse, None)
        if runner_up is None and len(found.best) == _KEPT:
            others = sweep(replace(_beyond(space, goal, best), pareto=(), top=1))
            runner_up = others.best[0] if others.best else None
    counts = {"method": "exhaustive", "evaluated": found.points, "feasible": found.feasible, "outranked": None}
    counts |= {"ties": found.ties if best else 0, "rejected": _by_name(found.infeasible_by_wall)}
    return best, runner_up, found.marginals, counts


def _branched(space: Space, goal: Goal) -> Found:
    found = branch_and_bound(space)
    best, runner_up = None if found.index is None else point_at(space, found.index), None
    if best is not None:
        # Where many points lie just behind the best, telling them apart takes longer than finding it.
        with suppress(InputError):
            second = branch_and_bound(_beyond(space, goal, best), most_evaluations=_RUNNER_UP_EVALUATIONS).index
            runner_up = None if second is None else point_at(space, second)
    unseen = None if best else 0
    counts = {"method": "branch and bound", "evaluated": found.evaluated, "feasible": unseen, "ties": unseen}
    counts |= {"outranked": found.dropped.pop("bound", 0), "rejected": _by_name(found.dropped)}
    return best, runner_up, {}, counts


def _beyond(space: Space, goal: Goal, best: Mapping[str, Any]) -> Space:
    """The points that are worse than the best by more than rounding."""
    value = best["outputs"][goal.output]
    margin = abs(value) * SAME
    limit = f"< {value - margin!r}" if goal.larger else f"> {value + margin!r}"
    return replace(space, subject_to=(*space.subject_to, Expression(f"{goal.output} {limit}")))


def _by_name(counts: Mapping[str, int]) -> dict[str, int]:
    """Counts by the name of the wall or the text of the constraint, largest first."""
    named = {rejecter(reason): count for reason, count in counts.items() if count}
    return dict(sorted(named.items(), key=lambda item: -item[1]))
