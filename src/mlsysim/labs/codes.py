"""Result codes: what a student hands in, and an instructor checks without a network.

    bytes   2 lab, 1 version, 4 student, half a byte for each graded question, 5 checksum

Half a byte is 0 for a question that was not solved, else the number of attempts until it was, 15 for fifteen or more. The
text is Crockford's base 32 in groups of five: no I, L, O or U, and case does not matter. The checksum is the start of an
HMAC-SHA256 over the rest, keyed with the instructor's key where the site was built with one.

What this is worth: a code with a typo, of another student or of another lab is noticed. It is no proof against somebody
who reads the site's files, since all of it, key included, runs on the student's machine; an examination needs a
room.

Reference: https://www.crockford.com/base32.html
"""

from __future__ import annotations

import csv
import hashlib
import hmac
from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from pathlib import Path

from mlsysim.errors import InputError
from mlsysim.labs.lab import Lab, lab, labs
from mlsysim.labs.scope import student_name
from mlsysim.units.records import dataclass
from mlsysim.walls.document import Document

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_LOOKALIKES = str.maketrans({"I": "1", "L": "1", "O": "0", "-": None, " ": None})
_DIGITS = str.maketrans(_ALPHABET, "0123456789ABCDEFGHIJKLMNOPQRSTUV")
_LAB, _STUDENT, _CHECK = 2, 4, 5
_FIXED = _LAB + 1 + _STUDENT + _CHECK
_MOST_ATTEMPTS = 15


@dataclass(frozen=True)
class ResultCode:
    """What a code says. ``attempts`` has 0 for what was not solved."""

    lab: str
    version: int
    student: bytes
    attempts: dict[str, int]
    score: int
    points: int

    def is_of(self, student: str) -> bool:
        """Whether this student made it."""
        return hmac.compare_digest(self.student, _mark(student))


def derived_key(key: str) -> str:
    """What a site carries in place of the instructor's key, so that the key itself is not published."""
    return _digest("key", key).hex() if key else ""


def _mark(student: str) -> bytes:
    return _digest("student", student_name(student))[:_STUDENT]


def make_code(of: Lab, student: str, attempts: Mapping[str, int], site_key: str = "") -> str:
    """The code of a student's results: attempts until solved for each question, 0 or nothing where it was not.

    ``site_key`` is what :func:`derived_key` gives.
    """
    if not student_name(student):
        raise InputError("A result code needs the student's id; without one this is practice.")
    for name in attempts:
        if name not in {question.id for question in of.graded}:
            raise InputError(f"The lab {of.id!r} has no graded question {name!r}.")
    counts = [min(max(attempts.get(question.id, 0), 0), _MOST_ATTEMPTS) for question in of.graded]
    padded = counts + [0] * (len(counts) % 2)
    nibbles = bytes(high << 4 | low for high, low in zip(padded[::2], padded[1::2], strict=True))
    body = _lab_mark(of.id) + bytes([of.version]) + _mark(student) + nibbles
    return _text(body + _check(body, site_key))


def read_code(text: str, key: str = "") -> ResultCode:
    """What a code says; one sentence where it cannot be true. ``key`` is the instructor's."""
    raw = _bytes(text)
    if len(raw) <= _FIXED:
        raise InputError(f"The code {text[:60]!r} is too short; was all of it copied?")
    body, check = raw[:-_CHECK], raw[-_CHECK:]
    if not hmac.compare_digest(check, _check(body, derived_key(key))):
        with_key = "with another key" if key else "with a key, which --key takes"
        raise InputError(
            f"The code {text[:60]!r} does not check: it was mistyped, altered, or its site was built {with_key}."
        )
    known = {_lab_mark(each.id): each.id for each in labs()}
    if body[:_LAB] not in known:
        raise InputError(f"The code {text[:60]!r} is of a lab that this version does not have.")
    of = lab(known[body[:_LAB]])
    if body[_LAB] != of.version:
        raise InputError(f"The code {text[:60]!r} is of version {body[_LAB]} of {of.id}; this is version {of.version}.")
    nibbles = [half for byte in body[_LAB + 1 + _STUDENT :] for half in (byte >> 4, byte & 15)]
    graded = of.graded
    if len(nibbles) != len(graded) + len(graded) % 2 or any(nibbles[len(graded) :]):
        raise InputError(f"The code {text[:60]!r} has results of {len(nibbles)} questions; {of.id} has {len(graded)}.")
    attempts = {question.id: count for question, count in zip(graded, nibbles, strict=False)}
    score = sum(question.points for question in graded if attempts[question.id])
    student = body[_LAB + 1 : _LAB + 1 + _STUDENT]
    return ResultCode(of.id, of.version, student, attempts, score, of.points)


def _digest(what: str, text: str) -> bytes:
    return hashlib.sha256(f"mlsysim labs {what}: {text}".encode()).digest()


def _lab_mark(name: str) -> bytes:
    return _digest("lab", name)[:_LAB]


def _check(body: bytes, site_key: str) -> bytes:
    return hmac.new(f"mlsysim labs {site_key}".encode(), body, hashlib.sha256).digest()[:_CHECK]


def _text(raw: bytes) -> str:
    number, length = int.from_bytes(raw, "big"), -(-len(raw) * 8 // 5)
    letters = "".join(_ALPHABET[number >> 5 * place & 31] for place in reversed(range(length)))
    return "-".join(letters[start : start + 5] for start in range(0, length, 5))


def _bytes(text: str) -> bytes:
    letters = "".join(text.upper().split()).translate(_LOOKALIKES)
    if not letters or len(letters) > 80 or any(letter not in _ALPHABET for letter in letters):
        raise InputError(f"{text[:60]!r} is not a result code; one has letters and digits in groups of five.")
    size, number = len(letters) * 5 // 8, int(letters.translate(_DIGITS), 32)
    if number >> 8 * size:
        raise InputError(f"{text[:60]!r} is not a result code; was a part of it lost or added?")
    return number.to_bytes(size, "big")


# --- many codes at once: rows of a CSV in, rows with scores out; a bad code is a row with a sentence, not an end ---------


@dataclass(frozen=True)
class Submission(Document):
    """A code that somebody handed in, and what became of it; ``note`` says why it does not count."""

    code: str
    student: str = ""
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


def grade_submissions(given: Iterable[Submission], name: str = "", key: str = "") -> list[Submission]:
    """Each submission graded: the code has to check, to be of this student, of this lab, and not handed in twice."""
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
            note = f"{seen[(code.lab, code.student)]} handed in the same code."
        seen.setdefault((code.lab, code.student), one.student)
        score = 0 if note else code.score
        results.append(Submission(one.code, one.student, code.lab, score, code.points, code.attempts, note))
    return results
