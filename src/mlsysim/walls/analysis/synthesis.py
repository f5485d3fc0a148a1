"""Wall 22, synthesis: the least hardware that meets a target.

    W_req = B / T        P_req = F / (T eta)        memory = what the pass needs                        (inverse roofline)

The roofline turned round: which bandwidth, arithmetic and memory make a pass last exactly T? The target is a latency, a
throughput (T = batch / rate) or, for training, a deadline: F is then the work of all tokens, and the answer is a fleet's
aggregate rate. With ``hardware`` the answer also says how many of that chip are needed, by the wall that asks for most.

Assumed: bandwidth, arithmetic and memory can be chosen freely, and work splits evenly without communication; a fleet
found here is therefore a lower bound (10 to 20 % short at scale).
"""

from __future__ import annotations

import math
from typing import Any

from mlsysim.cases.one_pass import asked_pass
from mlsysim.errors import InputError
from mlsysim.hardware.arithmetic import arithmetic_peak
from mlsysim.models.footprint import Training, inference_bytes
from mlsysim.units.kernel import kernel
from mlsysim.units.registry import to_si
from mlsysim.walls.base import Assumptions, Binding, Inputs, Resolver, declared, written
from mlsysim.walls.result import Intensity, Memory, MemoryRate, Result, Time, Work, WorkRate

CARDS = """
22 Synthesis: inverse specification
W_req = B / T;  P_req = F / (T eta) (Kwon et al. 2023)
What is the least hardware that meets the target?
"""


@kernel("moved: byte [1e3, 1e13], target: s [1e-4, 1e6] -> bandwidth: byte/s")
def required_bandwidth(moved: Any, target: Any) -> Any:
    """Bandwidth that moves the bytes in time."""
    return moved / target


@kernel("operations: flop [1e6, 1e25], target: s [1e-4, 1e8], efficiency [0.01, 1] -> rate: flop/s")
def required_rate(operations: Any, target: Any, efficiency: Any) -> Any:
    """Peak rate that finishes the operations in time at this efficiency."""
    return operations / (target * efficiency)


class SynthesisResult(Result):
    """The least hardware."""

    required_bw: MemoryRate
    required_flops: WorkRate
    required_memory: Memory
    compute_memory_ratio: Intensity
    target_latency: Time
    model_size: Memory
    total_ops: Work
    phase: str
    accelerators: int | None = None
    accelerators_by_wall: dict[str, int]


class SynthesisSolver(Resolver[SynthesisResult]):
    """From a target back to the least bandwidth, arithmetic, memory and number of chips."""

    tier = "solver"
    walls = (22,)
    inputs = declared("""
        model
        target_latency? | (0, inf) s | time of one pass | 200 ms
        precision, efficiency
        batch_size = 1 | whole [1, 1e9] | sequences or samples in the pass
        seq_len? | whole [0, 1e8] | new tokens per sequence; the context in decode
        phase? | one of prefill, decode, training, inference | prefill, decode, training or inference
        is_training = no | flag | a training step instead of inference
        target_throughput? | (0, inf) 1/s | samples per time instead of a latency | 100/s
        deadline? | (0, inf) s | time for all training tokens instead of a latency | 14 day
        training_tokens? | [1, 1e18] | tokens to train on by the deadline
        hardware? | hardware | chip to count: how many are needed
    """)
    equations = written(r"""
        required_bw: W = B / T
            W = \frac{B}{T}
            B = bytes in byte, T = target_latency in s
        required_flops: P = F / (T eta)
            P = \frac{F}{T\,\eta}
            F = total_ops in flop, T = target_latency in s, eta = efficiency
    """)
    known_fallacies = (
        "Twice the FLOP/s halve the latency: the target fixes the bandwidth too, and the harder of the two decides.",
    )

    def _solve(self, x: Inputs, assumed: Assumptions) -> SynthesisResult:
        """Invert the roofline."""
        given = [name for name in ("target_latency", "target_throughput", "deadline") if getattr(x, name) is not None]
        if len(given) != 1:
            names = "'target_latency', 'target_throughput' and 'deadline'"
            raise InputError(f"SynthesisSolver needs exactly one of {names}.")
        if x.deadline is not None and x.training_tokens is None:
            raise InputError("A deadline needs 'training_tokens'.", field="training_tokens")
        if x.deadline is not None:
            x = x.but(is_training=True)
        model = x.model
        phase, new, context = asked_pass(model, x.phase, x.seq_len, x.is_training, assumed)
        demand = model.demand(phase, batch_size=x.batch_size, seq_len=new, context=context, precision=x.precision)
        flops, moved = demand.flops, demand.bytes
        if x.deadline is not None:
            passes = x.training_tokens / demand.tokens
            flops, moved, target = flops * passes, moved * passes, x.deadline
        else:
            target = x.target_latency if x.target_latency is not None else x.batch_size / x.target_throughput
        if phase == "training":
            memory = Training(model, x.batch_size, new or 1, x.precision).fullest.total
        else:
            tokens = context + (new or 0) if context else 0
            memory = inference_bytes(model, x.batch_size, tokens, x.precision, None)
        bandwidth, rate = required_bandwidth(moved, target), required_rate(flops, target, x.efficiency)
        sentence = f"At least {bandwidth / 1e12:.3g} TB/s, {rate / 1e12:.3g} TFLOP/s and {memory / 1e9:.4g} GB."
        counts = {}
        if x.hardware is not None:
            counts = _counts(x, bandwidth, rate, memory, assumed)
            wall = max(counts, key=lambda name: counts[name])
            sentence = f"At least {counts[wall]} x {x.hardware.name}, asked for by {wall.replace('_', ' ')}."
        return SynthesisResult.of(
            assumed,
            x,
            binding=Binding(22, "Synthesis", None, sentence),
            required_bw=bandwidth,
            required_flops=rate,
            required_memory=memory,
            compute_memory_ratio=rate / bandwidth,
            target_latency=target,
            model_size=to_si(model.size_in_bytes(precision=x.precision), "byte"),
            total_ops=flops,
            phase=phase,
            accelerators=max(counts.values()) if counts else None,
            accelerators_by_wall=counts,
            shown={"bytes": moved},
        )


def _counts(x: Any, bandwidth: float, rate: float, memory: float, assumed: Assumptions) -> dict[str, int]:
    """Chips that each demand asks for."""
    peak, note = arithmetic_peak(x.hardware, x.precision)
    if note:
        assumed["arithmetic"] = note
    has = (peak, to_si(x.hardware.memory.bandwidth, "byte/s"), to_si(x.hardware.memory.capacity, "byte"))
    names = ("compute", "memory_bandwidth", "memory_capacity")
    asked = zip(names, (rate, bandwidth, memory), has, strict=True)
    return {name: math.ceil(needed / one - 1e-9) for name, needed, one in asked}
