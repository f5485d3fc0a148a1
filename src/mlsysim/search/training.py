"""Training layouts by the thousand: what DistributedModel answers for one, on arrays, at either fidelity.

A point is a layout of one model on one fleet: degrees of parallelism, virtual stages, micro-batches, ZeRO stage,
recomputation, offload, batch, sequence length, number of nodes. Each may be a column (an array with one value for each
point) or fixed. A point is the case of a training step (:mod:`mlsysim.cases.trainer`) on an array, so that it gives what ``solve()``
gives for it, at either fidelity.

A layout that breaks a rule of :mod:`mlsysim.cases.layout` is no design: ``valid`` is False there, ``feasible`` too,
``wall`` is 0 and the numbers are not a number. Only valid layouts are evaluated. A layout that does not fit into memory
keeps its times and is rejected by wall 2; a fleet that fails faster than it recovers is rejected by wall 15.

Columns of names that are neither recomputation modes nor grids (model, chip, precision, schedule, a flag) split a tile
into groups. A group whose chip cannot compute in its precision holds no designs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from mlsysim.cases.algebra import PLAIN, Combining
from mlsysim.cases.assumptions import Assumptions
from mlsysim.cases.checkpoint import run_checkpoint
from mlsysim.cases.layout import Layout, asked_layout, choose_micro_batches, divides, rules
from mlsysim.cases.offload import host_link
from mlsysim.cases.trainer import Software, Trainer
from mlsysim.cases.training import Training
from mlsysim.errors import InputError, UnknownNameError
from mlsysim.search import training_inputs
from mlsysim.search.costs import RunCosts
from mlsysim.search.kinds import asked_of
from mlsysim.search.training_inputs import INPUTS, NUMBERS, Names, as_planned, canonical, fleet_named, run_by
from mlsysim.timing.stacks import ALONE, default_stack
from mlsysim.units.ops import taken, where
from mlsysim.units.registry import quantity
from mlsysim.walls.fleet.communication import DistributedModel, DistributedResult
from mlsysim.walls.fleet.step_inputs import FIRST_ORDER, job_of, schedule_given, trainer_of, with_its_host
from mlsysim.walls.inputs import CALIBRATED, Inputs, read_input

__all__ = ["INPUTS", "LARGER", "OBJECTIVE", "OUTPUTS", "TrainingPoints", "answer", "evaluate"]

COMPUTE, MEMORY, FRAGILITY = 1, 2, 15
_OFFLOADS = ("optimizer_offload", "weights_offload", "activations_offload")
_SIZING = ("nodes", "accelerators", "dp", "tp_size", "pp_size", "cp_size")
"""Columns that may set how large a fleet is."""

OUTPUTS = (
    *("step_time_s", "mfu", "tokens_per_second", "memory_bytes", "scaling_efficiency", "goodput_ratio", "run_days"),
    *(f"{amount}_per_{what}" for what in ("run", "mtoken") for amount in ("usd", "kwh", "kgco2e", "litres")),
)
"""Numbers of a point, beside ``valid``, ``feasible`` and ``wall``."""

_COMBINED = {
    *("tp_size", "pp_size", "ep_size", "cp_size", "v_stages", "microbatch_count", "zero_stage", "dp"),
    *("activation_recomputation", "batch_size", "nodes", "accelerators", "micro_batch", "optimizer_offload"),
    *("overlap_tp", "overlap_ep", "overlap_pp", "datacenter", *training_inputs.COST_NUMBERS),
}
"""Columns that what a case works out once (:class:`mlsysim.cases.algebra.Combining`) says that it depends on, or that nothing of it depends on."""

OBJECTIVE = "tokens_per_second"
LARGER = ("mfu", "tokens_per_second", "scaling_efficiency", "goodput_ratio")


class TrainingPoints:
    """Layouts of one model on one fleet. ``fixed`` is what all points share; columns of a tile override it."""

    def __init__(self, fixed: Mapping[str, Any]) -> None:
        given = {canonical(name): value for name, value in fixed.items() if value is not None}
        self.fixed = dict(given)
        self.micro_batch, self.dp = given.pop("micro_batch", None), given.pop("dp", None)
        self.launcher = given.pop("launcher", None)
        fleet, self.counted = fleet_named(given)
        if fleet is not None:
            given["fleet"] = fleet
        given = as_planned(given)
        self.given = frozenset(given)
        self.values = {name: spec.default for name, spec in DistributedModel.inputs.items()}
        for name, spec in DistributedModel.inputs.items():
            if name in given:
                self.values[name] = read_input("DistributedModel", name, INPUTS[name], given[name])
            elif spec.required:
                raise InputError(f"a training space needs {name!r}: {spec.meaning}.", field=name)
        x = Inputs(self.values)
        self.model, self.fleet = x.model, x.fleet
        stored = given.get("storage_bandwidth")
        if stored is not None:
            rate = read_input("a training space", "storage_bandwidth", INPUTS["storage_bandwidth"], stored)
            self.fleet = self.fleet.model_copy(update={"storage_bandwidth": quantity(rate, "byte/s")})
        formats = x.precision, x.optimizer, x.lora_rank if x.is_lora else None
        mode = given.get("checkpoint_mode")
        saved = run_checkpoint(self.model, self.fleet, self.fleet.total_accelerators, *formats, mode, x.lora_targets)
        self.costs = RunCosts(self.fleet, given, saved)
        self.schedule = schedule_given(x)
        try:
            self.trainer = trainer_of(x, Assumptions(self.given))
        except UnknownNameError as error:
            raise InputError(f"{self.fleet.node.accelerator.name}: {error}", field="precision") from None

    def stacks(self, columns: Mapping[str, Any]) -> Names | None:
        """The default stack of each point where it follows the size of the fleet, which some of the columns set."""
        sizing = {key: column for name, column in columns.items() if (key := canonical(name)) in _SIZING}
        first_order = not isinstance(self.trainer.software, Software) or "efficiency" in columns
        if "stack" in self.given or first_order or not sizing:
            return None
        alone = np.asarray(self._inputs(sizing).accelerators == 1)
        if alone.all() if self.fleet.total_accelerators == 1 else not alone.any():
            return None
        chip = self.fleet.node.accelerator
        return Names((default_stack(chip, 2), ALONE), np.broadcast_to(alone, len(next(iter(sizing.values())))) * 1)

    def parts(self, columns: Mapping[str, Any]) -> Names | None:
        """The accelerators of each point where some do not fill nodes: of those that parts of them hold, each size is a fleet of its own."""
        sizing = {key: column for name, column in columns.items() if (key := canonical(name)) in _SIZING}
        if "accelerators" not in sizing and ("dp" not in {*sizing, *self.fixed} or self.counted):
            return None
        total = np.asarray(self._inputs(sizing).accelerators)
        if not np.any(total % self.fleet.node.accelerators_per_node):
            return None
        return Names.of(np.broadcast_to(total, _size(columns)))

    def evaluate(self, columns: Mapping[str, Any], binds: bool = False) -> dict[str, np.ndarray]:
        """All outputs of the points in ``columns``, which have one length; ``binds`` asks for the wall that binds them too."""
        size = _size(columns)
        numbers: dict[str, Any] = {}
        for name, column in columns.items():
            key = canonical(name)
            if key in ("activation_recomputation", "datacenter"):
                numbers[key] = Names.of(column)
            elif np.asarray(column).dtype.kind in "iuf":
                numbers[key] = np.asarray(column).astype(np.float64)
            else:
                raise InputError(f"The axis {name!r} of a training space needs numbers.", field=name)
        self._check_counts(numbers)
        x, index = self._inputs(numbers), None
        *shares, valid = self._divided(x, size)
        if not valid.all():
            index = np.flatnonzero(valid)
            numbers = {name: column.take(index) for name, column in numbers.items()}
            x, shares = self._inputs(numbers), [taken(value, index) for value in shares]
        return {"valid": valid, **_spread(self._answers(x, numbers, *shares, binds=binds), size, index)}

    def _check_counts(self, numbers: Mapping[str, Any]) -> None:
        """One sentence where columns contradict what is fixed, or each other."""
        sizes = [name for name in ("nodes", "accelerators") if name in numbers]
        if len({*sizes, *({"nodes", "accelerators"} & self.fixed.keys() if sizes else ())}) > 1:
            raise InputError("a fleet has a number of nodes or of accelerators, not both.", field="nodes")
        decided = sizes or (not self.counted and ("dp" in numbers or self.dp is not None))
        if decided and self.values["topology_override"] is not None:
            raise InputError("a topology is of one size; fix the nodes, or leave topology_override out.", field="nodes")
        if decided and self.fleet.sites > 1:
            raise InputError("sites share a link by their size; fix the nodes of the fleet.", field="nodes")
        if "efficiency" in numbers and self.fixed.get("efficiency") == CALIBRATED:
            raise InputError("an axis of efficiencies is first order; leave 'calibrated' out.", field="efficiency")
        if any(name in numbers and numbers[name].any() for name in _OFFLOADS):
            host_link(self.fleet.node.accelerator)

    def _inputs(self, numbers: Mapping[str, Any]) -> Inputs:
        """Inputs of the step with the columns in place; whole numbers as floats, as the columns are."""
        sizes = {"nodes": float(self.fleet.count), "accelerators": None, "micro_batch": self.micro_batch, "dp": self.dp}
        x = Inputs({**self.values, **sizes, **numbers})
        if "efficiency" in numbers:
            x = x.but(**{name: value for name, value in FIRST_ORDER.items() if name not in self.given})
        per_node, accelerators = self.fleet.node.accelerators_per_node, x.accelerators
        if accelerators is None and x.dp is not None and not self.counted and "nodes" not in numbers:
            accelerators = 1.0 * x.dp * x.tp_size * x.pp_size * x.cp_size
        if accelerators is None:
            return x.but(accelerators=x.nodes * per_node)
        return x.but(accelerators=accelerators, nodes=accelerators / per_node)

    def _divided(self, x: Any, size: int) -> tuple[Any, Any, Any, np.ndarray]:
        """Data-parallel degree, samples and micro-batches of each replica, and which layouts divide."""
        whole = x.accelerators, x.batch_size
        more = {"virtual_stages": x.v_stages, "schedule": self.schedule, "group": x.microbatch_group_size}
        asked = asked_layout(*whole, x.tp_size, x.pp_size, x.ep_size, x.cp_size, shard=x.zero_shard, **more)
        dp, local = asked.dp, asked.local_batch
        parts = x.microbatch_count if x.micro_batch is None else local / x.micro_batch
        seq_len = 1 if self.model.fixed_shape else x.seq_len
        valid = np.ones(size, dtype=bool)
        valid &= divides(1, x.nodes)
        if x.dp is not None:
            valid &= dp == x.dp
        if x.micro_batch is not None:
            valid &= divides(x.micro_batch, local)
        for rule in rules(self.model, replace(asked, micro_batches=parts), *whole, seq_len, self.fleet.sites):
            valid &= rule.holds
        parts = _chosen(local, x.pp_size, valid) if parts is None else parts
        if self.launcher is not None:
            valid &= run_by(self.launcher, x, dp, parts, self.schedule or "1f1b")
        return dp, local, parts, valid

    def _trainer(self, x: Any) -> Trainer:
        """The fleet's, with the efficiencies and slow-downs of the points."""
        trainer = self.trainer
        if isinstance(x.efficiency, np.ndarray):
            trainer = replace(trainer, device=replace(trainer.device, efficiency=x.efficiency), software=None)
        if any(np.any(getattr(x, name)) for name in _OFFLOADS):
            trainer = with_its_host(trainer, self.fleet, x.host_update)
        even = np.ndim(x.congestion_factor) == 0 and x.congestion_factor == 1
        return trainer if even else trainer.congested(x.congestion_factor)

    def _answers(
        self, x: Any, numbers: Mapping[str, Any], dp: Any, local: Any, parts: Any, *, binds: bool
    ) -> dict[str, Any]:
        """Outputs of layouts that divide."""
        trainer = self._trainer(x)
        degrees = (dp, x.tp_size, x.pp_size, x.ep_size, x.cp_size, parts, local, x.v_stages)
        layout = Layout(*degrees, self.schedule, x.microbatch_group_size, x.zero_shard)
        job = job_of(x, trainer, Assumptions(self.given | numbers.keys()))
        asked = Training(trainer, job, layout, Combining() if numbers.keys() <= _COMBINED else PLAIN)
        step, fits, possible = asked.step, asked.fits, asked.holds
        own = {name: numbers[name] for name in numbers if name in training_inputs.COST_NUMBERS or name == "datacenter"}
        lasting, costs = self.costs.of_run(own, x.nodes, asked.watts, asked.tokens_per_second, dp, step.seconds)
        found = {"binding": asked.ledger.binding_wall} if binds else {}
        # Where the form does not hold, solve() refuses the point.
        return found | {
            "feasible": fits & lasting & possible,
            "wall": where(fits, where(lasting, where(possible, 0, COMPUTE), FRAGILITY), MEMORY),
            "step_time_s": step.seconds,
            "mfu": asked.mfu,
            "tokens_per_second": asked.tokens_per_second,
            "memory_bytes": asked.memory,
            "scaling_efficiency": step.ideal / step.seconds,
            **costs,
        }


