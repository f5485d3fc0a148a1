"""Speech and vision-language models: encoders of other senses in front of, or beside, a language model."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

from pydantic import Field

from mlsysim.models.base import Workload, choose_phase, positive_number, whole_number
from mlsysim.models.graph import ComputationGraph, Operator
from mlsysim.models.passes import Pass, gemm
from mlsysim.models.stack import Stack, training_operators
from mlsysim.models.storage import stored
from mlsysim.models.transformer import TransformerWorkload
from mlsysim.models.vision import VisionTransformerWorkload


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
        return replace(stack, extra_parameters=stack.extra_parameters + self._stem_parameters)

    @property
    def _source_keys(self) -> float | None:
        return float(self.encoder_positions)

    def _source_and_target(self, p: Pass, target_len: Any) -> tuple[Any, Pass]:
        return self.encoder_positions, p

    def _stem(self, p: Pass) -> list[Operator]:
        if not self.conv_stem:
            return []
        h, bins, frames = self.hidden_dim or 0, self.mel_bins, p.batch * self.encoder_positions
        return [
            gemm("stem_1", "embedding", p, h, 3 * bins, 2 * frames, kind="conv", read=2 * frames * bins),
            gemm("stem_2", "embedding", p, h, 3 * h, frames, kind="conv", read=frames * h),
        ]


class VisionLanguageWorkload(Workload):
    """A vision tower whose image tokens enter a language model, or two towers side by side (``image_tokens`` = 0)."""

    architecture: str = "vision_language"
    vision: VisionTransformerWorkload
    language: TransformerWorkload
    projector_parameters: float = Field(default=0.0, ge=0)
    image_tokens: int = Field(default=0, ge=0)

    def model_post_init(self, context: Any) -> None:
        self._check_stated(context)

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
    def decoder(self) -> TransformerWorkload | None:
        """What is served of it: the language model, which holds the tower and the projector beside its layers; None of two towers.
        Left out: the tower's pass over an image."""
        if self.fixed_shape or self.language.structure != "decoder":
            return None
        beside = self.parameter_count - self.language.parameter_count
        own = {name: getattr(self.language, name) for name in self.language.model_fields_set}
        own |= {"name": self.name, "metadata": self.metadata, "parameters": self.parameter_count}
        return type(self.language)(**own | {"extra_parameters": self.language.extra_parameters + beside})

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
        if seq_len is None:
            words = 0 if phase == "decode" else self.language.max_context or 77
        else:
            words = whole_number(seq_len, "seq_len", zero=True)
        text = self.language.lower(
            "prefill" if phase == "inference" else phase,
            batch_size=batch_size,
            seq_len=words + images * self.image_tokens,
            precision=precision,
            **options,
        )
        element = stored(self.language, precision).mean
        operators = list(text.operators)
        if images and phase != "decode":
            shard = {k: v for k, v in options.items() if k in ("tp", "pp")}
            towers = "training" if phase == "training" else "inference"
            tower = self.vision.lower(towers, batch_size=batch_size * images, precision=precision, **shard)
            tokens, width = batch_size * images * max(self.image_tokens, 1), self.projector_parameters
            sizes = {"m": tokens, "n": width, "k": 1, "flops": 2 * tokens * width, "weight_bytes": width * element}
            projector = [Operator("projector", "gemm", "projector", **sizes)]
            projection = training_operators(projector) if phase == "training" else projector
            operators = [*tower.operators, *projection, *operators]
        of_text = {"tokens": text.tokens, "cache_bytes": text.cache_bytes, "assumptions": text.assumptions}
        return self._graph(operators, phase, batch_size, element, layers=self.language.layers, **of_text)
