"""Decoders, dense and with experts, from their configuration: dimensions under all their names, one workload out.

What a workload type has no field for (norms of queries and keys, biases of some matrices only, attention sinks, the gate of
a shared expert) goes into ``extra_parameters``, so that the count is the checkpoint's. Modules that predict further tokens
(``num_nextn_predict_layers``) are not part of the model that serves and are left out with a warning.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mlsysim.errors import InputError
from mlsysim.importers import table
from mlsysim.importers.fields import KEYS, Config
from mlsysim.importers.layer_kinds import experts_of, mixers_of
from mlsysim.models.attention import CSA, MLA, SparseIndexer
from mlsysim.models.recurrent import LinearAttention, Mamba
from mlsysim.models.sparse import BlockKind, HybridWorkload, SparseTransformerWorkload
from mlsysim.models.transformer import TransformerWorkload

LAYERS, WIDTH, HEADS, FFN, VOCABULARY = (KEYS[field] for field in ("layers", "width", "heads", "ffn", "vocabulary"))


@dataclass(frozen=True)
class Family:
    """A row of ``families.toml``: what a model type does not write into its configuration. Defaults are Llama's."""

    label: str
    types: Sequence[str] = ()
    gated: bool = True
    qkv_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    head_bias: bool = False
    norm: str = "rmsnorm"
    norms: int = 2
    tied: bool = False
    learned_positions: bool = False
    position_offset: int = 0
    qk_norm: str = ""
    head_dim: int = 0
    ffn_ratio: float = 0
    embedding_norm: bool = False
    full_every: int = 0
    bias_key_covers_output: bool = True
    shared_gate: bool = False
    sinks: bool = False
    router_bias: bool = False
    needs_window_flag: bool = False


FAMILIES = {kind: Family(**row) for row in table("families")["family"] for kind in row["types"]}


@dataclass
class Draft:
    """A workload in the making: fields of the type, kinds of layers, and parameters beside them."""

    family: Family
    fields: dict[str, Any]
    mixers: list[str]
    feed_forward: list[str]
    extra: float = 0.0


def decoder(config: Config, model_type: str, name: str, warnings: list[str], tied: bool | None = None) -> Draft:
    """The draft of a decoder; an unknown model type is taken for a Llama-like one, and a warning says so."""
    family = FAMILIES.get(model_type)
    if family is None:
        norm = "head" if config.flag("use_qk_norm", default=False) else ""
        family = Family("generic decoder", qk_norm=norm)
        warnings.append(
            f"The model type {model_type!r} is not known: it was read as a generic decoder with gated feed-forward layers "
            "and two norms in each layer, so compare the parameter count with the published one."
        )
    _require(config, model_type)
    layers, hidden = config.integer(*LAYERS), config.integer(*WIDTH)
    if layers > 20_000:
        raise InputError(f"A network of {layers:,} layers is not read; the most is 20,000.")
    fields: dict[str, Any] = {
        "name": name,
        "layers": layers,
        "hidden_dim": hidden,
        "vocab_size": config.integer(*VOCABULARY),
        "tied_embeddings": config.flag("tie_word_embeddings", default=family.tied if tied is None else tied),
        "gated_ffn": family.gated,
        "norm": family.norm,
        "norms_per_layer": _norms(config, family),
        "max_context": config.optional(*KEYS["context"]),
    }
    if family.learned_positions:
        fields["position_embeddings"] = (fields["max_context"] or 0) + family.position_offset
    if config.has("word_embed_proj_dim") and config.integer("word_embed_proj_dim") != hidden:
        fields["embedding_dim"] = config.integer("word_embed_proj_dim")
    draft = Draft(family, fields, ["attention"] * layers, ["dense"] * layers)
    _attention(config, model_type, draft, warnings)
    _feed_forward(config, model_type, draft)
    _biases(config, draft)
    if family.head_bias and config.flag("lm_head_bias", default=True):
        draft.extra += fields["vocab_size"]
    draft.extra += (2 * hidden if family.embedding_norm else 0) + (layers * fields["heads"] if family.sinks else 0)
    if config.integer(*KEYS["further"], default=0, least=0):
        warnings.append("The layers that predict further tokens (MTP) are not counted.")
    return draft


def _require(config: Config, model_type: str) -> None:
    groups = [LAYERS, WIDTH, VOCABULARY]
    if not config.has("ssm_cfg", "hybrid_override_pattern"):
        groups.append(HEADS)
    missing = [names[0] for names in groups if not config.has(*names)]
    if missing and not config.has(*VOCABULARY) and config.has("image_size", "patch_size", "patch_sizes", "backbone"):
        raise InputError(
            f"The type {model_type[:60]!r} is a vision network that is not read from its configuration; give its graph, as an ONNX file."
        )
    if missing:
        listed = " and ".join(filter(None, [", ".join(missing[:-1]), missing[-1]]))
        kind = f" of type {model_type[:60]!r}" if model_type else ""
        raise InputError(
            f"The configuration{kind} does not say {listed}, without which no model can be built.", missing=missing
        )


