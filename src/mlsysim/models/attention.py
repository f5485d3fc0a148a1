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

from mlsysim.errors import InputError
from mlsysim.models.graph import Operator
from mlsysim.models.passes import Pass, all_reduce, elementwise, gemm
from mlsysim.physics.memory import causal_pairs
from mlsysim.units.ops import minimum

UNBOUNDED = 1e12


def split(count: int, degree: int, what: str) -> float:
    """``count`` things over ``degree`` devices; refuses what does not divide."""
    if count % degree:
        valid = [d for d in range(1, count + 1) if count % d == 0]
        near = sorted(valid, key=lambda d: abs(d - degree))[:3]
        raise InputError(
            f"{count} {what} do not divide over {degree} devices; use {' or '.join(str(d) for d in sorted(near))}.",
            count=count,
            degree=degree,
            nearest=sorted(near),
        )
    return count // degree


def attention_core(
    p: Pass,
    query_heads: Any,
    kv_heads: Any,
    qk_dim: Any,
    v_dim: Any,
    window: Any,
    cache_per_token: Any,
    causal: bool = True,
    keys: Any = None,
) -> Operator:
    """Scores and weighted sum: 2 (d_qk + d_v) operations for each query-key pair of each head."""
    length = (p.context + p.new) if keys is None else keys
    causal_count = causal and keys is None
    pairs = (causal_pairs(p.new, p.context, window) if causal_count else p.new * length) / p.shard.cp
    seen = minimum(length, window)
    return Operator(
        "attention",
        "attention",
        "attention",
        m=p.new,
        n=seen,
        k=qk_dim,
        groups=p.batch * query_heads,
        kv_heads=kv_heads,
        flops=2 * p.batch * query_heads * pairs * (qk_dim + v_dim),
        input_bytes=p.tokens * query_heads * qk_dim * p.activation,
        output_bytes=p.tokens * query_heads * v_dim * p.activation,
        cache_bytes=p.batch * seen * cache_per_token * p.cache,
    )


@dataclass(frozen=True, slots=True)
class Attention:
    """Multi-head, grouped-query or multi-query attention; ``cross`` reads the keys of an encoder."""

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
    def parameters(self) -> float:
        q, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
        matrices = self.hidden * (2 * q + 2 * kv + (q if self.gate else 0))
        return matrices + (q + 2 * kv if self.qkv_bias else 0) + (self.hidden if self.output_bias else 0)

    active_parameters = parameters

    @property
    def pair_operations(self) -> float:
        """Operations for each attended query-key pair."""
        return 0.0 if self.cross else 4.0 * self.heads * self.head_dim

    @property
    def reach(self) -> float:
        """How many keys a query sees at most."""
        return self.window

    @property
    def saved_elements(self) -> float:
        """Elements per token kept for the backward pass: queries, keys, values and the output of attention."""
        return 2 * (self.heads + self.kv_heads) * self.head_dim

    @property
    def cache_per_token(self) -> float:
        return 2 * self.kv_heads * self.head_dim

    @property
    def state(self) -> float:
        return 0.0

    def cache_tokens(self, length: Any) -> Any:
        return minimum(length, self.window)

    def operators(self, p: Pass, encoder_length: Any = None) -> list[Operator]:
        tp = p.shard.tp
        heads = split(self.heads, tp, "attention heads")
        # Fewer key-value heads than devices: each device keeps a whole copy of one.
        kv_heads = self.kv_heads / tp if self.kv_heads >= tp else 1
        d = self.head_dim
        q_width, kv_width = heads * d, kv_heads * d
        if self.cross:
            keys = encoder_length
            # The encoder's keys and values are made once, with the first decoder pass.
            source = p.batch * keys if p.phase != "decode" else 0
            ops = [gemm("q", "attention", p, q_width, self.hidden)]
            if p.phase != "decode":
                ops.append(gemm("cross_kv", "attention", p, 2 * kv_width, self.hidden, m=source))
        else:
            keys = None
            ops = [gemm("qkv", "attention", p, q_width * (2 if self.gate else 1) + 2 * kv_width, self.hidden)]
        ops.append(
            attention_core(p, heads, kv_heads, d, d, self.window, 2 * kv_width, p.causal and not self.cross, keys)
        )
        if self.gate:
            ops.append(elementwise("output_gate", "attention", p, 2 * q_width, q_width))
        ops.append(gemm("attention_out", "attention", p, self.hidden, q_width))
        return ops + all_reduce("attention_reduce", "attention", p, self.hidden)
