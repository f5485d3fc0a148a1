"""One training step in terms: compute, tensor, expert, context and pipeline communication, gradient synchronisation.

All of it is arithmetic on plain numbers in base units, so that one source serves a single answer and a sweep over
millions of layouts. Nothing here branches on values.

Per micro-batch and layer, forward and backward together, tensor parallelism sums activations four times (two forward,
two backward; six with full recomputation), whether as all-reduces or, with sequence parallelism, as reduce-scatters and
all-gathers of the same volume. Experts exchange tokens four times. Context parallelism passes keys and values around a
ring three times (forward once, backward with their gradients twice). A pipeline sends one activation forward and one
gradient backward for each micro-batch and chunk.

Gradients (P/(TP PP) elements a rank) are summed over the data-parallel group once a step; ZeRO 1 replaces the
all-reduce by a reduce-scatter of gradients and an all-gather of weights (the same volume); ZeRO 2 scatters gradients
for every micro-batch, since it keeps no whole ones; ZeRO 3 also gathers the weights for every forward and backward pass:
1.5 times the volume.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mlsysim.cases.layout import Placement
from mlsysim.physics.collectives import all_gather, all_to_all, hierarchical_all_reduce, send, tree_all_reduce
from mlsysim.units.kernel import Arg, kernel
from mlsysim.units.ops import maximum, minimum, where

__all__ = ["Network", "StepTerms", "exposed", "step_terms", "step_time"]


@dataclass(frozen=True, slots=True)
class Network:
    """Bandwidth that one rank has in one direction, and start-up times: inside a node and between nodes."""

    intra_bandwidth: Any
    intra_latency: Any
    inter_bandwidth: Any
    inter_latency: Any


@dataclass(frozen=True, slots=True)
class StepTerms:
    """Seconds of a step on one device, by cause; communication in full and what of it is not hidden."""

    compute: Any
    tensor: Any
    expert: Any
    context: Any
    pipeline: Any
    data: Any
    exposed_data: Any
    exposed_context: Any
    bubble: Any
    step: Any


@kernel(
    inputs={"time": Arg("s", 1e-6, 10), "hidden_fraction": Arg("", 0.01, 1.0), "available": Arg("s", 1e-6, 10)},
    outputs={"rest": "s"},
)
def exposed(time: Any, hidden_fraction: Any, available: Any) -> Any:
    """What remains of a communication when a fraction of it hides behind computing, but no more than there is."""
    return time - minimum(time * hidden_fraction, available)


@kernel(
    inputs={
        "micro_time": Arg("s", 1e-4, 10),
        "micro_batches": Arg("", 1, 1e3, whole=True),
        "idle": Arg("", 0.1, 1e2),
        "after": Arg("s", 1e-6, 10),
    },
    outputs={"time": "s", "bubble": "s"},
)
def step_time(micro_time: Any, micro_batches: Any, idle: Any, after: Any) -> Any:
    """Micro-batches, the pipeline's wait in micro-batch times, and what comes after the pipeline has drained."""
    bubble = idle * micro_time
    return micro_batches * micro_time + bubble + after, bubble


def all_reduce_time(message: Any, per_node: Any, nodes: Any, net: Network) -> Any:
    """The fastest of a (hierarchical) ring and a tree; a ring when the group sits in one node."""
    ranks = per_node * nodes
    ring = hierarchical_all_reduce(
        message, nodes, per_node, net.intra_bandwidth, net.intra_latency, net.inter_bandwidth, net.inter_latency
    )
    between = tree_all_reduce(message, maximum(ranks, 1), net.inter_bandwidth, net.inter_latency)
    return where(nodes > 1, minimum(ring, between), ring)


def gather_time(message: Any, per_node: Any, nodes: Any, net: Network) -> Any:
    """All-gather (or reduce-scatter) of a message inside nodes and between them."""
    inside = all_gather(message, per_node, net.intra_bandwidth, net.intra_latency)
    return inside + all_gather(message / per_node, nodes, net.inter_bandwidth, net.inter_latency)


