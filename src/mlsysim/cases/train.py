"""One training step of a model laid out over a fleet: the arithmetic of wall 14, at both fidelities.

    device      what one device computes in a micro-batch: one operator (first order, :func:`first_order`) or all of them
                (:mod:`mlsysim.cases.train_layers`)
    network     what it says to others, in full (:mod:`mlsysim.timing.network`)
    pipeline    what stages do with the micro-batches: busy, wait, send (:mod:`mlsysim.cases.schedule`)
    composed    T = jitter [ pipeline + data not hidden + update ] + fixed + host round trip

Only :func:`composed` adds the times of a step; what is hidden, lost or waited for is named there.

Per micro-batch and layer, forward and backward together, tensor parallelism sums activations four times (two forward, two
backward; six with full recomputation; of all tokens of its samples, :mod:`mlsysim.models.traffic`), as all-reduces or, with sequence parallelism, as reduce-scatters and all-gathers of the
same volume. Experts exchange tokens four times. Context parallelism passes keys and values around a ring three times (forward
once, backward with their gradients twice). A pipeline sends one activation forward and one gradient backward for each
micro-batch and chunk.

Gradients (P/(TP PP) elements a rank) are summed over the DP x CP ranks that hold the same weights once a step; ZeRO 1 replaces
the all-reduce by a reduce-scatter of gradients and an all-gather of weights (the same volume); ZeRO 2 scatters gradients for
every micro-batch, since it keeps no whole ones; ZeRO 3 also gathers the weights for every forward and backward pass: 1.5 times
the volume for each micro-batch. Software that keeps them whole for the step (``Job.regathers``) sends either once, and memory counts them
whole. With a shard of z ranks (HSDP) all of it stays among z neighbours, and copies of a share sum 1/z of the gradients once a step.

The optimizer's own work (:mod:`mlsysim.cases.update`) comes last, with nothing beside it.

Degrees, sizes and factors may be arrays: a point of a sweep is this case on an array.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mlsysim.cases.algebra import PLAIN, Algebra
from mlsysim.cases.job import Job
from mlsysim.cases.layout import Groups, Layout
from mlsysim.cases.offload import RESIDENT, HostTimes, of_state
from mlsysim.cases.schedule import Pipelined, Stages, pipelined, sharing
from mlsysim.cases.update import orthogonalised, update_bytes
from mlsysim.models.demand import Demand
from mlsysim.models.stages import fullest_parameters
from mlsysim.models.storage import expanded_training, routed_parameters
from mlsysim.models.traffic import stream
from mlsysim.models.training_shape import training_shape
from mlsysim.physics.pipeline import Shares
from mlsysim.physics.precision import HALF, PASSES, activation_element, bytes_per_element
from mlsysim.physics.roofline import compute_time, memory_time
from mlsysim.physics.stage_split import stage_layers
from mlsysim.timing.network import Hierarchical
from mlsysim.units.ops import maximum, minimum, some, where
from mlsysim.units.records import dataclass

BACKWARD_SHARE = 2 / 3
"""Of a pass forward and backward: the gradients of inputs and of weights are as much work as the forward pass, each."""
BESIDE = "weights and activations over the host link"
"""The part of a step that waits for them."""
BETWEEN_SITES = "wide-area link"
"""The part of a step that replicas at several sites add to what they say to each other: (S - 1) (M / n (1 / W - 1 / B) + latency)."""


@dataclass(frozen=True, slots=True)
class Step:
    """Seconds of a step, numbers or times of a tape; communication in full, hidden or not.

    ``compute`` is what a device computes; ``ideal`` what it would do alone: evenly split layers and its update, without stragglers.
    ``busy`` is what the longest stage works, ``paced`` with what it waits for others in the pipeline.
    """

    seconds: Any
    compute: Any
    ideal: Any
    tensor: Any
    expert: Any
    context: Any
    messages: Callable[[], Any]
    data: Any
    exposed_data: Any
    busy: Any
    paced: Any
    offload: Any
    update: Any = 0.0
    stages: Stages | None = None

    @property
    def bubble(self) -> Any:
        """What the longest stage waits for others."""
        return self.paced - self.busy

    @property
    def pipeline(self) -> Any:
        """All messages of a stage."""
        return self.messages()


def composed(
    a: Algebra,
    pipeline: Pipelined,
    *,
    data: Any,
    hides: Any,
    window: Callable[[Any], Any],
    update: Any,
    jitter: Any,
    fixed: Any,
    offload: Any,
) -> tuple[Any, Any]:
    """The step, and what of the synchronisation shows. One form for both fidelities.

    ``hides`` is the share of the synchronisation that may run beside computing; ``window`` gives the computing that it may run
    beside, from the time that stages are busy.
    """
    shown = data - minimum(hides * data, window(pipeline.busy))
    step = pipeline.paced + pipeline.sends + shown + update
    return a.grown("jitter at scale", 14, "jitter", step, jitter * step) + (fixed + offload), shown


@dataclass(frozen=True, slots=True)
class Device:
    """A chip by its datasheet: rates in flop/s and byte/s, ``wide`` that of 16 bits where it is another. Its dispatch of a pass (10 us)
    is left out of a step."""

    peak: Any
    efficiency: Any
    bandwidth: Any
    wide: Any = None


@dataclass(frozen=True, slots=True)
class Amounts:
    """What goes into a first-order step: operations and bytes of one device and micro-batch, messages of each group."""

    flops: Any
    moved: Any
    balance: Any
    stage_layers: Any
    shares: Shares
    tensor_message: Any
    tensor_sums: Any
    expert_token: Any
    expert_choices: Any
    expert_layers: Any
    context_message: Any
    boundary_message: Any
    gradient_bytes: Any
    update_bytes: Any
    weight_bytes: Any
    expert_gradient_bytes: Any
    expert_weight_bytes: Any
    table_message: Any = 0.0
    narrow: Any = 1.0


def narrow_share(job: Job, micro: Demand) -> Any:
    """Of the operations of a step those in the arithmetic of the precision; a recipe leaves the others in 16 bits.

    What is recomputed has the share of the rest. Of a model without layers all products are taken to be in the format.
    """
    recipe, model = job.arithmetic, job.model
    if not recipe.narrow:
        return 1.0
    all_of = PASSES[:2] if job.frozen else PASSES
    passes = [each for each in all_of if each in recipe.passes]
    share = (1 - job.wide_share) * len(passes) / len(all_of)
    if not getattr(model, "has_dimensions", False):
        return share
    products = training_shape(model).products_of(recipe.products)
    return share * minimum(2 * len(all_of) * products * micro.tokens / micro.flops, 1.0)


def first_order_amounts(job: Job, layout: Layout, micro: Demand) -> Amounts:
    """From the demand of one micro-batch to what the device with the longest stage has of it."""
    model = job.model
    # Operations and tokens are proportional to the samples; the bytes of weights are not.
    layers = getattr(model, "layers", None) or 1
    most = stage_layers(layers, layout.pp, layout.virtual_stages).most
    balance = layers / (most * layout.pp)
    shards = layout.tp * layout.pp * layout.cp * balance
    imbalance = 1 + expert_share(model) * (job.imbalance - 1)
    element = bytes_per_element(job.precision)
    # Products write 16 bits at least, and that is what is summed and sent.
    activation = maximum(activation_element(job.precision), HALF)
    weights = micro.weight_bytes + expanded_training(model, micro, job.precision, job.frozen)
    between = stream(model, job.seq_len)
    message = layout.micro_batch / layout.cp * between.elements * activation
    tokens = layout.micro_batch * job.seq_len / layout.cp
    cache = getattr(model, "kv_elements_per_token", 0.0) if some(layout.cp > 1) else 0.0
    dense, experts = fullest_parameters(model, layout.tp, layout.pp, layout.ep, layout.virtual_stages, placed=False)
    # Experts that are not apart are said with the rest.
    dense, experts = where(layout.ep > 1, dense, dense + experts), where(layout.ep > 1, experts, 0.0)
    weight = element if element >= 2 or job.frozen else 2.0
    gradient = 0.0 if job.frozen else job.gradient_bytes(weight)
    return Amounts(
        flops=micro.hardware_flops / shards * imbalance,
        moved=weights * weights_read(model, layout) / balance + micro.activation_bytes / shards,
        balance=balance,
        stage_layers=most,
        shares=_shares(micro, job.frozen),
        tensor_message=message,
        tensor_sums=where(job.recompute == "full", 3, 2) * between.halves / layers,
        expert_token=message / layout.tp * job.exchanged,
        expert_choices=getattr(model, "active_experts_per_token", 0),
        expert_layers=most * moe_fraction(model),
        context_message=tokens * cache / layers * activation / layout.tp,
        boundary_message=message / (layout.tp if job.sequence_parallel else 1),
        gradient_bytes=gradient * dense,
        weight_bytes=weight * dense,
        expert_gradient_bytes=gradient * experts,
        expert_weight_bytes=weight * experts,
        update_bytes=update_bytes(job, layout) if job.updates else 0.0,
        table_message=layout.micro_batch * model.pooled_elements * activation,
        narrow=narrow_share(job, micro),
    )


def first_order(
    job: Job,
    layout: Layout,
    amounts: Amounts,
    device: Device,
    net: Hierarchical,
    offload: HostTimes = RESIDENT,
    a: Algebra = PLAIN,
) -> Step:
    """The whole phase as one operator at one efficiency; ``offload`` are times over the host link."""
    x, hide, g = amounts, job.overlap, layout.groups(net)
    m = layout.micro_batches * job.accumulation
    computing = x.balance * compute_time(x.flops * x.narrow, device.peak, device.efficiency)
    if device.wide is not None:
        computing = computing + x.balance * compute_time(x.flops * (1 - x.narrow), device.wide, device.efficiency)
    moving = x.balance * memory_time(x.moved, device.bandwidth)
    even = maximum(
        a.tag("arithmetic", 1, "peak", "roofline", computing, flop=x.balance * x.flops),
        a.tag("memory traffic", 2, "bandwidth", "roofline", moving, moved=x.balance * x.moved),
    )
    work = a.grown("uneven stages", 14, "uneven", even, even / x.balance)
    compute = a.grown("stragglers", 14, "stragglers", work, job.straggler * work)

    def spoken(name: str, over: str, equation: str, ranks: Any, seconds: Any, sent: Callable[[], Any]) -> Any:
        """A group's messages of a micro-batch; nothing where it has one rank."""
        return a.tag(name, 14, over, equation, where(ranks > 1, seconds, 0.0 * seconds), sent=sent)

    sums, exchanges, hops = x.stage_layers * x.tensor_sums, 4 * x.expert_layers, 3 * x.stage_layers * (layout.cp - 1)
    around = hops * net.send(x.context_message, g.context_near)
    reduced = sums * net.all_reduce(x.tensor_message, g.tensor)
    exchanged = exchanges * net.exchange(
        x.expert_token, x.expert_choices, g.expert, job.deduplicated, job.model.routing_limit
    )
    routed = x.expert_token * x.expert_choices
    tensor = spoken(
        "tensor parallelism", "link", "ring", layout.tp, reduced, lambda: _sent(2 * sums, x.tensor_message, layout.tp)
    )
    expert = spoken(
        "expert parallelism", "fabric", "exchange", layout.ep, exchanged, lambda: _sent(exchanges, routed, layout.ep)
    )
    context = spoken(
        "context parallelism", "fabric", "ring of keys", layout.cp, around, lambda: hops * x.context_message
    )
    covered = minimum(hide.context * context, hide.context_room * compute)
    micro = compute + a.shown(tensor, 1 - hide.tensor) + a.shown(expert, 1 - hide.expert) + (context - covered)
    if offload.beside is not None:
        micro = maximum(micro, a.tag(BESIDE, 2, "host link", "host", offload.beside))
    if job.model.looks_up:
        # Pooled vectors to the devices that have the samples, and their gradients back.
        ranks = net.group(layout.dp * layout.tp * layout.pp * layout.cp)
        pooled = 2 * net.exchange(x.table_message, 1, ranks, False)
        micro = micro + spoken(
            "table exchange", "fabric", "exchange", ranks.ranks, pooled, lambda: _sent(2, x.table_message, ranks.ranks)
        )
    pipeline = pipelined(
        a,
        job,
        layout,
        mean=micro,
        stage=micro,
        shares=x.shares,
        send=net.send(x.boundary_message, g.stage_near),
        message=x.boundary_message,
    )
    # What is shared and not kept whole is sent for every micro-batch; frozen weights are sent only then.
    often, shared = sharing(job, layout), job.zero >= 1
    scatters = where(job.zero >= 2, often.scatters, 1.0)
    gathers = where(job.zero >= 3, often.gathers, 1.0)
    if job.frozen:
        gathers = where(job.zero >= 3, often.gathers - often.whole_weights, 0.0)
    apart = some(layout.ep > 1) and getattr(job.model, "experts", 1) > 1

    def synchronised(part: Callable[[Any, Any], Any], whole: Callable[[Any, Any], Any], g: Groups = g) -> Any:
        """Over all groups: ``part`` of a scatter or gather, ``whole`` of a sum that all know."""
        groups = [(x.gradient_bytes, x.weight_bytes, g.data, g.shard, g.copies)]
        if apart:
            own = g.expert_data, g.expert_shard, g.expert_copies
            groups.append((x.expert_gradient_bytes, x.expert_weight_bytes, *own))
        total: Any = 0.0
        for place, (gradients, weights, group, shard, copies) in enumerate(groups):
            spread = scatters * part(gradients, shard) + gathers * part(weights, shard)
            if copies is not None:
                spread = spread + whole(gradients / shard.ranks, copies)
            found = where(shared, spread, whole(gradients, group))
            total = total + (where(layout.ep > 1, found, 0.0 * found) if place else found)
        return total

    def sent() -> Any:
        return synchronised(lambda size, at: _sent(1.0, size, at.ranks), lambda size, at: _sent(2.0, size, at.ranks))

    gathered = synchronised(net.gather, net.all_reduce)
    here = gathered if net.sites == 1 else synchronised(net.gather, net.all_reduce, g.at_one_site())
    data = a.tag("gradient synchronisation", 14, "fabric", "all-reduce", here, sent=sent)
    if net.sites > 1:
        data = data + a.tag(BETWEEN_SITES, 14, "wide area", "wide area", gathered - here)
    # Computing that hides one thing does not hide another.
    window = where(job.zero >= 3, 1.0, BACKWARD_SHARE) * hide.data_room * m * (compute - covered)
    host = a.tag(*of_state(job), offload.state)
    update: Any = 0.0
    if job.updates:
        written = memory_time(x.update_bytes, device.bandwidth)
        update = a.tag("optimizer update", 2, "bandwidth", "update", written, moved=x.update_bytes)
        update = update + orthogonalised(a, job, layout, net, g, device.peak * device.efficiency)
    step, shown = composed(
        a,
        pipeline,
        data=data,
        hides=hide.data,
        window=lambda busy: window,
        update=update,
        jitter=1.0,
        fixed=0.0,
        offload=host,
    )
    return Step(
        seconds=step,
        compute=m * compute,
        ideal=m * even + update,
        tensor=m * tensor,
        expert=m * expert,
        context=m * context,
        messages=pipeline.messages,
        data=data,
        exposed_data=shown,
        busy=pipeline.busy,
        paced=pipeline.paced,
        offload=host,
        update=update,
        stages=pipeline.stages,
    )


