"""A training step as the sum of what its layers do, on one device of a fleet: the calibrated form of wall 14.

    T = scale [ m t_longest + (p - 1)/v (t_mean + t_send) + exposed data + optimizer ] + fixed
    t_layer = max(products + conversions + attention + elementwise + experts, host) + exposed tensor + exposed exchange

with the kernels of :mod:`mlsysim.physics.training_step`, constants of the chip (:mod:`.training_chip`), of the software
(:mod:`.stacks`) and of every run (``data/training.toml``). Numbers or NumPy arrays go in for the degrees of parallelism,
batch and sequence; what is a name (recompute mode, ZeRO stage, stack, precision) is one for all points.

Assumed: rings keep their bandwidth, experts are balanced, layers of different kinds are spread evenly over stages. Left
out: stragglers and failures (production runs of thousands of chips are 20 to 35 % slower than benchmark runs of the same
layout), wave quantisation and tile padding (within 1 %), the uneven work of a causal ring.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mlsysim.errors import unknown_name
from mlsysim.models.training_shape import LayerKind, TrainingShape
from mlsysim.physics.training_step import (
    attention_time,
    distinct_domains,
    overlapped,
    pipelined,
    product_time,
    ring_time,
    stream_time,
)
from mlsysim.timing.stacks import Stack
from mlsysim.timing.training_chip import Constants, TrainingChip
from mlsysim.units.ops import ceil, log2, maximum, minimum, where

__all__ = ["CalibratedStep", "Job", "calibrated_step", "chosen_recompute"]

_BF16 = 2.0
RECOMPUTE: dict[str, tuple[str, ...]] = {
    "none": (),
    "selective": ("attention",),
    "half": ("half",),
    "modules": ("light",),
    "full": ("forward",),
}
"""Named modes, as parts of a layer; parts may also be joined by hand, as in attention+light."""
PARTS = ("forward", "half", "attention", "light", "up", "moe")
_HEAD_DIM = 128.0


@dataclass(frozen=True, slots=True)
class Job:
    """How the work is laid out. Degrees, batch and sequence may be arrays."""

    seq_len: Any
    micro_batch: Any
    micro_batches: Any
    tp: Any = 1
    pp: Any = 1
    cp: Any = 1
    ep: Any = 1
    dp: Any = 1
    virtual_stages: Any = 1
    zero: int = 1
    recompute: str = "none"
    frozen: bool = False
    sequence_parallel: bool | None = None
    tensor_exposed: float | None = None
    exchange_exposed: float | None = None
    fp8_attention: bool = False
    deduplicated: bool = True
    predicted_tokens: int = 0
    imbalance: Any = 1.0


@dataclass(frozen=True, slots=True)
class CalibratedStep:
    """Seconds of a step by cause, on the average stage; communication in full and what of it is not hidden."""

    step: Any
    compute: Any
    tensor: Any
    exposed_tensor: Any
    expert: Any
    exposed_expert: Any
    pipeline: Any
    data: Any
    exposed_data: Any
    optimizer: Any
    bubble: Any
    scale: Any


@dataclass(frozen=True, slots=True)
class _LayerTime:
    """Seconds of one layer and micro-batch."""

    forward: Any
    backward: Any
    again: Any
    host: Any
    tensor: Any
    exchange: Any


def calibrated_step(shape: TrainingShape, chip: TrainingChip, stack: Stack, job: Job, k: Constants) -> CalibratedStep:
    """All terms of one optimizer step."""
    tp, pp, cp, dp, m = job.tp, job.pp, job.cp, job.dp, job.micro_batches
    tokens = job.micro_batch * job.seq_len / cp
    parallel = stack.sequence_parallel if job.sequence_parallel is None else job.sequence_parallel
    exposed_share = stack.tensor_exposed if job.tensor_exposed is None else job.tensor_exposed
    compute: Any = 0.0
    tensor: Any = 0.0
    exchange: Any = 0.0
    for kind in shape.kinds:
        t = _layer(kind, shape, chip, stack, job, k, tokens * kind.token_share, parallel)
        busy = (t.forward + t.backward + t.again) / stack.device_share
        compute = compute + kind.count * maximum(busy, t.host)
        tensor = tensor + kind.count * t.tensor
        exchange = exchange + kind.count * t.exchange
    layers = shape.layers
    head = _head(shape, chip, stack, job, k, tokens * shape.head_tokens) / stack.device_share
    exposed_tensor = exposed_share * tensor
    exchange_share = stack.exchange_exposed if job.exchange_exposed is None else job.exchange_exposed
    exposed_exchange = exchange_share * exchange
    shard, experts = _local_parameters(shape, job)
    data_layer, data_after = _data(shape, chip, stack, job, k, shard, experts, parallel)
    inside = compute + exposed_tensor + exposed_exchange
    hidden = overlapped(inside, data_layer, stack.kappa)
    per_layer = hidden / layers
    chunks = pp * job.virtual_stages
    big = ceil(layers / chunks) * job.virtual_stages
    spare = big * pp - layers
    # A module that predicts one more token is a layer (each half of one where halves are layers) and another head.
    halves = 2 if any(not kind.cores and not kind.scan for kind in shape.kinds) else 1
    ahead = job.predicted_tokens * (halves * per_layer + head)
    last = maximum(big - spare, 0.0) * per_layer + head + ahead
    longest = maximum(big * per_layer, last)
    mean = (hidden + head + ahead) / pp
    send = _send(shape, chip, job, tokens, parallel, k)
    bubble_chunks = job.virtual_stages * (2.0 if stack.virtual_stages == "dualpipe" else 1.0)
    busy_time, bubble = pipelined(longest, mean, send, m, pp, bubble_chunks)
    backward = 2 / 3 * busy_time
    if stack.data_overlap:
        exposed_data = maximum(data_after - backward, 0.0) + stack.kappa * minimum(data_after, backward)
    else:
        exposed_data = data_after
    owned = _owned(job, shard, experts)
    optimizer = stream_time(k.optimizer_bytes * owned, chip.bandwidth, k.optimizer_share)
    if job.frozen:
        optimizer = 0.0 * optimizer
    ranks = tp * pp * cp * dp
    scale = 1 + k.scale_loss * log2(maximum(ranks / 8.0, 1.0))
    step = scale * (busy_time + bubble + exposed_data + optimizer) + stack.step_overhead
    share = m / pp
    return CalibratedStep(
        step=step,
        compute=share * (compute + head + ahead),
        tensor=share * tensor,
        exposed_tensor=share * exposed_tensor,
        expert=share * exchange,
        exposed_expert=share * exposed_exchange,
        pipeline=2 * m * job.virtual_stages * send,
        data=data_after + m * data_layer / pp,
        exposed_data=exposed_data + share * (hidden - inside),
        optimizer=optimizer,
        bubble=bubble,
        scale=scale,
    )


def _layer(
    kind: LayerKind,
    shape: TrainingShape,
    chip: TrainingChip,
    stack: Stack,
    job: Job,
    k: Constants,
    tokens: Any,
    parallel: bool,
) -> _LayerTime:
    tp = job.tp
    elementwise = _elementwise(kind, stack, tp, tokens, parallel)
    share = stack.elementwise_share
    light = stream_time(elementwise, chip.bandwidth, share)
    forward, backward = light, 2 * light
    products_f, products_b = _products(kind, chip, k, tokens, tp, job.frozen)
    attention_f, attention_b = _attention(kind, chip, stack, job, k, tokens)
    scan_f, scan_b = _scan(kind, chip, k, tokens, tp, share)
    forward = forward + products_f + attention_f + scan_f
    backward = backward + products_b + attention_b + scan_b
    host: Any = k.dense_operations * k.host_operation
    exchange: Any = 0.0 * tokens
    permuted: Any = 0.0
    routed_f: Any = 0.0
    if kind.experts is not None:
        routed_f, routed_b, permuted, exchange = _experts(kind, chip, stack, job, k, tokens)
        forward, backward = forward + routed_f, backward + routed_b
        operations = k.moe_operations + k.expert_operations * kind.experts.count / job.ep
        host = stack.host * operations * k.host_operation
    parts = RECOMPUTE[job.recompute] if job.recompute in RECOMPUTE else tuple(job.recompute.split("+"))
    again: Any = 0.0
    for part in parts:
        if part == "forward":
            again = again + forward
        elif part == "half":
            again = again + 0.5 * forward
        elif part == "attention":
            again = again + attention_f
        elif part == "light":
            again = again + light + permuted
        elif part == "up":
            again = again + _products(kind, chip, k, tokens, tp, job.frozen, latent=True)[0]
        elif part == "moe":
            again = again + routed_f - permuted
            exchange = 1.5 * exchange
        else:
            raise unknown_name("part of a layer to recompute", part, PARTS)
    tensor = _tensor(kind, chip, job, tokens, parallel)
    return _LayerTime(forward, backward, again, host, tensor, exchange)


def _products(
    kind: LayerKind, chip: TrainingChip, k: Constants, tokens: Any, tp: Any, frozen: bool, latent: bool = False
) -> tuple[Any, Any]:
    """Forward and backward times of the products of a layer, conversions included; of latent projections alone."""
    forward: Any = 0.0
    backward: Any = 0.0
    for product in kind.products:
        if latent and not (product.split == "n" and product.k < kind.hidden):
            continue
        n = product.n / tp if product.split == "n" else product.n
        depth = product.k / tp if product.split == "k" else product.k
        rows = tokens if product.split else tokens / tp
        f, b = _product(n, depth, rows, chip, k, frozen)
        forward, backward = forward + f, backward + b
    return forward, backward


def _product(n: Any, depth: Any, rows: Any, chip: TrainingChip, k: Constants, frozen: bool) -> tuple[Any, Any]:
    operations = 2 * rows * n * depth
    b = chip.product_bytes
    weights, inputs, outputs = n * depth, rows * depth, rows * n
    moved = b * (weights + inputs) + _BF16 * outputs
    data = b * (weights + outputs) + _BF16 * inputs
    gradient = b * (inputs + outputs) + 8.0 * weights
    share = k.gemm_memory_share
    rate, w, start = chip.product_rate, chip.bandwidth, chip.product_start
    forward = product_time(operations, moved, rate, w, share, start)
    backward = product_time(operations, data, rate, w, share, start)
    if not frozen:
        backward = backward + product_time(operations, gradient, rate, w, share, start)
    if chip.converts:
        per_element = chip.converts * (_BF16 + (1 if frozen else 2) * b)
        forward = forward + stream_time(per_element * inputs, w, k.quantise_share)
        backward = backward + stream_time(per_element * outputs, w, k.quantise_share)
    return forward, backward


def _attention(
    kind: LayerKind, chip: TrainingChip, stack: Stack, job: Job, k: Constants, tokens: Any
) -> tuple[Any, Any]:
    """Forward and backward times of the attention cores of a layer."""
    forward: Any = 0.0
    backward: Any = 0.0
    s = job.seq_len
    for core in kind.cores:
        if core.ratio != 1.0:
            keys = minimum(s / core.ratio / 2, core.topk)
        elif core.causal:
            keys = where(s > core.window, core.window * (1 - core.window / 2 / s), s / 2.0)
        else:
            keys = minimum(s, core.window)
        heads = core.heads / job.tp
        per_pair = 2 * heads * (core.qk + core.v)
        if stack.attention == "unfused":
            operations = per_pair * tokens * minimum(s * 1.0, core.window)
            scores = heads * tokens * s
            rate = k.unfused_rate * chip.half_rate
            first, second = k.unfused_forward_bytes, k.unfused_backward_bytes
            w = stack.elementwise_share
            forward = forward + operations / rate + stream_time(first * scores, chip.bandwidth, w)
            backward = backward + 2 * operations / rate + stream_time(second * scores, chip.bandwidth, w)
            continue
        width = minimum((core.qk + core.v) / 2.0, _HEAD_DIM)
        rate = chip.attention_rate
        if stack.attention == "fa1":
            rate = rate * chip.flash2 * k.flash1_rate
        else:
            rate = rate * (width / _HEAD_DIM) ** 0.5
            if stack.attention == "fa2":
                rate = rate * chip.flash2
            if job.fp8_attention:
                rate = rate * k.fp8_attention_gain
        operations = per_pair * tokens * keys
        f = attention_time(operations, s / job.cp, rate, chip.attention_ramp, k.attention_start)
        b = attention_time(
            k.attention_backward_work * operations,
            s / job.cp,
            rate * k.attention_backward_rate,
            chip.attention_ramp,
            k.attention_start,
        )
        loss = 1 + stack.context_loss * (1 - 1 / job.cp)
        forward, backward = forward + f * loss, backward + b * loss
    if not stack.context_loss:
        # Where no loss was fitted: keys and values (backward also their gradients) go around behind the attention.
        around = _context_ring(kind, chip, job, k, tokens)
        forward, backward = overlapped(forward, around, stack.kappa), overlapped(backward, 2 * around, stack.kappa)
    return forward, backward


def _context_ring(kind: LayerKind, chip: TrainingChip, job: Job, k: Constants, tokens: Any) -> Any:
    """Keys and values of a device's part of the sequence, sent on to each of the other CP - 1 devices in turn."""
    inside = job.tp * job.cp <= chip.domain
    link = where(inside, chip.ring, chip.adapter)
    latency = where(inside, chip.latency, k.hop_latency)
    message = _BF16 * tokens * kind.key_width / job.tp
    return (job.cp - 1.0) * (latency + message / link)


