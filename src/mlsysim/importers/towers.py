"""Vision towers and projectors in front of a language model: how many parameters they add.

A vision-language configuration nests the language model (``text_config``, or the keys of the language model itself) and the
tower (``vision_config``). The workload is the language model, which every command takes; the weights of tower and projector are
added to it, since they must be loaded, while the work for each image is left out.
"""

from __future__ import annotations

from dataclasses import dataclass

from mlsysim.importers.fields import Config


@dataclass(frozen=True, slots=True)
class Tower:
    """Sizes of a transformer over patches."""

    width: int
    layers: int
    ffn: int
    patch: int
    channels: int = 3
    gated: bool = False
    bias: bool = True
    layer_norm: bool = True
    positions: int = 0
    patch_bias: bool = True
    frames: int = 1

    @property
    def parameters(self) -> float:
        e, ffn = self.width, self.ffn
        matrices = 3 if self.gated else 2
        norm = 2 * e if self.layer_norm else e
        block = 4 * e * e + matrices * e * ffn + 2 * norm
        block += 4 * e + (matrices - 1) * ffn + e if self.bias else 0
        patches = self.channels * self.frames * self.patch**2 * e + (e if self.patch_bias else 0)
        return float(self.layers * block + patches + self.positions * e)


def _patches(vision: Config, patch: int) -> int:
    side = vision.integer("image_size", "force_image_size", default=224) // patch
    return min(side, 100_000) ** 2


def tower_parameters(vision: Config, outer: Config, hidden: int, kind: str, warnings: list[str]) -> float:
    """Parameters of the tower and of the projector into a language model of width ``hidden``."""
    if kind in ("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe"):
        return _qwen(vision, hidden, kind)
    if kind.startswith("kimi"):
        return _moonvit(vision, hidden)
    if kind in (
        "llama4",
        "gemma3",
        "gemma4",
        "mistral3",
        "pixtral",
        "llava",
        "llava_next",
        "internvl",
        "internvl_chat",
    ):
        return _KNOWN[kind](vision, outer, hidden)
    warnings.append(f"The vision tower of type {kind[:40]!r} is counted as a plain one with a projector of two layers.")
    return _llava(vision, outer, hidden)


def _plain(vision: Config, *, patch_bias: bool = True) -> Tower:
    patch = vision.integer("patch_size", default=14)
    return Tower(
        width=vision.integer("hidden_size", "embed_dim", "width"),
        layers=vision.integer("num_hidden_layers", "depth", "layers"),
        ffn=vision.integer("intermediate_size"),
        patch=patch,
        channels=vision.integer("num_channels", "in_channels", default=3),
        positions=_patches(vision, patch),
        patch_bias=patch_bias,
    )


def _qwen(vision: Config, hidden: int, kind: str) -> float:
    """Patches of two frames; a merger folds 2 x 2 patches into one token, Qwen3's also taps layers in between."""
    merge = vision.integer("spatial_merge_size", default=2) ** 2
    frames = vision.integer("temporal_patch_size", default=2)
    patch = vision.integer("patch_size", "spatial_patch_size", default=14)
    layers = vision.integer("depth")
    channels = vision.integer("in_channels", "in_chans", default=3)
    if kind == "qwen2_vl":
        width = vision.integer("embed_dim")
        ffn = round(width * vision.number("mlp_ratio", default=4.0))
        out = vision.integer("hidden_size", default=hidden)
        tower = Tower(width, layers, ffn, patch, channels, patch_bias=False, frames=frames)
    elif kind == "qwen2_5_vl":
        width, out = vision.integer("hidden_size"), vision.integer("out_hidden_size", default=hidden)
        ffn = vision.integer("intermediate_size")
        tower = Tower(
            width, layers, ffn, patch, channels, gated=True, layer_norm=False, patch_bias=False, frames=frames
        )
    else:
        width, out = vision.integer("hidden_size"), vision.integer("out_hidden_size", default=hidden)
        positions = vision.integer("num_position_embeddings", default=0, least=0)
        tower = Tower(
            width, layers, vision.integer("intermediate_size"), patch, channels, positions=positions, frames=frames
        )
    folded = merge * width
    merger = folded * folded + folded + folded * out + out
    taps = len(vision.sequence("deepstack_visual_indexes") or [])
    norm = width if kind == "qwen2_5_vl" else 2 * width
    return tower.parameters + merger + norm + taps * (merger + 2 * folded)


