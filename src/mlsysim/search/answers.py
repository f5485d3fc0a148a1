"""What ``solve()`` says of one point of a space: the wall that binds, by how much, and where time and memory go.

A sweep ranks points by kernels on arrays; here the point is put to the resolver itself, so that the best design of a sweep
comes with the same sentence that a single question would get.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mlsysim.errors import MLSysError
from mlsysim.hardware.registry import Hardware
from mlsysim.search.kinds import kind_named
from mlsysim.search.space import Space
from mlsysim.units.registry import Quantity, to_si
from mlsysim.walls.algorithm.fidelity import CompressionResult
from mlsysim.walls.base import CAVEATS
from mlsysim.walls.fleet.communication import DistributedResult
from mlsysim.walls.node.performance import PerformanceProfile
from mlsysim.walls.node.serving import ServingResult
from mlsysim.walls.result import Result

_GB = 1e9
_SHOWN = 0.0005
"""Share of a time from which on a part of it is told."""


def answer(space: Space, inputs: Mapping[str, Any]) -> Result | None:
    """The resolver's result for the point with these inputs on its axes; None for a bare kernel."""
    ask = kind_named(space.kind).declared("answer")
    return None if ask is None else ask(_given(space, inputs))


def explanation(space: Space, inputs: Mapping[str, Any]) -> dict[str, Any] | None:
    """What binds at a point and where its memory and time go, with sentences that say so; nothing for a bare kernel."""
    result = answer(space, inputs)
    if result is None:
        return None
    binding = result.binding
    assert binding is not None
    needed, available, held = _memory(result, _given(space, inputs))
    detail = f": {held}" if held else ""
    seconds, told = _times(result)
    return {
        **binding.to_dict(),
        "memory_bytes": needed,
        "memory_capacity_bytes": available,
        "memory_fraction": needed / available,
        "seconds": seconds,
        "sentences": [
            binding.sentence,
            f"Memory: {needed / _GB:.1f} of {available / _GB:.1f} GB ({needed / available:.1%}) on each device{detail}.",
            told,
            *filter(None, [result.assumptions.get(CAVEATS)]),
        ],
    }


def explained(space: Space, best: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """The same of the best design; a sweep is not lost because its best cannot be explained."""
    if not best or space.uncertain is not None:
        return None
    try:
        return explanation(space, best[0]["inputs"])
    except MLSysError as error:
        return {"sentences": [f"The best design could not be explained: {error}"]}


def _given(space: Space, inputs: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in {**space.fixed, **inputs}.items() if value is not None}


def _memory(result: Result, given: Mapping[str, Any]) -> tuple[float, float, str]:
    """Bytes that a device needs and has, and what they hold."""
    needed: Any
    has: Any
    held: dict[str, float] = {}
    if isinstance(result, (DistributedResult, ServingResult)):
        held = {name: to_si(value, "byte") for name, value in result.memory_breakdown.items() if value}
        needed, has = (
            (result.memory_per_accelerator, result.memory_capacity)
            if isinstance(result, DistributedResult)
            else (result.memory_per_device, result.memory_available)
        )
    elif isinstance(result, CompressionResult):
        needed, has = result.memory, Hardware.get(given["hardware"]).memory.capacity
    else:
        assert isinstance(result, PerformanceProfile) and result.ledger is not None
        needed, has = result.memory_footprint, result.memory_capacity
        held = {each.name: each.bytes for each in result.ledger.held if each.bytes >= _GB / 10}
    text = ", ".join(f"{name.replace('_', ' ')} {value / _GB:.1f} GB" for name, value in held.items())
    return to_si(needed, "byte"), to_si(has, "byte"), text


def _times(result: Result) -> tuple[dict[str, float], str]:
    """What the time goes to, and a sentence. The parts of a step add up; those of a pass are what each would take alone."""
    if isinstance(result, (DistributedResult, ServingResult)):
        assert result.ledger is not None
        parts: dict[str, float] = {}
        for part in result.ledger.parts:
            parts[part.name] = parts.get(part.name, 0.0) + part.exposed
        parts = {name: seconds for name, seconds in parts.items() if seconds}
        whole = sum(parts.values())
        shares = (f"{name} {value / whole:.1%}" for name, value in parts.items() if value >= _SHOWN * whole)
        return parts, "Time: " + ", ".join(shares) + "."
    if isinstance(result, CompressionResult):
        alone = {"the pass": result.latency, "the pass before compression": result.latency_before}
    else:
        assert isinstance(result, PerformanceProfile)
        alone = {
            "compute": result.latency_compute,
            "memory": result.latency_memory,
            "dispatch": result.latency_overhead,
        }
    seconds = {name: to_si(value, "s") if isinstance(value, Quantity) else value for name, value in alone.items()}
    return seconds, "Each alone: " + ", ".join(f"{n} {value * 1e3:.4g} ms" for n, value in seconds.items()) + "."
