"""Walls 1 and 2, compute and memory: the roofline of one device.

    T = max( F / (P eta), B / W ) + dispatch                                   (Williams, Waterman, Patterson 2009)

F operations at a fraction eta of the dense peak P; B bytes (weights, caches, activations) at memory bandwidth W. Without
``seq_len`` or ``phase`` a language model is asked for one decode token per sequence with an empty cache; with
``seq_len`` for a prefill of that many tokens; with ``is_training`` for a training step. A denoiser is asked for one of its passes,
with ``phase="generate"`` for whole images. The arithmetic is that of :mod:`mlsysim.cases.one_pass`; this module asks it.

With ``efficiency="calibrated"`` the time is the sum of the pass's operators on measured silicon instead
(:mod:`mlsysim.cases.pass_times`), for the ``runtime`` that is named. ``latency_compute``, ``latency_memory`` and
``latency_overhead`` are then what walls 1, 2 and 3 have of the critical path and add up to ``latency``; ``interval`` is the band
in which 90 % of the measurements of that form lay.

A model that does not fit is infeasible, and the answer says what is needed, what there is, and the smallest changes that would
help. Its time is still given, as if the part that does not fit were streamed from the host.

Assumed: compute and memory overlap perfectly; all of the peak bandwidth is reached (real kernels reach 0.7 to 0.9, so
memory-bound times are 10 to 40 % short; ``bandwidth_efficiency`` sets it). Left out: caches on the chip, kernel launches
beyond one dispatch per pass (small batches on small models are dominated by them), activations in decode (below 2 %).
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from mlsysim.cases import one_pass
from mlsysim.cases.cache import larger
from mlsysim.cases.one_pass import Device, Timed, Work
from mlsysim.cases.pass_times import calibrated_pass, refuse_runtime
from mlsysim.errors import InputError, OOMError
from mlsysim.hardware.arithmetic import storage_formats
from mlsysim.models.storage import check_trained
from mlsysim.models.widths import why_unknown
from mlsysim.timing.engines import device_memory
from mlsysim.units.text import bytes_text
from mlsysim.walls.base import CALIBRATED, Assumptions, Binding, Inputs, Resolver, declared, written
from mlsysim.walls.binding import NAMES, too_full
from mlsysim.walls.node.performance import PerformanceProfile

if TYPE_CHECKING:
    from mlsysim.cases.training_pass import TrainingStep

CARDS = """
1 Compute: peak FLOP/s
T = F / (P eta) (Williams et al. 2009)
How long does the arithmetic take?

