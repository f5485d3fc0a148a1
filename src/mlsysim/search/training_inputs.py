"""What a space of kind training may set: axes, by any of their names, and names at many points."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import replace
from typing import Any

import numpy as np

from mlsysim.cases.checkpoint import MODES
from mlsysim.cases.run_inputs import ALL, LOCAL, run_days
from mlsysim.errors import InputError, unknown_name
from mlsysim.hardware.arithmetic import usual_format
from mlsysim.hardware.registry import Hardware
from mlsysim.models.registry import Models
from mlsysim.systems.fleet_text import fleet_of
from mlsysim.systems.registry import Fabrics, Nodes
from mlsysim.systems.types import Fleet, Node
from mlsysim.timing.launchers import launcher, launcher_names
from mlsysim.timing.runtimes import trained_by_runtime
from mlsysim.units.records import dataclass
from mlsysim.units.registry import quantity
from mlsysim.vocabulary import with_aliases
from mlsysim.walls.fleet.communication import DistributedModel
from mlsysim.walls.fleet.fragility import ReliabilityModel
from mlsysim.walls.fleet.step_inputs import FIRST_ORDER, usual_length
from mlsysim.walls.inputs import CALIBRATED, Input, declared, read_input
from mlsysim.walls.operations.capital import EconomicsModel

DURATION_DAYS = run_days()
"""Length of a run where neither it nor the tokens are given."""

RELIABILITY_INPUTS = (
    *("checkpoint_time_s", "avg_recovery_time_s", "checkpoint_interval"),
    *("accelerator_mtbf", "nic_mtbf", "psu_mtbf"),
)
NETWORKED = ("oversubscription", "rails", "sites", "wan_bandwidth", "wan_round_trip")
FAILURE_INPUTS = ("mtbf", "checkpoint_mode", "storage_bandwidth", "spares", "repair_time")
COST_INPUTS = (
    *("duration_days", "tokens", "kwh_price", "datacenter", "amortization_years", "infrastructure_multiplier"),
    *("unit_cost", "node_cost", "maintenance_fraction", "utilization", "include_host", "cooling", "average_power"),
    *("cloud_price", "cost_scope"),
)
_NAMED_COSTS = ("datacenter", "include_host", "cooling", "average_power", "cost_scope")
COST_NUMBERS = (*RELIABILITY_INPUTS[:3], *(name for name in COST_INPUTS if name not in _NAMED_COSTS))
"""Inputs that may be arrays, in the plain unit of their resolver."""

NUMBERS = {
    *("tp_size", "pp_size", "ep_size", "cp_size", "v_stages", "microbatch_count", "microbatch_group_size"),
    *("zero_stage", "zero_shard", "weights_offload", "activations_offload"),
    *("batch_size", "seq_len", "nodes", "accelerators", "dp", "micro_batch", "efficiency"),
    *("gradient_accumulation_steps", "optimizer_offload"),
    *("overlap_efficiency", "overlap_tp", "overlap_ep", "overlap_cp", "overlap_pp"),
    *("congestion_factor", "straggler_factor", "moe_routing_imbalance_factor", "memory_headroom"),
    *COST_NUMBERS,
}
GROUPED = {*DistributedModel.inputs, *RELIABILITY_INPUTS, *FAILURE_INPUTS, *NETWORKED, *COST_INPUTS}
GROUPED |= {"node", "chip", "fabric", "launcher"}
GROUPED -= {*NUMBERS, "activation_recomputation", "datacenter"}


def _declared() -> dict[str, Input]:
    """What a space may set, under the resolvers' names."""
    optional = {"fleet": replace(DistributedModel.inputs["fleet"], default=None)}
    found = DistributedModel.inputs | optional
    found |= {name: ReliabilityModel.inputs[name] for name in RELIABILITY_INPUTS}
    found |= {name: EconomicsModel.inputs[name] for name in COST_INPUTS}
    # A space hands on numbers in the declared unit, and the resolver reads a plain number in watts.
    found["average_power"] = replace(found["average_power"], unit="W")
    found["power_cap"] = replace(found["power_cap"], plain_unit="W")
    found["duration_days"] = replace(found["duration_days"], default=DURATION_DAYS)
    found["include_host"] = replace(found["include_host"], default=True)
    found["kwh_price"] = replace(found["kwh_price"], default=LOCAL)
    found["cost_scope"] = replace(found["cost_scope"], default=ALL)
    meaning = "time that one checkpoint stops the run; that of writing the state where none is given"
    found["checkpoint_time_s"] = replace(found["checkpoint_time_s"], default=None, meaning=meaning)
    found["avg_recovery_time_s"] = replace(found["avg_recovery_time_s"], default=None)
    return found | declared(f"""
        mtbf? | (0, inf) h, plain | mean time between failures of the whole fleet; by the accelerators where none is given
        checkpoint_mode = sharded | one of {", ".join(MODES)} | who writes a checkpoint, and whether the run waits
        storage_bandwidth? | (0, inf) byte/s, plain GB/s | what the file system takes in from all writers | 500 GB/s
        oversubscription? | [1, 1000] | ports of the fabric over what its upper stages carry
        rails? | whole [1, 1024] | adapters of a node on the fabric, shared by its accelerators
        sites? | whole [1, 64] | places that have equal parts of the fleet
        wan_bandwidth? | (0, inf) byte/s, plain GB/s | what a site has to the others, one way | 100 Gbps
        wan_round_trip? | [0, inf) s, plain | time of a message to another site and back | 30 ms
        spares? | whole [0, 1e4] | nodes that stand in for those in repair; unless given, one is always at hand
        repair_time? | (0, inf) h, plain | until a node that broke is back, beside spares
        nodes? | whole [1, 1e7] | nodes of the fleet
        accelerators? | whole [1, 1e8] | accelerators of the fleet, instead of nodes
        dp? | whole [1, 1e8] | data-parallel degree: it decides the number of nodes where nothing else does, else only layouts \
            that have it are designs
        launcher? | one of {", ".join(launcher_names())} | trainer that has to run the layout; what it does not run is no design
        node? | object | node of the fleet, by name, beside a fabric
        chip? | hardware | accelerator of the fleet, instead of a node: the first node of the zoo that holds it
        fabric? | fabric | network between the nodes
        micro_batch? | whole [1, inf) | samples of a micro-batch, instead of micro_batches
    """)


