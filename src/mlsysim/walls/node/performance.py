"""What walls 1 and 2 say of one pass on one device, or of one device of a fleet."""

from typing import Annotated, Any

from mlsysim.units.fields import Words
from mlsysim.walls.result import Energy, Intensity, Memory, MemoryRate, Rate, Result, Time, WorkRate


class PerformanceProfile(Result):
    """One pass on one device: time, rate, memory, energy and what binds."""

    latency: Annotated[Time, "timed.seconds"]
    latency_compute: Annotated[Time, "timed.compute"]
    latency_memory: Annotated[Time, "timed.memory"]
    latency_overhead: Annotated[Time, "timed.overhead"]
    throughput: Rate
    bottleneck: str
    arithmetic_intensity: Intensity
    energy: Annotated[Energy, "timed.energy"]
    memory_footprint: Annotated[Memory, "timed.needed"]
    memory_capacity: Annotated[Memory, "timed.capacity"]
    peak_flops_actual: WorkRate
    peak_bw_actual: MemoryRate
    mfu: float
    hfu: float
    phase: str
    constraint_trace: tuple[str, ...] = ()
    remedies: tuple[Words, ...] = ()
    offload_spill_bytes: Memory = None
    offload_effective_bw: MemoryRate = None
    interval: Annotated[tuple[Time, Time] | None, "timed.band"] = None
    energy_interval: Annotated[tuple[Energy, Energy] | None, "timed.energy_band"] = None

    @property
    def energy_per_inference(self) -> Any:
        """Energy of one sample, or None where the chip's power is not known."""
        samples = self._facts.context["samples"]
        return None if self.energy is None else self.energy / samples

    def summary(self) -> str:
        fit = "fits" if self.feasible else "does not fit"
        return f"{self.bottleneck}-bound, {self.latency.to('ms'):.4g~P}, {self.throughput:.4g~P}, MFU {self.mfu:.1%}, {fit}"
