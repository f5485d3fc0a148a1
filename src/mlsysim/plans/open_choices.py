"""What every task chooses where a plan says nothing: number format and fidelity."""

from __future__ import annotations

from mlsysim.hardware.types import HardwareNode
from mlsysim.plans.plan import Plan

__all__ = ["fidelity_of", "precision_of"]


def precision_of(plan: Plan, assumed: dict[str, str], chip: HardwareNode) -> str:
    """The plan's precision; where none is given bf16, or the widest of the usual formats that the chip computes in."""
    if plan.workload.precision is not None:
        return plan.workload.precision
    have = chip.compute.precision_flops
    chosen = next((name for name in ("bf16", "fp16", "fp32", "int8") if name in have), "bf16")
    assumed["precision"] = chosen
    return chosen


def fidelity_of(plan: Plan) -> float | str:
    """The plan's efficiency; calibrated where none is given."""
    given = plan.hardware.efficiency
    return "calibrated" if given is None else given
