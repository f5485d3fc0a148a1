"""The peak of a chip at a number format."""

from __future__ import annotations

from typing import Any

from mlsysim.physics.precision import bytes_per_element, compute_precision
from mlsysim.units.registry import to_si

__all__ = ["arithmetic_peak"]


def arithmetic_peak(chip: Any, precision: str) -> tuple[float, str]:
    """Peak at a precision, and a note where weights in it are computed at a wider one.

    Formats narrower than the chip's arithmetic are expanded on the way in (weight-only quantisation): they save bytes,
    not operations.
    """
    core = chip.compute
    wanted = compute_precision(precision)
    if core.supports(wanted):
        return to_si(core.peak(wanted), "flop/s"), ""
    width = bytes_per_element(wanted)
    if width < 2:
        for wider in ("fp8", "int8", "bf16", "fp16", "fp32"):
            if bytes_per_element(wider) > width and core.supports(wider) and bytes_per_element(wider) >= 2:
                note = f"{wanted} weights computed in {wider}: {chip.name} has no {wanted} arithmetic"
                return to_si(core.peak(wider), "flop/s"), note
    return to_si(core.peak(precision), "flop/s"), ""
