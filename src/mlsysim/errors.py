"""Every error that mlsysim raises on purpose, in one tree.

    MLSysError
    ├── InputError (ValueError)         what the caller gave cannot be used
    │   ├── UnitError                   wrong dimension, unknown unit, number without a unit, foreign registry
    │   ├── UnknownNameError (AttributeError, KeyError)
    │   │                               no such entry, field or precision; carries the nearest valid names
    │   └── ZooFileError                a data file has a bad entry; carries file, entry and reason
    ├── OOMError                        the model does not fit; carries needed and available bytes
    └── SLAViolation                    a latency target cannot be met

    ThermalThrottleWarning (UserWarning)
    DataWarning (UserWarning)           the input was accepted, but something about it deserves a look

Each message is one sentence that says what was wrong, what was expected, and the nearest valid name or unit. The
pieces are kept as attributes, and errors survive pickling, so that a worker process can hand them back whole.

``DimensionalityError`` is pint's own and is raised by arithmetic on quantities.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pint import DimensionalityError

__all__ = [
    "DataWarning", "DimensionalityError", "InputError", "MLSysError", "OOMError", "SLAViolation", "ThermalThrottleWarning",
    "UnitError", "UnknownNameError", "ZooFileError", "nearest",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    # Pint is a quarter of a second that a sentence or a list of commands does not need.
    if name != "DimensionalityError":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from pint import DimensionalityError

    return DimensionalityError


class MLSysError(Exception):
    """Root of the tree. Keyword arguments become attributes."""

    def __init__(self, message: str, **details: Any) -> None:
        super().__init__(message)
        self.message = message
        self.details = details

    def __str__(self) -> str:
        return self.message

    def __getattr__(self, name: str) -> Any:
        # Only reached when normal lookup fails; `details` is absent while unpickling.
        try:
            return self.__dict__["details"][name]
        except KeyError:
            raise AttributeError(name) from None

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.message, self.details)


def _rebuild(kind: type[MLSysError], message: str, details: dict[str, Any]) -> MLSysError:
    return kind(message, **details)


class InputError(MLSysError, ValueError):
    """What the caller gave cannot be used."""


class UnitError(InputError):
    """Wrong dimension, unknown unit, a number without a unit, or a quantity of another registry."""


class UnknownNameError(InputError, AttributeError, KeyError):
    """No such entry, field or precision. ``suggestions`` holds the nearest valid names."""

    def __init__(self, message: str, **details: Any) -> None:
        super().__init__(message, **details)
        # AttributeError has a `name` of its own, which would hide ours.
        self.name = details.get("name")


class ZooFileError(InputError):
    """A data file has a bad entry. Attributes: ``file``, ``entry``, ``reason``."""


class OOMError(MLSysError):
    """The model does not fit. Attributes: ``needed``, ``available``."""


class SLAViolation(MLSysError):
    """A latency target cannot be met."""


class ThermalThrottleWarning(UserWarning):
    """Sustained load exceeds what the cooling can remove."""


class DataWarning(UserWarning):
    """The input was accepted, but something about it deserves a look."""


def nearest(name: str, valid: Iterable[str], limit: int = 3) -> list[str]:
    """The valid names closest to ``name``, ignoring case and punctuation.

    >>> nearest("h-100", ["A100", "H100", "TPU_v4"])[0], nearest("modle", ["mode", "model"])[0]
    ('H100', 'model')
    """
    folded: dict[str, str] = {}
    for candidate in valid:
        folded.setdefault(fold(candidate), candidate)
    wanted = fold(name[:200])
    close = get_close_matches(wanted, folded, n=limit, cutoff=0.5)
    # Two letters in each other's place are the most common slip: the same letters go first.
    close.sort(key=lambda key: sorted(key) != sorted(wanted))
    if not close and len(wanted) >= 2:
        close = [key for key in folded if wanted in key][:limit]
    return [folded[key] for key in close]


def fold(name: str) -> str:
    """A name without case and punctuation: ``"Llama-3.1-70B"`` becomes ``"llama3170b"``."""
    return "".join(ch for ch in name.lower() if ch.isalnum())


def did_you_mean(names: Iterable[str]) -> str:
    """The nearest names as a question.

    >>> did_you_mean(["H100", "H200", "H20"])
    "did you mean 'H100', 'H200' or 'H20'?"
    """
    return f"did you mean {either(map(repr, names))}?"


def either(choices: Iterable[object], word: str = "or") -> str:
    """Choices in a sentence: ``1, 2 or 4``; with another word ``1, 2 and 4``."""
    *others, last = map(str, choices)
    return f"{', '.join(others)} {word} {last}" if others else last


def refuse_address(path: object) -> None:
    """One sentence for an address where a file is expected; paths have lost one of its slashes."""
    scheme, _, rest = str(path).partition(":/")
    if scheme in ("http", "https", "ftp", "s3", "gs", "hf") and rest:
        shown = f"{scheme}://{rest.lstrip('/')}"[:200]
        raise InputError(f"{shown!r} is an address, and nothing is fetched here: save the file and give its path.")


def unknown_name(kind: str, name: object, valid: Iterable[str], remedy: str = "") -> UnknownNameError:
    """The error for a name that nothing answers to, with the nearest names that something does."""
    text = str(name)[:80]
    suggestions = nearest(text, valid)
    hint = did_you_mean(suggestions) if suggestions else remedy
    return UnknownNameError(
        f"There is no {kind} named {text!r}" + (f"; {hint}" if hint else "."),
        kind=kind,
        name=text,
        suggestions=suggestions,
    )
