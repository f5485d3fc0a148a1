"""Which layer of a decoder is what: a name for each, from lists, patterns and spacings in all their spellings.

The order in the network does not matter to any equation, the counts do.
"""

from __future__ import annotations

from mlsysim.errors import InputError, unknown_name
from mlsysim.importers import table
from mlsysim.importers.fields import Config

_NAMES = {name: kind for kind, names in table("names")["layers"].items() for name in names}
_KNOWN = ("attention", "window", "linear", "mamba")


def mixers_of(config: Config, layers: int, windowed: bool, every: int = 0) -> list[str]:
    """The kind of each layer's mixer. ``windowed``: there is a window; ``every``: the family's own spacing of full attention."""
    named = config.per_layer("layer_types", "layers_block_type", "attention_layers", layers=layers)
    if named is not None:
        config.ignore("sliding_window_pattern", "_sliding_window_pattern", "no_rope_layers")
        kinds = [_NAMES.get(name, str(name)) if isinstance(name, str) else repr(name) for name in named]
        odd = next((kind for kind in kinds if kind not in _KNOWN), None)
        if odd is not None:
            raise unknown_name(
                "kind of layer with a workload type", odd, _KNOWN, remedy=f"known are {', '.join(_KNOWN)}."
            )
        return kinds if windowed else ["attention" if kind == "window" else kind for kind in kinds]
    flags = config.per_layer("attn_type_list", "decoder_attention_types", layers=layers)
    if flags is not None:  # MiniMax: softmax attention where it is 1, linear attention where it is 0
        if any(flag not in (0, 1) for flag in flags):
            raise InputError(f"The key 'attn_type_list' must be a list of 0 and 1, got {repr(flags)[:60]}.")
        if not all(flags):
            return ["attention" if flag else "linear" for flag in flags]
    pattern = config.per_layer("hybrid_layer_pattern", layers=layers)
    if any(local not in (0, 1) for local in pattern or ()):
        raise InputError(f"The key 'hybrid_layer_pattern' must be a list of 0 and 1, got {repr(pattern)[:60]}.")
    if pattern is not None and windowed:
        return ["window" if local else "attention" for local in pattern]
    if config.has("attn_layer_period"):  # Jamba
        period, offset = config.integer("attn_layer_period"), config.integer("attn_layer_offset", default=0, least=0)
        _inside("attn_layer", period, offset)
        return ["attention" if i % period == offset else "mamba" for i in range(layers)]
    if config.has("full_attention_interval"):  # Qwen3-Next
        interval = config.integer("full_attention_interval")
        return ["attention" if (i + 1) % interval == 0 else "linear" for i in range(layers)]
    if config.has("layer_group_size"):  # Ring-linear: the last layer of each group, and layers that fill no group
        group = config.integer("layer_group_size")
        grouped = layers // group * group
        return ["attention" if (i + 1) % group == 0 or i >= grouped else "linear" for i in range(layers)]
    if not windowed:
        return ["attention"] * layers
    rope = config.per_layer("no_rope_layers", layers=layers) if config.has("attention_chunk_size") else None
    if rope:
        return ["window" if rotary else "attention" for rotary in rope]
    names = ("sliding_window_pattern", "_sliding_window_pattern", "global_attn_every_n_layers")
    letters = config.raw(*names)
    if isinstance(letters, str) and letters and set(letters) <= set("LG"):  # EXAONE: local and global layers, repeated
        return ["attention" if letters[i % len(letters)] == "G" else "window" for i in range(layers)]
    spacing = config.optional(*names) or every
    if spacing:
        return ["attention" if (i + 1) % spacing == 0 else "window" for i in range(layers)]
    if config.has("use_sliding_window") and config.has("max_window_layers"):
        # Qwen2: the layers behind these are windowed.
        first = config.integer("max_window_layers", least=0)
        return ["window" if i >= first else "attention" for i in range(layers)]
    return ["window"] * layers


def experts_of(config: Config, layers: int) -> list[str]:
    """``dense`` or ``moe`` for each layer of a model that has experts."""
    named = config.per_layer("mlp_layer_types", layers=layers)
    if named is not None:
        odd = next((name for name in named if name not in ("dense", "sparse", "moe")), None)
        if odd is not None:
            raise InputError(f"The key 'mlp_layer_types' must say dense, sparse or moe, got {repr(odd)[:60]}.")
        return ["dense" if name == "dense" else "moe" for name in named]
    if config.has("moe_layers_enum", "moe_layers"):
        listed = config.has("moe_layers_enum")
        chosen = _listed(config) if listed else config.numbers_of_layers("moe_layers", layers=layers)
        return ["moe" if i in chosen else "dense" for i in range(layers)]
    if isinstance(config.raw("moe_layer_freq"), list):
        config.ignore("first_k_dense_replace")
        return ["moe" if sparse else "dense" for sparse in config.per_layer("moe_layer_freq", layers=layers) or []]
    if config.has("expert_layer_period"):  # Jamba
        period = config.integer("expert_layer_period")
        offset = config.integer("expert_layer_offset", default=0, least=0)
        _inside("expert_layer", period, offset)
        return ["moe" if i % period == offset else "dense" for i in range(layers)]
    steps = ("decoder_sparse_step", "interleave_moe_layer_step", "moe_layer_interval", "moe_layer_frequency")
    step = config.integer(*steps, default=1)
    dense = config.numbers_of_layers("mlp_only_layers", layers=layers)
    first = config.integer("first_k_dense_replace", "moe_layer_start_index", "num_dense_layers", default=0, least=0)
    last = config.integer("moe_layer_end_index", default=layers, least=0)
    frequency = config.integer("moe_layer_freq", default=1)
    return [
        "moe" if first <= i <= last and i not in dense and (i + 1) % step == 0 and i % frequency == 0 else "dense"
        for i in range(layers)
    ]


def _inside(key: str, period: int, offset: int) -> None:
    if offset >= period:
        raise InputError(f"The key '{key}_offset' must be below '{key}_period', got {offset} and {period}.")


def _listed(config: Config) -> set[int]:
    parts = [part.strip() for part in config.text("moe_layers_enum").split(",")]
    if not all(map(str.isdigit, parts)):
        raise InputError("The key 'moe_layers_enum' must be layer numbers with commas between them.")
    return {int(part) for part in parts if len(part) < 8}
