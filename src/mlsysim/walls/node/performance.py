"""What walls 1 and 2 say of one pass on one device, or of one device of a fleet."""

from __future__ import annotations

from typing import Any

from mlsysim.units.fields import Words
from mlsysim.walls.result import Energy, Intensity, Memory, MemoryRate, Rate, Result, Time, WorkRate


class PerformanceProfile(Result):
    """What one device makes of one pass."""

    latency: Time
    latency_compute: Time
    latency_memory: Time
    latency_overhead: Time
    throughput: Rate
    bottleneck: str
    arithmetic_intensity: Intensity
    energy: Energy
    memory_footprint: Memory
    memory_capacity: Memory
    peak_flops_actual: WorkRate
    peak_bw_actual: MemoryRate
    mfu: float
    hfu: float
    phase: str
    constraint_trace: tuple[str, ...] = ()
    remedies: tuple[Words, ...] = ()
    offload_spill_bytes: Memory = None
    offload_effective_bw: MemoryRate = None
    interval: tuple[Time, Time] | None = None
    energy_interval: tuple[Energy, Energy] | None = None

    @property
    def energy_per_inference(self) -> Any:
        """Energy of one sample, or None where the chip's power is not known."""
        samples = self._facts.context["samples"]
        return None if self.energy is None else self.energy / samples

    def summary(self) -> str:
        """One line."""
        fit = "fits" if self.feasible else "does not fit"
        return f"{self.bottleneck}-bound, {self.latency.to('ms'):.4g~P}, {self.throughput:.4g~P}, MFU {self.mfu:.1%}, {fit}"
