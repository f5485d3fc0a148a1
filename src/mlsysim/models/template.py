"""What a block consists of, said once: products, attention cores, scans, experts and what lies between them, with whole sizes.

A mixer or a feed-forward part gives its ``template`` for a decode and for everything else. Whoever needs it reads that:
:meth:`Part.operators` lowers it to one device of a pass, :mod:`mlsysim.models.training_shape` takes what a training step needs,
an engine's step (:mod:`mlsysim.timing.engine_step`) its products by tokens. A further kind of mixer is one more class.

Tensor parallelism splits a product along its output ("n"), its input ("k"), its groups, or not at all. Keys and values are
split over at most as many devices as there are heads of them; beyond, each device keeps a whole copy of one.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar, NamedTuple

from mlsysim.errors import InputError
from mlsysim.models.graph import MULTIPLY_ADD, Operator
from mlsysim.models.passes import Pass, elementwise, gemm, operator
from mlsysim.physics.memory import causal_pairs
from mlsysim.physics.precision import HALF
from mlsysim.units.ops import maximum, minimum, where
from mlsysim.units.records import dataclass

UNBOUNDED = 1e12


def split(count: Any, degree: int, what: str) -> float:
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


class Product(NamedTuple):
    """A product of every token with ``groups`` matrices of n x k.

    ``keys`` of n belong to ``heads`` keys and values; along k there are as many parts that stay whole.
    ``source`` tokens are those of an encoder. What is not ``trained`` a training step leaves out; ``by_tokens`` it splits by tokens
    where others split the matrix.
    """

    name: str
    layer: str
    n: float
    k: float
    split: str = ""
    keys: float = 0.0
    heads: float = 1.0
    groups: float = 1.0
    source: bool = False
    trained: bool = True
    by_tokens: bool = False

    def local(self, tp: Any) -> tuple[Any, Any, Any]:
        """n, k and groups on one of ``tp`` devices."""
        if self.split == "groups":
            groups = self.groups / minimum(tp, self.groups)
            return self.n, self.k * self.groups / (tp * groups), groups
        n = (self.n - self.keys) / tp + self.keys / minimum(tp, self.heads) if self.split == "n" else self.n
        k = self.k / minimum(tp, self.heads if self.heads > 1 else tp) if self.split == "k" else self.k
        return n, k, self.groups

    @property
    def parameters(self) -> float:
        return self.n * self.k * self.groups

    def operators(self, p: Pass, source: Any) -> list[Operator]:
        n, k, groups = self.local(p.shard.tp)
        kind = "gemm" if self.groups == 1 else "batched_gemm"
        return [
            gemm(self.name, self.layer, p, n, k, p.batch * source if self.source else None, kind=kind, groups=groups)
        ]


INDEX_SCORES = "index_scores"
"""Scores of an indexer, by which attention that follows picks its keys."""


class Core(NamedTuple):
    """Attention of ``heads`` heads over a window, over keys that are folded by ``ratio`` or those of an encoder, causal or not.

    A key leaves ``cached`` elements for each of ``kv_heads``. ``picked`` keys are chosen by an indexer, which a training step does not
    have: queries of a prompt that is longer than these attend to keys of their own, so that none are rebuilt for all of them, and d_qk + d_v are the
    ``latent_width`` (DeepSeek-V3.2, 2025); shorter prompts attend to all keys. Heads that are not ``divided`` run on every device. ``halved`` counts half of
    the pass's own tokens in a decode too.
    """

    heads: float
    kv_heads: float
    qk: float
    v: float
    cached: float
    window: float = UNBOUNDED
    causal: bool = True
    cross: bool = False
    ratio: float = 1.0
    topk: float = UNBOUNDED
    name: str = "attention"
    picked: bool = False
    divided: bool = True
    halved: bool = False
    trained: bool = True
    latent_width: float = 0.0

    @property
    def latent(self) -> bool:
        """Whether it attends to one wide key of all heads."""
        return self.kv_heads == 1 and self.heads > 1 and self.qk > _LATENT

    @property
    def indexes(self) -> bool:
        """Whether its scores pick the keys of the attention that follows."""
        return self.name == INDEX_SCORES

    def _keys(self, p: Pass, source: Any) -> Any:
        """Keys that each query sees; None where that depends on its place."""
        if self.cross:
            return source
        if self.ratio == 1:
            return None
        mean = (p.context + p.new / 2) / self.ratio
        seen = minimum((p.context + p.new) / self.ratio, self.topk)
        # On average a query of this pass sees the folded keys of the context and half of its own.
        return mean if self.halved else seen if p.phase == "decode" else minimum(mean, seen)

    def operators(self, p: Pass, source: Any) -> list[Operator]:
        """Scores and weighted sum: 2 (d_qk + d_v) operations for each query-key pair of each head."""
        tp = p.shard.tp
        heads = split(self.heads, tp, "attention heads") if self.divided else self.heads
        kv_heads = self.kv_heads / minimum(tp, self.kv_heads)
        keys = self._keys(p, source)
        length = p.context + p.new if keys is None else keys
        causal = self.causal and p.causal and keys is None
        pairs = (causal_pairs(p.new, p.context, self.window) if causal else p.new * length) / p.shard.cp
        seen = minimum(length, self.window)
        sizes = {"m": p.new, "n": seen, "k": self.qk, "groups": p.batch * heads, "kv_heads": kv_heads}
        width: Any = self.qk + self.v
        if self.latent_width and p.phase == "prefill":
            width = where(length > self.window, self.latent_width, width)
        one = operator(
            self.name,
            "attention",
            "attention",
            p,
            flops=MULTIPLY_ADD * p.batch * heads * pairs * width,
            read=p.tokens * heads * self.qk,
            written=p.tokens * heads * self.v,
            cache=p.batch * seen * kv_heads * self.cached,
            **sizes,
        )
        return [one]


_LATENT = 256
"""Width of a key above which it is a latent one."""
_CHUNK = 128
"""Tokens of a chunk in the usual state-space kernels."""


@dataclass(frozen=True, slots=True)
class Scan:
    """A recurrence over ``channels`` x ``states`` elements behind a causal convolution; ``groups`` share their inputs.

    ``element_operations`` are those of a state element and token as the recurrence is written; ``count`` of ``what`` are split over
    devices. ``element`` is the size of a state element where it has a format of its own.
    """

    name: str
    channels: float
    states: float
    groups: float
    mixed: float
    kernel: int
    element_operations: int
    count: int
    what: str
    shared: float = 0.0
    element: float = 0.0

    @property
    def operations(self) -> float:
        """Per token, in the chunked form: products inside a chunk, its state, and the read-out."""
        inside = _CHUNK * (self.groups * self.states + self.channels)
        return inside + 4 * self.channels * self.states

    @property
    def elements(self) -> float:
        """Elements that the kernels of the block read and write per token."""
        return 2 * self.mixed + self.mixed + 6 * self.channels

    def operators(self, p: Pass, source: Any) -> list[Operator]:
        """The convolution, and the recurrence token by token; the state is read and written once a pass."""
        tp = p.shard.tp
        split(self.count, tp, self.what)
        channels = self.channels / tp
        mixed = (self.mixed - self.shared) / tp + self.shared / minimum(tp, self.groups)
        state = channels * self.states
        through = p.tokens * mixed
        convolution = gemm("causal_conv", "mixer", p, mixed, self.kernel, kind="depthwise_conv", read=through)
        scan = operator(
            self.name,
            "scan",
            "mixer",
            p,
            m=p.tokens,
            n=channels,
            k=self.states,
            flops=self.element_operations * p.tokens * state,
            read=p.tokens * (2 * channels + 2 * self.states),
            written=p.tokens * channels,
        )
        moved = 2 * p.batch * state * (self.element or maximum(p.cache, HALF))
        return [convolution, replace(scan, cache_bytes=moved)]


class Between(NamedTuple):
    """What lies between products: elements read and written for each token, split over tensors."""

    name: str
    layer: str
    read: float
    written: float

    def operators(self, p: Pass, source: Any) -> list[Operator]:
        return [elementwise(self.name, self.layer, p, self.read / p.shard.tp, self.written / p.shard.tp)]


class Reduce(NamedTuple):
    """The sum over the tensor-parallel group of one activation of ``width``; nothing on one device."""

    name: str
    layer: str
    width: float

    def operators(self, p: Pass, source: Any) -> list[Operator]:
        if p.shard.tp == 1:
            return []
        message = p.tokens * self.width * p.activation
        return [Operator(self.name, "all_reduce", self.layer, groups=p.shard.tp, input_bytes=message)]


class Counts(NamedTuple):
    """What a mixer keeps and attends to, per layer; one that says nothing of it has no cache and attends to nothing.

    ``saved`` elements per token wait for the backward pass, of which attention gives ``attended`` and latent projections can make
    ``rebuilt`` again; ``pair_operations`` are those of each attended query-key pair, and a query
    sees ``reach`` keys at most; ``beyond`` has operations for each further token and how many of these it sees, of keys that stand for
    several tokens. A token leaves ``cached`` elements behind, which can be split over ``heads`` devices, or reads ``borrowed`` ones of an earlier layer; ``state`` elements of a recurrence, of
    ``state_element`` bytes where it has a format of its own, and the ``tail`` of its last inputs are kept for each sequence, whatever
    its length.
    """

    saved: float
    pair_operations: float = 0.0
    reach: float = 0.0
    cached: float = 0.0
    heads: int = 1
    state: float = 0.0
    attended: float = 0.0
    rebuilt: float = 0.0
    tail: float = 0.0
    state_element: float = 0.0
    beyond: tuple[tuple[float, float], ...] = ()
    borrowed: float = 0.0


class Part:
    """A mixer or a feed-forward part of a block: its template, and what follows from it."""

    __slots__ = ()

    family: ClassVar[tuple[str, ...]]
    """What software that counts its launches calls it."""

    def template(self, decode: bool = False) -> tuple[Any, ...]:
        """What it consists of in a decode, or in a prompt and in training."""
        raise NotImplementedError

    @property
    def products(self) -> list[Product]:
        return [kind for kind in self.template() if isinstance(kind, Product)]

    @property
    def beside_products(self) -> float:
        """Parameters that no product holds: biases, norms, convolutions."""
        return 0

    @property
    def parameters(self) -> float:
        return sum(product.parameters for product in self.products) + self.beside_products

    def operators(self, p: Pass, encoder_length: Any = None) -> list[Operator]:
        """The operators of a pass on one device."""
        return [op for kind in self.template(p.phase == "decode") for op in kind.operators(p, encoder_length)]


class Mixer(Part):
    """Attention or a recurrent layer."""

    __slots__ = ()

    @property
    def counts(self) -> Counts:
        raise NotImplementedError

    def cache_tokens(self, length: Any) -> Any:
        """How many of a sequence's tokens stay in the cache."""
        return 0.0 * length
