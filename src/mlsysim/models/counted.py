"""Networks known by a count of their operators: calls, operations and elements of each class, for one sample of an image size.

The networks of timm (PyTorch Image Models) are entries of the zoo by name, ``timm/resnet50``, at every image size that was counted
(:mod:`mlsysim.models.timm_counts`).

A count does not say which operator is the widest (:mod:`mlsysim.models.widths`).
"""

from __future__ import annotations

from functools import cache, cached_property
from typing import Any

from pydantic import Field

from mlsysim.errors import InputError
from mlsysim.models.base import Workload
from mlsysim.models.fixed_shape import FixedShapeWorkload
from mlsysim.models.graph import Operator
from mlsysim.models.inventory import Inventory
from mlsysim.models.passes import Pass, operator
from mlsysim.models.timm_counts import PREFIX, counts_of
from mlsysim.models.vision import VisionTransformerWorkload
from mlsysim.physics.precision import bytes_per_element
from mlsysim.zoo.provenance import Metadata, Source

_KINDS = {
    "conv": "conv", "pointwise": "conv", "grouped": "conv", "depthwise": "depthwise_conv", "gemm": "gemm",
    "attention": "batched_gemm",
}  # fmt: skip
_SOURCE = Source(
    title="timm (PyTorch Image Models), operators counted by running each model on tensors without data",
    url="https://github.com/huggingface/pytorch-image-models",
    checked="2026-11-15",
    kind="config",
)


class CountedWorkload(FixedShapeWorkload):
    """A network by the count of its operators at one image size."""

    architecture: str = "counted"
    image_size: int = Field(gt=0)
    calls: dict[str, float]
    operations: dict[str, float]
    elements: dict[str, float]

    @cached_property
    def inventory(self) -> Inventory:
        """What calibrated times are made of."""
        return Inventory(self.name, self.parameter_count, self.calls, self.operations, self.elements)

    @property
    def flops_per_sample(self) -> float:
        """Operations of one forward pass of one sample."""
        return sum(self.operations.values())

    def forward(self, p: Pass) -> list[Operator]:
        """An operator for each class, as many times as it is called, with the class's mean size."""
        return [self._operator(name, p) for name in self.calls]

    def working_bytes(self, batch_size: Any, precision: str = "fp16", seq_len: Any = None) -> Any:
        """Bytes of the mean operator of the class with the largest ones; scores stay inside a fused attention."""
        each = (n / self.calls[name] for name, n in self.elements.items() if name != "softmax")
        return max(each, default=0.0) * max(bytes_per_element(precision), 1.0) * batch_size

    def _operator(self, name: str, p: Pass) -> Operator:
        calls, work = self.calls[name], self.operations.get(name, 0.0)
        half = p.batch * self.elements.get(name, 0.0) / calls / 2
        # Scores are products of two inputs.
        weighed = self.flops_per_sample - self.operations.get("attention", 0.0)
        weights = 0.0 if name == "attention" else work / weighed * self.parameter_count / calls
        sizes = {"count": calls, "m": p.batch, "flops": p.batch * work / calls}
        kind = _KINDS.get(name, "elementwise")
        return operator(name, kind, "layers", p, weights=weights, read=half, written=half, **sizes)


@cache
def timm_network(name: str, image_size: int | None = None) -> CountedWorkload:
    """A network of timm at an image size, or at the usual one where none is given."""
    plain, size, parameters, counts = counts_of(name, image_size)
    known = f"{PREFIX}{plain}"
    about: dict[str, Any] = {"name": known, "metadata": Metadata.of(known, (_SOURCE,)), "parameters": parameters}
    return CountedWorkload(**about | counts, image_size=size)


def at_image_size(model: Workload, size: int) -> Workload:
    """A network on images of another size: a vision transformer, or one that was counted at that size."""
    own = getattr(model, "image_size", None)
    if own == size:
        return model
    if isinstance(model, CountedWorkload):
        return timm_network(model.name, size)
    if isinstance(model, VisionTransformerWorkload):
        fields = {name: getattr(model, name) for name in model.model_fields_set - {"parameters", "metadata"}}
        return VisionTransformerWorkload(**{**fields, "image_size": size})
    known = f"is known for its own images of {own} pixels" if own else "takes no images of another size"
    raise InputError(f"{model.name} {known}; leave image_size out.", field="image_size")
