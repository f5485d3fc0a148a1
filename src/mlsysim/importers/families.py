"""What the model types of decoders do not write into their configurations: norms, biases, gates and tied embeddings.

A row of ``families.toml`` is the difference from Llama (gated feed-forward layers, two RMS norms in each layer, no biases,
embeddings not tied). Where a configuration says something itself (``tie_word_embeddings``, ``attention_bias``), that holds.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from importlib.resources import files
from typing import Literal


@dataclass(frozen=True, slots=True)
class Family:
    """Defaults of a model type. ``qk_norm``: norms of queries and keys over a head or over all heads together."""

    label: str
    gated: bool = True
    qkv_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    head_bias: bool = False
    norm: Literal["rmsnorm", "layernorm"] = "rmsnorm"
    norms: int = 2
    tied: bool = False
    learned_positions: bool = False
    position_offset: int = 0
    qk_norm: Literal["", "head", "full"] = ""
    head_dim: int | None = None
    ffn_ratio: int | None = None
    embedding_norm: bool = False
    full_every: int = 0
    bias_key_covers_output: bool = True
    shared_gate: bool = False
    sinks: bool = False
    router_bias: bool = False
    needs_window_flag: bool = False


_TABLE = tomllib.loads(files("mlsysim.importers").joinpath("families.toml").read_text(encoding="utf-8"))

FAMILIES: dict[str, Family] = {
    kind: Family(**{key: value for key, value in row.items() if key != "types"})
    for row in _TABLE["family"]
    for kind in row["types"]
}
DEFAULTS: dict[str, dict[str, int]] = _TABLE["defaults"]
"""What the parts of a nested configuration leave out: they are written as differences from these values of their classes."""