def _size(columns: Mapping[str, Any]) -> int:
    first = next(iter(columns.values()))
    return first.places.size if isinstance(first, Names) else len(first)


def _chosen(local: Any, pp: Any, valid: np.ndarray) -> np.ndarray:
    """Micro-batches where none are given, chosen as for one layout; each pair of samples and stages once."""
    parts = np.ones(valid.shape)
    pairs = np.stack(np.broadcast_arrays(local, pp, parts)[:2])[:, valid]
    if pairs.size:
        unique, which = np.unique(pairs, axis=1, return_inverse=True)
        counts = [choose_micro_batches(int(samples), int(stages)) for samples, stages in unique.T]
        parts[valid] = np.array(counts, dtype=float)[which.ravel()]
    return parts


def evaluate(space: Any, columns: Mapping[str, Any], binds: bool = False) -> dict[str, np.ndarray]:
    """Outputs of the points in ``columns``; ``space`` is a Space of kind training, or what is fixed as a mapping."""
    fixed = getattr(space, "fixed", space)
    positions = getattr(columns, "positions", {})
    known: dict[str, Any] = dict(columns)
    for name, places in positions.items():
        if canonical(name) not in NUMBERS:
            known[name] = Names(tuple(space.values(name)), places)
    found, unknown = _evaluate(fixed, known, binds)
    goals = [getattr(space, "goal", None), *getattr(space, "pareto", ())]
    wanted = [goal.output for goal in goals if goal is not None]
    wanted += [name for expression in getattr(space, "subject_to", ()) for name in expression.names if name in OUTPUTS]
    for name in wanted:
        if name in unknown:
            raise InputError(f"{name} is not known for these points: {unknown[name]}")
    # Every tile of a space has the same columns, also where its chips publish less than others.
    return {**found, **{name: np.full(found["valid"].size, np.nan) for name in unknown if name not in found}}


