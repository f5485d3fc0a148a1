"""``Models``: the model zoo."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from mlsysim.errors import unknown_name
from mlsysim.models.base import Workload
from mlsysim.zoo.checkpoints import Names
from mlsysim.zoo.registry import Registry, provenance

KINDS = {
    "transformer": "transformer.TransformerWorkload", "moe": "sparse.SparseTransformerWorkload",
    "ssm": "sparse.SSMWorkload", "hybrid": "sparse.HybridWorkload", "vit": "vision.VisionTransformerWorkload",
    "cnn": "vision.CNNWorkload", "diffusion": "vision.DiffusionWorkload", "speech": "multimodal.SpeechWorkload",
    "vision_language": "multimodal.VisionLanguageWorkload", "graph": "fixed_shape.GraphWorkload",
    "recommendation": "recommendation.RecommendationWorkload",
}  # fmt: skip
"""Module and class of every kind; a module is imported when the first of its kind is asked for."""

FILES = (
    "gpt.toml", "llama.toml", "open_llm.toml", "qwen.toml", "deepseek_kimi_glm.toml", "nemotron_ssm.toml",
    "gemma_phi_other.toml", "encoder.toml", "cnn.toml", "vit.toml", "diffusion.toml", "speech_multimodal.toml",
    "recommendation.toml", "tiny.toml",
)  # fmt: skip


def kind_of_model(kind: str) -> type[Workload]:
    """The class of a kind."""
    if kind not in KINDS:
        raise unknown_name("kind of model", kind, KINDS, remedy=f"use one of {', '.join(KINDS)}.")
    module, _, name = KINDS[kind].partition(".")
    return getattr(import_module(f"mlsysim.models.{module}"), name)


def build(key: str, table: dict[str, Any]) -> Workload:
    """A workload from the fields of an entry."""
    fields = {name: value for name, value in table.items() if name != "namespace"}
    metadata = provenance(key, fields)
    kind = fields.pop("kind", "transformer")
    if kind == "vision_language":
        fields["vision"], fields["language"] = Models.get(fields["vision"]), Models.get(fields["language"])
    return kind_of_model(kind)(metadata=metadata, **fields)


def _counted(name: str) -> Workload | None:
    """A network that was counted elsewhere, by its name there."""
    if not name.lower().startswith("timm/"):
        return None
    from mlsysim.models.counted import timm_network

    return timm_network(name[len("timm/") :])


Models = Registry(
    "Models",
    "model",
    Workload,
    {"architecture": "architecture", "parameters": "parameters"},
    build,
    names=FILES,
    namespaces=("Language", "Vision", "Multimodal", "Speech", "Diffusion", "Recommendation", "Tiny"),
    beyond=_counted,
    reads=Names(),
)
