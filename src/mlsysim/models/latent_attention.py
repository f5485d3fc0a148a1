"""Attention over a compressed cache: what each form stores, computes and caches, per layer.

    LatentAttention       multi-head latent attention, optionally with a sparse indexer               (DeepSeek-V2 2024, DeepSeek-V3.2 2025)
    CompressedAttention   shared-key attention over compressed blocks with low-rank projections       (DeepSeek-V4 2026)

Counts are those of :mod:`mlsysim.models.attention`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mlsysim.models.attention import UNBOUNDED, attention_core, split
from mlsysim.models.graph import Operator
from mlsysim.models.passes import Pass, all_reduce, gemm
from mlsysim.physics.memory import causal_pairs
from mlsysim.units.fields import Record
from mlsysim.units.ops import minimum


class MLA(Record):
    """Ranks and head sizes of multi-head latent attention, as DeepSeek's configurations name them."""

    q_lora_rank: int | None = None
    kv_lora_rank: int
    qk_nope_head_dim: int
    qk_rope_head_dim: int
    v_head_dim: int


class SparseIndexer(Record):
    """An indexer that picks ``topk`` keys for each query with small heads of its own."""

    topk: int
    index_heads: int
    index_head_dim: int


class CSA(Record):
    """Ranks, window and compression of DeepSeek-V4's attention; ratio 0 means that only the window is kept."""

    q_lora_rank: int
    o_lora_rank: int
    o_groups: int
    window: int
    topk: int
    index_heads: int
    index_head_dim: int
    compress_ratios: tuple[int, ...]
    compress_counts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class LatentAttention:
    """Keys and values are rebuilt from a latent of d_c elements and one rotary key shared by all heads.

    Prefill and training expand the latent into per-head keys and values. Decode absorbs the two expansions into the
    query and the output instead, and attends in the latent space like multi-query attention with d_c + d_rope wide
    keys: more operations per pair, but only the latent is read. The latent is not split over tensor-parallel devices.
    """

    hidden: int
    heads: int
    mla: MLA
    sparse: SparseIndexer | None = None

    @property
    def parameters(self) -> float:
        m, h = self.mla, self.hidden
        per_head = m.qk_nope_head_dim + m.qk_rope_head_dim
        query = (
            h * m.q_lora_rank + m.q_lora_rank * (self.heads * per_head + 1)
            if m.q_lora_rank
            else h * self.heads * per_head
        )
        latent = h * (m.kv_lora_rank + m.qk_rope_head_dim) + m.kv_lora_rank
        expand = m.kv_lora_rank * self.heads * (m.qk_nope_head_dim + m.v_head_dim)
        index = 0.0
        if self.sparse:
            width = self.sparse.index_heads * self.sparse.index_head_dim
            index = (m.q_lora_rank or h) * width + h * (self.sparse.index_head_dim + self.sparse.index_heads)
        return query + latent + expand + self.heads * m.v_head_dim * h + index

    active_parameters = parameters

    @property
    def pair_operations(self) -> float:
        m = self.mla
        return 2.0 * self.heads * (m.qk_nope_head_dim + m.qk_rope_head_dim + m.v_head_dim)

    @property
    def reach(self) -> float:
        return self.sparse.topk if self.sparse else UNBOUNDED

    @property
    def saved_elements(self) -> float:
        m = self.mla
        latent = (m.q_lora_rank or 0) + m.kv_lora_rank + m.qk_rope_head_dim
        return latent + self.heads * (2 * (m.qk_nope_head_dim + m.qk_rope_head_dim) + 2 * m.v_head_dim)

    @property
    def cache_per_token(self) -> float:
        return self.mla.kv_lora_rank + self.mla.qk_rope_head_dim + (self.sparse.index_head_dim if self.sparse else 0)

    @property
    def state(self) -> float:
        return 0.0

    def cache_tokens(self, length: Any) -> Any:
        return length

    def operators(self, p: Pass, encoder_length: Any = None) -> list[Operator]:
        m, h = self.mla, self.hidden
        heads = split(self.heads, p.shard.tp, "attention heads")
        nope, rope, v, rank = m.qk_nope_head_dim, m.qk_rope_head_dim, m.v_head_dim, m.kv_lora_rank
        window = self.sparse.topk if self.sparse else UNBOUNDED
        down = (m.q_lora_rank or 0) + rank + rope
        ops = [gemm("latent_down", "attention", p, down, h)]
        ops.append(gemm("q_up", "attention", p, heads * (nope + rope), m.q_lora_rank or h))
        if self.sparse:
            ops += self._indexer(p)
        if p.phase == "decode":
            ops.append(self._per_head("absorb_key", p, heads, rank, nope))
            ops.append(attention_core(p, heads, 1, rank + rope, rank, window, rank + rope))
            ops.append(self._per_head("absorb_value", p, heads, v, rank))
        else:
            ops.append(gemm("kv_up", "attention", p, heads * (nope + v), rank))
            ops.append(attention_core(p, heads, heads, nope + rope, v, window, heads * (nope + rope + v), p.causal))
        ops.append(gemm("attention_out", "attention", p, h, heads * v))
        return ops + all_reduce("attention_reduce", "attention", p, h)

    @staticmethod
    def _per_head(name: str, p: Pass, heads: Any, n: Any, k: Any) -> Operator:
        return Operator(
            name,
            "batched_gemm",
            "attention",
            m=p.tokens,
            n=n,
            k=k,
            groups=heads,
            flops=2 * p.tokens * heads * n * k,
            weight_bytes=heads * n * k * p.weight,
            input_bytes=p.tokens * heads * k * p.activation,
            output_bytes=p.tokens * heads * n * p.activation,
        )

    def _indexer(self, p: Pass) -> list[Operator]:
        assert self.sparse is not None
        width = self.sparse.index_heads * self.sparse.index_head_dim
        pairs = causal_pairs(p.new, p.context, UNBOUNDED) / p.shard.cp
        score = Operator(
            "index_scores",
            "attention",
            "attention",
            m=p.new,
            n=p.context + p.new,
            k=self.sparse.index_head_dim,
            groups=p.batch * self.sparse.index_heads,
            kv_heads=1,
            flops=2 * p.batch * pairs * width,
            input_bytes=p.tokens * width * p.activation,
            cache_bytes=p.batch * (p.context + p.new) * self.sparse.index_head_dim * p.cache,
        )
        return [
            gemm("index_q", "attention", p, width, self.mla.q_lora_rank or self.hidden),
            gemm("index_k", "attention", p, self.sparse.index_head_dim + self.sparse.index_heads, self.hidden),
            score,
        ]