def _evaluate(
    fixed: Mapping[str, Any], columns: Mapping[str, Any], binds: bool
) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """The points in groups by value of each column that has to be one for all of a group; and what is unknown, and why."""
    name = next((name for name in columns if canonical(name) in training_inputs.GROUPED), None)
    if name is None:
        points = _points(fixed)
        stacks, parts = points.stacks(columns), points.parts(columns)
        if parts is not None:
            own = next((name for name in columns if canonical(name) == "accelerators"), "accelerators")
            name, columns = own, {**columns, own: parts}
        elif stacks is not None:
            name, columns = "stack", {**columns, "stack": stacks}
        else:
            return points.evaluate(columns, binds), points.costs.unknown
    names = Names.of(columns[name])
    size = names.places.size
    rest = {other: column for other, column in columns.items() if other != name}
    found: dict[str, np.ndarray] = {}
    unknown: dict[str, str] = {}
    for code in np.flatnonzero(np.bincount(names.places, minlength=1)).tolist():
        settings = {**fixed, name: names.values[code]}
        index = np.flatnonzero(names.places == code)
        few = {other: column.take(index) for other, column in rest.items()} if index.size < size else rest
        try:
            if not few:
                few = {"tp": np.full(index.size, _points(settings).values["tp_size"])}
            part, missing = _evaluate(settings, few, binds)
        except InputError as error:
            # A chip without arithmetic in a precision, or a fleet that fills no nodes, is no design among others; alone it is a mistake.
            if getattr(error, "field", None) not in ("precision", "accelerators"):
                raise
            continue
        unknown |= missing
        if index.size == size:
            return part, unknown
        for output, values in part.items():
            if output not in found:
                found[output] = _empty(output, size)
            found[output][index] = values
    if not found:
        found = {n: _empty(n, size) for n in (*OUTPUTS, *_KINDS) if binds or n != "binding"}
    return found, unknown


