"""What a network of fixed shape is made of: operations and elements by class of operator, for one sample.

An :class:`Inventory` is what the calibrated times of vision networks need. It comes from a model of the zoo
(:func:`inventory_of`): of its layers or operators, or as it was counted (:mod:`mlsysim.models.counted`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mlsysim.models.vision import RowWorkload

CLASSES = (
    "conv", "pointwise", "grouped", "depthwise", "gemm", "attention", "softmax", "batch_norm", "relu", "activation",
    "elementwise", "layer_norm", "group_norm", "copy", "reduction",
)  # fmt: skip
"""Classes of operators: convolutions (spatial, 1x1, grouped, depthwise), products, attention, and what only moves elements.

The elements of ``attention`` are queries, keys, values and outputs; those of ``softmax`` are the scores, written and read.
"""

_DEEP = 16


@dataclass(frozen=True, slots=True)
class Inventory:
    """Calls, operations and elements (read and written) of each class in a forward pass of one sample."""

    name: str
    parameters: float
    calls: Mapping[str, float]
    operations: Mapping[str, float]
    elements: Mapping[str, float]

    @property
    def kernels(self) -> float:
        return sum(self.calls.values())

    @property
    def captured(self) -> float:
        """Kernels of a captured graph: copies around an attention are views, and its softmax is inside it."""
        return self.kernels - self.calls.get("softmax", 0.0) - self.calls.get("copy", 0.0)

    @property
    def total_operations(self) -> float:
        return sum(self.operations.values())


@dataclass
class _Counter:
    calls: dict[str, float] = field(default_factory=dict)
    operations: dict[str, float] = field(default_factory=dict)
    elements: dict[str, float] = field(default_factory=dict)

    def add(self, name: str, count: float, operations: float, elements: float) -> None:
        for table, value in ((self.calls, 1.0), (self.operations, operations), (self.elements, elements)):
            table[name] = table.get(name, 0.0) + count * value


def inventory_of(model: Any, seq_len: int | None = None) -> Inventory:
    """The inventory of a network of the zoo for one sample; a language encoder needs the length of a sample."""
    own: Inventory | None = getattr(model, "inventory", None)
    if own is not None:
        return own
    counter = _Counter()
    if isinstance(model, RowWorkload) and model.rows:
        for layer in model.network:
            _count_layer(layer, counter)
        if counter.calls.get("batch_norm", 0.0) >= _DEEP:
            # Rows do not show skip connections and gates, which deep networks have.
            counter.add(
                "elementwise",
                counter.calls["batch_norm"] / 3,
                0.0,
                1.5 * counter.elements["batch_norm"] / counter.calls["batch_norm"],
            )
    else:
        sizes: dict[str, Any] = {} if seq_len is None else {"seq_len": seq_len}
        for op in model.lower("prefill" if sizes else "inference", batch_size=1, precision="fp16", **sizes).operators:
            if not op.is_collective:
                _count_operator(op, counter)
    return Inventory(model.name, model.parameter_count, counter.calls, counter.operations, counter.elements)


def _count_layer(layer: Any, counter: _Counter) -> None:
    outputs = layer.outputs * layer.positions
    area = layer.kernel[0] * layer.kernel[1]
    inputs = layer.inputs * layer.positions * layer.stride**2
    count, operations = layer.count, layer.flops
    if layer.kind == "conv":
        name = "grouped" if layer.groups > 1 else ("conv" if area > 1 else "pointwise")
        counter.add(name, count, operations, inputs + outputs)
    elif layer.kind == "dwconv":
        counter.add("depthwise", count, operations, outputs * (1 + layer.stride**2))
    elif layer.kind == "linear":
        counter.add("gemm", count, operations, inputs + outputs)
    elif layer.kind == "attn":
        width = layer.heads * layer.outputs
        _count_attention(counter, count, operations, 2 * width * (layer.height + layer.width))
        counter.add("softmax", count, 0.0, 2 * layer.heads * layer.height * layer.width)
    elif layer.kind == "norm":
        counter.add("layer_norm", count, 0.0, 2 * outputs)
    elif layer.kind in ("pool", "upsample"):
        counter.add("reduction", count, 0.0, 2 * outputs)
    else:
        counter.add("copy", count, 0.0, 2 * outputs)
    if layer.norm:
        counter.add("batch_norm", count, 0.0, 2 * outputs)
        counter.add("relu", count, 0.0, 2 * outputs)


def _count_attention(counter: _Counter, count: float, operations: float, elements: float) -> None:
    """Two products over the elements, and the heads split and merged by copies, as frameworks do."""
    counter.add("attention", 2 * count, operations / 2, elements)
    counter.add("copy", 4 * count, 0.0, elements)


_NAMED = (("norm", "layer_norm"), ("activation", "activation"), ("gelu", "activation"))


def _count_operator(op: Any, counter: _Counter) -> None:
    elements = (op.input_bytes + op.output_bytes) / 2
    if op.kind in ("gemm", "batched_gemm", "grouped_gemm"):
        counter.add("gemm", op.count, op.flops, elements)
    elif op.kind == "conv":
        counter.add("conv", op.count, op.flops, elements)
    elif op.kind == "depthwise_conv":
        counter.add("depthwise", op.count, op.flops, elements)
    elif op.kind == "attention":
        _count_attention(counter, op.count, op.flops, elements)
        counter.add("softmax", op.count, 0.0, 2 * op.groups * op.m * op.n)
    else:
        name = next((known for word, known in _NAMED if word in op.name), "elementwise")
        counter.add(name, op.count, 0.0, elements)
