"""One serving replica: how a pass of tokens is split over its devices, and how long it takes.

    T_pass = max( F / (n P eta), B_device / W ) + collectives + dispatch

A replica is ``pp`` stages of ``tp`` devices. Tensor parallelism divides operations and weights of a layer by ``tp`` and
sums activations over the group twice a layer (:mod:`mlsysim.timing.network`). Key-value heads are divided too,
until there are fewer heads than devices; a latent cache (MLA) is held whole by every device. Pipeline parallelism
divides memory, not latency: a token passes through all stages, one after the other. With several sequences the stages
work on up to ``pp`` groups at a time. Expert parallelism divides experts over ``ep`` devices. ``attention_groups`` share the
experts (attention data parallelism), each with its part of the batch and its own copy of everything else; tokens go to the experts and
back, two exchanges a layer. A group has its own requests' caches alone, so that latent caches, which tensor parallelism copies to each of
its devices, are held once.

Left out: the spread of experts over devices at small batches (an even share is assumed; the busiest device of a batch of
one can have several times it), gathers of logits, and any overlap of collectives with arithmetic.

Batches, lengths, degrees and rates may be arrays, which have one value for each of many replicas of the same model.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from copy import copy
from functools import cached_property
from typing import Any

from mlsysim.cases.replica_pass import PassTime, device_bytes
from mlsysim.hardware.arithmetic import expansion_rate
from mlsysim.models.adapters import adapter_parameters
from mlsysim.models.demand import sequence_demand
from mlsysim.models.ffn import MixtureOfExperts
from mlsysim.models.stages import fullest_parameters
from mlsysim.models.storage import Stored, stored, weight_products
from mlsysim.models.template import Core
from mlsysim.models.transformer import TransformerWorkload
from mlsysim.physics.operators import distinct_kinds
from mlsysim.physics.precision import (
    HALF,
    INSTRUCTIONS,
    TILE_ROWS,
    activation_element,
    bytes_per_element,
    expanded_bytes,
    expansion_time,
    format_of,
)
from mlsysim.physics.roofline import compute_time, memory_time
from mlsysim.timing.network import Hierarchical
from mlsysim.timing.power import Clocks, wide_peak
from mlsysim.timing.tags import Tag, clocked, untagged
from mlsysim.units.ops import ceil, maximum, minimum, some, where
from mlsysim.units.records import dataclass
from mlsysim.units.registry import to_si


@dataclass(frozen=True)
class Replica:
    """A model on ``pp`` stages of devices; see the module's text. Rates in base units."""

    model: TransformerWorkload
    chip: Any
    precision: str
    cache_precision: str
    tp: Any
    pp: Any
    ep: Any
    peak: Any
    efficiency: Any
    bandwidth: Any
    network: Hierarchical
    memory_fraction: Any = None
    redundant: int = 0
    """Experts that are held twice."""
    clocks: Clocks | None = None
    """Of prefills and of steps of the answer, where a limit of power lowers them."""
    attention_groups: Any = 1
    """Tensor-parallel groups that share one set of experts, each with its part of the batch."""
    adapters: Any = 0
    """Low-rank adapters that requests choose among, in 16 bits, of rank ``adapter_rank``."""
    adapter_rank: Any = 0
    cp: Any = 1
    """Devices of a group among which copies of the keys are split by their tokens."""

    def at(self, clocks: Clocks) -> Replica:
        """The same at lower clocks."""
        found = copy(self)
        object.__setattr__(found, "clocks", clocks)
        return found

    def take(self, index: Any) -> Replica:
        """At some of many points: one replica is the same at all."""
        return self

    # --- shape ------------------------------------------------------------------------------------------------

    @cached_property
    def width(self) -> Any:
        """Devices of one stage."""
        return self.tp * self.attention_groups

    @property
    def devices(self) -> Any:
        return self.width * self.pp

    @cached_property
    def longest_stage(self) -> Any:
        """The longest stage's share of a pass."""
        layers = self.model.layers or self.pp
        return ceil(layers / self.pp) / layers

    @cached_property
    def _stored(self) -> Stored:
        return stored(self.model, self.precision)

    @cached_property
    def shared_element(self) -> Any:
        """Bytes of a weight that all tokens share."""
        return self._stored.shared

    @cached_property
    def expert_element(self) -> Any:
        """Bytes of a weight of the experts."""
        return self._stored.experts

    @cached_property
    def expansion(self) -> Any:
        """Vector peak that expands weights; infinite where products take them as they are."""
        return expansion_rate(self.chip, self.precision)

    @cached_property
    def wide(self) -> Any:
        """The 16-bit peak where that of the format is higher: scores are no products with weights."""
        return min(self.peak, wide_peak(self.chip))

    @cached_property
    def through_memory(self) -> Any:
        """1 where whole matrices are expanded in memory, else 0."""
        return float(format_of(self.precision).expanded == "memory")

    @cached_property
    def activation_element(self) -> Any:
        return activation_element(self.precision)

    @cached_property
    def cache_element(self) -> Any:
        return bytes_per_element(self.cache_precision)

    @cached_property
    def dispatch(self) -> Any:
        """Seconds to dispatch a pass to one stage."""
        return to_si(self.chip.dispatch_tax, "s")

    # --- memory -----------------------------------------------------------------------------------------------

    @cached_property
    def capacity(self) -> Any:
        """Bytes that a device has."""
        return to_si(self.chip.memory.capacity, "byte")

    @cached_property
    def reserve(self) -> Any:
        """Bytes of a device that weights and caches may not take."""
        return 0.0 if self.memory_fraction is None else (1.0 - self.memory_fraction) * self.capacity

    @cached_property
    def weights(self) -> Any:
        """Bytes of all weights."""
        return self.model.parameter_count * self._stored.mean

    @cached_property
    def device_weights(self) -> Any:
        """Bytes of weights on the fullest device."""
        # Experts that are not whole on a device are split further, by tensors, over all of the stage.
        wide = self.width if self.attention_groups > 1 else self.ep
        dense, experts = fullest_parameters(self.model, self.tp, self.pp, wide)
        held = dense * self._stored.shared + experts * self._stored.experts
        if self.redundant:
            copies = self.redundant / self.model.totals.experts * self.model.totals.expert_parameters
            held = held + copies * self._stored.experts / self.width * self.longest_stage
        return held

    @cached_property
    def adapter(self) -> Any:
        """Parameters of one adapter."""
        return adapter_parameters(self.model, self.adapter_rank)

    @cached_property
    def adapter_bytes(self) -> Any:
        """Bytes of all adapters on the fullest device, split by tensors as their matrices are."""
        return self.adapters * self.adapter * HALF / self.tp * self.longest_stage

    def cache(self, length: Any) -> Any:
        """Bytes of one sequence's cache, each element counted once."""
        return self.model.stack.cache_bytes(length, self.cache_element) if self.model.has_dimensions else 0.0

    def group_cache(self, length: Any, read: bool = False) -> Any:
        """Bytes of one sequence's cache that one position of its tensor-parallel group keeps, over all stages."""
        if not self.model.has_dimensions:
            return 0.0
        return self.model.stack.cache_bytes(length, self.cache_element, self.tp, read=read) / self.cp

    def port_bytes(self, length: Any) -> Any:
        """Bytes of one sequence's cache that go over the port of each device to another pool: its own, all of them at once."""
        return self.group_cache(length) * self.longest_stage

    def device_cache(self, batch: Any, length: Any) -> Any:
        """Bytes of cache on the fullest device."""
        return ceil(batch / self.attention_groups) * self.group_cache(length) * self.longest_stage

    # --- time -------------------------------------------------------------------------------------------------

    def passes(self, phase: str, batch: Any, new: Any, tag: Tag = untagged) -> Passes:
        """Passes of ``batch`` sequences with ``new`` tokens each, at any context. ``tag`` names the times of their parts."""
        if self.clocks is not None:
            clock = self.clocks[0 if phase == "prefill" else 1]
            tag = clocked(tag, clock.slower, clock.streaming)
        groups = self.attention_groups
        local = ceil(batch / groups)
        shared, experts = self._weights_read(batch * new)
        read = shared * self.shared_element, experts * self.expert_element
        weights = device_bytes(*read, 0.0, 0.0, self.tp, self.width, groups)
        expanding: Any = 0.0
        adapting: Any = 0.0
        if some(self.expansion < math.inf):
            own = shared / self.tp + experts / self.width
            weights = weights + self.through_memory * expanded_bytes(own, HALF, batch * new)
            products = weight_products(self.model, batch * new) / self.width
            seconds = expansion_time(2 * own, products, INSTRUCTIONS, TILE_ROWS, self.expansion)
            expanding = tag("expansion of weights", 1, "vector", "t = i max(F_1, F/R) / V", seconds)
        seconds = memory_time(weights, self.bandwidth)
        reading = tag("weights", 2, "bandwidth", "t = W / (n BW)", seconds, moved=weights)
        if some(self.adapters > 0):
            # Every token is multiplied by its request's adapter; one that several requests have is read once.
            read = distinct_kinds(self.adapters, local) * self.adapter * HALF / self.tp
            seconds = memory_time(read, self.bandwidth)
            reading = reading + tag(
                "adapters", 2, "bandwidth", "t = A (1 - (1 - 1/A)^B) M / (n BW)", seconds, moved=read
            )
            own = where(self.adapters > 0, 2.0 * self.adapter * local * new / self.tp, 0.0)
            seconds = compute_time(own, self.peak, self.efficiency)
            adapting = tag("adapters", 1, "peak", "t = F / (n P eta)", seconds, flop=own)
        sent = self._communication(phase, local * new, tag)
        return Passes(self, phase, local, new, reading, expanding, adapting, sent, tag)

    def run(self, phase: str, batch: Any, new: Any, context: Any) -> PassTime:
        """A pass of ``batch`` sequences with ``new`` tokens each after ``context`` cached ones."""
        return self.passes(phase, batch, new).at(context)

    def groups_in_flight(self, batch: Any) -> tuple[Any, Any]:
        """How many groups take turns on the stages, and how many sequences the largest has."""
        groups = minimum(self.pp, batch)
        return groups, ceil(batch / groups)

    def _weights_read(self, tokens: Any) -> tuple[Any, Any]:
        """Weights that ``tokens`` tokens touch: those that all share, and those of the experts hit."""
        totals = self.model.totals
        if totals.experts <= totals.experts_per_token:
            return totals.active_parameters, 0.0
        shared = totals.parameters - totals.expert_parameters
        return shared, totals.weights_hit(tokens) - shared

    def _communication(self, phase: str, tokens: Any, tag: Tag) -> Any:
        hidden, net = self.model.hidden_dim, self.network
        time: Any = 0.0
        if not hidden:
            return time
        # Products write 16 bits at least, and that is what is summed; tokens go to experts in the format of activations.
        message = tokens * hidden * maximum(self.activation_element, HALF)

        def sent(name: str, equation: str, ranks: Any, cost: Callable[[Any], Any], size: Any) -> Any:
            whole = cost(size)
            if not isinstance(ranks, (int, float)):
                # Of many replicas the resources are of no interest.
                return tag(name, 14, "", equation, whole, sent=size)
            start = minimum(cost(0.0 * size), whole)
            moving = tag(name, 14, net.group(ranks).resource, equation, whole - start, sent=size)
            return moving + tag(name, 14, "messages", equation, start)

        if some(self.tp > 1):
            group, sums = net.group(self.tp), self._reductions
            ring = "t = n_r (2 (n-1)/n M/W + 2 (n-1) a)"
            time = time + sent("tensor parallelism", ring, self.tp, lambda m: sums * net.all_reduce(m, group), message)
        if phase == "decode" and some(self.cp > 1):
            # As EngineStep._put_together has it: queries are gathered, partial sums scattered, and their weights gathered.
            group = net.group(self.cp)
            each = "t = L (2 (c-1)/c M/W + 3 (c-1) a)"

            def together(message: Any) -> Any:
                return net.all_reduce(message, group) + net.all_reduce(0.0 * message, group) / 2

            for count, elements, heads in self._attending:
                size = tokens * self.cp / self.tp * (elements * HALF + 2 * heads)
                time = time + count * sent("context parallelism", each, self.cp, together, size)
        if some(self.attention_groups > 1):
            there_and_back = (self.activation_element / maximum(self.activation_element, HALF) + 1) / 2
            token, choices = message / self.tp * there_and_back, self.model.totals.experts_per_token
            times, experts = where(self.attention_groups > 1, 2 * self._expert_layers, 0.0), net.group(self.ep)

            def exchanged(routed: Any) -> Any:
                return times * net.exchange(
                    routed / choices, choices, experts, phase == "prefill", self.model.routing_limit
                )

            time = time + sent("expert exchange", "t = 2 L (M/W + a)", self.width, exchanged, token * choices)
        if some(self.pp > 1):
            near, hops = self.devices <= net.domain, self.pp - 1
            sends = "t = (p-1) (M/W + a)"
            time = time + sent("pipeline parallelism", sends, self.devices, lambda m: hops * net.send(m, near), message)
        return time

    @cached_property
    def _reductions(self) -> int:
        """Sums over the tensor-parallel group in a pass: one after each mixer, one after each feed-forward layer."""
        blocks = self.model.stack.blocks
        return sum(block.count * (len(block.mixers) + (block.ffn is not None)) for block in blocks)

    @cached_property
    def _attending(self) -> list[tuple[int, float, float]]:
        """Layers of each kind of attention, half of the elements of all queries and sums of a token, and heads."""
        kinds = [
            (block.count, kind)
            for block in self.model.stack.blocks
            for mixer in block.mixers
            for kind in mixer.template(decode=True)
            if isinstance(kind, Core)
        ]
        return [(count, kind.heads * (kind.qk + kind.v) / 2, kind.heads) for count, kind in kinds]

    @cached_property
    def _expert_layers(self) -> int:
        return sum(b.count for b in self.model.stack.blocks if isinstance(b.ffn, MixtureOfExperts))


