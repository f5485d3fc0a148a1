"""First-order demand: what a pass asks for, from a handful of totals instead of a list of operators.

    operations   2 x active parameters x tokens, + 2 (d_qk + d_v) x heads for each attended query-key pair
    weights      parameters x bytes, embeddings included; of a mixture, the experts that the tokens hit
    cache        what the context left behind, read once
    activations  what the operators read and write, in prefill and training; in decode they are below 2 % of the weights
                 up to batch 128 and are left out

Training is three times the forward work. Backward a product with weights has two, one for the gradient of its inputs and one for that of its
weights; frozen weights (LoRA) save the second. Scores of attention have no weights: both of their products in the backward pass are gradients of inputs,
and all three passes stay. Recomputed operations count for the hardware, not for the model.

Left out: below the first adapter of the first layer nothing needs a gradient, which is less than one of 2 L + L products of a model of L layers
(software that computes all again asks for the gradient there too).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from mlsysim.models.ffn import experts_hit
from mlsysim.physics.memory import causal_pairs
from mlsysim.units.ops import minimum, where
from mlsysim.units.records import dataclass


@dataclass(frozen=True, slots=True)
class Demand:
    """Totals of one pass over all devices that share the model, in flop and bytes.

    Of ``flops`` those of a training step's forward pass are ``forward``, those of its gradients of weights ``settled``.
    """

    flops: Any
    hardware_flops: Any
    weight_bytes: Any
    activation_bytes: Any
    cache_bytes: Any
    tokens: Any
    forward: Any = 0.0
    settled: Any = 0.0

    @property
    def bytes(self) -> Any:
        """All bytes that pass through memory."""
        return self.weight_bytes + self.activation_bytes + self.cache_bytes

    def of_frozen(self) -> Demand:
        """The same of a training step whose weights have no gradients, which are neither computed nor moved."""
        less = self.flops - self.settled, self.hardware_flops - self.settled
        moved = 2 / 3 * self.weight_bytes, 2 / 3 * self.activation_bytes
        return Demand(*less, *moved, self.cache_bytes, self.tokens, self.forward)


class AttentionKind(NamedTuple):
    """Layers of one kind of attention: operations per query-key pair, summed over layers, and the window."""

    operations_per_pair: float
    window: float
    causal: bool


class StackTotals(NamedTuple):
    """What first-order demand needs to know of a network of tokens."""

    parameters: float
    active_parameters: float
    experts: int
    experts_per_token: int
    attention: tuple[AttentionKind, ...]
    activation_elements_per_token: float

    @property
    def expert_parameters(self) -> float:
        """Parameters of all routed experts, so that one token touches those that are active."""
        if self.experts <= self.experts_per_token:
            return 0.0
        return (self.parameters - self.active_parameters) / (1 - self.experts_per_token / self.experts)

    def weights_hit(self, tokens: Any) -> Any:
        """Parameters that ``tokens`` tokens touch: all of a dense model, the experts hit of a mixture."""
        if self.experts <= self.experts_per_token:
            return self.active_parameters
        idle = 1 - experts_hit(self.experts, self.experts_per_token, tokens) / self.experts
        return self.parameters - self.expert_parameters * idle

    def bytes_hit(self, tokens: Any, shared: Any, experts: Any) -> Any:
        """Bytes of what ``tokens`` tokens touch, of weights that all share and of experts with so many bytes each."""
        both = self.weights_hit(tokens)
        if shared == experts:
            return both * shared
        rest = self.parameters - self.expert_parameters
        return rest * shared + (both - rest) * experts

    def attention_operations(self, phase: str, new: Any, context: Any) -> Any:
        """Operations of attention for one sequence; a decode token is charged for the keys that it finds cached."""
        total: Any = 0.0
        for kind in self.attention:
            if phase == "decode":
                pairs = minimum(context, kind.window)
            else:
                pairs = causal_pairs(new, context, kind.window) if kind.causal else new * (context + new)
            total = total + kind.operations_per_pair * pairs
        return total


def sequence_demand(
    totals: StackTotals,
    phase: str,
    batch: Any,
    new: Any,
    context: Any,
    weight: tuple[float, float],
    activation: float,
    cache_bytes: Any,
    recompute: Any = "none",
    frozen: bool = False,
) -> Demand:
    """Demand of a pass over ``batch`` sequences of ``new`` tokens that follow ``context`` cached ones.

    ``weight`` are bytes of a weight that all tokens share, and of one of the experts.
    ``recompute`` is a mode, or an array of modes that compares with their names element by element.
    """
    tokens = batch * new
    attention = batch * totals.attention_operations(phase, new, context)
    products = 2 * totals.active_parameters * tokens
    forward = products + attention
    weights = totals.bytes_hit(tokens, *weight)
    traffic = tokens * totals.activation_elements_per_token * activation
    if phase != "training":
        return Demand(forward, forward, weights, traffic if phase != "decode" else 0.0, cache_bytes, tokens)
    if isinstance(recompute, str):
        again = {"none": 0.0, "selective": attention, "full": forward}[recompute]
    else:
        again = where(recompute == "full", forward, where(recompute == "selective", attention, 0.0))
    found = Demand(3 * forward, 3 * forward + again, 3 * weights, 3 * traffic, 0.0, tokens, forward, products)
    return found.of_frozen() if frozen else found
