"""A network of fixed shape given by its operators, as an importer found them in somebody's graph.

Every figure of a :class:`GraphOperator` is per sample and in elements, so that batch and precision are chosen when the
network is lowered: work, inputs and outputs grow with the batch, weights do not. What does not depend on the sample at all
(a mask, a table of positions) is charged to each sample, which is below one per cent of the bytes in the networks tried.
"""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import Field

from mlsysim.errors import InputError
from mlsysim.models.fixed_shape import FixedShapeWorkload
from mlsysim.models.graph import Operator
from mlsysim.models.passes import Pass, operator
from mlsysim.units.fields import Record

BY_GROUPS = ("attention", "batched_gemm")
"""Kinds in which each sample adds groups; in the others it adds rows."""

Kind = Literal[
    "gemm", "grouped_gemm", "batched_gemm", "attention", "conv", "depthwise_conv", "scan", "embedding", "elementwise"
]
Size = Annotated[float, Field(ge=0, le=1e30)]


class GraphOperator(Record):
    """One kind of call. ``weights`` are read by each call; ``parameters`` are those that no earlier operator holds."""

    name: str
    kind: Kind
    layer: str = "layers"
    count: int = Field(default=1, gt=0)
    m: Size = 0
    n: Size = 0
    k: Size = 0
    groups: float = Field(default=1, gt=0, le=1e30)
    kv_heads: Size = 0
    flops: Size = 0
    weights: Size = 0
    parameters: Size = 0
    inputs: Size = 0
    outputs: Size = 0
    cache: Size = 0

    def operator(self, p: Pass) -> Operator:
        """The operator on a batch, in bytes."""
        rows, groups = (1, p.batch) if self.kind in BY_GROUPS else (p.batch, 1)
        sizes = {"count": self.count, "m": self.m * rows, "n": self.n, "k": self.k, "groups": self.groups * groups}
        work = {"kv_heads": self.kv_heads, "flops": self.flops * p.batch, "weights": self.weights}
        moved = {"read": self.inputs * p.batch, "written": self.outputs * p.batch, "cache": self.cache * p.batch}
        return operator(self.name, self.kind, self.layer, p, **sizes, **work, **moved)


class GraphWorkload(FixedShapeWorkload):
    """A network by its operators. Takes a batch and a precision; the length of a sample is part of its shape."""

    architecture: str = "graph"
    operators: tuple[GraphOperator, ...] = Field(min_length=1)
    sample: str = ""
    """What one sample is, in words: the shapes of the inputs."""

    def model_post_init(self, context: Any) -> None:
        if not self.derived_parameters:
            raise InputError(f"{self.name} holds no weights, so there is no model to plan for.")
        self._check_stated()

    @cached_property
    def derived_parameters(self) -> float:
        return float(sum(op.parameters * op.count for op in self.operators))

    @property
    def flops_per_sample(self) -> float:
        """Operations of one forward pass of one sample."""
        return float(sum(op.flops * op.count for op in self.operators))

    def forward(self, p: Pass) -> list[Operator]:
        """The operators as they were found, on a batch."""
        return [op.operator(p) for op in self.operators]
