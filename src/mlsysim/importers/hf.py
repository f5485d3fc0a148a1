"""A Hugging Face configuration as a workload: which reader takes which model type.

Vision towers and projectors in front of a language model: how many parameters they add.

A vision-language configuration nests the language model (``text_config``, or the keys of the language model itself) and the
tower (``vision_config``). The workload is the language model, which every command takes; the weights of tower and projector are
added to it, since they must be loaded, while the work for each image is left out.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from mlsysim.errors import DataWarning, InputError, UnknownNameError
from mlsysim.importers import table
from mlsysim.importers.decoder import FAMILIES, HEADS, LAYERS, WIDTH, decoder, finish
from mlsysim.importers.fields import Config
from mlsysim.importers.hybrid import HYBRIDS, restated
from mlsysim.importers.limits import check_bounds, load_json
from mlsysim.importers.networks import NETWORKS
from mlsysim.importers.quantisation import Quantisation, of_config, of_modelopt
from mlsysim.importers.report import ImportReport
from mlsysim.models.base import Workload
from mlsysim.models.transformer import TransformerWorkload
from mlsysim.models.vision import CNNWorkload
from mlsysim.physics.precision import format_of, precision_name

_TEXT = ("text_config", "llm_config", "language_config", "llm", "thinker_config")
_BESIDE = ("vision_config", "audio_config")
_VISION = ("vision_config", "vision_tower_config", "visual")


def import_config(data: Mapping[str, Any] | str | bytes, name: str | None = None) -> Workload:
    """The workload that a configuration describes: a dictionary, or the text of a config.json."""
    return read_config(data, name).workload


def read_config(
    data: Mapping[str, Any] | str | bytes,
    name: str | None = None,
    quantisation: Mapping[str, Any] | None = None,
    source: str = "",
) -> ImportReport:
    """The report on a configuration; ``quantisation`` is the content of a ``hf_quant_config.json`` beside it."""
    label = source or "the configuration"
    given = load_json(data, name=label, finite=False) if isinstance(data, str | bytes) else data
    check_bounds(given, name=label, finite=False, most=1_000_000)
    config = Config(given)
    title = (name or config.text("_name_or_path").rstrip("/").rsplit("/", 1)[-1] or _architecture(config))[:120]
    config.ignore("architectures", "_name_or_path", "transformers_version", "auto_map")
    notes: list[str] = []
    quantised = of_config(config)
    text = _language_section(config)
    if quantised is None and text is not None:
        quantised = of_config(text)
    if quantisation is not None:
        quantised = _prefer(of_modelopt(Config(quantisation, "hf_quant_config.")), quantised)
    with warnings.catch_warnings(record=True) as raised:
        warnings.simplefilter("always", DataWarning)
        workload, family = _read(config, text, title, notes)
    notes += [*(str(warning.message) for warning in raised), *config.cut]
    dtype = config.raw("torch_dtype", "dtype") or (text.raw("torch_dtype", "dtype") if text is not None else None)
    dtype = dtype[:40].removeprefix("torch.") if isinstance(dtype, str) else None
    differing = table("names")["differing"]
    odd = [
        key
        for key in config.unread
        if re.search(differing["layers"], key) and not re.search(differing["harmless"], key)
    ]
    if odd:
        notes.append(f"Nobody read {', '.join(odd[:5])}: layers may differ from what is counted.")
    parts = [key for key in config.unread if given.get(key) and re.search(differing["parts"], key)]
    if parts:
        notes.append(f"Nobody read {', '.join(parts[:5])}: these parts of the model are not counted.")
    stored = None
    try:
        stored = None if dtype in (None, "auto") else precision_name(dtype)
    except UnknownNameError:
        notes.append(f"The format {dtype!r} is not known: the weights are taken in 16 bits.")
    if quantised is None and stored is not None and format_of(stored).narrow:
        notes.append(f"The weights are said to be {dtype} and no quantisation is: they are taken in 16 bits.")
    own = (stored if stored in ("bf16", "fp16") else None) if quantised is None else quantised.format
    if own is not None:
        workload = workload.model_copy(update={"native_format": own})
    elif quantised is not None:
        notes.append(f"The quantisation {quantised.method!r} is no format that is known; weights are taken in 16 bits.")
    found: dict[str, Any] = {"unread": tuple(config.unread), "warnings": tuple(notes), "quantisation": quantised}
    return ImportReport.of(workload, family, dtype=dtype, source=source, **found)


def _prefer(first: Quantisation | None, second: Quantisation | None) -> Quantisation | None:
    """The file made by the quantiser speaks first; what it leaves open is taken from the configuration."""
    if first is None or second is None:
        return first or second
    kept = {key: value for key, value in first.model_dump().items() if value is not None}
    return second.model_copy(update=kept)


def _architecture(config: Config) -> str:
    named = config.raw("architectures")
    first = named[0] if isinstance(named, list) and named and isinstance(named[0], str) else ""
    return first or config.text("model_type") or "imported model"


def _language_section(config: Config) -> Config | None:
    """The part of a vision-language configuration that describes its language model, where it has a part of its own."""
    for key in _TEXT:
        if isinstance(config.raw(key), Mapping):
            section = config.section(key)
            if section is not None and section.has(*LAYERS, *WIDTH, *HEADS, "vocab_size", "text_config"):
                return _language_section(section) or section
    return None


def _contradiction(config: Config, model_type: str) -> str | None:
    """A sentence where the name of the class and the type are those of two families; the type is what its library reads."""
    stem = re.split(r"For|Model|LMHead", _architecture(config))[0].lower()
    known = {kind.replace("_", ""): kind for kind in (*FAMILIES, *NETWORKS, *HYBRIDS)}
    named, kind = known.get(stem, ""), model_type.replace("_", "")
    kin = (
        stem.startswith(kind)
        or kind.startswith(stem)
        or (named in FAMILIES and FAMILIES.get(model_type) == FAMILIES[named])
    )
    if not named or kind not in known or kin:
        return None
    return f"The type is {model_type!r} and the architecture {_architecture(config)!r}: it was read as the type says."


def _read(config: Config, text: Config | None, name: str, notes: list[str]) -> tuple[Workload, str]:
    model_type = config.text("model_type")
    unsupported = table("names")["unsupported"].get(model_type)
    if unsupported:
        raise InputError(f"{model_type!r} is {unsupported}, for which there is no workload type.")
    notes += [said] if (said := _contradiction(config, model_type)) else []
    if model_type in NETWORKS:
        found = NETWORKS[model_type](config, model_type, name, notes)
        if isinstance(found[0], CNNWorkload) and config.has(*HEADS, "vocab_size"):
            raise InputError(
                f"The type {model_type!r} is a network of convolutions, and the keys are those of a language model."
            )
        return found
    if text is None and not config.has(*_VISION):
        return _language(config, model_type, name, notes, None)
    return _vision_language(config, text, model_type, name, notes)


def _language(
    config: Config, model_type: str, name: str, notes: list[str], tied: bool | None
) -> tuple[TransformerWorkload, str]:
    if not model_type and config.has("ssm_cfg"):
        model_type = "mamba"
    if model_type in HYBRIDS:
        found = HYBRIDS[model_type](config, model_type, name, notes)
        if "num_attention_heads" in config.unread:
            notes.append(f"Models of type {model_type!r} have no attention, and the keys have: it is not counted.")
        return found
    draft = decoder(config, model_type, name, notes, tied)
    if model_type in table("names")["dense"] and draft.fields.get("experts", 1) > 1:
        notes.append(
            f"Models of type {model_type!r} have no experts, and the keys have: they are counted as the keys say."
        )
    return finish(draft), draft.family.label


def _fill(part: Config, model_type: str, notes: list[str]) -> None:
    """Parts of a nested configuration are written as differences from the values of their classes."""
    filled = part.fill(table("families")["defaults"].get(model_type, {}))
    if filled:
        notes.append(f"The defaults of {model_type!r} are taken for {', '.join(filled)}.")


def _vision_language(
    config: Config, text: Config | None, model_type: str, name: str, notes: list[str]
) -> tuple[TransformerWorkload, str]:
    language = text if text is not None else config
    own = language.text("model_type")
    kind = own if own in HYBRIDS or own in FAMILIES else model_type if model_type in FAMILIES else own or model_type
    if kind not in HYBRIDS and kind not in FAMILIES and model_type in ("llava", "llava_next"):
        kind = "llama"
    if text is not None:
        _fill(text, own, notes)
    tied = config.flag("tie_word_embeddings", default=False) if config.has("tie_word_embeddings") else None
    workload, family = _language(language, kind, name, notes, tied)
    vision = next((s for key in _VISION if isinstance(config.raw(key), Mapping) and (s := config.section(key))), None)
    if config.has("audio_config", "audio_processor"):
        notes.append("The audio encoder is not counted.")
    inner = next((s for key in _TEXT if isinstance(config.raw(key), Mapping) and (s := config.section(key))), None)
    if vision is None and inner is not None and (beside := [key for key in _BESIDE if inner.has(key)]):
        notes.append(f"The parts of {' and '.join(beside)} are not counted.")
    if vision is not None:
        _fill(vision, vision.text("model_type"), notes)
    if vision is None or not vision.has("hidden_size", "embed_dim", "vt_hidden_size", "width"):
        return workload, family
    assert workload.hidden_dim is not None
    towers = tower_parameters(vision, config, workload.hidden_dim, model_type, notes)
    notes.append(
        f"A vision language model: the {towers / 1e6:,.0f} M parameters of its vision tower and projector are counted, "
        "their work for each image is not."
    )
    update: dict[str, Any] = {"extra_parameters": workload.extra_parameters + towers}
    if workload.parameters is not None:
        update["parameters"] = workload.parameters + towers
    if getattr(workload, "experts", 1) > 1:
        update["active_parameters"] = workload.active_parameter_count
    return restated(workload, update), family


_MERGED = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe")
_GATED: dict[str, Any] = {"gated": True, "bias": False, "layer_norm": False, "patch_bias": False}


def tower_parameters(vision: Config, outer: Config, hidden: int, kind: str, warnings: list[str]) -> float:
    """Parameters of the tower and of the projector into a language model of width ``hidden``."""
    if kind in _MERGED:
        return _qwen(vision, hidden, kind)
    if kind.startswith("kimi"):
        return _moonvit(vision, hidden)
    if kind not in _KNOWN:
        warnings.append(
            f"The vision tower of type {kind[:40]!r} is counted as a plain one with a projector of two layers."
        )
    return _KNOWN.get(kind, _llava)(vision, outer, hidden)


def _tower(
    width: int, layers: int, ffn: int, patch: int, channels: int = 3, positions: int = 0, frames: int = 1,
    *, gated: bool = False, bias: bool = True, layer_norm: bool = True, patch_bias: bool = True,
    attention_bias: bool = True,
) -> float:  # fmt: skip
    """A transformer over patches."""
    e, matrices = width, 3 if gated else 2
    block = 4 * e * e + matrices * e * ffn + 2 * (2 * e if layer_norm else e)
    block += (4 * e if attention_bias else 0) + (matrices - 1) * ffn + e if bias else 0
    patches = channels * frames * patch**2 * e + (e if patch_bias else 0)
    return float(layers * block + patches + positions * e)


def _plain(vision: Config, *, patch_bias: bool = True) -> tuple[float, int, int]:
    """Parameters, width and layers of a tower with a position for each patch."""
    sizes = vision.sizes("tower")
    side = vision.integer("image_size", "force_image_size", default=224) // sizes["patch"]
    tower = _tower(**sizes, positions=min(side, 100_000) ** 2, patch_bias=patch_bias)
    return tower, sizes["width"], sizes["layers"]


def _two_layers(width: int, hidden: int) -> int:
    return width * hidden + hidden + hidden * hidden + hidden


def _qwen(vision: Config, hidden: int, kind: str) -> float:
    """Patches of two frames; a merger folds 2 x 2 patches into one token, Qwen3's also taps layers in between."""
    merge = vision.integer("spatial_merge_size", default=2) ** 2
    sizes = vision.sizes("qwen")
    second, gated, positions = kind == "qwen2_vl", kind == "qwen2_5_vl", 0
    if second:
        width = vision.integer("embed_dim")
        ffn = round(width * vision.number("mlp_ratio", default=4.0))
        out = vision.integer("hidden_size", default=hidden)
    else:
        width, out = vision.integer("hidden_size"), vision.integer("out_hidden_size", default=hidden)
        positions = 0 if gated else vision.integer("num_position_embeddings", default=0, least=0)
        ffn = vision.integer("intermediate_size")
    style = {"gated": gated, "layer_norm": not gated, "patch_bias": not (second or gated)}
    tower = _tower(width=width, ffn=ffn, positions=positions, **sizes, **style)
    folded = merge * width
    merger = folded * folded + folded + folded * out + out
    taps = len(vision.sequence("deepstack_visual_indexes") or [])
    return tower + merger + (width if gated else 2 * width) + taps * (merger + 2 * folded)


