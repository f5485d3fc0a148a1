"""Dense transformers: decoder, encoder, and both; every published attention of :mod:`mlsysim.models.attention`.

A decoder's work is given in tokens: ``prefill`` of ``seq_len`` tokens, ``decode`` of one token per sequence after a
context of ``seq_len``, ``training`` on ``seq_len`` tokens. Without either, ``lower()`` is one decode token with an
empty cache. Mixtures of experts are in :mod:`mlsysim.models.sparse`, state spaces and mixes in
:mod:`mlsysim.models.sparse`.
"""

import warnings
from dataclasses import replace
from functools import cached_property
from typing import Any, Literal, get_args

from mlsysim.errors import DataWarning, InputError, unknown_name
from mlsysim.models.attention import Attention, CompressedAttention, LatentAttention
from mlsysim.models.base import choose_phase, element_bytes, positive_number, whole_number
from mlsysim.models.demand import AttentionKind, Demand, StackTotals, sequence_demand
from mlsysim.models.dimensions import TransformerDimensions
from mlsysim.models.ffn import FeedForward, MixtureOfExperts
from mlsysim.models.graph import ComputationGraph, Operator
from mlsysim.models.passes import PHASES, Pass, Sharding, whole_model
from mlsysim.models.stack import Block, Recompute, Stack, pair_up, training_operators
from mlsysim.models.storage import kept_parts, stored
from mlsysim.models.template import UNBOUNDED, Mixer
from mlsysim.physics.precision import activation_element, bytes_per_element, cache_format
from mlsysim.units.fields import COPIED
from mlsysim.units.ops import maximum
from mlsysim.units.registry import Quantity

_USUAL_FFN_RATIO = (1.0, 8.0)


