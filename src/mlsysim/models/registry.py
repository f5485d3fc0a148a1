"""``Models``: the model zoo."""

from __future__ import annotations

from typing import Any

from mlsysim.errors import unknown_name
from mlsysim.models.base import Workload
from mlsysim.models.diffusion import DiffusionWorkload
from mlsysim.models.graph_workload import GraphWorkload
from mlsysim.models.hybrid import HybridWorkload, SSMWorkload
from mlsysim.models.multimodal import SpeechWorkload, VisionLanguageWorkload
from mlsysim.models.recommendation import RecommendationWorkload
from mlsysim.models.sparse import SparseTransformerWorkload
from mlsysim.models.transformer import TransformerWorkload
from mlsysim.models.vision import CNNWorkload, VisionTransformerWorkload
from mlsysim.zoo.registry import Registry, provenance

KINDS: dict[str, type[Workload]] = {
    "transformer": TransformerWorkload, "moe": SparseTransformerWorkload, "ssm": SSMWorkload,
    "hybrid": HybridWorkload, "vit": VisionTransformerWorkload, "cnn": CNNWorkload, "diffusion": DiffusionWorkload,
    "speech": SpeechWorkload, "vision_language": VisionLanguageWorkload, "recommendation": RecommendationWorkload,
    "graph": GraphWorkload,
}  # fmt: skip

FILES = (
    "gpt.toml", "llama.toml", "open_llm.toml", "qwen.toml", "deepseek_kimi_glm.toml", "nemotron_ssm.toml",
    "gemma_phi_other.toml", "encoder.toml", "cnn.toml", "vit.toml", "diffusion.toml", "speech_multimodal.toml",
    "recommendation.toml", "tiny.toml",
)  # fmt: skip


def build(key: str, table: dict[str, Any]) -> Workload:
    """A workload from the fields of an entry."""
    table = dict(table)
    metadata = provenance(key, table)
    table.pop("namespace", None)
    kind = table.pop("kind", "transformer")
    if kind not in KINDS:
        raise unknown_name("kind of model", kind, KINDS, remedy=f"use one of {', '.join(KINDS)}.")
    if kind == "vision_language":
        table["vision"], table["language"] = Models.get(table["vision"]), Models.get(table["language"])
    return KINDS[kind](metadata=metadata, **table)


def _counted(name: str) -> Workload | None:
    """A network that was counted elsewhere, by its name there."""
    if not name.lower().startswith("timm/"):
        return None
    from mlsysim.models.counted import timm_network

    return timm_network(name[len("timm/") :])


Models = Registry(
    "Models",
    "model",
    "mlsysim.models",
    FILES,
    build,
    {"name": "name", "architecture": "architecture", "parameters": "parameters", "source": "metadata.kind"},
    namespaces=("Language", "Vision", "Multimodal", "Speech", "Diffusion", "Recommendation", "Tiny"),
    kind=Workload,
    beyond=_counted,
)
