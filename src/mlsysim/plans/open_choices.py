"""What every task chooses where a plan says nothing: number format and fidelity."""

from __future__ import annotations

from mlsysim.hardware.types import HardwareNode
from mlsysim.models.base import Workload
from mlsysim.plans.plan import Plan

FIRST_ORDER = 0.5
"""Fraction of the peak where nothing is said and there are no layers to sum over."""


def precision_of(plan: Plan, assumed: dict[str, str], chip: HardwareNode, first: str = "bf16") -> str:
    """The plan's precision; where none is given a 16-bit format, or what the chip is made for where it has none.

    Microcontrollers are made for 8 bits also where they have 16.
    """
    if plan.workload.precision is not None:
        return plan.workload.precision
    have = () if chip.family == "mcu" else chip.compute.precision_flops
    chosen = next((name for name in (first, "bf16", "fp16") if name in have), chip.compute.headline)
    assumed["precision"] = chosen
    return chosen


def fidelity_of(plan: Plan, model: Workload, assumed: dict[str, str], known: bool | None = None) -> float | str:
    """The plan's efficiency; where none is given calibrated, if the model is ``known`` by the layers that times sum over."""
    given = plan.hardware.efficiency
    if given is not None:
        return given
    if model.has_layers if known is None else known:
        return "calibrated"
    assumed["fidelity"] = f"first order at efficiency {FIRST_ORDER}: {model.name} states no layers to sum over"
    return FIRST_ORDER
