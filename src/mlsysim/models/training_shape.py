"""A network as a training step sees it: products per token, attention cores, experts, scans and widths, by kind of layer.

Tensor parallelism splits a product along its output (``"n"``), its input (``"k"``) or not at all (``""``). Everything is a
plain number, taken from the workload once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mlsysim.errors import InputError
from mlsysim.models.attention import UNBOUNDED, Attention
from mlsysim.models.ffn import FeedForward, MixtureOfExperts
from mlsysim.models.latent_attention import CompressedAttention, LatentAttention
from mlsysim.models.recurrent import GatedDeltaNet, StateSpace
from mlsysim.models.stack import Block, Stack
from mlsysim.models.transformer import TransformerWorkload

_CHUNK = 128
"""Tokens of a chunk in the usual state-space kernels."""


@dataclass(frozen=True, slots=True)
class Product:
    """A matrix product of every token with an n x k matrix."""

    n: float
    k: float
    split: str = ""


@dataclass(frozen=True, slots=True)
class Core:
    """Attention of ``heads`` heads over a window, over keys compressed by ``ratio``, causal or not."""

    heads: float
    qk: float
    v: float
    window: float = UNBOUNDED
    causal: bool = True
    ratio: float = 1.0
    topk: float = UNBOUNDED


@dataclass(frozen=True, slots=True)
class Experts:
    """Routed experts of width ``width`` on vectors of ``inner`` elements."""

    count: float
    per_token: float
    width: float
    inner: float
    matrices: int
    plain: bool

    @property
    def parameters(self) -> float:
        return self.count * self.matrices * self.inner * self.width


@dataclass(frozen=True, slots=True)
class Scan:
    """A recurrence over ``channels`` x ``states`` elements, ``groups`` of shared inputs; ``mixed`` convolved channels."""

    channels: float
    states: float
    groups: float
    mixed: float

    @property
    def operations(self) -> float:
        """Per token, in the chunked form: products inside a chunk, its state, and the read-out."""
        inside = _CHUNK * (self.groups * self.states + self.channels)
        return inside + 4 * self.channels * self.states

    @property
    def elements(self) -> float:
        """Elements that the kernels of the block read and write per token."""
        return 2 * self.mixed + self.mixed + 6 * self.channels


@dataclass(frozen=True, slots=True)
class LayerKind:
    """``count`` layers of the same kind."""

    count: float
    hidden: float
    sublayers: int
    products: tuple[Product, ...]
    cores: tuple[Core, ...] = ()
    attention_width: float = 0.0
    feed_width: float = 0.0
    gated: bool = True
    rotary: bool = True
    experts: Experts | None = None
    scan: Scan | None = None
    token_share: float = 1.0
    key_width: float = 0.0
    """Elements of the keys and values of a token, which context parallelism passes around."""

    @property
    def dense_parameters(self) -> float:
        """Of one layer, without routed experts."""
        return sum(p.n * p.k for p in self.products)


@dataclass(frozen=True, slots=True)
class TrainingShape:
    """All kinds of layer, the output head, and the embedding tables."""

    name: str
    hidden: float
    kinds: tuple[LayerKind, ...]
    vocab: float
    head: bool
    embedding: float
    causal: bool
    head_tokens: float = 1.0

    @property
    def layers(self) -> float:
        return sum(kind.count for kind in self.kinds)

    @property
    def dense_parameters(self) -> float:
        """Parameters of the layers that every token uses."""
        return sum(kind.count * kind.dense_parameters for kind in self.kinds)

    @property
    def expert_parameters(self) -> float:
        return sum(kind.count * kind.experts.parameters for kind in self.kinds if kind.experts)

    @property
    def moe_layers(self) -> float:
        return sum(kind.count for kind in self.kinds if kind.experts)

    def operations_per_token(self, seq_len: float, causal: bool = False, recompute: str = "none") -> float:
        """Model operations of a training step per token, as publications count them.

        Attention counts every pair, or with ``causal`` every pair that is attended; ``recompute`` adds what is done twice.
        """
        linear = attention = 0.0
        for kind in self.kinds:
            routed = kind.experts
            expert = routed.per_token * routed.matrices * routed.inner * routed.width if routed else 0.0
            linear += kind.token_share * kind.count * 2 * (kind.dense_parameters + expert)
            for core in kind.cores:
                keys = min(core.window, seq_len, core.topk) if core.ratio == 1 else min(core.topk, seq_len / core.ratio)
                half = 0.5 if causal and core.causal and core.window >= seq_len else 1.0
                attention += kind.token_share * kind.count * 2 * core.heads * (core.qk + core.v) * keys * half
            if kind.scan:
                attention += kind.count * kind.scan.operations
        logits = self.head_tokens * 2 * self.hidden * self.vocab if self.head else 0.0
        again = {"full": linear + attention, "selective": attention}.get(recompute, 0.0)
        return 3 * (linear + attention + logits) + again


def _mixer(kind: Block, hidden: int) -> tuple[list[Product], list[Core], float, Scan | None, float]:
    products: list[Product] = []
    cores: list[Core] = []
    width = keys_and_values = 0.0
    scan: Scan | None = None
    for mixer in kind.mixers:
        if isinstance(mixer, Attention):
            q, kv = mixer.heads * mixer.head_dim, mixer.kv_heads * mixer.head_dim
            products.append(Product((2 if mixer.gate else 1) * q + 2 * kv, hidden, "n"))
            products.append(Product(hidden, q, "k"))
            cores.append(Core(mixer.heads, mixer.head_dim, mixer.head_dim, mixer.window, not mixer.cross))
            width += q + kv
            keys_and_values += 2 * kv
        elif isinstance(mixer, LatentAttention):
            m = mixer.mla
            qk = m.qk_nope_head_dim + m.qk_rope_head_dim
            products.append(Product((m.q_lora_rank or 0) + m.kv_lora_rank + m.qk_rope_head_dim, hidden))
            products.append(Product(mixer.heads * qk, m.q_lora_rank or hidden, "n"))
            products.append(Product(mixer.heads * (m.qk_nope_head_dim + m.v_head_dim), m.kv_lora_rank, "n"))
            products.append(Product(hidden, mixer.heads * m.v_head_dim, "k"))
            cores.append(Core(mixer.heads, qk, m.v_head_dim, UNBOUNDED))
            width += mixer.heads * (qk + m.v_head_dim)
            keys_and_values += mixer.heads * (qk + m.v_head_dim)
        elif isinstance(mixer, CompressedAttention):
            c, d = mixer.csa, mixer.head_dim
            products.append(Product(c.q_lora_rank + d, hidden))
            products.append(Product(mixer.heads * d, c.q_lora_rank, "n"))
            products.append(Product(c.o_lora_rank, mixer.heads * d, "k"))
            products.append(Product(hidden, c.o_groups * c.o_lora_rank, "k"))
            cores.append(Core(mixer.heads, d, d, c.window))
            if mixer.ratio:
                products.append(Product((4 if mixer.indexed else 2) * d, hidden))
                cores.append(Core(mixer.heads, d, d, ratio=mixer.ratio, topk=c.topk if mixer.indexed else UNBOUNDED))
            if mixer.indexed:
                products.append(Product(c.index_heads * c.index_head_dim, c.q_lora_rank))
                cores.append(Core(c.index_heads, c.index_head_dim, 0, ratio=mixer.ratio))
            width += mixer.heads * d + d
            keys_and_values += d
        elif isinstance(mixer, StateSpace):
            d, n, groups = mixer.inner, mixer.spec.state_size, mixer.spec.groups
            products.append(Product(2 * d + 2 * groups * n + mixer.heads, hidden, "n"))
            products.append(Product(hidden, d, "k"))
            scan = Scan(d, n, groups, d + 2 * groups * n)
        elif isinstance(mixer, GatedDeltaNet):
            spec = mixer.spec
            keys, values = spec.key_heads * spec.key_head_dim, spec.value_heads * spec.value_head_dim
            products.append(Product(2 * keys + 2 * values + 2 * spec.value_heads, hidden, "n"))
            products.append(Product(hidden, values, "k"))
            scan = Scan(values, spec.key_head_dim, spec.key_heads, 2 * keys + values)
        else:
            raise InputError(f"a calibrated training step does not know the mixer {type(mixer).__name__}.")
    return products, cores, width, scan, keys_and_values


def _kinds(stack: Stack, rotary: bool, tokens: float = 1.0, causal: bool = True) -> list[LayerKind]:
    kinds = []
    for block in stack.blocks:
        products, cores, width, scan, keys_and_values = _mixer(block, stack.hidden)
        if not causal:
            cores = [Core(c.heads, c.qk, c.v, c.window, False) for c in cores]
        feed, gated, experts = 0.0, True, None
        ffn = block.ffn
        if isinstance(ffn, FeedForward):
            feed, gated = ffn.width, ffn.gated
        elif isinstance(ffn, MixtureOfExperts):
            feed, gated = ffn.shared_width, ffn.gated
            inner = ffn.latent or ffn.hidden
            # Experts with biases, or without a gate, have no fused activation kernel in today's stacks.
            experts = Experts(
                ffn.experts,
                ffn.per_token,
                ffn.width,
                inner,
                3 if ffn.gated else 2,
                plain=ffn.bias or not ffn.gated,
            )
            products.append(Product(ffn.experts, ffn.hidden))
            if ffn.latent:
                products += [Product(ffn.latent, ffn.hidden), Product(ffn.hidden, ffn.latent)]
        if feed:
            products += [
                Product((2 if gated else 1) * feed, stack.hidden, "n"),
                Product(stack.hidden, feed, "k"),
            ]
        sublayers = len(block.mixers) + (ffn is not None)
        kinds.append(
            LayerKind(
                block.count,
                stack.hidden,
                sublayers,
                tuple(products),
                tuple(cores),
                width,
                feed,
                gated,
                rotary,
                experts,
                scan,
                tokens,
                keys_and_values,
            )
        )
    return kinds


def training_shape(model: Any, target_share: float = 1.0) -> TrainingShape:
    """What a training step needs to know of a workload; ``target_share`` is decoder over encoder tokens, where both are."""
    if not isinstance(model, TransformerWorkload) or not model.has_dimensions:
        raise InputError(
            f"{getattr(model, 'name', model)} has no layers with dimensions; a calibrated training step needs them.",
            field="model",
        )
    found: TrainingShape | None = model.training_shapes.get(target_share)
    if found is None:
        found = model.training_shapes[target_share] = _shape(model, target_share)
    return found


def _shape(model: TransformerWorkload, target_share: float) -> TrainingShape:
    rotary = not model.position_embeddings
    causal = model.structure != "encoder"
    encoder = model.encoder_stack
    share = target_share if encoder is not None else 1.0
    kinds = _kinds(model.stack, rotary, share, causal)
    if encoder is not None:
        kinds += _kinds(encoder, rotary, 1.0, causal=False)
    return TrainingShape(
        name=model.name,
        hidden=float(model.hidden_dim or 0),
        kinds=tuple(kinds),
        vocab=float(model.vocab_size or 0),
        head=bool(model.vocab_size),
        embedding=model.stack.embedding_parameters,
        causal=causal,
        head_tokens=share,
    )


def training_regime(shape: TrainingShape, frozen: bool) -> str:
    """The kind of training whose measured errors give the error bar."""
    if frozen:
        return "training adapters"
    if any(kind.scan for kind in shape.kinds):
        return "training hybrid"
    return "training mixture of experts" if shape.expert_parameters else "training dense"
