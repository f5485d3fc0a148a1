"""Networks of fixed shape: convolutional networks from layer rows, and vision transformers from their dimensions."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Literal

from pydantic import Field

from mlsysim.errors import InputError
from mlsysim.models.attention import Attention
from mlsysim.models.base import Workload, choose_phase, positive_number, sharding
from mlsysim.models.ffn import FeedForward
from mlsysim.models.fixed_shape import FixedShapeWorkload
from mlsysim.models.graph import ComputationGraph, Operator
from mlsysim.models.layers import Layer, parse_row
from mlsysim.models.passes import Pass
from mlsysim.models.stack import Block, Recompute, Stack, training_operators
from mlsysim.physics.precision import bytes_per_element
from mlsysim.units.registry import Quantity


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
        self._check_stated()

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


class CNNWorkload(RowWorkload):
    """A convolutional network."""

    architecture: str = "cnn"
    layers: int | None = Field(default=None, gt=0)
    image_size: int | None = Field(default=None, gt=0)
    input_shape: tuple[int, ...] | None = None


class VisionTransformerWorkload(Workload):
    """A vision transformer: patches of an image as a sequence through an encoder."""

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

    @property
    def fixed_shape(self) -> bool:
        return True

    def model_post_init(self, context: Any) -> None:
        if self.patch_size > self.image_size:
            raise InputError(
                f"{self.name}: a patch of {self.patch_size} is larger than the image of {self.image_size}."
            )
        self._check_stated()

    @property
    def patches(self) -> int:
        """Whole patches; a margin that does not fill one is cut off."""
        return (self.image_size // self.patch_size) ** 2

    @property
    def tokens_per_image(self) -> int:
        return self.patches + int(self.class_token)

    @cached_property
    def stack(self) -> Stack:
        head_dim = self.hidden_dim // self.heads
        attention = Attention(
            self.hidden_dim, self.heads, self.heads, head_dim, qkv_bias=self.bias, output_bias=self.bias
        )
        ffn = FeedForward(self.hidden_dim, self.ffn_dim, self.gated_ffn, self.bias)
        block = Block((attention,), ffn, self.layers, norms=2)
        return Stack(
            self.hidden_dim,
            (block,),
            norm_width=2 if self.norm == "layernorm" else 1,
            head=False,
            extra_parameters=self.extra_parameters,
        )

    @property
    def _patch_weights(self) -> int:
        return self.channels * self.patch_size**2 * self.hidden_dim

    @property
    def derived_parameters(self) -> float:
        h = self.hidden_dim
        embedding = (
            self._patch_weights + (h if self.bias else 0) + self.tokens_per_image * h + (h if self.class_token else 0)
        )
        head = h * self.classes + (self.classes if self.bias else 0)
        return self.stack.parameters + embedding + head

    def lower(  # type: ignore[override]
        self,
        phase: str | None = None,
        *,
        batch_size: Any = 1,
        precision: str = "fp16",
        activation_precision: str | None = None,
        tp: int = 1,
        pp: int = 1,
        recompute: Recompute = "none",
    ) -> ComputationGraph:
        """The operators of a forward pass (``inference``) or of a training step on ``batch_size`` images."""
        phase = choose_phase(phase, "inference", ("inference", "training"), self.name)
        batch_size = positive_number(batch_size, "batch_size")
        p = Pass.of(
            phase, batch_size, self.tokens_per_image, 0, precision, sharding(tp, pp), activation_precision, causal=False
        )
        area = self.patch_size**2
        rows = batch_size * self.patches
        patch = Operator(
            "patch_embedding",
            "conv",
            "embedding",
            m=rows,
            n=self.hidden_dim,
            k=self.channels * area,
            flops=2 * rows * self._patch_weights,
            weight_bytes=self._patch_weights * p.weight,
            input_bytes=rows * self.channels * area * p.activation,
            output_bytes=rows * self.hidden_dim * p.activation,
        )
        ops = [patch, *self.stack.operators(p, "none")]
        if self.classes:
            n, k = self.classes, self.hidden_dim
            ops.append(
                Operator(
                    "classifier",
                    "gemm",
                    "head",
                    m=batch_size,
                    n=n,
                    k=k,
                    flops=2 * batch_size * n * k,
                    weight_bytes=n * k * p.weight,
                    input_bytes=batch_size * k * p.activation,
                    output_bytes=batch_size * n * p.activation,
                )
            )
        if phase == "training":
            ops = training_operators(ops, recompute)
        return ComputationGraph(
            name=self.name,
            parameter_count=self.parameter_count,
            weight_bytes=Quantity(self.parameter_count * bytes_per_element(precision), "byte"),
            layers=self.layers,
            operators=ops,
            phase=phase,
            batch_size=batch_size,
            tokens=p.tokens,
        )
