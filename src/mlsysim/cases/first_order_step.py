"""From a model, a fleet and a layout to the numbers of a step: what each device computes, moves and says to others."""

from __future__ import annotations

from typing import Any

from mlsysim.cases.layout import Layout, place
from mlsysim.cases.step import Network, StepTerms, step_terms
from mlsysim.models.demand import Demand
from mlsysim.physics.pipeline import idle_slots
from mlsysim.physics.precision import bytes_per_element
from mlsysim.physics.roofline import compute_time, memory_time
from mlsysim.units.ops import ceil, maximum, where
from mlsysim.units.registry import to_si
from mlsysim.zoo.constants import constant

__all__ = ["demanded_step", "distributed_step", "expert_share", "moe_fraction", "network"]


def network(fleet: Any, share: float | None, assumed: dict[str, str]) -> Network:
    """What one accelerator has of the links inside its node and of the fabric; ``share`` of its port, if not the fabric's."""
    fabric = fleet.fabric
    latency = fabric.latency
    if latency is None:
        latency = constant("fabric_latency").quantity
        assumed["fabric latency"] = f"{latency:~P}"
    if share is None:
        share = 1.0 / fabric.oversubscription_ratio
    link = fleet.node.accelerator.link
    intra_latency = (
        link.latency if link is not None and link.latency is not None else constant("intra_node_latency").quantity
    )
    return Network(
        intra_bandwidth=to_si(fleet.node.intra_node_bw, "byte/s") / 2,
        intra_latency=to_si(intra_latency, "s"),
        inter_bandwidth=to_si(fleet.bandwidth_per_accelerator, "byte/s") * share,
        inter_latency=to_si(latency, "s"),
    )


def distributed_step(
    x: Any, layout: Layout, schedule: str, peak: float, net: Network
) -> tuple[StepTerms, dict[str, Any]]:
    """The terms of a step, and the numbers that went into them."""
    micro = x.model.demand(
        "training",
        batch_size=layout.micro_batch,
        seq_len=None if x.model.fixed_shape else x.seq_len,
        precision=x.precision,
        recompute=x.activation_recomputation,
        frozen=x.is_lora,
    )
    return demanded_step(x, layout, micro, idle_slots(schedule, layout.pp, layout.virtual_stages), peak, net)


def demanded_step(
    x: Any, layout: Any, micro: Demand, idle: Any, peak: float, net: Network
) -> tuple[StepTerms, dict[str, Any]]:
    """The same from the demand of one micro-batch and the pipeline's wait; degrees, sizes and factors may be arrays."""
    model, chip = x.model, x.fleet.node.accelerator
    sequence = not model.fixed_shape
    # Operations and tokens are proportional to the samples; the bytes of weights are not.
    parts = layout.dp * layout.micro_batches
    layers = getattr(model, "layers", None) or 1
    chunks = layout.pp * layout.virtual_stages
    stage_layers = ceil(layers / chunks) * layout.virtual_stages
    balance = layers / (stage_layers * layout.pp)
    shards = layout.tp * layout.pp * layout.cp * balance
    imbalance = 1 + expert_share(model) * (x.moe_routing_imbalance_factor - 1)
    device_flops = micro.hardware_flops / shards * imbalance
    device_bytes = micro.weight_bytes / (layout.tp * layout.pp * balance) + micro.activation_bytes / shards
    # A calibrated step replaces the arithmetic's time; its operations are the same.
    compute_micro = compute_time(device_flops, peak, 1.0 if isinstance(x.efficiency, str) else x.efficiency)
    bandwidth = to_si(chip.memory.bandwidth, "byte/s")
    memory_micro = memory_time(device_bytes, bandwidth)
    compute = maximum(compute_micro, memory_micro) * x.straggler_factor
    element = bytes_per_element(x.precision)
    activation = element if element >= 1 else 2.0
    hidden = getattr(model, "hidden_dim", None) or 0
    tokens = layout.micro_batch * (x.seq_len if sequence else 1) / layout.cp
    recomputed = x.activation_recomputation == "full"
    per_token = getattr(model, "active_experts_per_token", 0)
    moe_layers = stage_layers * moe_fraction(model)
    gradient_element = element if element >= 2 else 2.0
    trained = model.parameter_count if not x.is_lora else 0.0
    context: dict[str, Any] = {
        "model_flops": micro.flops * parts,
        "hardware_flops": micro.hardware_flops * parts,
        "tokens": micro.tokens * parts,
        "device_flops": device_flops,
        "device_bytes": device_bytes,
        "bandwidth": bandwidth,
        "compute_micro": compute_micro,
        "memory_micro": memory_micro,
        "balance": balance,
        "micro_batches": layout.micro_batches,
        "stage_layers": stage_layers,
        "tensor_sums": where(recomputed, 6, 4),
        "tensor_message": tokens * hidden * activation,
        "gradient_bytes": trained * gradient_element / (layout.tp * layout.pp * balance),
        "idle": idle,
        "intra_bandwidth": net.intra_bandwidth,
        "inter_bandwidth": net.inter_bandwidth,
        "inter_latency": net.inter_latency,
        "tp": layout.tp,
        "dp": layout.dp,
    }
    alone = isinstance(layout.cp, (int, float)) and layout.cp <= 1
    cache = 0.0 if alone else getattr(model, "kv_elements_per_token", 0.0)
    terms = step_terms(
        compute=compute,
        micro_batches=layout.micro_batches,
        idle=context["idle"],
        stage_layers=stage_layers,
        tensor_message=context["tensor_message"],
        tensor_sums=context["tensor_sums"],
        tensor_ranks=layout.tp,
        expert_message=tokens * per_token * hidden * activation / layout.tp,
        expert_layers=moe_layers,
        expert_ranks=layout.ep,
        context_message=tokens * cache / layers * activation / layout.tp,
        context_ranks=layout.cp,
        boundary_message=tokens * hidden * activation / (layout.tp if x.sequence_parallel else 1),
        boundaries=where(layout.pp > 1, layout.virtual_stages, 0),
        gradient_bytes=context["gradient_bytes"],
        zero_stage=x.zero_stage,
        place=place(x.fleet.node.accelerators_per_node, layout.tp, layout.pp, layout.ep, layout.cp, layout.dp),
        net=net,
        hide_data=x.overlap_efficiency if x.overlap_comm else 0.0,
        hide_tensor=x.overlap_tp,
        hide_expert=x.overlap_ep,
        hide_context=x.overlap_cp,
        hide_pipeline=x.overlap_pp,
        congestion=x.congestion_factor,
    )
    return terms, context


def expert_share(model: Any) -> float:
    """Share of the active parameters that sit in routed experts."""
    experts, per_token = getattr(model, "experts", 1), getattr(model, "active_experts_per_token", 1)
    if experts <= per_token:
        return 0.0
    pool = (model.parameter_count - model.active_parameter_count) / (1 - per_token / experts)
    return float(pool * per_token / experts / model.active_parameter_count)


def moe_fraction(model: Any) -> float:
    """Share of the layers that route tokens to experts."""
    layers = getattr(model, "layers", None)
    if getattr(model, "experts", 1) <= 1 or not layers:
        return 0.0
    blocks = getattr(model, "blocks", None)
    if blocks:
        return float(sum(b.count for b in blocks if b.ffn == "moe") / sum(b.count for b in blocks))
    return float((layers - model.dense_layers) // model.moe_every / layers)