2 Memory: memory bandwidth and capacity
T = B / W;  bytes <= capacity (Williams et al. 2009)
How long does it take to feed the arithmetic, and does it fit?
"""

_TRAINING_ONLY = (
    *("zero_stage", "dp_size", "is_lora", "lora_rank", "activation_recomputation", "optimizer"),
    "raise_errors",
)
CALIBRATED_ONLY = ("devices", "ring", "random_arrivals", "measured_rate")


class SingleNodeModel(Resolver[PerformanceProfile]):
    """Roofline of one device: is it compute or memory that binds, and does the model fit?"""

    walls = (1, 2)
    inputs = declared("""
        model, hardware
        batch_size = 1 | whole [1, 1e9] | sequences or samples in the pass
        precision, efficiency or calibrated
        raise_errors = no | flag | raise OOMError where the model does not fit
        is_training = no | flag | a training step instead of inference
        seq_len? | whole [0, 1e8] | new tokens per sequence; the context in decode
        phase? | one of prefill, decode, training, inference, generate | prefill, decode, training, inference, or generate (all \
            denoising steps of an image)
        zero_stage = 0 | whole [0, 3] | ZeRO stage of training
        dp_size = 1 | whole [1, 1e6] | data-parallel group that shares the state
        is_lora = no | flag | train low-rank adapters on frozen weights
        lora_rank = 16 | whole [1, 4096] | rank of the adapters
        activation_recomputation = none | one of none, selective, full | activations that training recomputes
        optimizer = adam | object | optimizer of training
        cache_precision? | precision | number format of the cache
        bandwidth_efficiency = 1.0 | (0, 1] | fraction of the memory bandwidth that is reached
        runtime? | object | software of calibrated times: a serving engine (vLLM ...), or of a network of fixed shape \
            (compiled, eager, tensorrt ...) | eager
        devices = 1 | whole [1, 1024] | devices that share each image of a calibrated denoiser
        ring = 1 | whole [1, 1024] | of them, those that pass keys and values around
        random_arrivals = no | flag | samples come at random and may not wait long (calibrated, tensorrt)
        measured_rate? | (0, 1e12] | measured samples a second, for the energy (calibrated)
        power_cap
    """)
    equations = written(r"""
        latency_compute if at_peak: T_compute = F / (P eta)
            T_{\mathrm{compute}} = \frac{F}{P\,\eta}
            F = flops in flop, P = device.peak in flop/s, eta = efficiency
        latency_compute if slowed: T_compute = k F / (P eta), k for what is in wider formats, is expanded, or waits for a limit of power
            T_{\mathrm{compute}} = \frac{k\,F}{P\,\eta}
            F = flops in flop, P = device.peak in flop/s, eta = efficiency, k = timed.slower
        latency_memory if throttled: T_memory = k B / W, k for a limit of power
            T_{\mathrm{memory}} = \frac{k\,B}{W}
            B = bytes in byte, W = device.bandwidth in byte/s, k = timed.streaming
        latency_memory if fits: T_memory = B / W
            T_{\mathrm{memory}} = \frac{B}{W}
            B = bytes in byte, W = device.bandwidth in byte/s
        latency_memory if spilled: T_memory = (B - S) / W + S / L, with S spilled to the host
            T_{\mathrm{memory}} = \frac{B - S}{W} + \frac{S}{L}
            B = bytes in byte, S = spilled in byte, W = device.bandwidth in byte/s, L = device.host_link in byte/s
        latency if first_order: T = max(T_compute, T_memory) + T_dispatch
            T = \max(T_{\mathrm{compute}}, T_{\mathrm{memory}}) + T_{\mathrm{dispatch}}
            T_compute = latency_compute in s, T_memory = latency_memory in s, T_dispatch = latency_overhead in s
        latency if calibrated: T = sum over operators of t0 + |F / R, B / (e W)| = arithmetic + memory + starts and launches
            T = \sum_{\mathrm{operators}} t_0 + \left\| \frac{F}{R}, \frac{B}{e\,W} \right\|
            arithmetic = latency_compute in s, memory = latency_memory in s, starts and launches = latency_overhead in s
        latency if microcontroller: T = M / (r f), with M multiply-adds at r a cycle (core, kind of network and runtime)
            T = \frac{M}{r\,f}
            M = macs, r = per_cycle, f = clock in 1/s
    """)
    known_fallacies = (
        "More FLOP/s make decode faster: below the ridge point only bandwidth, batching or fewer bytes do.",
        "Peak FLOP/s rank chips: a workload left of the ridge point ranks them by bandwidth.",
        "A model that almost fits runs almost as fast: what spills moves at the speed of the host link.",
    )

    def _solve(self, x: Inputs, assumed: Assumptions) -> PerformanceProfile:
        """Evaluate one pass on one device."""
        return _packed(x, _asked(x, assumed), assumed)


class _Answered(NamedTuple):
    """What is asked of which device, and the times of it."""

    phase: str
    step: TrainingStep | None
    work: Work
    device: Device
    timed: Timed


def _asked(x: Inputs, assumed: Assumptions) -> _Answered:
    """The pass that the inputs ask for, timed."""
    if x.runtime is not None and not isinstance(x.runtime, str):
        raise InputError(f"The 'runtime' of SingleNodeModel is a name, not {x.runtime!r:.80}.", field="runtime")
    phase, new, context = one_pass.asked_pass(x.model, x.phase, x.seq_len, x.is_training, assumed)
    device = replace(one_pass.device_of(x.hardware, x.precision, x.bandwidth_efficiency, assumed), cap=x.power_cap)
    efficiency = None if x.efficiency == CALIBRATED else x.efficiency
    if efficiency is None:
        device = replace(device, capacity=device_memory(x.hardware))
    for name in CALIBRATED_ONLY:
        if name in assumed.given and (efficiency is not None or phase == "training"):
            raise InputError(f"{name!r} changes calibrated forward passes alone; leave it out.", field=name)
        assumed.pop(name, None)
    if phase == "training":
        # A forward pass needs none of a training step's modules, which take longer to load than it does to answer.
        from mlsysim.cases.training_pass import TrainingStep, training_pass, training_work

        check_trained(x.precision, x.is_lora, x.hardware.compute, x.hardware.name)
        rank, sizes = x.lora_rank if x.is_lora else None, (x.batch_size, new, x.precision, x.optimizer)
        sharing = x.activation_recomputation, x.zero_stage, x.dp_size, rank
        step = TrainingStep(x.model, *sizes, *sharing, efficiency is None, x.runtime)
        work, held = training_work(step)
        timed = training_pass(step, work, held, device, x.hardware, efficiency, x.runtime, assumed)
        return _Answered(phase, step, work, device, timed)
    for name in _TRAINING_ONLY:
        assumed.pop(name, None)
    shared = x.devices, x.ring, x.random_arrivals, x.measured_rate
    question = one_pass.Pass(x.model, phase, x.batch_size, new, context, x.precision, x.cache_precision, *shared)
    work = one_pass.work_of(question)
    if unknown := why_unknown(x.model):
        assumed["activations"] = unknown
    if efficiency is None:
        timed = calibrated_pass(question, work, device, x.hardware, x.runtime, assumed)
    else:
        refuse_runtime(x.model, x.hardware, x.runtime, efficiency)
        timed = one_pass.first_order_pass(work, device, efficiency, x.hardware)
    return _Answered(phase, None, work, device, timed)


def _packed(x: Inputs, asked: _Answered, assumed: Assumptions) -> PerformanceProfile:
    """The result that is read off a timed pass."""
    phase, step, work, device, timed = asked
    work = timed.work or work
    chip, seconds, calibrated, fits = x.hardware, timed.seconds, x.efficiency == CALIBRATED, timed.fits
    place = one_pass.held_by(work, device)[1] if step is None else ""
    if place:
        sizes = bytes_text(work.weights), bytes_text(device.flash)
        assumed["weights"] = f"{sizes[0]} executed in place from {sizes[1]} of flash, none in RAM"
    stopped, found = (None, ()) if fits else _does_not_fit(x, step, timed, place)
    if not fits and chip.interconnect is None and timed.cycles is None:
        assumed["spill"] = f"{chip.name} has no host link to stream over: times are given as if the model fitted"
    return PerformanceProfile.of(
        assumed,
        feasible=fits,
        binding=stopped,
        throughput=x.batch_size / seconds,
        bottleneck=NAMES[timed.binding_wall] if fits else "Memory",
        arithmetic_intensity=work.flops / work.moved,
        peak_flops_actual=work.hardware_flops / seconds if calibrated else device.peak * x.efficiency / timed.slower,
        peak_bw_actual=work.moved / (seconds if calibrated else timed.memory),
        mfu=work.flops / (seconds * device.peak),
        hfu=work.hardware_flops / (seconds * device.peak),
        phase=phase,
        constraint_trace=() if stopped is None else (stopped.sentence,),
        remedies=found,
        offload_spill_bytes=None if fits else timed.spilled,
        offload_effective_bw=None if fits or not timed.memory else work.moved / timed.memory,
        shown={
            "timed": timed,
            "device": device,
            "flops": work.hardware_flops,
            "model_flops": work.flops,
            "bytes": work.moved,
            "tokens": work.tokens,
            "peak": device.peak,
            "samples": x.batch_size,
            "fits": fits and not calibrated and timed.streaming == 1,
            "throttled": fits and not calibrated and timed.streaming != 1,
            "first_order": not calibrated,
            "at_peak": not calibrated and timed.slower == 1,
            "slowed": not calibrated and timed.slower != 1,
            "calibrated": calibrated and timed.cycles is None,
            "microcontroller": timed.cycles is not None,
            "spilled": 0.0 if calibrated else timed.spilled,
            **(timed.cycles or {}),
        },
        cited={"model": x.model, "hardware": chip, **({} if timed.source is None else {"cycles": timed.source})},
        case=timed.case,
        noun="pass" if step is None else "step",
    )


def _does_not_fit(x: Inputs, step: TrainingStep | None, timed: Timed, place: str) -> tuple[Binding, tuple[str, ...]]:
    """The limit that stops the pass, and the smallest changes that would help."""
    needed, there = timed.needed, timed.capacity
    found = tuple(_remedies(x, needed / there, place) if step is None else step.help(there))
    needs = f"{x.model.name} needs {bytes_text(needed)}{place and f' of {place}'}"
    stopped = too_full(f"{needs} and {x.hardware.name} has {bytes_text(there)}", needed, there, found[0])
    if x.raise_errors:
        raise OOMError(stopped.sentence, needed=needed, available=there)
    return stopped, found


def _remedies(x: Inputs, more: float, place: str) -> list[str]:
    """The smallest changes that would make inference fit, cheapest first, where so many times the memory is needed.

    A microcontroller (``place`` says which of its memories is short) shares no network: it takes a chip with more of that memory.
    """
    few = bisect_left(range(1, x.batch_size), True, key=lambda size: not _fits(x, batch_size=size))
    found = [f"run {few:,} at a time instead of {x.batch_size:,}"] if few else []
    if place:
        return [*found, f"use a smaller network or a chip with {more:.2g} times as much {place}"]
    stored = next((name for name in storage_formats(x.hardware) if _fits(x, precision=name)), None)
    found += [] if stored is None else [f"store the weights in {stored}"]
    return [*found, larger(more) if x.hardware.alone else f"use {math.ceil(more):,} devices or more"]


def _fits(x: Inputs, **changed: Any) -> bool:
    """Whether a pass with other inputs fits; none that cannot be asked does."""
    try:
        return _asked(x.but(**changed), Assumptions()).timed.fits
    except InputError:
        return False
