"""Calibrated fidelity: the time of a pass as the sum of its operators' times.

The workload is lowered to operators (:meth:`Workload.lower`); each gets its closed form from
:mod:`mlsysim.physics.operators` with the constants of the chip's profile. How the software runs them is an
:class:`Execution`: launched one by one or captured in a graph, elementwise chains fused or not, which attention kernel.
Collectives are timed by the walls that know where the ranks sit.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from mlsysim.hardware.profiles import Profile
from mlsysim.hardware.types import HardwareNode
from mlsysim.models.graph import Operator
from mlsysim.physics.operators import (
    attention_decode_time,
    attention_prefill_time,
    gemm_time,
    grouped_gemm_time,
    host_bound_time,
    memory_bound_time,
)
from mlsysim.physics.precision import bytes_per_element, compute_precision
from mlsysim.units.registry import to_si
from mlsysim.walls.node.compute_memory import arithmetic_peak

__all__ = ["ATTENTION_RATES", "Execution", "PassTime", "operator_time", "pass_time"]

ATTENTION_RATES = {"fused": 1.0, "fa3": 1.0, "fa2": 0.56, "fa1": 0.32}
"""Rate of an attention kernel over that of the chip's best (cuDNN on Hopper and later): FlashAttention 2 and 1."""


@dataclass(frozen=True, slots=True)
class Execution:
    """How software runs the operators of a pass."""

    graph: bool = True
    fused: bool = True
    attention: str = "fused"
    sustained: bool = True
    moe_rate: float = 0.9
    moe_memory_share: float | None = None
    moe_activation_share: float = 0.6
    moe_start: float = 25e-6


@dataclass(frozen=True, slots=True)
class PassTime:
    """Seconds of a pass on one device: in all, and by layer class; how many operators were launched."""

    total: Any
    device: Any
    by_layer: dict[str, Any]
    operators: Any
    flops: Any
    moved: Any


def operator_time(op: Operator, chip: HardwareNode, profile: Profile, precision: str, how: Execution) -> Any:
    """Seconds of one call of an operator."""
    bandwidth = to_si(chip.memory.bandwidth, "byte/s")
    bound = profile.memory_bound
    if op.kind in ("gemm", "batched_gemm", "conv", "grouped_gemm"):
        constants = profile.gemm_for(precision)
        peak, _ = arithmetic_peak(chip, precision)
        rate = peak * constants.rate_share * (constants.sustained if how.sustained else 1.0)
        start = to_si(constants.start, "s")
        moved = op.weight_bytes + op.input_bytes + op.output_bytes
        if op.kind == "grouped_gemm":
            share = how.moe_memory_share or constants.memory_share
            return grouped_gemm_time(
                op.flops,
                op.weight_bytes,
                op.input_bytes + op.output_bytes,
                rate * how.moe_rate,
                bandwidth,
                share,
                how.moe_activation_share,
                how.moe_start,
                1.0,
            )
        narrow = bytes_per_element(compute_precision(precision)) < 2 and op.kind == "gemm"
        quantised = 3.0 * op.m * op.k if narrow else 0.0 * op.m
        return gemm_time(
            op.flops, moved, quantised, rate, bandwidth, constants.memory_share, constants.quantise_share, start
        )
    if op.kind == "attention":
        return _attention_time(op, chip, profile, bandwidth, how)
    if op.kind == "embedding":
        return memory_bound_time(op.bytes, bandwidth, bound.gather_share, to_si(bound.start, "s"))
    share = bound.fused_share if how.fused else bound.eager_share
    return memory_bound_time(op.bytes, bandwidth, share, to_si(bound.start, "s"))


def _attention_time(op: Operator, chip: HardwareNode, profile: Profile, bandwidth: float, how: Execution) -> Any:
    constants = profile.attention
    peak, _ = arithmetic_peak(chip, "bf16" if chip.compute.supports("bf16") else chip.compute.headline)
    rate = peak * constants.rate_share * ATTENTION_RATES[how.attention]
    if op.direction == "backward":
        # A fused backward pass recomputes the scores: 2.5 times the forward work where the model counts 2.
        rate = rate * constants.backward_share * 2 / 2.5
    single = isinstance(op.m, (int, float)) and op.m == 1
    if single:
        latent = op.kv_heads == 1 and op.groups > 1 and op.k > 256
        share = constants.latent_memory_share if latent else constants.decode_memory_share
        decode_rate = peak * (constants.latent_rate_share if latent else 1.0)
        return attention_decode_time(
            op.cache_bytes, op.flops, decode_rate, bandwidth, share, to_si(constants.decode_start, "s")
        )
    return attention_prefill_time(op.flops, op.m, rate, constants.ramp_tokens, to_si(constants.start, "s"))


def pass_time(
    operators: Iterable[Operator], chip: HardwareNode, profile: Profile, precision: str, how: Execution
) -> PassTime:
    """Seconds of all operators of a pass, one after the other; collectives are left out."""
    by_layer: dict[str, Any] = {}
    total: Any = 0.0
    count: Any = 0
    flops: Any = 0.0
    moved: Any = 0.0
    launch = to_si(profile.memory_bound.graph_launch if how.graph else profile.memory_bound.eager_launch, "s")
    for op in operators:
        if op.is_collective:
            continue
        seconds = op.count * operator_time(op, chip, profile, precision, how)
        by_layer[op.layer] = by_layer.get(op.layer, 0.0) + seconds
        total = total + seconds
        count = count + op.count
        flops = flops + op.count * op.flops
        moved = moved + op.count * op.bytes
    return PassTime(host_bound_time(total, count, launch), total, by_layer, count, flops, moved)