@dataclass(frozen=True, slots=True)
class Passes:
    """Passes that differ in the context alone: what does not depend on it is worked out once."""

    replica: Replica
    phase: str
    local: Any
    """Sequences of one attention group."""
    new: Any
    weights: Any
    """Time in which one device reads its weights, and adapters."""
    expanding: Any
    """Time in which it expands them to 16 bits."""
    adapting: Any
    """Time in which it multiplies by adapters."""
    communication: Any
    tag: Tag

    def at(self, context: Any) -> PassTime:
        """The pass after ``context`` cached tokens."""
        r, groups, tag = self.replica, self.replica.attention_groups, self.tag
        # The cache is what one device of a group reads of it, below, and weights are read above; the totals are of no use here.
        demand = sequence_demand(
            r.model.totals,
            self.phase,
            self.local * groups,
            self.new,
            context,
            (0.0, 0.0),
            r.activation_element,
            cache_bytes=0.0,
        )
        read = self.local * r.group_cache(context, read=True)
        if self.phase != "decode":
            read = where(context > 0, read, 0.0)
        moved = device_bytes(0.0, 0.0, demand.activation_bytes, read, r.tp, r.width, groups)
        own, compute = demand.flops / r.width, compute_time(demand.flops / r.width, r.peak, r.efficiency)
        if some(r.wide < r.peak):
            narrow = minimum(weight_products(r.model, self.local * groups * self.new) / r.width, own)
            compute = compute_time(narrow, r.peak, r.efficiency) + compute_time(own - narrow, r.wide, r.efficiency)
        caches = memory_time(moved, r.bandwidth)
        arithmetic = tag("arithmetic", 1, "peak", "t = F / (n P eta)", compute, flop=own)
        return PassTime(
            compute=maximum(arithmetic, self.expanding) + self.adapting,
            weight_memory=self.weights,
            cache_memory=tag("caches and activations", 2, "bandwidth", "t = (KV + A) / (n BW)", caches, moved=moved),
            communication=self.communication,
            dispatch=tag("dispatch", 3, "host", "t = p T_dispatch", r.dispatch * r.pp),
            operations=demand.flops,
        )
