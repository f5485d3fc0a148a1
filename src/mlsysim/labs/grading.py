"""Answers against what the engine computes: with a tolerance, with units, and with one sentence for whoever is wrong.

``12.0 ms`` and ``0.012 s`` are the same answer. A number without a unit where one belongs, and a unit of something else, are
refused with what was expected; they are no attempt at the number. Money may be written as ``$1.2M``, a share
as ``12 %`` or ``0.12``. The answer key is never stored: it is computed from the lab's own expression each time.

A wrong answer is looked for among the misconceptions that the question names: each is an expression, and the one whose value
the answer is within tolerance is told by its name. Only where none is met does the ratio to the right answer speak, and only
of prefixes and units of time, which are slips in any question.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import field
from typing import Any

from mlsysim.errors import InputError, UnitError, unknown_name
from mlsysim.labs.design import Reached, best_design, read_design, scope_of, tried, word_on, written
from mlsysim.labs.lab import Lab
from mlsysim.labs.question import Misconception, Question
from mlsysim.labs.scope import Scope, as_unit, shown
from mlsysim.units.records import dataclass
from mlsysim.units.registry import Quantity, parse_quantity, ureg
from mlsysim.walls.document import Document
from mlsysim.zoo.files import shipped

_MONEY = re.compile(r"^\$\s*([\d.,_]+(?:[eE][+-]?\d+)?)\s*(k|K|M|B|bn|thousand|million|billion)?$")
_SCALES = {"": 1.0, "k": 1e3, "thousand": 1e3, "m": 1e6, "million": 1e6, "b": 1e9, "bn": 1e9, "billion": 1e9}
_CARBON = re.compile(r"\b(g|kg|t|tonnes?)\s*(?:of\s+)?(CO2(?:eq?)?)\b", re.IGNORECASE)
_EXACT = 1e-9
_LEAST_WORDS = 12
_TABLES = shipped("mlsysim.labs", "grading.toml")
_DIMENSIONS: dict[str, str] = _TABLES["dimensions"]


@dataclass(frozen=True)
class Grade(Document):
    """What came of an answer.

    ``counts`` is false for one that could not be read, which is no attempt. ``slip`` is the number of the misconception that
    was met, from 1 on in the order of the question's, and 0 for none; ``targets`` are those of a design.
    """

    correct: bool
    counts: bool
    message: str
    hint: str = ""
    slip: int = 0
    targets: list[Reached] = field(default_factory=list)


def right_answer(scope: Scope, question: Question) -> Any:
    """What the engine says: a quantity in the question's unit, the value of an option, or the best design as it is written."""
    if question.answer is None:
        best = best_design(scope, question)
        if best is None:
            raise InputError(f"No design of {question.id!r} holds its targets.")
        return written(best)
    value = scope.evaluate(question.answer)
    if question.is_choice:
        value = ("yes" if value else "no") if isinstance(value, bool) else str(value)
        return _option(question, value, f"option of the question {question.id!r}")
    made = as_unit(value, question.unit)
    if not isinstance(made, Quantity) or not math.isfinite(made.magnitude) or made.magnitude == 0:
        raise InputError(f"The answer to {question.id!r} is {value!r}; it must be a finite number other than zero.")
    return made


def _option(question: Question, value: str, what: str) -> str:
    options = [option.value for option in question.options]
    if value not in options:
        raise unknown_name(what, value, options)
    return value


def read_answer(question: Question, text: str) -> Any:
    """An answer as typed: the value of an option, or a quantity in the question's unit; raises one sentence."""
    text = text.strip()
    if not text:
        raise InputError("There is no answer yet.")
    if question.kind == "design":
        return read_design(question, text)
    if question.kind == "words":
        if len(text) < _LEAST_WORDS:
            raise InputError(f"Write a sentence of at least {_LEAST_WORDS} characters.")
        return text
    if question.is_choice:
        return _option(question, text, "option")
    given = _quantity(text)
    wanted = ureg.Unit(question.unit)
    plain = str(given.units) in ("", "dimensionless")
    if given.dimensionality != wanted.dimensionality:
        expected = _DIMENSIONS.get(str(wanted.dimensionality), "another kind of quantity")
        # A number that says nothing about the right one.
        example = {"USD": "$1,000", "percent": "10 %", "": "10"}.get(question.unit, f"10 {question.unit}")
        if plain:
            raise UnitError(f"{text} has no unit; this is {expected}, so write it like '{example}'.")
        got = _DIMENSIONS.get(str(given.dimensionality), f"in {given.units:~P}")
        raise UnitError(f"{text} is {got}, but this is {expected}; write it like '{example}'.")
    if question.unit == "percent" and plain and abs(given.magnitude) > 1:
        raise UnitError(
            f"{text} without a unit means {given.magnitude * 100:,.4g} %; write '{text} %' if you mean that."
        )
    return given.to(question.unit)


def _quantity(text: str) -> Any:
    money = _MONEY.match(text)
    if money:
        return parse_quantity(f"{money[1]} USD") * _SCALES[(money[2] or "").lower()]
    # A mass of carbon is its own dimension; people write a space in it.
    text = _CARBON.sub(lambda found: f"{found[1][0].lower() if found[1][0] in 'tT' else found[1].lower()}CO2e", text)
    if not any(letter.isdigit() for letter in text):
        raise InputError(f"{text[:60]!r} holds no number; write one with its unit, such as '12.5 ms'.")
    made = parse_quantity(text)
    if not math.isfinite(made.magnitude):
        raise InputError(f"{text[:60]!r} is no finite number.")
    return made


