"""A folder that holds numbered parts of one space: what a checkpoint and a store of points have in common.

A manifest says which space the folder belongs to and how that was cut; each part is a file of its own. A file appears
whole or not at all (written beside, flushed, renamed), so that any number of processes may work in one folder and any of
them may be killed. A folder of another space, or one with other things in it, is refused with a sentence.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Self

from mlsysim.errors import InputError
from mlsysim.search.space import Space

FORMAT = 1
_PREFIX = "part-"


class PartFolder:
    """The parts of one space in a folder."""

    manifest: ClassVar[str]
    noun: ClassVar[str]
    """What the folder is called in a sentence, such as ``checkpoint``."""
    holds: ClassVar[str]
    """What a reader expects in it, such as ``sweep``."""
    suffix: str

    def __init__(self, folder: str | Path, space: Space, part_size: int) -> None:
        """Open the folder of this space, or start one where there is none."""
        self.folder, self.space, self.part_size = Path(folder), space, part_size
        manifest = self.folder / self.manifest
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            others = [path.name for path in self.folder.iterdir() if not path.name.startswith(".")]
        except OSError as error:
            raise InputError(f"The folder {str(folder)!r} cannot be used: {error.strerror}.") from None
        if not manifest.exists():
            if others:
                raise InputError(
                    f"The folder {str(folder)!r} is no {self.noun} of a sweep and is not empty (it holds {others[0]!r}); "
                    "name an empty or a new folder."
                )
            write_json(manifest, {**self._mine(), "space": space.document()})
            return
        document = self.read_manifest(self.folder)
        if document["digest"] != space.digest:
            raise InputError(
                f"The {self.noun} in {str(folder)!r} belongs to another space, other goals or another version "
                f"({document['space'].get('name')!r}); name another folder."
            )
        if document["part_size"] != part_size:
            raise InputError(
                f"The {self.noun} in {str(folder)!r} has parts of {document['part_size']:,} points, not {part_size:,}; "
                "name another folder."
            )

    def _mine(self) -> dict[str, Any]:
        return {"format": FORMAT, "digest": self.space.digest, "part_size": self.part_size}

    @classmethod
    def read_manifest(cls, folder: Path) -> dict[str, Any]:
        """The manifest of a folder, or a sentence about what is wrong with it."""
        path = folder / cls.manifest
        if not path.exists():
            raise InputError(f"The folder {str(folder)!r} holds no {cls.holds} (there is no {cls.manifest}).")
        try:
            document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            sound = document["format"] == FORMAT and isinstance(document["part_size"], int)
            sound = sound and document["part_size"] > 0 and isinstance(document["digest"], str)
            sound = sound and isinstance(document["space"], dict)
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            sound = False
        if not sound:
            raise InputError(
                f"The {cls.noun} {str(path)!r} is corrupt or of another format; name another folder, or delete this one."
            )
        return document

    @classmethod
    def existing(cls, folder: str | Path) -> Self:
        """What is in a folder, with the space that it was started for."""
        document = cls.read_manifest(Path(folder))
        return cls(folder, Space.from_document(document["space"]), document["part_size"])

    @property
    def count(self) -> int:
        """Parts of the whole space."""
        return math.ceil(self.space.size / self.part_size)

    def path(self, part: int) -> Path:
        """Where a part is kept."""
        return self.folder / f"{_PREFIX}{part:08d}{self.suffix}"

    def parts(self) -> list[int]:
        """Numbers of the parts that are there."""
        found = []
        for path in self.folder.glob(f"{_PREFIX}*{self.suffix}"):
            digits = path.name[len(_PREFIX) : -len(self.suffix)]
            if not digits.isdigit() or path != self.path(int(digits)) or int(digits) >= self.count:
                raise self.refused(path, "its name is not that of a part")
            found.append(int(digits))
        return sorted(found)

    def refused(self, path: Path, why: str) -> InputError:
        """The sentence about a part that cannot be read."""
        return InputError(f"The {self.noun} part {str(path)!r} cannot be used: {why}; delete it to compute it again.")


def write_whole(path: Path, write: Callable[[Path], None]) -> None:
    """Let ``write`` make a file beside ``path``, then put it there in one step."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        write(beside)
        with beside.open("rb") as file:
            os.fsync(file.fileno())
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def write_json(path: Path, document: dict[str, Any]) -> None:
    """A JSON document, whole or not at all; every float comes back exactly."""
    text = json.dumps(document, sort_keys=True, allow_nan=False)

    def write(beside: Path) -> None:
        beside.write_text(text, encoding="utf-8")

    write_whole(path, write)
