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
from mlsysim.cases.serve import Engines, Replicated, Traffic, serve
from mlsysim.errors import InputError
from mlsysim.models.demand import sequence_demand
from mlsysim.physics.precision import bytes_per_element
from mlsysim.search.deployments import NO_DESIGN, Built, Deployments, Replicas
from mlsysim.search.series import sums_over_steps
from mlsysim.search.serving_costs import Pool, ServingCosts
from mlsysim.search.serving_inputs import INPUTS, NUMBERS, inputs_of
from mlsysim.timing.power import Activity, power_of, serving_activity
from mlsysim.units.registry import to_si
from mlsysim.walls.inputs import CALIBRATED

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
                    raise InputError(
                        f"calibrated, 'concurrency' and {name!r} cannot be given together; efficiency = 0.5 is first order.",
                        field=name,
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
        needed, fits = _memory(x, memories)
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

    def _pools(self, built: Built, reader: Replicas, writer: Replicas, x: Traffic, requests: Any) -> list[Pool]:
        """The devices at work: one pool, or one that reads prompts and one that writes answers."""
        reading, writing = _operations(built.described.model, x)
        if not built.apart:
            return [self._pool(built, 1, writer, x.replicas, requests * (reading + writing), x, requests)]
        return [
            self._pool(built, 0, reader, x.prefills, requests * reading, x, requests),
            self._pool(built, 1, writer, x.replicas, requests * writing, x, requests),
        ]

    def _pool(
        self, built: Built, role: int, replica: Replicas, count: Any, rate: Any, x: Traffic, requests: Any
    ) -> Pool:
        devices = count * replica.devices
        watts = None
        if self.calibrated and built.chips[role].tdp is not None:
            watts = _running(built, role, devices, count, x, rate, requests)
        rents = dict(zip(self.deployments.commitments, replica.rents, strict=True))
        return Pool(devices, replica.unit_cost, replica.tdp, rate / (devices * replica.peak), rents, watts)


def _memory(x: Traffic, memories: list[DeviceMemory]) -> tuple[Any, Any]:
    """Bytes that the fullest device needs, and whether it has them."""
    writing = memories[0]
    need = writing.used(x.batch)
    if len(memories) == 1:
        return need, need <= writing.capacity
    reading = memories[1]
    held = reading.used(x.together)
    fuller = need / writing.capacity >= held / reading.capacity
    return np.where(fuller, need, held), (need <= writing.capacity) & (held <= reading.capacity)


def _operations(model: Any, x: Traffic) -> tuple[Any, Any]:
    """Operations of the prompt and of the answer of one request; the latter at the mean length of the cache."""
    reading = sequence_demand(model.totals, "prefill", 1, x.new, x.prompt - x.new, 1.0, 1.0, 0.0).flops
    context = x.prompt + (x.answer - 1) / 2
    return reading, x.answer * sequence_demand(model.totals, "decode", 1, 1, context, 1.0, 1.0, 0.0).flops


def _running(built: Built, role: int, devices: Any, count: Any, x: Traffic, rate: Any, requests: Any) -> Any:
    """Calibrated watts of one device of a deployment, at a share of the time in use."""
    chip, precision = built.chips[role], built.described.precision
    tokens = requests * x.answer
    batch = np.maximum(x.active / count, 1e-9)
    activity = serving_activity(
        built.described.model, chip, devices / count, batch, tokens / count, precision, x.prompt, x.answer
    )
    if built.apart:
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
