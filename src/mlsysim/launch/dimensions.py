"""Dimensions in Megatron's flags to a model, and back.

The zoo's entry with the same layers, width, heads, key-value heads, feed-forward width and experts is taken; several can have the same
(a model and its tuned versions), and then a name in the file decides. Where none has them, a model of those dimensions is made.
A vocabulary, where one is given, chooses among equals (flags often leave it to the tokenizer). Not told apart: rotary bases, dropouts, activations other than gated or not.
"""

from __future__ import annotations

from typing import Any

from mlsysim.errors import InputError
from mlsysim.launch.flags import Parsed
from mlsysim.models.base import Workload
from mlsysim.models.latent_attention import MLA
from mlsysim.models.registry import Models
from mlsysim.models.sparse import SparseTransformerWorkload
from mlsysim.models.transformer import TransformerWorkload

_GPT2_VOCABULARY = 50257


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
    if (model.layers, model.hidden_dim, model.heads) != (wanted.layers, wanted.hidden_dim, wanted.heads):
        return False
    if model.structure != "decoder":
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
    same = [
        entry.metadata.key
        for entry in Models
        if isinstance(entry, TransformerWorkload)
        and entry.has_dimensions
        and _same(entry, wanted)
        and entry.metadata.key
    ]
    if named is not None and named in same:
        return named, None, []
    size = parsed.whole("--vocab-size")
    same = [key for key in same if size is not None and Models.get(key).vocab_size == size] or same
    if same:
        others = [key for key in same if key != same[0]]
        if others:
            warnings = [
                f"The dimensions are those of {same[0]} and also of {', '.join(others[:4])}; the first was taken."
            ]
        else:
            warnings = []
        return same[0], None, warnings
    if named is not None:
        warnings.append(
            f"The dimensions are not those of {named}, which the file names; a model of the dimensions was made."
        )
    key = f"Flags_L{layers}_H{hidden}_A{heads}" + (
        f"_E{parsed.whole('--num-experts')}" if parsed.whole("--num-experts") else ""
    )
    return key, wanted, warnings


def _made(parsed: Parsed, layers: int, hidden: int, heads: int) -> tuple[TransformerWorkload, list[str]]:
    warnings: list[str] = []
    vocabulary = parsed.whole("--vocab-size")
    if vocabulary is None:
        vocabulary = _GPT2_VOCABULARY
        warnings.append(f"No size of the vocabulary is given; {_GPT2_VOCABULARY:,} (GPT-2's) was taken.")
    gated = parsed.on("--swiglu")
    positions = parsed.text("--position-embedding-type") or "learned_absolute"
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
        "position_embeddings": (parsed.whole("--max-position-embeddings") or 0)
        if positions == "learned_absolute"
        else 0,
        "bias": not parsed.on("--disable-bias-linear"),
        "qkv_bias": parsed.on("--add-qkv-bias"),
        "norm": "rmsnorm" if (parsed.text("--normalization") or "").lower() == "rmsnorm" else "layernorm",
    }
    if parsed.on("--multi-latent-attention"):
        common["mla"] = MLA(
            q_lora_rank=parsed.whole("--q-lora-rank"),
            kv_lora_rank=parsed.whole("--kv-lora-rank") or 32,
            qk_nope_head_dim=parsed.whole("--qk-head-dim") or 128,
            qk_rope_head_dim=parsed.whole("--qk-pos-emb-head-dim") or 64,
            v_head_dim=parsed.whole("--v-head-dim") or 128,
        )
        common["kv_heads"] = heads
        common["head_dim"] = None
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
    pieces = [piece.split("]*") for piece in plain.split("+")]
    if all(len(p) == 2 and p[0] in ("[0", "[1") and p[1].isdigit() for p in pieces):
        if len(pieces) == 2 and pieces[0][0] == "[0" and pieces[1][0] == "[1":
            return min(int(pieces[0][1]), layers), 1
        if len(pieces) == 1 and pieces[0][0] == "[1":
            return 0, 1
    warnings.append(f"The pattern of layers with experts {text[:60]!r} was not read; every layer was given experts.")
    return 0, 1


def dimension_flags(model: Workload) -> list[tuple[str, str | None]]:
    """A model's dimensions as Megatron's flags; a flag without a value is a switch."""
    if (
        not isinstance(model, TransformerWorkload)
        or not model.has_dimensions
        or model.structure != "decoder"
        or model.csa
    ):
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
    flags = {
        "--num-layers": model.layers,
        "--hidden-size": model.hidden_dim,
        "--num-attention-heads": model.heads,
        "--multi-latent-attention": mla is not None,
        "--q-lora-rank": mla and mla.q_lora_rank,
        "--kv-lora-rank": mla and mla.kv_lora_rank,
        "--qk-head-dim": mla and mla.qk_nope_head_dim,
        "--qk-pos-emb-head-dim": mla and mla.qk_rope_head_dim,
        "--v-head-dim": mla and mla.v_head_dim,
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
    return [
        (flag, None if value is True else str(value)) for flag, value in flags.items() if value not in (None, False)
    ]
