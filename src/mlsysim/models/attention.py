"""Attention in its published forms: what each stores, computes and caches, per layer.

    Attention             multi-head, grouped-query and multi-query; sliding window; output gate      (Vaswani 2017, Shazeer 2019, Ainslie 2023)

:mod:`mlsysim.models.latent_attention` has the forms that keep a compressed cache.

``parameters`` counts matrices and biases, ``cache_per_token`` elements that a token leaves behind, ``cache_tokens`` how
many of a sequence's tokens stay in the cache. Softmax, rotary embedding and the scaling of scores are not counted as
operations: they are below 1 % of a layer's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mlsysim.models.template import UNBOUNDED, Between, Core, Mixer, Product, Reduce
from mlsysim.units.ops import minimum


@dataclass(frozen=True, slots=True)
class Attention(Mixer):
    """Multi-head, grouped-query or multi-query attention; ``cross`` reads the keys of an encoder.

    The encoder's keys and values are made once, with the first decoder pass.
    """

    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    window: float = UNBOUNDED
    qkv_bias: bool = False
    output_bias: bool = False
    gate: bool = False
    cross: bool = False

    @property
    def family(self) -> tuple[str, ...]:
        return ("attention",)

    @property
    def parameters(self) -> float:
        q, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
        biases = (q + 2 * kv if self.qkv_bias else 0) + (self.hidden if self.output_bias else 0)
        return sum(product.parameters for product in self.products) + biases

    @property
    def pair_operations(self) -> float:
        return 0.0 if self.cross else 4.0 * self.heads * self.head_dim

    @property
    def reach(self) -> float:
        return self.window

    @property
    def saved_elements(self) -> float:
        """Queries, keys, values and the output of attention."""
        return 2 * (self.heads + self.kv_heads) * self.head_dim

    @property
    def cache_per_token(self) -> float:
        return 2 * self.kv_heads * self.head_dim

    @property
    def cache_heads(self) -> int:
        return self.kv_heads

    def cache_tokens(self, length: Any) -> Any:
        return minimum(length, self.window)

    def template(self, decode: bool = False) -> tuple[Any, ...]:
        h, d, kv = self.hidden, self.head_dim, 2 * self.kv_heads * self.head_dim
        q = self.heads * d
        gated = (Between("output_gate", "attention", 2 * q, q),) if self.gate else ()
        if not self.cross:
            n = q * (2 if self.gate else 1) + kv
            made = [Product("qkv", "attention", n, h, "n", keys=kv, heads=self.kv_heads)]
        else:
            made = [Product("q", "attention", q, h, "n")]
            if not decode:
                keys = Product("cross_kv", "attention", kv, h, "n", keys=kv, heads=self.kv_heads, source=True)
                made.append(keys)
        core = Core(self.heads, self.kv_heads, d, d, 2 * d, self.window, not self.cross, self.cross)
        out = Product("attention_out", "attention", h, q, "k")
        return (*made, core, *gated, out, Reduce("attention_reduce", "attention", h))
