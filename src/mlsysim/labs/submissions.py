"""Result codes that were handed in: read from files and pasted text, each graded or refused with one sentence.

A table has a first line that names its columns, ``code`` and, if wanted, ``student``; the files that pages save are such tables, and
several of them one after the other are one. Without such a line each line is a code, with the student before it where
there is one.

A class from its result codes: per question at which attempt it was solved, which misconceptions were met, what was predicted.

Of a student who handed in a lab more than once the last code counts. A code that cannot be read or belongs to somebody else
is listed with its sentence; it changes no number. Predictions are set beside what the engine says for that student, where the
code came with the student's id, since the numbers of a lab hang on it.
"""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import field, replace
from pathlib import Path
from statistics import mean
from typing import Any

from mlsysim.errors import InputError
from mlsysim.labs.codes import read_code
from mlsysim.labs.grading import compare_prediction
from mlsysim.labs.lab import Lab, lab, labs
from mlsysim.labs.question import Question
from mlsysim.labs.rpc import offer
from mlsysim.labs.scope import Scope
from mlsysim.units.records import dataclass
from mlsysim.walls.document import Document

_TABLES = (".csv", ".tsv")
_FILES = (*_TABLES, ".txt")
_LAST = re.compile(r"^(.*?)[\s,;]+(\S*(?:-\S*){3,}|\S+\.\S+)$")


@dataclass(frozen=True)
class Submission(Document):
    """A code that somebody handed in, and what became of it.

    ``note`` says why it does not count, or, where it does, what was lost on the way.
    """

    code: str
    student: str = ""
    lab: str = ""
    score: int = 0
    points: int = 0
    attempts: dict[str, int] = field(default_factory=dict)
    slips: dict[str, str] = field(default_factory=dict)
    words: dict[str, str] = field(default_factory=dict)
    mark: str = ""
    counts: bool = False
    note: str = ""

    @property
    def score_text(self) -> str:
        return f"{self.score}/{self.points}" if self.points else "-"

    @property
    def attempts_text(self) -> str:
        """Attempts until each question was solved, in their order; - for one that was not."""
        return " ".join(str(count) if count else "-" for count in self.attempts.values())


def read_submissions(given: Iterable[str], student: str = "") -> list[Submission]:
    """Codes as they are, and those of files."""
    found: list[Submission] = []
    for item in given:
        if not item.lower().endswith(_FILES):
            found.append(Submission(item, student))
            continue
        try:
            text = Path(item).read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"The file {item} cannot be read: {getattr(error, 'strerror', None) or error}.") from None
        read = submissions_of(text, student)
        if read is None and item.lower().endswith(_TABLES):
            raise InputError(f"The file {item} needs a first line with a column 'code', and 'student' beside it.")
        found += read if read is not None else _lines(text, student)
    return found


def pasted(text: str) -> list[Submission]:
    """Codes of a text that somebody pasted: a table, or a code a line."""
    read = submissions_of(text)
    return _lines(text) if read is None else read


def submissions_of(text: str, student: str = "") -> list[Submission] | None:
    """The codes of a table; None where its first line names no column ``code``."""
    text = text.strip("﻿ \n\r")
    head = text.partition("\n")[0]
    between = max(",;\t", key=head.count)
    rows = list(csv.reader(io.StringIO(text), delimiter=between))
    names = [cell.strip().lower() for cell in rows[0]] if rows else []
    if "code" not in names:
        return None
    found = []
    for row in rows[1:]:
        plain = dict(zip(names, (cell.strip() for cell in row), strict=False))
        if plain.get("code") and plain["code"].lower() != "code":
            found.append(Submission(plain["code"], plain.get("student", "") or student))
    return found


def _lines(text: str, student: str = "") -> list[Submission]:
    found = []
    for line in filter(None, (line.strip() for line in text.splitlines())):
        if re.fullmatch(r"(student[,;\t])?code", line.lower()):
            continue  # a saved file after codes that were pasted
        parts = _LAST.match(line)
        name = parts[1].strip().strip('"').replace('""', '"') if parts else student
        found.append(Submission(parts[2], name) if parts else Submission(line, name))
    return found


def grade_submissions(given: Iterable[Submission], name: str = "", key: str = "") -> list[Submission]:
    """Each submission graded: the code has to check, to be of this student, of this lab, and not handed in by another."""
    if name:
        lab(name)
    seen: dict[tuple[str, bytes], str] = {}
    results = []
    for one in given:
        try:
            code = read_code(one.code, key)
        except InputError as error:
            results.append(replace(one, note=str(error)))
            continue
        note = ""
        if one.student and not code.is_of(one.student):
            note = f"This code is not of {one.student}."
        elif name and code.lab != name:
            note = f"This code is of the lab {code.lab}, not of {name}."
        elif seen.get((code.lab, code.student), one.student) != one.student:
            note = f"{seen[(code.lab, code.student)] or 'Somebody without a name'} handed in the same code."
        seen.setdefault((code.lab, code.student), one.student)
        read: dict[str, Any] = {name: getattr(code, name) for name in ("lab", "points", "attempts", "slips", "words")}
        told: dict[str, Any] = {"score": 0 if note else code.score, "counts": not note, "note": note or code.note}
        results.append(replace(one, **read, **told, mark=code.student.hex()))
    return results


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
