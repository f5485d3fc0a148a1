"""The computation graph: what a workload asks of silicon, operator by operator.

An :class:`Operator` is a plain record of numbers in base units (flop, byte), because a graph has hundreds of them and
they are summed in tight loops; :class:`ComputationGraph` gives the totals as quantities. One multiply-add is two
operations everywhere. ``flops`` of an operator is the work that the model defines: causal attention counts the
unmasked half, and a backward pass counts twice its forward pass even where a fused kernel recomputes more.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import field, replace
from functools import cached_property
from typing import Any

from mlsysim.errors import InputError
from mlsysim.units.fields import quantity_from
from mlsysim.units.records import dataclass
from mlsysim.units.registry import Quantity

MULTIPLY_ADD = 2.0
"""Operations of a multiply-add."""


@dataclass(frozen=True, slots=True)
class Operator:
    """One kind of kernel call and how often it occurs in a pass, on one device.

    ``m, n, k`` are the sizes of a matrix product (of one group, where ``groups`` > 1). For attention ``m`` is the
    number of queries, ``n`` of keys, ``k`` the head dimension and ``groups`` batch times query heads. For a collective
    ``input_bytes`` is the message and ``groups`` the number of ranks.
    """

    name: str
    kind: str
    layer: str
    count: Any = 1
    m: Any = 0
    n: Any = 0
    k: Any = 0
    groups: Any = 1
    flops: Any = 0.0
    weight_bytes: Any = 0.0
    input_bytes: Any = 0.0
    output_bytes: Any = 0.0
    cache_bytes: Any = 0.0
    kv_heads: Any = 0
    direction: str = "forward"

    @property
    def bytes(self) -> Any:
        """Bytes that one call moves through memory."""
        return self.weight_bytes + self.input_bytes + self.output_bytes + self.cache_bytes

    @property
    def settles(self) -> bool:
        """Whether it is the gradient of a weight; the second gradient of a product of two inputs is none."""
        return self.name.endswith(".wgrad") and bool(self.weight_bytes)

    @property
    def is_collective(self) -> bool:
        return self.kind in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send")

    def times(self, count: Any) -> Operator:
        """The same operator, ``count`` times as often."""
        return replace(self, count=self.count * count)


@dataclass(frozen=True)
class ComputationGraph:
    """What one pass asks of one device. Give ``operators``, or the totals directly (strings with units will do)."""

    name: str
    total_ops: Any = None
    parameter_count: Any = None
    weight_bytes: Any = None
    arithmetic_intensity: Any = None
    layers: int | None = None
    operators: Sequence[Operator] = ()
    phase: str = "inference"
    batch_size: Any = 1
    tokens: Any = None
    cache_bytes: Any = None
    assumptions: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        operators = tuple(self.operators)
        object.__setattr__(self, "operators", operators)
        if self.total_ops is None and not operators:
            raise InputError(f"ComputationGraph {self.name!r} needs operators or total_ops.")
        read = {
            "total_ops": ("flop", "8.2 GFLOP"),
            "parameter_count": ("", "70.6 Bparam"),
            "weight_bytes": ("byte", "141 GB"),
            "cache_bytes": ("byte", "2 GB"),
            "arithmetic_intensity": ("flop/byte", "100 flop/byte"),
        }
        for attribute, (unit, example) in read.items():
            value = getattr(self, attribute)
            if attribute == "parameter_count" and isinstance(value, (int, float)):
                object.__setattr__(self, attribute, Quantity(value, "count"))
            elif value is not None and not (operators and isinstance(value, Quantity)):
                object.__setattr__(self, attribute, quantity_from(value, unit, example, attribute))
        if self.total_ops is None:
            object.__setattr__(self, "total_ops", Quantity(self.flops, "flop"))
        if self.weight_bytes is None:
            object.__setattr__(self, "weight_bytes", Quantity(sum_over(operators, "weight_bytes"), "byte"))
        if self.arithmetic_intensity is None:
            moved = self.bytes_moved
            if not isinstance(moved, (int, float)) or moved > 0:
                object.__setattr__(self, "arithmetic_intensity", Quantity(self.flops / moved, "flop/byte"))

    @cached_property
    def flops(self) -> Any:
        """Operations that the model defines, forward and backward, without recomputation (a number of flop)."""
        if not self.operators:
            return self.total_ops.to("flop").magnitude
        return sum(op.flops * op.count for op in self.operators if op.direction != "recompute")

    @cached_property
    def hardware_flops(self) -> Any:
        """Operations that the device executes, recomputed forward passes included (a number of flop)."""
        if not self.operators:
            return self.flops
        return sum(op.flops * op.count for op in self.operators)

    @cached_property
    def bytes_moved(self) -> Any:
        """Bytes through memory: weights, activations and caches (a number of byte)."""
        if not self.operators:
            return self.weight_bytes.to("byte").magnitude if self.weight_bytes is not None else 0.0
        return sum(op.bytes * op.count for op in self.operators if not op.is_collective)

    def by_layer(self) -> dict[str, Any]:
        """Operations by layer class (numbers of flop)."""
        totals: dict[str, Any] = {}
        for op in self.operators:
            totals[op.layer] = totals.get(op.layer, 0.0) + op.flops * op.count
        return totals

    def __repr__(self) -> str:
        return (
            f"ComputationGraph({self.name!r}, {self.phase}, {self.total_ops:.4g~P}, weights {self.weight_bytes.to('GB'):.4g~P}, "
            f"{len(self.operators)} kinds of operator)"
        )


def sum_over(operators: Iterable[Operator], attribute: str) -> Any:
    """Sum of one attribute over all calls."""
    return sum(getattr(op, attribute) * op.count for op in operators)
