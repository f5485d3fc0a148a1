"""Operators of a training step on one device: products, attention, scans, experts and what lies between them, each a named time.

    product      t0 + max(F / R, B / (e W))               R the rate that long products sustain
    attention    t0 + F (1 + S0/S) / A, forward; backward 2.5 times the work; behind it the ring of context parallelism
    elementwise  B / (e W), with the bytes that the stack's fusion leaves
    experts      grouped products of the tokens routed here, permutation and activation around them; four exchanges

Sizes are those of one rank; a stack says what is fused, a chip how fast it is.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from mlsysim.cases.algebra import Algebra
from mlsysim.cases.job import Job
from mlsysim.cases.layout import Groups, Layout
from mlsysim.models.ffn import Experts
from mlsysim.models.recompute import Again
from mlsysim.models.template import Core, Product
from mlsysim.models.training_shape import LayerKind, TrainingShape
from mlsysim.physics.operators import HARD, attention_prefill_time, overlapped, product_time, stream_time
from mlsysim.physics.precision import PASSES, bytes_per_element, format_of
from mlsysim.timing.network import resource_of
from mlsysim.timing.stacks import Stack
from mlsysim.timing.training_chip import Constants, TrainingChip
from mlsysim.units.ops import minimum, taken, where

__all__ = [
    "HALF",
    "Setting",
    "adapter_operators",
    "adapters_time",
    "asked",
    "attention_core",
    "elementwise_traffic",
    "embedding_time",
    "exchange_time",
    "experts_time",
    "head_time",
    "products_time",
    "scan_time",
    "stream",
]

HALF = bytes_per_element("bf16")
"""Bytes of an activation."""
FLOP = 1.0
"""An operation; a multiply-add has two."""


class Setting(NamedTuple):
    """What the functions below share."""

    a: Algebra
    chip: TrainingChip
    stack: Stack
    k: Constants
    job: Job
    layout: Layout
    groups: Groups
    again: Again

    def take(self, index: Any) -> Setting:
        """Some of many points, whose chip and stack are one."""
        own = (taken(each, index) for each in self[4:])
        return Setting(*self[:4], *own)


def asked(weight: Any) -> bool:
    """Whether anything has this weight; arrays may."""
    return not (isinstance(weight, (int, float)) and weight == 0)


def stream(s: Setting, name: str, moved: Any, share: Any) -> Any:
    """Bytes at a share of the memory bandwidth, under a name."""
    return s.a.tag(name, 2, "bandwidth", "stream", stream_time(moved, s.chip.bandwidth, share), moved=moved)


def _product(s: Setting, name: str, chip: TrainingChip, operations: Any, moved: Any, rate: Any = 1.0) -> Any:
    """A matrix product: its start, and arithmetic at a share of the rate or memory, whichever is longer."""
    seconds = stream_time(moved, chip.bandwidth, chip.product.memory_share)
    return product_time(
        s.a.tag(name, 1, "peak", "product", operations / (chip.product_rate * rate), flop=operations),
        s.a.tag(name, 2, "bandwidth", "product", seconds, moved=moved),
        0.0,
        0.0,
        s.a.tag("starts of products", 3, "start", "product", chip.product.times[0]),
        HARD,
    )


def _arithmetic(s: Setting, part: str) -> tuple[TrainingChip, ...]:
    """What the products of a part compute in, forward and for the gradients of inputs and weights: the format, or 16 bits."""
    return tuple(s.chip if s.job.arithmetic.narrows(part, each) else s.chip.wide for each in PASSES)


def _converted(s: Setting, part: str, inputs: Any, outputs: Any) -> tuple[Any, Any]:
    """Times of narrowing inputs forward and the gradients of outputs backward: 16 bits read, a copy written for each product that reads it."""
    narrow = [s.job.arithmetic.narrows(part, each) for each in PASSES]
    last = 0 if s.job.frozen else narrow[2]

    def time(copies: int, elements: Any) -> Any:
        each = s.chip.converts * (HALF + copies * s.chip.product_bytes)
        return stream(s, "conversion", each * elements, s.chip.product.quantise_share) if copies else 0.0

    return time(narrow[0] + last, inputs), time(narrow[1] + last, outputs)


def _expanded(job: Job) -> float:
    """Bytes of expanding a frozen weight of a weight-only format."""
    found = format_of(job.precision)
    return found.expansion if job.frozen and found.weight_only else 0.0


def products_time(s: Setting, kind: LayerKind, tokens: Any, only: str = "") -> tuple[Any, Any]:
    """Forward and backward times of the products of a layer, conversions included; of ``latent`` projections or of its ``ffn`` alone."""
    frozen, tp, expanded = s.job.frozen, s.layout.tp, _expanded(s.job)
    forward: Any = 0.0
    backward: Any = 0.0
    for product in kind.products:
        latent = product.split == "n" and product.k < kind.hidden
        if (only == "latent" and not latent) or (only == "ffn" and product.layer != "ffn"):
            continue
        n = product.n / tp if product.split == "n" else product.n
        depth = product.k / tp if product.split == "k" else product.k
        own = s.layout.micro_batch * kind.source / s.layout.cp if product.source and kind.source else tokens
        rows = own if product.split else own / tp
        operations = 2 * FLOP * rows * n * depth
        weights, inputs, outputs = n * depth, rows * depth, rows * n
        ahead, back, last = _arithmetic(s, product.layer)
        moved = ahead.product_bytes * (weights + inputs) + s.chip.element * outputs
        forward = forward + _product(s, "products", ahead, operations, moved)
        moved = back.product_bytes * (weights + outputs) + s.chip.element * inputs
        backward = backward + _product(s, "products", back, operations, moved)
        if not frozen:
            gradient = last.product_bytes * (inputs + outputs) + s.k.gradient_traffic * weights
            backward = backward + _product(s, "products", last, operations, gradient)
        if expanded:
            matrix = stream(s, "expansion of weights", expanded * weights, s.stack.elementwise_share)
            forward, backward = forward + matrix, backward + matrix
        if s.chip.product_bytes < HALF:
            there, back_again = _converted(s, product.layer, inputs, outputs)
            forward, backward = forward + there, backward + back_again
    return forward, backward


def _keys(core: Core, seq_len: Any) -> Any:
    """Keys that a query attends to, on average."""
    if core.ratio != 1.0:
        return minimum(seq_len / core.ratio / 2, core.topk)
    if core.causal:
        return where(seq_len > core.window, core.window * (1 - core.window / 2 / seq_len), seq_len / 2.0)
    return minimum(seq_len, core.window)


def attention_core(s: Setting, kind: LayerKind, tokens: Any) -> tuple[Any, Any, Any]:
    """Forward and backward times of the attention cores of a layer, and the ring of context parallelism in full."""
    a, chip, stack, k, job, cp = s.a, s.chip, s.stack, s.k, s.job, s.layout.cp
    forward: Any = 0.0
    backward: Any = 0.0
    for core in kind.cores:
        whole = kind.source if core.cross and kind.source else kind.positions or job.seq_len
        heads = core.heads / s.layout.tp
        per_pair = 2 * FLOP * heads * (core.qk + core.v)
        if stack.attention == "unfused":
            operations = per_pair * tokens * minimum(whole * 1.0, core.window)
            scores, wider = heads * tokens * whole, chip.element / HALF
            once = a.tag(
                "attention",
                1,
                "peak",
                "attention",
                operations / (chip.kernels.attention.unfused * chip.full_rate),
                flop=operations,
            )
            forward = (
                forward
                + once
                + stream(s, "attention scores", wider * k.unfused_forward_bytes * scores, stack.elementwise_share)
            )
            backward = (
                backward
                + 2 * once
                + stream(s, "attention scores", wider * k.unfused_backward_bytes * scores, stack.elementwise_share)
            )
            continue
        operations = per_pair * tokens * _keys(core, whole)
        rate = _attention_rate(s, core)
        length = whole / cp
        best = chip.kernels.attention
        start, ramp = best.times[0], best.ramp_tokens
        ahead = attention_prefill_time(operations, length, rate, ramp, start)
        work = k.attention_backward_work * operations
        back = attention_prefill_time(work, length, rate * best.backward_share, ramp, start)
        ahead = a.tag("attention", 1, "peak", "attention", ahead, flop=operations)
        back = a.tag("attention", 1, "peak", "attention", back, flop=work)
        if asked(stack.context_loss):
            loss = 1 + stack.context_loss * (1 - 1 / cp)
            ahead = a.grown("context parallelism", 14, "context loss", ahead, ahead * loss)
            back = a.grown("context parallelism", 14, "context loss", back, back * loss)
        forward, backward = forward + ahead, backward + back
    if asked(stack.context_loss) or not kind.cores:
        return forward, backward, 0.0
    # Keys and values (backward also their gradients) go around behind the attention, to each of the other CP - 1 ranks in turn.
    message = chip.element * tokens * kind.key_width / s.layout.tp
    around = (cp - 1.0) * chip.network.send(message, s.groups.context_near)
    there, back = (
        a.tag(
            "context parallelism",
            14,
            resource_of(s.groups.context_near),
            "ring of keys",
            n * around,
            sent=lambda n=n: n * (cp - 1.0) * message,
        )
        for n in (1, 2)
    )
    kappa = 1 - job.overlap.context
    return overlapped(forward, there, kappa), overlapped(backward, back, kappa), there + back


def _attention_rate(s: Setting, core: Core) -> Any:
    rate, best = s.chip.attention_rate, s.chip.kernels.attention
    if s.stack.attention in ("fa1", "triton"):
        return rate * best.kernel_rate(s.stack.attention)
    rate = rate * best.head_share((core.qk + core.v) / 2.0)
    if s.job.fp8_attention or s.job.arithmetic.narrows("scores"):
        # FlashAttention 2 has no such kernel; the vendor's library has.
        return rate * best.fp8_gain
    return rate * best.flash2 if s.stack.attention == "fa2" else rate


def scan_time(s: Setting, kind: LayerKind, tokens: Any) -> tuple[Any, Any]:
    """Forward and backward times of a recurrence in chunks."""
    assert kind.scan is not None
    local = tokens / s.layout.tp
    operations = FLOP * local * kind.scan.operations
    once = s.a.tag(
        "scan",
        1,
        "peak",
        "scan",
        operations / (s.chip.kernels.scans["any"].rate_share * s.chip.full_rate),
        flop=operations,
    )
    moved = stream(s, "scan", s.chip.element * local * kind.scan.elements, s.stack.elementwise_share)
    return once + moved, s.k.attention_backward_work * once + 2 * moved


def elementwise_traffic(kind: LayerKind, stack: Stack, tp: Any, tokens: Any, parallel: bool) -> Any:
    """Elements that norms, residuals, position embedding and activation of a layer read and write, forward."""
    f = stack.fusion
    whole = f.hidden * kind.hidden * kind.sublayers / 2
    split = (f.rotary if kind.rotary else f.plain) * kind.attention_width
    split = split + (f.gated if kind.gated else f.ungated) * kind.feed_width
    return tokens * (whole / (tp if parallel else 1) + split / tp)


def adapters_time(s: Setting, kind: LayerKind, tokens: Any) -> tuple[Any, Any]:
    """Forward and backward times of adapters beside the projections of attention, or all products: theirs are so thin that they wait for memory.

    In PyTorch, elements of k inputs and n outputs. Forward: dropout 2.5 k, the product to the rank k and back n, its scale 2 n, the sum 3 n.
    Backward: scale 2 n, gradients of both matrices k + n, of the rank n, of the inputs k, dropout 2.5 k, their sum 3 k.
    """
    moved: list[Any] = [0.0, 0.0]
    for product in kind.products:
        if _adapted(s, product):
            n = product.n / s.layout.tp if product.split == "n" else product.n
            depth = product.k / s.layout.tp if product.split == "k" else product.k
            for i, (inputs, outputs) in enumerate(s.stack.fusion.adapter):
                moved[i] = moved[i] + s.chip.element * tokens * (inputs * depth + outputs * n)
    forward, backward = (stream(s, "adapters", each, s.stack.elementwise_share) for each in moved)
    return forward, backward


def _adapted(s: Setting, product: Product) -> bool:
    """Whether an adapter stands beside a product."""
    return product.layer == "attention" or s.job.lora_targets == "all"


def adapter_operators(s: Setting, kind: LayerKind) -> Any:
    """Operators that a host starts for adapters, less those of the gradients that frozen weights do not have.

    Forward five beside a product (dropout, two products, scale, sum), backward seven (scale, two gradients of matrices, of the rank and of the inputs,
    dropout, sum); software that fuses dropout, scale and sums starts the products alone, two and four.
    """
    fused = s.stack.fusion.adapter[0][0] < 2
    forward, backward = (2, 4) if fused else (5, 7)
    adapted = sum(_adapted(s, product) for product in kind.products)
    return adapted * (forward * (1 + s.again.full) + backward) - len(kind.products)


def experts_time(s: Setting, e: Experts, tokens: Any) -> tuple[Any, Any, Any]:
    """Routed experts: forward time without the activation, backward time, and the activation's forward time."""
    k, job, grouped = s.k, s.job, s.chip.kernels.experts["any"]
    rows = tokens * e.per_token / s.layout.tp * job.imbalance
    wide = (e.matrices - 1) * e.width
    local = e.count / s.layout.ep
    expanded, rate = _expanded(job), grouped.rate_share
    ahead, back, last = _arithmetic(s, "experts")
    fusion = s.stack.expert_fusion if e.matrices == 3 else 1.0
    forward: Any = 0.0
    backward: Any = 0.0
    for n, depth in ((wide, e.inner), (e.inner, e.width)):
        operations = 2 * FLOP * rows * n * depth
        read, written = local * n * depth + rows * depth, s.chip.element * rows * n
        forward = forward + _product(s, "experts", ahead, operations, ahead.product_bytes * read + written, rate)
        backward = backward + _product(s, "experts", back, operations, back.product_bytes * read + written, rate)
        if expanded:
            matrix = stream(s, "expansion of weights", expanded * local * n * depth, s.stack.elementwise_share)
            forward, backward = forward + matrix, backward + matrix
        if not job.frozen:
            gradient = k.gradient_traffic * local * n * depth + last.product_bytes * rows * (n + depth)
            backward = backward + _product(s, "experts", last, operations, gradient, rate)
        if s.chip.product_bytes < HALF:
            there, back_again = _converted(s, "experts", fusion * rows * depth, fusion * rows * n)
            forward, backward = forward + there, backward + back_again
    permuted = stream(
        s, "permutation", k.permute_passes * 2 * s.chip.element * rows * e.inner * fusion, grouped.activation_share
    )
    if e.plain:
        each = k.expert_activation_bytes * fusion if e.matrices == 3 else k.ungated_activation_bytes
        activation = stream(s, "elementwise", s.chip.element / HALF * each * rows * wide / 3, grouped.activation_share)
    else:
        activation = stream(s, "elementwise", s.chip.element * rows * (wide + e.width), grouped.activation_share)
    return forward + permuted, backward + permuted + 2 * activation, activation