def _scan(kind: LayerKind, chip: TrainingChip, k: Constants, tokens: Any, tp: Any, share: float) -> tuple[Any, Any]:
    if kind.scan is None:
        return 0.0, 0.0
    arithmetic = tokens / tp * kind.scan.operations / (k.scan_rate * chip.half_rate)
    moved = stream_time(_BF16 * tokens / tp * kind.scan.elements, chip.bandwidth, share)
    return arithmetic + moved, 2.5 * arithmetic + 2 * moved


_EAGER_ROTARY, _EAGER_PLAIN, _FUSED_HEADS = 12.0, 4.0, 3.0


def _elementwise(kind: LayerKind, stack: Stack, tp: Any, tokens: Any, parallel: bool) -> Any:
    """Bytes of norms, residuals, position embedding and activation of a layer, forward."""
    sub = kind.sublayers / 2
    if stack.elementwise == "eager":
        whole = 10 * kind.hidden * sub
        split = (_EAGER_ROTARY if kind.rotary else _EAGER_PLAIN) * kind.attention_width
        split = split + (5 if kind.gated else 2) * kind.feed_width
    elif stack.elementwise == "megatron":
        whole = 11 * kind.hidden * sub
        split = 2 * kind.feed_width * (1.5 if kind.gated else 1.0) + _FUSED_HEADS * kind.attention_width
    else:
        whole = 10 * kind.hidden * sub
        split = (3 if kind.gated else 2) * kind.feed_width + _FUSED_HEADS * kind.attention_width
    return _BF16 * tokens * (whole / (tp if parallel else 1) + split / tp)


