"""Dense transformers: decoder, encoder, and both; every published attention of :mod:`mlsysim.models.attention`.

A decoder's work is given in tokens: ``prefill`` of ``seq_len`` tokens, ``decode`` of one token per sequence after a
context of ``seq_len``, ``training`` on ``seq_len`` tokens. Without either, ``lower()`` is one decode token with an
empty cache. Mixtures of experts are in :mod:`mlsysim.models.sparse`, state spaces and mixes in
:mod:`mlsysim.models.hybrid`. The file is long because a workload's fields, structure, counts and lowering are one class.
"""

from __future__ import annotations

import warnings
from functools import cached_property
from typing import Any, Literal

from pydantic import Field

from mlsysim.errors import DataWarning, InputError, unknown_name
from mlsysim.models.attention import Attention
from mlsysim.models.base import Workload, choose_phase, element_bytes, positive_number, sharding, whole_number
from mlsysim.models.demand import AttentionKind, Demand, StackTotals, sequence_demand
from mlsysim.models.ffn import FeedForward, MixtureOfExperts
from mlsysim.models.graph import ComputationGraph, Operator
from mlsysim.models.latent_attention import CSA, MLA, CompressedAttention, LatentAttention, SparseIndexer
from mlsysim.models.passes import Pass, whole_model
from mlsysim.models.stack import Block, Recompute, Stack, forward_operators, pair_up, training_operators
from mlsysim.models.template import UNBOUNDED, Mixer
from mlsysim.physics.precision import bytes_per_element
from mlsysim.units.fields import Flops
from mlsysim.units.registry import Quantity

_USUAL_FFN_RATIO = (1.0, 8.0)


