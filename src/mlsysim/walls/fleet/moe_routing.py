"""Companion of wall 14: what routing tokens to experts costs.

A pass of n tokens, k experts each, touches E (1 - (1 - k/E)^n) of E experts: k for one token, all for many. Each layer
sends every token to its experts and back, an all-to-all of n k h elements each way. Skewed routing loads the busiest
device ``routing_imbalance_factor`` times the mean, and everybody waits for it. Left out: capacity limits that drop
tokens, and routing that prefers experts of the same node.
"""

from __future__ import annotations

from mlsysim.cases.train_whole import moe_fraction
from mlsysim.errors import InputError
from mlsysim.models.ffn import experts_hit
from mlsysim.models.sparse import SparseTransformerWorkload
from mlsysim.physics.precision import activation_element
from mlsysim.timing.network import datasheet_network
from mlsysim.walls.base import Assumptions, Binding, Inputs, Resolver, declared, written
from mlsysim.walls.result import Memory, Result, Time


class MoERoutingResult(Result):
    """Experts that a pass touches, and what it takes to reach them."""

    effective_active_experts: float
    effective_active_parameters: float
    active_parameter_multiplier: float
    routing_imbalance_factor: float
    token_dispatch_bytes: Memory
    all_to_all_latency: Time
    ep_size: int


class MoERoutingModel(Resolver[MoERoutingResult]):
    """How many experts does a pass touch, and how long do its tokens travel?"""

    walls = (14,)
    inputs = declared("""
        model
        batch_size = 1 | whole [1, 1e9] | sequences on each device
        seq_len = 1 | whole [1, 1e8] | new tokens of each sequence; 1 is a decode step
        precision
        ep_size = 1 | whole [1, 65536] | expert-parallel degree
        routing_imbalance_factor = 1.0 | [1, 1000] | load of the busiest device over the mean
        fleet? | fleet | where the experts live; without it no time is given
    """)
    equations = written(r"""
        effective_active_experts: E (1 - (1 - k/E)^n)
            E\left(1 - (1 - k/E)^n\right)
            E = model.experts, k = per_token, n = tokens
        token_dispatch_bytes: n k h b
            n\,k\,h\,b
            n = tokens, k = per_token, h = hidden, b = element in byte
    """)
    known_fallacies = (
        "A mixture decodes as fast as its active parameters: a batch touches far more experts than one token.",
    )

    def _solve(self, x: Inputs, assumed: Assumptions) -> MoERoutingResult:
        """Count the experts hit and the bytes sent."""
        model = x.model
        if not isinstance(model, SparseTransformerWorkload) or model.experts <= 1:
            raise InputError(f"{model.name} has no experts to route to; use a mixture-of-experts model.", field="model")
        if model.experts % x.ep_size:
            raise InputError(f"{model.experts} experts do not divide over EP {x.ep_size}.", field="ep_size")
        own, chosen = x.batch_size * x.seq_len, model.active_experts_per_token
        tokens, element = own * x.ep_size, activation_element(x.precision)
        hidden = model.expert_latent_dim or model.hidden_dim or 0
        hit, touched = experts_hit(model.experts, chosen, tokens), model.totals.weights_hit(tokens)
        message, latency = own * chosen * hidden * element, None
        if x.fleet is not None:
            net = datasheet_network(x.fleet, assumed=assumed)
            layers = (model.layers or 1) * moe_fraction(model)
            once = net.exchange(message / chosen, chosen, net.group(x.ep_size), deduplicated=False)
            latency = 2 * layers * once * x.routing_imbalance_factor if x.ep_size > 1 else 0.0
        touches = f"touches {hit:.1f} of {model.experts} experts ({hit / model.experts:.0%})"
        return MoERoutingResult.of(
            assumed,
            x,
            binding=Binding(14, "Communication", None, f"A pass of {tokens:,} tokens {touches}."),
            effective_active_experts=hit,
            effective_active_parameters=touched,
            active_parameter_multiplier=touched / model.active_parameter_count,
            token_dispatch_bytes=message,
            all_to_all_latency=latency,
            shown={"per_token": chosen, "tokens": tokens, "hidden": hidden, "element": element},
        )
