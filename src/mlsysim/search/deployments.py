"""What a space of kind serving may set, and its deployments: each combination of model, chips, formats and degrees, as numbers for
arrays.

A deployment is a replica that reads prompts, one that writes answers (the same, unless there is decode hardware) and one
of the draft model, built and checked by the functions that :class:`ServingModel` calls. What a degree does not divide is no
design; a chip without the arithmetic is rejected by wall 1, one without links between chips by wall 14.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from mlsysim.cases.assumptions import Assumptions
from mlsysim.cases.deployment import Deployment, check_context, check_degrees
from mlsysim.cases.machines import Engines, Replicated
from mlsysim.cases.rent import price_text
from mlsysim.cases.replica import Replica
from mlsysim.cases.run import Around
from mlsysim.cases.run_inputs import ALL, LOCAL, REGION, around_node, hosted_share, usual_node
from mlsysim.errors import InputError, UnknownNameError, unknown_name
from mlsysim.hardware.arithmetic import arithmetic_peak, run_format
from mlsysim.hardware.registry import Hardware
from mlsysim.hardware.types import HardwareNode
from mlsysim.models.registry import Models
from mlsysim.models.transformer import TransformerWorkload
from mlsysim.search.costs import listed_rent
from mlsysim.search.tables import Table
from mlsysim.timing.network import Hierarchical
from mlsysim.timing.power import ChipPower, chip_power, equivalent
from mlsysim.units.ops import taken
from mlsysim.units.records import dataclass
from mlsysim.units.registry import to_si
from mlsysim.vocabulary import with_aliases
from mlsysim.walls.inputs import CALIBRATED, Input, Inputs, declared, read_input
from mlsysim.walls.node.engine_inputs import deployment_of
from mlsysim.walls.node.serving import ServingModel
from mlsysim.walls.operations.capital import EconomicsModel

if TYPE_CHECKING:
    from mlsysim.search.space import Space

NONE = "none"
"""On an axis of draft models or of decode hardware: without."""

DEPLOYMENT = (
    *("model", "hardware", "decode_hardware", "draft_model", "precision", "cache_precision", "fabric", "engine"),
    *("memory_fraction", "tp_size", "pp_size", "ep_size", "attention_dp", "cp_size"),
    *("decode_tp_size", "decode_ep_size", "redundant_experts", "adapters", "adapter_rank", "cooling"),
)
"""Inputs that shape a deployment. Its numbers are worked out once for each combination."""

NUMBERS = (
    *("seq_len", "output_len", "batch_size", "concurrency", "cached_prefix_len", "prefill_chunk_tokens"),
    *("prefill_batch_size", "num_replicas", "decode_replicas", "draft_acceptance_rate", "num_speculative_tokens"),
    *("mtp_tokens", "power_cap"),
    *("efficiency", "bandwidth_efficiency", "network_bandwidth"),
)
"""Inputs that may differ from point to point within a deployment."""

COSTS = (
    *("datacenter", "kwh_price", "cloud_price", "unit_cost", "decode_unit_cost", "amortization_years"),
    *("infrastructure_multiplier", "maintenance_fraction", "utilization", "average_power", "cost_scope"),
)
"""Inputs that decide what a token costs."""

_NEEDED = ("model", "hardware", "seq_len", "output_len")


def _declared() -> dict[str, Input]:
    """What a space may set, under the resolvers' names."""
    found = {name: ServingModel.inputs[name] for name in (*DEPLOYMENT, *NUMBERS) if name in ServingModel.inputs}
    found |= {name: EconomicsModel.inputs[name] for name in (*COSTS, "cooling") if name in EconomicsModel.inputs}
    # These have other names too, so that which of them is missing is said when all are known.
    for name in ("hardware", "seq_len", "output_len", "batch_size", "precision"):
        found[name] = replace(found[name], default=None)
    found["average_power"] = replace(found["average_power"], unit="W")
    found["power_cap"] = replace(found["power_cap"], plain_unit="W")
    found["kwh_price"] = replace(found["kwh_price"], default=LOCAL)
    found["cost_scope"] = replace(found["cost_scope"], default=ALL)
    # Names, because an axis may also say "none".
    found["draft_model"] = replace(found["draft_model"], kind="object", example="Llama3_8B")
    found["decode_hardware"] = replace(found["decode_hardware"], kind="object", example="H200")
    found |= declared("""
        concurrency? | whole [1, 1e6] | clients over all replicas, instead of batch_size
    """)
    meaning = "price of one accelerator that writes answers"
    return found | {"decode_unit_cost": replace(found["unit_cost"], meaning=meaning)}


_DECLARED = _declared()
_MEANT = with_aliases(_DECLARED)
INPUTS = _DECLARED | {other: _DECLARED[name] for other, name in _MEANT.items()}
"""What a space may set, under every name that it has: meaning, unit and range."""