@dataclass(frozen=True, slots=True)
class CompressedAttention:
    """One kind of DeepSeek-V4 layer: a local window, and beyond it blocks of ``ratio`` tokens folded into one key.

    Keys are values (one shared head), so a cached entry is d elements. Ratio-4 layers pick ``topk`` compressed keys
    with an indexer; larger ratios attend to all of them.
    """

    hidden: int
    heads: int
    head_dim: int
    csa: CSA
    ratio: int

    @property
    def parameters(self) -> float:
        c, h, width = self.csa, self.hidden, self.heads * self.head_dim
        total = h * c.q_lora_rank + c.q_lora_rank * width + h * self.head_dim
        total += width * c.o_lora_rank + c.o_groups * c.o_lora_rank * h
        if self.ratio:
            overlap = 2 if self.indexed else 1
            total += 2 * overlap * h * self.head_dim
        if self.indexed:
            total += c.q_lora_rank * c.index_heads * c.index_head_dim + h * c.index_heads + 4 * h * c.index_head_dim
        return total

    active_parameters = parameters

    @property
    def indexed(self) -> bool:
        return 0 < self.ratio <= 8

    @property
    def pair_operations(self) -> float:
        return 4.0 * self.heads * self.head_dim

    @property
    def reach(self) -> float:
        return self.csa.window + (self.csa.topk if self.indexed else 0)

    @property
    def saved_elements(self) -> float:
        return self.csa.q_lora_rank + (2 * self.heads + 1) * self.head_dim + self.csa.o_groups * self.csa.o_lora_rank

    @property
    def cache_per_token(self) -> float:
        return self.head_dim

    @property
    def state(self) -> float:
        return 0.0

    def cache_tokens(self, length: Any) -> Any:
        local = minimum(length, self.csa.window)
        return local + (length / self.ratio if self.ratio else 0.0)

    def operators(self, p: Pass, encoder_length: Any = None) -> list[Operator]:
        c, h, d = self.csa, self.hidden, self.head_dim
        heads = split(self.heads, p.shard.tp, "attention heads")
        groups = max(1, c.o_groups // p.shard.tp)
        ops = [
            gemm("latent_down", "attention", p, c.q_lora_rank + d, h),
            gemm("q_up", "attention", p, heads * d, c.q_lora_rank),
            attention_core(p, heads, 1, d, d, c.window, d),
        ]
        if self.ratio:
            length = (p.context + p.new) / self.ratio
            seen = minimum(length, c.topk) if self.indexed else length
            # On average a query of this pass sees the compressed keys of the context and half of its own.
            mean = seen if p.phase == "decode" else minimum((p.context + p.new / 2) / self.ratio, seen)
            ops.append(gemm("compress", "attention", p, (4 if self.indexed else 2) * d, h))
            ops.append(attention_core(p, heads, 1, d, d, UNBOUNDED, d, causal=False, keys=mean))
        if self.indexed:
            width = c.index_heads * c.index_head_dim
            ops.append(gemm("index_q", "attention", p, width, c.q_lora_rank))
            ops.append(
                attention_core(
                    p,
                    c.index_heads,
                    1,
                    c.index_head_dim,
                    0,
                    UNBOUNDED,
                    c.index_head_dim,
                    causal=False,
                    keys=(p.context + p.new / 2) / self.ratio,
                )
            )
        ops.append(
            Operator(
                "out_down",
                "batched_gemm",
                "attention",
                m=p.tokens,
                n=c.o_lora_rank,
                k=heads * d / groups,
                groups=groups,
                flops=2 * p.tokens * heads * d * c.o_lora_rank,
                weight_bytes=heads * d * c.o_lora_rank * p.weight,
                input_bytes=p.tokens * heads * d * p.activation,
                output_bytes=p.tokens * groups * c.o_lora_rank * p.activation,
            )
        )
        ops.append(gemm("attention_out", "attention", p, h, groups * c.o_lora_rank))
        return ops + all_reduce("attention_reduce", "attention", p, h)
