"""The peak of a chip at a number format."""

from __future__ import annotations

from typing import Any

from mlsysim.physics.precision import compute_precision, is_narrow
from mlsysim.units.registry import to_si


def arithmetic_peak(chip: Any, precision: str) -> tuple[float, str]:
    """Peak at a precision, and a note where weights in it are computed at a wider one.

    Formats narrower than the chip's arithmetic are expanded on the way in (weight-only quantisation): they save bytes,
    not operations.
    """
    core = chip.compute
    wanted = compute_precision(precision)
    if core.supports(wanted):
        return to_si(core.peak(wanted), "flop/s"), ""
    if is_narrow(wanted):
        for wider in ("bf16", "fp16", "fp32"):
            if core.supports(wider):
                note = f"{wanted} weights computed in {wider}: {chip.name} has no {wanted} arithmetic"
                return to_si(core.peak(wider), "flop/s"), note
    return to_si(core.peak(precision), "flop/s"), ""
