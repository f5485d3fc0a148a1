"""Spaces of kind ``serving``: deployments of a language model, their latency, throughput and cost, by the thousand.

A point is a model on replicas of chips, with degrees of parallelism, formats of weights and cache, a batch (or clients),
lengths of prompt and answer, chunked prefill, a draft model, prefill and decode on different chips, a place and prices.
Walls 2, 4, 14, 17 and 18 are called with arrays, so that a point gives what ``ServingModel().solve()`` gives for it, at first
order and, with ``efficiency = "calibrated"``, for a named engine.

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

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from mlsysim.cases.cache import DeviceMemory, engine_memory, replica_memory
from mlsysim.cases.phases import MAX_CHUNKS
from mlsysim.errors import InputError
from mlsysim.models.demand import sequence_demand
from mlsysim.physics.precision import bytes_per_element
from mlsysim.search.deployments import NO_DESIGN, Deployment, Deployments, Replicas
from mlsysim.search.serving_costs import Pool, ServingCosts
from mlsysim.search.serving_inputs import INPUTS, NUMBERS, inputs_of
from mlsysim.search.serving_times import Times, calibrated_times, clients_of, first_order_times
from mlsysim.timing.power import Activity, power_of, serving_activity
from mlsysim.units.registry import to_si
from mlsysim.walls.inputs import CALIBRATED
from mlsysim.walls.node.serving_capacity import service_time
from mlsysim.zoo.constants import constant

if TYPE_CHECKING:
    from mlsysim.search.space import Columns, Space

__all__ = ["INPUTS", "LARGER", "OBJECTIVE", "OUTPUTS", "evaluate"]

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
        self.network = to_si(constant("infiniband_ndr_bandwidth").quantity, "byte/s")
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
        if "concurrency" in given:
            for name in ("draft_model", "prefill_batch_size", "cached_prefix_len"):
                if name in given:
                    raise InputError(f"calibrated, 'concurrency' and {name!r} cannot be given together.", field=name)

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
        first = self.deployments.deployment(int(codes[0]))
        size = codes.size
        x = SimpleNamespace(**{name: self._column(columns, name, index) for name in NUMBERS})
        x.cached, x.chunk = x.cached_prefix_len, x.prefill_chunk_tokens
        x.drafted, x.acceptance = x.num_speculative_tokens, x.draft_acceptance_rate
        x.replicas = x.num_replicas
        x.prefill_replicas = x.replicas if x.prefill_replicas is None else x.prefill_replicas
        x.network = None
        if first.disaggregated:
            x.network = self._network(first) if x.network_bandwidth is None else x.network_bandwidth
        rates = (1.0, 1.0) if self.calibrated else (x.efficiency, x.bandwidth_efficiency)
        present = np.unique(codes)
        reader = writer = self.deployments.replicas(codes, present, "writer", first.model, *rates)
        if first.disaggregated:
            reader = self.deployments.replicas(codes, present, "reader", first.model, *rates)
        draft = None
        if first.draft_model is not None:
            draft = self.deployments.replicas(codes, present, "draft", first.draft_model, *rates)
        memories = self._memories(first, reader, writer, draft, x)
        self._batches(x, writer, memories[0])
        needed, fits = _memory(x, memories)
        if self.calibrated:
            answers = self._calibrated(first, writer, x, size)
        else:
            answers = _answers(x, first_order_times(reader, writer, draft, x, size), first.disaggregated)
        tokens = answers["requests_per_second"] * x.output_len
        pools = self._pools(first, reader, writer, x, answers["requests_per_second"])
        devices: Any = 0.0
        for pool in pools:
            devices = devices + pool.devices
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
            "active_requests": x.active,
            "devices": devices,
            "mfu": work / devices,
            "memory_bytes": needed,
            **costs,
        }

    def _network(self, first: Deployment) -> float:
        fabric = first.fabric
        return self.network if fabric is None else to_si(fabric.bandwidth, "byte/s")

    def _memories(
        self, first: Deployment, reader: Replicas, writer: Replicas, draft: Replicas | None, x: Any
    ) -> list[DeviceMemory]:
        """The devices that write answers and, where they are others, those that read prompts."""
        length = x.seq_len + x.output_len
        if first.steps is not None:
            prompts, answers, small = first.steps
            found = [engine_memory(answers, length, small)]
            return [*found, engine_memory(prompts, x.seq_len)] if first.disaggregated else found
        found = [replica_memory(writer, length, draft)]
        return [*found, replica_memory(reader, x.seq_len)] if first.disaggregated else found

    def _batches(self, x: Any, writer: Replicas, memory: DeviceMemory) -> None:
        """Requests that a replica answers at once, over all replicas, and how many prompts are read together."""
        if x.concurrency is None:
            x.batch = 1.0 if x.batch_size is None else x.batch_size
            x.active = x.batch * x.replicas
            together = x.batch if x.prefill_batch_size is None else x.prefill_batch_size
        else:
            if not writer.model.has_dimensions:
                raise InputError(
                    f"concurrency needs the size of the cache of {writer.model.name}.", field="concurrency"
                )
            x.batch = np.maximum(np.minimum(np.ceil(x.concurrency / x.replicas), memory.sequences), 1.0)
            x.active = np.minimum(x.batch * x.replicas, x.concurrency)
            together = 1.0 if x.prefill_batch_size is None else x.prefill_batch_size
        x.prefill_batch = np.minimum(together, x.batch)

    def _calibrated(self, first: Deployment, writer: Replicas, x: Any, size: int) -> dict[str, Any]:
        if x.concurrency is None:
            return _answers(x, calibrated_times(first, writer, x, size), first.disaggregated)
        loop, copies = clients_of(first, x)
        x.active = loop.active * copies
        return {
            "ttft_s": loop.ttft,
            "itl_s": loop.decode_step,
            "tpot_s": loop.tpot,
            "e2e_s": loop.ttft + (x.output_len - 1) * loop.tpot,
            "longest_stall_s": 0.0 if first.disaggregated else loop.prompt_step,
            "requests_per_second": loop.request_rate * copies,
        }

    # --- devices ----------------------------------------------------------------------------------------------

    def _pools(self, first: Deployment, reader: Replicas, writer: Replicas, x: Any, requests: Any) -> list[Pool]:
        """The devices at work: one pool, or one that reads prompts and one that writes answers."""
        reading, writing = _operations(first.model, x)
        if not first.disaggregated:
            return [self._pool(first, 1, writer, x.replicas, requests * (reading + writing), x, requests)]
        return [
            self._pool(first, 0, reader, x.prefill_replicas, requests * reading, x, requests),
            self._pool(first, 1, writer, x.replicas, requests * writing, x, requests),
        ]

    def _pool(
        self, first: Deployment, role: int, replica: Replicas, count: Any, rate: Any, x: Any, requests: Any
    ) -> Pool:
        devices = count * replica.devices
        watts = None
        if self.calibrated and first.chips[role].tdp is not None:
            watts = _running(first, role, devices, count, x, rate, requests)
        rents = dict(zip(self.deployments.commitments, replica.rents, strict=True))
        return Pool(devices, replica.unit_cost, replica.tdp, rate / (devices * replica.peak), rents, watts)


def _memory(x: Any, memories: list[DeviceMemory]) -> tuple[Any, Any]:
    """Bytes that the fullest device needs, and whether it has them."""
    writing = memories[0]
    need = writing.used(x.batch)
    if len(memories) == 1:
        return need, need <= writing.capacity
    reading = memories[1]
    held = reading.used(x.prefill_batch)
    fuller = need / writing.capacity >= held / reading.capacity
    return np.where(fuller, need, held), (need <= writing.capacity) & (held <= reading.capacity)


def _answers(x: Any, times: Times, disaggregated: bool) -> dict[str, Any]:
    """Latency and rate of requests from the times of prefill and decode."""
    ttft = times.prefill + times.transfer
    more = x.output_len - 1
    if disaggregated:
        stall: Any = 0.0
        reading = x.prefill_replicas * x.prefill_batch / np.maximum(times.prefill, times.transfer)
        requests = np.minimum(reading, x.replicas * x.batch / (x.output_len * times.itl))
        service = x.replicas * x.batch / requests
    else:
        # While a request is answered, the other prompts of its batch are read too.
        stall = (x.batch / x.prefill_batch - 1) * times.prefill
        service = service_time(ttft + stall, times.itl, x.output_len)
        requests = x.active / service
    e2e = ttft + stall + more * times.itl
    if x.concurrency is not None:
        waiting = np.maximum(x.concurrency / (x.batch * x.replicas) - 1, 0.0) * service
        ttft, e2e = ttft + waiting, e2e + waiting
        requests = np.minimum(requests, x.concurrency / e2e) if disaggregated else requests
    return {
        "ttft_s": ttft,
        "itl_s": times.itl,
        "tpot_s": times.itl + stall / np.maximum(more, 1),
        "e2e_s": e2e,
        "longest_stall_s": 0.0 if disaggregated else times.longest_pass,
        "requests_per_second": requests,
    }


def _operations(model: Any, x: Any) -> tuple[Any, Any]:
    """Operations of the prompt and of the answer of one request; the latter at the mean length of the cache."""
    new = np.maximum(x.seq_len - x.cached, 1)
    reading = sequence_demand(model.totals, "prefill", 1, new, x.seq_len - new, 1.0, 1.0, 0.0).flops
    context = x.seq_len + (x.output_len - 1) / 2
    return reading, x.output_len * sequence_demand(model.totals, "decode", 1, 1, context, 1.0, 1.0, 0.0).flops


def _running(first: Deployment, role: int, devices: Any, count: Any, x: Any, rate: Any, requests: Any) -> Any:
    """Calibrated watts of one device of a deployment, at a share of the time in use."""
    chip, precision = first.chips[role], first.precision
    tokens = requests * x.output_len
    batch = np.maximum(x.active / count, 1e-9)
    activity = serving_activity(
        first.model, chip, devices / count, batch, tokens / count, precision, x.seq_len, x.output_len
    )
    if first.disaggregated:
        # Each pool does its own part of the operations; readers hardly wait for memory.
        narrow = 0.5 if bytes_per_element(precision) < 2 else 1.0
        peak = to_si(chip.compute.peak("bf16" if chip.compute.supports("bf16") else chip.compute.headline), "flop/s")
        activity = Activity(rate * narrow / devices / peak, activity.memory if role else 0.0, 1.0, activity.converting)

    def watts(utilization: Any) -> Any:
        share = Activity(
            activity.arithmetic * utilization, activity.memory * utilization, utilization, activity.converting
        )
        return power_of(chip, share)

    return watts


def _at(values: Any, index: Any) -> Any:
    return values if index is None else values[index]
