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

from mlsysim.cases.cache import DeviceMemory
from mlsysim.cases.phases import MAX_CHUNKS
from mlsysim.cases.pools import Pool, first_order_power
from mlsysim.cases.serve import Engines, Replicated, loads, serve
from mlsysim.cases.traffic import Traffic
from mlsysim.errors import InputError
from mlsysim.hardware.types import HardwareNode
from mlsysim.search.deployments import NO_DESIGN, Built, Deployments, Replicas
from mlsysim.search.series import sums_over_steps
from mlsysim.search.serving_costs import CostedPool, ServingCosts
from mlsysim.search.serving_inputs import INPUTS, NUMBERS, inputs_of
from mlsysim.timing.power import power_of
from mlsysim.walls.inputs import CALIBRATED

if TYPE_CHECKING:
    from mlsysim.search.space import Columns, Space


MEMORY = 2

OUTPUTS = (
    "ttft_s",
    "itl_s",
    "tpot_s",
    "e2e_s",
    "longest_stall_s",
    "tokens_per_second",
    "tokens_per_second_per_user",
    "tokens_per_second_per_device",
    "requests_per_second",
    "active_requests",
    "devices",
    "mfu",
    "memory_bytes",
    "usd_per_mtoken",
    "kwh_per_mtoken",
    "kgco2e_per_mtoken",
    "litres_per_mtoken",
)
"""Numbers of a point, beside ``valid``, ``feasible`` and ``wall``."""

LARGER = (
    "tokens_per_second",
    "tokens_per_second_per_user",
    "tokens_per_second_per_device",
    "requests_per_second",
    "active_requests",
    "mfu",
)
OBJECTIVE = "usd_per_mtoken"

_PLACED = ("kgco2e_per_mtoken", "litres_per_mtoken")


def evaluate(space: Space, columns: Columns) -> dict[str, Any]:
    """Outputs at these points."""
    if "serving" not in space.cache:
        space.cache["serving"] = ServingPoints(space)
    points: ServingPoints = space.cache["serving"]
    return points.evaluate(columns)


