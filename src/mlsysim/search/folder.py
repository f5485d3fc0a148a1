"""A folder that holds numbered parts of one space: what a checkpoint and a store of points have in common, and the checkpoint.

A manifest says which space the folder belongs to and how that was cut; each part is a file of its own. A file appears
whole or not at all (written beside, flushed, renamed), so that any number of processes may work in one folder and any of
them may be killed. A folder of another space, or one with other things in it, is refused with a sentence.

In a checkpoint ``sweep.json`` is the manifest and ``part-00000012.json`` holds the reduction of one part and a fingerprint of it, so
that a sweep can stop anywhere and go on. A part that was changed or cut short is refused with a sentence.
"""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path
from typing import Any, ClassVar, Self

from mlsysim.errors import InputError
from mlsysim.search.reduce import Reduction
from mlsysim.search.space import Space
from mlsysim.zoo.writing import write_whole, written

FORMAT = 1
_PREFIX = "part-"


class PartFolder:
    """The parts of one space in a folder."""

    manifest: ClassVar[str]
    noun: ClassVar[str]
    """What the folder is called in a sentence, such as ``checkpoint``."""
    holds: ClassVar[str]
    """What a reader expects in it, such as ``sweep``."""
    beneath: ClassVar[str]
    """Where it is in the output of a sweep."""
    suffix: str

    def __init__(self, folder: str | Path, space: Space, part_size: int) -> None:
        """Open the folder of this space, or start one where there is none."""
        self.folder, self.space, self.part_size = Path(folder), space, part_size
        manifest, there = self.folder / self.manifest, f"The {self.noun} in {str(folder)!r}"
        with written(folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            others = [path.name for path in self.folder.iterdir() if not path.name.startswith(".")]
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
                f"{there} belongs to another space, other goals or another version "
                f"({document['space'].get('name')!r}); name another folder."
            )
        if document["part_size"] != part_size:
            sizes = f"{document['part_size']:,} points, not {part_size:,}"
            raise InputError(f"{there} has parts of {sizes}; name another folder.")

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
            kinds = {"part_size": int, "digest": str, "space": dict}
            sound = document["format"] == FORMAT and document["part_size"] > 0
            sound = sound and all(isinstance(document[name], kind) for name, kind in kinds.items())
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            sound = False
        if not sound:
            raise InputError(
                f"The {cls.noun} {str(path)!r} is corrupt or of another format; name another folder, or delete this one."
            )
        return document

    @classmethod
    def existing(cls, folder: str | Path) -> Self:
        """What is in a folder, or beneath it in a sweep's output, with the space that it was started for."""
        beneath = Path(folder) / cls.beneath
        there = (Path(folder) / cls.manifest).exists() or not (beneath / cls.manifest).exists()
        document = cls.read_manifest(Path(folder) if there else beneath)
        return cls(folder if there else beneath, Space.from_document(document["space"]), document["part_size"])

    @property
    def count(self) -> int:
        """Parts of the whole space."""
        return math.ceil(self.space.size / self.part_size)

    def path(self, part: int) -> Path:
        return self.folder / f"{_PREFIX}{part:08d}{self.suffix}"

    def parts(self) -> list[int]:
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


def write_json(path: Path, document: dict[str, Any]) -> None:
    """A JSON document, whole or not at all; every float comes back exactly."""
    text = json.dumps(document, sort_keys=True, allow_nan=False).encode()
    write_whole(path, text, lasting=True)


class Checkpoint(PartFolder):
    """The finished parts of one sweep."""

    manifest, noun, holds, beneath, suffix = "sweep.json", "checkpoint", "sweep", "parts", ".json"

    def save(self, part: int, state: dict[str, Any], stored: str | None = None) -> None:
        """Keep a part; ``stored`` is the hash of the file of its points, where they are stored."""
        document = {"format": FORMAT, "digest": self.space.digest, "part": part, "state": state, "stored": stored}
        write_json(self.path(part), {**document, "sha256": _hash(state)})

    def stored(self, part: int) -> str | None:
        """The hash of the file of a part's points, as it was written."""
        try:
            found = json.loads(self.path(part).read_text(encoding="utf-8"))["stored"]
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return None
        return found if isinstance(found, str) else None

    def load(self, part: int) -> tuple[Reduction, str]:
        """One part and its fingerprint; refused unless it is exactly what was written."""
        path = self.path(part)
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
            fingerprint = _hash(document["state"])
            recorded, digest, number = document["sha256"], document["digest"], document["part"]
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            raise self.refused(path, "it is cut short or is not JSON") from None
        if digest != self.space.digest:
            raise self.refused(path, "it belongs to another space")
        if number != part or recorded != fingerprint:
            raise self.refused(path, "its contents were changed")
        try:
            return Reduction.from_document(self.space, document["state"]), fingerprint
        except (KeyError, TypeError, ValueError):
            raise self.refused(path, "it lacks a field") from None


def _hash(state: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(state, sort_keys=True).encode()).hexdigest()
