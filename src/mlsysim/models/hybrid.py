"""Networks of mixed blocks: attention, recurrent layers and feed-forward layers in any numbers; and Mamba throughout."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from mlsysim.errors import InputError
from mlsysim.models.recurrent import GatedDeltaNet, LinearAttention, Mamba, StateSpace
from mlsysim.models.sparse import SparseTransformerWorkload
from mlsysim.models.stack import Block
from mlsysim.models.template import UNBOUNDED, Mixer
from mlsysim.units.fields import Record


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
