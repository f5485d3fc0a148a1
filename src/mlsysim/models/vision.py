"""Networks of images: convolutional networks and denoisers from layer rows, and vision transformers from their dimensions."""

from __future__ import annotations

from functools import cached_property
from typing import Any, ClassVar, Literal

from pydantic import Field

from mlsysim.errors import InputError
from mlsysim.models.attention import Attention
from mlsysim.models.base import choose_phase
from mlsysim.models.ffn import FeedForward
from mlsysim.models.fixed_shape import FixedShapeWorkload
from mlsysim.models.graph import ComputationGraph, Operator, sum_over
from mlsysim.models.layers import Layer, parse_row
from mlsysim.models.passes import Pass, gemm
from mlsysim.models.stack import Block, Stack
from mlsysim.physics.precision import bytes_per_element
from mlsysim.units.fields import Count

_PRODUCTS = ("gemm", "conv", "depthwise_conv", "attention")
_PLACE = 8.0
"""Bytes of the place of a pool's largest."""


class RowWorkload(FixedShapeWorkload):
    """A network given by layer rows, or only by its parameters and operations."""

    rows: tuple[str, ...] = ()

    @property
    def has_layers(self) -> bool:
        return bool(self.rows)

    def model_post_init(self, context: Any) -> None:
        if self.rows:
            self.network  # noqa: B018  parse now, so that a bad row is refused where it is written
        elif self.inference_flops is None:
            raise InputError(f"{self.name} needs 'rows' or 'inference_flops'.")
        self._check_stated(context)

    @cached_property
    def network(self) -> tuple[Layer, ...]:
        return tuple(parse_row(row) for row in self.rows)

    @property
    def derived_parameters(self) -> float | None:
        return sum(layer.parameters for layer in self.network) if self.rows else None

    @property
    def flops_per_sample(self) -> float:
        """Operations of one forward pass of one sample: from the rows where they are known, else as stated."""
        if self.rows:
            return sum(layer.flops * layer.count for layer in self.network)
        assert self.inference_flops is not None
        return float(self.inference_flops.to("flop").magnitude)

    def forward(self, p: Pass) -> list[Operator]:
        """The operators of the rows; of a network known by totals, all of them as one."""
        if self.rows:
            return [op for layer in self.network for op in layer.operators(p)]
        work, weights = p.batch * self.flops_per_sample, self.parameter_count * p.weight
        return [Operator("all_layers", "gemm", "layers", m=p.batch, flops=work, weight_bytes=weights)]

    def saved_bytes(self, batch_size: Any, precision: str = "fp16") -> Any:
        """Bytes kept for the backward pass. Rows leave activations out, so that what stands around them is counted: what products read is
        kept for their weights, what they write by a norm, an activation or an attention, and where the largest of a pool was (8 bytes; its
        input, not counted, is as large as the inputs of branches, which are read twice). What attention reads and writes stands for a residual stream that gates leave whole, or for the gate of a feed-forward network,
        which are as large. (A network without norms, whose ReLU writes over what a product wrote, keeps half.)
        """
        key = ("saved", precision)
        if key not in self.units:
            ops = self._trained_forward(precision)
            products = [op for op in ops if op.kind in _PRODUCTS]
            kept = sum_over(products, "input_bytes") + sum_over(products, "output_bytes")
            places = (
                0.0 if self.denoises else _PLACE * sum_over((op for op in ops if op.name == "pool"), "output_bytes")
            )
            self.units[key] = float(kept + places / bytes_per_element(precision))
        return self.units[key] * batch_size


class CNNWorkload(RowWorkload):
    """A convolutional network."""

    architecture: str = "cnn"
    layers: int | None = Field(default=None, gt=0)
    image_size: int | None = Field(default=None, gt=0)
    input_shape: tuple[int, ...] | None = None
    counted: str | None = None
    """The same network's name among those of timm whose operators were counted, at the same image size: calibrated times are made of those."""


