"""Tables that come with the package."""

from __future__ import annotations

import json
import tomllib
from functools import cache
from importlib.resources import files
from typing import Any


@cache
def shipped(package: str, name: str) -> dict[str, Any]:
    """The tables of a file of a package, parsed whole. Where they lie beside it as JSON, as in a built site, that is a twentieth of the time."""
    place = files(package)
    parsed = place.joinpath(name.removesuffix("toml") + "json")
    if parsed.is_file():
        return json.loads(parsed.read_text(encoding="utf-8"))
    return tomllib.loads(place.joinpath(name).read_text(encoding="utf-8"))
