"""Training layouts by the thousand: what DistributedModel answers for one, on arrays, at first order.

A point is a layout of one model on one fleet: degrees of parallelism, virtual stages, micro-batches, ZeRO stage,
recomputation, batch, sequence length, number of nodes. Each may be a column (an array with one value for each point)
or fixed. The arithmetic is that of walls 2, 14, 15, 17 and 18, called with arrays; nothing is derived a second time, so
that a point gives what ``solve()`` gives for it.

A layout that does not divide (what ``plan_layout`` refuses) is no design: ``valid`` is False there, ``feasible`` too,
``wall`` is 0 and the numbers are not a number. Only valid layouts are evaluated. A layout that does not fit into memory
keeps its times and is rejected by wall 2; a fleet that fails faster than it recovers is rejected by wall 15.

Columns of names that are neither recomputation modes nor grids (precision, schedule, a flag) split a tile into groups.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np

from mlsysim.errors import InputError
from mlsysim.models.demand import Demand
from mlsysim.models.transformer import TransformerWorkload
from mlsysim.physics.pipeline import idle_slots
from mlsysim.search.run_costs import RunCosts
from mlsysim.search.training_inputs import (
    COST_NUMBERS,
    GROUPED,
    INPUTS,
    NUMBERS,
    RECOMPUTE,
    Modes,
    Names,
    canonical,
    checked,
)
from mlsysim.systems.registry import Fabrics, Nodes
from mlsysim.systems.types import Fleet
from mlsysim.units.ops import where
from mlsysim.units.registry import to_si
from mlsysim.walls.fleet.communication import DistributedModel
from mlsysim.walls.fleet.first_order_step import demanded_step, network
from mlsysim.walls.fleet.layout import Layout, choose_micro_batches
from mlsysim.walls.fleet.memory import in_flight
from mlsysim.walls.inputs import read_input
from mlsysim.walls.node.capacity import training_state
from mlsysim.walls.node.compute_memory import arithmetic_peak

__all__ = ["INPUTS", "LARGER", "OBJECTIVE", "OUTPUTS", "TrainingPoints", "evaluate"]

MEMORY, FRAGILITY = 2, 15

OUTPUTS = (
    "step_time_s",
    "mfu",
    "tokens_per_second",
    "memory_bytes",
    "scaling_efficiency",
    "goodput_ratio",
    "usd_per_mtoken",
    "kwh_per_mtoken",
    "kgco2e_per_mtoken",
)
"""Numbers of a point, beside ``valid``, ``feasible`` and ``wall``."""

OBJECTIVE = "tokens_per_second"
LARGER = ("mfu", "tokens_per_second", "scaling_efficiency", "goodput_ratio")


class TrainingPoints:
    """Layouts of one model on one fleet. ``fixed`` is what all points share; columns of a tile override it."""

    def __init__(self, fixed: Mapping[str, Any]) -> None:
        given = {canonical(name): value for name, value in fixed.items()}
        self.fixed = given
        given = dict(given)
        nodes, node, fabric = given.pop("nodes", None), given.pop("node", None), given.pop("fabric", None)
        self.micro_batch = given.pop("micro_batch", None)
        if node is not None or fabric is not None:
            if "fleet" in given or node is None or fabric is None:
                raise InputError("give a fleet, or a node and a fabric with the number of nodes.", field="fleet")
            node = Nodes.get(node)
            given["fleet"] = Fleet(name=node.name, node=node, count=int(nodes or 1), fabric=Fabrics.get(fabric))
        values: dict[str, Any] = {}
        for name, spec in DistributedModel.inputs.items():
            if given.get(name) is not None:
                values[name] = read_input("DistributedModel", name, spec, given[name])
            elif spec.required:
                raise InputError(f"a training space needs {name!r}: {spec.meaning}.", field=name)
            else:
                values[name] = spec.default
        if isinstance(values["efficiency"], str):
            raise InputError("this evaluation is first order; give efficiency as a number.", field="efficiency")
        if nodes is not None:
            values["fleet"] = values["fleet"].model_copy(update={"count": int(nodes)})
        self.values = values
        self.model, self.fleet = values["model"], values["fleet"]
        self.costs = RunCosts(self.fleet, given)
        chip = self.fleet.node.accelerator
        self.peak = arithmetic_peak(chip, values["precision"])[0]
        self.capacity = to_si(chip.memory.capacity, "byte")
        self.net = network(self.fleet, values["topology_override"], {})

    @property
    def unknown(self) -> dict[str, str]:
        """Outputs that the data cannot give, and why."""
        return self.costs.unknown

    def evaluate(self, columns: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """All outputs of the points in ``columns``, which have one length."""
        first = next(iter(columns.values()))
        size = first.places.size if isinstance(first, Names) else len(first)
        numbers: dict[str, Any] = {}
        for name, column in columns.items():
            key = canonical(name)
            if key in numbers:
                raise InputError(f"{name!r} and {key!r} are the same axis; give one of them.", field=name)
            if key == "activation_recomputation":
                numbers[key] = Modes.of(column)
            elif key == "datacenter":
                numbers[key] = Names.of(column)
            elif key in NUMBERS:
                numbers[key] = checked(name, np.asarray(column)).astype(np.float64)
            else:
                raise InputError(f"{name!r} is one for all points of a tile; use evaluate().", field=name)
        if "nodes" in numbers and self.values["topology_override"] is not None:
            raise InputError("a topology is of one size; fix the nodes, or leave topology_override out.", field="nodes")
        x = self._inputs(numbers)
        dp, local, parts, valid = self._layouts(x, size)
        if valid.all():
            return {"valid": valid, **_full(self._answers(x, numbers, dp, local, parts), size)}
        index = np.flatnonzero(valid)
        chosen = {name: column.take(index) for name, column in numbers.items()}
        few = self._answers(self._inputs(chosen), chosen, *(_take(v, index) for v in (dp, local, parts)))
        return {"valid": valid, **_scattered(_full(few, len(index)), index, size)}

    def _inputs(self, numbers: Mapping[str, Any]) -> SimpleNamespace:
        """Inputs of the step with the columns in place; whole numbers as floats, as the columns are."""
        x = SimpleNamespace(**self.values)
        x.nodes, x.micro_batch = float(self.fleet.count), self.micro_batch
        x.__dict__.update(numbers)
        x.accelerators = x.nodes * self.fleet.node.accelerators_per_node
        return x

    def _layouts(self, x: Any, size: int) -> tuple[Any, Any, Any, np.ndarray]:
        """Data-parallel degree, samples and micro-batches of each replica, and which layouts divide."""
        model, tp, pp, cp, ep = self.model, x.tp_size, x.pp_size, x.cp_size, x.ep_size
        dp = x.accelerators / (tp * pp * cp)
        local = x.batch_size / dp
        checks = [_whole(dp), _whole(local)]
        heads, layers = getattr(model, "heads", None), getattr(model, "layers", None)
        if heads:
            checks.append(_whole(heads / tp))
        if layers:
            checks += [pp <= layers, pp * (x.v_stages - 1) < layers]
        if isinstance(ep, np.ndarray) or ep > 1:
            spread = _whole(getattr(model, "experts", 1) / ep) & _whole(dp * tp * cp / ep)
            checks.append(spread | (ep <= 1))
        if isinstance(cp, np.ndarray) or cp > 1:
            checks.append(_whole((1 if model.fixed_shape else x.seq_len) / cp))
        if x.schedule == "dualpipe":
            checks.append(pp % 2 == 0)
        if x.schedule not in (None, "interleaved"):
            checks.append(x.v_stages <= 1)
        if x.micro_batch is not None:
            parts = local / x.micro_batch
            checks.append(_whole(parts))
        elif x.microbatch_count is not None:
            parts = x.microbatch_count
            checks.append(_whole(local / parts))
        else:
            parts = None
        valid = np.ones(size, dtype=bool)
        for check in checks:
            valid &= check
        if parts is None:
            parts = _chosen(local, pp, valid)
        return dp, local, parts, valid

    def _answers(self, x: Any, numbers: Mapping[str, Any], dp: Any, local: Any, parts: Any) -> dict[str, Any]:
        """Outputs of layouts that divide."""
        layout = Layout(dp, x.tp_size, x.pp_size, x.ep_size, x.cp_size, parts, local, x.v_stages)
        idle, held = _schedule(x.schedule, layout)
        terms, context = demanded_step(x, layout, self._demand(x, layout), idle, self.peak, self.net)
        state = training_state(
            x.model,
            layout.micro_batch,
            x.seq_len,
            x.precision,
            optimizer=x.optimizer,
            recompute=x.activation_recomputation,
            zero_stage=x.zero_stage,
            dp=dp,
            tp=x.tp_size,
            pp=x.pp_size,
            ep=x.ep_size,
            cp=x.cp_size,
            lora_rank=x.lora_rank if x.is_lora else None,
            sequence_parallel=x.sequence_parallel,
            stages_in_flight=held,
        )
        memory = state.total
        fits = memory * (1 + x.memory_headroom) <= self.capacity
        steps = x.gradient_accumulation_steps
        # Micro-steps repeat everything but the synchronisation.
        step = steps * (terms.step - terms.exposed_data) + terms.exposed_data
        ideal = steps * terms.compute * context["balance"] / x.straggler_factor
        mfu = context["model_flops"] * steps / (step * x.accelerators * self.peak)
        rate = context["tokens"] * steps / step
        own = {name: numbers[name] for name in numbers if name in COST_NUMBERS or name == "datacenter"}
        goodput, lasting = self.costs.goodput(own, x.nodes)
        return {
            "feasible": fits & lasting,
            "wall": where(fits, where(lasting, 0, FRAGILITY), MEMORY),
            "step_time_s": step,
            "mfu": mfu,
            "tokens_per_second": rate,
            "memory_bytes": memory,
            "scaling_efficiency": ideal / step,
            "goodput_ratio": goodput,
            **self.costs.per_million(own, x.nodes, mfu, rate, goodput),
        }

    def _demand(self, x: Any, layout: Layout) -> Demand:
        """Demand of one micro-batch; where a model has no closed form for many modes at once, mode by mode."""
        model, mode = self.model, x.activation_recomputation

        def ask(recompute: Any) -> Demand:
            demand: Demand = model.demand(
                "training",
                batch_size=layout.micro_batch,
                seq_len=None if model.fixed_shape else x.seq_len,
                precision=x.precision,
                recompute=recompute,
                frozen=x.is_lora,
            )
            return demand

        closed = isinstance(model, TransformerWorkload) and model.structure != "encoder-decoder"
        if closed or isinstance(mode, str):
            return ask(mode)
        found = ask("none")
        for name in RECOMPUTE[1:]:
            here, other = mode == name, ask(name)
            found = Demand(
                *(where(here, getattr(other, field), getattr(found, field)) for field in Demand.__dataclass_fields__)
            )
        return found


def evaluate(space: Any, columns: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Outputs of the points in ``columns``; ``space`` is a Space of kind training, or what is fixed as a mapping."""
    fixed = getattr(space, "fixed", space)
    positions = getattr(columns, "positions", {})
    known: dict[str, Any] = dict(columns)
    for name, places in positions.items():
        if canonical(name) not in NUMBERS:
            known[name] = Names(tuple(space.values(name)), places)
    found = _evaluate(fixed, known)
    wanted = [getattr(space, "goal", None), *getattr(space, "pareto", ())]
    for goal in wanted:
        if goal is not None and goal.output not in found:
            why = "" if any(canonical(name) in GROUPED for name in columns) else _points(fixed).unknown.get(goal.output)
            raise InputError(f"{goal.output} is not known for these points" + (f": {why}" if why else "."))
    return found


