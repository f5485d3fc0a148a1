"""A Hugging Face configuration as a workload: which reader takes which model type."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
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
from mlsysim.importers.towers import tower_parameters
from mlsysim.models.base import Workload
from mlsysim.models.transformer import TransformerWorkload
from mlsysim.models.vision import CNNWorkload
from mlsysim.physics.precision import precision_name

_TEXT = ("text_config", "llm_config", "language_config", "llm", "thinker_config")
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
    notes += [str(warning.message) for warning in raised]
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
    stored = None
    try:
        stored = None if dtype in (None, "auto") else precision_name(dtype)
    except UnknownNameError:
        notes.append(f"The format {dtype!r} is not known: the weights are taken in 16 bits.")
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


def _read(config: Config, text: Config | None, name: str, notes: list[str]) -> tuple[Workload, str]:
    model_type = config.text("model_type")
    unsupported = table("names")["unsupported"].get(model_type)
    if unsupported:
        raise InputError(f"{model_type!r} is {unsupported}, for which there is no workload type.")
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
    if config.has("audio_config"):
        notes.append("The audio encoder is not counted.")
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
