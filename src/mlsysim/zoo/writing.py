"""Files that are written whole or not at all, and a sentence where the system refuses: a full disk is not a mistake of anybody's.

Whether a name may be read as a path. Faces that take no files from their clients answer :func:`without_files`.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from mlsysim.errors import InputError

_REMEDIES = {
    errno.ENOSPC: "free some, or write to another disk",
    errno.EDQUOT: "free some, or write to another disk",
    errno.EROFS: "write to another place",
}
OF_THE_SYSTEM = (*_REMEDIES, errno.EACCES, errno.EPERM, errno.EIO, errno.EMFILE, errno.ENFILE)
"""What the system has run out of or does not let us do."""


def not_written(path: object, error: OSError, **details: Any) -> InputError:
    """The sentence of a file, or where None is given the output, that the system does not let us write."""
    reason = (error.strerror or str(error)).lower()
    remedy = _REMEDIES.get(error.errno or 0)
    told = f"{reason}; {remedy}" if remedy else reason
    what = "The output" if path is None else repr(str(path)[-200:])
    return InputError(f"{what} cannot be written: {told}.", **details)


@contextmanager
def written(path: object, **details: Any) -> Iterator[None]:
    """Turn what the system refuses meanwhile into the sentence."""
    try:
        yield
    except OSError as error:
        raise not_written(path, error, **details) from None


def write_whole(
    path: Path,
    content: str | bytes | Callable[[Path], Any],
    *,
    folders: bool = False,
    lasting: bool = False,
    **details: Any,
) -> Path:
    """Write a text in UTF-8, bytes, or what a function makes, beside the place, and put it there in one step.

    ``folders`` makes those that it stands in; ``lasting`` waits until it would outlive a loss of power.
    """
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    with written(path, **details):
        if folders:
            path.parent.mkdir(parents=True, exist_ok=True)
        try:
            if callable(content):
                content(beside)
            else:
                beside.write_bytes(content.encode() if isinstance(content, str) else content)
            if lasting:
                with beside.open("rb") as file:
                    os.fsync(file.fileno())
            beside.replace(path)
        finally:
            with suppress(OSError):
                beside.unlink(missing_ok=True)
    return path


_files_allowed: ContextVar[bool] = ContextVar("files_allowed", default=True)


@contextmanager
def without_files() -> Iterator[None]:
    """Within it no name is read as a path."""
    before = _files_allowed.set(False)
    try:
        yield
    finally:
        _files_allowed.reset(before)


def files_allowed() -> bool:
    """Whether a name may be read as a path."""
    return _files_allowed.get()
