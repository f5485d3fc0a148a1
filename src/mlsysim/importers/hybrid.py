"""Networks that are not attention throughout, or not the same in every layer: state spaces, mixes and searched architectures.

    mamba, mamba2, falcon_mamba      Mamba blocks throughout
    nemotron_h                       one sub-layer in each layer: M Mamba, * attention, - dense, E experts
    bamba, falcon_h1                 attention in some layers; attention and Mamba side by side in all
    nemotron-nas                     every layer with its own width, or without attention at all
    gemma4, mimo_v2_flash            full and windowed layers with heads of different sizes
    kimi_linear, kimi_k3             gated linear attention with latent attention in between

Layers whose sizes differ in ways that a workload has no field for keep the sizes of the full-attention layers, which decide the
cache; the exact number of parameters is counted here and kept.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mlsysim.errors import InputError
from mlsysim.importers.decoder import HEADS, LAYERS, VOCABULARY, WIDTH, decoder, finish, mamba_block
from mlsysim.importers.fields import Config
from mlsysim.models.hybrid import BlockKind, HybridWorkload, SSMWorkload
from mlsysim.models.latent_attention import MLA
from mlsysim.models.recurrent import LinearAttention
from mlsysim.models.transformer import TransformerWorkload

Reading = tuple[TransformerWorkload, str]


def settle(workload: TransformerWorkload, parameters: float) -> TransformerWorkload:
    """The workload with this exact count: the difference as extra parameters, or the count stated where it is smaller.

    What differs are mixers, which every token passes through, so the active parameters differ by as much.
    """
    derived = workload.derived_parameters
    assert derived is not None
    difference = parameters - derived
    if difference >= 0:
        return workload.model_copy(update={"extra_parameters": workload.extra_parameters + difference})
    stated: dict[str, Any] = {"parameters": parameters}
    if getattr(workload, "experts", 1) > 1:
        stated["active_parameters"] = workload.active_parameter_count + difference
    kept = {name: getattr(workload, name) for name in type(workload).model_fields if name not in stated}
    return type(workload)(**kept, **stated)


def _common(config: Config, name: str, tied: bool) -> dict[str, Any]:
    return {
        "name": name,
        "hidden_dim": config.integer(*WIDTH),
        "vocab_size": config.integer(*VOCABULARY),
        "tied_embeddings": config.flag("tie_word_embeddings", "tie_embeddings", default=tied),
        "max_context": config.optional("max_position_embeddings", "seq_length"),
    }


def mamba(config: Config, model_type: str, name: str, warnings: list[str]) -> Reading:
    """Mamba and Mamba-2, as transformers and as the authors' own package write them."""
    inner = config.section("ssm_cfg")
    version = 2 if model_type == "mamba2" or (inner is not None and inner.text("layer") == "Mamba2") else 1
    fields = _common(config, name, tied=True)
    multiple = config.integer("pad_vocab_size_multiple", default=1)
    fields["vocab_size"] = -(-fields["vocab_size"] // multiple) * multiple
    spec = mamba_block(config, version)
    if version == 2 and config.has("num_heads"):
        spec = spec.model_copy(
            update={"heads": config.integer("num_heads"), "head_dim": config.integer("head_dim", default=64)}
        )
    layers = config.integer(*LAYERS)
    label = "Falcon-Mamba" if model_type == "falcon_mamba" else f"Mamba{'-2' if version == 2 else ''}"
    return SSMWorkload(layers=layers, mamba=spec, norms_per_layer=1, **fields), label


def nemotron_h(config: Config, model_type: str, name: str, warnings: list[str]) -> Reading:
    """Each layer is one sub-layer; the feed-forward ones are not gated (squared ReLU)."""
    pattern = config.text("hybrid_override_pattern")
    letters = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}
    kinds = [letters.get(letter, letter) for letter in pattern]
    named = config.sequence("layers_block_type") if not pattern else None
    if named is not None:
        kinds = [str(kind) for kind in named]
    if not kinds:
        raise InputError("The configuration does not say hybrid_override_pattern or layers_block_type.")
    odd = next((kind for kind in kinds if kind not in letters.values()), None)
    if odd is not None:
        raise InputError(f"A layer of kind {odd[:40]!r} is not known; known are mamba, attention, mlp and moe.")
    config.ignore("num_hidden_layers")
    fields = _common(config, name, tied=False)
    fields.update(
        layers=len(kinds),
        heads=config.integer(*HEADS),
        kv_heads=config.integer("num_key_value_heads"),
        head_dim=config.integer("head_dim", "attention_head_dim"),
        gated_ffn=False,
    )
    if "mamba" in kinds:
        fields["mamba"] = mamba_block(config, 2)
    if "mlp" in kinds:
        fields["ffn_dim"] = config.integer("intermediate_size")
    if "moe" in kinds:
        fields.update(
            experts=config.integer("n_routed_experts"),
            active_experts_per_token=config.integer("num_experts_per_tok"),
            expert_ffn_dim=config.integer("moe_intermediate_size"),
            shared_experts=config.integer("n_shared_experts", default=0, least=0),
            shared_expert_ffn_dim=config.optional("moe_shared_expert_intermediate_size"),
            expert_latent_dim=config.optional("moe_latent_size"),
        )
    if config.integer("num_nextn_predict_layers", default=0, least=0):
        warnings.append("The layers that predict further tokens (MTP) are not counted.")
    parts = {
        "mamba": ("mamba", "none"),
        "attention": ("attention", "none"),
        "mlp": ("none", "dense"),
        "moe": ("none", "moe"),
    }
    blocks = [
        BlockKind(mixer=parts[kind][0], ffn=parts[kind][1], count=kinds.count(kind))  # type: ignore[arg-type]
        for kind in parts
        if kind in kinds
    ]
    return HybridWorkload(blocks=tuple(blocks), **fields), "Nemotron-H"


