"""A network as a training step sees it: products per token, attention cores, experts, scans and widths, by kind of layer.

Tensor parallelism splits a product along its output (``"n"``), its input (``"k"``) or not at all (``""``). Everything is a
plain number, taken from the workload once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mlsysim.errors import InputError
from mlsysim.models.ffn import Experts
from mlsysim.models.stack import Block
from mlsysim.models.template import UNBOUNDED, Between, Core, Product, Scan
from mlsysim.models.transformer import TransformerWorkload
from mlsysim.units.records import dataclass
from mlsysim.zoo.constants import constant


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
    positions: float = 0.0
    """Tokens of a sample, where they are not those of its sequence (frames of speech)."""
    source: float = 0.0
    """The same of the encoder that a layer attends to."""
    key_width: float = 0.0
    """Elements of the keys and values of a token, which context parallelism passes around."""

    @property
    def dense_parameters(self) -> float:
        """Of one layer, without routed experts."""
        return sum(product.parameters for product in self.products)


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
    images: bool = False

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

    def products_of(self, parts: Sequence[str]) -> float:
        """Parameters of the products of these parts that a token meets."""
        total = 0.0
        for kind in self.kinds:
            routed = kind.experts if "experts" in parts else None
            own = sum(product.parameters for product in kind.products if product.layer in parts)
            own += routed.per_token * routed.matrices * routed.inner * routed.width if routed else 0.0
            total += kind.count * kind.token_share * own
        return total

    def operations_per_token(self, seq_len: float, causal: bool = False, recompute: str = "none") -> float:
        """Model operations of a training step per token, as publications count them.

        Attention counts every pair, or with ``causal`` every pair that is attended; ``recompute`` adds what is done twice.
        """
        linear = attention = 0.0
        for kind in self.kinds:
            share = kind.positions / seq_len if kind.positions else kind.token_share
            routed = kind.experts
            expert = routed.per_token * routed.matrices * routed.inner * routed.width if routed else 0.0
            linear += share * kind.count * 2 * (kind.dense_parameters + expert)
            for core in kind.cores:
                whole = kind.positions or seq_len
                keys = min(core.window, whole, core.topk) if core.ratio == 1 else min(core.topk, seq_len / core.ratio)
                half = 0.5 if causal and core.causal and core.window >= seq_len else 1.0
                attention += share * kind.count * 2 * core.heads * (core.qk + core.v) * keys * half
            if kind.scan:
                attention += kind.count * kind.scan.operations
        logits = self.head_tokens * 2 * self.hidden * self.vocab if self.head else 0.0
        again = {"full": linear + attention, "selective": attention}.get(recompute, 0.0)
        return 3 * (linear + attention + logits) + again


def _products(kinds: Sequence[Any], source: float) -> tuple[Product, ...]:
    """Products of a training step. Stacks make the keys of an encoder beside the queries, of as many tokens unless it has its own, take groups as one
    product, and split the tokens where a projection around experts could be split."""
    found: list[Product] = []
    for kind in kinds:
        if not isinstance(kind, Product) or not kind.trained:
            continue
        if kind.source and not source:
            kind = found[-1]._replace(n=found.pop().n + kind.n)
        elif kind.groups > 1:
            kind = kind._replace(k=kind.k * kind.groups, groups=1.0, split="k")
        found.append(kind._replace(split="") if kind.by_tokens else kind)
    return tuple(found)


def _kind(
    block: Block, hidden: float, rotary: bool, tokens: float, causal: bool, positions: float = 0.0, source: float = 0.0
) -> LayerKind:
    parts = [*block.mixers, *([block.ffn] if block.ffn is not None else [])]
    kinds = [kind for part in parts for kind in part.template()]
    # A training step attends to all keys, whatever an indexer would pick of them.
    cores = tuple(
        core._replace(window=UNBOUNDED if core.picked else core.window, causal=core.causal and causal)
        for core in kinds
        if isinstance(core, Core) and core.trained
    )
    whole = [core for core in cores if core.ratio == 1]
    ffn = block.ffn
    return LayerKind(
        count=block.count,
        hidden=hidden,
        sublayers=len(parts),
        products=_products(kinds, source),
        cores=cores,
        attention_width=sum(core.heads * core.qk + core.kv_heads * core.v for core in whole),
        feed_width=sum(kind.written for kind in kinds if isinstance(kind, Between) and kind.layer == "ffn"),
        gated=ffn.gated if ffn is not None else True,
        rotary=rotary,
        experts=next((kind for kind in kinds if isinstance(kind, Experts)), None),
        scan=next((kind for kind in kinds if isinstance(kind, Scan)), None),
        token_share=tokens,
        positions=positions,
        source=source,
        key_width=sum(core.kv_heads * core.cached for core in whole),
    )


def splits(model: Any) -> bool:
    """Whether a network of fixed shape has layers that training stacks split: a vision transformer."""
    return bool(getattr(model, "degrees", ()))


def training_shape(model: Any, target_share: float = 1.0) -> TrainingShape:
    """What a training step needs to know of a workload; ``target_share`` is decoder over encoder tokens, where both are."""
    image = splits(model)
    if not image and (not isinstance(model, TransformerWorkload) or not model.has_dimensions):
        raise InputError(
            f"{getattr(model, 'name', model)} has no layers with dimensions; a calibrated training step needs them.",
            field="model",
        )
    key = "training shape", target_share
    if key not in model.units:
        model.units[key] = _image_shape(model) if image else _shape(model, target_share)
    return model.units[key]


def _shape(model: TransformerWorkload, target_share: float) -> TrainingShape:
    rotary = not model.position_embeddings
    causal = model.structure != "encoder"
    encoder = model.encoder_stack
    share = target_share if encoder is not None else 1.0
    hidden = float(model.hidden_dim or 0)
    frames = float(getattr(model, "encoder_positions", 0.0))
    kinds = [_kind(block, model.stack.hidden, rotary, share, causal, source=frames) for block in model.stack.blocks]
    if encoder is not None:
        kinds += [_kind(block, encoder.hidden, rotary, 1.0, False, positions=frames) for block in encoder.blocks]
    return TrainingShape(
        name=model.name,
        hidden=hidden,
        kinds=tuple(kinds),
        vocab=float(model.vocab_size or 0),
        head=bool(model.vocab_size),
        embedding=model.stack.embedding_parameters,
        causal=causal,
        # An encoder is trained to restore masked tokens, and looks for those alone.
        head_tokens=share if causal else constant("masked_token_share").number,
    )


def _image_shape(model: Any) -> TrainingShape:
    """A vision transformer: an encoder of patches, and a classifier of one token of each image."""
    kinds = tuple(_kind(block, model.stack.hidden, False, 1.0, False) for block in model.stack.blocks)
    layers = sum(kind.count * kind.dense_parameters for kind in kinds)
    return TrainingShape(
        name=model.name,
        hidden=float(model.hidden_dim),
        kinds=kinds,
        vocab=float(model.classes),
        head=bool(model.classes),
        embedding=max(model.parameter_count - layers, 0.0),
        causal=False,
        head_tokens=1 / model.tokens_per_sample,
        images=True,
    )


def training_regime(shape: TrainingShape, frozen: bool) -> str:
    """The kind of training whose measured errors give the error bar."""
    if frozen:
        return "training adapters"
    if any(kind.scan for kind in shape.kinds):
        return "training hybrid"
    both = {core.causal for kind in shape.kinds for core in kind.cores if not core.cross}
    if shape.images:
        return "training images"
    if False in both:
        return "training encoder" if both == {False} else "training encoder-decoder"
    return "training mixture of experts" if shape.expert_parameters else "training dense"
