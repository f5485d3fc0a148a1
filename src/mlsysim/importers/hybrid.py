"""Networks that are not attention throughout, or not the same in every layer: state spaces, mixes and searched architectures.

    mamba, mamba2, falcon_mamba      Mamba blocks throughout
    nemotron_h                       one sub-layer in each layer: M Mamba, * attention, - dense, E experts
    bamba, falcon_h1                 attention in some layers; attention and Mamba side by side in all
    nemotron-nas                     every layer with its own width, or without attention at all
    gemma4, mimo_v2_flash            full and windowed layers with heads of different sizes
    gemma3n                          embeddings in every layer, and layers that read the keys of others
    minimax, minimax_m1              linear attention with softmax attention in between
    mllama_text_model                layers that attend to images between those of the text
    kimi_linear, kimi_k3             gated linear attention with latent attention in between

Where a workload has no field for what differs, the exact number of parameters is counted here and kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from mlsysim.errors import InputError
from mlsysim.importers.decoder import HEADS, LAYERS, blocks_of, decoder, finish, mamba_block
from mlsysim.importers.fields import KEYS, Config
from mlsysim.models.recurrent import LinearAttention
from mlsysim.models.sparse import HybridWorkload, SSMWorkload
from mlsysim.models.transformer import TransformerWorkload

Reading = tuple[TransformerWorkload, str]
_LETTERS = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}
_SUB_LAYERS = {
    "mamba": ("mamba", "none"), "attention": ("attention", "none"), "mlp": ("none", "dense"), "moe": ("none", "moe"),
}  # fmt: skip


def restated(workload: TransformerWorkload, fields: Mapping[str, Any]) -> TransformerWorkload:
    """The workload built anew, with these fields."""
    return type(workload)(**{name: getattr(workload, name) for name in type(workload).model_fields} | dict(fields))


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
    return restated(workload, stated)


def _common(config: Config, name: str, tied: bool) -> dict[str, Any]:
    fields = {"name": name, **config.sizes("common")}
    return fields | {"tied_embeddings": config.flag("tie_word_embeddings", "tie_embeddings", default=tied)}


def mamba(config: Config, model_type: str, name: str, warnings: list[str]) -> Reading:
    """Mamba and Mamba-2, as transformers and as the authors' own package write them."""
    inner = config.section("ssm_cfg")
    version = 2 if model_type == "mamba2" or (inner is not None and inner.text("layer") == "Mamba2") else 1
    fields = _common(config, name, tied=True)
    multiple = config.integer("pad_vocab_size_multiple", default=1)
    fields["vocab_size"] = -(-fields["vocab_size"] // multiple) * multiple
    spec = mamba_block(config, version)
    if version == 2 and config.has("num_heads"):
        spec = spec.model_copy(update=config.sizes("mamba_heads"))
    layers = config.integer(*LAYERS)
    label = "Falcon-Mamba" if model_type == "falcon_mamba" else f"Mamba{'-2' if version == 2 else ''}"
    return SSMWorkload(layers=layers, mamba=spec, norms_per_layer=1, **fields), label


def nemotron_h(config: Config, model_type: str, name: str, warnings: list[str]) -> Reading:
    """Each layer is one sub-layer; the feed-forward ones are not gated (squared ReLU)."""
    pattern = config.text("hybrid_override_pattern")
    kinds = [_LETTERS.get(letter, letter) for letter in pattern]
    if not pattern:
        kinds = [str(kind) for kind in config.sequence("layers_block_type") or ()]
    if not kinds:
        raise InputError("The configuration does not say hybrid_override_pattern or layers_block_type.")
    odd = next((kind for kind in kinds if kind not in _SUB_LAYERS), None)
    if odd is not None:
        raise InputError(f"A layer of kind {odd[:40]!r} is not known; known are mamba, attention, mlp and moe.")
    if config.has(*LAYERS) and config.integer(*LAYERS) != len(kinds):
        raise InputError(
            f"The layers that are listed are {len(kinds)}, and num_hidden_layers is {config.integer(*LAYERS)}."
        )
    fields = _common(config, name, tied=False) | config.sizes("nemotron_h")
    if "mamba" in kinds:
        fields["mamba"] = mamba_block(config, 2)
    if "mlp" in kinds:
        fields["ffn_dim"] = config.integer("intermediate_size")
    if "moe" in kinds:
        fields |= config.sizes("nemotron_moe")
        fields["shared_experts"] = config.integer("n_shared_experts", default=0, least=0)
    if config.integer(*KEYS["further"], default=0, least=0):
        warnings.append("The layers that predict further tokens (MTP) are not counted.")
    blocks = blocks_of({parts: kinds.count(kind) for kind, parts in _SUB_LAYERS.items()})
    return HybridWorkload(layers=len(kinds), blocks=blocks, gated_ffn=False, **fields), "Nemotron-H"


def side_by_side(config: Config, model_type: str, name: str, warnings: list[str]) -> Reading:
    """Bamba (attention in listed layers) and Falcon-H1 (both mixers in every layer, as two blocks)."""
    draft = decoder(config, model_type, name, warnings)
    layers, label = draft.fields["layers"], draft.family.label
    spec = mamba_block(config, 2)
    draft.fields["mamba"] = spec
    if model_type == "bamba":
        attending = config.numbers_of_layers("attn_layer_indices", layers=layers)
        draft.mixers = ["attention" if i in attending else "mamba" for i in range(layers)]
        return finish(draft), label
    fields = {key: value for key, value in draft.fields.items() if value is not None}
    inner = config.optional("mamba_d_ssm")
    if inner and spec.heads:
        fields["mamba"] = spec.model_copy(update={"head_dim": inner // spec.heads})
    blocks = blocks_of({("attention", "none"): layers, ("mamba", "dense"): layers})
    workload = HybridWorkload(blocks=blocks, extra_parameters=draft.extra, **fields)
    # Counted as two blocks with three norms; the network has two in each layer.
    return settle(workload, workload.parameter_count - layers * draft.fields["hidden_dim"]), label


def _kept(part: Config) -> bool:
    return not part.flag("no_op", default=False) and not part.flag("replace_with_linear", default=False)


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
        if _kept(attention):
            grouped.append(heads // attention.integer("n_heads_in_group"))
        linear += sum(part.flag("replace_with_linear", default=False) for part in (attention, ffn))
        if _kept(ffn):
            # Two thirds of 4 x width x multiplier, rounded up to whole 256s.
            exact = int(2 * ffn.number("ffn_mult", default=1.0) * hidden / 3)
            widths.append(-(-exact // 256) * 256)
    if not widths or not grouped or min(grouped) < 1:
        raise InputError("The entries of 'block_configs' leave no attention or no feed-forward layers.")
    kv_heads = max(set(grouped), key=grouped.count)
    both = min(len(grouped), len(widths))
    kinds = {("attention", "dense"): both, ("attention", "none"): len(grouped) - both}
    fields |= {"layers": len(layers), "heads": heads, "kv_heads": kv_heads, "head_dim": head_dim}
    fields["ffn_dim"] = round(sum(widths) / len(widths))
    workload = HybridWorkload(blocks=blocks_of({**kinds, ("none", "dense"): len(widths) - both}), **fields)
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
    key, kept = fields["head_dim"], fields["kv_heads"]
    if model_type == "mimo_v2_flash":
        value = config.integer("v_head_dim", default=key)
        local = config.integer("swa_head_dim", default=key) + config.integer("swa_v_head_dim", default=value)
        both = config.integer("swa_num_attention_heads", default=heads)
        windowed = config.integer("swa_num_key_value_heads", default=kept)
        exact = wide * hidden * (heads + kept) * (key + value) + narrow * hidden * (both + windowed) * local
        fields["head_dim"] = (key + value) // 2
        fields |= {"window_heads": both, "window_kv_heads": windowed, "window_head_dim": local // 2}
    else:
        global_key = config.integer("global_head_dim", default=key)
        global_kv = config.integer("num_global_key_value_heads", default=kept)
        borrowed = config.integer("num_kv_shared_layers", default=0, least=0)
        own = draft.mixers[: fields["layers"] - borrowed]
        shared = config.flag("attention_k_eq_v", default=False)
        exact = hidden * 2 * heads * (wide * global_key + narrow * key)
        exact += hidden * (own.count("attention") * (1 if shared else 2) * global_kv * global_key)
        exact += hidden * own.count("window") * 2 * kept * key
        fields |= {"kv_heads": global_kv, "head_dim": global_key, "window_kv_heads": kept, "window_head_dim": key}
        fields["shared_kv_layers"] = borrowed
        if config.flag("use_double_wide_mlp", default=False) and borrowed:
            # Layers without keys of their own have feed-forward parts of twice the width: the mean does the same work.
            mean = fields["ffn_dim"] * (1 + borrowed / fields["layers"])
            exact += 3 * hidden * (mean - round(mean)) * fields["layers"]
            fields["ffn_dim"] = round(mean)
        draft.extra += _embedded_in_layers(config, fields)
    workload = finish(draft)
    stack = workload.stack
    counted = sum(block.count * mixer.parameters for block in stack.blocks for mixer in block.mixers)
    return settle(workload, stack.parameters - counted + exact), draft.family.label


def gemma3n(config: Config, model_type: str, name: str, warnings: list[str]) -> Reading:
    """Gemma 3n: embeddings in every layer, four streams of which a layer works on one, a low-rank way around attention, and later
    layers that read the keys of earlier ones, whose own projections the checkpoint keeps."""
    draft = decoder(config, model_type, name, warnings)
    fields, hidden = draft.fields, draft.fields["hidden_dim"]
    layers, streams = fields["layers"], config.integer("altup_num_inputs", default=4)
    fields["shared_kv_layers"] = config.integer("num_kv_shared_layers", default=0, least=0)
    unused = 2 * hidden * fields["kv_heads"] * fields["head_dim"] * fields["shared_kv_layers"]
    around = 2 * hidden * config.integer("laurel_rank", default=64) + hidden
    mixed = hidden * (streams + 1) + streams**3 + streams**2 + hidden  # the router with its norm, coefficients, a scale
    draft.extra += unused + layers * (around + mixed) + 2 * (streams - 1) * hidden * hidden
    draft.extra += _embedded_in_layers(config, fields)
    warnings.append("The mixing of streams and the ways around attention are counted as parameters, not as work.")
    return finish(draft), draft.family.label


def _embedded_in_layers(config: Config, fields: dict[str, Any]) -> float:
    """Embeddings that small Gemmas add in every layer: a table that is looked up, and parameters of a projection of the first input and, in
    each layer, of a gate with its way back, a norm and a scale."""
    width = config.optional("hidden_size_per_layer_input", least=0)
    if not width:
        return 0.0
    layers, hidden = fields["layers"], fields["hidden_dim"]
    fields["lookup_parameters"] = (
        config.integer("vocab_size_per_layer_input", default=fields["vocab_size"]) * layers * width
    )
    return float(layers * (3 * hidden * width + hidden + 1) + width)


def lightning(config: Config, model_type: str, name: str, warnings: list[str]) -> Reading:
    """MiniMax-Text-01 and M1: linear attention without a convolution or decays to learn, gated, with a norm of all heads."""
    draft = decoder(config, model_type, name, warnings)
    workload, layers = finish(draft), draft.mixers.count("linear")
    if not layers:
        return workload, draft.family.label
    hidden, heads, width = (draft.fields[field] for field in ("hidden_dim", "heads", "head_dim"))
    # Against gated DeltaNet: a norm over all heads instead of one, and neither decays, gains nor a convolution.
    other = heads * width - (2 * heads * hidden + 3 * heads * width + 2 * heads + width)
    return settle(workload, workload.stack.parameters + layers * other), draft.family.label


def with_images(config: Config, model_type: str, name: str, warnings: list[str]) -> Reading:
    """Llama 3.2 Vision: layers that attend to images stand between those of the text, and run where there are any."""
    draft = decoder(config, "llama", name, warnings)
    fields = draft.fields
    rows = len(config.numbers_of_layers("cross_attention_layers", layers=fields["layers"]))
    hidden, kept, width = fields["hidden_dim"], fields["kv_heads"], fields["head_dim"]
    fields["layers"] -= rows
    if fields["layers"] < 1:
        raise InputError("The key 'cross_attention_layers' leaves no layers of text.")
    draft.mixers, draft.feed_forward = draft.mixers[rows:], draft.feed_forward[rows:]
    text = finish(draft)
    # A norm of queries and keys, two gates, and eight further rows of the embedding for the image's token.
    attention = 2 * hidden * (fields["heads"] + kept) * width + 2 * width
    added = rows * (attention + 3 * hidden * fields["ffn_dim"] + 2 * hidden + 2) + (8 * hidden if rows else 0)
    warnings.append(
        f"{rows} layers that attend to images hold {added / 1e6:,.0f} M of the parameters: they keep no cache of the text and "
        "run only where there is an image, whose work is not counted."
    )
    blocks = blocks_of({("attention", "dense"): fields["layers"]})
    own = {field: getattr(text, field) for field in TransformerWorkload.model_fields if field not in ("architecture",)}
    active = {"active_parameters": text.parameter_count, "extra_parameters": text.extra_parameters + added}
    return HybridWorkload(**{**own, **active}, blocks=blocks), "Llama 3.2 Vision"


def kimi_linear(config: Config, model_type: str, name: str, warnings: list[str]) -> Reading:
    """Kimi Linear: gated delta attention with full-attention layers of latent attention between."""
    inner = config.section("linear_attn_config")
    if inner is None:
        raise InputError("The configuration of type 'kimi_linear' does not say linear_attn_config.")
    draft = decoder(config, model_type, name, warnings)
    warnings.clear()
    layers, heads, width = draft.fields["layers"], inner.integer("num_heads"), inner.integer("head_dim")
    full, linear = (inner.numbers_of_layers(k, layers=layers, first=1) for k in ("full_attn_layers", "kda_layers"))
    if inner.has("kda_layers") and (full & linear or len(full | linear) < layers):
        raise InputError("The keys 'full_attn_layers' and 'kda_layers' must name every layer once between them.")
    draft.mixers = ["attention" if i in full else "linear" for i in range(layers)]
    kernel = inner.integer("short_conv_kernel_size", default=4)
    both: dict[str, Any] = {"key_heads": heads, "value_heads": heads, "key_head_dim": width, "value_head_dim": width}
    draft.fields["linear_attention"] = LinearAttention(**both, conv_kernel=kernel)
    draft.fields["attention_output_gate"] = False
    if "mla" not in draft.fields:
        raise InputError("The configuration of type 'kimi_linear' does not say kv_lora_rank.")
    warnings.append("The low-rank gates of the linear layers are counted as those of gated DeltaNet.")
    return finish(draft), "Kimi Linear"


HYBRIDS: dict[str, Callable[[Config, str, str, list[str]], Reading]] = {
    "mamba": mamba, "mamba2": mamba, "falcon_mamba": mamba, "nemotron_h": nemotron_h, "bamba": side_by_side,
    "falcon_h1": side_by_side, "nemotron-nas": searched, "gemma4": two_head_sizes, "gemma4_text": two_head_sizes,
    "mimo_v2_flash": two_head_sizes, "kimi_linear": kimi_linear, "mllama_text_model": with_images,
    "gemma3n": gemma3n, "gemma3n_text": gemma3n, "minimax": lightning, "minimax_text_01": lightning, "minimax_m1": lightning,
}  # fmt: skip
