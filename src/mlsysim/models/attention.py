"""Attention in its published forms: what each stores, computes and caches, per layer.

    Attention             multi-head, grouped-query and multi-query; sliding window; output gate      (Vaswani 2017, Shazeer 2019, Ainslie 2023)

:mod:`mlsysim.models.latent_attention` has the forms that keep a compressed cache.

Softmax, rotary embedding and the scaling of scores are not counted as operations: they are below 1 % of a layer's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from mlsysim.models.template import UNBOUNDED, Between, Core, Counts, Mixer, Product, Reduce
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

    family: ClassVar[tuple[str, ...]] = ("attention",)

    @property
    def beside_products(self) -> float:
        """Biases."""
        qkv = (self.heads + 2 * self.kv_heads) * self.head_dim
        return (qkv if self.qkv_bias else 0) + (self.hidden if self.output_bias else 0)

    @property
    def counts(self) -> Counts:
        """Queries, keys, values and the output of attention are saved."""
        q, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
        return Counts(2 * (q + kv), 0.0 if self.cross else 4.0 * q, self.window, 2 * kv, self.kv_heads)

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
                made.append(Product("cross_kv", "attention", kv, h, "n", keys=kv, heads=self.kv_heads, source=True))
        core = Core(self.heads, self.kv_heads, d, d, 2 * d, self.window, not self.cross, self.cross)
        out = Product("attention_out", "attention", h, q, "k")
        return (*made, core, *gated, out, Reduce("attention_reduce", "attention", h))
