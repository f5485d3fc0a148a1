"""What one device does in a micro-batch of training, operator by operator, under a software stack: the calibrated step.

    t_layer = max(products + conversions + attention + elementwise + experts, host) + exposed tensor + exposed exchange

with the kernels of :mod:`mlsysim.physics.training_step`, rates of the chip (:mod:`mlsysim.timing.training_chip`), properties of
the software (:mod:`mlsysim.timing.stacks`) and constants of every run (``data/training.toml``). Degrees, batch and sequence,
ZeRO stage and recomputation may be arrays; stack and precision are one for all points.

Assumed: rings keep their bandwidth, experts are balanced, layers of different kinds are spread evenly over stages. Left
out: stragglers and failures (production runs of thousands of chips are 20 to 35 % slower than benchmark runs of the same
layout), wave quantisation and tile padding (within 1 %), the uneven work of a causal ring.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from mlsysim.cases.algebra import PLAIN, Algebra
from mlsysim.cases.job import Job
from mlsysim.cases.layout import Groups, Layout
from mlsysim.cases.train import BACKWARD_SHARE, Step, composed
from mlsysim.models.training_shape import Core, Experts, LayerKind, TrainingShape
from mlsysim.physics.training_memory import optimizer_bytes
from mlsysim.physics.training_step import attention_time, overlapped, stream_time
from mlsysim.timing.stacks import Stack
from mlsysim.timing.training_chip import Constants, TrainingChip
from mlsysim.units.ops import ceil, log2, maximum, minimum, where

__all__ = ["PARTS", "calibrated"]

PARTS = (
    *(
        "products",
        "starts of products",
        "starts of kernels",
        "attention",
        "attention scores",
        "elementwise",
        "conversion",
        "experts",
    ),
    *(
        "permutation",
        "scan",
        "output head",
        "loss",
        "optimizer update",
        "casts of parameters",
        "host launches",
        "stalls of the software",
    ),
    *("step overhead", "tensor parallelism", "expert parallelism", "context parallelism", "sharded state"),
    *(
        "pipeline sends",
        "gradient synchronisation",
        "uneven stages",
        "pipeline bubble",
        "stragglers",
        "jitter at scale",
    ),
    "optimizer state over the host link",
)
"""Names of the parts of a calibrated step."""

_BF16 = 2.0
_HEAD_DIM = 128.0
_DOMAIN = 8.0
"""Ranks beside which the jitter of larger runs is counted."""


class _Setting(NamedTuple):
    """What the functions below share."""

    a: Algebra
    chip: TrainingChip
    stack: Stack
    k: Constants
    job: Job
    layout: Layout
    groups: Groups


class _Layer(NamedTuple):
    """Times of one layer and micro-batch: on the device, of the host, and communication in full."""

    device: Any
    host: Any
    tensor: Any
    exchange: Any
    ring: Any


def calibrated(
    job: Job,
    layout: Layout,
    shape: TrainingShape,
    chip: TrainingChip,
    stack: Stack,
    k: Constants,
    idle: Any,
    offload: Any = 0.0,
    a: Algebra = PLAIN,
) -> Step:
    """Every operator of a step, under a software stack."""
    net, hide, pp = chip.network, job.overlap, layout.pp
    s = _Setting(a, chip, stack, k, job, layout, layout.groups(net))
    m = layout.micro_batches * job.accumulation
    tokens = layout.micro_batch * job.seq_len / layout.cp
    compute: Any = 0.0
    tensor: Any = 0.0
    exchange: Any = 0.0
    ring: Any = 0.0
    for kind in shape.kinds:
        layer = _layer(s, kind, tokens * kind.token_share)
        device = a.grown("stalls of the software", 3, "device share", layer.device, layer.device / stack.device_share)
        launched = a.tag("host launches", 3, "host", "launches", layer.host)
        compute = compute + kind.count * maximum(device, launched)
        tensor = tensor + kind.count * layer.tensor
        exchange = exchange + kind.count * layer.exchange
        ring = ring + kind.count * layer.ring
    head = _head(s, shape, tokens * shape.head_tokens)
    head = a.grown("stalls of the software", 3, "device share", head, head / stack.device_share)
    inside = compute + a.shown(tensor, 1 - hide.tensor) + a.shown(exchange, 1 - hide.expert)
    dense, experts = _local_parameters(shape, layout)
    beside, after = _data(s, shape, dense, experts)
    gathers = a.tag("sharded state", 14, "fabric", "ring", beside)
    layers = overlapped(inside, gathers, 1 - hide.gathers)
    per_layer = layers / shape.layers
    big = ceil(shape.layers / (pp * layout.virtual_stages)) * layout.virtual_stages
    spare = big * pp - shape.layers
    # A module that predicts one more token is a layer (each half of one where halves are layers) and another head.
    halves = 2 if any(not kind.cores and not kind.scan for kind in shape.kinds) else 1
    ending = head + job.predicted_tokens * (halves * per_layer + head)
    even = (layers + ending) / pp
    last = maximum(big - spare, 0.0) * per_layer + ending
    longest = a.longest(big * per_layer, last)
    mean = a.grown("stragglers", 14, "stragglers", even, job.straggler * even)
    data = a.tag("gradient synchronisation", 14, "fabric", "ring", after)
    boundary = _BF16 * tokens * shape.hidden / (layout.tp if job.sequence_parallel else 1)
    once = minimum(pp - 1.0, 1.0) * net.send(boundary, s.groups.stage_near)
    send = a.tag("pipeline sends", 14, "fabric", "send", once, sent=lambda: minimum(pp - 1.0, 1.0) * boundary)
    sends = 2 * m * layout.virtual_stages * send
    # The constant is Adam's; another optimizer reads and writes its own states instead.
    states = optimizer_bytes(job.optimizer, _BF16) - optimizer_bytes("adam", _BF16)
    update = k.optimizer_bytes if stack.update_bytes is None else stack.update_bytes
    moved = (update + 2 * states) * _owned(job, layout, dense, experts)
    moved = 0.0 * moved if job.frozen else moved
    casts = _stream(s, "casts of parameters", stack.cast_bytes * (dense + experts), stack.elementwise_share)
    ranks = layout.tp * pp * layout.cp * layout.dp
    jitter = 1 + k.scale_loss * log2(maximum(ranks / _DOMAIN, 1.0))
    host = a.tag("optimizer state over the host link", 2, "host link", "host round trip", offload)
    step, shown, bubble = composed(
        a,
        m=m,
        mean=mean,
        longest=job.straggler * longest,
        idle=idle,
        waited=send,
        data=data,
        hides=hide.data,
        window=lambda busy: hide.data_room * BACKWARD_SHARE * busy,
        update=casts
        + a.tag(
            "optimizer update",
            2,
            "bandwidth",
            "update",
            stream_time(moved, chip.bandwidth, k.optimizer_share),
            moved=moved,
        ),
        jitter=jitter,
        fixed=a.tag("step overhead", 3, "host", "fixed", minimum(ranks - 1.0, 1.0) * stack.step_overhead)
        + a.shown(sends, 1 - hide.pipeline),
        offload=host,
    )
    share = m / pp
    return Step(
        seconds=step,
        compute=share * job.straggler * (compute + ending),
        ideal=share * (compute + ending),
        tensor=share * tensor,
        expert=share * exchange,
        context=share * ring,
        pipeline=sends,
        data=data + share * gathers,
        exposed_data=jitter * (shown + share * (layers - inside)),
        bubble=bubble,
        offload=host,
    )


# --- a layer ------------------------------------------------------------------------------------------------------


def _layer(s: _Setting, kind: LayerKind, tokens: Any) -> _Layer:
    a, job, layout, k, net = s.a, s.job, s.layout, s.k, s.chip.network
    again = job.again
    moved = _elementwise(kind, s.stack, layout.tp, tokens, job.sequence_parallel)
    light = _stream(s, "elementwise", moved, s.stack.elementwise_share)
    light = light + a.tag("starts of kernels", 3, "start", "starts", s.stack.light_launches * s.chip.light_start)
    products, backward = _products(s, kind, tokens, latent=False)
    core, core_back, ring = _attention(s, kind, tokens)
    forward = light + products + core
    backward = 2 * light + backward + core_back
    if kind.scan is not None:
        scan, scan_back = _scan(s, kind, tokens)
        forward, backward = forward + scan, backward + scan_back
    repeated = _times(again.attention, core)
    host: Any = k.dense_operations * k.host_operation
    exchange: Any = 0.0
    if kind.experts is not None:
        routed, routed_back, activation = _experts(s, kind.experts, tokens)
        forward, backward = forward + routed + activation, backward + routed_back
        repeated = repeated + _times(again.moe, routed) + _times(again.light, activation)
        host = (
            s.stack.host * (k.moe_operations + k.expert_operations * kind.experts.count / layout.ep) * k.host_operation
        )
        exchange = _exchange(s, kind.experts, tokens)
    repeated = repeated + _times(again.full, forward) + _times(0.5 * again.half, forward) + _times(again.light, light)
    if _asked(again.up):
        repeated = repeated + again.up * _products(s, kind, tokens, latent=True)[0]
    message = _BF16 * tokens * kind.hidden
    sub = kind.sublayers
    if kind.experts is not None:
        sub = sub - 1 + (1 if kind.feed_width else 0)
    g = s.groups.tensor
    some = minimum(layout.tp - 1.0, 1.0)
    if job.sequence_parallel:
        calls = sub * (5 + 2 * again.full)
        once = some * net.gather(message, g)
    else:
        calls = sub * (2 + again.full)
        once = some * net.all_reduce(message, g)
    volume = 1 if job.sequence_parallel else 2
    tensor = a.tag(
        "tensor parallelism",
        14,
        "link",
        "ring",
        calls * once,
        sent=lambda: volume * calls * (layout.tp - 1) / layout.tp * message,
    )
    return _Layer(forward + backward + repeated, host, tensor, exchange, ring)


def _asked(weight: Any) -> bool:
    return not (isinstance(weight, (int, float)) and weight == 0)


def _times(weight: Any, time: Any) -> Any:
    """``weight`` times a time, nothing where it is not asked for."""
    return weight * time if _asked(weight) else 0.0


def _stream(s: _Setting, name: str, moved: Any, share: Any) -> Any:
    return s.a.tag(name, 2, "bandwidth", "stream", stream_time(moved, s.chip.bandwidth, share), moved=moved)


def _product(s: _Setting, name: str, operations: Any, moved: Any, rate: Any) -> Any:
    """A matrix product: its start, and arithmetic or memory, whichever is longer."""
    time = s.a.roofline(
        name,
        "product",
        operations / rate,
        stream_time(moved, s.chip.bandwidth, s.k.gemm_memory_share),
        operations,
        moved,
    )
    return s.a.tag("starts of products", 3, "start", "product", s.chip.product_start) + time


def _products(s: _Setting, kind: LayerKind, tokens: Any, latent: bool) -> tuple[Any, Any]:
    """Forward and backward times of the products of a layer, conversions included; of latent projections alone."""
    chip, frozen, tp = s.chip, s.job.frozen, s.layout.tp
    b = chip.product_bytes
    forward: Any = 0.0
    backward: Any = 0.0
    for product in kind.products:
        if latent and not (product.split == "n" and product.k < kind.hidden):
            continue
        n = product.n / tp if product.split == "n" else product.n
        depth = product.k / tp if product.split == "k" else product.k
        rows = tokens if product.split else tokens / tp
        operations = 2 * rows * n * depth
        weights, inputs, outputs = n * depth, rows * depth, rows * n
        forward = forward + _product(
            s, "products", operations, b * (weights + inputs) + _BF16 * outputs, chip.product_rate
        )
        backward = backward + _product(
            s, "products", operations, b * (weights + outputs) + _BF16 * inputs, chip.product_rate
        )
        if not frozen:
            gradient = b * (inputs + outputs) + s.k.gradient_traffic * weights
            backward = backward + _product(s, "products", operations, gradient, chip.product_rate)
        if chip.converts:
            each = chip.converts * (_BF16 + (1 if frozen else 2) * b)
            forward = forward + _stream(s, "conversion", each * inputs, s.k.quantise_share)
            backward = backward + _stream(s, "conversion", each * outputs, s.k.quantise_share)
    return forward, backward


def _keys(core: Core, seq_len: Any) -> Any:
    """Keys that a query attends to, on average."""
    if core.ratio != 1.0:
        return minimum(seq_len / core.ratio / 2, core.topk)
    if core.causal:
        return where(seq_len > core.window, core.window * (1 - core.window / 2 / seq_len), seq_len / 2.0)
    return minimum(seq_len, core.window)


def _attention(s: _Setting, kind: LayerKind, tokens: Any) -> tuple[Any, Any, Any]:
    """Forward and backward times of the attention cores of a layer, and the ring of context parallelism in full."""
    a, chip, stack, k, job, cp = s.a, s.chip, s.stack, s.k, s.job, s.layout.cp
    forward: Any = 0.0
    backward: Any = 0.0
    for core in kind.cores:
        heads = core.heads / s.layout.tp
        per_pair = 2 * heads * (core.qk + core.v)
        if stack.attention == "unfused":
            operations = per_pair * tokens * minimum(job.seq_len * 1.0, core.window)
            scores = heads * tokens * job.seq_len
            once = a.tag(
                "attention", 1, "peak", "attention", operations / (k.unfused_rate * chip.half_rate), flop=operations
            )
            forward = (
                forward
                + once
                + _stream(s, "attention scores", k.unfused_forward_bytes * scores, stack.elementwise_share)
            )
            backward = (
                backward
                + 2 * once
                + _stream(s, "attention scores", k.unfused_backward_bytes * scores, stack.elementwise_share)
            )
            continue
        operations = per_pair * tokens * _keys(core, job.seq_len)
        rate = _attention_rate(s, core)
        length = job.seq_len / cp
        ahead = attention_time(operations, length, rate, chip.attention_ramp, k.attention_start)
        work = k.attention_backward_work * operations
        back = attention_time(work, length, rate * k.attention_backward_rate, chip.attention_ramp, k.attention_start)
        ahead = a.tag("attention", 1, "peak", "attention", ahead, flop=operations)
        back = a.tag("attention", 1, "peak", "attention", back, flop=work)
        if stack.context_loss:
            loss = 1 + stack.context_loss * (1 - 1 / cp)
            ahead = a.grown("context parallelism", 14, "context loss", ahead, ahead * loss)
            back = a.grown("context parallelism", 14, "context loss", back, back * loss)
        forward, backward = forward + ahead, backward + back
    if stack.context_loss or not kind.cores:
        return forward, backward, 0.0
    # Keys and values (backward also their gradients) go around behind the attention, to each of the other CP - 1 ranks in turn.
    message = _BF16 * tokens * kind.key_width / s.layout.tp
    around = (cp - 1.0) * chip.network.send(message, s.groups.context_near)
    there, back = (
        a.tag(
            "context parallelism", 14, "fabric", "ring of keys", n * around, sent=lambda n=n: n * (cp - 1.0) * message
        )
        for n in (1, 2)
    )
    kappa = 1 - job.overlap.context
    return overlapped(forward, there, kappa), overlapped(backward, back, kappa), there + back


def _attention_rate(s: _Setting, core: Core) -> Any:
    rate = s.chip.attention_rate
    if s.stack.attention == "fa1":
        return rate * s.chip.flash2 * s.k.flash1_rate
    rate = rate * (min((core.qk + core.v) / 2.0, _HEAD_DIM) / _HEAD_DIM) ** 0.5
    if s.stack.attention == "fa2":
        rate = rate * s.chip.flash2
    return rate * s.k.fp8_attention_gain if s.job.fp8_attention else rate


def _scan(s: _Setting, kind: LayerKind, tokens: Any) -> tuple[Any, Any]:
    assert kind.scan is not None
    local = tokens / s.layout.tp
    operations = local * kind.scan.operations
    once = s.a.tag("scan", 1, "peak", "scan", operations / (s.k.scan_rate * s.chip.half_rate), flop=operations)
    moved = _stream(s, "scan", _BF16 * local * kind.scan.elements, s.stack.elementwise_share)
    return once + moved, s.k.attention_backward_work * once + 2 * moved


def _elementwise(kind: LayerKind, stack: Stack, tp: Any, tokens: Any, parallel: bool) -> Any:
    """Bytes of norms, residuals, position embedding and activation of a layer, forward."""
    f = stack.fusion
    whole = f.hidden * kind.hidden * kind.sublayers / 2
    split = (f.rotary if kind.rotary else f.plain) * kind.attention_width
    split = split + (f.gated if kind.gated else f.ungated) * kind.feed_width
    return _BF16 * tokens * (whole / (tp if parallel else 1) + split / tp)


def _experts(s: _Setting, e: Experts, tokens: Any) -> tuple[Any, Any, Any]:
    """Routed experts: forward time without the activation, backward time, and the activation's forward time."""
    chip, k, job = s.chip, s.k, s.job
    rows = tokens * e.per_token / s.layout.tp * job.imbalance
    wide = (e.matrices - 1) * e.width
    local = e.count / s.layout.ep
    b = chip.product_bytes
    rate = chip.product_rate * k.moe_rate
    fusion = s.stack.expert_fusion if e.matrices == 3 else 1.0
    forward: Any = 0.0
    backward: Any = 0.0
    for n, depth in ((wide, e.inner), (e.inner, e.width)):
        operations = 2 * rows * n * depth
        once = _product(s, "experts", operations, b * local * n * depth + b * rows * depth + _BF16 * rows * n, rate)
        forward, backward = forward + once, backward + once
        if not job.frozen:
            gradient = k.gradient_traffic * local * n * depth + b * rows * (n + depth)
            backward = backward + _product(s, "experts", operations, gradient, rate)
        if chip.converts:
            each = chip.converts * (_BF16 + 2 * b) * fusion
            forward = forward + _stream(s, "conversion", each * rows * depth, k.quantise_share)
            backward = backward + _stream(s, "conversion", each * rows * n, k.quantise_share)
    permuted = _stream(s, "permutation", k.permute_passes * 2 * _BF16 * rows * e.inner * fusion, k.moe_share)
    if e.plain:
        each = k.expert_activation_bytes * fusion if e.matrices == 3 else k.ungated_activation_bytes
        activation = _stream(s, "elementwise", each * rows * wide / 3, k.moe_share)
    else:
        activation = _stream(s, "elementwise", _BF16 * rows * (wide + e.width), k.moe_share)
    return forward + permuted, backward + permuted + 2 * activation, activation


