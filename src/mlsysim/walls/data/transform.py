"""Wall 9, transformation: can the processors prepare the data?

    T_transform = B (1 - g) / R_cpu,   R_cpu = min(workers, cores) x r_worker                  (Murray et al. 2021)

B samples a step, of which the fraction g is decoded and augmented on the accelerator. R_cpu is the rate of all workers
after the whole pipeline, in samples or bytes a second. With prefetching the processors prepare the next batch while
the accelerator works on this one and the step takes the longer of the two; without it, their sum.

    T_step = max(T_transform, T_accelerator)   or   T_transform + T_accelerator

A larger batch by itself does not move this wall: the accelerator's step grows with the batch too when it computes, so
both sides ask for the same samples a second. It moves only while the accelerator's step stays constant.

Assumed: workers scale linearly up to the number of cores; samples on the accelerator are decoded by a unit of their own
(JPEG engines of data-centre GPUs) unless ``gpu_decode_rate`` says what they cost. Left out: variation between samples
(a prefetch queue of a few batches hides it) and memory bandwidth of the host, which ends linear scaling at some tens of
workers (10 to 30 % below linear).
"""

from __future__ import annotations

import math
from typing import Any

from mlsysim.cases.feeding import Fed, preparing_time, worker_rate
from mlsysim.errors import InputError, UnitError
from mlsysim.units.registry import DimensionalityError, Quantity, to_si
from mlsysim.walls.base import Assumptions, Inputs, Resolver, declared, wall_says, written
from mlsysim.walls.result import Rate, Result, Time

CARDS = """
9 Transformation: preprocessing rate of the processors
T = B / R_cpu (Murray et al. 2021)
Can the processors decode and augment as fast as the accelerator consumes?
"""


class TransformationResult(Result):
    """A step with its preparation."""

    transform_time: Time
    accelerator_step_time: Time
    step_time: Time
    is_bottleneck: bool
    accelerator_utilization: float
    slowdown_factor: float
    cpu_throughput: Rate
    demand_rate: Rate
    delivered_rate: Rate
    headroom_ratio: float | None
    workers_needed: int | None


class TransformationModel(Resolver[TransformationResult]):
    """Preparation of a batch against the accelerator's step."""

    walls = (9,)
    inputs = declared("""
        batch_size | whole [1, 1e9] | samples in a step
        sample_size_bytes? | (0, inf) byte, plain | bytes of one sample; needed where the throughput is in bytes | 150 kB
        cpu_throughput? | object | rate of all processors together, in samples/s or bytes/s | 54400 sample/s
        accelerator_step_time? | (0, inf) s | step of the accelerator when it never waits | 48 ms
        workers? | whole [1, 1e6] | worker processes, instead of 'cpu_throughput'
        worker_throughput? | object | rate of one worker, in samples/s or bytes/s | 850 sample/s
        cores? | whole [1, 1e6] | processor cores; workers beyond them add nothing
        prefetch = yes | flag | the next batch is prepared while the accelerator works
        gpu_decode_fraction = 0.0 | [0, 1] | fraction of the samples prepared on the accelerator
        gpu_decode_rate? | (0, inf) 1/s | samples per second that the accelerator prepares in place of training | 20000 sample/s
    """)
    equations = written(r"""
        cpu_throughput if worker_throughput: R_cpu = min(workers, cores) x r_worker
            R_{\mathrm{cpu}} = \min(N_{\mathrm{workers}}, N_{\mathrm{cores}})\, r_{\mathrm{worker}}
            workers = workers, cores = cores, r_worker = worker_rate in 1/s
        transform_time: T_transform = B (1 - g) / R_cpu
            T_{\mathrm{transform}} = \frac{B\,(1 - g)}{R_{\mathrm{cpu}}}
            B = batch_size, g = gpu_decode_fraction, R_cpu = cpu_throughput in 1/s
        step_time if prefetch: T_step = max(T_transform, T_accelerator)
            T_{\mathrm{step}} = \max(T_{\mathrm{transform}}, T_{\mathrm{accelerator}})
            T_transform = transform_time in s, T_accelerator = accelerator_step_time in s
        step_time if no_prefetch: T_step = T_transform + T_accelerator
            T_{\mathrm{step}} = T_{\mathrm{transform}} + T_{\mathrm{accelerator}}
            T_transform = transform_time in s, T_accelerator = accelerator_step_time in s
    """)
    known_fallacies = (
        "A larger batch overloads the processors: while the accelerator is the bottleneck, its step grows with the batch and the demand in samples a second stays the same.",
        "Fast storage keeps the accelerator busy: decoding and augmenting may be slower than reading.",
        "More workers always help: beyond the cores, and beyond the host's memory bandwidth, they do not.",
    )

    def _solve(self, x: Inputs, assumed: Assumptions) -> TransformationResult:
        """Compare preparing a batch with using it."""
        accelerator, offloaded = x.accelerator_step_time, x.gpu_decode_fraction
        if accelerator is None:
            needs = "'accelerator_step_time': the step when the accelerator never waits"
            raise InputError(f"TransformationModel.solve needs {needs}.", field="accelerator_step_time")
        per_worker, rate = _rates(x)
        if offloaded > 0:
            if x.gpu_decode_rate is None:
                assumed["gpu_decode_rate"] = "a unit of its own, at no cost to the step"
            else:
                accelerator += preparing_time(x.batch_size, offloaded, x.gpu_decode_rate)
        share = 1 - offloaded
        fed = Fed(x.batch_size, share, preparing_time(x.batch_size, share, rate), accelerator, x.prefetch)
        bound, headroom = fed.is_bottleneck, fed.headroom_ratio
        by = "more than" if headroom is None else f"{max(headroom, 1 / headroom):.3g} times"
        longer, shorter = ("preparing a batch", "using it") if bound else ("using a batch", "preparing it")
        words = f" {'binds' if bound else 'does not bind'}: {longer} takes {by} as long as {shorter}."
        return TransformationResult.of(
            assumed,
            fed,
            feasible=not bound,
            binding=wall_says(9, None if headroom is None else 1 / headroom, words),
            cpu_throughput=rate,
            workers_needed=None if per_worker is None else fed.workers_needed(per_worker),
            shown={"worker_rate": per_worker, "no_prefetch": not x.prefetch},
        )