def with_formats(given: dict[str, Any]) -> dict[str, Any]:
    """Inputs of a deployment with the format that a plan has where nobody says one."""
    if given.get("precision") is None:
        chip, model = Hardware.get(given["hardware"]), Models.get(given["model"])
        given = given | {"precision": run_format(chip, model, model.native_format)}
    return given


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
    for name in ("decode_replicas", "decode_tp_size", "decode_ep_size", "decode_unit_cost"):
        if name in given and "decode_hardware" not in given:
            raise InputError(f"{name!r} has no meaning without 'decode_hardware'.", field=name)

    def values(name: str) -> tuple[Any, ...]:
        return space.values(on_axes[name]) if name in on_axes else (fixed.get(name),)

    if "efficiency" in on_axes and any(isinstance(value, str) for value in values("efficiency")):
        raise InputError('one space has one fidelity: fix efficiency = "calibrated".', field="efficiency")
    for name in ("cloud_price", "kwh_price"):
        for value in values(name):
            _check_price(name, value)
    return on_axes, fixed


def _check_price(name: str, value: Any) -> None:
    if name == "cloud_price":
        price_text(value)
    elif isinstance(value, str):
        words = (REGION, LOCAL)
        if value not in words:
            raise unknown_name(f"value of {name!r}", value, words, f"use a number, or one of {', '.join(words)}.")
    elif value is not None and (isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1e9):
        raise InputError(f"{name!r} must be a number of at least 0, got {str(value)[:40]!r}.", field=name)


# --- deployments ------------------------------------------------------------------------------------------------------

COMPUTE, COMMUNICATION = 1, 14
NO_DESIGN = -1

_OF_NETWORK = tuple(field.name for field in fields(Hierarchical))
_OF_REPLICA = (
    *("tp", "pp", "ep", "peak", "wide", "bandwidth", "shared_element", "expert_element", "activation_element"),
    *("cache_element", "dispatch", "width", "attention_groups", "longest_stage", "device_weights", "capacity"),
    *("reserve", "expansion", "through_memory", "adapters", "adapter_rank", "cp"),
)
_OR_NONE = {"decode_hardware": Hardware, "draft_model": Models}


_AROUND = ("around_host", "around_factor", "around_network", "per_node", "hosted", "tdp")


def _around(chip: HardwareNode, cooling: str | None) -> list[float]:
    """What stands around a chip in its usual node, how many of it are there, how much of a host they have, and kW at most."""
    node, bandwidth = usual_node(chip)
    found = around_node(node, bandwidth, cooling)
    most = np.nan if chip.tdp is None else to_si(chip.tdp, "kW")
    size = float(node.accelerators_per_node)
    return [float(found.host), float(found.factor), float(found.network), size, hosted_share(node), most]


class Replicas(Replica):
    """Replicas of one model at many points: what a Replica works out of its chip and formats is given here, as arrays."""

    unit_cost: Any
    """USD of a device; not a number where unknown."""
    power: ChipPower
    """Constants of the power of a device; not a number where unknown."""
    energy: Any
    """Energy of an operation over one of 16 bits."""
    around: Around
    """What stands around the devices of a usual node, which holds ``per_node``; ``hosted`` of a host goes with them."""
    per_node: Any
    hosted: Any
    tdp: Any
    """kW of a device at most; not a number where unknown."""
    rents: Mapping[str, Any]
    """USD/h of a device for each way of renting that the space names."""

    @classmethod
    def of(cls, **numbers: Any) -> Replicas:
        found = cls.__new__(cls)
        found.__dict__.update(numbers)
        return found

    def take(self, index: Any) -> Replicas:
        grouped: dict[str, Any] = {"power": ChipPower(*(taken(value, index) for value in self.power))}
        a = self.around
        grouped["around"] = Around(taken(a.host, index), taken(a.factor, index), taken(a.network, index))
        grouped |= {} if self.clocks is None else {"clocks": self.clocks.take(index)}
        numbers = {name: taken(value, index) for name, value in self.__dict__.items() if name not in grouped}
        return Replicas.of(**numbers, **grouped)


@dataclass(frozen=True)
class Built:
    """One combination, checked: its machine at the space's fidelity, and its replicas. ``status`` is 0, a wall, or no design."""

    described: Deployment
    status: int
    machine: Replicated | Engines | None = None
    replicas: Replicated | None = None
    cooling: str | None = None
    capped: bool = False

    @property
    def apart(self) -> bool:
        return self.described.decode_chip is not None

    @cached_property
    def numbers(self) -> dict[str, list[float]]:
        """Of each replica its own numbers, those of its network, and what its chip costs and draws."""
        found = {}
        for role in ("reader", "writer", "draft"):
            replica = getattr(self.replicas, role)
            if replica is not None:
                chip = replica.chip
                cost, unknown = chip.unit_cost, [np.nan] * len(ChipPower._fields)
                found[role] = [
                    *(float(getattr(replica, name)) for name in _OF_REPLICA),
                    *(float(getattr(replica.network, name)) for name in _OF_NETWORK),
                    np.nan if cost is None else to_si(cost, "USD"),
                    equivalent(chip, replica.precision),
                    *(unknown if chip.tdp is None and not self.capped else chip_power(chip)),
                    *_around(chip, self.cooling),
                ]
        return found