_DECLARED = _declared()
_MEANT = with_aliases(_DECLARED)
INPUTS = _DECLARED | {other: _DECLARED[name] for other, name in _MEANT.items()}
"""What a space may set, under every name that it has: meaning, unit and range."""


@dataclass(frozen=True, slots=True, eq=False)
class Names:
    """Names at many points: the different ones, and for each point its place among them. Compares with a name point by point."""

    values: tuple[Any, ...]
    places: np.ndarray

    @classmethod
    def of(cls, column: Any) -> Names:
        """From an array of names, or flags."""
        if isinstance(column, Names):
            return column
        values, places = np.unique(np.asarray(column), return_inverse=True)
        return cls(tuple(values.tolist()), places)

    def take(self, index: Any) -> Names:
        return Names(self.values, self.places.take(index))

    def __eq__(self, name: object) -> Any:
        return self.places == (self.values.index(name) if name in self.values else -1)


def as_planned(given: Mapping[str, Any]) -> dict[str, Any]:
    """Settings with what a plan has where it says nothing: format and length, calibrated where the model has layers to sum over or a
    measured runtime, else what a first-order step counts."""
    if "model" not in given or given.get("fleet") is None:
        return dict(given)
    model, chip = Models.get(given["model"]), given["fleet"].node.accelerator
    known = getattr(model, "has_dimensions", False) or model.looks_up or trained_by_runtime(model, chip)
    found = {"precision": usual_format(chip, model.native_format), "seq_len": usual_length(model)}
    found |= {"efficiency": CALIBRATED} if known else {}
    found |= {"is_lora": True} if given.get("lora_rank") is not None else {}
    found |= {"activation_recomputation": "selective"} if given.get("recomputed") is not None else {}
    found |= given
    return found if found.get("efficiency") == CALIBRATED else FIRST_ORDER | found


def canonical(name: str) -> str:
    """The resolver's name of an axis; a name that nothing answers to is refused with the nearest."""
    if name not in INPUTS:
        raise unknown_name("axis or setting of a training space", name, INPUTS)
    return _MEANT.get(name, name)


def fleet_named(given: MutableMapping[str, Any]) -> tuple[Fleet | None, bool]:
    """The fleet that settings describe, which are taken out of them, and whether they say how large it is."""
    names = ("node", "chip", "fabric", "nodes", "accelerators")
    named, chip, fabric, nodes, accelerators = (given.pop(name, None) for name in names)
    if nodes is not None and accelerators is not None:
        raise InputError("a fleet has a number of nodes or of accelerators, not both.", field="nodes")
    fleet = given.get("fleet")
    described = any(part is not None for part in (named, chip, fabric))
    if described:
        if fleet is not None or fabric is None or (named is None) == (chip is None):
            words = "give a fleet, or a node (or a chip) and a fabric with the number of nodes."
            raise InputError(words, field="fleet")
        node = _node_of(chip) if named is None else Nodes.get(named)
        fleet = Fleet(name=node.name, node=node, count=1, fabric=Fabrics.get(fabric))
    if fleet is None:
        return None, False
    fleet = fleet_of(fleet)
    if accelerators is not None:
        fleet = fleet.sized(int(accelerators))
    if nodes is not None:
        fleet = fleet.model_copy(update={"count": int(nodes)})
    told = {name: given.pop(name, None) for name in NETWORKED}
    read = {n: read_input("a training space", n, _DECLARED[n], v) for n, v in told.items() if v is not None}
    for name, unit in (("wan_bandwidth", "byte/s"), ("wan_round_trip", "s")):
        if name in read:
            read[name] = quantity(read[name], unit)
    fleet = fleet.networked(**read)
    return fleet, nodes is not None or accelerators is not None or not described


def run_by(name: str, x: Any, dp: Any, parts: Any, schedule: str) -> Any:
    """Which layouts a trainer runs; each kind of layout is asked about once."""
    mode = x.activation_recomputation
    modes = mode if isinstance(mode, Names) else Names((mode,), np.zeros(1, dtype=int))
    columns = np.broadcast_arrays(
        *(x.tp_size, x.pp_size, x.ep_size, x.cp_size, x.v_stages, x.zero_stage, dp, parts, modes.places)
    )
    kinds, which = np.unique(np.stack(columns), axis=1, return_inverse=True)
    names = ("tp", "pp", "ep", "cp", "v_stages", "zero_stage", "dp", "microbatch_count", "recompute")
    found = []
    for kind in kinds.T.tolist():
        row = dict(zip(names, map(int, kind), strict=True)) | {"schedule": schedule}
        found.append(launcher(name).refuses({**row, "recompute": modes.values[int(kind[-1])]}) is None)
    return np.array(found)[which.ravel()]


def _node_of(chip: Any) -> Node:
    """The first node of the zoo that holds a chip."""
    wanted = Hardware.get(chip)
    nodes: Iterator[Node] = (Nodes.get(name) for name in Nodes.keys())  # noqa: SIM118
    found = next((node for node in nodes if node.accelerator.metadata.key == wanted.metadata.key), None)
    if found is None:
        raise InputError(f"no node of the zoo holds {wanted.name}; give a node instead.", field="chip")
    return found