def _moonvit(vision: Config, hidden: int) -> float:
    sizes = vision.sizes("moonvit")
    grid = vision.integer("init_pos_emb_height", default=64) * vision.integer("init_pos_emb_width", default=64)
    tower, width = _tower(**sizes, positions=grid), sizes["width"]
    folded = 4 * width
    return tower + 2 * width + folded * folded + folded + folded * hidden + hidden + 2 * width


def _llava(vision: Config, outer: Config, hidden: int) -> float:
    """A CLIP (or SigLIP, or Pixtral) tower and two linear layers."""
    if vision.text("model_type") == "pixtral":
        return _pixtral_tower(vision) + _two_layers(vision.integer("hidden_size"), hidden)
    siglip = vision.text("model_type").startswith("siglip")
    tower, width, _ = _plain(vision, patch_bias=siglip)
    # CLIP: class token, its position, and norms before and behind; SigLIP: the norm behind.
    ends = 2 * width if siglip else 2 * width + 4 * width
    return tower + ends + _two_layers(width, hidden) + (hidden if outer.has("image_newline") else 0)


def _gemma3(vision: Config, outer: Config, hidden: int) -> float:
    tower, width, _ = _plain(vision)
    return tower + 2 * width + width * hidden + width


def _gemma4(vision: Config, outer: Config, hidden: int) -> float:
    """Four norms and norms of queries and keys in each layer; two tables of positions, one for each axis."""
    sizes = vision.sizes("pixtral")
    width, layers = sizes["width"], sizes["layers"]
    tower = _tower(**sizes, positions=2 * vision.integer("position_embedding_size", default=10240), **_GATED)
    head = vision.integer("head_dim", default=width // vision.integer("num_attention_heads", default=16))
    return tower + layers * (2 * width + 2 * head) + width * hidden + 2 * width


def _llama4(vision: Config, outer: Config, hidden: int) -> float:
    """Pixel shuffle with an adapter of two layers, then one linear layer."""
    tower, width, _ = _plain(vision, patch_bias=False)
    adapted = vision.integer("projector_input_dim", default=4096)
    output = vision.integer("projector_output_dim", "vision_output_dim", default=adapted)
    adapter = vision.integer("intermediate_size") * adapted + adapted * output
    return tower + 2 * width + 4 * width + adapter + output * hidden


def _pixtral_tower(vision: Config) -> float:
    sizes = vision.sizes("pixtral")
    return _tower(**sizes, **_GATED) + sizes["width"]


def _mistral3(vision: Config, outer: Config, hidden: int) -> float:
    """Pixtral's tower, a norm, a merger of 2 x 2 patches and two linear layers."""
    width = vision.integer("hidden_size")
    merge = outer.integer("spatial_merge_size", default=2) ** 2
    biases = 2 * hidden if outer.flag("multimodal_projector_bias", default=False) else 0
    return _pixtral_tower(vision) + width + merge * width * width + width * hidden + hidden * hidden + biases


def _internvl(vision: Config, outer: Config, hidden: int) -> float:
    """InternViT with scales of its residuals; pixel shuffle into two linear layers behind a norm."""
    tower, width, layers = _plain(vision)
    extra = 2 * width + 2 * layers * width  # class token and its position; two scales in each layer
    if not vision.flag("qkv_bias", "attention_bias", default=False):
        extra -= 3 * layers * width
    if vision.flag("qk_normalization", "use_qk_norm", default=False):
        extra += 2 * layers * width
    if vision.text("norm_type") == "rms_norm":
        extra -= 2 * layers * width
    folded = round(width / outer.number("downsample_ratio", default=0.5) ** 2)
    return tower + extra + 2 * folded + _two_layers(folded, hidden)


def _mllama(vision: Config, outer: Config, hidden: int) -> float:
    """Two stacks of layers, those behind with gates; positions of patches in each tile of each aspect ratio; one linear layer."""
    sizes = vision.sizes("tower")
    width, rear = sizes["width"], vision.integer("num_global_layers", default=8)
    ratios = vision.sequence("supported_aspect_ratios")
    shapes = 1 + (len(ratios) if ratios else vision.integer("max_aspect_ratio_id", default=8))
    tiles = vision.integer("max_num_tiles", default=4)
    positions = 1 + (vision.integer("image_size", default=448) // sizes["patch"]) ** 2
    sizes["layers"] += rear
    tower = _tower(**sizes, positions=positions + 1, patch_bias=False, attention_bias=False)
    tower += shapes * tiles * (positions + 2) * width + 3 + 4 * width + 2 * rear
    return tower + vision.integer("vision_output_dim", default=7680) * hidden + hidden


def _idefics(vision: Config, outer: Config, hidden: int) -> float:
    """SigLIP without its head; so many patches of a square are one token, behind one linear layer without a bias."""
    tower, width, _ = _plain(vision)
    return tower + 2 * width + outer.integer("scale_factor", default=2) ** 2 * width * hidden


def _paligemma(vision: Config, outer: Config, hidden: int) -> float:
    """SigLIP without its head and one linear layer."""
    tower, width, _ = _plain(vision)
    return tower + 2 * width + width * hidden + hidden


def _glm4v(vision: Config, outer: Config, hidden: int) -> float:
    """Patches of two frames; 2 x 2 of them become a token, which a gated merger as wide as the keys' feed-forward layer makes."""
    sizes = vision.sizes("qwen")
    width, out = vision.integer("hidden_size"), vision.integer("out_hidden_size", default=hidden)
    side = vision.integer("image_size", default=336) // sizes["patch"]
    style = _GATED | {"patch_bias": True}
    tower = _tower(width=width, ffn=out, positions=side**2, frames=sizes.pop("frames"), **sizes, **style)
    folded = vision.integer("spatial_merge_size", default=2) ** 2 * width
    merger = folded * out + out + out * out + 2 * out + 3 * out * vision.integer("intermediate_size")
    return tower + 2 * width + merger


_KNOWN: dict[str, Callable[[Config, Config, int], float]] = {
    "llama4": _llama4, "mllama": _mllama, "gemma3": _gemma3, "gemma4": _gemma4, "mistral3": _mistral3, "pixtral": _llava,
    "llava": _llava, "llava_next": _llava, "internvl": _internvl, "internvl_chat": _internvl,
    "idefics3": _idefics, "smolvlm": _idefics, "paligemma": _paligemma, "glm4v": _glm4v, "glm4v_moe": _glm4v,
}  # fmt: skip