def _rates(x: Any) -> tuple[float | None, float]:
    """Samples per second of one worker (where stated) and of all."""
    if (x.cpu_throughput is None) == (x.worker_throughput is None):
        needs = "either 'cpu_throughput' of all processors or 'workers' with 'worker_throughput'"
        raise InputError(f"TransformationModel.solve needs {needs}.", field="cpu_throughput")
    if x.cpu_throughput is not None:
        if x.workers is not None:
            words = "'workers' goes with 'worker_throughput'; 'cpu_throughput' is of all together"
            raise InputError(f"TransformationModel.solve: {words}.", field="workers")
        return None, samples_per_second("cpu_throughput", x.cpu_throughput, x.sample_size_bytes)
    if x.workers is None:
        raise InputError("TransformationModel.solve needs 'workers' with 'worker_throughput'.", field="workers")
    one = samples_per_second("worker_throughput", x.worker_throughput, x.sample_size_bytes)
    return one, worker_rate(x.workers, x.workers if x.cores is None else x.cores, one)


def samples_per_second(name: str, given: Any, sample_bytes: float | None) -> float:
    """A rate in samples per second, from samples per second or from bytes per second and the size of a sample."""
    try:
        rate = Quantity(given) if isinstance(given, str) else given
        if not isinstance(rate, Quantity):
            raise UnitError("no rate")
        by_samples = rate.check("1/[time]")
        value = to_si(rate, "1/s" if by_samples else "byte/s")
    except (DimensionalityError, UnitError):
        wanted = "a rate such as '850 sample/s' or '120 MB/s'"
        words = f"The {name!r} input of TransformationModel must be {wanted}, got {str(given)[:60]!r}."
        raise UnitError(words, field=name) from None
    if not by_samples:
        if sample_bytes is None:
            words = f"TransformationModel: {name!r} in bytes per second needs 'sample_size_bytes'."
            raise InputError(words, field="sample_size_bytes")
        value /= sample_bytes
    if not (math.isfinite(value) and value > 0):
        raise InputError(f"The {name!r} input of TransformationModel must be above 0, got {given!s}.", field=name)
    return value