def _experts(
    kind: LayerKind, chip: TrainingChip, stack: Stack, job: Job, k: Constants, tokens: Any
) -> tuple[Any, Any, Any, Any]:
    """Routed experts: forward and backward time, bytes' time that recomputation repeats, and the exchange of tokens."""
    e = kind.experts
    assert e is not None
    rows = tokens * e.per_token / job.tp * job.imbalance
    wide = (e.matrices - 1) * e.width
    local = e.count / job.ep
    b, w = chip.product_bytes, chip.bandwidth
    rate = chip.product_rate * k.moe_rate
    forward: Any = 0.0
    backward: Any = 0.0
    fusion = stack.expert_fusion if e.matrices == 3 else 1.0
    per_element = chip.converts * (_BF16 + 2 * b) * fusion
    for n, depth in ((wide, e.inner), (e.inner, e.width)):
        operations = 2 * rows * n * depth
        weights = b * local * n * depth
        share, start = k.gemm_memory_share, chip.product_start
        moved = weights + b * rows * depth + _BF16 * rows * n
        f = product_time(operations, moved, rate, w, share, start)
        wgrad = product_time(operations, 8 * local * n * depth + b * rows * (n + depth), rate, w, share, start)
        forward = forward + f
        backward = backward + (f if job.frozen else f + wgrad)
        if chip.converts:
            forward = forward + stream_time(per_element * rows * depth, w, k.quantise_share)
            backward = backward + stream_time(per_element * rows * n, w, k.quantise_share)
    moved = k.permute_passes * 2 * _BF16 * rows * e.inner * fusion
    permute = stream_time(moved, w, k.moe_share)
    if e.plain:
        each = k.expert_activation_bytes * fusion if e.matrices == 3 else k.ungated_activation_bytes
        activation = stream_time(each * rows * wide, w, k.moe_share) / 3
    else:
        activation = stream_time(_BF16 * rows * (wide + e.width), w, k.moe_share)
    forward = forward + permute + activation
    backward = backward + permute + 2 * activation
    return forward, backward, activation, _exchange(e.per_token, e.inner, chip, job, k, tokens)


