"""What the kinds say about one point: which wall sets its time, and numbers of it that no input states."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from mlsysim.errors import InputError
from mlsysim.search.space import Columns, Space

__all__ = ["binding", "known_numbers"]


def binding(space: Space, point: Mapping[str, Any]) -> str | None:
    """A sentence on the wall that binds at a point, without its full stop; None where the kind has none."""
    if space.kind == "node":
        return _node(point["outputs"])
    if space.kind == "training":
        return _training({**space.fixed, **point["inputs"]})
    if space.kind == "serving":
        return _serving({**space.fixed, **point["inputs"]})
    if space.kind == "compression":
        from mlsysim.search.compression import solve_at

        return str(solve_at({**space.fixed, **point["inputs"]}).binding.sentence).rstrip(".")
    return None


def known_numbers(space: Space, columns: Columns) -> dict[str, float]:
    """Numbers that the zoo gives at a point: those of the chip in a space of kind node."""
    if space.kind != "node":
        return {}
    from mlsysim.search.node import chip_numbers

    found = {name: _first(values) for name, values in chip_numbers(space, columns).items()}
    return {name: value for name, value in found.items() if math.isfinite(value)}


def _first(values: Any) -> float:
    return float(values if isinstance(values, (int, float)) else values.flat[0])


def _node(outputs: Mapping[str, Any]) -> str | None:
    compute, memory = outputs["latency_compute_s"], outputs["latency_memory_s"]
    if compute is None or memory is None or min(compute, memory) <= 0:
        return None
    number, name, ratio = (1, "Compute", compute / memory) if compute >= memory else (2, "Memory", memory / compute)
    return f"Wall {number} ({name}) binds: it takes {ratio:.3g} times as long as the other"


def _training(given: Mapping[str, Any]) -> str | None:
    from mlsysim.search.training import TrainingPoints
    from mlsysim.walls.fleet.communication import DistributedModel

    try:
        points = TrainingPoints(given)
        x = {
            name: value
            for name, value in points.values.items()
            if value is not None and name in DistributedModel.inputs
        }
        x["fleet"] = points.fleet
        if points.micro_batch is not None:
            dp = points.fleet.total_accelerators // (x["tp_size"] * x["pp_size"] * x["cp_size"])
            x["microbatch_count"] = int(x["batch_size"] // dp // points.micro_batch)
        return str(DistributedModel().solve(**x).binding.sentence).rstrip(".")
    except InputError:
        return None


def _serving(given: Mapping[str, Any]) -> str | None:
    from mlsysim.search.serving_inputs import canonical
    from mlsysim.walls.node.serving import ServingModel

    named = {canonical(name): value for name, value in given.items()}
    asked = {name: value for name, value in named.items() if name in ServingModel.inputs and value is not None}
    try:
        return str(ServingModel().solve(**asked).binding.sentence).rstrip(".")
    except InputError:
        return None