def _evaluate(fixed: Mapping[str, Any], columns: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """The points, in groups by value of each column that has to be one for all of a group."""
    name = next((name for name in columns if canonical(name) in GROUPED), None)
    if name is None:
        return _points(fixed).evaluate(columns)
    names = Names.of(columns[name])
    rest = {other: column for other, column in columns.items() if other != name}
    if rest and names.places.size and (names.places == names.places[0]).all():
        return _evaluate({**fixed, name: names.values[names.places[0]]}, rest)
    parts: list[tuple[np.ndarray, dict[str, np.ndarray]]] = []
    for code, value in enumerate(names.values):
        index = np.flatnonzero(names.places == code)
        if not index.size:
            continue
        settings = {**fixed, name: value}
        taken = {other: column.take(index) for other, column in rest.items()}
        if not taken:
            taken = {"tp": np.full(index.size, _points(settings).values["tp_size"])}
        parts.append((index, _evaluate(settings, taken)))
    result: dict[str, np.ndarray] = {}
    for output, values in parts[0][1].items():
        # What is unknown for one group is unknown for the tile.
        if all(output in part for _, part in parts):
            result[output] = np.empty(names.places.size, dtype=values.dtype)
            for index, part in parts:
                result[output][index] = part[output]
    return result


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


def _whole(value: Any) -> Any:
    return value == np.floor(value)


def _take(value: Any, index: np.ndarray) -> Any:
    return value.take(index) if isinstance(value, np.ndarray) else value


def _chosen(local: Any, pp: Any, valid: np.ndarray) -> np.ndarray:
    """Micro-batches where none are given, chosen as for one layout; each pair of samples and stages once."""
    parts = np.ones(valid.shape)
    pairs = np.stack(np.broadcast_arrays(local, pp, parts)[:2])[:, valid]
    if pairs.size:
        unique, which = np.unique(pairs, axis=1, return_inverse=True)
        counts = [choose_micro_batches(int(samples), int(stages)) for samples, stages in unique.T]
        parts[valid] = np.array(counts, dtype=float)[which.ravel()]
    return parts


def _schedule(schedule: str | None, layout: Any) -> tuple[Any, Any]:
    """The pipeline's wait and the micro-batches in flight. Without virtual stages the default is 1F1B."""
    if schedule is not None:
        lone = layout.pp == 1
        idle = where(lone, 0.0, idle_slots(schedule, layout.pp, layout.virtual_stages))
        return idle, where(lone, in_flight("1f1b", layout), in_flight(schedule, layout))
    idle = idle_slots("interleaved", layout.pp, layout.virtual_stages)
    held = where(layout.virtual_stages > 1, in_flight("interleaved", layout), in_flight("1f1b", layout))
    return idle, held


def _full(outputs: Mapping[str, Any], size: int) -> dict[str, np.ndarray]:
    """Every output as an array of the tile's length."""
    kinds = {"feasible": np.bool_, "wall": np.int8}
    full: dict[str, np.ndarray] = {}
    for name, value in outputs.items():
        array: np.ndarray = np.asarray(value, dtype=kinds.get(name, np.float64))
        full[name] = array if array.shape == (size,) else np.full(size, array)
    return full


def _scattered(few: Mapping[str, np.ndarray], index: np.ndarray, size: int) -> dict[str, np.ndarray]:
    """The outputs of some points among all points of a tile: not a number, False or 0 elsewhere."""
    full: dict[str, np.ndarray] = {}
    for name, values in few.items():
        empty = np.nan if values.dtype.kind == "f" else 0
        full[name] = np.full(size, empty, dtype=values.dtype)
        full[name][index] = values
    return full