def _moonvit(vision: Config, hidden: int) -> float:
    width = vision.integer("vt_hidden_size", "hidden_size")
    grid = vision.integer("init_pos_emb_height", default=64) * vision.integer("init_pos_emb_width", default=64)
    tower = Tower(
        width,
        vision.integer("vt_num_hidden_layers", "num_hidden_layers"),
        vision.integer("vt_intermediate_size", "intermediate_size"),
        vision.integer("patch_size", default=14),
        positions=grid,
    )
    folded = 4 * width
    return tower.parameters + 2 * width + folded * folded + folded + folded * hidden + hidden + 2 * width


def _llava(vision: Config, outer: Config, hidden: int) -> float:
    """A CLIP (or SigLIP, or Pixtral) tower and two linear layers."""
    if vision.text("model_type") == "pixtral":
        return _pixtral_tower(vision) + _two_layers(vision.integer("hidden_size"), hidden)
    siglip = vision.text("model_type").startswith("siglip")
    tower = _plain(vision, patch_bias=siglip)
    width = tower.width
    # CLIP: class token, its position, and norms before and behind; SigLIP: the norm behind.
    ends = 2 * width if siglip else 2 * width + 4 * width
    return tower.parameters + ends + _two_layers(width, hidden) + (hidden if outer.has("image_newline") else 0)


def _two_layers(width: int, hidden: int) -> int:
    return width * hidden + hidden + hidden * hidden + hidden


def _gemma3(vision: Config, outer: Config, hidden: int) -> float:
    tower = _plain(vision)
    return tower.parameters + 2 * tower.width + tower.width * hidden + tower.width


def _gemma4(vision: Config, outer: Config, hidden: int) -> float:
    """Four norms and norms of queries and keys in each layer; two tables of positions, one for each axis."""
    width, layers = vision.integer("hidden_size"), vision.integer("num_hidden_layers")
    tower = Tower(
        width,
        layers,
        vision.integer("intermediate_size"),
        vision.integer("patch_size", default=16),
        gated=True,
        bias=False,
        layer_norm=False,
        patch_bias=False,
        positions=2 * vision.integer("position_embedding_size", default=10240),
    )
    head = vision.integer("head_dim", default=width // vision.integer("num_attention_heads", default=16))
    return tower.parameters + layers * (2 * width + 2 * head) + width * hidden + 2 * width


def _llama4(vision: Config, outer: Config, hidden: int) -> float:
    """Pixel shuffle with an adapter of two layers, then one linear layer."""
    tower = _plain(vision, patch_bias=False)
    width = tower.width
    adapted = vision.integer("projector_input_dim", default=4096)
    output = vision.integer("projector_output_dim", "vision_output_dim", default=adapted)
    shuffled = vision.integer("intermediate_size")
    adapter = shuffled * adapted + adapted * output
    return tower.parameters + 2 * width + 4 * width + adapter + output * hidden


def _pixtral_tower(vision: Config) -> float:
    tower = Tower(
        vision.integer("hidden_size"),
        vision.integer("num_hidden_layers"),
        vision.integer("intermediate_size"),
        vision.integer("patch_size", default=16),
        gated=True,
        bias=False,
        layer_norm=False,
        patch_bias=False,
    )
    return tower.parameters + tower.width


def _mistral3(vision: Config, outer: Config, hidden: int) -> float:
    """Pixtral's tower, a norm, a merger of 2 x 2 patches and two linear layers."""
    width = vision.integer("hidden_size")
    merge = outer.integer("spatial_merge_size", default=2) ** 2
    biases = 2 * hidden if outer.flag("multimodal_projector_bias", default=False) else 0
    return _pixtral_tower(vision) + width + merge * width * width + width * hidden + hidden * hidden + biases


def _internvl(vision: Config, outer: Config, hidden: int) -> float:
    """InternViT with scales of its residuals; pixel shuffle into two linear layers behind a norm."""
    tower = _plain(vision)
    width, layers = tower.width, tower.layers
    extra = 2 * width + 2 * layers * width  # class token and its position; two scales in each layer
    if not vision.flag("qkv_bias", "attention_bias", default=False):
        extra -= 3 * layers * width
    if vision.flag("qk_normalization", "use_qk_norm", default=False):
        extra += 2 * layers * width
    if vision.text("norm_type") == "rms_norm":
        extra -= 2 * layers * width
    folded = round(width / outer.number("downsample_ratio", default=0.5) ** 2)
    return tower.parameters + extra + 2 * folded + folded * hidden + hidden + hidden * hidden + hidden


_KNOWN = {
    "llama4": _llama4, "gemma3": _gemma3, "gemma4": _gemma4, "mistral3": _mistral3, "pixtral": _llava,
    "llava": _llava, "llava_next": _llava, "internvl": _internvl, "internvl_chat": _internvl,
}  # fmt: skip
