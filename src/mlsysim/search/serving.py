"""Spaces of kind ``serving``: deployments of a language model, their latency, throughput and cost, by the thousand.

A point is a model on replicas of chips, with degrees of parallelism, formats of weights and cache, a batch (or clients),
lengths of prompt and answer, chunked prefill, a draft model, prefill and decode on different chips, a place and prices.
The case of :mod:`mlsysim.cases.serve` is called with arrays, so that a point gives what ``ServingModel().solve()`` gives for it:
calibrated for a named engine, or at first order where the space says an efficiency.

    ttft_s      prefill of ``prefill_batch_size`` prompts (of the whole batch unless given) and the hand-over of their caches
    itl_s       mean step between two tokens of an answer, undisturbed
    tpot_s      what a client sees between tokens: itl and, where prompts run on the same devices, the prefills of the others
    e2e_s       a whole request; service = e2e + the last step
    requests_per_second = replicas x batch / service; apart, the slower of the prefill and of the decode replicas

With ``prefill_batch_size`` below the batch a request waits only for the prompts that are read with its own before its
first token, and for those of the others of its batch while it is answered, as continuous batching does. With ``concurrency``
instead of a batch, each replica answers as many clients at once as its caches hold and the rest wait; calibrated, clients
are in a closed loop (:mod:`mlsysim.cases.closed_loop`) and ``itl_s`` is the engine's decode step.

What a degree does not divide is no design (``valid`` is False). Wall 1 rejects a chip without the arithmetic, 14 one without
links, 2 what does not fit. ``mfu`` counts the model's own operations, not those of a draft model.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from mlsysim.cases.limited import Drawing, limited
from mlsysim.cases.machines import Engines, Replicated, drafting
from mlsysim.cases.phases import MAX_CHUNKS
from mlsysim.cases.pools import Pool
from mlsysim.cases.serve import Served, loads, serve
from mlsysim.cases.traffic import Habits, Traffic
from mlsysim.errors import InputError
from mlsysim.search import deployments
from mlsysim.search.costs import CostedPool, served_tokens, site_at, sites_of
from mlsysim.search.deployments import INPUTS, Built, Deployments, Replicas, is_calibrated
from mlsysim.search.kinds import asked_of
from mlsysim.search.series import sums_over_steps
from mlsysim.timing.power import mean_power
from mlsysim.walls.inputs import CALIBRATED, Inputs
from mlsysim.walls.node.engine_inputs import drafting_habits, traffic_with
from mlsysim.walls.node.serving import ServingModel, ServingResult

if TYPE_CHECKING:
    from mlsysim.search.space import Columns, Space

__all__ = ["INPUTS", "LARGER", "OBJECTIVE", "OUTPUTS", "answer", "evaluate", "is_calibrated"]

MEMORY = 2

LARGER = (
    *("tokens_per_second", "tokens_per_second_per_user", "tokens_per_second_per_device", "requests_per_second"),
    *("active_requests", "mfu"),
)
_PLACED = ("kgco2e_per_mtoken", "litres_per_mtoken")
OUTPUTS = (
    *("ttft_s", "itl_s", "tpot_s", "e2e_s", "longest_stall_s", *LARGER[:-1], "devices", "mfu", "memory_bytes"),
    *("usd_per_mtoken", "kwh_per_mtoken", *_PLACED),
)
"""Numbers of a point, beside ``valid``, ``feasible`` and ``wall``."""
OBJECTIVE = "usd_per_mtoken"


def evaluate(space: Space, columns: Columns) -> dict[str, Any]:
    """Outputs at these points."""
    if "serving" not in space.cache:
        space.cache["serving"] = ServingPoints(space)
    points: ServingPoints = space.cache["serving"]
    return points.evaluate(columns)


def answer(given: dict[str, Any]) -> ServingResult:
    """What ServingModel says of the deployment of a point."""
    given = {deployments.canonical(name): value for name, value in given.items() if value != deployments.NONE}
    if "decode_hardware" not in given:
        given.pop("network_bandwidth", None)
    return ServingModel().solve(**asked_of(ServingModel, INPUTS, deployments.with_formats(given)))


class ServingPoints:
    """The points of one space."""

    def __init__(self, space: Space) -> None:
        self.on_axes, self.fixed = deployments.inputs_of(space)
        self.calibrated = self.fixed.get("efficiency") == CALIBRATED
        places, rents = (
            space.values(self.on_axes[name]) if name in self.on_axes else (self.fixed.get(name),)
            for name in ("datacenter", "cloud_price")
        )
        self.sites = sites_of(places, around=True)
        commitments = tuple(value for value in rents if isinstance(value, str))
        self.deployments = Deployments(space, self.on_axes, self.fixed, self.calibrated, commitments)
        wanted = [goal.output for goal in (space.goal, *space.pareto) if goal is not None]
        wanted += [name for expression in space.subject_to for name in expression.names]
        for name in _PLACED:
            # An output that no point can have is an error where it is asked for.
            if name in wanted and places == (None,):
                raise InputError(f"{name} is not known for these points: give a 'grid'.", field="datacenter")
        given = {*self.on_axes, *self.fixed} if self.calibrated else set()
        if "bandwidth_efficiency" in given:
            raise InputError("bandwidth_efficiency is for the first order; engines have their own.", field="efficiency")
        if {"concurrency", "prefill_batch_size"} <= given:
            words = "'concurrency' and 'prefill_batch_size' cannot be given together; efficiency = 0.5 is first order"
            raise InputError(f"calibrated, {words}.", field="prefill_batch_size")

    def evaluate(self, columns: Columns) -> dict[str, Any]:
        """All outputs of a tile, in parts that the kernels can take together."""
        size = columns.size
        status, places, groups = (
            np.broadcast_to(row, (size,)).astype(np.int64) for row in self.deployments.table.take(columns).values()
        )
        valid = (status != deployments.NO_DESIGN) & self._whole(columns, size)
        found: dict[str, Any] = {name: np.full(size, np.nan) for name in OUTPUTS}
        feasible = np.zeros(size, dtype=bool)
        wall = np.where(valid, status, 0).astype(np.int8)
        good = valid & (status == 0)
        for group in np.unique(groups[good]).tolist():
            here = good & (groups == group)
            index = slice(None) if here.all() else np.flatnonzero(here)
            outputs = self._part(columns, places[index], index)
            fits = outputs.pop("fits")
            feasible[index] = fits
            wall[index] = np.where(fits, 0, MEMORY)
            for name, values in outputs.items():
                found[name][index] = values
        return {"valid": valid, "feasible": feasible, "wall": wall, **found}

    def _column(self, columns: Columns, key: str, index: Any) -> Any:
        """An input at some points: an array, or one number for all."""
        if key not in self.on_axes:
            return self.fixed.get(key, INPUTS[key].default)
        values = columns[self.on_axes[key]][index]
        return values.astype(np.float64) if values.dtype.kind in "iub" else values

    def _whole(self, columns: Columns, size: int) -> Any:
        """Whether the prompt is not shorter than what is cached of it, and has no more chunks than are evaluated."""
        names = ("seq_len", "cached_prefix_len", "prefill_chunk_tokens")
        prompt, cached, chunk = (self._column(columns, name, slice(None)) for name in names)
        whole = np.broadcast_to(np.asarray(cached <= prompt), (size,))
        if chunk is None or (self.calibrated and "concurrency" in {*self.on_axes, *self.fixed}):
            return whole
        new = np.maximum(prompt - cached, 1)
        return whole & (np.ceil(new / np.minimum(chunk, new)) <= MAX_CHUNKS)

    def _part(self, columns: Columns, places: Any, index: Any) -> dict[str, Any]:
        """Outputs of points that share a model, a draft model, and one pool of devices or two."""
        built = self.deployments.built[places[0]]
        model, draft = built.described.model, built.described.draft
        given = {name: self._column(columns, name, index) for name in (*deployments.NUMBERS, *deployments.COSTS)}
        rates = (1.0, 1.0) if self.calibrated else (given["efficiency"], given["bandwidth_efficiency"])
        reader = writer = self.deployments.replicas(places, "writer", model, *rates)
        if built.apart:
            reader = self.deployments.replicas(places, "reader", model, *rates)
        drafts = None if draft is None else self.deployments.replicas(places, "draft", draft, *rates)
        machine = built.machine if isinstance(built.machine, Engines) else Replicated(reader, writer, drafts)
        if given["concurrency"] is not None and not model.has_dimensions:
            raise InputError(f"concurrency needs the size of the cache of {model.name}.", field="concurrency")
        stated = "draft_acceptance_rate" in (*self.on_axes, *self.fixed)
        told = Inputs(given)
        x = replace(traffic_with(told, Habits(**drafting_habits(told, stated))), concurrency=given["concurrency"])
        x = machine.asked(x)
        memories, asked = machine.memories(x), x
        x = x.admitted(memories[0])
        if given["power_cap"] is not None:
            # As ServingModel does: at the batch that the clients make.
            batch = replace(asked, concurrency=None, batch=x.batch).admitted(memories[0])
            reads, writes = (Drawing(each.power, each.energy) for each in (reader, writer))
            machine = limited(machine, batch, reads, writes, given["power_cap"])
        pools = [(memory.used(held), memory.capacity) for memory, held in loads(machine, x, memories)]
        needed, capacity = pools[0]
        for used, room in pools[1:]:
            fuller = used / room > needed / capacity
            needed, capacity = np.where(fuller, used, needed), np.where(fuller, room, capacity)
        served = serve(machine, x, total=sums_over_steps(places.size))
        x = replace(drafting(machine, x), batch=np.maximum(served.active / x.replicas, 1.0))
        tokens = served.requests * x.answer
        costed = self._pools(built, reader, writer, x, served, (given["power_cap"], machine.reader.clocks))
        devices = sum((pool.devices for pool in costed), 0.0)
        at = columns.positions[self.on_axes["datacenter"]][index] if "datacenter" in self.on_axes else 0
        return {
            "fits": needed <= capacity,
            "ttft_s": served.ttft,
            "itl_s": served.itl,
            "tpot_s": served.tpot,
            "e2e_s": served.e2e,
            "longest_stall_s": served.stall,
            "requests_per_second": served.requests,
            "tokens_per_second": tokens,
            "tokens_per_second_per_user": 1 / served.tpot,
            "tokens_per_second_per_device": tokens / devices,
            "active_requests": served.active,
            "devices": devices,
            "mfu": sum(pool.devices * pool.mfu for pool in costed) / devices,
            "memory_bytes": needed,
            **served_tokens(given, site_at(self.sites, at), costed, tokens),
        }

    def _pools(
        self, built: Built, reader: Replicas, writer: Replicas, x: Traffic, served: Served, limit: tuple[Any, Any]
    ) -> list[CostedPool]:
        """The devices at work: one pool, or one that reads prompts and one that writes answers."""
        pools = [(writer, x.replicas, not built.apart, True)]
        if built.apart:
            pools.insert(0, (reader, x.prefills, True, False))
        return [
            self._pool(built.described, each, Pool(count, each.width * each.pp, reads, writes), x, served, *limit)
            for each, count, reads, writes in pools
        ]

    def _pool(
        self, of: Any, replica: Replicas, pool: Pool, x: Traffic, served: Served, cap: Any, clocks: Any
    ) -> CostedPool:
        model, requests, clients = of.model, served.requests, x.concurrency
        mfu = requests * pool.operations(model, x) / (pool.devices * replica.peak)
        working = pool.working(clients) / pool.devices

        def power(utilization: Any) -> Any:
            """kW of a device that is in use so much of the time where its replica has a client, and waits for the rest."""
            known, used = replica.power, utilization * working
            busy = 1.0 if clients is None else pool.busy(served.ttft, served.e2e - served.ttft, clients)
            seen = requests, busy, clocks, of.draft, clients
            does = pool.activity(model, known, replica.energy, of.precision, x, *seen)
            drawn = mean_power(known, does, cap)
            wait = known.wait if cap is None else np.minimum(known.wait, cap)
            return (used * drawn + (1 - used) * wait) / 1000

        around = replica.around, replica.per_node, replica.hosted, replica.tdp
        return CostedPool(pool.devices, replica.unit_cost, mfu, replica.rents, power, *around)
