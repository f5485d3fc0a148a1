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
from mlsysim.models.base import Workload, choose_phase, positive_number, sharding
from mlsysim.models.graph import ComputationGraph, Operator
from mlsysim.models.passes import Pass
from mlsysim.models.stack import Recompute, training_operators
from mlsysim.physics.precision import bytes_per_element
from mlsysim.units.fields import Record
from mlsysim.units.registry import Quantity

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


class GraphWorkload(Workload):
    """A network by its operators. Takes a batch and a precision; the length of a sample is part of its shape."""

    architecture: str = "graph"
    operators: tuple[GraphOperator, ...] = Field(min_length=1)
    sample: str = ""
    """What one sample is, in words: the shapes of the inputs."""

    @property
    def fixed_shape(self) -> bool:
        return True

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

    def lower(
        self,
        phase: str | None = None,
        *,
        batch_size: Any = 1,
        precision: str = "fp16",
        activation_precision: str | None = None,
        recompute: Recompute = "none",
        **sizes: Any,
    ) -> ComputationGraph:
        """The operators of a forward pass (``inference``) or of a training step on ``batch_size`` samples."""
        if sizes:
            raise InputError(f"{self.name} has a fixed shape and takes no {', '.join(map(repr, sizes))}.")
        phase = choose_phase(phase, "inference", ("inference", "training"), self.name)
        batch_size = positive_number(batch_size, "batch_size")
        p = Pass.of(phase, batch_size, 1, 0, precision, sharding(), activation_precision)
        ops = [op.operator(p) for op in self.operators]
        if phase == "training":
            ops = training_operators(ops, recompute)
        return ComputationGraph(
            name=self.name,
            parameter_count=self.parameter_count,
            weight_bytes=Quantity(self.parameter_count * bytes_per_element(precision), "byte"),
            operators=ops,
            phase=phase,
            batch_size=batch_size,
        )
