"""A folder with one file for each finished part of a sweep, so that a sweep can stop anywhere and go on.

``sweep.json`` says which space the folder belongs to; ``part-00000012.json`` holds the reduction of one part and a
fingerprint of it. A part that was changed or cut short is refused with a sentence.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, Self

from mlsysim.search.folder import FORMAT, PartFolder, write_json
from mlsysim.search.reduce import Reduction

_BENEATH = "parts"


class Checkpoint(PartFolder):
    """The finished parts of one sweep."""

    manifest, noun, holds, suffix = "sweep.json", "checkpoint", "sweep", ".json"

    @classmethod
    def existing(cls, folder: str | Path) -> Self:
        """The checkpoint in a folder, or in the folder ``parts`` of a sweep's output."""
        beneath = Path(folder) / _BENEATH
        whole = not (Path(folder) / cls.manifest).exists() and (beneath / cls.manifest).exists()
        return super().existing(beneath if whole else folder)

    def save(self, part: int, state: dict[str, Any]) -> None:
        """Write one part."""
        document = {"format": FORMAT, "digest": self.space.digest, "part": part, "state": state}
        write_json(self.path(part), {**document, "sha256": _hash(state)})

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
