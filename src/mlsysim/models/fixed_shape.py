"""Networks of fixed shape: every sample costs the same, so that a batch and a precision are all that a pass asks for.

A :class:`GraphWorkload` is given by its operators, as an importer found them in somebody's graph. Every figure of a
:class:`GraphOperator` is per sample and in elements, so that batch and precision are chosen when the network is lowered: work, inputs
and outputs grow with the batch, weights do not. What does not depend on the sample at all (a mask, a table of positions) is charged
to each sample, which is below one per cent of the bytes in the networks tried.
"""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from mlsysim.errors import InputError
from mlsysim.models.base import Workload, choose_phase, positive_number
from mlsysim.models.graph import ComputationGraph, Operator
from mlsysim.models.passes import Pass, Sharding, operator
from mlsysim.models.stack import Recompute, training_operators
from mlsysim.units.fields import Record


class FixedShapeWorkload(Workload):
    """A network whose subclass says what its forward pass consists of, and by which degrees it can be split."""

    usual_precision: ClassVar[str] = "fp16"
    degrees: ClassVar[tuple[str, ...]] = ()

    @property
    def fixed_shape(self) -> bool:
        return True

    @property
    def tokens_per_sample(self) -> int | None:
        """How many tokens a sample is, where it is a sequence."""
        return None

    def forward(self, p: Pass) -> list[Operator]:
        """The operators of a forward pass on ``p.batch`` samples."""
        raise InputError(f"{type(self).__name__} does not say what a forward pass consists of; implement forward().")

    def lower(
        self,
        phase: str | None = None,
        *,
        batch_size: Any = 1,
        precision: str | None = None,
        activation_precision: str | None = None,
        recompute: Recompute = "none",
        **sizes: Any,
    ) -> ComputationGraph:
        """The operators of a forward pass (``inference``) or of a training step on ``batch_size`` samples."""
        refused = [repr(name) for name in sizes if name not in self.degrees]
        if refused:
            raise InputError(f"{self.name} has a fixed shape and takes no {', '.join(refused)}.")
        phase = choose_phase(phase, "inference", ("inference", "training"), self.name)
        precision = precision or self.usual_precision
        batch_size = positive_number(batch_size, "batch_size")
        new, shard = self.tokens_per_sample or 1, Sharding(**sizes)
        p = Pass.of(phase, batch_size, new, 0, precision, shard, activation_precision, causal=False)
        ops = self.forward(p)
        if phase == "training":
            ops = training_operators(ops, recompute)
        tokens = None if self.tokens_per_sample is None else p.tokens
        return self._graph(ops, phase, batch_size, p.weight, tokens=tokens, **self._stated_weights(precision))

    def _stated_weights(self, precision: str) -> dict[str, Any]:
        """Bytes of the weights where they are not all of one precision."""
        return {}


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
        self._check_stated(context)

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
