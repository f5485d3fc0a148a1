"""Attention in its published forms: what each stores, computes and caches, per layer.

    Attention             multi-head, grouped-query and multi-query; sliding window; output gate      (Vaswani 2017, Shazeer 2019, Ainslie 2023)
    LatentAttention       multi-head latent attention, optionally with a sparse indexer               (DeepSeek-V2 2024, DeepSeek-V3.2 2025)
    CompressedAttention   shared-key attention over compressed blocks with low-rank projections       (DeepSeek-V4 2026)

Softmax, rotary embedding and the scaling of scores are not counted as operations: they are below 1 % of a layer's.
"""

from typing import Any, ClassVar

from pydantic import model_validator

from mlsysim.models.template import INDEX_SCORES, UNBOUNDED, Between, Core, Counts, Mixer, Product, Reduce
from mlsysim.units.fields import Positive, Record, Whole
from mlsysim.units.ops import minimum
from mlsysim.units.records import dataclass


@dataclass(frozen=True, slots=True)
class Attention(Mixer):
    """Multi-head, grouped-query or multi-query attention; ``cross`` reads the keys of an encoder, ``shared`` those of an earlier layer.

    The encoder's keys and values are made once, with the first decoder pass. There are ``source`` of them whatever the text,
    or at most as many as there are tokens where an encoder reads the prompt.
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
    source: float | None = None
    shared: bool = False

    family: ClassVar[tuple[str, ...]] = ("attention",)

    @property
    def beside_products(self) -> float:
        """Biases."""
        qkv = (self.heads + (0 if self.shared else 2 * self.kv_heads)) * self.head_dim
        return (qkv if self.qkv_bias else 0) + (self.hidden if self.output_bias else 0)

    @property
    def counts(self) -> Counts:
        """Queries, keys, values and the output of attention are saved."""
        q, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
        pairs = 0.0 if self.cross else 4.0 * q
        if self.shared:
            return Counts(2 * q, pairs, self.window, 0.0, self.kv_heads, attended=q, borrowed=2 * kv)
        return Counts(2 * (q + kv), pairs, self.window, 2 * kv, self.kv_heads, attended=q)

    def cache_tokens(self, length: Any) -> Any:
        return minimum(length, self.window) if self.source is None else self.source

    def template(self, decode: bool = False) -> tuple[Any, ...]:
        h, d, kv = self.hidden, self.head_dim, 2 * self.kv_heads * self.head_dim
        q = self.heads * d
        gated = (Between("output_gate", "attention", 2 * q, q),) if self.gate else ()
        if not self.cross:
            kv = 0 if self.shared else kv
            n = q * (2 if self.gate else 1) + kv
            made = [Product("qkv", "attention", n, h, "n", keys=kv, heads=self.kv_heads)]
        else:
            made = [Product("q", "attention", q, h, "n")]
            if not decode:
                made.append(Product("cross_kv", "attention", kv, h, "n", keys=kv, heads=self.kv_heads, source=True))
        core = Core(self.heads, self.kv_heads, d, d, 2 * d, self.window, not self.cross, self.cross)
        out = Product("attention_out", "attention", h, q, "k")
        return (*made, core, *gated, out, Reduce("attention_reduce", "attention", h))


class MLA(Record):
    """Ranks and head sizes of multi-head latent attention, as DeepSeek's configurations name them."""

    q_lora_rank: Positive | None = None
    kv_lora_rank: Positive
    qk_nope_head_dim: Positive
    qk_rope_head_dim: Positive
    v_head_dim: Positive


class SparseIndexer(Record):
    """An indexer that picks ``topk`` keys for each query with small heads of its own."""

    topk: Positive
    index_heads: Positive
    index_head_dim: Positive


class CSA(Record):
    """Ranks, window and compression of DeepSeek-V4's attention; ratio 0 means that only the window is kept."""

    q_lora_rank: Positive
    o_lora_rank: Positive
    o_groups: Positive
    window: Positive
    topk: Positive
    index_heads: Positive
    index_head_dim: Positive
    compress_ratios: tuple[Whole, ...]
    compress_counts: tuple[Positive, ...]

    @model_validator(mode="after")
    def _counted(self) -> "CSA":
        if len(self.compress_ratios) != len(self.compress_counts):
            raise ValueError(f"{len(self.compress_ratios)} compression ratios have {len(self.compress_counts)} counts.")
        return self


