"""Many result codes at once: rows of a CSV in, rows with scores out; a bad code is a row with a sentence, not an end."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from mlsysim.errors import InputError
from mlsysim.labs.codes import read_code
from mlsysim.labs.lab import lab


class Submission(NamedTuple):
    """A code that somebody handed in."""

    code: str
    student: str = ""


@dataclass(frozen=True)
class Graded:
    """What became of a submission; ``note`` says why a code does not count."""

    code: str
    student: str
    lab: str = ""
    score: int = 0
    points: int = 0
    attempts: dict[str, int] = field(default_factory=dict)
    note: str = ""

    @property
    def score_text(self) -> str:
        return f"{self.score}/{self.points}" if self.points else "-"

    @property
    def attempts_text(self) -> str:
        """Attempts until each question was solved, in their order; - for one that was not."""
        return " ".join(str(count) if count else "-" for count in self.attempts.values())

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def read_submissions(given: Iterable[str], student: str = "") -> list[Submission]:
    """Codes as they are, and those of CSV files, whose first line names the columns ``code`` and, if wanted, ``student``."""
    found: list[Submission] = []
    for item in given:
        if not item.lower().endswith(".csv"):
            found.append(Submission(item, student))
            continue
        try:
            with Path(item).open(encoding="utf-8-sig", newline="") as file:
                rows = list(csv.DictReader(file))
        except (OSError, UnicodeDecodeError, csv.Error) as error:
            raise InputError(f"The file {item} cannot be read: {error}.") from None
        if not rows or "code" not in {str(name).strip().lower() for name in rows[0]}:
            raise InputError(f"The file {item} needs a first line with a column 'code', and 'student' beside it.")
        for row in rows:
            plain = {str(name).strip().lower(): (value or "").strip() for name, value in row.items() if name}
            found.append(Submission(plain["code"], plain.get("student", "") or student))
    return found


def grade_submissions(given: Iterable[Submission], name: str = "", key: str = "") -> list[Graded]:
    """Each submission graded: the code has to check, to be of this student, of this lab, and not handed in twice."""
    if name:
        lab(name)
    seen: dict[tuple[str, bytes], str] = {}
    results = []
    for one in given:
        try:
            code = read_code(one.code, key)
        except InputError as error:
            results.append(Graded(one.code, one.student, note=str(error)))
            continue
        note = ""
        if one.student and not code.is_of(one.student):
            note = f"This code is not of {one.student}."
        elif name and code.lab != name:
            note = f"This code is of the lab {code.lab}, not of {name}."
        elif seen.get((code.lab, code.student), one.student) != one.student:
            note = f"{seen[(code.lab, code.student)]} handed in the same code."
        seen.setdefault((code.lab, code.student), one.student)
        score = 0 if note else code.score
        results.append(Graded(one.code, one.student, code.lab, score, code.points, code.attempts, note))
    return results
