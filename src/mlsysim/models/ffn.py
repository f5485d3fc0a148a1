"""Feed-forward layers: dense, and mixture of experts with shared experts, top-k routing and latent experts.

In a mixture of E experts of which k serve each token, the weights that a pass must read are those of the experts that
at least one token chose. With n tokens and uniform routing that is E (1 - (1 - k/E)^n) experts: k for one token, all E
for many. Skewed routing hits fewer experts and loads some of them more; ``imbalance`` is the ratio of the busiest
device's load to the mean.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mlsysim.models.attention import split
from mlsysim.models.graph import Operator
from mlsysim.models.passes import Pass, all_reduce, elementwise, gemm
from mlsysim.units.ops import minimum


def experts_hit(experts: Any, per_token: Any, tokens: Any) -> Any:
    """Expected number of distinct experts that ``tokens`` tokens choose, ``per_token`` each, uniformly."""
    return experts * (1 - (1 - per_token / experts) ** tokens)


@dataclass(frozen=True, slots=True)
class FeedForward:
    """Two matrices, or three when gated (SwiGLU, GeGLU)."""

    hidden: int
    width: int
    gated: bool
    bias: bool = False

    @property
    def parameters(self) -> float:
        matrices = 3 if self.gated else 2
        biases = (matrices - 1) * self.width + self.hidden if self.bias else 0
        return matrices * self.hidden * self.width + biases

    active_parameters = parameters

    @property
    def saved_elements(self) -> float:
        """Elements per token kept for the backward pass: what enters and leaves the activation."""
        return (3 if self.gated else 2) * self.width

    def operators(self, p: Pass) -> list[Operator]:
        width = self.width / p.shard.tp
        up = 2 * width if self.gated else width
        ops = [
            gemm("ffn_up", "ffn", p, up, self.hidden),
            elementwise("ffn_activation", "ffn", p, up, width),
            gemm("ffn_down", "ffn", p, self.hidden, width),
        ]
        return ops + all_reduce("ffn_reduce", "ffn", p, self.hidden)


@dataclass(frozen=True, slots=True)
class MixtureOfExperts:
    """E experts of which k serve each token, and shared ones that serve all."""

    hidden: int
    experts: int
    per_token: int
    width: int
    gated: bool
    shared_width: int = 0
    latent: int | None = None
    bias: bool = False
    imbalance: float = 1.0

    @property
    def _expert(self) -> float:
        matrices = 3 if self.gated else 2
        inner = self.latent or self.hidden
        biases = (matrices - 1) * self.width + inner if self.bias else 0
        return matrices * inner * self.width + biases

    @property
    def _always(self) -> float:
        """Router, shared experts and the projections into and out of the latent space."""
        shared = (3 if self.gated else 2) * self.hidden * self.shared_width
        latent = 2 * self.hidden * self.latent if self.latent else 0
        return self.hidden * self.experts + shared + latent

    @property
    def parameters(self) -> float:
        return self.experts * self._expert + self._always

    @property
    def saved_elements(self) -> float:
        """Elements per token kept for the backward pass, over the experts that the token visits."""
        inner = self.latent or self.hidden
        return (
            self.per_token * ((3 if self.gated else 2) * self.width + inner)
            + (3 if self.gated else 2) * self.shared_width
        )

    @property
    def active_parameters(self) -> float:
        return self.per_token * self._expert + self._always

    def operators(self, p: Pass) -> list[Operator]:
        tp, ep = p.shard.tp, p.shard.ep
        inner = self.latent or self.hidden
        local_experts = split(self.experts, ep, "experts")
        # An expert group wider than the tensor group gathers the tokens of ep/tp data-parallel neighbours; a narrower
        # one leaves tp/ep devices to share the width of each expert.
        neighbours = max(ep / tp, 1)
        width = self.width / max(tp / ep, 1)
        tokens = p.tokens * neighbours
        rows = tokens * self.per_token / ep * self.imbalance
        hit = minimum(experts_hit(self.experts, self.per_token, tokens) / ep, local_experts)
        up = 2 * width if self.gated else width
        ops = [gemm("router", "moe", p, self.experts, self.hidden)]
        if self.latent:
            ops.append(gemm("latent_in", "moe", p, self.latent / tp, self.hidden))
        if ep > 1:
            message = p.tokens * self.per_token * inner * p.activation
            ops.append(Operator("dispatch", "all_to_all", "moe", groups=ep, input_bytes=message))
            ops.append(Operator("combine", "all_to_all", "moe", groups=ep, input_bytes=message))
        ops += [
            self._grouped("experts_up", p, rows, hit, up, inner),
            Operator(
                "experts_activation",
                "elementwise",
                "moe",
                m=rows,
                n=up,
                input_bytes=rows * up * p.activation,
                output_bytes=rows * width * p.activation,
            ),
            self._grouped("experts_down", p, rows, hit, inner, width),
            elementwise("experts_sum", "moe", p, self.per_token * inner, inner),
        ]
        if self.latent:
            ops.append(gemm("latent_out", "moe", p, self.hidden, self.latent / tp))
        if self.shared_width:
            shared = FeedForward(self.hidden, self.shared_width, self.gated)
            return (
                ops
                + [op for op in shared.operators(p) if op.kind != "all_reduce"]
                + all_reduce("moe_reduce", "moe", p, self.hidden)
            )
        return ops + all_reduce("moe_reduce", "moe", p, self.hidden)

    @staticmethod
    def _grouped(name: str, p: Pass, rows: Any, hit: Any, n: Any, k: Any) -> Operator:
        return Operator(
            name,
            "grouped_gemm",
            "moe",
            m=rows / hit,
            n=n,
            k=k,
            groups=hit,
            flops=2 * rows * n * k,
            weight_bytes=hit * n * k * p.weight,
            input_bytes=rows * k * p.activation,
            output_bytes=rows * n * p.activation,
        )