class TransformerWorkload(Workload):
    """A dense transformer. Only ``name``, ``parameters`` and ``layers`` are needed; more dimensions give more answers.

    Without ``ffn_dim`` the width of the feed-forward layers is solved from ``parameters``.
    """

    architecture: str = "transformer"
    layers: int | None = Field(default=None, gt=0)
    hidden_dim: int | None = Field(default=None, gt=0)
    heads: int | None = Field(default=None, gt=0)
    kv_heads: int | None = Field(default=None, gt=0)
    head_dim: int | None = Field(default=None, gt=0)
    ffn_dim: int | None = Field(default=None, gt=0)
    gated_ffn: bool = True
    vocab_size: int | None = Field(default=None, gt=0)
    tied_embeddings: bool = False
    embedding_dim: int | None = Field(default=None, gt=0)
    position_embeddings: int = Field(default=0, ge=0)
    bias: bool = False
    qkv_bias: bool = False
    norm: Literal["rmsnorm", "layernorm"] = "rmsnorm"
    norms_per_layer: int = 2
    max_context: int | None = Field(default=None, gt=0)
    structure: Literal["decoder", "encoder", "encoder-decoder"] = "decoder"
    encoder_layers: int | None = Field(default=None, gt=0)
    window: int | None = Field(default=None, gt=0)
    global_every: int = Field(default=0, ge=0)
    attention_output_gate: bool = False
    mla: MLA | None = None
    sparse_attention: SparseIndexer | None = None
    csa: CSA | None = None
    extra_parameters: float = Field(default=0.0, ge=0)
    training_ops: Flops | None = None

    def model_post_init(self, context: Any) -> None:
        if self.heads and self.kv_heads and self.heads % self.kv_heads:
            raise InputError(f"{self.name}: {self.heads} heads do not divide into {self.kv_heads} key-value heads.")
        if self.structure == "encoder-decoder" and self.encoder_layers is None:
            raise InputError(f"{self.name} is an encoder-decoder and needs 'encoder_layers'.")
        self._check_width()
        self._check_stated()

    # --- dimensions -------------------------------------------------------------------------------------------

    @property
    def effective_kv_heads(self) -> int:
        """Key-value heads: as many as query heads unless stated."""
        return self.kv_heads or self.heads or 1

    @property
    def effective_head_dim(self) -> int:
        if self.head_dim:
            return self.head_dim
        if not (self.hidden_dim and self.heads):
            raise InputError(f"{self.name} needs 'hidden_dim' and 'heads' (or 'head_dim') for this.")
        return self.hidden_dim // self.heads

    @property
    def has_dimensions(self) -> bool:
        """Whether layers, width and heads are known, so that operators can be listed."""
        return bool(self.layers and self.hidden_dim and (self.heads or self.mla))

    @property
    def has_layers(self) -> bool:
        return self.has_dimensions

    @cached_property
    def effective_ffn_dim(self) -> int:
        """The stated width of the feed-forward layers, or the one that makes the parameters come out."""
        if self.ffn_dim:
            return self.ffn_dim
        if self.parameters is None:
            raise InputError(f"{self.name} needs 'ffn_dim', or 'parameters' to solve it from.")
        solved = self._solve_width()
        if solved < 1:
            raise InputError(
                f"{self.name}: {self.parameter_count:.4g} parameters leave nothing for feed-forward layers; check layers, hidden_dim and vocab_size."
            )
        return max(1, round(solved))

    def _solve_width(self) -> float:
        with_one = self._build(width=1).parameters
        with_two = self._build(width=2).parameters
        return 1 + (self.parameter_count - with_one) / (with_two - with_one)

    def _check_width(self) -> None:
        if not self.has_dimensions or self.ffn_dim or self.parameters is None or not self._wants_dense_width():
            return
        ratio = self._solve_width() / (self.hidden_dim or 1)
        if not _USUAL_FFN_RATIO[0] <= ratio <= _USUAL_FFN_RATIO[1]:
            warnings.warn(
                f"{self.name}: {self.parameter_count / 1e9:.4g} B parameters on {self.layers} layers of width {self.hidden_dim} need feed-forward layers "
                f"{ratio:.1f} times as wide as the model, where 2 to 8 is usual; the stated count is used.",
                DataWarning,
                stacklevel=5,
            )

    def _wants_dense_width(self) -> bool:
        return True

    # --- structure --------------------------------------------------------------------------------------------

    @cached_property
    def stack(self) -> Stack:
        """The network as blocks (of the decoder, where there is an encoder too)."""
        self._need_dimensions()
        return self._build(self.effective_ffn_dim if self._wants_dense_width() else self.ffn_dim or 1)

    @cached_property
    def encoder_stack(self) -> Stack | None:
        """The encoder of an encoder-decoder; it shares the decoder's embeddings."""
        if self.structure != "encoder-decoder":
            return None
        return self._encoder(self.effective_ffn_dim)

    def _need_dimensions(self) -> None:
        if not self.has_dimensions:
            raise InputError(
                f"{self.name} has no dimensions; give 'layers', 'hidden_dim' and 'heads' to list its operators."
            )

    @property
    def _norm_width(self) -> int:
        return 2 if self.norm == "layernorm" else 1

    def _attention(self, window: float = UNBOUNDED, cross: bool = False) -> Mixer:
        assert self.hidden_dim is not None and self.heads is not None
        if self.mla is not None and not cross:
            return LatentAttention(self.hidden_dim, self.heads, self.mla, self.sparse_attention)
        return Attention(
            self.hidden_dim,
            self.heads,
            self.effective_kv_heads,
            self.effective_head_dim,
            window,
            qkv_bias=self.bias or self.qkv_bias,
            output_bias=self.bias,
            gate=self.attention_output_gate,
            cross=cross,
        )

    def _mixers(self) -> list[tuple[Mixer, int]]:
        """Kinds of mixer and how many layers have them."""
        assert self.layers is not None
        if self.csa is not None:
            assert self.hidden_dim is not None and self.heads is not None
            kinds = zip(self.csa.compress_ratios, self.csa.compress_counts, strict=True)
            return [
                (CompressedAttention(self.hidden_dim, self.heads, self.effective_head_dim, self.csa, ratio), count)
                for ratio, count in kinds
            ]
        if self.window is None:
            return [(self._attention(), self.layers)]
        wide = self.layers // self.global_every if self.global_every else 0
        narrow = self.layers - wide
        return [pair for pair in ((self._attention(self.window), narrow), (self._attention(), wide)) if pair[1]]

    def _ffns(self, width: int) -> list[tuple[FeedForward | MixtureOfExperts | None, int]]:
        """Kinds of feed-forward layer and how many layers have them."""
        assert self.hidden_dim is not None and self.layers is not None
        return [(FeedForward(self.hidden_dim, width, self.gated_ffn, self.bias), self.layers)]

    def _blocks(self, width: int) -> tuple[Block, ...]:
        cross: tuple[Mixer, ...] = (self._attention(cross=True),) if self.structure == "encoder-decoder" else ()
        norms = self.norms_per_layer + len(cross)
        return tuple(
            Block((mixer, *cross), ffn, count, norms)
            for mixer, ffn, count in pair_up(self._mixers(), self._ffns(width))
        )

    def _build(self, width: int) -> Stack:
        assert self.hidden_dim is not None
        stack = Stack(
            hidden=self.hidden_dim,
            blocks=self._blocks(width),
            vocab=self.vocab_size or 0,
            tied=self.tied_embeddings,
            positions=self.position_embeddings,
            norm_width=self._norm_width,
            head=self.structure != "encoder",
            extra_parameters=self.extra_parameters,
            embedding=self.embedding_dim or 0,
        )
        if self.structure == "encoder-decoder":
            # Folded into the count so that a missing width is solved over both halves.
            encoder = self._encoder(width)
            stack = Stack(**{**_fields(stack), "extra_parameters": stack.extra_parameters + encoder.parameters})
        return stack

    def _encoder(self, width: int) -> Stack:
        assert self.hidden_dim is not None and self.encoder_layers is not None
        ffn = FeedForward(self.hidden_dim, width, self.gated_ffn, self.bias)
        block = Block((self._attention(),), ffn, self.encoder_layers, self.norms_per_layer)
        return Stack(self.hidden_dim, (block,), vocab=0, norm_width=self._norm_width, head=False)

    # --- counts -----------------------------------------------------------------------------------------------

    @property
    def derived_parameters(self) -> float | None:
        if not self.has_dimensions or (self._wants_dense_width() and self.ffn_dim is None and self.parameters is None):
            return None
        return self.stack.parameters

    @property
    def kv_elements_per_token(self) -> float:
        """Cache elements that one more token adds, over all layers, while no window is full."""
        self._need_dimensions()
        elements: float = sum(b.count * m.cache_per_token for b in self.stack.blocks for m in b.mixers)
        return elements

    def get_kv_cache_size(self, seq_len: Any, batch_size: Any = 1, precision: str = "fp16") -> Any:
        """Bytes that the caches (and states) of ``batch_size`` sequences of ``seq_len`` tokens take."""
        self._need_dimensions()
        seq_len = whole_number(seq_len, "seq_len", zero=True)
        batch_size = positive_number(batch_size, "batch_size", zero=True)
        elements = self.stack.cache_elements(seq_len) * batch_size
        return Quantity(elements * element_bytes(None, precision), "byte")

    def training_memory(
        self,
        batch_size: Any = 1,
        seq_len: Any = 2048,
        precision: str = "fp16",
        optimizer: str = "adam",
        strategy: str = "selective",
        zero_stage: int = 0,
        dp_size: int = 1,
        is_lora: bool = False,
        lora_rank: int = 16,
    ) -> Any:
        """Bytes of a training step on one device; ``strategy`` is the recomputation: none, selective or full."""
        from mlsysim.models.footprint import training_state

        if strategy not in ("none", "selective", "full"):
            raise unknown_name("recomputation strategy", strategy, ("none", "selective", "full"))
        state = training_state(
            self,
            positive_number(batch_size, "batch_size"),
            whole_number(seq_len, "seq_len"),
            precision,
            optimizer=optimizer,
            recompute=strategy,
            zero_stage=zero_stage,
            dp=dp_size,
            lora_rank=lora_rank if is_lora else None,
        )
        return Quantity(state.total, "byte")

    @cached_property
    def training_shapes(self) -> dict[float, Any]:
        """What :func:`~mlsysim.models.training_shape.training_shape` gave, by target share; filled as it is asked for."""
        return {}

    # --- first-order demand -----------------------------------------------------------------------------------

    @cached_property
    def totals(self) -> StackTotals:
        """What first-order demand needs to know."""
        attention: list[AttentionKind] = []
        elements = 0.0
        if self.has_dimensions:
            for block in self.stack.blocks:
                for mixer in block.mixers:
                    if mixer.pair_operations:
                        operations = block.count * mixer.pair_operations
                        attention.append(AttentionKind(operations, mixer.reach, self.structure != "encoder"))
            p = Pass("prefill", 1, 1, 0, 1.0, 1.0, 0.0, sharding())
            ops = self.stack.operators(p, "none")
            elements = sum((op.input_bytes + op.output_bytes) * op.count for op in ops if op.kind != "embedding")
        return StackTotals(
            parameters=self.parameter_count,
            active_parameters=self.active_parameter_count,
            experts=getattr(self, "experts", 1),
            experts_per_token=getattr(self, "active_experts_per_token", 1),
            attention=tuple(attention),
            activation_elements_per_token=elements,
        )

    def demand(
        self,
        phase: str,
        *,
        batch_size: Any = 1,
        seq_len: Any = None,
        context: Any = 0,
        precision: str = "fp16",
        cache_precision: str | None = None,
        recompute: str = "none",
        frozen: bool = False,
    ) -> Demand:
        """First-order totals of a pass; an encoder-decoder sums its operators instead."""
        if self.structure == "encoder-decoder":
            return super().demand(
                phase, batch_size=batch_size, seq_len=seq_len, context=context, precision=precision, recompute=recompute
            )
        weight = bytes_per_element(precision)
        activation = weight if weight >= 1 else 2.0
        new = 1 if phase == "decode" else seq_len
        cache: Any = 0.0
        if phase != "training" and self.has_dimensions and (phase == "decode" or context):
            kept = bytes_per_element(cache_precision) if cache_precision else activation
            cache = self.stack.cache_elements(context) * batch_size * kept
        return sequence_demand(
            self.totals, phase, batch_size, new, context, weight, activation, cache, recompute, frozen
        )

    # --- lowering ---------------------------------------------------------------------------------------------

    def lower(  # type: ignore[override]
        self,
        phase: str | None = None,
        *,
        batch_size: Any = 1,
        seq_len: Any = None,
        context: Any = None,
        target_len: Any = None,
        precision: str = "fp16",
        activation_precision: str | None = None,
        cache_precision: str | None = None,
        tp: int = 1,
        pp: int = 1,
        ep: int = 1,
        cp: int = 1,
        recompute: Recompute = "none",
        logits: Literal["last", "all"] = "last",
        precision_bytes: Any = None,
    ) -> ComputationGraph:
        """The operators of one pass on one device.

        ``seq_len`` is the number of new tokens of each sequence in prefill and training, and the context in decode.
        ``context`` is what a prefill finds in the cache. ``target_len`` is the decoder's length in an encoder-decoder.
        """
        assumptions: dict[str, Any] = {}
        if self.structure == "encoder":
            phase = choose_phase(phase, "inference", ("inference", "prefill", "training"), self.name)
            if seq_len is None:
                seq_len = self.max_context or 512
                assumptions["seq_len"] = f"{seq_len} tokens (the longest the model takes)"
        else:
            phase = choose_phase(
                phase,
                "decode" if seq_len is None else "prefill",
                ("prefill", "decode", "training", "inference"),
                self.name,
            )
            if seq_len is None:
                if phase != "decode":
                    raise InputError(f"{self.name}: {phase} needs 'seq_len', the number of tokens of a sequence.")
                seq_len = 0
                assumptions["context"] = "0 tokens (one decode token with an empty cache)"
        if recompute not in ("none", "selective", "full"):
            raise unknown_name("recompute mode", recompute, ("none", "selective", "full"))
        if logits not in ("last", "all"):
            raise unknown_name("choice of logits", logits, ("last", "all"), remedy="use last or all.")
        batch_size = positive_number(batch_size, "batch_size")
        seq_len = whole_number(seq_len, "seq_len", zero=phase == "decode")
        context = whole_number(context, "context", zero=True) if context is not None else 0
        shard = sharding(tp, pp, ep, cp)
        new, before = (1, seq_len + context) if phase == "decode" else (seq_len, context)
        p = Pass.of(
            phase,
            batch_size,
            new,
            before,
            precision,
            shard,
            activation_precision,
            cache_precision,
            causal=self.structure != "encoder",
        )
        ops = (
            whole_model(p, self.active_parameter_count, self.parameter_count)
            if not self.has_dimensions
            else self._forward(p, logits, target_len)
        )
        if phase == "training":
            ops = training_operators(ops, recompute)
        kept = (
            element_bytes(precision_bytes, precision) if precision_bytes is not None else bytes_per_element(precision)
        )
        cache = None
        if self.has_dimensions and phase in ("prefill", "decode") and self.structure != "encoder":
            cache = Quantity(self.stack.cache_elements(before + new) * batch_size * p.cache, "byte")
        return ComputationGraph(
            name=self.name,
            parameter_count=self.parameter_count,
            weight_bytes=Quantity(self.parameter_count * kept, "byte"),
            layers=self.layers,
            operators=ops,
            phase=phase,
            batch_size=batch_size,
            tokens=p.tokens,
            cache_bytes=cache,
            assumptions=assumptions,
        )

    def _forward(self, p: Pass, logits: str, target_len: Any) -> list[Operator]:
        return forward_operators(self.stack, self.encoder_stack, p, logits, target_len, self.structure == "encoder")


def _fields(stack: Stack) -> dict[str, Any]:
    return {name: getattr(stack, name) for name in Stack.__dataclass_fields__}