_KEPT: dict[tuple[tuple[str, Any], ...], tuple[tuple[Any, ...], TrainingPoints]] = {}
_MOST = 256


def _points(fixed: Mapping[str, Any]) -> TrainingPoints:
    """The points of these settings, read once; objects are told apart by identity and kept alive beside their key."""
    plain = (str, int, float, bool, type(None))
    key = tuple((name, value if isinstance(value, plain) else id(value)) for name, value in fixed.items())
    found = _KEPT.get(key)
    if found is None:
        if len(_KEPT) >= _MOST:
            _KEPT.clear()
        found = _KEPT[key] = (tuple(fixed.values()), TrainingPoints(fixed))
    return found[1]


_KINDS: dict[str, Any] = {"valid": np.bool_, "feasible": np.bool_, "wall": np.int8, "binding": np.int8}


def _empty(name: str, size: int) -> np.ndarray:
    """What points without an answer have: not a number, False or 0."""
    return np.full(size, 0 if name in _KINDS else np.nan, dtype=_KINDS.get(name, np.float64))


def _spread(outputs: Mapping[str, Any], size: int, index: Any = None) -> dict[str, np.ndarray]:
    """The outputs of a tile, or of some of its points, as arrays of its length."""
    full: dict[str, np.ndarray] = {}
    for name, value in outputs.items():
        full[name] = np.asarray(value, dtype=_KINDS.get(name, np.float64))
        if index is not None or full[name].shape != (size,):
            full[name] = _empty(name, size)
            full[name][slice(None) if index is None else index] = value
    return full


def answer(given: dict[str, Any]) -> DistributedResult:
    """What DistributedModel says of the fleet and the micro-batches that a point amounts to."""
    given = {canonical(name): value for name, value in given.items()}
    fleet, counted = fleet_named(given)
    micro_batch, dp = given.pop("micro_batch", None), given.pop("dp", None)
    settings = asked_of(DistributedModel, INPUTS, given)
    settings = as_planned(settings if fleet is None else {**settings, "fleet": fleet})
    if fleet is not None:
        degrees = (settings.get(n, DistributedModel.inputs[n].default) for n in ("tp_size", "pp_size", "cp_size"))
        model_parallel = math.prod(degrees)
        if dp is not None and not counted:
            settings["fleet"] = fleet = fleet.sized(dp * model_parallel)
        if micro_batch is not None:
            local = settings["batch_size"] * model_parallel // fleet.total_accelerators
            settings["microbatch_count"] = local // micro_batch
    return DistributedModel().solve(**settings)


def binding(space: Any, columns: Mapping[str, Any]) -> Any:
    """The wall with most of the critical path of each of these points, as DistributedModel names it."""
    return evaluate(space, columns, binds=True)["binding"]
