"""Transformers whose feed-forward layers are mixtures of experts, of which a few serve each token."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from mlsysim.errors import InputError
from mlsysim.models.ffn import FeedForward, MixtureOfExperts
from mlsysim.models.transformer import TransformerWorkload
from mlsysim.units.fields import Count
from mlsysim.units.registry import to_si
from mlsysim.units.text import count_text


class SparseTransformerWorkload(TransformerWorkload):
    """A transformer whose feed-forward layers are mixtures of experts.

    Operations follow the active parameters, memory all of them. A token chooses its experts from ``groups_per_token`` of
    ``expert_groups`` groups of neighbours, which spares messages where groups are on machines of their own.
    """

    architecture: str = "sparse_transformer"
    active_parameters: Count | None = None
    experts: int = Field(gt=0)
    active_experts_per_token: int = Field(default=1, gt=0)
    expert_ffn_dim: int | None = Field(default=None, gt=0)
    expert_groups: int = Field(default=1, gt=0)
    groups_per_token: int = Field(default=1, gt=0)
    shared_experts: int = Field(default=0, ge=0)
    shared_expert_ffn_dim: int | None = Field(default=None, gt=0)
    dense_layers: int = Field(default=0, ge=0)
    moe_every: int = Field(default=1, gt=0)
    expert_latent_dim: int | None = Field(default=None, gt=0)
    routing_imbalance: float = Field(default=1.0, ge=1.0)

    def model_post_init(self, context: Any) -> None:
        if self.active_experts_per_token > self.experts:
            raise InputError(
                f"{self.name}: {self.active_experts_per_token} active experts of {self.experts} is impossible."
            )
        if self.groups_per_token > self.expert_groups or self.experts % self.expert_groups:
            raise InputError(
                f"{self.name}: {self.groups_per_token} of {self.expert_groups} groups of {self.experts} experts is impossible; groups "
                "are equal, and a token chooses from some of them."
            )
        if self.layers and self.dense_layers > self.layers:
            raise InputError(f"{self.name}: {self.dense_layers} dense layers of {self.layers} is impossible.")
        if self.active_parameters is not None and self.parameters is not None:
            active, whole = to_si(self.active_parameters, "count"), to_si(self.parameters, "count")
            if active > whole:
                raise InputError(
                    f"{self.name}: {count_text(active)} active parameters of {count_text(whole)} is impossible."
                )
        super().model_post_init(context)

    @property
    def routing_limit(self) -> tuple[int, int]:
        return self.expert_groups, self.groups_per_token

    @property
    def active_parameter_count(self) -> float:
        """Stated active parameters, else those that the dimensions give."""
        if self.active_parameters is not None:
            return to_si(self.active_parameters, "count")
        if self.has_dimensions:
            return self.stack.active_parameters
        raise InputError(f"{self.name} needs 'active_parameters', or dimensions to derive them from.")

    def _wants_dense_width(self) -> bool:
        if self.ffn_dim is not None:
            return False
        return self.expert_ffn_dim is None or self._moe_layers() < (self.layers or 0)

    def _moe_layers(self) -> int:
        assert self.layers is not None
        return (self.layers - self.dense_layers) // self.moe_every

    def _experts(self, width: int) -> MixtureOfExperts:
        assert self.hidden_dim is not None
        expert = self.expert_ffn_dim or width
        shared = self.shared_experts * (self.shared_expert_ffn_dim or expert)
        sizes = self.hidden_dim, self.experts, self.active_experts_per_token, expert, self.gated_ffn, shared
        return MixtureOfExperts(*sizes, self.expert_latent_dim, self.bias, self.routing_imbalance)

    def _ffns(self, width: int) -> list[tuple[FeedForward | MixtureOfExperts | None, int]]:
        assert self.layers is not None
        sparse = self._moe_layers()
        kinds = (self._dense(width), self.layers - sparse), (self._experts(width), sparse)
        return [kind for kind in kinds if kind[1]]
