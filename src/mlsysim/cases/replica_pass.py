"""The parts of a pass of a serving replica, and how they are put together."""

from __future__ import annotations

from typing import Any

from mlsysim.units.kernel import kernel
from mlsysim.units.ops import maximum
from mlsysim.units.records import dataclass


@kernel("""
    compute: s [1e-6, 1e3], memory: s [1e-6, 1e3], communication: s [1e-6, 1e3], dispatch: s [1e-6, 0.01] -> time: s
""")
def pass_time(compute: Any, memory: Any, communication: Any, dispatch: Any) -> Any:
    """The longer of compute and memory; then the collectives, which wait for both; and the dispatch."""
    return maximum(compute, memory) + communication + dispatch


@kernel("""
    shared: byte [1e3, 1e13], experts: byte [1e3, 1e13], activations: byte [1e3, 1e13], cache: byte [1e3, 1e13],
    tensor_parallel whole [1, 1e3], expert_shards whole [1, 1e3], attention_groups whole [1, 1e3] -> moved: byte
""")
def device_bytes(
    shared: Any,
    experts: Any,
    activations: Any,
    cache: Any,
    tensor_parallel: Any,
    expert_shards: Any,
    attention_groups: Any,
) -> Any:
    """Bytes that the devices of one position read and write in a pass through all stages.

    ``cache`` is what one device of an attention group reads; the other arguments are totals of the replica.
    """
    return (
        shared / tensor_parallel + experts / expert_shards + activations / (tensor_parallel * attention_groups) + cache
    )


@dataclass(frozen=True, slots=True)
class PassTime:
    """One pass in its parts, in seconds; ``operations`` of the whole replica, in flop."""

    compute: Any
    weight_memory: Any
    cache_memory: Any
    communication: Any
    dispatch: Any
    operations: Any

    @property
    def memory(self) -> Any:
        """Weights, then caches and activations."""
        return self.weight_memory + self.cache_memory

    @property
    def total(self) -> Any:
        return pass_time(self.compute, self.memory, self.communication, self.dispatch)

    @property
    def bound(self) -> str:
        """Compute, Memory or Communication, whichever takes longest."""
        longest = max(self.compute, self.memory)
        if self.communication > longest:
            return "Communication"
        return "Compute" if self.compute >= self.memory else "Memory"
