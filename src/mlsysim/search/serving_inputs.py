"""What a space of kind serving may set: axes, by any of their names, and which of them shape a deployment."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Any

from mlsysim.cases.run_inputs import LOCAL, REGION
from mlsysim.errors import InputError, unknown_name
from mlsysim.infra.registry import Prices
from mlsysim.models.registry import Models
from mlsysim.vocabulary import with_aliases
from mlsysim.walls.inputs import Input
from mlsysim.walls.node.serving import ServingModel
from mlsysim.walls.operations.capital import EconomicsModel

NONE = "none"
"""On an axis of draft models or of decode hardware: without."""

DEPLOYMENT = (
    *("model", "hardware", "decode_hardware", "draft_model", "precision", "cache_precision", "fabric", "engine"),
    *("memory_fraction", "tp_size", "pp_size", "ep_size"),
)
"""Inputs that shape a deployment. Its numbers are worked out once for each combination."""

NUMBERS = (
    *("seq_len", "output_len", "batch_size", "concurrency", "cached_prefix_len", "prefill_chunk_tokens"),
    *("prefill_batch_size", "num_replicas", "prefill_replicas", "draft_acceptance_rate", "num_speculative_tokens"),
    *("efficiency", "bandwidth_efficiency", "network_bandwidth"),
)
"""Inputs that may differ from point to point within a deployment."""

COSTS = (
    *("datacenter", "kwh_price", "cloud_price", "unit_cost", "decode_unit_cost", "amortization_years"),
    *("infrastructure_multiplier", "maintenance_fraction", "utilization", "average_power"),
)
"""Inputs that decide what a token costs."""

_NEEDED = ("model", "hardware", "seq_len", "output_len")


def _declared() -> dict[str, Input]:
    """What a space may set, under the resolvers' names."""
    found = {name: ServingModel.inputs[name] for name in (*DEPLOYMENT, *NUMBERS) if name in ServingModel.inputs}
    found |= {name: EconomicsModel.inputs[name] for name in COSTS if name in EconomicsModel.inputs}
    # These have other names too, so that which of them is missing is said when all are known.
    for name in ("hardware", "seq_len", "output_len", "batch_size"):
        found[name] = replace(found[name], default=None)
    found["average_power"] = replace(found["average_power"], unit="W")
    found["kwh_price"] = replace(found["kwh_price"], default=LOCAL)
    # Names, because an axis may also say "none".
    found["draft_model"] = replace(found["draft_model"], kind="object", example="Llama3_8B")
    found["decode_hardware"] = replace(found["decode_hardware"], kind="object", example="H200")
    found |= {
        "concurrency": Input.of("clients over all replicas, instead of batch_size", "whole [1, 1e6]", None),
        "prefill_replicas": Input.of(
            "replicas that read prompts, beside decode_hardware; num_replicas unless given", "whole [1, 1e7]", None
        ),
        "cloud_price": Input.of(
            "rent of one accelerator in USD/h, or a commitment such as 'on-demand' for the lowest listed price of the chip; "
            "instead of owning",
            "object",
            None,
            example="on-demand",
        ),
        "decode_unit_cost": replace(
            EconomicsModel.inputs["unit_cost"], meaning="price of one accelerator that writes answers"
        ),
    }
    return found


_DECLARED = _declared()
_MEANT = with_aliases(_DECLARED)
INPUTS = _DECLARED | {other: _DECLARED[name] for other, name in _MEANT.items()}
"""What a space may set, under every name that it has: meaning, unit and range."""


def is_calibrated(names: Collection[str], models: Iterable[Any]) -> bool:
    """Whether a space that gives inputs of these names is calibrated without saying so: unless it has an efficiency, or a model
    without layers to sum over."""
    if "efficiency" in names or "bandwidth_efficiency" in names:
        return False
    return all(getattr(Models.get(model), "has_dimensions", False) for model in models)


def canonical(name: str) -> str:
    """The resolver's name of an input."""
    return _MEANT.get(name, name)


def inputs_of(space: Any) -> tuple[dict[str, str], dict[str, Any]]:
    """Inputs on axes (by the resolver's name, with the name that the space uses) and fixed ones, checked together."""
    on_axes: dict[str, str] = {}
    fixed: dict[str, Any] = {}
    for name in (*space.homes, *space.fixed):
        key = canonical(name)
        if key not in INPUTS:
            raise unknown_name("input of a serving space", name, INPUTS)
        if key in on_axes or key in fixed:
            raise InputError(f"{name!r} and another name of {key!r} are given; give one of them.", field=name)
        if name in space.homes:
            on_axes[key] = name
        elif space.fixed[name] is not None:
            fixed[key] = space.fixed[name]
    given = {*on_axes, *fixed}
    for key in _NEEDED:
        if key not in given:
            raise InputError(f"a serving space needs {key!r}: {INPUTS[key].meaning}.", field=key)
    for one, other in (("batch_size", "concurrency"), ("cloud_price", "unit_cost")):
        if one in given and other in given:
            raise InputError(f"a serving space takes {one!r} or {other!r}, not both.", field=other)
    for name in ("prefill_replicas", "decode_unit_cost"):
        if name in given and "decode_hardware" not in given:
            raise InputError(f"{name!r} has no meaning without 'decode_hardware'.", field=name)

    def values(name: str) -> tuple[Any, ...]:
        found: tuple[Any, ...] = space.values(on_axes[name]) if name in on_axes else (fixed.get(name),)
        return found

    if "efficiency" in on_axes and any(isinstance(value, str) for value in values("efficiency")):
        raise InputError('one space has one fidelity: fix efficiency = "calibrated".', field="efficiency")
    for name in ("cloud_price", "kwh_price"):
        for value in values(name):
            _check_price(name, value)
    return on_axes, fixed


def _check_price(name: str, value: Any) -> None:
    if isinstance(value, str):
        rents = sorted({Prices.get(key).commitment for key in Prices.keys()})  # noqa: SIM118
        words = rents if name == "cloud_price" else (REGION, LOCAL)
        if value not in words:
            raise unknown_name(f"value of {name!r}", value, words, f"use a number, or one of {', '.join(words)}.")
    elif value is not None and (isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1e9):
        raise InputError(f"{name!r} must be a number of at least 0, got {str(value)[:40]!r}.", field=name)