def _exchange(per_token: float, inner: float, chip: TrainingChip, job: Job, k: Constants, tokens: Any) -> Any:
    """Dispatch and combine, forward and backward: four exchanges."""
    inside = minimum(job.ep * 1.0, chip.domain * 1.0)
    domains = job.ep / inside
    message = _BF16 * tokens / job.tp * inner
    link = chip.ring * k.exchange_share
    near = message * per_token * (1 - 1 / inside) / link
    spread = maximum(domains, 1.0)
    copies = distinct_domains(spread, per_token) if job.deduplicated else per_token * (1 - 1 / spread)
    far = message * copies / chip.adapter
    some = minimum(job.ep - 1.0, 1.0)
    return 4 * some * (chip.latency + maximum(near, far))


def _tensor(kind: LayerKind, chip: TrainingChip, job: Job, tokens: Any, parallel: bool) -> Any:
    """Tensor-parallel communication of a layer, forward and backward."""
    tp = job.tp
    some = minimum(tp - 1.0, 1.0)
    part = (tp - 1) / tp
    message = _BF16 * tokens * kind.hidden
    sub = kind.sublayers
    if kind.experts is not None:
        sub = sub - 1 + (1 if kind.feed_width else 0)
    full = job.recompute == "full"
    if parallel:
        calls = sub * ((2 + 3) + (2 if full else 0))
        return some * calls * (chip.latency + part * message / chip.ring)
    calls = sub * (2 + (1 if full else 0))
    return some * calls * (chip.latency + 2 * part * message / chip.all_reduce)


