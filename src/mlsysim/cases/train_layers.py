"""What one device does in a micro-batch of training, operator by operator, under a software stack: the calibrated step.

    t_layer = max(products + conversions + attention + elementwise + experts, host) + exposed tensor + exposed exchange

with the kernels of :mod:`mlsysim.physics.operators`, rates of the chip (:mod:`mlsysim.timing.training_chip`), properties of
the software (:mod:`mlsysim.timing.stacks`) and constants of every run (``data/software/training.toml``). Degrees, batch and sequence,
ZeRO stage and recomputation may be arrays; stack and precision are one for all points.

Assumed: rings keep their bandwidth, experts are balanced, layers of different kinds are spread evenly over stages. Left
out: stragglers and failures (what production runs take beyond benchmarks is in the interval of a run), wave quantisation and
tile padding (within 1 %), the uneven work of a causal ring, the sum of embeddings over a tensor group (one of
those of two layers), embeddings that the loss shares with the head (their gradients are summed over two stages once a step).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from mlsysim.cases.algebra import PLAIN, Algebra
from mlsysim.cases.job import Job
from mlsysim.cases.layout import Groups, Layout
from mlsysim.cases.offload import RESIDENT, HostTimes
from mlsysim.cases.replica_messages import Said, Shared, messages
from mlsysim.cases.schedule import pipelined
from mlsysim.cases.train import (
    Phase,
    Step,
    trained,
    with_the_host,
)
from mlsysim.cases.train_operators import (
    HALF,
    Setting,
    adapter_operators,
    adapters_time,
    asked,
    attention_core,
    elementwise_traffic,
    embedding_time,
    exchange_time,
    experts_time,
    head_time,
    products_time,
    scan_time,
    stream,
)
from mlsysim.models.keeping import state_bytes
from mlsysim.models.training_shape import LayerKind, TrainingShape
from mlsysim.physics.operators import overlapped, stream_time
from mlsysim.physics.pipeline import Shares
from mlsysim.physics.stage_split import stage_layers
from mlsysim.physics.training_memory import optimizer_bytes
from mlsysim.timing.network import resource_of
from mlsysim.timing.stacks import Stack
from mlsysim.timing.training_chip import Constants, TrainingChip
from mlsysim.units.ops import log2, maximum, minimum, where

_DOMAIN = 8.0
"""Ranks beside which the jitter of larger runs is counted."""


class _Layer(NamedTuple):
    """Times of a layer, or of all, and micro-batch: on the device, of the host, and communication in full.

    Of the device's time ``forward`` and ``weights`` are the forward pass and the gradients of weights; it is ``computed`` as the software stalls and
    launches it.
    """

    device: Any = 0.0
    forward: Any = 0.0
    weights: Any = 0.0
    host: Any = 0.0
    tensor: Any = 0.0
    exchange: Any = 0.0
    ring: Any = 0.0
    computed: Any = 0.0


def calibrated(
    job: Job,
    layout: Layout,
    shape: TrainingShape,
    chip: TrainingChip,
    stack: Stack,
    k: Constants,
    offload: HostTimes = RESIDENT,
    a: Algebra = PLAIN,
) -> Step:
    """A step of every operator, under a software stack."""
    net, hide, pp = chip.network, job.overlap, layout.pp
    degrees, micro_batch = (layout.tp, pp, layout.cp, layout.dp, layout.ep), layout.micro_batch
    groups = a.once(("groups", *degrees), Layout.groups, layout, net)
    s = Setting(a, chip, stack, k, job, layout, groups, job.again)
    tokens = micro_batch * job.seq_len / layout.cp
    alike = (*degrees, micro_batch, job.recompute)
    layer = a.once(("layers", *alike), lambda s, tokens: _layers(s, shape, tokens), s, tokens)
    ends = ("ends", layout.tp, layout.cp, micro_batch)
    head, begun = a.once(ends, lambda s, tokens: _ends(s, shape, tokens), s, tokens)
    inside = layer.computed + a.shown(layer.tensor, 1 - hide.tensor) + a.shown(layer.exchange, 1 - hide.expert)
    of = (*degrees, layout.micro_batches, layout.virtual_stages, job.zero)
    gathers, data = a.once(("messages", *of), lambda s: _said(s, shape), s)
    layers = with_the_host(a, overlapped(inside, gathers, 1 - hide.gathers), offload, pp)
    per_layer = layers / shape.layers
    split = stage_layers(shape.layers, pp, layout.virtual_stages)
    # A module that predicts one more token is a layer (each half of one where halves are layers) and another head.
    halves = 2 if any(not kind.cores and not kind.scan for kind in shape.kinds) else 1
    ending = head + job.predicted_tokens * (halves * per_layer + head)
    even = (layers + begun + ending) / pp
    boundary = chip.element * tokens * shape.hidden / (layout.tp if job.sequence_parallel else 1)
    ahead, settled = layer.forward / layer.device, layer.weights / layer.device
    pipeline = pipelined(
        a,
        job,
        layout,
        layers=shape.layers,
        alike=alike,
        mean=a.grown("stragglers", 14, "stragglers", even, job.straggler * even),
        stage=job.straggler * split.most * per_layer,
        first=job.straggler * (split.first * per_layer + begun),
        last=job.straggler * (split.last * per_layer + ending),
        shares=Shares(ahead, 1 - ahead - settled, settled),
        send=net.send(boundary, s.groups.stage_near),
        over=resource_of(s.groups.stage_near),
        message=boundary,
    )
    ranks, computed = layout.tp * pp * layout.cp * layout.dp, begun + layer.computed + ending
    phase = Phase(
        pipeline=pipeline,
        share=layout.micro_batches * job.accumulation / pp,
        compute=job.straggler * computed,
        alone=computed,
        tensor=layer.tensor,
        expert=layer.exchange,
        context=layer.ring,
        gathers=gathers,
        gathers_shown=layers - inside,
        data=data,
        window=lambda busy: hide.data_room * busy,
        update=_updated(s, shape),
        rate=chip.half_rate,
        jitter=1 + k.scale_loss * log2(maximum(ranks / _DOMAIN, 1.0)),
        overhead=minimum(ranks - 1.0, 1.0) * stack.step_overhead,
    )
    return trained(a, job, layout, net, s.groups, phase, offload)


def _ends(s: Setting, shape: TrainingShape, tokens: Any) -> tuple[Any, Any]:
    """The output head and the embedding, as the software stalls them."""
    return _stalled(s, head_time(s, shape, tokens * shape.head_tokens)), _stalled(s, embedding_time(s, shape, tokens))


def _stalled(s: Setting, device: Any) -> Any:
    """A time of the device with what the software makes it wait."""
    return s.a.grown("stalls of the software", 3, "device share", device, device / s.stack.device_share)


# --- a layer ------------------------------------------------------------------------------------------------------


def _layers(s: Setting, shape: TrainingShape, tokens: Any) -> _Layer:
    """All layers of a model, as if on one device."""
    layout, wide = s.layout, s.job.wide_share
    total = _Layer()
    for kind in shape.kinds:
        own = layout.micro_batch * kind.positions / layout.cp if kind.positions else tokens * kind.token_share
        layer = _layer(s, kind, own)
        if asked(wide):
            other = _layer(s._replace(chip=s.chip.wide), kind, own)
            layer = _Layer(*((1 - wide) * one + wide * two for one, two in zip(layer, other, strict=True)))
        launched = s.a.tag("host launches", 3, "host", "launches", layer.host)
        layer = layer._replace(computed=maximum(_stalled(s, layer.device), launched))
        total = _Layer(*(one + kind.count * each for one, each in zip(total, layer, strict=True)))
    return total


def _layer(s: Setting, kind: LayerKind, tokens: Any) -> _Layer:
    a, job, layout, k, net = s.a, s.job, s.layout, s.k, s.chip.network
    again = s.again
    moved = s.chip.element * elementwise_traffic(kind, s.stack, layout.tp, tokens, job.sequence_parallel)
    light = stream(s, "elementwise", moved, s.stack.elementwise_share)
    light = light + a.tag(
        "starts of kernels", 3, "start", "starts", s.stack.light_launches * s.chip.kernels.memory_bound.times[0]
    )
    products, settling = products_time(s, kind, tokens)
    core, core_back, ring = attention_core(s, kind, tokens)
    forward = light + products + core
    backward = s.stack.light_backward * light + settling + core_back
    if kind.scan is not None:
        scan, scan_back = scan_time(s, kind, tokens)
        forward, backward = forward + scan, backward + scan_back
    if job.frozen:
        beside, beside_back = adapters_time(s, kind, tokens)
        forward, backward = forward + beside, backward + beside_back
    repeated = _times(again.attention, core)
    launch = s.chip.kernels.memory_bound.times[2]
    # Of a layer's operators a third run forward, and again where it is computed again.
    launched: Any = k.dense_operations * (1 + again.full / 3)
    if job.frozen:
        launched = launched + adapter_operators(s, kind)
    host: Any = s.stack.host * launched * launch
    exchange: Any = 0.0
    if kind.experts is not None:
        routed, routed_back, activation = experts_time(s, kind.experts, tokens)
        forward, backward = forward + routed + activation, backward + routed_back
        settling = settling + routed_back
        repeated = repeated + _times(again.moe, routed) + _times(again.light + again.moe_act, activation)
        host = s.stack.host * k.moe_operations * launch
        exchange = exchange_time(s, kind.experts, tokens)
    repeated = repeated + _times(again.full, forward) + _times(0.5 * again.half, forward) + _times(again.light, light)
    if asked(again.norm):
        passed = (
            2 * s.chip.element * tokens * kind.hidden * kind.sublayers / (layout.tp if job.sequence_parallel else 1)
        )
        repeated = repeated + again.norm * stream(s, "elementwise", passed, s.stack.elementwise_share)
    if asked(again.up):
        repeated = repeated + again.up * products_time(s, kind, tokens, "latent")[0]
    # A feed-forward layer that all tokens pass: its products, its function, and the sums around it.
    passed_again = (again.mlp if kind.experts is None else again.shared) if kind.feed_width else 0.0
    if asked(passed_again):
        repeated = repeated + passed_again * products_time(s, kind, tokens, "ffn")[0]
        each = s.stack.fusion.gated if kind.gated else s.stack.fusion.ungated
        acted = s.chip.element * tokens * each * kind.feed_width / layout.tp
        repeated = repeated + passed_again * stream(s, "elementwise", acted, s.stack.elementwise_share)
    message = s.chip.element * tokens * kind.hidden
    sub = kind.sublayers
    if kind.experts is not None:
        sub = sub - 1 + (1 if kind.feed_width else 0)
    g = s.groups.tensor
    some = minimum(layout.tp - 1.0, 1.0)
    if job.sequence_parallel:
        calls = sub * (5 + 2 * again.full) + 2 * passed_again
        once = some * net.gather(message, g)
    else:
        calls = sub * (2 + again.full) + passed_again
        once = some * net.all_reduce(message, g)
    volume = 1 if job.sequence_parallel else 2
    tensor = a.tag(
        "tensor parallelism",
        14,
        g.resource,
        "ring",
        calls * once,
        sent=lambda: volume * calls * (layout.tp - 1) / layout.tp * message,
    )
    # Of two products in the backward pass one gives the gradient of weights.
    weights = (0.0 if job.frozen else 0.5) * settling
    return _Layer(forward + backward + repeated, forward, weights, host, tensor, exchange, ring)


def _times(weight: Any, time: Any) -> Any:
    """``weight`` times a time, nothing where it is not asked for."""
    return weight * time if asked(weight) else 0.0


# --- what is shared over replicas ---------------------------------------------------------------------------------


def _local_parameters(shape: TrainingShape, layout: Layout) -> tuple[Any, Any]:
    """Parameters of one device: those that every token uses, and of routed experts."""
    dense = (shape.dense_parameters + shape.embedding) / (layout.tp * layout.pp)
    return dense, shape.expert_parameters / (layout.ep * layout.pp)


def _owned(s: Setting, dense: Any, experts: Any) -> Any:
    """Parameters whose optimizer state a device keeps."""
    g = s.groups
    return where(s.job.zero == 0, dense + experts, dense / g.shard.ranks + experts / g.expert_shard.ranks)


def _updated(s: Setting, shape: TrainingShape) -> Any:
    """The optimizer's reading and writing of what a device owns, after casts of parameters.

    The constant is Adam's in fp32; another optimizer reads and writes its own states instead, and moments may be narrower.
    """
    job, chip, stack = s.job, s.chip, s.stack
    dense, experts = _local_parameters(shape, s.layout)
    states = state_bytes(job.model, job.optimizer, HALF)
    states = states - optimizer_bytes("adam", HALF) - (1 - job.keeps.moments / (2 * HALF)) * (states - 2 * HALF)
    update = s.k.optimizer_bytes if stack.update_bytes is None else stack.update_bytes
    moved = (update + 2 * states) * _owned(s, dense, experts)
    moved = 0.0 * moved if job.frozen else job.updated_here * moved
    # Frozen weights rest in the format of the arithmetic, and fp32 arithmetic reads parameters as they are.
    cast_bytes = (0.0 if job.frozen or chip.product_bytes > HALF else 1.0) * stack.cast_bytes
    casts = stream(s, "casts of parameters", cast_bytes * (dense + experts), stack.elementwise_share)
    written = stream_time(moved, chip.bandwidth, chip.kernels.memory_bound.optimizer_share)
    return casts + s.a.tag("optimizer update", 2, "bandwidth", "update", written, moved=moved)


def _said(s: Setting, shape: TrainingShape) -> Said:
    """What replicas say to each other: beside the layers, and after them."""
    shared = _shared(s, shape)
    return messages(s.a, s.job, s.layout, s.chip.network, s.groups, shared, "ring", s.layout.pp)


def _shared(s: Setting, shape: TrainingShape) -> Callable[[Groups], list[Shared]]:
    """What replicas share: weights move in their format, gradients in the one that they are kept in, both a layer at a time; experts of all layers at once."""
    dense, experts = _local_parameters(shape, s.layout)
    weight = s.chip.product_bytes if s.job.frozen else s.chip.element
    gradient = s.job.gradient_bytes(weight)
    pieces = maximum(shape.layers / s.layout.pp, 1.0)

    def of(g: Groups) -> list[Shared]:
        found = [Shared(gradient * dense, weight * dense, g.data, g.shard, g.copies, pieces)]
        if shape.expert_parameters:
            own = g.expert_data, g.expert_shard, g.expert_copies
            found.append(Shared(gradient * experts, weight * experts, *own))
        return found

    return of