def exchange_time(s: Setting, e: Experts, tokens: Any) -> Any:
    """Dispatch and combine, forward and backward: four exchanges, six where experts are recomputed."""
    net, ep = s.chip.network, s.layout.ep
    times = 4 + 2 * s.again.moe
    token = s.chip.element * s.job.exchanged * tokens / s.layout.tp * e.inner
    once = net.exchange(token, e.per_token, s.groups.expert, s.job.deduplicated, s.job.model.routing_limit)
    return s.a.tag(
        "expert parallelism",
        14,
        s.groups.expert.resource,
        "exchange",
        times * once,
        sent=lambda: times * token * e.per_token * (1 - 1 / ep),
    )


def head_time(s: Setting, shape: TrainingShape, tokens: Any) -> Any:
    """Output projection and loss, forward and backward, in 16 bits, or a wider format, unless the recipe narrows logits.

    Logits of a vocabulary that is no multiple of eight (GPT-2's 50,257) are unaligned rows, unless the software pads it.
    """
    vocab, backward = shape.vocab / s.layout.tp if shape.head else 0.0, 1 if s.job.frozen else 2
    operations = (1 + backward) * 2 * FLOP * tokens * shape.hidden * vocab
    rate = s.chip.product_rate if s.job.arithmetic.narrows("logits") else s.chip.full_rate
    if not s.stack.pads_vocabulary:
        rate = rate / s.chip.kernels.rows_of(shape.vocab, s.chip.element).slower(backward)
    products = s.a.tag("output head", 1, "peak", "head", operations / rate, flop=operations)
    return products + stream(s, "loss", s.stack.loss_bytes * tokens * vocab, s.stack.elementwise_share)


def embedding_time(s: Setting, shape: TrainingShape, tokens: Any) -> Any:
    """Rows of the embedding looked up, and their gradients scattered back; without a vocabulary (patches, frames) there is no table.

    Forward a row is read and written; backward a gradient is read and added to its row of the gradient: ``gradient_traffic`` bytes.
    """
    looked_up = 0.0 if shape.images else tokens * shape.hidden
    moved = (2 * s.chip.element + (0.0 if s.job.frozen else s.chip.element + s.k.gradient_traffic)) * looked_up
    return stream(s, "embedding", moved, s.stack.elementwise_share)