def _head(shape: TrainingShape, chip: TrainingChip, stack: Stack, job: Job, k: Constants, tokens: Any) -> Any:
    """Output projection and loss, forward and backward, in 16 bit."""
    if not shape.head:
        return 0.0 * tokens
    operations = 2 * tokens * shape.hidden * shape.vocab / job.tp
    products = (2 if job.frozen else 3) * operations / chip.half_rate
    loss = stream_time(stack.loss_bytes * tokens * shape.vocab / job.tp, chip.bandwidth, stack.elementwise_share)
    return products + loss


def _local_parameters(shape: TrainingShape, job: Job) -> tuple[Any, Any]:
    """Parameters of one device: those that every token uses, and of routed experts."""
    dense = (shape.dense_parameters + shape.embedding) / (job.tp * job.pp)
    return dense, shape.expert_parameters / (job.ep * job.pp)


def _owned(job: Job, dense: Any, experts: Any) -> Any:
    """Parameters whose optimizer state a device keeps."""
    if job.zero == 0:
        return dense + experts
    group = job.dp * job.cp
    return dense / group + experts / maximum(group * job.tp / job.ep, 1.0)


def _data(
    shape: TrainingShape,
    chip: TrainingChip,
    stack: Stack,
    job: Job,
    k: Constants,
    dense: Any,
    experts: Any,
    parallel: bool,
) -> tuple[Any, Any]:
    """Data-parallel communication: of a micro-batch beside all its layers, and once after the backward pass."""
    group = job.dp * job.cp * 1.0
    inside = minimum(maximum(chip.domain / job.tp, 1.0), group)
    expert_group = maximum(group * job.tp / job.ep, 1.0)
    expert_inside = minimum(maximum(chip.domain / job.ep, 1.0), expert_group)

    def ring(size: Any, pieces: Any, element: float) -> Any:
        once = ring_time(element * size / pieces, group, inside, chip.ring, chip.adapter, chip.latency, k.hop_latency)
        return pieces * once

    def expert_ring(element: float) -> Any:
        if not shape.expert_parameters:
            return 0.0
        return ring_time(
            element * experts, expert_group, expert_inside, chip.ring, chip.adapter, chip.latency, k.hop_latency
        )

    gradient = stack.gradient_bytes
    pieces = maximum(shape.layers / job.pp, 1.0)
    if job.frozen:
        return 0.0 * group, 0.0 * group
    if job.zero >= 3:
        gathered = 2 * ring(dense, pieces, _BF16) + ring(dense, pieces, gradient)
        gathered = gathered + 2 * expert_ring(_BF16) + expert_ring(gradient)
        # A pipeline gathers its stage once a step; without one every micro-batch does.
        alone = job.pp == 1
        whole = gathered * job.pp
        return where(alone, whole, 0.0 * whole), where(alone, 0.0 * whole, gathered)
    if job.zero == 2:
        per_micro = ring(dense, pieces, gradient) + expert_ring(gradient)
        once = ring(dense, pieces, _BF16) + expert_ring(_BF16)
        alone = job.pp == 1
        return (
            where(alone, per_micro * job.pp, 0.0 * per_micro),
            where(alone, once, once + per_micro),
        )
    if job.zero == 1:
        return 0.0 * group, ring(dense, pieces, gradient) + ring(dense, pieces, _BF16) + expert_ring(
            gradient
        ) + expert_ring(_BF16)
    return 0.0 * group, 2 * ring(dense, 1.0, gradient) + 2 * expert_ring(gradient)


def _send(shape: TrainingShape, chip: TrainingChip, job: Job, tokens: Any, parallel: bool, k: Constants) -> Any:
    """One activation to the next stage."""
    message = _BF16 * tokens * shape.hidden / (job.tp if parallel else 1)
    inside = job.tp * job.cp * job.dp * job.pp <= chip.domain
    link = where(inside, chip.ring, chip.adapter)
    return minimum(job.pp - 1.0, 1.0) * (k.hop_latency + message / link)


def chosen_recompute(stack: Stack, needed: float, capacity: float, pp: int, k: Constants) -> str:
    """What a stack recomputes when nobody says: its default, or the least that makes the state fit."""
    if stack.recompute_in_pipeline and pp > 1:
        return stack.recompute_in_pipeline
    if stack.recompute != "fit":
        return stack.recompute
    return "none" if needed < k.usable_memory * capacity - k.state_bytes_reserve else "modules"