def _shares(micro: Demand, frozen: bool) -> Shares:
    """Forward, gradient of inputs, gradient of weights: as much work each, and what is recomputed with the second.

    Left out: attention has no weights. At a hundred thousand tokens that moves a third of the last to the second.
    """
    parts = 2 if frozen else 3
    forward = micro.flops / (parts * micro.hardware_flops)
    return Shares(forward, 1 - (parts - 1) * forward, (parts - 2) * forward)


def _sent(times: Any, message: Any, ranks: Any) -> Any:
    """Bytes that one rank sends in rings: of each message all but its own share."""
    return times * (ranks - 1) / ranks * message


def weights_read(model: Any, layout: Layout) -> Any:
    """Of the bytes of all weights: those that a device of even stages reads. Routed experts are split over the larger of the expert and the
    tensor group, the rest over tensors."""
    evenly = layout.tp * layout.pp
    if getattr(model, "experts", 1) <= 1:
        return 1 / evenly
    routed = routed_parameters(model) / model.parameter_count
    return (1 - routed * (1 - layout.tp / maximum(layout.ep * 1.0, layout.tp))) / evenly


def expert_share(model: Any) -> float:
    """Share of the active parameters that sit in routed experts."""
    experts, per_token = getattr(model, "experts", 1), getattr(model, "active_experts_per_token", 1)
    return float(routed_parameters(model) * per_token / experts / model.active_parameter_count)


def repeated_share(model: Any, parts: tuple[str, ...]) -> float:
    """Of the operations of a forward pass: those of these parts of a layer, attention apart. Norms and activations have next to none."""
    if "full" in parts:
        return 1.0
    share = 0.5 if "half" in parts else 0.0
    share += expert_share(model) if "moe" in parts else 0.0
    if "up" in parts:
        made = (p for block in model.stack.blocks for m in block.mixers for p in m.products * block.count)
        latent = sum(p.parameters for p in made if p.split == "n" and p.k < model.stack.hidden)
        share += latent / model.active_parameter_count
    return min(share, 1.0)


def moe_fraction(model: Any) -> float:
    """Share of the layers that route tokens to experts."""
    layers = getattr(model, "layers", None)
    if getattr(model, "experts", 1) <= 1 or not layers:
        return 0.0
    blocks = getattr(model, "blocks", None)
    if blocks:
        return float(sum(b.count for b in blocks if b.ffn == "moe") / sum(b.count for b in blocks))
    return float((layers - model.dense_layers) // model.moe_every / layers)
