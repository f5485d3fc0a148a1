"""What a transformer is said to be: its dimensions, whether they can be, and what follows from them at once."""

from typing import Any, Literal

from pydantic import Field

from mlsysim.errors import InputError
from mlsysim.models.attention import CSA, MLA, SparseIndexer
from mlsysim.models.base import Workload
from mlsysim.units.fields import Flops


class TransformerDimensions(Workload):
    """The dimensions of a transformer; only ``name``, ``parameters`` and ``layers`` are needed."""

    architecture: str = "transformer"
    layers: int | None = Field(default=None, gt=0)
    hidden_dim: int | None = Field(default=None, gt=0)
    heads: int | None = Field(default=None, gt=0)
    kv_heads: int | None = Field(default=None, gt=0)
    head_dim: int | None = Field(default=None, gt=0)
    ffn_dim: int | None = Field(default=None, gt=0)
    gated_ffn: bool = True
    vocab_size: int | None = Field(default=None, gt=0)
    tied_embeddings: bool = False
    embedding_dim: int | None = Field(default=None, gt=0)
    position_embeddings: int = Field(default=0, ge=0)
    bias: bool = False
    qkv_bias: bool = False
    norm: Literal["rmsnorm", "layernorm"] = "rmsnorm"
    norms_per_layer: int = Field(default=2, ge=0)
    max_context: int | None = Field(default=None, gt=0)
    structure: Literal["decoder", "encoder", "encoder-decoder"] = "decoder"
    encoder_layers: int | None = Field(default=None, gt=0)
    window: int | None = Field(default=None, gt=0)
    window_heads: int | None = Field(default=None, gt=0)
    window_kv_heads: int | None = Field(default=None, gt=0)
    window_head_dim: int | None = Field(default=None, gt=0)
    global_every: int = Field(default=0, ge=0)
    shared_kv_layers: int = Field(
        default=0, ge=0, description="last layers that attend to the keys and values of earlier ones and keep none"
    )
    attention_output_gate: bool = False
    mla: MLA | None = None
    sparse_attention: SparseIndexer | None = None
    csa: CSA | None = None
    extra_parameters: float = Field(default=0.0, ge=0)
    lookup_parameters: float = Field(
        default=0.0, ge=0, description="parameters of tables in the layers, which are looked up and not multiplied"
    )
    training_ops: Flops | None = None

    def model_post_init(self, context: Any) -> None:
        if self.heads and self.kv_heads and self.heads % self.kv_heads:
            raise InputError(f"{self.name}: {self.heads} heads do not divide into {self.kv_heads} key-value heads.")
        local, kept = self.window_heads or self.heads, self.window_kv_heads or self.kv_heads
        if local and kept and local % kept:
            raise InputError(
                f"{self.name}: {local} heads of windowed layers do not divide into {kept} key-value heads."
            )
        if self.heads and self.hidden_dim and not (self.head_dim or self.mla) and self.hidden_dim % self.heads:
            raise InputError(
                f"{self.name}: a width of {self.hidden_dim} does not divide into {self.heads} heads; give 'head_dim' where it need not."
            )
        if self.shared_kv_layers and self.shared_kv_layers >= (self.layers or 0):
            raise InputError(
                f"{self.name}: {self.shared_kv_layers} layers share keys and values of {self.layers or 0} layers."
            )
        if self.csa is not None and self.layers and sum(self.csa.compress_counts) != self.layers:
            raise InputError(
                f"{self.name}: the counts of its compression ratios add up to {sum(self.csa.compress_counts)}, not to its {self.layers} layers."
            )
        if self.structure == "encoder-decoder" and self.encoder_layers is None:
            raise InputError(f"{self.name} is an encoder-decoder and needs 'encoder_layers'.")

    @property
    def effective_kv_heads(self) -> int:
        """Key-value heads: as many as query heads unless stated."""
        return self.kv_heads or self.heads or 1

    @property
    def effective_head_dim(self) -> int:
        if self.head_dim:
            return self.head_dim
        if not (self.hidden_dim and self.heads):
            raise InputError(f"{self.name} needs 'hidden_dim' and 'heads' (or 'head_dim') for this.")
        return self.hidden_dim // self.heads

    @property
    def has_dimensions(self) -> bool:
        """Whether layers, width and heads are known, so that operators can be listed."""
        return bool(self.layers and self.hidden_dim and (self.heads or self.mla))

    @property
    def layer_share(self) -> float:
        """What one layer is of all; nothing where their number is not known."""
        return 1.0 / self.layers if self.layers else 0.0

    @property
    def has_layers(self) -> bool:
        return self.has_dimensions
