"""A folder with one file for each finished part of a sweep, so that a sweep can stop anywhere and go on.

``sweep.json`` says which space the folder belongs to; ``part-00000012.json`` holds the reduction of one part and a
fingerprint of it. A file appears whole or not at all (written beside, flushed, renamed). A folder of another space, a
part that was changed or cut short, or a folder with other things in it is refused with a sentence.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mlsysim.errors import InputError
from mlsysim.search.reduce import Reduction
from mlsysim.search.space import Space

__all__ = ["Checkpoint"]

_MANIFEST = "sweep.json"
_FORMAT = 1
_PREFIX, _SUFFIX = "part-", ".json"


class Checkpoint:
    """The folder of one sweep."""

    def __init__(self, folder: str | Path, space: Space, part_size: int) -> None:
        """Open the folder of this space, or start one where there is none."""
        self.folder, self.space, self.part_size = Path(folder), space, part_size
        manifest = self.folder / _MANIFEST
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            others = [path.name for path in self.folder.iterdir() if not path.name.startswith(".")]
        except OSError as error:
            raise InputError(f"The folder {str(folder)!r} cannot be used: {error.strerror}.") from None
        if not manifest.exists():
            if others:
                raise InputError(
                    f"The folder {str(folder)!r} is no checkpoint of a sweep and is not empty (it holds {others[0]!r}); "
                    "name an empty or a new folder."
                )
            mine = {"format": _FORMAT, "digest": space.digest, "part_size": part_size, "space": space.document()}
            _write(manifest, mine)
            return
        document = _manifest(manifest)
        if document["digest"] != space.digest:
            raise InputError(
                f"The checkpoint in {str(folder)!r} belongs to another space, other goals or another version "
                f"({document['space'].get('name')!r}); name another folder."
            )
        if document["part_size"] != part_size:
            raise InputError(
                f"The checkpoint in {str(folder)!r} has parts of {document['part_size']:,} points, not {part_size:,}; "
                "name another folder."
            )

    @classmethod
    def existing(cls, folder: str | Path) -> Checkpoint:
        """The checkpoint in a folder, with the space that it was started for."""
        manifest = Path(folder) / _MANIFEST
        if not manifest.exists():
            raise InputError(f"The folder {str(folder)!r} holds no sweep (there is no {_MANIFEST}).")
        document = _manifest(manifest)
        return cls(folder, Space.from_document(document["space"]), document["part_size"])

    def path(self, part: int) -> Path:
        return self.folder / f"{_PREFIX}{part:08d}{_SUFFIX}"

    def parts(self) -> list[int]:
        """Numbers of the parts that are there."""
        found = []
        for path in self.folder.glob(f"{_PREFIX}*{_SUFFIX}"):
            digits = path.name[len(_PREFIX) : -len(_SUFFIX)]
            if not digits.isdigit() or path != self.path(int(digits)):
                raise self._corrupt(path, "its name is not that of a part")
            found.append(int(digits))
        return sorted(found)

    def save(self, part: int, state: dict[str, Any]) -> None:
        """Write one part."""
        body = json.dumps(state, sort_keys=True, allow_nan=False)
        _write(
            self.path(part),
            {"format": _FORMAT, "digest": self.space.digest, "part": part, "sha256": _hash(body), "state": state},
        )

    def load(self, part: int) -> Reduction:
        """Read one part; refused unless it is exactly what was written."""
        path = self.path(part)
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
            body = json.dumps(document["state"], sort_keys=True)
            recorded, digest, number = document["sha256"], document["digest"], document["part"]
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            raise self._corrupt(path, "it is cut short or is not JSON") from None
        if digest != self.space.digest:
            raise self._corrupt(path, "it belongs to another space")
        if number != part or recorded != _hash(body):
            raise self._corrupt(path, "its contents were changed")
        try:
            return Reduction.from_document(self.space, document["state"])
        except (KeyError, TypeError, ValueError):
            raise self._corrupt(path, "it lacks a field") from None

    def load_all(self) -> Iterator[tuple[int, Reduction]]:
        """Every part that is there."""
        for part in self.parts():
            yield part, self.load(part)

    @staticmethod
    def _corrupt(path: Path, why: str) -> InputError:
        return InputError(f"The checkpoint part {str(path)!r} cannot be used: {why}; delete it to compute it again.")


def _manifest(path: Path) -> dict[str, Any]:
    try:
        document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        sound = document["format"] == _FORMAT and isinstance(document["part_size"], int) and document["part_size"] > 0
        sound = sound and isinstance(document["digest"], str) and isinstance(document["space"], dict)
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        sound = False
    if not sound:
        raise InputError(f"The checkpoint {str(path)!r} is corrupt or of another format; name another folder.")
    return document


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _write(path: Path, document: dict[str, Any]) -> None:
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    with beside.open("w", encoding="utf-8") as file:
        json.dump(document, file, sort_keys=True, allow_nan=False)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
