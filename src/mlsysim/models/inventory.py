"""What a network of fixed shape is made of: operations and elements by class of operator, for one sample.

An :class:`Inventory` is what the calibrated times of vision networks need. It comes from a model of the zoo
(:func:`inventory_of`): as its operators were counted (:mod:`mlsysim.models.timm_counts`), which an entry says by ``counted``; else of its
layers or operators. Layer rows lack what lies between layers: beside counted operators, passes of 17 networks on an H200 come out 14 % off
in the median instead of 6 %, and Swin's windows and ConvNeXt's norms take half of their time.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any

from mlsysim.models.graph import Operator
from mlsysim.models.timm_counts import counted_sizes, counts_of
from mlsysim.units.records import dataclass

if TYPE_CHECKING:
    from mlsysim.models.layers import Layer

CLASSES = (
    "conv", "pointwise", "grouped", "depthwise", "gemm", "attention", "softmax", "batch_norm", "relu", "activation",
    "elementwise", "layer_norm", "group_norm", "copy", "reduction",
)  # fmt: skip
"""Classes of operators: convolutions (spatial, 1x1, grouped, depthwise), products, attention, and what only moves elements.

The elements of ``attention`` are queries, keys, values and outputs; those of ``softmax`` are the scores, written and read.
"""

_DEEP = 16
_SAME = 0.005
"""What the operations of a network may differ by from those that were counted: a changed copy of an entry is no longer that network."""


@dataclass(frozen=True, slots=True)
class Inventory:
    """Calls, operations and elements (read and written) of each class in a forward pass of one sample."""

    name: str
    parameters: float
    calls: dict[str, float] = field(default_factory=dict)
    operations: dict[str, float] = field(default_factory=dict)
    elements: dict[str, float] = field(default_factory=dict)

    def add(self, name: str, count: float, operations: float, elements: float) -> None:
        """So many further calls of a class."""
        for table, value in ((self.calls, 1.0), (self.operations, operations), (self.elements, elements)):
            table[name] = table.get(name, 0.0) + count * value

    @property
    def kernels(self) -> float:
        return sum(self.calls.values())

    @property
    def captured(self) -> float:
        """Kernels of a captured graph: copies around an attention are views, and its softmax is inside it."""
        views = min(self.calls.get("copy", 0.0), 2 * self.calls.get("attention", 0.0))
        return self.kernels - self.calls.get("softmax", 0.0) - views

    @property
    def casts(self) -> float:
        """Conversions of mixed precision in eager operation: of each convolution's weights, of each product's weights and bias and, behind a norm that
        leaves single precision, every other time, of its input."""
        convolutions = sum(self.calls.get(name, 0.0) for name in ("conv", "pointwise", "grouped", "depthwise"))
        return convolutions + 2.5 * self.calls.get("gemm", 0.0)

    def moved(self, name: str) -> float:
        """Elements of a class. Of copies, what splits and merges the heads of an attention is ``view``: a fused one reads its inputs where they are."""
        copied = self.elements.get("copy", 0.0)
        views = min(copied, 2 * self.elements.get("attention", 0.0))
        return {"copy": copied - views, "view": views}.get(name, self.elements.get(name, 0.0))


def inventory_of(model: Any, seq_len: int | None = None) -> Inventory:
    """The inventory of a network of the zoo for one sample; a language encoder needs the length of a sample."""
    own: Inventory | None = getattr(model, "inventory", None)
    if own is not None:
        return own
    if getattr(model, "counted", None) and model.image_size in counted_sizes().get(model.counted, ()):
        _, _, parameters, counts = counts_of(model.counted, model.image_size)
        if abs(sum(counts["operations"].values()) / model.flops_per_sample - 1) < _SAME:
            return Inventory(model.name, parameters, **counts)
    found = Inventory(model.name, model.parameter_count)
    if getattr(model, "rows", ()):
        for layer in model.network:
            _count_layer(layer, found)
        normed = found.calls.get("batch_norm", 0.0)
        if normed >= _DEEP:
            # Rows do not show skip connections and gates, which deep networks have.
            found.add("elementwise", normed / 3, 0.0, 1.5 * found.elements["batch_norm"] / normed)
        if not (normed or {"layer_norm", "attention"} & found.calls.keys()):
            # Convolutional networks without norms, as until 2014: every layer but the last has an activation of its own.
            for layer in (layer for layer in model.network[:-1] if layer.matrix):
                found.add("relu", layer.count, 0.0, 2 * layer.outputs * layer.positions)
    else:
        sizes: dict[str, Any] = {} if seq_len is None else {"seq_len": seq_len}
        for op in model.lower("prefill" if sizes else "inference", batch_size=1, precision="fp16", **sizes).operators:
            if not op.is_collective:
                _count_operator(op, found)
    return found


def _count_layer(layer: Layer, found: Inventory) -> None:
    outputs, count = layer.outputs * layer.positions, layer.count
    if layer.kind == "attn":
        moved = 2 * layer.heads * layer.outputs * (layer.height + layer.width)
        _count_attention(found, count, layer.flops, moved, layer.heads * layer.height * layer.width)
    else:
        convolution = "grouped" if layer.groups > 1 else ("conv" if layer.area > 1 else "pointwise")
        name = convolution if layer.kind == "conv" else _OF_LAYERS.get(layer.kind, "reduction")
        found.add(name, count, layer.flops, (layer.read if layer.matrix else outputs) + outputs)
    if layer.norm:
        found.add("batch_norm", count, 0.0, 2 * outputs)
        found.add("relu", count, 0.0, 2 * outputs)


def _count_attention(found: Inventory, count: float, operations: float, elements: float, scores: float) -> None:
    """Two products over the elements, the heads split and merged by copies, as frameworks do, and the softmax of the scores."""
    found.add("attention", 2 * count, operations / 2, elements)
    found.add("copy", 4 * count, 0.0, elements)
    found.add("softmax", count, 0.0, 2 * scores)


_OF_LAYERS = {"dwconv": "depthwise", "linear": "gemm", "norm": "layer_norm", "embed": "copy"}
_OF_OPERATORS = {
    "gemm": "gemm", "batched_gemm": "gemm", "grouped_gemm": "gemm", "conv": "conv", "depthwise_conv": "depthwise"
}  # fmt: skip
_NAMED = (("norm", "layer_norm"), ("activation", "activation"), ("gelu", "activation"))


def _count_operator(op: Operator, found: Inventory) -> None:
    elements = (op.input_bytes + op.output_bytes) / 2
    if op.kind == "attention":
        _count_attention(found, op.count, op.flops, elements, op.groups * op.m * op.n)
    elif op.kind in _OF_OPERATORS:
        found.add(_OF_OPERATORS[op.kind], op.count, op.flops, elements)
    else:
        name = next((known for word, known in _NAMED if word in op.name), "elementwise")
        found.add(name, op.count, 0.0, elements)
