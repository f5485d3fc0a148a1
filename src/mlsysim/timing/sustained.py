"""The rates that long products and attention of a chip sustain, in training and in serving.

Kernel tables are of bursts. Work that lasts is held by the chip's power: it keeps a share of them (``sustained``), which published training runs
tell for each chip (``data/software/training_constants.toml``). The work of a prompt is such work too.
"""

from __future__ import annotations

from mlsysim.errors import InputError
from mlsysim.hardware.arithmetic import arithmetic_peak
from mlsysim.hardware.registry import Hardware
from mlsysim.hardware.types import HardwareNode
from mlsysim.timing.kernels import Products
from mlsysim.timing.profile import constants_from, profile
from mlsysim.units.registry import to_si


def product_rate(chip: HardwareNode, precision: str) -> float:
    """Operations a second of long products at a precision: as they were measured on the chip, else a share of its peak."""
    own = profile(chip, "training")
    gemm = own.gemm_for(precision)
    measured = measured_products(chip, precision)
    if measured is not None:
        return measured
    if precision != "bf16" and not chip.compute.supports(precision):
        raise InputError(f"{chip.name} has no {precision} arithmetic.", field="precision")
    return peak_rate(chip, precision) * own.rate_scale * gemm.rate_share * gemm.kept


def measured_products(chip: HardwareNode, precision: str) -> float | None:
    """The same where products of this very precision were measured on the chip, else None."""
    own = profile(chip, "training")
    found: Products | None = own.gemm.get(precision)
    if found is None or found.rate is None:
        return None
    return to_si(found.rate, "flop/s") * against_measured(chip) * own.rate_scale * found.kept


def measured_attention(chip: HardwareNode) -> float | None:
    """Operations a second of causal attention over a prompt in 16 bits where it was measured on the chip, else None."""
    own = profile(chip, "training")
    rate = own.attention.rate
    return None if rate is None else to_si(rate, "flop/s") * against_measured(chip) * own.rate_scale


def peak_rate(chip: HardwareNode, precision: str) -> float:
    """Peak at a precision, or at the chip's own where it has no such arithmetic."""
    name = precision if chip.compute.supports(precision) else chip.compute.headline
    return arithmetic_peak(chip, name)[0]


def against_measured(chip: HardwareNode) -> float:
    """Peak of a chip over that of the one that its rates were measured on: the zoo's entry of its name.

    Measured rates belong to the chip as it is sold; of a hypothetical one with other figures they keep their share.
    """
    key = constants_from(chip).metadata.key
    if key is None or key not in Hardware or (sold := Hardware.get(key)) is chip:
        return 1.0
    return peak_rate(chip, "bf16") / peak_rate(sold, "bf16")
