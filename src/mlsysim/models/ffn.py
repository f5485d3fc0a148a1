"""Feed-forward layers: dense, and mixture of experts with shared experts, top-k routing and latent experts.

In a mixture of E experts of which k serve each token, the weights that a pass must read are those of the experts that
at least one token chose. With n tokens and uniform routing that is E (1 - (1 - k/E)^n) experts: k for one token, all E
for many. Skewed routing hits fewer experts and loads some of them more; ``imbalance`` is the ratio of the busiest
device's load to the mean.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

from mlsysim.models.graph import Operator
from mlsysim.models.passes import Pass, elementwise, gemm
from mlsysim.models.template import Between, Part, Product, Reduce, split
from mlsysim.units.ops import minimum
from mlsysim.units.records import dataclass


def experts_hit(experts: Any, per_token: Any, tokens: Any) -> Any:
    """Expected number of distinct experts that ``tokens`` tokens choose, ``per_token`` each, uniformly."""
    return experts * (1 - (1 - per_token / experts) ** tokens)


@dataclass(frozen=True, slots=True)
class FeedForward(Part):
    """Two matrices, or three when gated (SwiGLU, GeGLU)."""

    hidden: int
    width: int
    gated: bool
    bias: bool = False

    family: ClassVar[tuple[str, ...]] = ("ffn",)

    @property
    def matrices(self) -> int:
        return 3 if self.gated else 2

    @property
    def beside_products(self) -> float:
        """Biases."""
        return (self.matrices - 1) * self.width + self.hidden if self.bias else 0

    @property
    def active_parameters(self) -> float:
        return self.parameters

    @property
    def kept(self) -> dict[str, float]:
        """Elements per token for the backward pass: what enters and leaves the activation."""
        return {"wide": (self.matrices - 1) * self.width, "activated": self.width}

    @property
    def inside(self) -> tuple[Any, ...]:
        """Its template without the sum over devices."""
        up = (self.matrices - 1) * self.width
        return (
            Product("ffn_up", "ffn", up, self.hidden, "n"),
            Between("ffn_activation", "ffn", up, self.width),
            Product("ffn_down", "ffn", self.hidden, self.width, "k"),
        )

    def template(self, decode: bool = False) -> tuple[Any, ...]:
        return (*self.inside, Reduce("ffn_reduce", "ffn", self.hidden))


@dataclass(frozen=True, slots=True)
class Experts:
    """Routed experts of width ``width`` on vectors of ``inner`` elements; ``plain`` ones have no fused activation kernel.

    An expert group wider than the tensor group gathers the tokens of ep/tp data-parallel neighbours; a narrower one leaves tp/ep
    devices to share the width of each expert.
    """

    count: int
    per_token: int
    width: float
    inner: float
    matrices: int
    plain: bool = False
    imbalance: float = 1.0

    @property
    def parameters(self) -> float:
        return self.count * self.matrices * self.inner * self.width

    def operators(self, p: Pass, source: Any) -> list[Operator]:
        tp, ep = p.shard.tp, p.shard.ep
        local_experts = split(self.count, ep, "experts")
        width = self.width / max(tp / ep, 1)
        tokens = p.tokens * max(ep / tp, 1)
        rows = tokens * self.per_token / ep * self.imbalance
        hit = minimum(experts_hit(self.count, self.per_token, tokens) / ep, local_experts)
        up = (self.matrices - 1) * width
        ops = []
        if ep > 1:
            message = p.tokens * self.per_token * self.inner * p.activation
            ops = [
                Operator(name, "all_to_all", "moe", groups=ep, input_bytes=message) for name in ("dispatch", "combine")
            ]
        return [
            *ops,
            self._grouped("experts_up", p, rows, hit, up, self.inner),
            elementwise("experts_activation", "moe", p, up, width, m=rows),
            self._grouped("experts_down", p, rows, hit, self.inner, width),
            elementwise("experts_sum", "moe", p, self.per_token * self.inner, self.inner),
        ]

    @staticmethod
    def _grouped(name: str, p: Pass, rows: Any, hit: Any, n: Any, k: Any) -> Operator:
        together = gemm(name, "moe", p, n, k, m=rows, kind="grouped_gemm")
        return replace(together, m=rows / hit, groups=hit, weight_bytes=hit * n * k * p.stored("moe", "grouped_gemm"))


@dataclass(frozen=True, slots=True)
class MixtureOfExperts(Part):
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

    family: ClassVar[tuple[str, ...]] = ("moe",)

    @property
    def routed(self) -> Experts:
        inner, matrices = self.latent or self.hidden, 3 if self.gated else 2
        # Experts with biases, or without a gate, have no fused activation kernel in today's stacks.
        plain = self.bias or not self.gated
        return Experts(self.experts, self.per_token, self.width, inner, matrices, plain, self.imbalance)

    @property
    def _biases(self) -> float:
        """Of one expert."""
        routed = self.routed
        return (routed.matrices - 1) * self.width + routed.inner if self.bias else 0

    @property
    def beside_products(self) -> float:
        """Routed experts, with their biases."""
        return self.routed.parameters + self.experts * self._biases

    @property
    def active_parameters(self) -> float:
        idle = self.experts - self.per_token
        return self.parameters - idle * (self.routed.parameters / self.experts + self._biases)

    @property
    def kept(self) -> dict[str, float]:
        """Elements per token for the backward pass, over the experts that the token visits."""
        routed, k = self.routed, self.per_token
        wide = routed.matrices - 1
        found = {
            "shared_wide": wide * self.shared_width,
            "shared_activated": self.shared_width,
            "routed": k * routed.inner,
        }
        return found | {"expert_wide": k * wide * self.width, "expert_activated": k * self.width}

    def template(self, decode: bool = False) -> tuple[Any, ...]:
        h, around = self.hidden, self.latent
        into = (Product("latent_in", "moe", around, h, "n", by_tokens=True),) if around else ()
        out = (Product("latent_out", "moe", h, around, "k", by_tokens=True),) if around else ()
        shared = FeedForward(h, self.shared_width, self.gated).inside if self.shared_width else ()
        router = Product("router", "moe", self.experts, h)
        return (router, *into, self.routed, *out, *shared, Reduce("moe_reduce", "moe", h))
