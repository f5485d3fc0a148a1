"""Whether a name may be read as a path. Faces that take no files from their clients answer :func:`without_files`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

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
