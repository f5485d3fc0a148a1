"""Wall 6, weight streaming: activations stay on the chip, and the weights pass through it.

    T_layer = max( |W_l| / BW_inject, F_l / (P eta) )                                              (Lie 2022)
    B*      = |W| P eta / (2 P_active BW_inject) = b P eta / (2 BW_inject) for a dense model

A wafer keeps activations and caches in SRAM and receives each layer's weights over an injection link, once for a whole
batch. Below B* tokens a pass the link binds, above it the arithmetic does. B* depends on neither the model's size nor its
depth; whether so many sequences fit beside each other does, and mostly they do not: the largest batch that caches and
activations allow is given next to it. For a 180 B model with 2,048 tokens of context on 44 GB, B* is 41,667 sequences and
the memory holds 117.

Assumed: injection and compute overlap perfectly within a layer; layers are equally large; embeddings are streamed with them;
a tenth of the memory is reserved for buffers. Activations are those of one layer, all tensors at once, which is an upper
bound (0.1 % of the cache in decode at 2,048 tokens, 2.5 times the cache in prefill). Left out: reading the
cache from SRAM (2 us for 40 GB at 21 PB/s), the host's own limit on reading weights, the dispatch (0.01 ms).
"""

from __future__ import annotations

import math
from typing import Annotated, Any

from mlsysim.cases.deployment import language_model
from mlsysim.cases.streaming import Streamed, balanced_tokens, bytes_each
from mlsysim.errors import InputError
from mlsysim.hardware.arithmetic import arithmetic_peak
from mlsysim.models.storage import stored
from mlsysim.units.registry import to_si
from mlsysim.walls.base import Assumptions, Binding, Inputs, Resolver, declared, wall_says, written
from mlsysim.walls.result import Memory, MemoryRate, Rate, Result, Time
from mlsysim.zoo.constants import constant

CARDS = """
6 Streaming: injection bandwidth
T = max(W_l / BW, 2 P_l B / (F eta)) (Lie 2022)
Do weights that pass through the chip arrive as fast as they are used?
"""


class WeightStreamingResult(Result):
    """A pass with streamed weights. ``optimal_batch_size`` is B* in sequences; ``max_batch_size`` is what memory holds.

    ``wafer_memory_utilization`` is caches and activations over the memory that is not reserved.
    """

    throughput_tokens_per_sec: Annotated[Rate, "rate"]
    bottleneck: str
    layer_compute_time: Time
    layer_injection_time: Time
    layer_time: Time
    pass_time: Time
    optimal_batch_size: int
    optimal_tokens: float
    max_batch_size: int | None
    max_throughput_tokens_per_sec: Rate
    wafer_memory_utilization: float | None
    cache_size: Memory
    activation_size: Memory
    memory_available: Memory
    injection_bandwidth: MemoryRate
    phase: str


