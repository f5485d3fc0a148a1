"""What the kinds say about one point: which wall sets its time, and numbers of it that no input states."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from mlsysim.errors import InputError
from mlsysim.search.answers import answer
from mlsysim.search.space import Columns, Space


def binding(space: Space, point: Mapping[str, Any]) -> str | None:
    """A sentence on the wall that binds at a point, without its full stop; None where the kind has none."""
    try:
        found = answer(space, point["inputs"])
    except InputError:
        return None
    return None if found is None or found.binding is None else str(found.binding.sentence).rstrip(".")


def known_numbers(space: Space, columns: Columns) -> dict[str, float]:
    """Numbers that the zoo gives at a point: those of the chip in a space of kind node."""
    if space.kind != "node":
        return {}
    from mlsysim.search.node import chip_numbers

    found = {name: _first(values) for name, values in chip_numbers(space, columns).items()}
    return {name: value for name, value in found.items() if math.isfinite(value)}


def _first(values: Any) -> float:
    return float(values if isinstance(values, (int, float)) else values.flat[0])
