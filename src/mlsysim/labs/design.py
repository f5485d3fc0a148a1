"""Designs: the student moves parameters until every target holds; the engine says which does not, and by how much.

A plan is written as ``tp=8, batch=64``, one value of each control; what is left out stays as the lab gives it. Every plan
whose targets hold is right. What it is worth beside the best is said too: the best is found by trying every design, since
a question has at most a few hundred.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator
from dataclasses import field
from typing import Any

from mlsysim.errors import InputError, unknown_name
from mlsysim.labs.question import Control, Question, Target
from mlsysim.labs.scope import Scope, as_unit, shown
from mlsysim.units.records import dataclass
from mlsysim.units.registry import Quantity
from mlsysim.walls.document import Document

_EXACT = 1e-9


@dataclass(frozen=True)
class Reached(Document):
    """One target of a design: what the plan has, what is asked, whether it holds, and by how much it does not."""

    label: str
    value: str
    bound: str
    holds: bool
    miss: str = ""


@dataclass(frozen=True)
class Tried:
    """A design that was tried: its targets, or the sentence with which the engine refuses the plan."""

    targets: list[Reached] = field(default_factory=list)
    refusal: str = ""

    @property
    def holds(self) -> bool:
        return not self.refusal and all(target.holds for target in self.targets)


def read_design(question: Question, text: str) -> dict[str, Any]:
    """The parameters of a plan as it is written; one sentence for what cannot be read."""
    controls = {move.parameter: move for move in question.moves}
    chosen: dict[str, Any] = {}
    for part in filter(None, (piece.strip() for piece in re.split(r"[,;\n]", text))):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals:
            example = f"{question.moves[0].parameter}={question.moves[0].values[0]}"
            raise InputError(f"{part[:60]!r} says no value; write a design like '{example}'.")
        if name not in controls:
            raise unknown_name(f"control of the design {question.id!r}", name, controls)
        chosen[name] = _value(controls[name], value)
    if not chosen:
        raise InputError("There is no design yet.")
    return chosen


def _value(control: Control, text: str) -> Any:
    for value in control.values:
        if text == str(value) or (not isinstance(value, str) and _number(text) == value):
            return value
    offered = ", ".join(str(value) for value in control.values)
    raise InputError(f"The control {control.label!r} has no value {text[:40]!r}; it takes {offered}.")


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def written(plan: dict[str, Any]) -> str:
    """A plan as :func:`read_design` reads it."""
    return ", ".join(f"{name}={value}" for name, value in plan.items())


def scope_of(scope: Scope, question: Question, plan: dict[str, Any]) -> Scope:
    """What is computed at a plan."""
    fixed = {name: scope.evaluate(of) for name, of in question.given.items()}
    return scope.changed({**fixed, **plan})


def start_of(scope: Scope, question: Question) -> dict[str, Any]:
    """Where the controls stand before anything is moved: the student's own parameters."""
    own = scope_of(scope, question, {})
    return {move.parameter: own.parameters[move.parameter] for move in question.moves}


def tried(scope: Scope, question: Question, plan: dict[str, Any]) -> Tried:
    """What becomes of a plan."""
    return _tried(scope_of(scope, question, plan), question)


def _tried(inside: Scope, question: Question) -> Tried:
    try:
        return Tried([_reached(inside, target) for target in question.targets])
    except InputError as error:
        return Tried(refusal=str(error))


def _reached(scope: Scope, target: Target) -> Reached:
    label, value = scope.text(target.label), as_unit(scope.evaluate(target.of), target.unit)
    bound = target.at_most or target.at_least
    if bound is None:
        return Reached(label, shown(value, target.unit), "yes", bool(value))
    limit = as_unit(scope.evaluate(bound), target.unit)
    words = f"{'at most' if target.at_most else 'at least'} {shown(limit, target.unit)}"
    over = float((value - limit).magnitude) * (1 if target.at_most else -1)
    slack = _EXACT * abs(float(limit.magnitude))
    if not math.isnan(over) and over <= slack:
        return Reached(label, shown(value, target.unit), words, True)
    gap = shown(Quantity(abs(over), target.unit), target.unit) if math.isfinite(over) else "without end"
    return Reached(
        label, shown(value, target.unit), words, False, f"{gap} too {'much' if target.at_most else 'little'}"
    )


def all_designs(question: Question) -> Iterator[dict[str, Any]]:
    """Every plan of the controls."""
    names = [move.parameter for move in question.moves]
    for values in itertools.product(*(move.values for move in question.moves)):
        yield dict(zip(names, values, strict=True))


def worth(inside: Scope, question: Question) -> Any:
    """What a plan is compared by, in the unit of the goal."""
    assert question.goal is not None
    return as_unit(inside.evaluate(question.goal.of), question.goal.unit)


def best_design(scope: Scope, question: Question) -> dict[str, Any] | None:
    """Of all designs that hold the best, of equal ones the first; without a goal the first that holds."""
    inside = ((plan, scope_of(scope, question, plan)) for plan in all_designs(question))
    holding = ((plan, at) for plan, at in inside if _tried(at, question).holds)
    if question.goal is None:
        return next((plan for plan, _ in holding), None)
    pick, found = min if question.goal.lowest else max, ((worth(at, question), plan) for plan, at in holding)
    return pick(found, key=lambda pair: pair[0], default=(None, None))[1]


def word_on(scope: Scope, question: Question, plan: dict[str, Any]) -> str:
    """A sentence on a design that holds, beside the best of all designs."""
    best = best_design(scope, question)
    if question.goal is None or best is None:
        return ""
    label, unit = scope.text(question.goal.label), question.goal.unit
    mine, least = (worth(scope_of(scope, question, each), question) for each in (plan, best))
    said = f"{label}: {shown(mine, unit)}"
    if math.isclose(mine.magnitude, least.magnitude, rel_tol=1e-6):
        return f"{said}, and no other plan of these controls does better."
    ratio = mine.magnitude / least.magnitude if least.magnitude else math.inf
    times = f"{ratio:.3g} times" if ratio > 1 else f"{ratio * 100:.3g} % of"
    return f"{said}, {times} that of the best plan here ({shown(least, unit)}). Can you find it?"
