"""What lies around the best point of a space: steps along its axes, one per cent more of its numbers, and what binds there."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np

from mlsysim.errors import InputError
from mlsysim.search.answers import answer
from mlsysim.search.axes import Axis
from mlsysim.search.expression import among
from mlsysim.search.kinds import kind_named
from mlsysim.search.space import Goal, Space, points_of
from mlsysim.search.steps import neighbours, shown, step, worth
from mlsysim.walls.catalog import wall

SAME = 1e-9
"""Relative difference below which two objectives are the same."""

_PER_CENT = 0.01
_MOST_NAMES = 64


def rejecter(reason: str) -> str:
    """A wall by its name, a constraint as it is."""
    return f"Wall {reason} ({wall(int(reason)).name})" if reason.isdigit() and reason != "0" else reason


def _answers(space: Space, indices: Any) -> dict[str, list[Any]]:
    """Outputs at some points, with what rejects each (or None) under ``rejected_by``."""
    columns = space.decode(indices)
    outputs = kind_named(space.kind).evaluate(space, columns)
    full = {name: np.broadcast_to(values, indices.shape) for name, values in outputs.items()}
    why: list[str | None] = [None] * indices.size

    def hold(held: Any, reason: str) -> None:
        for place in np.flatnonzero(~np.broadcast_to(held, indices.shape)).tolist():
            why[place] = why[place] or reason

    for expression in space.constraints:
        hold(replace(space, constraints=(expression,)).allowed(indices), expression.text)
    hold(full.get("valid", np.True_), "what divides")
    for wall_number in np.unique(full["wall"]).tolist():
        hold(full["feasible"] | (full["wall"] != wall_number), rejecter(str(int(wall_number))))
    for expression in space.subject_to:
        hold(expression(among(full, columns, space.fixed)), expression.text)
    return {**{name: values.tolist() for name, values in full.items()}, "rejected_by": why}


def point_at(space: Space, index: int) -> dict[str, Any]:
    """A point's number, inputs and outputs; an output that is not known is None."""
    indices = np.array([index])
    return points_of(space, indices, kind_named(space.kind).evaluate(space, space.decode(indices)))[0]


def steps_from(
    space: Space, goal: Goal, best: dict[str, Any], value: float, marginals: Mapping[str, Any]
) -> dict[str, Any]:
    """For each axis what the next values are worth: up and down by value, the best other one where values are names."""
    found: dict[str, Any] = {}
    for axis, stride in zip(space.axes, space.strides, strict=True):
        place = best["point"] // stride % axis.size
        values = next(iter(axis.columns.values()))
        named = isinstance(values[0], (str, bool))
        if named:
            moves = [("other", other) for other in range(axis.size) if other != place][:_MOST_NAMES]
        elif len(axis.columns) > 1:
            moves = [(way, at) for way, at in (("up", place + 1), ("down", place - 1)) if 0 <= at < axis.size]
        else:
            near = neighbours(values[place], values)
            moves = [(way, values.index(near[way])) for way in ("up", "down") if way in near]
        if not moves:
            continue
        indices = best["point"] + (np.array([other for _, other in moves], dtype=np.int64) - place) * stride
        answers = _answers(space, indices)
        rows = []
        for (_, other), objective, why in zip(moves, answers[goal.output], answers["rejected_by"], strict=True):
            known = why is None and math.isfinite(objective)
            row = step(_label(axis, other), objective if known else None, value, goal.larger, why or "an unknown value")
            if why is not None and math.isfinite(objective):
                row["worth_if_allowed"] = worth(objective, value, goal.larger)
            free = marginals[axis.name][other]["best"] if axis.name in marginals else None
            if free is not None:
                row["worth_with_others_free"] = worth(free, value, goal.larger)
            rows.append(row)
        if named:
            gains = ("worth", "worth_with_others_free")
            rows = [max(rows, key=lambda row: max(-math.inf if row.get(n) is None else row[n] for n in gains))]
        ways = dict(zip((way for way, _ in moves), rows, strict=False))
        found[axis.name] = {"at": _label(axis, place), **ways}
    return found


def _label(axis: Axis, place: int) -> Any:
    if len(axis.columns) == 1:
        return next(iter(axis.columns.values()))[place]
    return ", ".join(f"{name} {shown(values[place])}" for name, values in axis.columns.items())


def elasticity(space: Space, goal: Goal, best: dict[str, Any], value: float) -> dict[str, Any]:
    """What one per cent more is worth of each number at the best point that may take any value (given, of the kind's own finding, or
    by default); those that change nothing are left out."""
    kind = kind_named(space.kind)
    given = {**space.fixed, **best["inputs"]}
    known = kind.declared("known_numbers")
    own = {} if known is None else known(space, space.decode(np.array([best["point"]])))
    found: dict[str, Any] = {}
    for name, spec in kind.inputs.items():
        number = given.get(name, own.get(name, None if spec.required else spec.default))
        if isinstance(number, bool) or not isinstance(number, (int, float)) or not 0 < number < math.inf:
            continue
        if spec.whole or spec.kind not in ("number", "quantity", "efficiency"):
            continue
        number = float(number)
        more = number * (1 + _PER_CENT)
        if spec.high is not None and more > spec.high:
            continue
        fixed = {key: held for key, held in given.items() if key != name}
        probe = Space(space.kind, (Axis(name, {name: (more,)}),), fixed=fixed, subject_to=space.subject_to, goal=goal)
        try:
            answers = _answers(probe, np.array([0]))
        except InputError:
            continue
        objective, why = answers[goal.output][0], answers["rejected_by"][0]
        gain = worth(objective, value, goal.larger) if math.isfinite(objective) else None
        if gain is None or abs(gain) < SAME:
            continue
        found[name] = {"at": number, "worth": gain}
        if why is not None:
            found[name]["rejected_by"] = why
    return dict(sorted(found.items(), key=lambda item: -abs(item[1]["worth"])))


def what_binds(space: Space, best: dict[str, Any], steps: Mapping[str, Any]) -> str:
    """Which wall sets the time at the optimum, and which walls and constraints hold it back."""
    parts: list[str] = []
    with suppress(InputError):
        result = answer(space, best["inputs"])
        if result is not None and result.binding is not None:
            parts.append(str(result.binding.sentence).rstrip("."))
    held: dict[str, list[str]] = {}
    ends = []
    for name, entry in steps.items():
        rows = [entry[way] for way in ("up", "down", "other") if way in entry]
        for row in rows:
            if row["worth"] is None and (row.get("worth_if_allowed") or 0) > 0:
                held.setdefault(row["rejected_by"], []).append(name)
        if len(rows) == 1 and "other" not in entry and (rows[0]["worth"] or 0) < 0:
            ends.append(f"{name} ends at {shown(entry['at'], name, space.kind)}")
    parts += [f"{reason} holds back {' and '.join(names)}" for reason, names in held.items()]
    if not parts and ends:
        parts.append("the space ends: " + ", ".join(ends))
    return "; ".join(parts) + "." if parts else "no wall or constraint: a step along any axis is worse."