def side_by_side(config: Config, model_type: str, name: str, warnings: list[str]) -> Reading:
    """Bamba (attention in listed layers) and Falcon-H1 (both mixers in every layer, as two blocks)."""
    draft = decoder(config, model_type, name, warnings)
    layers = draft.fields["layers"]
    spec = mamba_block(config, 2)
    draft.fields["mamba"] = spec
    if model_type == "bamba":
        attending = set(config.integers("attn_layer_indices") or [])
        draft.mixers = ["attention" if i in attending else "mamba" for i in range(layers)]
        return finish(draft), draft.family
    fields = {key: value for key, value in draft.fields.items() if value is not None}
    inner = config.optional("mamba_d_ssm")
    if inner and spec.heads:
        fields["mamba"] = spec.model_copy(update={"head_dim": inner // spec.heads})
    blocks = (
        BlockKind(mixer="attention", ffn="none", count=layers),
        BlockKind(mixer="mamba", ffn="dense", count=layers),
    )
    workload = HybridWorkload(blocks=blocks, extra_parameters=draft.extra, **fields)
    # Counted as two blocks with three norms; the network has two in each layer.
    return settle(workload, workload.parameter_count - layers * draft.fields["hidden_dim"]), draft.family


def searched(config: Config, model_type: str, name: str, warnings: list[str]) -> Reading:
    """Nemotron-NAS: ``block_configs`` gives each layer its attention and its feed-forward width, or leaves one out."""
    fields = _common(config, name, tied=False)
    hidden, heads = fields["hidden_dim"], config.integer(*HEADS)
    layers = config.sequence("block_configs")
    if not layers:
        raise InputError("The configuration of type 'nemotron-nas' does not say block_configs.")
    config.ignore("num_hidden_layers", "intermediate_size", "num_key_value_heads")
    head_dim = config.optional("head_dim") or hidden // heads
    widths: list[int] = []
    grouped: list[int] = []
    linear = 0
    for layer in layers:
        block = Config(layer, "block_configs.")
        attention, ffn = block.section("attention"), block.section("ffn")
        if attention is None or ffn is None:
            raise InputError("An entry of 'block_configs' has no attention or no ffn.")
        if not attention.flag("no_op", default=False) and not attention.flag("replace_with_linear", default=False):
            grouped.append(heads // attention.integer("n_heads_in_group"))
        linear += attention.flag("replace_with_linear", default=False) + ffn.flag("replace_with_linear", default=False)
        if not ffn.flag("no_op", default=False) and not ffn.flag("replace_with_linear", default=False):
            # Two thirds of 4 x width x multiplier, rounded up to whole 256s.
            exact = int(2 * ffn.number("ffn_mult", default=1.0) * hidden / 3)
            widths.append(-(-exact // 256) * 256)
    if not widths or not grouped or min(grouped) < 1:
        raise InputError("The entries of 'block_configs' leave no attention or no feed-forward layers.")
    kv_heads = max(set(grouped), key=grouped.count)
    both = min(len(grouped), len(widths))
    kinds = {
        ("attention", "dense"): both,
        ("attention", "none"): len(grouped) - both,
        ("none", "dense"): len(widths) - both,
    }
    blocks = tuple(BlockKind(mixer=m, ffn=f, count=n) for (m, f), n in kinds.items() if n)  # type: ignore[arg-type]
    workload = HybridWorkload(
        layers=len(layers),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        ffn_dim=round(sum(widths) / len(widths)),
        blocks=blocks,
        **fields,
    )
    exact_count = sum(hidden * head_dim * (2 * heads + 2 * kv) for kv in grouped) + 3 * hidden * sum(widths)
    exact_count += hidden * (len(grouped) + len(widths) + 1) + linear * hidden * hidden
    exact_count += hidden * fields["vocab_size"] * (1 if fields["tied_embeddings"] else 2)
    warnings.append("Every layer has a width of its own: the feed-forward layers are taken at their mean width.")
    return settle(workload, exact_count), "Nemotron"


def two_head_sizes(config: Config, model_type: str, name: str, warnings: list[str]) -> Reading:
    """Gemma 4 and MiMo-V2: full-attention layers have fewer or wider key-value heads than the windowed ones."""
    draft = decoder(config, model_type, name, warnings)
    fields, hidden, heads = draft.fields, draft.fields["hidden_dim"], draft.fields["heads"]
    narrow, wide = draft.mixers.count("window"), draft.mixers.count("attention")
    if "head_dim" not in fields or narrow + wide < fields["layers"]:
        raise InputError(f"A model of type {model_type!r} has full and windowed attention only.")
    if model_type == "mimo_v2_flash":
        key, value = fields["head_dim"], config.integer("v_head_dim", default=fields["head_dim"])
        local_key, local_value = (
            config.integer("swa_head_dim", default=key),
            config.integer("swa_v_head_dim", default=value),
        )
        local_heads = config.integer("swa_num_attention_heads", default=heads)
        local_kv = config.integer("swa_num_key_value_heads", default=fields["kv_heads"])
        kv = fields["kv_heads"]
        exact = wide * hidden * (heads * (key + value) + kv * (key + value))
        exact += narrow * hidden * (local_heads * (local_key + local_value) + local_kv * (local_key + local_value))
        fields["head_dim"] = (key + value) // 2
    else:
        key, local_kv = fields["head_dim"], fields["kv_heads"]
        global_key = config.integer("global_head_dim", default=key)
        global_kv = config.integer("num_global_key_value_heads", default=local_kv)
        shared = config.flag("attention_k_eq_v", default=False)
        exact = wide * hidden * (2 * heads * global_key + (1 if shared else 2) * global_kv * global_key)
        exact += narrow * hidden * (2 * heads + 2 * local_kv) * key
        elements = global_kv * global_key
        fields["kv_heads"] = elements // key if elements % key == 0 and heads % (elements // key) == 0 else local_kv
        if config.integer("num_kv_shared_layers", default=0, least=0):
            warnings.append("Layers that share the keys and values of others are counted as having their own.")
    workload = finish(draft)
    stack = workload.stack
    counted = sum(block.count * mixer.parameters for block in stack.blocks for mixer in block.mixers)
    warnings.append("The cache is that of the full-attention layers' heads; the windowed layers have other ones.")
    return settle(workload, stack.parameters - counted + exact), draft.family


def kimi_linear(config: Config, model_type: str, name: str, warnings: list[str]) -> Reading:
    """Kimi Linear: gated delta attention with full-attention layers of latent attention between."""
    inner = config.section("linear_attn_config")
    if inner is None:
        raise InputError("The configuration of type 'kimi_linear' does not say linear_attn_config.")
    draft = decoder(config, model_type, name, warnings, strict=False)
    draft.warnings.clear()
    layers, heads, width = draft.fields["layers"], inner.integer("num_heads"), inner.integer("head_dim")
    full = {i - 1 for i in inner.integers("full_attn_layers") or []}
    inner.ignore("kda_layers")
    draft.mixers = ["attention" if i in full else "linear" for i in range(layers)]
    draft.fields["linear_attention"] = LinearAttention(
        key_heads=heads,
        value_heads=heads,
        key_head_dim=width,
        value_head_dim=width,
        conv_kernel=inner.integer("short_conv_kernel_size", default=4),
    )
    draft.fields["attention_output_gate"] = False
    if not isinstance(draft.fields.get("mla"), MLA):
        raise InputError("The configuration of type 'kimi_linear' does not say kv_lora_rank.")
    warnings.append("The low-rank gates of the linear layers are counted as those of gated DeltaNet.")
    return finish(draft), "Kimi Linear"


HYBRIDS: dict[str, Callable[[Config, str, str, list[str]], Reading]] = {
    "mamba": mamba, "mamba2": mamba, "falcon_mamba": mamba, "nemotron_h": nemotron_h, "bamba": side_by_side,
    "falcon_h1": side_by_side, "nemotron-nas": searched, "gemma4": two_head_sizes, "gemma4_text": two_head_sizes,
    "mimo_v2_flash": two_head_sizes, "kimi_linear": kimi_linear,
}  # fmt: skip
