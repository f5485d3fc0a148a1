"""What the page of a lab asks: the texts and controls, predictions, what is computed, grades, the result code.

The page keeps the state (predictions, answers, attempts) and hands it over with each call; nothing is stored here, so that a
reload of the page loses nothing. Nothing is computed before the predictions are made.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from mlsysim.errors import InputError
from mlsysim.labs.codes import make_code
from mlsysim.labs.grading import compare_prediction, grade, read_answer, right_answer
from mlsysim.labs.lab import Control, Lab, Question, lab, labs
from mlsysim.labs.lab_charts import draw
from mlsysim.labs.markdown import to_html
from mlsysim.labs.rpc import offer
from mlsysim.labs.scope import Scope, all_variants, student_name


@offer
def list_labs() -> list[dict[str, Any]]:
    """Every lab with what a student chooses it by."""
    told = ("id", "number", "title", "summary", "minutes", "walls", "objectives", "after")
    return [{**{name: getattr(each, name) for name in told}, "questions": len(each.graded)} for each in labs()]


@offer
def lab_open(name: str, student: str = "") -> dict[str, Any]:
    """The texts, controls and questions of a lab, with the student's own parameters."""
    of = lab(name)
    scope = _own(name, student)
    told = ("id", "number", "version", "title", "minutes", "walls", "points", "reflect")
    return {
        **{name: getattr(of, name) for name in told},
        "practice": not student_name(student),
        "objectives": [to_html(text).removeprefix("<p>").removesuffix("</p>") for text in of.objectives],
        "introduction": to_html(scope.text(of.introduction)),
        "task": to_html(scope.text(of.task)),
        "controls": [_control(scope, control) for control in of.controls],
        "questions": [_question(scope, question) for question in of.questions],
    }


def _control(scope: Scope, control: Control) -> dict[str, Any]:
    slides = all(not isinstance(value, str) for value in control.values)
    return {**control.model_dump(), "value": scope.parameters[control.parameter], "slides": slides}


def _question(scope: Scope, question: Question) -> dict[str, Any]:
    told = question.model_dump(include={"id", "stage", "unit", "points"})
    options = [{"value": option.value, "text": scope.text(option.text)} for option in question.options]
    return {**told, "text": to_html(scope.text(question.text)), "options": options}


@offer
def lab_predict(name: str, question: str, answer: str) -> str:
    """Whether a prediction can be read; its empty sentence means yes. It is not told whether it is right."""
    try:
        read_answer(lab(name).question(question), answer)
    except InputError as error:
        return str(error)
    return ""


@offer
def lab_compute(
    name: str, predictions: dict[str, str], student: str = "", moved: dict[str, Any] | None = None, width: int = 720
) -> dict[str, Any]:
    """What the engine says at the controls, and each prediction beside what became of it."""
    of = lab(name)
    _require_predictions(of, predictions)
    own = _own(name, student)
    scope = Scope.of_student(of, student, moved) if moved else own
    labels = {key: scope.text(of.values[key].label or key.replace("_", " ")) for key in of.show}
    return {
        "compared": {q.id: compare_prediction(own, q, predictions[q.id]) for q in of.predictions},
        "values": [
            {"name": key, "label": label, "text": scope.shown(key), "wall": of.values[key].wall}
            for key, label in labels.items()
        ],
        "charts": [draw(scope, chart, width) for chart in of.charts],
    }


@offer
def lab_answer(name: str, question: str, answer: str, student: str = "") -> dict[str, Any]:
    """The grade of one answer."""
    asked = lab(name).question(question)
    if not asked.is_graded:
        raise InputError(f"{question!r} is a prediction, which is not graded.")
    given = grade(_own(name, student), asked, answer)
    return {**given.to_dict(), "hint": to_html(given.hint) if given.hint else ""}


@offer
def lab_finish(
    name: str,
    predictions: dict[str, str],
    answers: dict[str, str],
    attempts: dict[str, int],
    student: str = "",
    site_key: str = "",
) -> dict[str, Any]:
    """The score, graded anew; the explanation, once everything is right; and a code where a student gave an id."""
    of = lab(name)
    _require_predictions(of, predictions)
    scope = _own(name, student)
    solved = {q.id: grade(scope, q, answers.get(q.id, "")).correct for q in of.graded}
    counted = {key: max(int(attempts.get(key, 1)), 1) if right else 0 for key, right in solved.items()}
    complete = all(solved.values())
    return {
        "score": sum(q.points for q in of.graded if solved[q.id]),
        "points": of.points,
        "open": [key for key, right in solved.items() if not right],
        "complete": complete,
        "code": make_code(of, student, counted, site_key) if student_name(student) else "",
        "explanation": to_html(scope.text(of.explanation)) if complete else "",
    }


@lru_cache(maxsize=8)
def _own(name: str, student: str) -> Scope:
    """The scope of a student's own parameters; its values are kept, since every answer asks for the same ones."""
    return Scope.of_student(lab(name), student)


def _require_predictions(of: Lab, predictions: Mapping[str, str]) -> None:
    for question in of.predictions:
        try:
            read_answer(question, str(predictions.get(question.id, "")))
        except InputError as error:
            raise InputError(f"Predict first: {error}") from None


def check_lab(lab: Lab, charts: bool = True) -> int:
    """Whether a lab works for every student: each combination of parameters has every value, answer, text and chart.

    Returns the number of combinations; raises one sentence for the first thing that is wrong.
    """
    scopes = [Scope(lab, parameters) for parameters in all_variants(lab)]
    for scope in scopes:
        for control in lab.controls:
            own = scope.parameters[control.parameter]
            if own not in control.values:
                raise InputError(f"The control {control.label!r} of {lab.id} lacks {own!r}, which some students get.")
        for name in lab.values:
            scope.shown(name)
        for text in (lab.introduction, lab.task, lab.explanation):
            scope.text(text)
        for question in lab.questions:
            scope.text(question.text)
            right = right_answer(scope, question)
            typed = right if question.is_choice else f"{right.magnitude:.12g} {question.unit}"
            if not grade(scope, question, typed).correct:
                raise InputError(f"The question {question.id!r} of {lab.id} refuses its own answer {typed!r}.")
    for chart in lab.charts if charts else ():
        draw(scopes[0], chart, 720)
    return len(scopes)
