"""How much memory a model needs on one device.

Inference needs weights, the caches of all sequences and one layer's working set. Training needs weights, gradients,
optimizer state and the activations that wait for the backward pass (:mod:`mlsysim.physics.training_memory`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from mlsysim.models.base import Workload
from mlsysim.models.stack import Stack
from mlsysim.physics.precision import bytes_per_element
from mlsysim.physics.training_memory import activation_bytes_per_layer, optimizer_bytes, sharded_state
from mlsysim.units.ops import ceil, maximum, where

_LOGIT_BYTES = 8
"""Logits of a training step in fp32, with their gradient, for each token and vocabulary entry."""
_SCORE_BYTES = 5
"""Scores of unfused attention in 16 bit, before and after dropout, and its mask, for each pair of tokens and head."""


class Saved(NamedTuple):
    """Activations that wait for the backward pass: layers (those of a stage, for every micro-batch in flight), bytes that each
    keeps, the full set of the layer that is computed again, and the logits."""

    layers: Any
    each: Any
    again: Any = 0.0
    logits: Any = 0.0

    @property
    def total(self) -> Any:
        return self.layers * self.each + self.again + self.logits


@dataclass(frozen=True, slots=True)
class TrainingState:
    """Bytes on one device, and ``host`` bytes of its optimizer state that rest in the memory of the host."""

    weights: Any
    gradients: Any
    optimizer: Any
    saved: Saved
    buffers: Any = 0.0
    host: Any = 0.0

    @property
    def activations(self) -> Any:
        return self.saved.total

    @property
    def total(self) -> Any:
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
    recompute: Any,
    tp: Any = 1,
    pp: Any = 1,
    cp: Any = 1,
    sequence_parallel: bool = True,
    stages_in_flight: Any = None,
    scores_kept: bool = False,
) -> Saved:
    """Activations that wait for the backward pass on the fullest device.

    ``scores_kept``: attention that is not fused keeps its scores too, 5 a s^2 bytes a layer and sequence: probabilities and
    what dropout leaves of them in 16 bit, and a mask (Korthikanti et al. 2022). Selective recomputation is to spare them.

    Degrees and sizes may be arrays, and ``recompute`` anything that compares with its names element by element.
    ``batch`` is one micro-batch. A pipeline keeps as many micro-batches in flight as there are stages (``pp`` times one
    stage's layers is the whole network once), unless the schedule says otherwise.
    """
    stack = _stack_of(model)
    if stack is None:
        # Each sample of a network of fixed shape is a layer of its own here.
        return Saved(batch, model.saved_bytes(1, precision) if model.fixed_shape else 0.0)
    weight = bytes_per_element(precision)
    element = weight if weight >= 2 else 2.0
    tokens = batch * seq_len / cp
    layers = stack.layers
    depth = stages_in_flight if stages_in_flight is not None else 1.0 * pp
    resident_layers = ceil(layers / pp) * depth
    h = stack.hidden
    whole, split = stack.saved_elements
    if sequence_parallel:
        whole, split = 0.0, split + whole
    kept = activation_bytes_per_layer(
        tokens, 0.0 if sequence_parallel else h, h if sequence_parallel else 0.0, tp, element
    )
    working = activation_bytes_per_layer(tokens, whole, split, tp, element)
    if scores_kept:
        scores = _SCORE_BYTES * (getattr(model, "heads", None) or 0) * seq_len * tokens / tp
        working = working + where(recompute == "none", scores, 0.0)
    # While one layer is recomputed its full set exists beside the checkpoints.
    full = recompute == "full"
    logits = where(pp == 1, tokens * stack.vocab / tp * _LOGIT_BYTES, 0.0)
    return Saved(resident_layers, where(full, kept, working), where(full, working, 0.0), logits)


def training_state(
    model: Workload,
    micro_batch: Any,
    seq_len: Any,
    precision: str,
    *,
    optimizer: str = "adam",
    recompute: Any = "none",
    zero_stage: Any = 0,
    dp: Any = 1,
    tp: Any = 1,
    pp: Any = 1,
    ep: Any = 1,
    cp: Any = 1,
    lora_rank: int | None = None,
    sequence_parallel: bool = True,
    stages_in_flight: Any = None,
    buffer_fraction: float = 0.0,
    trainable_fraction: float = 1.0,
    optimizer_offload: Any = 0.0,
    weights_gathered: Any = False,
    scores_kept: bool = False,
) -> TrainingState:
    """Bytes of a training step on the fullest device; ``optimizer_offload`` of its optimizer state is on the host.

    ``weights_gathered`` says that ZeRO 3 does not scatter the weights again before the step is over.
    """
    weight = bytes_per_element(precision)
    kept = weight if weight >= 2 else 2.0
    local = local_parameters(model, tp, pp, ep)
    group = dp * cp
    states = optimizer_bytes(optimizer, kept)
    trained = local * trainable_fraction
    if lora_rank is not None:
        trained = adapter_parameters(model, lora_rank) / (tp * pp)
    frozen = local - trained if lora_rank is None else local
    shards = [where(zero_stage >= stage, group, 1) for stage in (3, 2, 1)]
    shards[0] = where(weights_gathered, 1, shards[0])
    weights, gradients, optimizer_state = sharded_state(trained, kept, kept, states, *shards)
    weights = weights + frozen * weight / shards[0]
    saved = saved_activations(
        model, micro_batch, seq_len, precision, recompute, tp, pp, cp, sequence_parallel, stages_in_flight, scores_kept
    )
    buffers = buffer_fraction * (weights + gradients)
    host = optimizer_offload * optimizer_state
    return TrainingState(weights, gradients, optimizer_state - host, saved, buffers, host)


def local_parameters(model: Workload, tp: Any, pp: Any, ep: Any) -> Any:
    """Parameters on the fullest device: the longest stage, its share of tensors, and of experts where there are any."""
    total = model.parameter_count
    layers = getattr(model, "layers", None) or 1
    stage = ceil(layers / pp) / layers
    experts = getattr(model, "experts", 1)
    together = total / tp * stage
    if experts <= 1:
        return together
    per_token = getattr(model, "active_experts_per_token", 1)
    pool = (total - model.active_parameter_count) / (1 - per_token / experts) if per_token < experts else total
    # Experts are split over the larger of the expert and the tensor group; the rest over tensors alone.
    return where(ep > 1, (pool / maximum(ep, tp) + (total - pool) / tp) * stage, together)


def adapter_parameters(model: Workload, rank: int) -> float:
    """Parameters of rank-r adapters on the attention projections: 2 r h for each square-ish matrix."""
    layers, hidden = getattr(model, "layers", None), getattr(model, "hidden_dim", None)
    if not layers or not hidden:
        return 0.01 * model.parameter_count
    return 4.0 * layers * 2 * rank * hidden
