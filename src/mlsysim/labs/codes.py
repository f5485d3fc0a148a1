"""Result codes: what a student hands in, and an instructor checks without a network.

    bytes   2 lab, 1 version, 4 student, half a byte of attempts and half a byte of slips for each graded question, 5 checksum

Attempts are 0 for a question that was not solved, else their number until it was, 15 for fifteen or more. A slip is the number
of the first misconception that the student met there, 0 for none. The
text is Crockford's base 32 in groups of five: no I, L, O or U, and case does not matter. The checksum is the start of an
HMAC-SHA256 over the rest, keyed with the instructor's key where the site was built with one.

After a full stop may follow what the student wrote, predictions and reflection: JSON, compressed, in base 64, with a checksum that
also covers the code before it. Where it was damaged on the way the results still count, and the damage is named.

What this is worth: a code with a typo, of another student or of another lab is noticed. It is no proof against somebody
who reads the site's files, since all of it, key included, runs on the student's machine; an examination needs a
room.

Reference: https://www.crockford.com/base32.html
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import zlib
from collections.abc import Mapping
from dataclasses import field
from typing import Any

from mlsysim.errors import InputError
from mlsysim.labs.lab import Lab, lab, labs
from mlsysim.labs.scope import student_name
from mlsysim.units.records import dataclass

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_LOOKALIKES = str.maketrans({"I": "1", "L": "1", "O": "0", "-": None, " ": None})
_DIGITS = str.maketrans(_ALPHABET, "0123456789ABCDEFGHIJKLMNOPQRSTUV")
_LAB, _STUDENT, _CHECK = 2, 4, 5
_FIXED = _LAB + 1 + _STUDENT + _CHECK
_MOST_ATTEMPTS = 15
_MOST_WORDS = 20_000


@dataclass(frozen=True)
class ResultCode:
    """What a code says.

    ``attempts`` has 0 for what was not solved, ``slips`` the names of misconceptions that were met, ``words`` what was written,
    by the id of the prediction; ``note`` is a sentence where the words were lost.
    """

    lab: str
    version: int
    student: bytes
    attempts: dict[str, int]
    score: int
    points: int
    slips: dict[str, str] = field(default_factory=dict)
    words: dict[str, str] = field(default_factory=dict)
    note: str = ""

    def is_of(self, student: str) -> bool:
        """Whether this student made it."""
        return hmac.compare_digest(self.student, _mark(student))


def derived_key(key: str) -> str:
    """What a site carries in place of the instructor's key, so that the key itself is not published."""
    return _digest("key", key).hex() if key else ""


def _mark(student: str) -> bytes:
    return _digest("student", student_name(student))[:_STUDENT]


def make_code(
    of: Lab, student: str, attempts: Mapping[str, int], site_key: str = "", slips: Mapping[str, int] | None = None
) -> str:
    """The code of a student's results: attempts until solved for each question, 0 or nothing where it was not.

    ``site_key`` is what :func:`derived_key` gives, ``slips`` the number of the misconception that was met at a question.
    """
    if not student_name(student):
        raise InputError("A result code needs the student's id; without one this is practice.")
    met = slips or {}
    for name in (*attempts, *met):
        if name not in {question.id for question in of.graded}:
            raise InputError(f"The lab {of.id!r} has no graded question {name!r}.")
    results = bytes(
        min(max(attempts.get(question.id, 0), 0), _MOST_ATTEMPTS) << 4
        | min(max(met.get(question.id, 0), 0), len(question.slips))
        for question in of.graded
    )
    body = _lab_mark(of.id) + bytes([of.version]) + _mark(student) + results
    return _text(body + _check(body, site_key))


def add_words(code: str, words: Mapping[str, str], site_key: str = "") -> str:
    """A code that carries what the student wrote."""
    packed = zlib.compress(json.dumps(dict(words), ensure_ascii=False, separators=(",", ":")).encode(), 9)
    raw = _check(_bytes(code) + packed, site_key) + packed
    return f"{code}.{base64.urlsafe_b64encode(raw).decode().rstrip('=')}"


def _read_words(body: bytes, text: str, site_key: str) -> dict[str, str]:
    """The words of a code; None of them is trusted before the checksum holds."""
    plain = "".join(text.split())
    raw = base64.b64decode(plain + "=" * (-len(plain) % 4), altchars=b"-_", validate=True)
    check, packed = raw[:_CHECK], raw[_CHECK:]
    if not hmac.compare_digest(check, _check(body + packed, site_key)):
        raise ValueError("altered")
    reader = zlib.decompressobj()
    found: Any = json.loads(reader.decompress(packed, _MOST_WORDS))
    return {str(name): str(said) for name, said in found.items()}


def read_code(text: str, key: str = "") -> ResultCode:
    """What a code says; one sentence where it cannot be true. ``key`` is the instructor's."""
    text, _, written = text.strip().partition(".")
    raw = _bytes(text)
    if len(raw) <= _FIXED:
        raise InputError(f"The code {text[:60]!r} is too short; was all of it copied?")
    body, check = raw[:-_CHECK], raw[-_CHECK:]
    if not hmac.compare_digest(check, _check(body, derived_key(key))):
        with_key = "with another key" if key else "with a key, which was not given"
        raise InputError(
            f"The code {text[:60]!r} does not check: it was mistyped, altered, or its site was built {with_key}."
        )
    known = {_lab_mark(each.id): each.id for each in labs()}
    if body[:_LAB] not in known:
        raise InputError(f"The code {text[:60]!r} is of a lab that this version does not have.")
    of = lab(known[body[:_LAB]])
    if body[_LAB] != of.version:
        raise InputError(f"The code {text[:60]!r} is of version {body[_LAB]} of {of.id}; this is version {of.version}.")
    results, graded = body[_LAB + 1 + _STUDENT :], of.graded
    if len(results) != len(graded):
        raise InputError(f"The code {text[:60]!r} has results of {len(results)} questions; {of.id} has {len(graded)}.")
    attempts = {question.id: result >> 4 for question, result in zip(graded, results, strict=True)}
    slips = {
        question.id: question.slips[(result & 15) - 1].name
        for question, result in zip(graded, results, strict=True)
        if 0 < result & 15 <= len(question.slips)
    }
    score = sum(question.points for question in graded if attempts[question.id])
    student = body[_LAB + 1 : _LAB + 1 + _STUDENT]
    words, note = {}, ""
    if written:
        try:
            words = _read_words(raw, written, derived_key(key))
        except (ValueError, TypeError, AttributeError, binascii.Error, zlib.error):
            note = f"The results of {text[:60]} count; what was written with them was cut off or altered on the way."
    return ResultCode(of.id, of.version, student, attempts, score, of.points, slips, words, note)


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
