"""What ``solve()`` says of one point of a space: the wall that binds, by how much, and where time and memory go.

A sweep ranks points by kernels on arrays; here the point is put to the resolver itself, so that the best design of a sweep
comes with the same sentence that a single question would get.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from mlsysim.hardware.registry import Hardware
from mlsysim.search import training_inputs
from mlsysim.search.space import Space
from mlsysim.units.registry import Q_, Quantity, to_si
from mlsysim.walls.algorithm.fidelity import CompressionResult
from mlsysim.walls.fleet.communication import DistributedModel, DistributedResult
from mlsysim.walls.inputs import CALIBRATED
from mlsysim.walls.node.compute_memory import SingleNodeModel
from mlsysim.walls.node.performance import PerformanceProfile
from mlsysim.walls.node.serving import ServingModel, ServingResult
from mlsysim.walls.result import Result

_GB = 1e9
_SHOWN = 0.0005
"""Share of a time from which on a part of it is told."""
_ADDS_UP = (DistributedResult, ServingResult)
"""Results whose parts of the time add up to it."""


def answer(space: Space, inputs: Mapping[str, Any]) -> Result | None:
    """The resolver's result for the point with these inputs on its axes; None for a bare kernel."""
    ask = _ANSWERS.get(space.kind)
    return None if ask is None else ask(_given(space, inputs))


def explanation(space: Space, inputs: Mapping[str, Any]) -> dict[str, Any] | None:
    """What binds at a point and where its memory and time go, with sentences that say so; nothing for a bare kernel."""
    result = answer(space, inputs)
    if result is None:
        return None
    binding = result.binding
    assert binding is not None
    needed, available, held = _memory(result, _given(space, inputs))
    seconds = {
        name: to_si(value, "s") if isinstance(value, Quantity) else value for name, value in _times(result).items()
    }
    detail = f": {held}" if held else ""
    return {
        **binding.to_dict(),
        "memory_bytes": needed,
        "memory_capacity_bytes": available,
        "memory_fraction": needed / available,
        "seconds": seconds,
        "sentences": [
            binding.sentence,
            f"Memory: {needed / _GB:.1f} of {available / _GB:.1f} GB ({needed / available:.1%}) on each device{detail}.",
            _time_sentence(seconds, isinstance(result, _ADDS_UP)),
        ],
    }


def _given(space: Space, inputs: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in {**space.fixed, **inputs}.items() if value is not None}


