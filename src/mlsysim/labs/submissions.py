"""Result codes that were handed in: read from files and pasted text, each graded or refused with one sentence.

A table has a first line that names its columns, ``code`` and, if wanted, ``student``; the files that pages save are such tables, and
several of them one after the other are one. Without such a line each line is a code, with the student before it where
there is one.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable
from dataclasses import field, replace
from pathlib import Path

from mlsysim.errors import InputError
from mlsysim.labs.codes import read_code
from mlsysim.labs.lab import lab
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
        read = {name: getattr(code, name) for name in ("lab", "points", "attempts", "slips", "words")}
        told = {"score": 0 if note else code.score, "counts": not note, "note": note or code.note}
        results.append(replace(one, **read, **told, mark=code.student.hex()))
    return results