def _exchange(s: _Setting, e: Experts, tokens: Any) -> Any:
    """Dispatch and combine, forward and backward: four exchanges, six where experts are recomputed."""
    net, ep = s.chip.network, s.layout.ep
    times = 4 + 2 * s.job.again.moe
    token = _BF16 * tokens / s.layout.tp * e.inner
    once = net.exchange(token, e.per_token, s.groups.expert, s.job.deduplicated)
    return s.a.tag(
        "expert parallelism",
        14,
        "fabric",
        "exchange",
        times * once,
        sent=lambda: times * token * e.per_token * (1 - 1 / ep),
    )


def _head(s: _Setting, shape: TrainingShape, tokens: Any) -> Any:
    """Output projection and loss, forward and backward, in 16 bit."""
    vocab = shape.vocab / s.layout.tp if shape.head else 0.0
    operations = (2 if s.job.frozen else 3) * 2 * tokens * shape.hidden * vocab
    products = s.a.tag("output head", 1, "peak", "head", operations / s.chip.half_rate, flop=operations)
    return products + _stream(s, "loss", s.stack.loss_bytes * tokens * vocab, s.stack.elementwise_share)


# --- what is shared over replicas ---------------------------------------------------------------------------------


def _local_parameters(shape: TrainingShape, layout: Layout) -> tuple[Any, Any]:
    """Parameters of one device: those that every token uses, and of routed experts."""
    dense = (shape.dense_parameters + shape.embedding) / (layout.tp * layout.pp)
    return dense, shape.expert_parameters / (layout.ep * layout.pp)


