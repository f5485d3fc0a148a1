"""The whole phase of a training step as one operator: first order, as the paper has it.

    t = max(F / (e R), B / W) / balance       operations and bytes of a micro-batch on one device of evenly split stages, over how even they are

with one efficiency e of the peak R, full bandwidth W and a hierarchical network.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mlsysim.cases.algebra import PLAIN, Algebra
from mlsysim.cases.job import Job
from mlsysim.cases.layout import Groups, Layout
from mlsysim.cases.offload import RESIDENT, HostTimes
from mlsysim.cases.replica_messages import Shared, messages, sent
from mlsysim.cases.schedule import pipelined
from mlsysim.cases.train import Phase, Step, trained, with_the_host
from mlsysim.cases.update import update_bytes
from mlsysim.models.demand import Demand
from mlsysim.models.ffn import FeedForward, MixtureOfExperts
from mlsysim.models.stages import fullest_parameters
from mlsysim.models.storage import expanded_training, routed_parameters
from mlsysim.models.traffic import stream
from mlsysim.models.training_shape import training_shape
from mlsysim.physics.pipeline import Shares
from mlsysim.physics.precision import HALF, PASSES, activation_element, bytes_per_element
from mlsysim.physics.roofline import compute_time, memory_time
from mlsysim.physics.stage_split import stage_layers
from mlsysim.timing.network import Hierarchical, resource_of
from mlsysim.units.ops import maximum, minimum, some, where
from mlsysim.units.records import dataclass


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
    gradient = job.gradient_bytes(weight)
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
    """A step of the whole phase as one operator at one efficiency; ``offload`` are times over the host link."""
    x, hide, g = amounts, job.overlap, layout.groups(net)
    m = layout.micro_batches * job.accumulation
    even = _computed(a, x, device)
    work = a.grown("uneven stages", 14, "uneven", even, even / x.balance)
    compute = a.grown("stragglers", 14, "stragglers", work, job.straggler * work)
    tensor, expert, context, tables = _messages(a, job, layout, x, net, g)
    covered = minimum(hide.context * context, hide.context_room * compute)
    micro = compute + a.shown(tensor, 1 - hide.tensor) + a.shown(expert, 1 - hide.expert) + (context - covered)
    micro = with_the_host(a, micro, offload) + tables
    update: Any = 0.0
    if job.updates:
        written = memory_time(x.update_bytes, device.bandwidth)
        update = a.tag("optimizer update", 2, "bandwidth", "update", written, moved=x.update_bytes)
    apart = some(layout.ep > 1) and getattr(job.model, "experts", 1) > 1

    def groups(g: Groups) -> list[Shared]:
        found = [Shared(x.gradient_bytes, x.weight_bytes, g.data, g.shard, g.copies)]
        if apart:
            own = g.expert_data, g.expert_shard, g.expert_copies
            there = where(layout.ep > 1, 1.0, 0.0)
            found.append(Shared(x.expert_gradient_bytes, x.expert_weight_bytes, *own, there=there))
        return found

    def window(busy: Any) -> Any:
        # Computing that hides one thing does not hide another.
        return hide.data_room * m * (compute - covered)

    phase = Phase(
        pipeline=pipelined(
            a,
            job,
            layout,
            mean=micro,
            stage=micro,
            shares=x.shares,
            send=net.send(x.boundary_message, g.stage_near),
            over=resource_of(g.stage_near),
            message=x.boundary_message,
        ),
        share=m,
        compute=compute,
        alone=even,
        tensor=tensor,
        expert=expert,
        context=context,
        data=messages(a, job, layout, net, g, groups, "all-reduce").after,
        window=window,
        update=update,
        rate=device.peak * device.efficiency if job.updates else None,
    )
    return trained(a, job, layout, net, g, phase, offload)


def _computed(a: Algebra, x: Amounts, device: Device) -> Any:
    """A micro-batch on a device of even stages: the one operator."""
    computing = x.balance * compute_time(x.flops * x.narrow, device.peak, device.efficiency)
    if device.wide is not None:
        computing = computing + x.balance * compute_time(x.flops * (1 - x.narrow), device.wide, device.efficiency)
    moving = x.balance * memory_time(x.moved, device.bandwidth)
    return maximum(
        a.tag("arithmetic", 1, "peak", "roofline", computing, flop=x.balance * x.flops),
        a.tag("memory traffic", 2, "bandwidth", "roofline", moving, moved=x.balance * x.moved),
    )


def _messages(
    a: Algebra, job: Job, layout: Layout, x: Amounts, net: Hierarchical, g: Groups
) -> tuple[Any, Any, Any, Any]:
    """Messages of a micro-batch in full: of tensors, experts, contexts, and tables that are spread over all devices."""

    def spoken(name: str, over: str, equation: str, ranks: Any, seconds: Any, said: Callable[[], Any]) -> Any:
        """Those of a group; nothing where it has one rank."""
        return a.tag(name, 14, over, equation, where(ranks > 1, seconds, 0.0 * seconds), sent=said)

    sums, exchanges, hops = x.stage_layers * x.tensor_sums, 4 * x.expert_layers, 3 * x.stage_layers * (layout.cp - 1)
    around = hops * net.send(x.context_message, g.context_near)
    reduced = sums * net.all_reduce(x.tensor_message, g.tensor)
    exchanged = exchanges * net.exchange(
        x.expert_token, x.expert_choices, g.expert, job.deduplicated, job.model.routing_limit
    )
    routed = x.expert_token * x.expert_choices
    tensor = spoken(
        "tensor parallelism",
        g.tensor.resource,
        "ring",
        layout.tp,
        reduced,
        lambda: sent(2 * sums, x.tensor_message, layout.tp),
    )
    expert = spoken(
        "expert parallelism",
        g.expert.resource,
        "exchange",
        layout.ep,
        exchanged,
        lambda: sent(exchanges, routed, layout.ep),
    )
    context = spoken(
        "context parallelism",
        resource_of(g.context_near),
        "ring of keys",
        layout.cp,
        around,
        lambda: hops * x.context_message,
    )
    tables: Any = 0.0
    if job.model.looks_up:
        # Pooled vectors to the devices that have the samples, and their gradients back.
        ranks = net.group(layout.dp * layout.tp * layout.pp * layout.cp)
        pooled = 2 * net.exchange(x.table_message, 1, ranks, False)
        tables = spoken(
            "table exchange",
            ranks.resource,
            "exchange",
            ranks.ranks,
            pooled,
            lambda: sent(2, x.table_message, ranks.ranks),
        )
    return tensor, expert, context, tables


def _shares(micro: Demand, frozen: bool) -> Shares:
    """Forward, gradient of inputs with what is recomputed, gradient of weights as long as the forward pass.

    Left out: attention has no weights. At a hundred thousand tokens that moves a third of the last to the second.
    """
    ahead = micro.forward / micro.hardware_flops
    settled = 0.0 if frozen else ahead
    return Shares(ahead, 1 - ahead - settled, settled)


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
    for part, kind in (("mlp", FeedForward), ("shared", MixtureOfExperts)):
        if part in parts:
            passed = (
                p
                for block in model.stack.blocks
                if isinstance(block.ffn, kind)
                for p in block.ffn.products * block.count
            )
            share += sum(p.parameters for p in passed if p.layer == "ffn") / model.active_parameter_count
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