class Deployments:
    """The deployments of a space: for each point the status, the place of its deployment, and a group, which has one model, one
    draft model, and decode hardware or none (calibrated, one deployment)."""

    def __init__(
        self,
        space: Space,
        on_axes: Mapping[str, str],
        fixed: Mapping[str, Any],
        calibrated: bool,
        commitments: tuple[str, ...],
    ) -> None:
        self.calibrated, self.commitments = calibrated, commitments
        self.capped = "power_cap" in on_axes or fixed.get("power_cap") is not None
        self.built: list[Built] = []
        self._groups: dict[Any, int] = {}
        names = {key: on_axes.get(key, key) for key in DEPLOYMENT}
        defaults = {name: fixed.get(key, INPUTS[key].default) for key, name in names.items()}
        self._keys = {name: key for key, name in names.items()}
        self.table = Table(space, names.values(), ("status", "place", "group"), self._numbers, defaults, "deployments")

    def replicas(self, places: Any, role: str, model: Any, efficiency: Any, bandwidth_efficiency: Any) -> Replicas:
        """Replicas of points of one group, by the places of their deployments; a number that all share stays one."""
        present, which = np.unique(places, return_inverse=True)
        built = [self.built[place] for place in present.tolist()]
        rows = np.array([each.numbers[role] for each in built]).T

        def many(row: Any) -> Any:
            return float(row[0]) if (row == row[0]).all() or np.isnan(row).all() else row[which]

        found = dict(
            zip(
                (*_OF_REPLICA, *_OF_NETWORK, "unit_cost", "energy", *ChipPower._fields, *_AROUND),
                map(many, rows),
                strict=True,
            )
        )
        found["bandwidth"] = found["bandwidth"] * bandwidth_efficiency
        found["power"] = ChipPower(*(found.pop(name) for name in ChipPower._fields))
        found["around"] = Around(*(found.pop(name) for name in _AROUND[:3]))
        network = Hierarchical(**{name: found.pop(name) for name in _OF_NETWORK})
        chips = [getattr(each.replicas, role).chip for each in built]
        rents = {
            way: many(np.array([listed_rent(way, chip.metadata.key) for chip in chips])) for way in self.commitments
        }
        return Replicas.of(model=model, efficiency=efficiency, redundant=0, network=network, rents=rents, **found)

    def _numbers(self, given: dict[str, Any]) -> list[float]:
        read = {self._keys[name]: _read(self._keys[name], v) for name, v in given.items()}
        built = replace(_build(read, self.calibrated), capped=self.capped)
        place = len(self.built)
        self.built.append(built)
        kind = place if self.calibrated else (id(built.described.model), id(built.described.draft), built.apart)
        return [float(built.status), float(place), float(self._groups.setdefault(kind, len(self._groups)))]


def _read(name: str, value: Any) -> Any:
    """An input as the resolvers take it."""
    if value is None or (name in _OR_NONE and value == NONE):
        return None
    if name not in _OR_NONE:
        return read_input("a serving space", name, INPUTS[name], value)
    if isinstance(value, (str, HardwareNode, TransformerWorkload)):
        return _OR_NONE[name].get(value) if isinstance(value, str) else value
    raise InputError(f"{name!r} must be a name of the zoo or {NONE!r}, got {type(value).__name__}.", field=name)


def _build(given: dict[str, Any], calibrated: bool) -> Built:
    """A checked deployment, with what rejects it."""
    # Rates of points are put in later.
    rates = {"efficiency": CALIBRATED if calibrated else 1.0, "bandwidth_efficiency": 1.0}
    described = deployment_of(Inputs({**with_formats(given), **rates}))
    try:
        for pool in (described, described.writing):
            check_degrees(described.model, *pool.degrees, redundant=described.redundant)
            check_context(described.model, pool.tp, described.cp)
    except InputError:
        return Built(described, NO_DESIGN)
    try:
        for chip in (described.chip, described.writing_chip):
            arithmetic_peak(chip, described.precision)
    except UnknownNameError:
        return Built(described, COMPUTE)
    try:
        replicas = described.replicated(Assumptions())
    except InputError:
        return Built(described, COMMUNICATION)
    try:
        return Built(
            described, 0, described.machine(Assumptions()) if calibrated else replicas, replicas, given["cooling"]
        )
    except InputError as error:
        if error.field == "model":
            raise
        return Built(described, NO_DESIGN)