def grade(scope: Scope, question: Question, text: str, compare: bool = False) -> Grade:
    """One answer. A wrong one is refused, with what is wrong about it and the lab's hint.

    With ``compare`` a design that holds is told what it is worth beside the best one, for which all of them are tried.
    """
    try:
        given = read_answer(question, text)
    except InputError as error:
        return Grade(False, False, str(error))
    hint = scope.text(question.hint)
    if question.kind == "design":
        return _graded_design(scope, question, given, hint, compare)
    right = right_answer(scope, question)
    if _same(question, given, right):
        return Grade(
            True, True, "Right." if question.is_choice else f"Right: the engine says {shown(right, question.unit)}."
        )
    leads = ((slip, slip_answer(scope, question, slip)) for slip in question.slips if scope.evaluate(slip.when))
    met = next((slip for slip, answer in leads if _same(question, given, answer)), None)
    return _refused(
        scope, question, "That is not it." if question.is_choice else _off(given, right, question), hint, met
    )


def _graded_design(scope: Scope, question: Question, plan: dict[str, Any], hint: str, compare: bool) -> Grade:
    found = tried(scope, question, plan)
    if found.holds:
        word = word_on(scope, question, plan) if compare else ""
        return Grade(True, True, f"Every target holds. {word}".strip(), targets=found.targets)
    inside = scope_of(scope, question, plan)
    if found.refusal:
        return Grade(False, True, f"This plan does not run: {found.refusal}", hint)
    met = next((slip for slip in question.slips if inside.evaluate(slip.when) and inside.evaluate(slip.of)), None)
    held = sum(target.holds for target in found.targets)
    missed = next(target for target in found.targets if not target.holds)
    by = f": {missed.value}, {missed.miss}" if missed.miss else " does not hold"
    message = f"{held} of {len(found.targets)} targets hold. {missed.label}{by}."
    return _refused(inside, question, message, hint, met, found.targets)


def _refused(
    scope: Scope,
    question: Question,
    message: str,
    hint: str,
    met: Misconception | None,
    targets: list[Reached] | None = None,
) -> Grade:
    if met is None:
        return Grade(False, True, message, hint, 0, targets or [])
    said = f"{message} {met.name[0].upper()}{met.name[1:]}: {scope.text(met.says)}"
    return Grade(False, True, said, hint, question.slips.index(met) + 1, targets or [])


def slip_answer(scope: Scope, question: Question, slip: Misconception) -> Any:
    """The answer that a misconception leads to, in the question's unit or as an option."""
    value = scope.evaluate(slip.of)
    return str(value) if question.is_choice else as_unit(value, question.unit)


def _same(question: Question, given: Any, wanted: Any) -> bool:
    if question.is_choice:
        return bool(given == wanted)
    tolerance = max(question.tolerance, _EXACT)
    return bool(abs(given.magnitude - wanted.magnitude) <= tolerance * abs(wanted.magnitude) * (1 + _EXACT))


def _off(given: Any, right: Any, question: Question) -> str:
    text = shown(given, question.unit)
    if given.magnitude * right.magnitude < 0:
        return f"{text} has the wrong sign."
    if given.magnitude == 0:
        return "It is not zero."
    ratio = abs(given.magnitude / right.magnitude)
    by = f"by more than {question.tolerance * 100:g} %" if question.tolerance else "and an exact answer is wanted"
    near = max(question.tolerance, 0.01)
    slips = [
        s["why"] for s in _TABLES["slips"] if any(math.isclose(ratio, s["factor"] ** k, rel_tol=near) for k in (1, -1))
    ]
    return f"{text} is too {'large' if ratio > 1 else 'small'} {by}{f': {slips[0]}' if slips else ''}."


def grade_all(lab: Lab, student: str, answers: Mapping[str, str]) -> dict[str, Grade]:
    """Every graded question; one that was not answered is not correct."""
    scope = Scope.of_student(lab, student)
    for name in answers:
        lab.question(name)
    return {question.id: grade(scope, question, answers.get(question.id, "")) for question in lab.graded}


def compare_prediction(scope: Scope, question: Question, text: str) -> str:
    """A prediction beside what the engine says, in one sentence; of words what came out."""
    if question.kind == "words":
        return scope.text(question.outcome)
    given, right = read_answer(question, text), right_answer(scope, question)
    if question.is_choice:
        words = {option.value: option.text for option in question.options}
        return f"You predicted “{words[given]}”" + (
            ", and so it is." if given == right else f"; it is “{words[right]}”."
        )
    said = f"You predicted {shown(given, question.unit)}; the engine says {shown(right, question.unit)}"
    ratio = given.magnitude / right.magnitude
    if ratio <= 0:
        return f"{said}."
    if abs(ratio - 1) <= max(question.tolerance, 0.1):
        return f"{said}: close."
    return f"{said}: too {'high' if ratio > 1 else 'low'} by a factor of {max(ratio, 1 / ratio):.3g}."
