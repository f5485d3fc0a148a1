"""Speech and vision-language models: encoders of other senses in front of, or beside, a language model."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

from pydantic import Field

from mlsysim.models.base import Workload, choose_phase, positive_number, whole_number
from mlsysim.models.graph import ComputationGraph, Operator
from mlsysim.models.passes import Pass
from mlsysim.models.stack import Stack, training_operators
from mlsysim.models.transformer import TransformerWorkload
from mlsysim.models.vision import VisionTransformerWorkload
from mlsysim.physics.precision import bytes_per_element
from mlsysim.units.registry import Quantity


class SpeechWorkload(TransformerWorkload):
    """Whisper-like: two convolutions halve a mel spectrogram, an encoder reads it, a decoder writes text.

    The encoder always sees ``encoder_positions`` frames (30 seconds); ``seq_len`` is the text's length.
    """

    architecture: str = "speech"
    structure: Literal["decoder", "encoder", "encoder-decoder"] = "encoder-decoder"
    encoder_positions: int = Field(default=1500, gt=0)
    mel_bins: int = Field(default=80, gt=0)
    conv_stem: bool = True

    @property
    def _stem_parameters(self) -> float:
        h = self.hidden_dim or 0
        return 3 * self.mel_bins * h + 3 * h * h + 2 * h if self.conv_stem else 0.0

    def _build(self, width: int) -> Stack:
        stack = super()._build(width)
        # The encoder's positions are fixed sinusoids, not parameters.
        extra = stack.extra_parameters + self._stem_parameters
        return Stack(**{**{n: getattr(stack, n) for n in Stack.__dataclass_fields__}, "extra_parameters": extra})

    def _forward(self, p: Pass, logits: str, target_len: Any) -> list[Operator]:
        encoder = self.encoder_stack
        assert encoder is not None and self.hidden_dim is not None
        if p.phase == "decode":
            return self.stack.operators(p, logits, encoder_length=self.encoder_positions)
        h, frames = self.hidden_dim, p.batch * self.encoder_positions
        encoding = Pass(
            p.phase, p.batch, self.encoder_positions, 0, p.weight, p.activation, p.cache, p.shard, causal=False
        )
        stem = (
            [_conv1d("stem_1", p, 2 * frames, h, 3 * self.mel_bins), _conv1d("stem_2", p, frames, h, 3 * h)]
            if self.conv_stem
            else []
        )
        return (
            stem
            + encoder.operators(encoding, "none")
            + self.stack.operators(p, logits, encoder_length=self.encoder_positions)
        )


def _conv1d(name: str, p: Pass, rows: Any, n: int, k: int) -> Operator:
    return Operator(
        name,
        "conv",
        "embedding",
        m=rows,
        n=n,
        k=k,
        flops=2 * rows * n * k,
        weight_bytes=n * k * p.weight,
        input_bytes=rows * k / 3 * p.activation,
        output_bytes=rows * n * p.activation,
    )


class VisionLanguageWorkload(Workload):
    """A vision tower whose image tokens enter a language model, or two towers side by side (``image_tokens`` = 0)."""

    architecture: str = "vision_language"
    vision: VisionTransformerWorkload
    language: TransformerWorkload
    projector_parameters: float = Field(default=0.0, ge=0)
    image_tokens: int = Field(default=0, ge=0)

    def model_post_init(self, context: Any) -> None:
        self._check_stated()

    @property
    def fixed_shape(self) -> bool:
        """Two towers side by side take one image and one text each; a language model with eyes takes tokens."""
        return self.image_tokens == 0

    @property
    def derived_parameters(self) -> float | None:
        language = self.language.derived_parameters
        if language is None:
            return None
        return self.vision.derived_parameters + language + self.projector_parameters

    @property
    def active_parameter_count(self) -> float:
        return self.language.active_parameter_count

    def get_kv_cache_size(self, seq_len: Any, batch_size: Any = 1, precision: str = "fp16") -> Any:
        """Bytes of the language model's cache for text and image tokens together."""
        return self.language.get_kv_cache_size(seq_len, batch_size, precision)

    def lower(
        self,
        phase: str | None = None,
        *,
        batch_size: Any = 1,
        seq_len: Any = None,
        images: Any = 1,
        precision: str = "fp16",
        **options: Any,
    ) -> ComputationGraph:
        """``seq_len`` text tokens follow ``images`` images in prefill and training; a decode token sees both in its context."""
        side_by_side = self.image_tokens == 0
        allowed = ("inference", "training") if side_by_side else ("prefill", "decode", "training")
        default = "inference" if side_by_side else ("decode" if seq_len is None else "prefill")
        phase = choose_phase(phase, default, allowed, self.name)
        batch_size = positive_number(batch_size, "batch_size")
        images = whole_number(images, "images", zero=True)
        language_phase = "prefill" if side_by_side and phase == "inference" else phase
        if phase == "decode":
            context = (
                whole_number(seq_len, "seq_len", zero=True) if seq_len is not None else 0
            ) + images * self.image_tokens
            step = self.language.lower("decode", batch_size=batch_size, seq_len=context, precision=precision, **options)
            return replace(
                step,
                name=self.name,
                parameter_count=self.parameter_count,
                weight_bytes=Quantity(self.parameter_count * bytes_per_element(precision), "byte"),
            )
        length = (
            whole_number(seq_len, "seq_len", zero=True) if seq_len is not None else (self.language.max_context or 77)
        ) + images * self.image_tokens
        text = self.language.lower(
            language_phase, batch_size=batch_size, seq_len=length, precision=precision, **options
        )
        operators = list(text.operators)
        if images:
            shard = {k: v for k, v in options.items() if k in ("tp", "pp")}
            tower = self.vision.lower(
                "training" if phase == "training" else "inference",
                batch_size=batch_size * images,
                precision=precision,
                **shard,
            )
            tokens = batch_size * images * max(self.image_tokens, 1)
            width = self.projector_parameters
            projector = Operator(
                "projector",
                "gemm",
                "projector",
                m=tokens,
                n=width,
                k=1,
                flops=2 * tokens * width,
                weight_bytes=width * bytes_per_element(precision),
            )
            projection = training_operators([projector]) if phase == "training" else [projector]
            operators = [*tower.operators, *projection, *operators]
        return ComputationGraph(
            name=self.name,
            parameter_count=self.parameter_count,
            weight_bytes=Quantity(self.parameter_count * bytes_per_element(precision), "byte"),
            layers=self.language.layers,
            operators=operators,
            phase=phase,
            batch_size=batch_size,
            tokens=text.tokens,
            cache_bytes=text.cache_bytes,
            assumptions=text.assumptions,
        )