class WeightStreamingModel(Resolver[WeightStreamingResult]):
    """Injection or compute: which binds when weights are streamed, and how many sequences fit at once?"""

    walls = (6,)
    inputs = declared("""
        model, hardware
        seq_len | whole [1, 1e8] | context of decode, or new tokens of prefill | 2048
        batch_size = 1 | whole [1, 1e9] | sequences in the pass
        precision, efficiency
        phase = decode | one of decode, prefill | decode or prefill
        injection_bandwidth? | (0, 1e18] byte/s | rate at which weights reach the chip; that of the chip's interconnect unless \
            given | 1.2 TB/s
        cache_precision? | precision | number format of the cache
    """)
    equations = written(r"""
        layer_injection_time: T_inject = |W| / (L BW)
            T_{\mathrm{inject}} = \frac{|W|}{L\,BW_{\mathrm{inject}}}
            |W| = weights in byte, L = layers, BW = injection_bandwidth in byte/s
        layer_compute_time: T_compute = F / (L P eta)
            T_{\mathrm{compute}} = \frac{F}{L\,P\,\eta}
            F = flops in flop, L = layers, P = peak in flop/s, eta = efficiency
        pass_time: T = L max(T_inject, T_compute)
            T = L\,\max(T_{\mathrm{inject}}, T_{\mathrm{compute}})
            L = layers, T_inject = layer_injection_time in s, T_compute = layer_compute_time in s
        optimal_tokens: B* = |W| P eta / (2 P_active BW)
            B^* = \frac{|W|\,P\,\eta}{2\,P_{\mathrm{active}}\,BW_{\mathrm{inject}}}
            |W| = all_weights in byte, P = peak in flop/s, eta = efficiency, 2 P_active = work_per_token in flop, BW = injection_bandwidth in byte/s
        max_batch_size: B_max = (1 - r) M / (KV + A)
            B_{\max} = \left\lfloor\frac{(1 - r)\,M}{|KV| + |A|}\right\rfloor
            (1 - r) M = memory_available in byte, KV = cache_each in byte, A = activations_each in byte
    """)
    known_fallacies = (
        "Run it at B*: the caches of that many sequences exceed on-wafer memory by two orders of magnitude.",
        "A wafer at batch 41,667 beats 3,000 GPUs at batch 1: compare both at the batch that each can hold.",
        "On-chip bandwidth makes single requests fast: at batch 1 the injection link sets the pace.",
    )

    def _solve(self, x: Inputs, assumed: Assumptions) -> WeightStreamingResult:
        """One pass of a batch with weights streamed layer by layer."""
        model, chip = language_model(x.model), x.hardware
        peak, note = arithmetic_peak(chip, x.precision)
        if note:
            assumed["arithmetic"] = note
        bandwidth, layers = _injection(x, assumed), model.layers or 1
        new, context = (1, x.seq_len) if x.phase == "decode" else (x.seq_len, 0)
        if model.layers is None:
            assumed["layers"] = f"1: {model.name} does not state its layers"

        def streamed(batch: int, layers: int) -> Streamed:
            formats = {"precision": x.precision, "cache_precision": x.cache_precision}
            demand = model.demand(x.phase, batch_size=batch, seq_len=new, context=context, **formats)
            return Streamed(demand.weight_bytes, demand.flops, batch * new, layers, peak, x.efficiency, bandwidth)

        found = streamed(x.batch_size, layers)
        all_weights = model.parameter_count * stored(model, x.precision).mean
        work = to_si(constant("inference_flops_per_parameter_token").quantity, "flop") * model.active_parameter_count
        tokens = balanced_tokens(all_weights, work, peak, x.efficiency, bandwidth)
        reserve = constant("streaming_memory_reserve_fraction").number
        available = to_si(chip.memory.capacity, "byte") * (1 - reserve)
        cache = activations = needed = largest = None
        if model.has_dimensions:
            cache, activations = bytes_each(model, x.seq_len, new, x.precision, x.cache_precision)
            needed = (cache + activations) * x.batch_size
            largest = math.floor(available / (cache + activations))
        else:
            assumed["memory"] = f"unknown: {model.name} states no layers, hidden_dim and heads, so batches have no size"
        each = {"cache_each": cache, "activations_each": activations}
        return WeightStreamingResult.of(
            assumed,
            found,
            x,
            feasible=needed is None or needed <= available,
            binding=_binding(x, found, needed, available, largest),
            optimal_batch_size=math.ceil(tokens / new),
            optimal_tokens=tokens,
            max_batch_size=largest,
            max_throughput_tokens_per_sec=streamed(largest, 1).rate if largest else None,
            wafer_memory_utilization=None if needed is None else needed / available,
            cache_size=None if cache is None else cache * x.batch_size,
            activation_size=None if activations is None else activations * x.batch_size,
            memory_available=available,
            injection_bandwidth=bandwidth,
            shown=each | {"all_weights": all_weights, "work_per_token": work},
        )


def _injection(x: Any, assumed: dict[str, str]) -> float:
    if x.injection_bandwidth is not None:
        return float(x.injection_bandwidth)
    link = x.hardware.interconnect
    if link is None:
        words = "has no interconnect to stream weights over; give 'injection_bandwidth' (for example '1.2 TB/s')"
        raise InputError(f"{x.hardware.name} {words}.", field="injection_bandwidth")
    assumed["injection_bandwidth"] = f"{link.bandwidth:g~P} ({link.name} of {x.hardware.name})"
    return to_si(link.bandwidth, "byte/s")


def _binding(x: Any, found: Streamed, needed: float | None, available: float, largest: int | None) -> Binding:
    if needed is not None and needed > available:
        there = f"{x.hardware.name} has {available / 1e9:,.1f} GB for them; at most {largest:,} fit"
        asked = f"{x.batch_size:,} sequences of {x.model.name} need {needed / 1e9:,.1f} GB for caches and activations"
        return wall_says(2, needed / available, f": {asked} and {there}.")
    times, bound = (found.layer_injection_time, found.layer_compute_time), found.bottleneck
    ratio = max(times) / min(times)
    wall, other = (6, "compute") if bound == "Injection" else (1, "injection")
    return wall_says(wall, ratio, f" binds: {bound.lower()} takes {ratio:.3g} times as long as {other}.")