def _taken(resolver: Any, declared: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The inputs that a resolver takes; a space holds quantities as numbers in their declared unit."""
    return {
        name: Q_(value, declared[name].unit)
        if declared[name].kind == "quantity" and isinstance(value, (int, float))
        else value
        for name, value in given.items()
        if name in resolver.inputs
    }


# --- one chip ---------------------------------------------------------------------------------------------------------


def _node(given: dict[str, Any]) -> Result:
    """SingleNodeModel on the chip that the point names or describes."""
    from mlsysim.search.node import INPUTS, chip_of

    chip = chip_of(given)
    return SingleNodeModel().solve(hardware=chip, **_taken(SingleNodeModel, INPUTS, given))


# --- training ---------------------------------------------------------------------------------------------------------


def _training(given: dict[str, Any]) -> Result:
    """DistributedModel on the fleet and the micro-batches that the point amounts to."""
    given = {training_inputs.canonical(name): value for name, value in given.items()}
    fleet, counted = training_inputs.fleet_named(given)
    micro_batch, dp = given.pop("micro_batch", None), given.pop("dp", None)
    settings = _taken(DistributedModel, training_inputs.INPUTS, given)
    settings = training_inputs.with_fidelity(settings if fleet is None else {**settings, "fleet": fleet})
    if fleet is not None:
        model_parallel = 1
        for name in ("tp_size", "pp_size", "cp_size"):
            model_parallel *= settings.get(name, DistributedModel.inputs[name].default)
        if dp is not None and not counted:
            nodes = dp * model_parallel // fleet.node.accelerators_per_node
            settings["fleet"] = fleet = fleet.model_copy(update={"count": nodes})
        if micro_batch is not None:
            local = settings["batch_size"] * model_parallel // fleet.total_accelerators
            settings["microbatch_count"] = local // micro_batch
    return DistributedModel().solve(**settings)


# --- serving ----------------------------------------------------------------------------------------------------------


def _serving(given: dict[str, Any]) -> Result:
    """ServingModel on the deployment of the point."""
    from mlsysim.search.serving_inputs import INPUTS, NONE, canonical, is_calibrated

    given = {canonical(name): value for name, value in given.items() if value != NONE}
    if "decode_hardware" not in given:
        given.pop("network_bandwidth", None)
    settings = _taken(ServingModel, INPUTS, given)
    if is_calibrated(given, (given["model"],)):
        settings["efficiency"] = CALIBRATED
    return ServingModel().solve(**settings)


# --- compression ------------------------------------------------------------------------------------------------------


def _compression(given: dict[str, Any]) -> Result:
    from mlsysim.search.compression import solve_at

    return solve_at(given)


_ANSWERS: dict[str, Callable[[dict[str, Any]], Result]] = {
    "node": _node,
    "training": _training,
    "serving": _serving,
    "compression": _compression,
}


# --- where memory and time go -----------------------------------------------------------------------------------------


def _memory(result: Result, given: Mapping[str, Any]) -> tuple[float, float, str]:
    """Bytes that a device needs and has, and what they hold."""
    if isinstance(result, DistributedResult):
        held = {name: to_si(value, "byte") for name, value in result.memory_breakdown.items()}
        text = ", ".join(f"{name.replace('_', ' ')} {value / _GB:.1f} GB" for name, value in held.items() if value)
        return to_si(result.memory_per_accelerator, "byte"), to_si(result.memory_capacity, "byte"), text
    if isinstance(result, ServingResult):
        held = {name: to_si(value, "byte") for name, value in result.memory_breakdown.items()}
        text = ", ".join(f"{name} {value / _GB:.1f} GB" for name, value in held.items() if value)
        return to_si(result.memory_per_device, "byte"), to_si(result.memory_available, "byte"), text
    if isinstance(result, CompressionResult):
        chip = Hardware.get(given["hardware"])
        return to_si(result.memory, "byte"), to_si(chip.memory.capacity, "byte"), ""
    assert isinstance(result, PerformanceProfile) and result.ledger is not None
    kept = ", ".join(f"{each.name} {each.bytes / _GB:.1f} GB" for each in result.ledger.held if each.bytes >= _GB / 10)
    return to_si(result.memory_footprint, "byte"), to_si(result.memory_capacity, "byte"), kept


def _times(result: Result) -> dict[str, Any]:
    """What the time goes to. The parts of a step add up; those of a pass are what each would take alone."""
    if isinstance(result, _ADDS_UP):
        assert result.ledger is not None
        parts: dict[str, float] = {}
        for part in result.ledger.parts:
            parts[part.name] = parts.get(part.name, 0.0) + part.exposed
        return {name: seconds for name, seconds in parts.items() if seconds}
    if isinstance(result, CompressionResult):
        return {"the pass": result.latency, "the pass before compression": result.latency_before}
    assert isinstance(result, PerformanceProfile)
    return {"compute": result.latency_compute, "memory": result.latency_memory, "dispatch": result.latency_overhead}


def _time_sentence(seconds: Mapping[str, float], adds_up: bool) -> str:
    if adds_up:
        whole = sum(seconds.values())
        return (
            "Time: "
            + ", ".join(f"{name} {value / whole:.1%}" for name, value in seconds.items() if value >= _SHOWN * whole)
            + "."
        )
    return "Each alone: " + ", ".join(f"{name} {value * 1e3:.4g} ms" for name, value in seconds.items()) + "."