def _owned(job: Job, layout: Layout, dense: Any, experts: Any) -> Any:
    """Parameters whose optimizer state a device keeps."""
    group = layout.dp * layout.cp
    split = dense / group + experts / maximum(group * layout.tp / layout.ep, 1.0)
    return where(job.zero == 0, dense + experts, split)


def _data(s: _Setting, shape: TrainingShape, dense: Any, experts: Any) -> tuple[Any, Any]:
    """Data-parallel communication: of a micro-batch beside all its layers, and once after the backward pass.

    A ring is linear in its message: a start and seconds a byte. Weights move in 16 bit, gradients in the stack's
    format. ZeRO 0 sums gradients in one piece; ZeRO 1 scatters gradients and gathers weights a layer at a time, once a step;
    ZeRO 2 without a pipeline scatters for every micro-batch, and ZeRO 3 also gathers twice; a pipeline does either once a step.
    """
    layout, net, zero = s.layout, s.chip.network, s.job.zero
    start, each = net.gather_terms(s.groups.data)
    each = each * dense
    pieces = maximum(shape.layers / layout.pp, 1.0)
    several, alone_start = pieces * start, start
    if shape.expert_parameters:
        more, each_more = net.gather_terms(s.groups.expert_data)
        each = each + each_more * experts
        several, alone_start = several + more, alone_start + more
    gradients, weights = several + s.stack.gradient_bytes * each, several + _BF16 * each
    whole = 2 * (alone_start + s.stack.gradient_bytes * each)
    sharded = gradients + 2 * weights
    alone = layout.pp == 1
    inner = alone & (zero >= 2)
    beside = where(inner, where(zero >= 3, sharded, gradients), 0.0 * sharded)
    once = where(zero >= 3, where(alone, 0.0 * sharded, sharded), where(inner, weights, gradients + weights))
    after = where(zero == 0, whole, once)
    return (0.0 * beside, 0.0 * after) if s.job.frozen else (beside, after)