def exchange_time(message: Any, ranks: Any, per_node: Any, net: Network) -> Any:
    """All-to-all: the share for the node's own ranks over its links, the rest over the fabric, both at once."""
    own = minimum(per_node, ranks)
    inside = all_to_all(message * own / ranks, own, net.intra_bandwidth, net.intra_latency)
    outside = message * (ranks - own) / ranks / net.inter_bandwidth + (ranks - own) * net.inter_latency
    return maximum(inside, outside)


def step_terms(
    *,
    compute: Any,
    micro_batches: Any,
    idle: Any,
    stage_layers: Any,
    tensor_message: Any,
    tensor_sums: Any,
    tensor_ranks: Any,
    expert_message: Any,
    expert_layers: Any,
    expert_ranks: Any,
    context_message: Any,
    context_ranks: Any,
    boundary_message: Any,
    boundaries: Any,
    gradient_bytes: Any,
    zero_stage: Any,
    place: Placement,
    net: Network,
    hide_data: Any,
    hide_tensor: Any,
    hide_expert: Any,
    hide_context: Any,
    hide_pipeline: Any,
    congestion: Any,
) -> StepTerms:
    """All terms of a step. ``compute`` is that of one micro-batch on one device."""
    congested = Network(net.intra_bandwidth, net.intra_latency, net.inter_bandwidth / congestion, net.inter_latency)
    tensor = stage_layers * tensor_sums * all_reduce_time(tensor_message, place.tp_per_node, place.tp_nodes, congested)
    tensor = where(tensor_ranks > 1, tensor, 0.0 * tensor)
    expert = 4 * expert_layers * exchange_time(expert_message, expert_ranks, place.ep_per_node, congested)
    expert = where(expert_ranks > 1, expert, 0.0 * expert)
    link = where(place.cp_inside, net.intra_bandwidth, congested.inter_bandwidth)
    alpha = where(place.cp_inside, net.intra_latency, net.inter_latency)
    context = 3 * stage_layers * (context_ranks - 1) * send(context_message, link, alpha)
    context = where(context_ranks > 1, context, 0.0 * context)
    pipe_link = where(place.pp_inside, net.intra_bandwidth, congested.inter_bandwidth)
    pipe_alpha = where(place.pp_inside, net.intra_latency, net.inter_latency)
    pipeline = 2 * boundaries * send(boundary_message, pipe_link, pipe_alpha)
    pipeline = where(boundaries > 0, pipeline, 0.0 * pipeline)

    exposed_context = exposed(context, hide_context, compute)
    inside = (1 - hide_tensor) * tensor + (1 - hide_expert) * expert + (1 - hide_pipeline) * pipeline + exposed_context
    micro = compute + inside

    whole = all_reduce_time(gradient_bytes, place.dp_per_node, place.dp_nodes, congested)
    part = gather_time(gradient_bytes, place.dp_per_node, place.dp_nodes, congested)
    scatters = where(zero_stage >= 2, micro_batches, 1.0)
    gathers = where(zero_stage >= 3, 2.0 * micro_batches, 1.0)
    data = where(zero_stage >= 1, part * (scatters + gathers), whole)
    backward = 2 / 3 * micro_batches * compute
    window = where(zero_stage >= 3, micro_batches * compute, backward)
    exposed_data = exposed(data, hide_data, window)
    step, bubble = step_time(micro, micro_batches, idle, exposed_data)
    return StepTerms(
        compute=micro_batches * compute,
        tensor=micro_batches * tensor,
        expert=micro_batches * expert,
        context=micro_batches * context,
        pipeline=micro_batches * pipeline,
        data=data,
        exposed_data=exposed_data,
        exposed_context=micro_batches * exposed_context,
        bubble=bubble,
        step=step,
    )
