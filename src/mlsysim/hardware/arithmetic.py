"""The peak of a chip at a number format."""

from __future__ import annotations

import math
from typing import Any

from mlsysim.physics.precision import format_of, is_narrow
from mlsysim.units.registry import to_si

_WIDE = ("bf16", "fp16", "fp32")


def usual_format(chip: Any, own: str | None, otherwise: str = "bf16") -> str:
    """A 16-bit format of the chip: a checkpoint's ``own`` where it is none of the narrow ones; of a microcontroller what it is made for."""
    have = () if chip.family == "mcu" else chip.compute.precision_flops
    first = otherwise if own is None or is_narrow(own) else own
    return next((name for name in (first, "bf16", "fp16") if name in have), str(chip.compute.headline))


def run_format(chip: Any, model: Any, own: str | None) -> str:
    """What a model is run in where nobody says: its checkpoint's ``own`` format where that is narrow, else one of 16 bits that the chip has.

    Networks of fixed shape are taken to be in fp16, as encoders are, models that write in bf16.
    """
    if own is not None and is_narrow(own):
        return own
    plain = model.fixed_shape or getattr(model, "structure", "") == "encoder"
    return usual_format(chip, own, "fp16" if plain else "bf16")


def storage_formats(chip: Any) -> tuple[str, ...]:
    """Narrow formats to store weights in, widest first: of 8 bits the one that the chip multiplies in, of 4 bits integers, which every chip expands."""
    return "fp8" if chip.compute.supports("fp8") else "int8", "int4"


def arithmetic_peak(chip: Any, precision: str) -> tuple[float, str]:
    """Peak at a precision, and a note where weights in it are computed at a wider one.

    Formats that the chip does not multiply in are expanded on the way in (weight-only quantisation): they save bytes,
    not operations.
    """
    core, asked = chip.compute, format_of(precision)
    for name in asked.arithmetic:
        if core.supports(name):
            note = "" if asked.scaled_by(core) else f"{asked.name} taken as {name}: {chip.name} has no scales of blocks"
            return to_si(core.peak(name), "flop/s"), note
    if asked.narrow:
        wider = next((name for name in _WIDE if core.supports(name)), core.headline if asked.weight_only else None)
        if wider is not None:
            why = "only their storage is narrower"
            if not asked.weight_only:
                why = f"{chip.name} has no {asked.arithmetic[0]} arithmetic"
            note = f"{asked.name} weights computed in {wider}: {why}"
            return to_si(core.peak(wider), "flop/s"), note
    return to_si(core.peak(precision), "flop/s"), ""


def wide_note(chip: Any, precision: str) -> str:
    """Which units compute fp32 on a chip that has others for it."""
    if precision != "fp32" or not chip.compute.supports("tf32"):
        return ""
    own, other = (to_si(chip.compute.peak(name), "flop/s") / 1e12 for name in ("fp32", "tf32"))
    return f"fp32 on the vector units ({own:.3g} TFLOP/s), as PyTorch multiplies matrices unless told otherwise; tf32, which its convolutions take, has the matrix units ({other:.3g})"


def no_runs(precision: str) -> str:
    """Why intervals are wider in a format of more than 16 bits."""
    return f"no run in {precision} was measured, and its kernels are taken to reach what those of 16 bits do"


def expansion_rate(chip: Any, precision: Any) -> float:
    """fp32 peak of the vector units, which expand weights to 16 bits; infinite where the chip multiplies in the format.

    A chip that states none is taken to expand at no cost.
    """
    core, asked = chip.compute, format_of(precision)
    if not asked.narrow or not core.supports("fp32") or any(core.supports(name) for name in asked.arithmetic):
        return math.inf
    return to_si(core.peak("fp32"), "flop/s")
