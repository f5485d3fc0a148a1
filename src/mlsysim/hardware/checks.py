"""What must hold of every chip."""

from __future__ import annotations

from itertools import pairwise

from mlsysim.hardware.types import HardwareNode
from mlsysim.units.registry import parse_quantity
from mlsysim.zoo.registry import Check, has_sources

# Lowest and highest credible value by family: memory bandwidth, main memory, TDP, headline peak.
_LIMITS: dict[str, dict[str, tuple[str, str]]] = {
    "gpu": {"bandwidth": ("20 GB/s", "30 TB/s"), "capacity": ("2 GiB", "600 GiB"), "tdp": ("5 W", "2500 W"), "peak": ("0.1 TFLOPs/s", "20 PFLOPs/s")},
    "tpu": {"bandwidth": ("10 GB/s", "12 TB/s"), "capacity": ("4 MiB", "256 GiB"), "tdp": ("1 W", "1200 W"), "peak": ("1 TFLOPs/s", "10 PFLOPs/s")},
    "npu": {"bandwidth": ("0.5 GB/s", "2 PB/s"), "capacity": ("256 KiB", "2 TiB"), "tdp": ("1 mW", "2000 W"), "peak": ("1 GFLOPs/s", "20 PFLOPs/s")},
    "wafer": {"bandwidth": ("1 PB/s", "100 PB/s"), "capacity": ("10 GiB", "100 GiB"), "tdp": ("10 kW", "40 kW"), "peak": ("1 PFLOPs/s", "200 PFLOPs/s")},
    "cpu": {"bandwidth": ("5 GB/s", "2 TB/s"), "capacity": ("1 GiB", "8 TiB"), "tdp": ("2 W", "700 W"), "peak": ("10 GFLOPs/s", "400 TFLOPs/s")},
    "soc": {"bandwidth": ("5 GB/s", "2 TB/s"), "capacity": ("1 GiB", "1 TiB"), "tdp": ("1 W", "400 W"), "peak": ("0.1 TFLOPs/s", "600 TFLOPs/s")},
    "mcu": {"bandwidth": ("10 MB/s", "20 GB/s"), "capacity": ("16 KiB", "16 MiB"), "tdp": ("0.1 mW", "10 W"), "peak": ("1 MFLOPs/s", "500 GFLOPs/s")},
}  # fmt: skip
_RIDGE = {"mcu": (0.001, 500.0), "wafer": (0.1, 100.0), "npu": (0.2, 10000.0)}
_USUAL_RIDGE = (0.2, 5000.0)
_PIN_TOLERANCE = 0.03


def dense_peaks_are_not_sparse(chip: HardwareNode) -> str | None:
    """A dense peak is at most the sparse peak of the same precision."""
    for precision, sparse in chip.compute.sparse_flops.items():
        dense = chip.compute.precisions.get(precision)
        if dense is not None and dense > sparse:
            return f"dense {precision} peak {dense:~P} exceeds the sparse peak {sparse:~P}"
    return None


def narrower_is_not_slower(chip: HardwareNode) -> str | None:
    """Within floating point, halving the width never lowers the peak: fp32 <= tf32 <= fp16 <= fp8 <= fp4."""
    order = [p for p in ("tf32", "fp16", "fp8", "fp4") if p in chip.compute.precisions]
    for wide, narrow in pairwise(order):
        if chip.compute.precisions[narrow] < chip.compute.precisions[wide] * 0.99:
            return f"{narrow} peak is below {wide} peak"
    return None


def within_limits_of_its_class(chip: HardwareNode) -> str | None:
    """Bandwidth, capacity, TDP and peak lie where chips of this family lie."""
    limits = _LIMITS.get(chip.family or "")
    if limits is None:
        return f"family {chip.family!r} is not one of {', '.join(_LIMITS)}"
    figures = (chip.memory.bandwidth, chip.memory.capacity, chip.tdp, chip.compute.peak_flops)
    for (name, bounds), value in zip(limits.items(), figures, strict=True):
        low, high = map(parse_quantity, bounds)
        if value is not None and not low <= value <= high:
            return f"{name} {value:~P} is outside {low:~P} to {high:~P} for a {chip.family}"
    return None


def ridge_point_is_sane(chip: HardwareNode) -> str | None:
    """The ridge point lies between a microcontroller's and a sparse accelerator's."""
    low, high = _RIDGE.get(chip.family or "", _USUAL_RIDGE)
    ridge = chip.ridge_point().to("flop/byte").magnitude
    return None if low <= ridge <= high else f"ridge point {ridge:.4g} flop/byte is outside {low} to {high}"


def bandwidth_is_width_times_rate(chip: HardwareNode) -> str | None:
    """Memory bandwidth is bus width times data rate per pin, where both are known."""
    memory = chip.memory
    if memory.bus_width_bits is None or memory.data_rate is None:
        return None
    expected = memory.bus_width_bits * memory.data_rate
    ratio = (memory.bandwidth / expected).to("").magnitude
    return None if abs(ratio - 1) <= _PIN_TOLERANCE else f"bandwidth is {ratio:.3f} of bus width times data rate"


def unknown_is_absent_not_zero(chip: HardwareNode) -> str | None:
    """No price, cache or carbon is zero: a value that is not known is left out. Rates and power of zero are no chip at all."""
    if (
        any(value is not None and value.magnitude == 0 for value in (chip.unit_cost, chip.memory.sram_capacity))
        or chip.embodied_carbon_kg == 0
    ):
        return "has a value of zero"
    return None


CHECKS: tuple[Check, ...] = (
    has_sources, dense_peaks_are_not_sparse, narrower_is_not_slower, within_limits_of_its_class, ridge_point_is_sane,
    bandwidth_is_width_times_rate, unknown_is_absent_not_zero,
)  # fmt: skip
