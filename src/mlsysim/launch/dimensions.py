"""Dimensions in Megatron's flags to a model, and back.

The zoo's entry with the same layers, width, heads, key-value heads, feed-forward width and experts is taken; several can have the same
(a model and its tuned versions), and then a name in the file decides. Where none has them, a model of those dimensions is made.
A vocabulary, where one is given, chooses among equals (flags often leave it to the tokenizer). Not told apart: rotary bases, dropouts, activations other than gated or not.
"""

from __future__ import annotations

import re
from typing import Any

from mlsysim.errors import InputError
from mlsysim.launch.flags import Parsed
from mlsysim.models.attention import MLA
from mlsysim.models.base import Workload
from mlsysim.models.registry import Models
from mlsysim.models.sparse import SparseTransformerWorkload
from mlsysim.models.transformer import TransformerWorkload

_GPT2_VOCABULARY = 50257
_LATENT = {
    "--q-lora-rank": ("q_lora_rank", None), "--kv-lora-rank": ("kv_lora_rank", 32), "--qk-head-dim": ("qk_nope_head_dim", 128),
    "--qk-pos-emb-head-dim": ("qk_rope_head_dim", 64), "--v-head-dim": ("v_head_dim", 128),
}  # fmt: skip
"""Flags of latent attention, the field of each and Megatron's default."""


def _shape(model: TransformerWorkload) -> tuple[Any, ...]:
    """What tells one model from another."""
    sparse = isinstance(model, SparseTransformerWorkload)
    experts = (model.experts, model.active_experts_per_token, model.expert_ffn_dim) if sparse else (None, None, None)  # type: ignore[attr-defined]
    dense = model.ffn_dim if not sparse or model.dense_layers or model.moe_every > 1 else None  # type: ignore[attr-defined]
    return (
        model.layers,
        model.hidden_dim,
        model.heads,
        model.effective_kv_heads if model.mla is None else None,
        model.gated_ffn,
        dense if dense is not None or sparse else model.effective_ffn_dim,
        *experts,
        None if model.mla is None else model.mla.kv_lora_rank,
    )


def _same(model: TransformerWorkload, wanted: TransformerWorkload) -> bool:
    if not model.has_dimensions or model.layers != wanted.layers or model.structure != "decoder":
        return False
    try:
        return _shape(model) == _shape(wanted)
    except InputError:
        return False


def model_of(parsed: Parsed, named: str | None) -> tuple[str | None, Workload | None, list[str]]:
    """The zoo's key for the flags' dimensions, or a model made of them; with warnings. Neither where they are incomplete."""
    layers, hidden, heads = (parsed.whole(f) for f in ("--num-layers", "--hidden-size", "--num-attention-heads"))
    if layers is None or hidden is None or heads is None:
        return named, None, []
    wanted, warnings = _made(parsed, layers, hidden, heads)
    alike = [entry for entry in Models if isinstance(entry, TransformerWorkload) and _same(entry, wanted)]
    same = [entry.metadata.key for entry in alike if entry.metadata.key]
    if named is not None and named in same:
        return named, None, []
    size = parsed.whole("--vocab-size")
    same = [key for key in same if size is not None and Models.get(key).vocab_size == size] or same
    if same:
        note = f"The dimensions are those of {same[0]} and also of {', '.join(same[1:5])}; the first was taken."
        return same[0], None, [note] if len(same) > 1 else []
    if named is not None:
        warnings.append(
            f"The dimensions are not those of {named}, which the file names; a model of the dimensions was made."
        )
    experts = parsed.whole("--num-experts")
    return f"Flags_L{layers}_H{hidden}_A{heads}" + (f"_E{experts}" if experts else ""), wanted, warnings


