"""How much memory a model needs on one device.

Inference needs weights, the caches of all sequences and one layer's working set. Training needs weights, gradients,
optimizer state and the activations that wait for the backward pass (:mod:`mlsysim.physics.training_memory`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from mlsysim.models.base import Workload
from mlsysim.models.stack import Stack
from mlsysim.physics.precision import bytes_per_element
from mlsysim.physics.training_memory import activation_bytes_per_layer, optimizer_bytes, sharded_state

__all__ = [
    "TrainingState",
    "adapter_parameters",
    "inference_bytes",
    "local_parameters",
    "saved_activations",
    "training_state",
]

_LOGIT_BYTES = 8
"""Logits of a training step in fp32, with their gradient, for each token and vocabulary entry."""


@dataclass(frozen=True, slots=True)
class TrainingState:
    """Bytes on one device."""

    weights: float
    gradients: float
    optimizer: float
    activations: float
    buffers: float = 0.0

    @property
    def total(self) -> float:
        return self.weights + self.gradients + self.optimizer + self.activations + self.buffers


def _stack_of(model: Workload) -> Stack | None:
    """The layers of a network of tokens, or None where there are none or their sizes are not known."""
    return model.stack if getattr(model, "has_dimensions", False) else None  # type: ignore[attr-defined]


def inference_bytes(model: Workload, batch: Any, length: Any, precision: str, cache_precision: str | None) -> float:
    """Weights and caches."""
    weights = model.parameter_count * bytes_per_element(precision)
    stack = _stack_of(model)
    if stack is None or getattr(model, "structure", "decoder") == "encoder":
        return weights
    weight = bytes_per_element(precision)
    kept = bytes_per_element(cache_precision) if cache_precision else (weight if weight >= 1 else 2.0)
    return float(weights + stack.cache_elements(length) * batch * kept)


def saved_activations(
    model: Workload,
    batch: Any,
    seq_len: Any,
    precision: str,
    recompute: str,
    tp: int = 1,
    pp: int = 1,
    cp: int = 1,
    sequence_parallel: bool = True,
    stages_in_flight: float | None = None,
) -> float:
    """Activations that wait for the backward pass on the fullest device.

    ``batch`` is one micro-batch. A pipeline keeps as many micro-batches in flight as there are stages (``pp`` times one
    stage's layers is the whole network once), unless the schedule says otherwise.
    """
    stack = _stack_of(model)
    if stack is None:
        return model.saved_bytes(batch, precision) if model.fixed_shape else 0.0
    weight = bytes_per_element(precision)
    element = weight if weight >= 2 else 2.0
    tokens = batch * seq_len / cp
    layers = stack.layers
    depth = stages_in_flight if stages_in_flight is not None else float(pp)
    resident_layers = math.ceil(layers / pp) * depth
    h = stack.hidden
    whole, split = stack.saved_elements
    if sequence_parallel:
        whole, split = 0.0, split + whole
    if recompute == "full":
        kept = activation_bytes_per_layer(
            tokens, 0.0 if sequence_parallel else h, h if sequence_parallel else 0.0, tp, element
        )
        # While one layer is recomputed its full set exists beside the checkpoints.
        working = activation_bytes_per_layer(tokens, whole, split, tp, element)
        blocks = resident_layers * kept + working
    else:
        blocks = resident_layers * activation_bytes_per_layer(tokens, whole, split, tp, element)
    logits = tokens * stack.vocab / tp * _LOGIT_BYTES
    return float(blocks + (logits if pp == 1 else 0.0))


def training_state(
    model: Workload,
    micro_batch: Any,
    seq_len: Any,
    precision: str,
    *,
    optimizer: str = "adam",
    recompute: str = "none",
    zero_stage: int = 0,
    dp: int = 1,
    tp: int = 1,
    pp: int = 1,
    ep: int = 1,
    cp: int = 1,
    lora_rank: int | None = None,
    sequence_parallel: bool = True,
    stages_in_flight: float | None = None,
    buffer_fraction: float = 0.0,
    trainable_fraction: float = 1.0,
) -> TrainingState:
    """Bytes of a training step on the fullest device."""
    weight = bytes_per_element(precision)
    kept = weight if weight >= 2 else 2.0
    local = local_parameters(model, tp, pp, ep)
    group = dp * cp
    states = optimizer_bytes(optimizer, kept)
    trained = local * trainable_fraction
    if lora_rank is not None:
        trained = adapter_parameters(model, lora_rank) / (tp * pp)
    frozen = local - trained if lora_rank is None else local
    weights, gradients, optimizer_state = sharded_state(
        trained,
        kept,
        kept,
        states,
        group if zero_stage >= 3 else 1,
        group if zero_stage >= 2 else 1,
        group if zero_stage >= 1 else 1,
    )
    weights += frozen * weight / (group if zero_stage >= 3 else 1)
    activations = saved_activations(
        model, micro_batch, seq_len, precision, recompute, tp, pp, cp, sequence_parallel, stages_in_flight
    )
    buffers = buffer_fraction * (weights + gradients)
    return TrainingState(weights, gradients, optimizer_state, activations, buffers)


def local_parameters(model: Workload, tp: int, pp: int, ep: int) -> float:
    """Parameters on the fullest device: the longest stage, its share of tensors, and of experts where there are any."""
    total = model.parameter_count
    layers = getattr(model, "layers", None) or 1
    stage = math.ceil(layers / pp) / layers if pp > 1 else 1.0
    experts = getattr(model, "experts", 1)
    if ep <= 1 or experts <= 1:
        return total / tp * stage
    per_token = getattr(model, "active_experts_per_token", 1)
    pool = (total - model.active_parameter_count) / (1 - per_token / experts) if per_token < experts else total
    # Experts are split over the larger of the expert and the tensor group; the rest over tensors alone.
    return (pool / max(ep, tp) + (total - pool) / tp) * stage


def adapter_parameters(model: Workload, rank: int) -> float:
    """Parameters of rank-r adapters on the attention projections: 2 r h for each square-ish matrix."""
    layers, hidden = getattr(model, "layers", None), getattr(model, "hidden_dim", None)
    if not layers or not hidden:
        return 0.01 * model.parameter_count
    return 4.0 * layers * 2 * rank * hidden
