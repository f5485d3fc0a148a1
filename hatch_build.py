"""Tables of data that an answer reads whole, put into a wheel as JSON too, which is read in a twentieth of the time (``mlsysim.zoo.files.shipped``).

The TOML stays what people write and read; what is made of it here is the same tables, byte for byte the same each time. Working trees have none, so
that what is edited there counts at once.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import tomllib
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CustomBuildHook(BuildHookInterface):  # type: ignore[misc]
    """Adds ``data/NAME.json`` for each ``data/NAME.toml`` and for those of ``data/software``."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Write the tables into a folder of their own, from which the wheel takes them."""
        if version == "editable":
            return
        source, self.folder = Path(self.root, "src", "mlsysim", "data"), Path(tempfile.mkdtemp())
        for path in sorted([*source.glob("*.toml"), *source.glob("software/*.toml")]):
            name = path.relative_to(source).with_suffix(".json")
            made = self.folder / name
            made.parent.mkdir(exist_ok=True)
            made.write_text(json.dumps(tomllib.loads(path.read_text(encoding="utf-8")), separators=(",", ":")))
            build_data["force_include"][str(made)] = f"mlsysim/data/{name.as_posix()}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the folder."""
        if version != "editable":
            shutil.rmtree(self.folder)
