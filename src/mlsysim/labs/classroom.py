"""A class from its result codes: per question at which attempt it was solved, which misconceptions were met, what was predicted.

Of a student who handed in a lab more than once the last code counts. A code that cannot be read or belongs to somebody else
is listed with its sentence; it changes no number. Predictions are set beside what the engine says for that student, where the
code came with the student's id, since the numbers of a lab hang on it.
"""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterable
from dataclasses import field
from statistics import mean
from typing import Any

from mlsysim.errors import InputError
from mlsysim.labs.grading import compare_prediction
from mlsysim.labs.lab import Lab, labs
from mlsysim.labs.question import Question
from mlsysim.labs.rpc import offer
from mlsysim.labs.scope import Scope
from mlsysim.labs.submissions import Submission, grade_submissions, pasted
from mlsysim.units.records import dataclass
from mlsysim.walls.document import Document

MANY = 4
"""From this attempt on they are counted together."""


@dataclass(frozen=True)
class Task(Document):
    """A graded question: how many solved it at the first, second, third and a later attempt, who did not, and which slips."""

    id: str
    text: str
    at: list[int]
    open: int
    slips: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Said(Document):
    """What one student predicted, and what came out."""

    student: str
    said: str
    came: str = ""


@dataclass(frozen=True)
class Predicted(Document):
    """A prediction and what the class said."""

    id: str
    text: str
    said: list[Said] = field(default_factory=list)


@dataclass(frozen=True)
class LabOfClass(Document):
    """One lab of a class."""

    lab: str
    title: str
    students: int
    mean_score: float
    points: int
    tasks: list[Task]
    predictions: list[Predicted]


@dataclass(frozen=True)
class Classroom(Document):
    """All labs of a class, and the codes that do not count or lost something, each with its sentence."""

    labs: list[LabOfClass]
    notes: list[Submission]


def classroom(graded: Iterable[Submission]) -> Classroom:
    """The class of submissions that were graded."""
    latest: dict[tuple[str, str], Submission] = {}
    notes = []
    for one in graded:
        if one.note:
            notes.append(one)
        if one.counts:
            latest.pop((one.lab, one.mark), None)
            latest[one.lab, one.mark] = one
    found = []
    for of in labs():
        mine = [one for (name, _), one in latest.items() if name == of.id]
        if mine:
            found.append(_lab(of, mine))
    return Classroom(found, notes)


def _lab(of: Lab, mine: list[Submission]) -> LabOfClass:
    practice = Scope.of_student(of)
    tasks = [_task(practice, question, mine) for question in of.graded]
    told = [_predicted(practice, question, mine) for question in of.predictions]
    score = mean(one.score for one in mine)
    return LabOfClass(of.id, of.title, len(mine), score, of.points, tasks, [each for each in told if each.said])


def _task(scope: Scope, question: Question, mine: list[Submission]) -> Task:
    counts = [one.attempts[question.id] for one in mine]
    at = [sum(count == number for count in counts) for number in range(1, MANY)]
    at.append(sum(count >= MANY for count in counts))
    met = Counter(one.slips[question.id] for one in mine if question.id in one.slips)
    return Task(question.id, scope.text(question.text), at, counts.count(0), dict(met.most_common()))


def _predicted(scope: Scope, question: Question, mine: list[Submission]) -> Predicted:
    said = [
        Said(one.student, one.words[question.id], _came(scope.lab, question, one))
        for one in mine
        if question.id in one.words
    ]
    return Predicted(question.id, scope.text(question.text), said)


def _came(of: Lab, question: Question, one: Submission) -> str:
    if not one.student:
        return ""
    try:
        came = compare_prediction(Scope.of_student(of, one.student), question, one.words[question.id])
    except InputError as error:
        return str(error)
    return " ".join(came.split())


_HEAD = (
    *("student", "lab", "score", "points", "question", "stage", "solved", "attempts", "misconception"),
    *("said", "counts", "note"),
)


def class_csv(graded: Iterable[Submission]) -> str:
    """A row for each question of each code, predictions too; a code that could not be read has one row with its sentence."""
    out = io.StringIO()
    writer = csv.DictWriter(out, _HEAD, lineterminator="\n")
    writer.writeheader()
    known = {of.id: of for of in labs()}
    for one in graded:
        base: dict[str, Any] = {name: getattr(one, name) for name in ("student", "lab", "note")}
        base["counts"] = "yes" if one.counts else "no"
        if one.lab not in known:
            writer.writerow(_safe({**base, "said": one.code}))
            continue
        base |= {"score": one.score, "points": one.points}
        for question in known[one.lab].questions:
            row = {**base, "question": question.id, "stage": question.stage, "said": one.words.get(question.id, "")}
            if question.is_graded:
                count = one.attempts[question.id]
                row |= {"solved": "yes" if count else "no", "attempts": count or ""}
                row["misconception"] = one.slips.get(question.id, "")
            writer.writerow(_safe(row))
        if one.words.get("reflection"):
            writer.writerow(_safe({**base, "question": "reflection", "said": one.words["reflection"]}))
    return out.getvalue()


def _safe(row: dict[str, Any]) -> dict[str, Any]:
    """What a spreadsheet would take for a formula begins with an apostrophe."""
    return {name: f"'{value}" if str(value)[:1] in ("=", "+", "-", "@", "\t") else value for name, value in row.items()}


@offer
def class_view(text: str, key: str = "") -> dict[str, Any]:
    """The class of codes that an instructor pasted or loaded, and the table to save."""
    graded = grade_submissions(pasted(text), key=key)
    if not graded:
        raise InputError("There is no code yet: paste one a line, or a table with the columns student and code.")
    return {**classroom(graded).to_dict(), "codes": len(graded), "csv": class_csv(graded)}
