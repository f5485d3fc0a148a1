"""Memory of a pipeline stage trained without fused attention, as Korthikanti et al. (2022) count it.

    per layer   s b h (10 + 24/t + 5 a s/(h t))            tensor parallelism alone
                s b h/t (34 + 5 a s/h)                      with sequence parallelism
                the term 5 a s/h is dropped when the attention core is recomputed; 2 s b h (/t) when everything is
    first stage L (1 + (p - 1)/(p v)) layers                interleaved schedule

State is 18 bytes for each parameter of a layer: weight 2, gradient in fp32 4, Adam 12. The formula counts GELU, dropout
masks and scores in memory; for fused attention see :mod:`mlsysim.cases.capacity`.
"""

from __future__ import annotations

from typing import Any

from mlsysim.units.kernel import Arg, kernel
from mlsysim.units.ops import where

__all__ = ["layer_activations", "stage_layers_in_flight", "stage_state"]


@kernel(
    inputs={
        "tokens": Arg("", 1e3, 1e6),
        "hidden": Arg("", 1e3, 1e5),
        "scores": Arg("", 1, 1e3),
        "tensor_parallel": Arg("", 1, 8, whole=True),
        "byte": Arg("byte", 1, 1),
    },
    outputs={"alone": "byte", "sequence": "byte", "selective": "byte", "both": "byte", "full": "byte"},
)
def layer_activations(tokens: Any, hidden: Any, scores: Any, tensor_parallel: Any, byte: Any) -> Any:
    """Bytes that a layer keeps: tensor parallel; + sequence parallel; selective; both; everything recomputed.

    ``scores`` is heads x sequence / hidden.
    """
    unit = tokens * hidden * byte
    t = tensor_parallel
    return (
        unit * (10 + 24 / t + 5 * scores / t),
        unit / t * (34 + 5 * scores),
        unit * (10 + 24 / t),
        unit / t * 34,
        unit * 2,
    )


@kernel(
    inputs={"layers": Arg("", 1, 200), "stages": Arg("", 1, 64), "chunks": Arg("", 1, 16)}, outputs={"layers_kept": ""}
)
def stage_layers_in_flight(layers: Any, stages: Any, chunks: Any) -> Any:
    """Layers whose activations the first stage holds, over all micro-batches in flight."""
    return layers * where(chunks > 1, 1 + (stages - 1) / (stages * chunks), 1.0)


@kernel(
    inputs={"parameters": Arg("", 1e6, 1e13), "shards": Arg("", 1, 1e4), "state": Arg("byte", 6, 20)},
    outputs={"size": "byte"},
)
def stage_state(parameters: Any, shards: Any, state: Any) -> Any:
    """Weights, gradients and optimizer of a stage's layers."""
    return parameters / shards * state
