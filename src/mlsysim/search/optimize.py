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

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from mlsysim.errors import InputError, MLSysError, unknown_name
from mlsysim.search.steps import said, shown, worth

try:
    from mlsysim.search.branch import branch_and_bound, walked_axes
    from mlsysim.search.expression import Expression
    from mlsysim.search.kinds import kind_named
    from mlsysim.search.monotone import MONOTONE
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
class OptimizeResult:
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

    def to_dict(self) -> dict[str, Any]:
        """Everything as JSON."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def summary(self) -> str:
        """The answer in a few lines."""
        head = f"{self.name}: {self.direction} {self.objective} over {self.size:,} points, {self.evaluated:,} evaluated"
        if self.feasible is not None:
            head += f", {self.feasible:,} feasible"
        lines = [head + f" ({self.method})"]
        if self.best is not None:
            chosen = ", ".join(f"{name} = {shown(value)}" for name, value in self.best["inputs"].items())
            lines.append(f"best: {self.objective} = {shown(self.value)} at {chosen}")
            if self.ties is not None and self.ties > 1:
                lines.append(f"ties: {self.ties:,} points have this value; the first is shown")
        if self.runner_up is not None and self.distance is not None:
            best = {} if self.best is None else self.best["inputs"]
            differs = ", ".join(
                f"{name} = {shown(value)}"
                for name, value in self.runner_up["inputs"].items()
                if value != best.get(name)
            )
            lines.append(f"runner-up: {self.distance:.3%} behind, with {differs}")
        if self.rejected:
            lines.append("rejected: " + "; ".join(f"{count:,} by {reason}" for reason, count in self.rejected.items()))
        lines += [f"  {line}" for line in said(self.sensitivity)]
        notable = {name: entry["worth"] for name, entry in self.elasticity.items() if abs(entry["worth"]) >= _NOTABLE}
        if notable:
            steps = ", ".join(f"{name} {gain:+.2%}" for name, gain in notable.items())
            lines.append(f"one per cent more of an input is worth: {steps}")
        return "\n".join([*lines, f"binding: {self.binding}"])

    def __str__(self) -> str:
        return self.summary()


def read_space(space: Any) -> Space:
    """A space from a Space, the path of its file, or a table with the keys of such a file."""
    if isinstance(space, Space):
        return space
    if isinstance(space, (str, Path)):
        return Space.from_toml(space)
    if isinstance(space, Mapping):
        return Space.from_dict(space)
    raise InputError(f"A space is a Space, the path of a TOML file or a table, got {type(space).__name__}.")


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
    whole = _constrained(read_space(space), subject_to)
    if minimize is not None or maximize is not None or whole.goal is None:
        whole = whole.with_goals(minimize=minimize, maximize=maximize)
    assert whole.goal is not None
    if not isinstance(whole.goal.output, str) or whole.goal.output in ("feasible", "wall", "valid"):
        raise InputError(f"{whole.goal.output!r} is not something to make least or most of.")
    branched = method == "branch" or (method == "auto" and whole.size > _MOST_EXHAUSTIVE and _can_branch(whole))
    return _branched(whole, whole.goal) if branched else _exhausted(whole, whole.goal, workers)


def pareto(
    space: Any, objectives: str | Iterable[str], *, subject_to: str | Iterable[str] = (), workers: int = 1
) -> list[dict[str, Any]]:
    """The points of a space that no other point beats in all of two to six outputs, by the first of them.

    Each is a point's number, inputs and outputs. Outputs of which more is better (throughput, accuracy) are made most of,
    the others least.
    """
    whole = _constrained(read_space(space), subject_to)
    names = objectives.split(",") if isinstance(objectives, str) else _listed("objectives", objectives)
    whole = replace(whole, pareto=()).with_goals(pareto=names, top=1)
    first = whole.pareto[0]
    front = sweep(whole, workers=workers).pareto
    return sorted(front, key=lambda point: (point["outputs"][first.output] * first.sign, point["point"]))


def _constrained(space: Space, subject_to: str | Iterable[str]) -> Space:
    certain(space, "optimize()")
    texts = _listed("subject_to", subject_to)
    if not texts:
        return space
    added = tuple(Expression(text) for text in texts)
    known = [*kind_named(space.kind).outputs, *space.homes, *space.fixed]
    if kind_named(space.kind).outputs:
        for expression in added:
            expression.check_names(known, repr(space.name))
    return replace(space, subject_to=(*space.subject_to, *added))


def _listed(what: str, given: Any) -> list[Any]:
    if isinstance(given, str):
        return [given]
    if not isinstance(given, Iterable):
        raise InputError(f"{what!r} must be a text or a list of texts, got {type(given).__name__}.", field=what)
    return list(given)


def _can_branch(space: Space) -> bool:
    if space.kind not in MONOTONE:
        return False
    walked = walked_axes(space)
    return math.prod(axis.size for axis in space.axes if axis.name in walked) <= 2**20


# --- the two ways ---------------------------------------------------------------------------------------------


def _exhausted(space: Space, goal: Goal, workers: int) -> OptimizeResult:
    found = sweep(replace(space, pareto=(), top=_KEPT), workers=workers)
    if not found.complete:
        raise MLSysError("The search was interrupted; sweep() with a checkpoint folder can go on where it stopped.")
    rejected = _by_name(found.infeasible_by_wall)
    best = found.best[0] if found.best else None
    runner_up = None
    if best is not None:
        value = best["outputs"][goal.output]
        runner_up = next((point for point in found.best if not _same(point["outputs"][goal.output], value)), None)
        if runner_up is None and len(found.best) == _KEPT:
            others = sweep(replace(space, pareto=(), top=1, subject_to=(*space.subject_to, _beyond(goal, value))))
            runner_up = others.best[0] if others.best else None
    return _result(
        space,
        goal,
        best,
        runner_up,
        method="exhaustive",
        evaluated=found.points,
        feasible=found.feasible,
        ties=found.ties if best else 0,
        rejected=rejected,
        outranked=None,
        marginals=found.marginals,
    )


def _branched(space: Space, goal: Goal) -> OptimizeResult:
    found = branch_and_bound(space)
    dropped = dict(found.dropped)
    outranked = dropped.pop("bound", 0)
    best = None if found.index is None else point_at(space, found.index)
    runner_up = None
    if best is not None:
        beyond = _beyond(goal, best["outputs"][goal.output])
        try:
            second = branch_and_bound(
                replace(space, subject_to=(*space.subject_to, beyond)), most_evaluations=_RUNNER_UP_EVALUATIONS
            )
        except InputError:
            # Where many points lie just behind the best, telling them apart takes longer than finding it.
            second = None
        if second is not None and second.index is not None:
            runner_up = point_at(space, second.index)
    return _result(
        space,
        goal,
        best,
        runner_up,
        method="branch and bound",
        evaluated=found.evaluated,
        feasible=None if best else 0,
        ties=None if best else 0,
        rejected=_by_name(dropped),
        outranked=outranked,
        marginals={},
    )


def _result(
    space: Space,
    goal: Goal,
    best: dict[str, Any] | None,
    runner_up: dict[str, Any] | None,
    *,
    marginals: Mapping[str, Any],
    rejected: dict[str, int],
    **counts: Any,
) -> OptimizeResult:
    value = None if best is None else best["outputs"][goal.output]
    steps: dict[str, Any] = {}
    per_cent: dict[str, Any] = {}
    binds = _nothing(rejected)
    if best is not None and value is not None:
        steps = steps_from(space, goal, best, value, marginals)
        per_cent = elasticity(space, goal, best, value)
        binds = what_binds(space, goal, best, steps)
    behind = (
        None if runner_up is None or value is None else worth(runner_up["outputs"][goal.output], value, goal.larger)
    )
    return OptimizeResult(
        name=space.name,
        kind=space.kind,
        objective=goal.output,
        direction="maximize" if goal.larger else "minimize",
        value=value,
        best=best,
        size=space.size,
        runner_up=runner_up,
        distance=None if behind is None else -behind,
        rejected=rejected,
        sensitivity=steps,
        elasticity=per_cent,
        binding=binds,
        **counts,
    )


def _beyond(goal: Goal, value: float) -> Expression:
    """Points that are worse than the best by more than rounding."""
    margin = abs(value) * SAME
    limit = value - margin if goal.larger else value + margin
    return Expression(f"{goal.output} {'<' if goal.larger else '>'} {limit!r}")


def _same(value: float, best: float) -> bool:
    return abs(value - best) <= SAME * abs(best)


def _by_name(counts: Mapping[str, int]) -> dict[str, int]:
    """Counts by the name of the wall or the text of the constraint, largest first."""
    named = {rejecter(reason): count for reason, count in counts.items() if count}
    return dict(sorted(named.items(), key=lambda item: -item[1]))


def _nothing(rejected: dict[str, int]) -> str:
    if not rejected:
        return "no point of the space is a design."
    reason, count = next(iter(rejected.items()))
    return f"nothing is feasible; {reason} rejects most ({count:,} points)."