class ServingPoints:
    """The points of one space."""

    def __init__(self, space: Space) -> None:
        self.on_axes, self.fixed = inputs_of(space)
        self.calibrated = self.fixed.get("efficiency") == CALIBRATED
        self.costs = ServingCosts(space, self.on_axes, self.fixed)
        commitments = self.costs.commitments()
        self.deployments = Deployments(space, self.on_axes, self.fixed, self.calibrated, commitments)
        self._refuse_unknown(space)
        if self.calibrated:
            self._refuse_uncalibrated()

    def _refuse_unknown(self, space: Space) -> None:
        """An output that no point can have is an error where it is asked for."""
        wanted = [goal.output for goal in (space.goal, *space.pareto) if goal is not None]
        wanted += [name for expression in space.subject_to for name in expression.names]
        for name in _PLACED:
            if name in wanted and not self.costs.has_place:
                raise InputError(f"{name} is not known for these points: give a 'grid'.", field="datacenter")

    def _refuse_uncalibrated(self) -> None:
        given = {*self.on_axes, *self.fixed}
        if "bandwidth_efficiency" in given:
            raise InputError("bandwidth_efficiency is for the first order; engines have their own.", field="efficiency")
        if "concurrency" in given and "prefill_batch_size" in given:
            raise InputError(
                "calibrated, 'concurrency' and 'prefill_batch_size' cannot be given together; efficiency = 0.5 is first order.",
                field="prefill_batch_size",
            )

    # --- a tile -----------------------------------------------------------------------------------------------

    def evaluate(self, columns: Columns) -> dict[str, Any]:
        """All outputs of a tile, in parts that the kernels can take together."""
        size = columns.size
        codes = np.broadcast_to(np.asarray(self.deployments.codes(columns), dtype=np.int64), (size,))
        status = self.deployments.status(codes)
        valid = (status != NO_DESIGN) & self._whole(columns, size)
        found: dict[str, Any] = {name: np.full(size, np.nan) for name in OUTPUTS}
        feasible = np.zeros(size, dtype=bool)
        wall = np.where(valid, status, 0).astype(np.int8)
        keys = codes if self.calibrated else self.deployments.group(codes)
        good = valid & (status == 0)
        for key in np.unique(keys[good]).tolist() if good.any() else ():
            here = good & (keys == key)
            index = None if here.all() else np.flatnonzero(here)
            outputs = self._part(columns, codes if index is None else codes[index], index)
            fits = outputs.pop("fits")
            where = slice(None) if index is None else index
            feasible[where] = fits
            wall[where] = np.where(fits, 0, MEMORY)
            for name, values in outputs.items():
                found[name][where] = values
        return {"valid": valid, "feasible": feasible, "wall": wall, **found}

    def _column(self, columns: Columns, key: str, index: Any) -> Any:
        """An input at some points: an array, or one number for all."""
        if key not in self.on_axes:
            return self.fixed.get(key, INPUTS[key].default)
        values = columns[self.on_axes[key]]
        values = values.astype(np.float64) if values.dtype.kind in "iub" else values
        return values if index is None else values[index]

    def _whole(self, columns: Columns, size: int) -> Any:
        """Whether the prompt is not shorter than what is cached of it, and has no more chunks than are evaluated."""
        prompt, cached, chunk = (
            self._column(columns, n, None) for n in ("seq_len", "cached_prefix_len", "prefill_chunk_tokens")
        )
        whole = np.broadcast_to(np.asarray(cached <= prompt), (size,))
        if chunk is None or (self.calibrated and "concurrency" in {*self.on_axes, *self.fixed}):
            return whole
        new = np.maximum(prompt - cached, 1)
        return whole & (np.ceil(new / np.minimum(chunk, new)) <= MAX_CHUNKS)

    def _part(self, columns: Columns, codes: Any, index: Any) -> dict[str, Any]:
        """Outputs of points that share a model, a draft model, and one pool of devices or two."""
        built = self.deployments.deployment(int(codes[0]))
        described = built.described
        present = np.unique(codes)
        given = {name: self._column(columns, name, index) for name in NUMBERS}
        rates = (1.0, 1.0) if self.calibrated else (given["efficiency"], given["bandwidth_efficiency"])
        reader = writer = self.deployments.replicas(codes, present, "writer", described.model, *rates)
        if built.apart:
            reader = self.deployments.replicas(codes, present, "reader", described.model, *rates)
        draft = None
        if described.draft is not None:
            draft = self.deployments.replicas(codes, present, "draft", described.draft, *rates)
        machine = built.machine if isinstance(built.machine, Engines) else Replicated(reader, writer, draft)
        if given["concurrency"] is not None and not described.model.has_dimensions:
            raise InputError(f"concurrency needs the size of the cache of {described.model.name}.", field="concurrency")
        x = self._traffic(given)
        memories = machine.memories(x)
        x = x.admitted(memories[0])
        needed, fits = _fullest(loads(machine, x, memories))
        served = serve(machine, x, total=sums_over_steps(codes.size))
        answers = {
            "ttft_s": served.ttft,
            "itl_s": served.itl,
            "tpot_s": served.tpot,
            "e2e_s": served.e2e,
            "longest_stall_s": served.stall,
            "requests_per_second": served.requests,
        }
        x = replace(x, batch=served.active / x.replicas)
        tokens = served.requests * x.answer
        pools = self._pools(built, reader, writer, x, served.requests)
        devices = sum((pool.devices for pool in pools), 0.0)
        costs = self.costs.per_million(
            lambda name: self._column(columns, name, index),
            lambda name: _at(columns.positions[self.on_axes[name]], index),
            pools,
            tokens,
        )
        work = sum(pool.devices * pool.mfu for pool in pools)
        return {
            **answers,
            "fits": fits,
            "tokens_per_second": tokens,
            "tokens_per_second_per_user": 1 / answers["tpot_s"],
            "tokens_per_second_per_device": tokens / devices,
            "active_requests": served.active,
            "devices": devices,
            "mfu": work / devices,
            "memory_bytes": needed,
            **costs,
        }

    def _traffic(self, given: dict[str, Any]) -> Traffic:
        """What is asked at the points."""
        return Traffic(
            prompt=given["seq_len"],
            answer=given["output_len"],
            batch=1.0 if given["batch_size"] is None else given["batch_size"],
            concurrency=given["concurrency"],
            together=given["prefill_batch_size"],
            cached=given["cached_prefix_len"],
            chunk=given["prefill_chunk_tokens"],
            drafted=given["num_speculative_tokens"],
            acceptance=given["draft_acceptance_rate"],
            replicas=given["num_replicas"],
            prefill_replicas=given["prefill_replicas"],
            network=given["network_bandwidth"],
        )

    # --- devices ----------------------------------------------------------------------------------------------

    def _pools(self, built: Built, reader: Replicas, writer: Replicas, x: Traffic, requests: Any) -> list[CostedPool]:
        """The devices at work: one pool, or one that reads prompts and one that writes answers."""
        chips, writes = built.chips, Pool(x.replicas, writer.width * writer.pp, reads=not built.apart)
        found = [self._pool(built, chips[1], writer, writes, x, requests)]
        if not built.apart:
            return found
        reads = Pool(x.prefills, reader.width * reader.pp, writes=False)
        return [self._pool(built, chips[0], reader, reads, x, requests), *found]

    def _pool(
        self, built: Built, chip: HardwareNode, replica: Replicas, pool: Pool, x: Traffic, requests: Any
    ) -> CostedPool:
        model, precision = built.described.model, built.described.precision
        mfu = requests * pool.operations(model, x) / (pool.devices * replica.peak)

        def power(utilization: Any) -> Any:
            """Of a device that is in use so much of the time; in the unit of the TDP, which is kW."""
            if not self.calibrated or chip.tdp is None:
                return first_order_power(replica.tdp, mfu * utilization)
            activity = pool.activity(model, chip, precision, x, requests * utilization, utilization)
            return power_of(chip, activity) / 1000

        rents = dict(zip(self.deployments.commitments, replica.rents, strict=True))
        return CostedPool(pool.devices, replica.unit_cost, mfu, rents, power)


def _fullest(pools: list[tuple[DeviceMemory, Any]]) -> tuple[Any, Any]:
    """Bytes that the fullest device needs, and whether all have them."""
    needed: Any = 0.0
    share: Any = -1.0
    fits: Any = True
    for memory, held in pools:
        used = memory.used(held)
        needed, share = (
            np.where(used / memory.capacity > share, used, needed),
            np.maximum(used / memory.capacity, share),
        )
        fits = fits & (used <= memory.capacity)
    return needed, fits


def _at(values: Any, index: Any) -> Any:
    return values if index is None else values[index]