def _made(parsed: Parsed, layers: int, hidden: int, heads: int) -> tuple[TransformerWorkload, list[str]]:
    warnings: list[str] = []
    vocabulary = parsed.whole("--vocab-size")
    if vocabulary is None:
        vocabulary = _GPT2_VOCABULARY
        warnings.append(f"No size of the vocabulary is given; {_GPT2_VOCABULARY:,} (GPT-2's) was taken.")
    gated = parsed.on("--swiglu")
    learned = (parsed.text("--position-embedding-type") or "learned_absolute") == "learned_absolute"
    common: dict[str, Any] = {
        "name": f"{layers} layers of {hidden:,}",
        "layers": layers,
        "hidden_dim": hidden,
        "heads": heads,
        "kv_heads": parsed.whole("--num-query-groups") if parsed.on("--group-query-attention") else heads,
        "head_dim": parsed.whole("--kv-channels"),
        "gated_ffn": gated,
        "vocab_size": vocabulary,
        "tied_embeddings": not parsed.on("--untie-embeddings-and-output-weights"),
        "position_embeddings": (parsed.whole("--max-position-embeddings") or 0) if learned else 0,
        "bias": not parsed.on("--disable-bias-linear"),
        "qkv_bias": parsed.on("--add-qkv-bias"),
        "norm": "rmsnorm" if (parsed.text("--normalization") or "").lower() == "rmsnorm" else "layernorm",
    }
    if parsed.on("--multi-latent-attention"):
        latent = {field: parsed.whole(flag) or default for flag, (field, default) in _LATENT.items()}
        common |= {"mla": MLA(**latent), "kv_heads": heads, "head_dim": None}  # type: ignore[arg-type]
    # Megatron's own default: 4 h, and two thirds of it in multiples of 64 where the layers are gated.
    width = parsed.whole("--ffn-hidden-size") or (int(4 * hidden * 2 / 3 / 64) * 64 if gated else 4 * hidden)
    experts = parsed.whole("--num-experts")
    if experts is None:
        return TransformerWorkload(**common, ffn_dim=width), warnings
    dense, every = _expert_layers(parsed.text("--moe-layer-freq"), layers, warnings)
    each = parsed.whole("--moe-ffn-hidden-size") or width
    shared = parsed.whole("--moe-shared-expert-intermediate-size")
    return SparseTransformerWorkload(
        **common,
        ffn_dim=width if dense or every > 1 else None,
        experts=experts,
        active_experts_per_token=parsed.whole("--moe-router-topk") or 2,
        expert_ffn_dim=each,
        shared_experts=0 if not shared else max(1, shared // each),
        shared_expert_ffn_dim=None if not shared else shared // max(1, shared // each),
        dense_layers=dense,
        moe_every=every,
    ), warnings


def _expert_layers(text: str | None, layers: int, warnings: list[str]) -> tuple[int, int]:
    """Leading dense layers and the distance of layers with experts, of ``--moe-layer-freq``: ``2``, or ``([0]*3+[1]*58)``."""
    if text is None:
        return 0, 1
    plain = text.strip("'\"() ").replace(" ", "").replace("(", "").replace(")", "")
    if plain.isdigit():
        return 0, max(1, int(plain))
    pattern = re.fullmatch(r"(?:\[0\]\*(\d+)\+)?\[1\]\*\d+", plain)
    if pattern is not None:
        return min(int(pattern[1] or 0), layers), 1
    warnings.append(f"The pattern of layers with experts {text[:60]!r} was not read; every layer was given experts.")
    return 0, 1


def dimension_flags(model: Workload) -> dict[str, Any]:
    """A model's dimensions as Megatron's flags; what is None or False is not given, what is True is a switch."""
    made = isinstance(model, TransformerWorkload) and model.has_dimensions and model.structure == "decoder"
    if not isinstance(model, TransformerWorkload) or not made or model.csa:
        raise InputError(
            f"Megatron's GPT flags express decoders of attention and feed-forward layers, which {model.name} is not.",
            field="model",
        )
    sparse = model if isinstance(model, SparseTransformerWorkload) else None
    mla, shared, pattern = model.mla, 0, None
    grouped = mla is None and model.effective_kv_heads != model.heads
    dense = sparse is None or sparse.dense_layers or sparse.moe_every > 1
    if sparse is not None:
        shared = sparse.shared_experts * (sparse.shared_expert_ffn_dim or sparse.expert_ffn_dim or 0)
        if sparse.dense_layers:
            pattern = f"([0]*{sparse.dense_layers}+[1]*{(model.layers or 0) - sparse.dense_layers})"
        elif sparse.moe_every > 1:
            pattern = str(sparse.moe_every)
    return {
        "--num-layers": model.layers,
        "--hidden-size": model.hidden_dim,
        "--num-attention-heads": model.heads,
        "--multi-latent-attention": mla is not None,
        **{flag: mla and getattr(mla, field) for flag, (field, _) in _LATENT.items()},
        "--group-query-attention": grouped,
        "--num-query-groups": model.effective_kv_heads if grouped else None,
        "--kv-channels": model.head_dim if mla is None else None,
        "--ffn-hidden-size": model.effective_ffn_dim if dense else sparse and sparse.expert_ffn_dim,
        "--num-experts": sparse and sparse.experts,
        "--moe-router-topk": sparse and sparse.active_experts_per_token,
        "--moe-ffn-hidden-size": sparse and sparse.expert_ffn_dim,
        "--moe-shared-expert-intermediate-size": shared or None,
        "--moe-layer-freq": pattern,
        "--swiglu": model.gated_ffn,
        "--normalization": "RMSNorm" if model.norm == "rmsnorm" else "LayerNorm",
        "--max-position-embeddings": model.position_embeddings or None,
        "--position-embedding-type": None if model.position_embeddings else "rope",
        "--disable-bias-linear": not model.bias,
        "--add-qkv-bias": not model.bias and model.qkv_bias,
        "--untie-embeddings-and-output-weights": not model.tied_embeddings,
        "--vocab-size": model.vocab_size,
    }
