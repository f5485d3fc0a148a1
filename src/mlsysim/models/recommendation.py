"""Recommendation models: large embedding tables, feature interaction and small dense layers (Naumov et al. 2019).

A sample looks up ``pooling`` rows in each table and adds them, passes its dense features through the bottom layers,
lets all vectors interact (pairwise dot products, a low-rank cross network as in DCN-v2, Wang et al. 2021, or none) and passes
the result through the top layers. Capacity is set by the tables, traffic by the look-ups, operations by the layers.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Literal

from pydantic import Field

from mlsysim.errors import InputError
from mlsysim.models.base import Workload, choose_phase, positive_number, sharding
from mlsysim.models.graph import ComputationGraph, Operator
from mlsysim.models.passes import Pass, gemm
from mlsysim.models.stack import Recompute, training_operators
from mlsysim.physics.precision import bytes_per_element
from mlsysim.units.registry import Quantity


class RecommendationWorkload(Workload):
    """A deep-learning recommendation model."""

    architecture: str = "dlrm"
    embedding_rows: tuple[int, ...]
    embedding_dim: int = Field(gt=0)
    pooling: tuple[int, ...] | int = 1
    dense_features: int = Field(gt=0)
    bottom_mlp: tuple[int, ...]
    top_mlp: tuple[int, ...]
    interaction: Literal["dot", "cat", "dcnv2"] = "dot"
    dcn_layers: int = Field(default=0, ge=0)
    dcn_rank: int = Field(default=0, ge=0)
    embedding_precision: str = "fp32"

    @property
    def fixed_shape(self) -> bool:
        return True

    def model_post_init(self, context: Any) -> None:
        if not isinstance(self.pooling, int) and len(self.pooling) != len(self.embedding_rows):
            raise InputError(f"{self.name}: {len(self.pooling)} pooling sizes for {len(self.embedding_rows)} tables.")
        if self.bottom_mlp[0] != self.dense_features or self.bottom_mlp[-1] != self.embedding_dim:
            raise InputError(
                f"{self.name}: the bottom layers must lead from {self.dense_features} features to {self.embedding_dim}."
            )
        self._check_stated()

    @property
    def tables(self) -> int:
        return len(self.embedding_rows)

    @property
    def lookups_per_sample(self) -> int:
        return self.pooling * self.tables if isinstance(self.pooling, int) else sum(self.pooling)

    @property
    def _interaction_width(self) -> int:
        vectors = self.tables + 1
        if self.interaction == "dot":
            return vectors * (vectors - 1) // 2 + self.embedding_dim
        return vectors * self.embedding_dim

    @property
    def _top(self) -> tuple[int, ...]:
        """The top layers with the interaction's width in front, unless the data already has it."""
        return (self._interaction_width, *self.top_mlp)

    @property
    def dense_parameter_count(self) -> float:
        """Parameters outside the tables."""
        total = 0
        for sizes in (self.bottom_mlp, self._top):
            total += sum(a * b + b for a, b in pairwise(sizes))
        width = self._interaction_width
        if self.interaction == "dcnv2":
            total += self.dcn_layers * (2 * width * self.dcn_rank + width)
        return float(total)

    @property
    def derived_parameters(self) -> float:
        return sum(self.embedding_rows) * self.embedding_dim + self.dense_parameter_count

    def size_in_bytes(self, precision_bytes: Any = None, precision: str = "fp32") -> Any:
        """Bytes of the tables in their own precision and of the layers in the given one."""
        if precision_bytes is not None:
            return super().size_in_bytes(precision_bytes, precision)
        tables = sum(self.embedding_rows) * self.embedding_dim * bytes_per_element(self.embedding_precision)
        return Quantity(tables + self.dense_parameter_count * bytes_per_element(precision), "byte")

    def lower(  # type: ignore[override]
        self,
        phase: str | None = None,
        *,
        batch_size: Any = 1,
        precision: str = "fp32",
        activation_precision: str | None = None,
        recompute: Recompute = "none",
    ) -> ComputationGraph:
        """The operators of a forward pass (``inference``) or of a training step on ``batch_size`` samples."""
        phase = choose_phase(phase, "inference", ("inference", "training"), self.name)
        batch_size = positive_number(batch_size, "batch_size")
        p = Pass.of(phase, batch_size, 1, 0, precision, sharding(), activation_precision)
        row = bytes_per_element(self.embedding_precision) * self.embedding_dim
        gather = Operator(
            "embedding_bags",
            "embedding",
            "embedding",
            m=batch_size * self.lookups_per_sample,
            n=self.embedding_dim,
            input_bytes=batch_size * self.lookups_per_sample * row,
            output_bytes=batch_size * self.tables * self.embedding_dim * p.activation,
        )
        ops = [gather]
        ops += [gemm(f"bottom_{i}", "bottom", p, b, a) for i, (a, b) in enumerate(pairwise(self.bottom_mlp))]
        ops += self._interact(p)
        ops += [gemm(f"top_{i}", "top", p, b, a) for i, (a, b) in enumerate(pairwise(self._top))]
        if phase == "training":
            ops = training_operators(ops, recompute)
        return ComputationGraph(
            name=self.name,
            parameter_count=self.parameter_count,
            weight_bytes=self.size_in_bytes(precision=precision),
            operators=ops,
            phase=phase,
            batch_size=batch_size,
        )

    def _interact(self, p: Pass) -> list[Operator]:
        vectors, d = self.tables + 1, self.embedding_dim
        if self.interaction == "dot":
            return [
                Operator(
                    "interaction",
                    "batched_gemm",
                    "interaction",
                    m=vectors,
                    n=vectors,
                    k=d,
                    groups=p.batch,
                    flops=2 * p.batch * vectors * vectors * d,
                    input_bytes=2 * p.batch * vectors * d * p.activation,
                    output_bytes=p.batch * vectors * vectors * p.activation,
                )
            ]
        if self.interaction == "cat":
            return []
        width = self._interaction_width
        return [
            gemm("cross_down", "interaction", p, self.dcn_rank, width, count=self.dcn_layers),
            gemm("cross_up", "interaction", p, width, self.dcn_rank, count=self.dcn_layers),
        ]
