"""The workload types of layer A, gathered from their modules."""

from __future__ import annotations

from mlsysim.models.attention import CSA, MLA, SparseIndexer
from mlsysim.models.base import Workload
from mlsysim.models.fixed_shape import GraphOperator, GraphWorkload
from mlsysim.models.graph import ComputationGraph, Operator
from mlsysim.models.multimodal import SpeechWorkload, VisionLanguageWorkload
from mlsysim.models.passes import Sharding
from mlsysim.models.recommendation import RecommendationWorkload
from mlsysim.models.recurrent import LinearAttention, Mamba
from mlsysim.models.sparse import BlockKind, HybridWorkload, SparseTransformerWorkload, SSMWorkload
from mlsysim.models.transformer import TransformerWorkload
from mlsysim.models.vision import CNNWorkload, DiffusionWorkload, RowWorkload, VisionTransformerWorkload

__all__ = [
    "CSA", "MLA", "BlockKind", "CNNWorkload", "ComputationGraph", "DiffusionWorkload", "GraphOperator", "GraphWorkload",
    "HybridWorkload", "LinearAttention", "Mamba", "Operator", "RecommendationWorkload", "RowWorkload", "SSMWorkload",
    "Sharding", "SparseIndexer", "SparseTransformerWorkload", "SpeechWorkload", "TransformerWorkload",
    "VisionLanguageWorkload", "VisionTransformerWorkload", "Workload",
]  # fmt: skip
