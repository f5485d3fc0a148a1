"""Data on its way to an accelerator: what a path delivers to each of those that share it, and a step with its preparation.

supply = bandwidth / (n a (1 - h))           n accelerators, a bytes read for each byte asked for, h of the reads cached
T_transform = B (1 - g) / R;  T_step = max(T_transform, T_accelerator) with prefetching, else their sum
"""

from __future__ import annotations

import math
from typing import Any

from mlsysim.units.kernel import kernel
from mlsysim.units.ops import maximum, minimum
from mlsysim.units.records import dataclass


@kernel("""
    bandwidth: byte/s [1e5, 1e12], sharers whole [1, 64], miss_fraction [0.01, 1],
    amplification [1, 10] -> supply: byte/s
""")
def path_supply(bandwidth: Any, sharers: Any, miss_fraction: Any, amplification: Any) -> Any:
    """What one accelerator gets through a shared path when only misses take it."""
    return bandwidth / (sharers * miss_fraction * amplification)


@kernel("demand: byte/s [1e5, 1e12], supply: byte/s [1e5, 1e12] -> utilization")
def pipeline_utilization(demand: Any, supply: Any) -> Any:
    """Demand over supply; above 1 the accelerator waits."""
    return demand / supply


@dataclass(frozen=True, slots=True)
class Path:
    """A way to the accelerator: its bandwidth, who shares it, bytes read for each, and the share of reads that take it."""

    path_bandwidth: float
    sharers: int
    amplification: float
    miss_fraction: float

    @property
    def supply(self) -> float:
        """Bytes a second for one accelerator."""
        return float(path_supply(self.path_bandwidth, self.sharers, self.miss_fraction, self.amplification))


@kernel("workers whole [1, 512], cores whole [1, 512], rate: 1/s -> rate: 1/s")
def worker_rate(workers: Any, cores: Any, rate: Any) -> Any:
    """Samples per second of all workers; those beyond the cores add nothing."""
    return minimum(workers, cores) * rate


@kernel("samples [1, 1e5], share [0.01, 0.99], rate: 1/s -> time: s")
def preparing_time(samples: Any, share: Any, rate: Any) -> Any:
    """Time to prepare a share of a batch."""
    return samples * share / rate


@kernel("transform: s [1e-4, 100], accelerator: s [1e-4, 100], overlap [0.5, 1] -> time: s")
def pipeline_step(transform: Any, accelerator: Any, overlap: Any) -> Any:
    """The longer of the two with prefetching (overlap 1), their sum without (overlap 0)."""
    return maximum(transform, accelerator) + (1 - overlap) * minimum(transform, accelerator)


@dataclass(frozen=True, slots=True)
class Fed:
    """A step of ``samples`` of which the processors prepare a share at a rate, in seconds."""

    samples: int
    share: float
    transform_time: float
    accelerator_step_time: float
    prefetch: bool

    @property
    def is_bottleneck(self) -> bool:
        return self.transform_time > self.accelerator_step_time

    @property
    def step_time(self) -> float:
        return float(pipeline_step(self.transform_time, self.accelerator_step_time, 1.0 if self.prefetch else 0.0))

    @property
    def accelerator_utilization(self) -> float:
        return self.accelerator_step_time / self.step_time

    @property
    def slowdown_factor(self) -> float:
        return self.step_time / self.accelerator_step_time

    @property
    def demand_rate(self) -> float:
        """Samples a second that the accelerator would take."""
        return self.samples / self.accelerator_step_time

    @property
    def delivered_rate(self) -> float:
        return self.samples / self.step_time

    @property
    def headroom_ratio(self) -> float | None:
        """The accelerator's time over that of the processors; None where these have nothing to do."""
        return self.accelerator_step_time / self.transform_time if self.transform_time > 0 else None

    def workers_needed(self, rate: float) -> int:
        """Workers of this rate that keep up."""
        return math.ceil(self.demand_rate * self.share / rate)