class TransformerWorkload(TransformerDimensions):
    """A dense transformer. Only ``name``, ``parameters`` and ``layers`` are needed; more dimensions give more answers.

    Without ``ffn_dim`` the width of the feed-forward layers is solved from ``parameters``.
    """

    def model_post_init(self, context: Any) -> None:
        super().model_post_init(context)
        if context is not COPIED:
            self._check_width()
        self._check_stated(context)

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

    @cached_property
    def stack(self) -> Stack:
        """The network as blocks (of the decoder, where there is an encoder too)."""
        if not self.has_dimensions:
            raise InputError(
                f"{self.name} has no dimensions; give 'layers', 'hidden_dim' and 'heads' to list its operators."
            )
        return self._build(self.effective_ffn_dim if self._wants_dense_width() else self.ffn_dim or 1)

    @cached_property
    def encoder_stack(self) -> Stack | None:
        """The encoder of an encoder-decoder; it shares the decoder's embeddings."""
        return self._encoder(self.effective_ffn_dim) if self.structure == "encoder-decoder" else None

    def _attention(self, window: float = UNBOUNDED, cross: bool = False, shared: bool = False) -> Mixer:
        assert self.hidden_dim is not None and self.heads is not None
        if self.mla is not None and not cross:
            return LatentAttention(self.hidden_dim, self.heads, self.mla, self.sparse_attention)
        heads, kept, width = self.heads, self.effective_kv_heads, self.effective_head_dim
        if window < UNBOUNDED:
            heads, kept = self.window_heads or heads, self.window_kv_heads or kept
            width = self.window_head_dim or width
        biased, source = self.bias or self.qkv_bias, self._source_keys if cross else None
        sizes = self.hidden_dim, heads, kept, width, window
        return Attention(*sizes, biased, self.bias, self.attention_output_gate, cross, source, shared)

    @property
    def _source_keys(self) -> float | None:
        """Keys that an encoder leaves whatever the text; None where it reads the prompt."""
        return None

    def _mixers(self) -> list[tuple[Mixer, int]]:
        """Kinds of mixer and how many layers have them."""
        assert self.layers is not None
        if self.csa is not None:
            assert self.hidden_dim is not None and self.heads is not None
            sizes = self.hidden_dim, self.heads, self.effective_head_dim, self.csa
            kinds = zip(self.csa.compress_ratios, self.csa.compress_counts, strict=True)
            return [(CompressedAttention(*sizes, ratio), count) for ratio, count in kinds]
        every, window = (1, UNBOUNDED) if self.window is None else (self.global_every, self.window)
        found, before = [], 0
        # Layers with keys of their own, then those that attend to the keys of these.
        for behind, shared in ((self.layers - self.shared_kv_layers, False), (self.layers, True)):
            wide = behind // every - before // every if every else 0
            found += [(self._attention(window, shared=shared), behind - before - wide)]
            found += [(self._attention(shared=shared), wide)]
            before = behind
        return [pair for pair in found if pair[1]]

    def _ffns(self, width: int) -> list[tuple[FeedForward | MixtureOfExperts | None, int]]:
        """Kinds of feed-forward layer and how many layers have them."""
        assert self.layers is not None
        return [(self._dense(width), self.layers)]

    def _dense(self, width: int) -> FeedForward:
        return FeedForward(self.hidden_dim or 0, self.ffn_dim or width, self.gated_ffn, self.bias)

    def _blocks(self, width: int) -> tuple[Block, ...]:
        cross: tuple[Mixer, ...] = (self._attention(cross=True),) if self.structure == "encoder-decoder" else ()
        norms = self.norms_per_layer + len(cross)
        return tuple(
            Block((mixer, *cross), ffn, count, norms)
            for mixer, ffn, count in pair_up(self._mixers(), self._ffns(width))
        )

    def _build(self, width: int) -> Stack:
        assert self.hidden_dim is not None
        # An encoder is folded into the count so that a missing width is solved over both halves.
        encoder = self._encoder(width).parameters if self.structure == "encoder-decoder" else 0
        return Stack(
            hidden=self.hidden_dim,
            blocks=self._blocks(width),
            vocab=self.vocab_size or 0,
            tied=self.tied_embeddings,
            positions=self.position_embeddings,
            norm_width=2 if self.norm == "layernorm" else 1,
            head=self.structure != "encoder",
            extra_parameters=self.extra_parameters + encoder,
            embedding=self.embedding_dim or 0,
            looked_up=self.lookup_parameters,
        )

    def _encoder(self, width: int) -> Stack:
        assert self.hidden_dim is not None and self.encoder_layers is not None
        block = Block((self._attention(),), self._dense(width), self.encoder_layers, self.norms_per_layer)
        return Stack(self.hidden_dim, (block,), norm_width=2 if self.norm == "layernorm" else 1, head=False)

    @property
    def active_parameter_count(self) -> float:
        return self.parameter_count - self.lookup_parameters

    @property
    def derived_parameters(self) -> float | None:
        if not self.has_dimensions or (self._wants_dense_width() and self.ffn_dim is None and self.parameters is None):
            return None
        return self.stack.parameters

    @property
    def kv_elements_per_token(self) -> float:
        """Cache elements that one more token adds, over all layers, while no window is full."""
        return sum(b.count * m.counts.cached for b in self.stack.blocks for m in b.mixers)

    def get_kv_cache_size(self, seq_len: Any, batch_size: Any = 1, precision: str = "fp16") -> Any:
        """Bytes that the caches (and states) of ``batch_size`` sequences of ``seq_len`` tokens take."""
        seq_len = whole_number(seq_len, "seq_len", zero=True)
        batch_size = positive_number(batch_size, "batch_size", zero=True)
        return Quantity(self.stack.cache_bytes(seq_len, element_bytes(None, precision)) * batch_size, "byte")

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
        from mlsysim.models.footprint import Training

        if strategy not in get_args(Recompute):
            raise unknown_name("recomputation strategy", strategy, get_args(Recompute))
        sizes = positive_number(batch_size, "batch_size"), whole_number(seq_len, "seq_len"), precision
        options: dict[str, Any] = {"optimizer": optimizer, "recompute": strategy, "zero_stage": zero_stage}
        step = Training(self, *sizes, dp=dp_size, lora_rank=lora_rank if is_lora else None, **options)
        return Quantity(step.fullest.total, "byte")

    @cached_property
    def totals(self) -> StackTotals:
        """What first-order demand needs to know."""
        attention: list[AttentionKind] = []
        elements = 0.0
        if self.has_dimensions:
            causal = self.structure != "encoder"
            kinds = [(block.count, mixer.counts) for block in self.stack.blocks for mixer in block.mixers]
            attention = [AttentionKind(n * c.pair_operations, c.reach, causal) for n, c in kinds if c.pair_operations]
            attention += [AttentionKind(n * each, reach, causal) for n, c in kinds for each, reach in c.beyond]
            p = Pass("prefill", 1, 1, 0, 1.0, 1.0, 0.0, Sharding())
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

    def _closed_demand(
        self, phase: str, batch: Any, new: Any, context: Any, formats: tuple[str, str | None], again: Any, frozen: bool
    ) -> Demand | None:
        """From totals; an encoder-decoder sums its operators instead."""
        if self.structure == "encoder-decoder":
            return None
        cache = formats[1]
        weight, activation = stored(self, formats[0]), activation_element(formats[0])
        held: Any = 0.0
        if phase != "training" and self.has_dimensions and (phase == "decode" or context):
            kept = bytes_per_element(cache_format(cache, formats[0]))
            held = self.stack.cache_bytes(context, kept, read=True) * batch
        new = 1 if phase == "decode" else new
        return sequence_demand(self.totals, phase, batch, new, context, weight[:2], activation, held, again, frozen)

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
        ``context`` is what a prefill finds in the cache. ``target_len`` is the decoder's length in an encoder-decoder: in
        decode what it has written so far, while the context is what the encoder read.
        """
        encoder, assumptions = self.structure == "encoder", {}
        default = "inference" if encoder else "decode" if seq_len is None else "prefill"
        phase = choose_phase(phase, default, ("inference", "prefill", "training") if encoder else PHASES, self.name)
        if seq_len is None and encoder:
            seq_len = self.max_context or 512
            assumptions["seq_len"] = f"{seq_len} tokens (the longest the model takes)"
        elif seq_len is None and phase == "decode":
            seq_len = 0
            assumptions["context"] = "0 tokens (one decode token with an empty cache)"
        elif seq_len is None:
            raise InputError(f"{self.name}: {phase} needs 'seq_len', the number of tokens of a sequence.")
        if recompute not in get_args(Recompute):
            raise unknown_name("recompute mode", recompute, get_args(Recompute))
        if logits not in ("last", "all"):
            raise unknown_name("choice of logits", logits, ("last", "all"), remedy="use last or all.")
        batch_size = positive_number(batch_size, "batch_size")
        seq_len = whole_number(seq_len, "seq_len", zero=phase == "decode")
        context = whole_number(context, "context", zero=True) if context is not None else 0
        new, before = (1, seq_len + context) if phase == "decode" else (seq_len, context)
        formats = (precision, Sharding(tp, pp, ep, cp), activation_precision, cache_precision)
        p = Pass.of(phase, batch_size, new, before, *formats, causal=not encoder, kept=kept_parts(self, precision))
        if self.has_dimensions:
            ops = self._forward(p, logits, target_len)
        else:
            ops = whole_model(p, self.active_parameter_count, self.parameter_count)
        if phase == "training":
            ops = training_operators(ops, recompute)
        cache = None
        if self.has_dimensions and phase in ("prefill", "decode") and not encoder:
            text, source = self.written(phase, before, new, target_len)
            held = self.stack.cache_bytes(text, p.cache, source=source)
            cache = Quantity(held * batch_size, "byte")
        known = {"tokens": p.tokens, "cache_bytes": cache, "assumptions": assumptions}
        each = stored(self, precision).mean if precision_bytes is None else element_bytes(precision_bytes, precision)
        return self._graph(ops, phase, batch_size, each, **known)

    def _forward(self, p: Pass, logits: str, target_len: Any) -> list[Operator]:
        """The operators of a forward pass: of the stack, or of the encoder and the decoder behind it."""
        encoder = self.encoder_stack
        if encoder is None:
            return self.stack.operators(p, "none" if self.structure == "encoder" else logits)
        source, decoding = self._source_and_target(p, target_len)
        decoder = self.stack.operators(decoding, logits, encoder_length=source)
        if p.phase == "decode":
            return decoder
        encoding = replace(p, new=source, context=0, causal=False)
        return [*self._stem(p), *encoder.operators(encoding, "none"), *decoder]

    def _source_and_target(self, p: Pass, target_len: Any) -> tuple[Any, Pass]:
        """How long the encoder's input is, and the decoder's pass: the source has the pass's length and the target its own."""
        if p.phase == "decode":
            written = whole_number(target_len or 0, "target_len", zero=True)
            return maximum(p.context, 1), replace(p, context=written)
        target = 1 if p.phase == "prefill" else p.new
        if target_len is not None:
            target = whole_number(target_len, "target_len")
        return p.new, replace(p, new=target, context=0)

    def written(self, phase: str, before: Any, new: Any, target_len: Any = None) -> tuple[Any, Any]:
        """Tokens of the decoder's own text after a pass, and of the source. An encoder reads the prompt, and beside it stand ``target_len``
        tokens of the text: by default the first one."""
        if self.encoder_stack is None or self._source_keys is not None:
            return before + new, None
        return ((target_len or 0) + 1, before) if phase == "decode" else (target_len or 1, before + new)

    def _stem(self, p: Pass) -> list[Operator]:
        """What comes before the encoder."""
        return []
