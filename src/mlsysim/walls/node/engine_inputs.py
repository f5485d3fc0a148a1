"""Inputs that the serving walls share."""

from __future__ import annotations

from mlsysim.timing.engines import ENGINES
from mlsysim.walls.inputs import Input

__all__ = ["CONCURRENCY", "ENGINE", "MEMORY_FRACTION"]

ENGINE = Input("serving engine, for efficiency='calibrated'", kind="choice", choices=ENGINES, default="vLLM")
CONCURRENCY = Input(
    "clients in a closed loop, for efficiency='calibrated'", low=1, high=1e6, whole=True, default=None, example="64"
)
MEMORY_FRACTION = Input(
    "fraction of the memory for weights and caches: all of it, or what the engine takes with efficiency='calibrated'",
    low=0,
    low_open=True,
    high=1,
    default=None,
    example="0.9",
)
