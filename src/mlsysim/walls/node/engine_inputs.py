"""Inputs that the serving walls share."""

from __future__ import annotations

from mlsysim.timing.engines import ENGINES
from mlsysim.walls.inputs import Input

__all__ = ["CONCURRENCY", "ENGINE"]

ENGINE = Input("serving engine, for efficiency='calibrated'", kind="choice", choices=ENGINES, default="vLLM")
CONCURRENCY = Input(
    "clients in a closed loop, for efficiency='calibrated'", low=1, high=1e6, whole=True, default=None, example="64"
)
