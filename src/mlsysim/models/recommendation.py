"""Recommendation models: large embedding tables, feature interaction and small dense layers (Naumov et al. 2019).

A sample looks up ``pooling`` rows in each table and adds them, passes its dense features through the bottom layers,
lets all vectors interact (pairwise dot products, a low-rank cross network as in DCN-v2, Wang et al. 2021, or none) and passes
the result through the top layers. Capacity is set by the tables, traffic by the look-ups, operations by the layers.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any, ClassVar, Literal

from pydantic import Field

from mlsysim.errors import InputError
from mlsysim.models.fixed_shape import FixedShapeWorkload
from mlsysim.models.graph import Operator
from mlsysim.models.passes import Pass, gemm
from mlsysim.physics.precision import bytes_per_element
from mlsysim.units.fields import Positive
from mlsysim.units.ops import expm1
from mlsysim.units.registry import Quantity


class RecommendationWorkload(FixedShapeWorkload):
    """A deep-learning recommendation model."""

    looks_up: ClassVar[bool] = True
    usual_precision: ClassVar[str] = "fp32"
    architecture: str = "dlrm"
    embedding_rows: tuple[Positive, ...] = Field(min_length=1)
    embedding_dim: int = Field(gt=0)
    pooling: tuple[Positive, ...] | Positive = 1
    dense_features: int = Field(gt=0)
    bottom_mlp: tuple[Positive, ...] = Field(min_length=1)
    top_mlp: tuple[Positive, ...] = Field(min_length=1)
    interaction: Literal["dot", "cat", "dcnv2"] = "dot"
    dcn_layers: int = Field(default=0, ge=0)
    dcn_rank: int = Field(default=0, ge=0)
    embedding_precision: str = "fp32"

    def model_post_init(self, context: Any) -> None:
        if not isinstance(self.pooling, int) and len(self.pooling) != len(self.embedding_rows):
            raise InputError(f"{self.name}: {len(self.pooling)} pooling sizes for {len(self.embedding_rows)} tables.")
        if self.bottom_mlp[0] != self.dense_features or self.bottom_mlp[-1] != self.embedding_dim:
            raise InputError(
                f"{self.name}: the bottom layers must lead from {self.dense_features} features to {self.embedding_dim}."
            )
        self._check_stated(context)

    @property
    def tables(self) -> int:
        return len(self.embedding_rows)

    @property
    def lookups_per_sample(self) -> int:
        return self.pooling * self.tables if isinstance(self.pooling, int) else sum(self.pooling)

    @property
    def table_parameters(self) -> float:
        return float(sum(self.embedding_rows) * self.embedding_dim)

    @property
    def looked_up_parameters(self) -> float:
        return float(self.lookups_per_sample * self.embedding_dim)

    def distinct_share(self, samples: Any) -> Any:
        """Rows that are read at least once over rows looked up, for so many samples together.

        Of k uniform draws from N rows 1 - (1 - 1/N)^k of the rows are hit, so N (1 - e^(-k/N)) are distinct: a table of three rows is read once,
        one of 40 million rows at nearly every look-up.
        """
        pooling = [self.pooling] * self.tables if isinstance(self.pooling, int) else self.pooling
        drawn = [(rows, samples * each) for rows, each in zip(self.embedding_rows, pooling, strict=True)]
        return sum(-rows * expm1(-k / rows) for rows, k in drawn) / (samples * self.lookups_per_sample)

    @property
    def pooled_elements(self) -> float:
        return float(self.tables * self.embedding_dim)

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
        total = sum(a * b + b for sizes in (self.bottom_mlp, self._top) for a, b in pairwise(sizes))
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

    def _stated_weights(self, precision: str) -> dict[str, Any]:
        return {"weight_bytes": self.size_in_bytes(precision=precision)}

    def forward(self, p: Pass) -> list[Operator]:
        """Look-ups, the bottom layers, what interacts, and the top layers."""
        row = bytes_per_element(self.embedding_precision) * self.embedding_dim
        looked_up = p.batch * self.lookups_per_sample
        pooled = p.batch * self.tables * self.embedding_dim * p.activation
        sizes = {"m": looked_up, "n": self.embedding_dim, "input_bytes": looked_up * row, "output_bytes": pooled}
        return [
            Operator("embedding_bags", "embedding", "embedding", **sizes),
            *(gemm(f"bottom_{i}", "bottom", p, b, a) for i, (a, b) in enumerate(pairwise(self.bottom_mlp))),
            *self._interact(p),
            *(gemm(f"top_{i}", "top", p, b, a) for i, (a, b) in enumerate(pairwise(self._top))),
        ]

    def _interact(self, p: Pass) -> list[Operator]:
        vectors, width, rank = self.tables + 1, self._interaction_width, self.dcn_rank
        if self.interaction == "dot":
            # Every vector with every other, which are no weights but the other input.
            both = 2 * p.batch * vectors * self.embedding_dim
            sizes = {"m": vectors, "kind": "batched_gemm", "groups": p.batch, "read": both}
            product = gemm("interaction", "interaction", p, vectors, self.embedding_dim, **sizes)
            return [replace(product, weight_bytes=0.0)]
        if self.interaction == "cat":
            return []
        cross = gemm("cross_down", "interaction", p, rank, width), gemm("cross_up", "interaction", p, width, rank)
        return [product.times(self.dcn_layers) for product in cross]
