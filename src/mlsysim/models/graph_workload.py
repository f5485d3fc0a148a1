"""A network of fixed shape given by its operators, as an importer found them in somebody's graph.

Every figure of a :class:`GraphOperator` is per sample and in elements, so that batch and precision are chosen when the
network is lowered: work, inputs and outputs grow with the batch, weights do not. What does not depend on the sample at all
(a mask, a table of positions) is charged to each sample, which is below one per cent of the bytes in the networks tried.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, Literal

from pydantic import Field

from mlsysim.errors import InputError
from mlsysim.models.fixed_shape import FixedShapeWorkload
from mlsysim.models.graph import Operator
from mlsysim.models.passes import Pass
from mlsysim.units.fields import Record

BY_GROUPS = ("attention", "batched_gemm")
"""Kinds in which each sample adds groups; in the others it adds rows."""

_LARGEST = 1e30


class GraphOperator(Record):
    """One kind of call. ``weights`` are read by each call; ``parameters`` are those that no earlier operator holds."""

    name: str
    kind: Literal[
        "gemm",
        "grouped_gemm",
        "batched_gemm",
        "attention",
        "conv",
        "depthwise_conv",
        "scan",
        "embedding",
        "elementwise",
    ]
    layer: str = "layers"
    count: int = Field(default=1, gt=0)
    m: float = Field(default=0, ge=0, le=_LARGEST)
    n: float = Field(default=0, ge=0, le=_LARGEST)
    k: float = Field(default=0, ge=0, le=_LARGEST)
    groups: float = Field(default=1, gt=0, le=_LARGEST)
    kv_heads: float = Field(default=0, ge=0, le=_LARGEST)
    flops: float = Field(default=0, ge=0, le=_LARGEST)
    weights: float = Field(default=0, ge=0, le=_LARGEST)
    parameters: float = Field(default=0, ge=0, le=_LARGEST)
    inputs: float = Field(default=0, ge=0, le=_LARGEST)
    outputs: float = Field(default=0, ge=0, le=_LARGEST)
    cache: float = Field(default=0, ge=0, le=_LARGEST)

    def operator(self, p: Pass) -> Operator:
        """The operator on a batch, in bytes."""
        grouped = self.kind in BY_GROUPS
        return Operator(
            self.name,
            self.kind,
            self.layer,
            self.count,
            m=self.m if grouped else self.m * p.batch,
            n=self.n,
            k=self.k,
            groups=self.groups * p.batch if grouped else self.groups,
            kv_heads=self.kv_heads,
            flops=self.flops * p.batch,
            weight_bytes=self.weights * p.weight,
            input_bytes=self.inputs * p.batch * p.activation,
            output_bytes=self.outputs * p.batch * p.activation,
            cache_bytes=self.cache * p.batch * p.cache,
        )


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