def _norms(config: Config, family: Family) -> int:
    if family.label != "Falcon":
        return family.norms
    if config.flag("new_decoder_architecture", default=False):
        return config.integer("num_ln_in_parallel_attn", default=2)
    return 1 if config.flag("parallel_attn", default=True) else 2


def _key_value_heads(config: Config, family: Family, heads: int) -> int:
    inner = config.section("attn_config") if family.label in ("MPT", "DBRX") else None
    if inner is not None:
        if inner.text("attn_type") == "multiquery_attention":
            return 1
        return inner.integer("kv_n_heads", default=heads)
    if family.label == "Falcon":
        if config.flag("new_decoder_architecture", default=False) or config.has("n_head_kv"):
            return config.integer("num_kv_heads", "n_head_kv", default=heads)
        return 1 if config.flag("multi_query", default=True) else heads
    if family.label == "StarCoder" and config.flag("multi_query", default=True):
        return 1
    if config.has("multi_query_group_num") and config.flag("multi_query_attention", default=False):
        return config.integer("multi_query_group_num")
    return config.integer(*KEYS["kv_heads"], default=heads)


def _attention(config: Config, model_type: str, draft: Draft, warnings: list[str]) -> None:
    family, fields = draft.family, draft.fields
    layers, hidden, heads = fields["layers"], fields["hidden_dim"], config.integer(*HEADS)
    fields["heads"] = heads
    if config.has("kv_lora_rank"):
        fields["mla"] = MLA(**config.sizes("mla"))
        config.ignore("num_key_value_heads", "head_dim", "qk_head_dim")
        if config.has("index_topk"):
            fields["sparse_attention"] = SparseIndexer(**config.sizes("indexer"))
        return
    fields["kv_heads"] = _key_value_heads(config, family, heads)
    head_dim = config.optional("head_dim", "kv_channels", "attention_head_dim", "d_kv") or family.head_dim
    if not head_dim and hidden < heads:
        raise InputError(f"{heads:,} attention heads are more than the width of {hidden:,}.")
    if not head_dim and hidden % heads:
        raise InputError(
            f"A width of {hidden:,} does not divide into {heads:,} attention heads, and no head_dim is said."
        )
    fields["head_dim"] = head_dim or hidden // heads
    if config.has("compress_ratios"):
        fields["csa"] = _compressed(config, layers)
        return
    if config.flag("attn_output_gate", "attention_output_gate", default=model_type == "qwen3_next"):
        fields["attention_output_gate"] = True
    if config.flag(
        "use_cla", default=False
    ):  # Hunyuan: of so many layers one makes keys and values, the others read them
        factor = config.integer("cla_share_factor", default=2)
        fields["shared_kv_layers"] = layers - -(-layers // factor)
    window = _window(config, family, fields["max_context"])
    draft.mixers = mixers_of(config, layers, window is not None, family.full_every)
    if (
        window is None
        and not config.has(*KEYS["window"])
        and any("sliding" in str(k) for k in config.raw("layer_types") or ())
    ):
        warnings.append("Layers are said to be windowed and no window is: they are taken with full attention.")
    if "window" in draft.mixers:
        fields["window"] = window
        _other_heads(config, fields)
    if config.flag("use_head_wise_attn_gate", default=False):
        gates = {"attention": heads, "window": fields.get("window_heads", heads)}
        draft.extra += hidden * sum(gates.get(kind, 0) for kind in draft.mixers)
    if "linear" in draft.mixers:
        same = {"key_heads": heads, "value_heads": heads}
        same |= {"key_head_dim": fields["head_dim"], "value_head_dim": fields["head_dim"], "conv_kernel": 1}
        sizes = config.sizes("linear") if config.has("linear_num_key_heads") else same
        fields["linear_attention"] = LinearAttention(**sizes, state_format=config.format(*KEYS["state_format"]))
    if "mamba" in draft.mixers:
        fields["mamba"] = mamba_block(config, 1 if model_type == "jamba" else 2)


def _other_heads(config: Config, fields: dict[str, Any]) -> None:
    """Heads that windowed layers have of their own, as Step's configurations write them."""
    other = config.section("attention_other_setting")
    if other is not None:
        other.ignore("attention_type", "true_head_dim")
        fields["window_heads"] = other.integer(*HEADS)
        fields["window_kv_heads"] = other.integer(*KEYS["kv_heads"], default=fields["kv_heads"])
        fields["window_head_dim"] = other.optional("head_dim")
    elif config.has("num_sliding_attention_heads"):
        fields["window_heads"] = config.integer("num_sliding_attention_heads")


def _window(config: Config, family: Family, context: int | None) -> int | None:
    chosen = config.flag("use_sliding_window", default=not family.needs_window_flag)
    window = config.optional(*KEYS["window"], least=0)
    if not chosen or not window or (context is not None and window >= context and not family.full_every):
        return None
    return window


def _compressed(config: Config, layers: int) -> CSA:
    ratios = (config.integers("compress_ratios") or [])[:layers]
    if len(ratios) < layers:
        raise InputError(f"The key 'compress_ratios' has {len(ratios)} entries for {layers} layers.")
    counts = sorted(Counter(ratios).items())
    kinds: tuple[tuple[int, ...], ...] = tuple(zip(*counts, strict=True))
    sizes = config.sizes("csa") | config.sizes("indexer")
    return CSA(compress_ratios=kinds[0], compress_counts=kinds[1], **sizes)


def mamba_block(config: Config, version: int) -> Mamba:
    """Sizes of a Mamba block under the names of Mamba, Jamba, Bamba, Granite and Nemotron."""
    sizes = config.sizes("mamba" if version == 1 else "mamba2")
    sizes |= {"version": version, "expand": config.number("mamba_expand", "expand", default=2.0)}
    sizes["state_format"] = config.format(*KEYS["state_format"])
    if version == 1:
        rank = ("mamba_dt_rank", "time_step_rank")
        sizes["dt_rank"] = None if config.raw(*rank) in (None, "auto") else config.integer(*rank)
    elif config.raw("mamba_d_head") != "auto":
        sizes["head_dim"] = config.integer("mamba_d_head", "mamba_head_dim", default=64)
    return Mamba(**sizes)


def _feed_forward(config: Config, model_type: str, draft: Draft) -> None:
    family, hidden = draft.family, draft.fields["hidden_dim"]
    inner = config.section("ffn_config") if family.label == "DBRX" else None
    source = inner if inner is not None else config
    experts = (
        source.integer(*KEYS["experts"], default=0, least=0) if config.flag("enable_moe_block", default=True) else 0
    )
    if not experts:
        _without_experts(config, source, model_type)
    # Llama 4 and MiniMax-M3 call the experts' width 'intermediate_size' and give the dense layers' a name of its own.
    names = ("intermediate_size_mlp", "dense_intermediate_size", *FFN) if experts > 1 else FFN
    width = source.optional(*names)
    if width is not None and model_type == "qwen":
        width //= 2  # Qwen 1 writes the two halves of the gate together
    if width is None and config.has("expansion_ratio"):
        width = round(hidden * config.number("expansion_ratio", default=4.0))
    if width is None and experts <= 1 and family.ffn_ratio:
        width = family.ffn_ratio * hidden
    if experts > 1:
        _experts(config, source, draft, experts)
    if "dense" not in draft.feed_forward:
        return
    if width is None and config.has("shared_intermediate_size"):
        width = config.integer("shared_intermediate_size")
    if width is None:
        raise InputError(f"The configuration of type {model_type[:60]!r} does not say intermediate_size.")
    if experts <= 1 and family.label == "Granite":  # Granite 4 without experts keeps the shared one
        width = config.optional("shared_intermediate_size", least=0) or width
    draft.fields["ffn_dim"] = width


def _without_experts(config: Config, source: Config, model_type: str) -> None:
    """Refuse a type or keys that speak of experts where there are none."""
    stated = source.has(*KEYS["experts"]) or config.has("enable_moe_block")
    if not stated and ("moe" in model_type or model_type == "mixtral"):
        raise InputError(
            f"The configuration of type {model_type[:60]!r} has experts, and does not say num_local_experts."
        )
    if model_type == "mixtral":
        raise InputError("The configuration of type 'mixtral' has experts, and says that there are 0.")
    if stated and source.has("num_experts_per_tok") and source.integer("num_experts_per_tok", least=0):
        raise InputError(f"{source.raw('num_experts_per_tok')} experts for each token of 0 is impossible.")


def _experts(config: Config, source: Config, draft: Draft, experts: int) -> None:
    family, fields = draft.family, draft.fields
    draft.feed_forward = experts_of(config, fields["layers"])
    if "moe" not in draft.feed_forward:
        raise InputError(f"The configuration has {experts:,} experts, and its keys leave no layer with experts.")
    per_token = source.integer(*KEYS["per_token"], default=2 if family.label in ("Mixtral", "Phi-3.5-MoE") else None)
    if per_token > experts:
        raise InputError(f"{per_token} experts for each token of {experts} is impossible.")
    width = source.optional(*KEYS["expert_width"]) or source.integer(*FFN)
    fields |= {"experts": experts, "active_experts_per_token": per_token, "expert_ffn_dim": width}
    groups, limit = (source.optional(*KEYS[name]) for name in ("expert_groups", "groups_per_token"))
    if groups and limit and limit < groups:
        fields |= {"expert_groups": groups, "groups_per_token": limit}
    shared_width = config.optional(*KEYS["shared_width"], least=0)
    shared = config.integer(*KEYS["shared"], default=1 if shared_width or family.label == "Llama 4" else 0, least=0)
    if family.label == "Gemma 4":
        # A dense layer beside the experts serves every token, which is what a shared expert does.
        shared, shared_width = 1, config.integer("intermediate_size")
    elif config.flag("parallel_attn_mlp_res", default=False):
        # So does Arctic's, beside attention and as wide as the residual stream.
        shared, shared_width = 1, fields["hidden_dim"]
    elif config.flag("residual_moe", default=False):  # and Grok 2's
        shared, shared_width = 1, config.integer(*FFN)
    if shared:
        # A width of its own is that of all shared experts together.
        fields |= {"shared_experts": 1 if shared_width else shared, "shared_expert_ffn_dim": shared_width or width}
    fields["expert_latent_dim"] = config.optional("moe_latent_size", "routed_expert_hidden_size")
    sparse = draft.feed_forward.count("moe")
    draft.extra += sparse * fields["hidden_dim"] if family.shared_gate else 0
    if family.router_bias or config.flag("use_routing_bias", "use_moe_router_bias", default=False):
        draft.extra += sparse * experts


def _biases(config: Config, draft: Draft) -> None:
    """Biases of the matrices; norms of queries and keys over each head, or over all heads together."""
    family, fields = draft.family, draft.fields
    everywhere = config.flag("use_bias", "bias", "add_bias_linear", default=False)
    everywhere = everywhere or not config.flag("no_bias", default=True)
    given = config.has("attention_bias")
    attention = config.flag("attention_bias", default=False)
    qkv = config.flag("qkv_bias", "use_qkv_bias", "add_qkv_bias", default=attention if given else family.qkv_bias)
    output = (attention and family.bias_key_covers_output) if given else family.output_bias
    mlp = config.flag("mlp_bias", default=family.mlp_bias)
    qkv, output, mlp = qkv or everywhere, output or everywhere, mlp or everywhere
    if "mla" in fields or "csa" in fields:
        return
    attending = sum(kind in ("attention", "window") for kind in draft.mixers)
    if qkv and output and mlp:
        fields["bias"] = True
    else:
        fields["qkv_bias"] = qkv
        draft.extra += attending * fields["hidden_dim"] if output else 0
        if mlp and "ffn_dim" in fields:
            width = fields["ffn_dim"] * (2 if fields["gated_ffn"] else 1) + fields["hidden_dim"]
            draft.extra += draft.feed_forward.count("dense") * width
    norm = family.qk_norm
    if config.has("qk_norm_type"):
        norm = "full" if config.text("qk_norm_type") == "per_layer" else "head"
    if config.flag("use_qk_norm", default=bool(norm)):
        norm = norm or ("full" if family.label == "Command R" else "head")
        heads = fields["heads"] + fields["kv_heads"] if norm == "full" else 2
        draft.extra += attending * heads * fields["head_dim"]


def finish(draft: Draft) -> TransformerWorkload:
    """The plainest workload type that holds the draft."""
    fields = {key: value for key, value in draft.fields.items() if value is not None}
    fields["extra_parameters"] = draft.extra
    layers, full = len(draft.mixers), draft.mixers.count("attention")
    every = layers // full if full else 0
    if set(draft.mixers) <= {"attention", "window"} and (full in (0, layers) or layers // every == full):
        if full < layers:
            fields["global_every"] = every
        if "moe" not in draft.feed_forward:
            return TransformerWorkload(**fields)
        return SparseTransformerWorkload(dense_layers=draft.feed_forward.count("dense"), **fields)
    whole = "mla" if "mla" in fields else "attention"
    kinds = Counter(zip((whole if m == "attention" else m for m in draft.mixers), draft.feed_forward, strict=True))
    return HybridWorkload(blocks=blocks_of(kinds), **fields)


def blocks_of(kinds: Mapping[tuple[str, str], int]) -> tuple[BlockKind, ...]:
    """Blocks by their mixer and feed-forward layer, those that there are."""
    return tuple(BlockKind(mixer=m, ffn=f, count=n) for (m, f), n in kinds.items() if n)  # type: ignore[arg-type]