class DiffusionWorkload(RowWorkload):
    """A denoiser (U-Net or transformer) given by layer rows; ``inference_flops`` is that of one denoiser pass.

    The network is evaluated once (or twice, with guidance) for each denoising step: ``lower()`` is one pass, the ``generate`` phase all
    of an image. The text encoder and the image decoder run once per image; at 20 to 50 steps they are 2 to 10 % of the operations of
    the U-Net models and are left out of the operators, but their parameters count towards memory where they are stated.
    """

    denoises: ClassVar[bool] = True
    architecture: str = "diffusion"
    layers: int | None = Field(default=None, gt=0)
    denoising_steps: int = Field(default=50, gt=0)
    guidance_passes: int = Field(default=1, ge=1, le=3)
    resolution: int | None = Field(default=None, gt=0)
    latent_shape: tuple[int, ...] | None = None
    text_encoder_parameters: Count | None = None
    vae_parameters: Count | None = None

    @property
    def passes_per_image(self) -> int:
        """Denoiser passes for one image."""
        return self.denoising_steps * self.guidance_passes

    def normed_elements(self, batch_size: Any, wide: bool = False) -> Any:
        """Elements that norms read. Those without parameters, which are pools of one position, count three times: the scale that
        comes from elsewhere needs what they make as well, four bytes each in single precision. A denoiser's layers add up products alone, in 16 bits."""
        if wide:
            return 0.0
        if ("scaled",) not in self.units:
            scaled = (op for op in self._trained_forward("fp16") if op.name == "pool")
            self.units["scaled",] = float(sum_over(scaled, "input_bytes")) / bytes_per_element("fp16")
        return super().normed_elements(batch_size) + 3 * self.units["scaled",] * batch_size

    def lower(self, phase: str | None = None, **options: Any) -> ComputationGraph:
        """One denoiser pass (``inference``), a whole image (``generate``) or a training step (``training``)."""
        phase = choose_phase(phase, "inference", ("inference", "generate", "training"), self.name)
        graph = super().lower("training" if phase == "training" else "inference", **options)
        if phase != "generate":
            return graph
        passes = {"passes": f"{self.denoising_steps} steps x {self.guidance_passes} passes"}
        operators = [op.times(self.passes_per_image) for op in graph.operators]
        whole = {"weight_bytes": graph.weight_bytes, "assumptions": passes}
        return self._graph(operators, phase, graph.batch_size, 0.0, **whole)


class VisionTransformerWorkload(FixedShapeWorkload):
    """A vision transformer: patches of an image as a sequence through an encoder."""

    degrees: ClassVar[tuple[str, ...]] = ("tp", "pp")
    architecture: str = "vit"
    layers: int = Field(gt=0)
    hidden_dim: int = Field(gt=0)
    heads: int = Field(gt=0)
    ffn_dim: int = Field(gt=0)
    gated_ffn: bool = False
    bias: bool = True
    norm: Literal["rmsnorm", "layernorm"] = "layernorm"
    image_size: int = Field(gt=0)
    patch_size: int = Field(gt=0)
    channels: int = Field(default=3, gt=0)
    classes: int = Field(default=1000, ge=0)
    class_token: bool = True
    extra_parameters: float = Field(default=0.0, ge=0)

    def model_post_init(self, context: Any) -> None:
        if self.patch_size > self.image_size:
            raise InputError(
                f"{self.name}: a patch of {self.patch_size} is larger than the image of {self.image_size}."
            )
        self._check_stated(context)

    @property
    def patches(self) -> int:
        """Whole patches; a margin that does not fill one is cut off."""
        return (self.image_size // self.patch_size) ** 2

    @property
    def tokens_per_image(self) -> int:
        return self.patches + int(self.class_token)

    @property
    def tokens_per_sample(self) -> int:
        return self.tokens_per_image

    @cached_property
    def stack(self) -> Stack:
        h, heads, bias = self.hidden_dim, self.heads, self.bias
        attention = Attention(h, heads, heads, h // heads, qkv_bias=bias, output_bias=bias)
        block = Block((attention,), FeedForward(h, self.ffn_dim, self.gated_ffn, bias), self.layers, norms=2)
        norm = 2 if self.norm == "layernorm" else 1
        return Stack(h, (block,), norm_width=norm, head=False, extra_parameters=self.extra_parameters)

    @property
    def derived_parameters(self) -> float:
        h, bias = self.hidden_dim, int(self.bias)
        # Patches, their biases, positions, and the class token.
        embedding = h * (self.channels * self.patch_size**2 + bias + self.tokens_per_image + int(self.class_token))
        return self.stack.parameters + embedding + (h + bias) * self.classes

    def forward(self, p: Pass) -> list[Operator]:
        """Patches as one convolution, the encoder, and the classifier."""
        area = self.channels * self.patch_size**2
        patch = gemm("patch_embedding", "embedding", p, self.hidden_dim, area, p.batch * self.patches, kind="conv")
        ops = [patch, *self.stack.operators(p, "none")]
        if self.classes:
            ops.append(gemm("classifier", "head", p, self.classes, self.hidden_dim, p.batch))
        return ops