@dataclass(frozen=True, slots=True)
class LatentAttention(Mixer):
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
    def family(self) -> tuple[str, ...]:  # type: ignore[override]
        return ("latent", "sparse") if self.sparse else ("latent",)

    @property
    def beside_products(self) -> float:
        """Norms."""
        return (self.mla.q_lora_rank or 0) + self.mla.kv_lora_rank

    @property
    def counts(self) -> Counts:
        m = self.mla
        key, indexed = m.qk_nope_head_dim + m.qk_rope_head_dim, self.sparse.index_head_dim if self.sparse else 0
        latent = m.kv_lora_rank + m.qk_rope_head_dim
        saved = (m.q_lora_rank or 0) + latent + 2 * self.heads * (key + m.v_head_dim)
        reach = self.sparse.topk if self.sparse else UNBOUNDED
        given, made = self.heads * m.v_head_dim, self.heads * (2 * key + m.v_head_dim)
        pairs = 2.0 * self.heads * (key + m.v_head_dim)
        return Counts(saved, pairs, reach, latent + indexed, attended=given, rebuilt=made)

    def cache_tokens(self, length: Any) -> Any:
        return length

    def template(self, decode: bool = False) -> tuple[Any, ...]:
        m, h, heads = self.mla, self.hidden, self.heads
        nope, rope, v, rank = m.qk_nope_head_dim, m.qk_rope_head_dim, m.v_head_dim, m.kv_lora_rank
        window, picked = (self.sparse.topk, True) if self.sparse else (UNBOUNDED, False)
        down = (
            Product("latent_down", "attention", (m.q_lora_rank or 0) + rank + rope, h),
            Product("q_up", "attention", heads * (nope + rope), m.q_lora_rank or h, "n"),
        )
        if decode:
            attend: tuple[Any, ...] = (
                Product("absorb_key", "attention", rank, nope, "groups", groups=heads),
                Core(heads, 1, rank + rope, rank, rank + rope, window, picked=picked),
                Product("absorb_value", "attention", v, rank, "groups", groups=heads),
            )
        else:
            attend = (
                Product("kv_up", "attention", heads * (nope + v), rank, "n"),
                Core(
                    heads,
                    heads,
                    nope + rope,
                    v,
                    nope + rope + v,
                    window,
                    picked=picked,
                    latent_width=picked * (2 * rank + rope),
                ),
            )
        out = Product("attention_out", "attention", h, heads * v, "k")
        return (*down, *self._indexer, *attend, out, Reduce("attention_reduce", "attention", h))

    @property
    def _indexer(self) -> tuple[Any, ...]:
        if self.sparse is None:
            return ()
        heads, d = self.sparse.index_heads, self.sparse.index_head_dim
        return (
            Product("index_q", "attention", heads * d, self.mla.q_lora_rank or self.hidden, trained=False),
            Product("index_k", "attention", d + heads, self.hidden, trained=False),
            Core(heads, 1, d, 0, d, name=INDEX_SCORES, divided=False, trained=False),
        )


@dataclass(frozen=True, slots=True)
class CompressedAttention(Mixer):
    """One kind of DeepSeek-V4 layer: a local window, and beyond it blocks of ``ratio`` tokens folded into one key.

    Keys are values (one shared head), so a cached entry is d elements. Ratio-4 layers pick ``topk`` compressed keys
    with an indexer; larger ratios attend to all of them.
    """

    hidden: int
    heads: int
    head_dim: int
    csa: CSA
    ratio: int

    family: ClassVar[tuple[str, ...]] = ("latent", "sparse")

    @property
    def indexed(self) -> bool:
        return 0 < self.ratio <= 8

    @property
    def beside_products(self) -> float:
        """Weights of heads and the compressed keys of the indexer."""
        return self.hidden * (self.csa.index_heads + 4 * self.csa.index_head_dim) if self.indexed else 0

    @property
    def counts(self) -> Counts:
        c, d = self.csa, self.head_dim
        saved = c.q_lora_rank + (2 * self.heads + 1) * d + c.o_groups * c.o_lora_rank
        pair, beyond = 4.0 * self.heads * d, []
        if self.ratio:
            # In tokens, so that a query sees min(context / ratio, topk) keys; the indexer scores all of them.
            beyond = [(pair / self.ratio, c.topk * self.ratio if self.indexed else UNBOUNDED)]
        if self.indexed:
            beyond.append((2.0 * c.index_heads * c.index_head_dim / self.ratio, UNBOUNDED))
        made = self.heads * d
        return Counts(saved, pair, c.window, d, attended=made, rebuilt=made, beyond=tuple(beyond))

    def cache_tokens(self, length: Any) -> Any:
        local = minimum(length, self.csa.window)
        return local + (length / self.ratio if self.ratio else 0.0)

    def template(self, decode: bool = False) -> tuple[Any, ...]:
        c, h, d, width = self.csa, self.hidden, self.head_dim, self.heads * self.head_dim
        kinds: list[Any] = [
            Product("latent_down", "attention", c.q_lora_rank + d, h),
            Product("q_up", "attention", width, c.q_lora_rank, "n"),
            Core(self.heads, 1, d, d, d, c.window),
        ]
        if self.ratio:
            topk = c.topk if self.indexed else UNBOUNDED
            kinds.append(Product("compress", "attention", (4 if self.indexed else 2) * d, h))
            kinds.append(Core(self.heads, 1, d, d, d, ratio=self.ratio, topk=topk))
        if self.indexed:
            heads, size = c.index_heads, c.index_head_dim
            kinds.append(Product("index_q", "attention", heads * size, c.q_lora_rank))
            kinds.append(Core(heads, 1, size, 0, size, ratio=self.ratio, divided=False, halved=True))
        return (
            *kinds,
            Product("out_down", "attention", c.o_lora_rank, width / c.o_groups, "groups", groups=c.o_groups),
            Product("attention_out", "attention", h, c.o_groups * c.o_lora_rank, "k", heads=c.o_groups),
            Reduce("attention_reduce", "attention", h),
        )
