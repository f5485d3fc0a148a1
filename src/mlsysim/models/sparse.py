"""Transformers whose feed-forward layers are mixtures of experts, of which a few serve each token.

Networks of mixed blocks: attention, recurrent layers and feed-forward layers in any numbers; and Mamba throughout.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from mlsysim.errors import InputError
from mlsysim.models.ffn import FeedForward, MixtureOfExperts
from mlsysim.models.recurrent import GatedDeltaNet, LinearAttention, Mamba, StateSpace
from mlsysim.models.stack import Block
from mlsysim.models.template import UNBOUNDED, Mixer
from mlsysim.models.transformer import TransformerWorkload
from mlsysim.units.fields import Count, Record
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
        super().model_post_init(context)
        if self.active_parameters is not None and (self.parameters is not None or self.has_dimensions):
            active, whole = to_si(self.active_parameters, "count"), self.parameter_count
            if active > whole:
                raise InputError(
                    f"{self.name}: {count_text(active)} active parameters of {count_text(whole)} is impossible."
                )

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


class BlockKind(Record):
    """``count`` layers with this mixer and this feed-forward part."""

    mixer: Literal["attention", "window", "mla", "mamba", "linear", "none"]
    ffn: Literal["dense", "moe", "none"]
    count: int = Field(gt=0)


class HybridWorkload(SparseTransformerWorkload):
    """Any mix of attention, recurrent and feed-forward blocks, given as ``blocks`` of a kind and a count."""

    architecture: str = "hybrid"
    experts: int = Field(default=1, gt=0)
    blocks: tuple[BlockKind, ...] = ()
    mamba: Mamba | None = None
    linear_attention: LinearAttention | None = None

    def model_post_init(self, context: Any) -> None:
        if not self.blocks:
            raise InputError(f"{self.name} needs 'blocks', such as [{{mixer = 'mamba', ffn = 'none', count = 27}}].")
        needed = {
            "mamba": self.mamba,
            "linear": self.linear_attention,
            "mla": self.mla,
            "window": self.window,
            "attention": self.heads,
        }
        for block in self.blocks:
            if block.mixer in needed and needed[block.mixer] is None:
                raise InputError(f"{self.name} has {block.mixer!r} blocks but not their sizes.")
        super().model_post_init(context)

    @property
    def has_dimensions(self) -> bool:
        return bool(self.hidden_dim)

    @property
    def active_parameter_count(self) -> float:
        if self.active_parameters is None and all(b.ffn != "moe" for b in self.blocks):
            return self.parameter_count
        return super().active_parameter_count

    def _wants_dense_width(self) -> bool:
        wanting = {"dense"} if self.expert_ffn_dim else {"dense", "moe"}
        return self.ffn_dim is None and any(block.ffn in wanting for block in self.blocks)

    def _mixer(self, kind: str) -> Mixer | None:
        assert self.hidden_dim is not None
        if kind == "mamba":
            assert self.mamba is not None
            return StateSpace(self.hidden_dim, self.mamba)
        if kind == "linear":
            assert self.linear_attention is not None
            return GatedDeltaNet(self.hidden_dim, self.linear_attention)
        if kind == "none":
            return None
        return self._attention(self.window if kind == "window" and self.window else UNBOUNDED)

    def _blocks(self, width: int) -> tuple[Block, ...]:
        built = []
        for block in self.blocks:
            mixer = self._mixer(block.mixer)
            ffn = None if block.ffn == "none" else self._experts(width) if block.ffn == "moe" else self._dense(width)
            norms = self.norms_per_layer if mixer is not None and ffn is not None else 1
            built.append(Block((mixer,) if mixer is not None else (), ffn, block.count, norms))
        return tuple(built)

    def get_state_cache_size(self, batch_size: Any = 1, precision: str = "fp16") -> Any:
        """Bytes of the fixed states of ``batch_size`` sequences, whatever their length."""
        return self.get_kv_cache_size(0, batch_size, precision)


class SSMWorkload(HybridWorkload):
    """Mamba blocks throughout: the state has a fixed size, so memory does not grow with the context.

    ``state_size`` alone is enough; give ``mamba`` for the other sizes of the block.
    """

    architecture: str = "ssm"
    state_size: int | None = Field(default=None, gt=0)
    vocab_size: int | None = None

    def __init__(self, **data: Any) -> None:
        if data.get("mamba") is None:
            data["mamba"] = Mamba(state_size=data.get("state_size") or 16)
        if not data.get("blocks") and data.get("layers"):
            data["blocks"] = (BlockKind(mixer="mamba", ffn="none", count=data["layers"]),)
        super().__init__(**data)
