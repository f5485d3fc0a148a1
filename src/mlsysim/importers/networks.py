"""Networks beside decoders: encoders and encoder-decoders (BERT and its kin, T5, BART, Whisper), transformers over patches,
residual and ConvNeXt networks as layer rows, and twin towers of image and text.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from mlsysim.errors import InputError
from mlsysim.importers.decoder import HEADS, LAYERS, WIDTH
from mlsysim.importers.fields import Config
from mlsysim.models.base import Workload
from mlsysim.models.multimodal import SpeechWorkload, VisionLanguageWorkload
from mlsysim.models.transformer import TransformerWorkload
from mlsysim.models.vision import CNNWorkload, VisionTransformerWorkload

Reading = tuple[Workload, str]
_IMAGE = 224
_CLASSIC: dict[str, Any] = {"gated_ffn": False, "bias": True, "norm": "layernorm", "tied_embeddings": True}
_LABELS = {
    "roberta": "RoBERTa", "xlm-roberta": "XLM-R", "distilbert": "DistilBERT", "electra": "ELECTRA", "mpnet": "MPNet",
    "dinov3_vit": "DINOv3", "nomic_bert": "Nomic BERT", "new": "GTE", "eurobert": "EuroBERT",
    "mbart": "mBART", "m2m_100": "M2M-100", "pegasus": "Pegasus", "marian": "Marian",
}  # fmt: skip


def _encoder(config: Config, name: str, **own: Any) -> TransformerWorkload:
    """An encoder with the dimensions of the configuration and what its family adds."""
    return TransformerWorkload(name=name, structure="encoder", **config.sizes("encoder"), **own)


def bert(config: Config, model_type: str, name: str, warnings: list[str]) -> Reading:
    """BERT, RoBERTa, XLM-R, ELECTRA, MPNet and DistilBERT: the encoder with its pooler, without a task's head."""
    hidden = config.integer(*WIDTH, "dim")
    positions = config.integer("max_position_embeddings", default=512)
    width = config.optional("embedding_size") or hidden
    distil = model_type == "distilbert"
    types = config.integer("type_vocab_size", default=0 if distil else 2, least=0)
    # Token types, and the pooler on the first token, which DistilBERT and ELECTRA leave out.
    extra = float(types * width + (0 if distil or model_type == "electra" else hidden * hidden + hidden))
    if model_type == "mpnet":
        extra = hidden * hidden + hidden + 32 * config.integer(*HEADS)
    narrow = width != hidden
    if narrow:
        # A narrow table: its positions are narrow too, and the projection has a bias.
        extra += positions * width + hidden
    # RoBERTa numbers positions from the padding's index on.
    context = positions - 2 if model_type in ("roberta", "xlm-roberta", "camembert", "mpnet") else positions
    own = {"embedding_dim": width if narrow else None, "position_embeddings": 0 if narrow else positions}
    workload = _encoder(config, name, max_context=context, extra_parameters=extra, **own, **_CLASSIC)
    return workload, _LABELS.get(model_type, "BERT")


def deberta(config: Config, model_type: str, name: str, warnings: list[str]) -> Reading:
    """DeBERTa v2 and v3: relative positions with a table of their own, no pooler in the encoder itself."""
    hidden = config.integer(*WIDTH)
    buckets = config.integer("position_buckets", default=256, least=-1)
    absolute = config.flag("position_biased_input", default=True)
    positions = config.integer("max_position_embeddings", default=512)
    extra = float(2 * (buckets if buckets > 0 else positions) * hidden + 2 * hidden)
    table = positions if absolute else 0
    own = {"position_embeddings": table, "max_context": positions, "extra_parameters": extra}
    workload = _encoder(config, name, **own, **_CLASSIC)
    config.ignore("relative_attention", "type_vocab_size")
    return workload, "DeBERTa"


