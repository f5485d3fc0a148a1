"""The smallest changes that would make a model fit, and the memory it needs, gathered for the walls."""

from __future__ import annotations

import math

from mlsysim.models.base import Workload
from mlsysim.models.footprint import (
    TrainingState,
    adapter_parameters,
    inference_bytes,
    local_parameters,
    training_state,
)
from mlsysim.physics.precision import bytes_per_element
from mlsysim.vocabulary import Setting, worded

__all__ = [
    "TrainingState",
    "adapter_parameters",
    "inference_bytes",
    "local_parameters",
    "remedies",
    "training_remedies",
    "training_state",
]


def remedies(needed: float, available: float, precision: str, place: str = "") -> list[str]:
    """The smallest changes that would make inference fit, cheapest first.

    A microcontroller (``place`` says which of its memories is short) does not share a network with others: it takes a chip with
    more of that memory.
    """
    found = []
    if place:
        return [f"use a smaller network or a chip with {needed / available:.2g} times as much {place}"]
    weight = bytes_per_element(precision)
    for name in ("fp8", "int4"):
        if bytes_per_element(name) < weight and needed * bytes_per_element(name) / weight <= available:
            found.append(f"store the weights in {name}")
            break
    found.append(f"use {math.ceil(needed / available)} devices")
    return found


def training_remedies(
    model: Workload,
    batch: int,
    seq_len: int,
    precision: str,
    available: float,
    *,
    optimizer: str,
    recompute: str,
    zero_stage: int,
    dp: int,
    lora_rank: int | None,
) -> list[str]:
    """The smallest changes that would make a training step fit, cheapest first; only those that do."""

    def fits(mode: str = recompute, stage: int = zero_stage, rank: int | None = lora_rank, group: int = dp) -> bool:
        state = training_state(
            model,
            batch,
            seq_len,
            precision,
            optimizer=optimizer,
            recompute=mode,
            zero_stage=stage,
            dp=group,
            lora_rank=rank,
        )
        return state.total <= available

    found: list[str] = []
    if recompute != "full" and fits(mode="full"):
        found.append(worded("recompute activations (", Setting("activation_recomputation", "full"), ")"))
    for stage in range(zero_stage + 1, 4):
        if dp > 1 and fits(stage=stage):
            shared = f"share the state over the {dp} data-parallel devices ("
            found.append(worded(shared, Setting("zero_stage", stage), ")"))
            break
    if lora_rank is None and fits(rank=16):
        found.append(worded("train adapters only (", Setting("is_lora", True), ")"))
    for devices in (2**n for n in range(1, 17)):
        if devices > dp and fits(mode="full", stage=3, group=devices):
            found.append(f"use {devices} devices with ZeRO 3 and full recomputation")
            break
    return found or ["use a smaller batch or sequence: its activations alone do not fit"]
