"""One serving replica: how a pass of tokens is split over its devices, and how long it takes.

    T_pass = max( F / (n P eta), B_device / W ) + collectives + dispatch

A replica is ``pp`` stages of ``tp`` devices. Tensor parallelism divides operations and weights of a layer by ``tp`` and
sums activations over the group twice a layer (a ring over one direction of the link). Key-value heads are divided too,
until there are fewer heads than devices; a latent cache (MLA) is held whole by every device. Pipeline parallelism
divides memory, not latency: a token passes through all stages, one after the other. With several sequences the stages
work on up to ``pp`` groups at a time. Expert parallelism divides experts over ``ep`` devices; beyond ``tp`` it adds
attention groups that share the experts, each with its part of the batch, and two exchanges of tokens a layer.

Left out: the spread of experts over devices at small batches (an even share is assumed; the busiest device of a batch of
one can have several times it), gathers of logits, and any overlap of collectives with arithmetic.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from mlsysim.models.attention import Attention, CompressedAttention, LatentAttention
from mlsysim.models.ffn import MixtureOfExperts
from mlsysim.models.transformer import TransformerWorkload
from mlsysim.physics.collectives import hierarchical_all_reduce, ring_all_reduce, send
from mlsysim.physics.precision import bytes_per_element
from mlsysim.physics.roofline import compute_time, memory_time
from mlsysim.units.kernel import Arg, kernel
from mlsysim.units.ops import maximum
from mlsysim.units.registry import to_si
from mlsysim.walls.node.capacity import local_parameters

__all__ = [
    "PassTime",
    "Replica",
    "device_bytes",
    "pass_time",
    "pipelined_completion",
    "pipelined_period",
    "token_exchange",
]

_SECONDS = Arg("s", 1e-6, 1e3)
_BYTES = Arg("byte", 1e3, 1e13)
_DEGREE = Arg("", 1, 1e3, whole=True)


@kernel(
    inputs={"compute": _SECONDS, "memory": _SECONDS, "communication": _SECONDS, "dispatch": Arg("s", 1e-6, 1e-2)},
    outputs={"time": "s"},
)
def pass_time(compute: Any, memory: Any, communication: Any, dispatch: Any) -> Any:
    """The longer of compute and memory; then the collectives, which wait for both; and the dispatch."""
    return maximum(compute, memory) + communication + dispatch


@kernel(
    inputs={
        "shared": _BYTES,
        "experts": _BYTES,
        "activations": _BYTES,
        "cache": _BYTES,
        "tensor_parallel": _DEGREE,
        "expert_shards": _DEGREE,
        "attention_groups": _DEGREE,
    },
    outputs={"moved": "byte"},
)
def device_bytes(
    shared: Any,
    experts: Any,
    activations: Any,
    cache: Any,
    tensor_parallel: Any,
    expert_shards: Any,
    attention_groups: Any,
) -> Any:
    """Bytes that the devices of one position read and write in a pass through all stages.

    ``cache`` is what one device of an attention group reads; the other arguments are totals of the replica.
    """
    return (
        shared / tensor_parallel + experts / expert_shards + activations / (tensor_parallel * attention_groups) + cache
    )


@kernel(
    inputs={
        "message": Arg("byte", 1.0, 1e12),
        "ranks": _DEGREE,
        "bandwidth": Arg("byte/s", 1e8, 1e13),
        "latency": Arg("s", 1e-7, 1e-4),
    },
    outputs={"time": "s"},
)
def token_exchange(message: Any, ranks: Any, bandwidth: Any, latency: Any) -> Any:
    """Tokens to the devices of their experts. Messages to all peers start together, so one start-up time is paid."""
    return (ranks - 1) / ranks * message / bandwidth + latency


@kernel(
    inputs={"time": _SECONDS, "groups": _DEGREE, "longest": Arg("", 0.001, 1.0)},
    outputs={"period": "s"},
)
def pipelined_period(time: Any, groups: Any, longest: Any) -> Any:
    """Time between two tokens of a group when ``groups`` groups take turns on the stages.

    A group needs ``time`` for all stages; the longest stage, a fraction ``longest`` of it, serves every group in turn.
    """
    return time * maximum(1.0, groups * longest)


@kernel(
    inputs={"time": _SECONDS, "groups": _DEGREE, "longest": Arg("", 0.001, 1.0)},
    outputs={"last": "s"},
)
def pipelined_completion(time: Any, groups: Any, longest: Any) -> Any:
    """When the last of ``groups`` groups leaves the pipeline: one whole pass, and the longest stage for each group more."""
    return time * (1.0 + (groups - 1.0) * longest)


@dataclass(frozen=True, slots=True)
class PassTime:
    """One pass in its parts, in seconds; ``operations`` of the whole replica, in flop."""

    compute: float
    memory: float
    communication: float
    dispatch: float
    operations: float
    weight_memory: float

    @property
    def total(self) -> float:
        return float(pass_time(self.compute, self.memory, self.communication, self.dispatch))

    @property
    def bound(self) -> str:
        """Compute, Memory or Communication, whichever takes longest."""
        longest = max(self.compute, self.memory)
        if self.communication > longest:
            return "Communication"
        return "Compute" if self.compute >= self.memory else "Memory"


@dataclass(frozen=True)
class Replica:
    """A model on ``pp`` stages of devices; see the module's text. Rates in base units."""

    model: TransformerWorkload
    chip: Any
    precision: str
    cache_precision: str | None
    tp: int
    pp: int
    ep: int
    peak: float
    efficiency: float
    bandwidth: float
    link: float
    link_latency: float
    domain: float
    network: float
    network_latency: float

    # --- shape ------------------------------------------------------------------------------------------------

    @property
    def width(self) -> int:
        """Devices of one stage."""
        return max(self.tp, self.ep)

    @property
    def devices(self) -> int:
        return self.width * self.pp

    def with_degree(self, tp: int) -> Replica:
        """The same replica, split over another number of devices."""
        return replace(self, tp=tp)

    @property
    def attention_groups(self) -> int:
        """Tensor-parallel groups that share one set of experts."""
        return max(1, self.ep // self.tp)

    @property
    def longest_stage(self) -> float:
        """The longest stage's share of a pass."""
        layers = self.model.layers or self.pp
        return math.ceil(layers / self.pp) / layers

    @property
    def weight_element(self) -> float:
        return bytes_per_element(self.precision)

    @property
    def activation_element(self) -> float:
        return self.weight_element if self.weight_element >= 1 else 2.0

    @property
    def cache_element(self) -> float:
        return bytes_per_element(self.cache_precision) if self.cache_precision else self.activation_element

    # --- memory -----------------------------------------------------------------------------------------------

    @cached_property
    def weights(self) -> float:
        """Bytes of all weights."""
        return self.model.parameter_count * self.weight_element

    @cached_property
    def device_weights(self) -> float:
        """Bytes of weights on the fullest device."""
        return local_parameters(self.model, self.tp, self.pp, self.ep) * self.weight_element

    def cache(self, length: Any) -> float:
        """Bytes of one sequence's cache, each element counted once."""
        return float(self.model.stack.cache_elements(length) * self.cache_element) if self.model.has_dimensions else 0.0

    def group_cache(self, length: Any) -> float:
        """Bytes of one sequence's cache that one position of its tensor-parallel group keeps, over all stages."""
        if not self.model.has_dimensions:
            return 0.0
        elements: Any = 0.0
        for block in self.model.stack.blocks:
            for mixer in block.mixers:
                grown = mixer.cache_per_token * mixer.cache_tokens(length) / _cache_shards(mixer, self.tp)
                elements += block.count * (grown + mixer.state / self.tp)
        return float(elements * self.cache_element)

    def device_cache(self, batch: float, length: Any) -> float:
        """Bytes of cache on the fullest device."""
        return math.ceil(batch / self.attention_groups) * self.group_cache(length) * self.longest_stage

    # --- time -------------------------------------------------------------------------------------------------

    def run(self, phase: str, batch: int, new: int, context: float) -> PassTime:
        """A pass of ``batch`` sequences with ``new`` tokens each after ``context`` cached ones."""
        groups = self.attention_groups
        local = math.ceil(batch / groups)
        demand = self.model.demand(
            phase,
            batch_size=local * groups,
            seq_len=new,
            context=context,
            precision=self.precision,
            cache_precision=self.cache_precision,
        )
        shared, experts = self._weights_read(batch * new)
        read = local * self.group_cache(context) if phase == "decode" or context else 0.0
        moved = device_bytes(shared, experts, demand.activation_bytes, read, self.tp, self.width, groups)
        weights = device_bytes(shared, experts, 0.0, 0.0, self.tp, self.width, groups)
        return PassTime(
            compute=compute_time(demand.flops / self.width, self.peak, self.efficiency),
            memory=memory_time(moved, self.bandwidth),
            communication=self._communication(local * new),
            dispatch=to_si(self.chip.dispatch_tax, "s") * self.pp,
            operations=demand.flops,
            weight_memory=memory_time(weights, self.bandwidth),
        )

    def groups_in_flight(self, batch: int) -> tuple[int, int]:
        """How many groups take turns on the stages, and how many sequences the largest has."""
        groups = min(self.pp, batch)
        return groups, math.ceil(batch / groups)

    def decode(self, batch: int, context: float) -> tuple[PassTime, float]:
        """One token for each of ``batch`` sequences: the pass of one group, and the time between two tokens."""
        groups, size = self.groups_in_flight(batch)
        parts = self.run("decode", size, 1, context)
        return parts, float(pipelined_period(parts.total, groups, self.longest_stage))

    def prefill(self, batch: int, new: int, context: float) -> tuple[PassTime, float]:
        """``new`` tokens for each of ``batch`` sequences: the pass of one group, and the time until all are done."""
        groups, size = self.groups_in_flight(batch)
        parts = self.run("prefill", size, new, context)
        return parts, float(pipelined_completion(parts.total, groups, self.longest_stage))

    def _weights_read(self, tokens: float) -> tuple[float, float]:
        """Bytes of weights that ``tokens`` tokens touch: those that all share, and those of the experts hit."""
        totals = self.model.totals
        if totals.experts <= totals.experts_per_token:
            return totals.parameters * self.weight_element, 0.0
        pool = (totals.parameters - totals.active_parameters) / (1 - totals.experts_per_token / totals.experts)
        shared = totals.parameters - pool
        return shared * self.weight_element, (totals.weights_hit(tokens) - shared) * self.weight_element

    def _communication(self, tokens: float) -> float:
        hidden = self.model.hidden_dim
        if self.devices == 1 or not hidden:
            return 0.0
        message = tokens * hidden * self.activation_element
        time = 0.0
        if self.tp > 1:
            time += self._reductions * self._all_reduce(message)
        if self.ep > self.tp:
            routed = message / self.tp * self.model.totals.experts_per_token
            rate, latency = self._path(self.width)
            time += 2 * self._expert_layers * token_exchange(routed, self.ep, rate, latency)
        if self.pp > 1:
            rate, latency = self._path(self.devices)
            time += (self.pp - 1) * send(message, rate, latency)
        return time

    def _all_reduce(self, message: float) -> float:
        if self.tp <= self.domain:
            return float(ring_all_reduce(message, self.tp, self.link, self.link_latency))
        inside = math.gcd(self.tp, int(self.domain))
        return float(
            hierarchical_all_reduce(
                message, self.tp / inside, inside, self.link, self.link_latency, self.network, self.network_latency
            )
        )

    def _path(self, ranks: int) -> tuple[float, float]:
        """Bandwidth and latency between any two of so many devices: the slowest that they need."""
        if ranks <= self.domain:
            return self.link, self.link_latency
        return self.network, self.network_latency

    @cached_property
    def _reductions(self) -> int:
        """Sums over the tensor-parallel group in a pass: one after each mixer, one after each feed-forward layer."""
        blocks = self.model.stack.blocks
        return sum(block.count * (len(block.mixers) + (block.ffn is not None)) for block in blocks)

    @cached_property
    def _expert_layers(self) -> int:
        return sum(b.count for b in self.model.stack.blocks if isinstance(b.ffn, MixtureOfExperts))


def _cache_shards(mixer: Any, tp: int) -> int:
    """Into how many different parts a tensor-parallel group splits the cache of a mixer."""
    if isinstance(mixer, (LatentAttention, CompressedAttention)):
        return 1
    return min(tp, mixer.kv_heads) if isinstance(mixer, Attention) else tp