def modern_bert(config: Config, model_type: str, name: str, warnings: list[str]) -> Reading:
    """ModernBERT: gated, without biases, windows with full attention in every third layer."""
    layers = config.integer(*LAYERS)
    every = config.integer("global_attn_every_n_layers", default=3)
    full = -(-layers // every)  # the first layer is one of them
    own = config.sizes("modernbert")
    extra = float(config.integer(*WIDTH))
    workload = _encoder(config, name, tied_embeddings=True, global_every=layers // full, extra_parameters=extra, **own)
    return workload, "ModernBERT"


def long_context(config: Config, model_type: str, name: str, warnings: list[str]) -> Reading:
    """Encoders with rotary positions and gated layers: Nomic's without biases, GTE's with those of attention and of the way back, EuroBERT with RMS norms."""
    label = _LABELS[model_type]
    if model_type == "eurobert":
        return _encoder(config, name, tied_embeddings=True, max_context=_positions(config)), label
    layers, hidden = config.integer(*LAYERS), config.integer(*WIDTH)
    extra = float(config.integer("type_vocab_size", default=0, least=0) * hidden)
    biased = model_type == "new"
    extra += layers * 2 * hidden if biased else 0
    own = {"tied_embeddings": True, "norm": "layernorm", "qkv_bias": biased, "extra_parameters": extra}
    return _encoder(config, name, max_context=_positions(config), **own), label


def _positions(config: Config) -> int | None:
    return config.optional("max_position_embeddings", "n_positions")


def longformer(config: Config, model_type: str, name: str, warnings: list[str]) -> Reading:
    """RoBERTa with windows and, for tokens that look at everything, queries, keys and values of their own."""
    workload, _ = bert(config, "roberta", name, warnings)
    assert isinstance(workload, TransformerWorkload)
    windows = config.raw("attention_window")
    window = windows[0] if isinstance(windows, list) and windows else config.integer("attention_window", default=512)
    layers, hidden = config.integer(*LAYERS), config.integer(*WIDTH)
    own = {"extra_parameters": workload.extra_parameters + 3.0 * layers * (hidden * hidden + hidden), "window": window}
    return workload.model_copy(update=own), "Longformer"


def t5(config: Config, model_type: str, name: str, warnings: list[str]) -> Reading:
    """T5, mT5, Flan and UL2: no biases, relative positions in the first layer of each half."""
    sizes = config.sizes("t5")
    projection = config.text("feed_forward_proj", default="relu")
    buckets = config.integer("relative_attention_num_buckets", default=32)
    layers = config.integer("num_decoder_layers", default=sizes["encoder_layers"])
    tables = layers + sizes["encoder_layers"] if model_type == "umt5" else 2
    sizes |= {"layers": layers, "extra_parameters": float(tables * buckets * sizes["heads"])}
    sizes["tied_embeddings"] = config.flag("tie_word_embeddings", default=model_type == "t5")
    gated = projection.startswith("gated")
    workload = TransformerWorkload(name=name, structure="encoder-decoder", gated_ffn=gated, **sizes)
    return workload, "mT5" if model_type != "t5" else "T5"


def bart(config: Config, model_type: str, name: str, warnings: list[str]) -> Reading:
    """BART, mBART, M2M-100 (NLLB), Pegasus and Marian: biases throughout, positions in both halves."""
    sizes = config.sizes("bart")
    hidden, width = sizes["hidden_dim"], sizes["ffn_dim"]
    if config.integer("encoder_ffn_dim", default=width) != width:
        raise InputError("An encoder and a decoder with feed-forward layers of different widths have no workload type.")
    config.ignore("encoder_attention_heads", "num_hidden_layers")
    table = sizes["max_context"] + 2 if model_type in ("bart", "mbart", "plbart") else 0
    # The encoder's own positions; mBART has a norm behind each embedding beside the one at each end.
    sizes |= {"position_embeddings": table, "extra_parameters": float(table * hidden)}
    sizes["extra_parameters"] += 4 * hidden if model_type == "mbart" else 0
    workload = TransformerWorkload(name=name, structure="encoder-decoder", **sizes, **_CLASSIC)
    return workload, _LABELS.get(model_type, "BART")


def whisper(config: Config, model_type: str, name: str, warnings: list[str]) -> Reading:
    """Whisper: keys without bias, the encoder's positions kept as a table of the checkpoint."""
    sizes = config.sizes("whisper")
    config.ignore("encoder_attention_heads", "encoder_ffn_dim", "num_hidden_layers")
    keys_without_bias = sizes["encoder_layers"] + 2 * sizes["layers"]
    extra = float((sizes["encoder_positions"] - keys_without_bias) * sizes["hidden_dim"])
    return SpeechWorkload(name=name, extra_parameters=max(extra, 0.0), **sizes, **_CLASSIC), "Whisper"


def _classes(config: Config, default: int) -> int:
    labels = config.raw("id2label")
    config.ignore("label2id")
    if isinstance(labels, dict):
        return len(labels)
    return config.integer("num_labels", "num_classes", default=default, least=0)


def _image_size(config: Config) -> int:
    value = config.raw("image_size")
    if isinstance(value, list) and len(value) == 2 and value[0] != value[1]:
        raise InputError("The key 'image_size' must be one number or the same number twice.")
    return config.integer("image_size", default=_IMAGE)


def _tower(config: Config, name: str, extra: float, classes: int, **own: Any) -> VisionTransformerWorkload:
    sizes = config.sizes("vit") | {"image_size": _image_size(config)}
    sizes["ffn_dim"] = own.pop("ffn_dim", None) or config.integer("intermediate_size", default=3072)
    return VisionTransformerWorkload(name=name, classes=classes, extra_parameters=extra, **sizes, **own)


def vit(config: Config, model_type: str, name: str, warnings: list[str]) -> Reading:
    """ViT and DeiT, with the classifier."""
    return _tower(config, name, 0.0, _classes(config, 2)), "DeiT" if model_type == "deit" else "ViT"


def dino(config: Config, model_type: str, name: str, warnings: list[str]) -> Reading:
    """DINOv2 and v3: without a classifier, with two scales in each layer."""
    hidden, layers = config.integer("hidden_size"), config.integer("num_hidden_layers")
    registers = config.integer("num_register_tokens", default=0, least=0)
    width = int(hidden * config.number("mlp_ratio", default=4.0))
    gated = config.flag("use_swiglu_ffn", "use_gated_mlp", default=False)
    if model_type == "dinov3_vit":  # rotary: the table of positions counted with it is less than a thousandth
        width = config.integer("intermediate_size", default=width)
    elif gated:
        warnings.append("The gated feed-forward layers of the largest DINOv2 are read at two thirds of their width.")
        width = (int(width * 2 / 3) + 7) // 8 * 8
    config.integer("patch_size")
    extra = float(2 * layers * hidden + hidden + registers * hidden)
    return _tower(config, name, extra, 0, ffn_dim=width, gated_ffn=gated), _LABELS.get(model_type, "DINOv2")


def clip_tower(config: Config, model_type: str, name: str, warnings: list[str]) -> Reading:
    """CLIP's image tower has a norm before its layers and no bias on patches, SigLIP's pools with an attention head."""
    hidden = config.integer("hidden_size", default=768)
    if model_type.startswith("clip"):
        # One more norm (2 h), less the bias of the patches.
        return _tower(config, name, float(hidden), 0), "CLIP"
    head = 0.0
    if config.flag("vision_use_head", default=True):
        width = config.integer("intermediate_size", default=3072)
        head = float(4 * hidden * hidden + 4 * hidden + 2 * hidden * width + width + hidden + 2 * hidden + hidden)
    return _tower(config, name, head, 0, class_token=False), "SigLIP"


def twin_towers(config: Config, model_type: str, name: str, warnings: list[str]) -> Reading:
    """CLIP and SigLIP whole: an image tower and a text tower whose outputs are compared."""
    image, text = config.section("vision_config"), config.section("text_config")
    if image is None or text is None:
        raise InputError(f"The configuration of type {model_type!r} does not say vision_config and text_config.")
    clip = model_type == "clip"
    tower, label = clip_tower(image, model_type, f"{name} image tower", warnings)
    assert isinstance(tower, VisionTransformerWorkload)
    sizes = text.sizes(f"{model_type}_text")
    hidden = sizes["hidden_dim"]
    language = TransformerWorkload(name=f"{name} text tower", structure="encoder", **sizes, **_CLASSIC)
    if clip:
        projector = config.integer("projection_dim", default=512) * (tower.hidden_dim + hidden) + 1
    else:
        projector = hidden * text.integer("projection_size", default=hidden) + hidden + 2
    parts: dict[str, Any] = {"vision": tower, "language": language, "projector_parameters": float(projector)}
    return VisionLanguageWorkload(name=name, **parts), label


def _stages(config: Config, widths: list[int], depths: list[int]) -> list[tuple[int, int]]:
    """Width and depth of each stage, unless given those of the smallest network of the family."""
    widths, depths = config.integers("hidden_sizes") or widths, config.integers("depths") or depths
    if len(widths) != len(depths) or min(widths) < 1 or len(widths) > 64 or sum(depths) > 2_000:
        raise InputError(
            "The keys 'hidden_sizes' and 'depths' must name as many stages, of at most 2,000 blocks together."
        )
    return list(zip(widths, depths, strict=True))


def _image(config: Config, warnings: list[str]) -> int:
    if not config.has("image_size"):
        warnings.append(f"The configuration has no image size: {_IMAGE} x {_IMAGE} is assumed.")
    return min(_image_size(config), 100_000)


def _network(name: str, rows: list[str], size: int) -> CNNWorkload:
    """The rows as a workload, equal ones once with their number."""
    merged = tuple(row if number == 1 else f"{row} x{number}" for row, number in Counter(rows).items())
    return CNNWorkload(name=name, rows=merged, image_size=size)


def resnet(config: Config, model_type: str, name: str, warnings: list[str]) -> Reading:
    """Residual networks of He and others: basic or bottleneck blocks, batch norm behind every convolution."""
    stem = config.integer("embedding_size", default=64)
    stages = _stages(config, [256, 512, 1024, 2048], [3, 4, 6, 3])
    kind = config.text("layer_type", default="bottleneck")
    if kind not in ("basic", "bottleneck"):
        raise InputError(f"The key 'layer_type' must be 'basic' or 'bottleneck', got {kind[:40]!r}.")
    channels = config.integer("num_channels", default=3)
    size = _image(config, warnings)
    shrink = config.flag("downsample_in_first_stage", default=False)
    rows = [
        f"conv 7x7 {channels}->{stem} /2 @{size // 2}x{size // 2} +n",
        f"pool 3x3 {stem} @{size // 4}x{size // 4} /2",
    ]
    side, inputs = size // 4, stem
    for stage, (width, depth) in enumerate(stages):
        for block in range(depth):
            step = 2 if block == 0 and (stage or shrink) else 1
            before, side = side, max(side // step, 1)
            rows += _residual(kind, inputs, width, before, side, step)
            inputs = width
    classes = _classes(config, 1000)
    rows += [f"pool 1x1 {inputs} @1x1", f"linear {inputs}->{classes} +b"] if classes else []
    return _network(name, rows, size), "ResNet"


def _residual(kind: str, inputs: int, width: int, before: int, side: int, step: int) -> list[str]:
    stride, at = f" /{step}" if step > 1 else "", f"@{side}x{side} +n"
    short = [f"conv 1x1 {inputs}->{width}{stride} {at}"] if inputs != width or step > 1 else []
    if kind == "basic":
        return [f"conv 3x3 {inputs}->{width}{stride} {at}", f"conv 3x3 {width}->{width} {at}", *short]
    inner = max(width // 4, 1)
    return [
        f"conv 1x1 {inputs}->{inner} @{before}x{before} +n",
        f"conv 3x3 {inner}->{inner}{stride} {at}",
        f"conv 1x1 {inner}->{width} {at}",
        *short,
    ]


def convnext(config: Config, model_type: str, name: str, warnings: list[str]) -> Reading:
    """ConvNeXt: depthwise 7x7, norm, two linear layers four times as wide, a scale for each channel."""
    stages = _stages(config, [96, 192, 384, 768], [3, 3, 9, 3])
    patch, inputs = config.integer("patch_size", default=4), config.integer("num_channels", default=3)
    size = _image(config, warnings)
    side, rows = max(size // patch, 1), []
    # The second version normalises responses (two vectors, four times as wide) instead of scaling channels.
    second = model_type == "convnextv2"
    for stage, (width, depth) in enumerate(stages):
        if stage:
            rows.append(f"norm {inputs} @{side * side}")
            side = max(side // 2, 1)
        step = 2 if stage else patch
        rows.append(f"conv {step}x{step} {inputs}->{width} /{step} @{side}x{side} +b")
        area, inputs = side * side, width
        if not stage:
            rows.append(f"norm {width} @{area}")
        rows += depth * [
            f"dwconv 7x7 {width} @{side}x{side} +b",
            f"norm {width} @{area}",
            f"linear {width}->{4 * width} @{area} +b",
            f"linear {4 * width}->{width} @{area} +b",
            f"norm {4 * width} @{area}" if second else f"dwconv 1x1 {width} @{side}x{side}",
        ]
    classes = _classes(config, 1000)
    rows += [f"norm {inputs} @1", *([f"linear {inputs}->{classes} +b"] if classes else [])]
    return _network(name, rows, size), "ConvNeXt"


NETWORKS: dict[str, Callable[[Config, str, str, list[str]], Reading]] = {
    **dict.fromkeys(("bert", "roberta", "xlm-roberta", "camembert", "electra", "mpnet", "distilbert"), bert),
    "deberta-v2": deberta,
    "modernbert": modern_bert,
    **dict.fromkeys(("nomic_bert", "new", "eurobert"), long_context),
    "longformer": longformer,
    **dict.fromkeys(("t5", "mt5", "umt5"), t5),
    **dict.fromkeys(("bart", "mbart", "m2m_100", "plbart", "pegasus", "marian"), bart),
    "whisper": whisper,
    **dict.fromkeys(("vit", "deit"), vit),
    **dict.fromkeys(("dinov2", "dinov2_with_registers", "dinov3_vit"), dino),
    **dict.fromkeys(("clip_vision_model", "siglip_vision_model"), clip_tower),
    **dict.fromkeys(("clip", "siglip"), twin_towers),
    "resnet": resnet,
    **dict.fromkeys(("convnext", "convnextv2"), convnext),
}
