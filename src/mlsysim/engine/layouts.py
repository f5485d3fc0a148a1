"""A layout that fits, where none is given: as simple as possible, as split as necessary.

Tensor parallelism stays inside the node. Degrees grow in the order in which they cost least: tensors up to a node, then
ZeRO 1, recomputation, stages. The ParallelismOptimizer finds the best layout; this finds the first that fits.
"""

from __future__ import annotations

from typing import Any

from mlsysim.cases.job import Job
from mlsysim.cases.layout import Layout, choose_micro_batches, divisors
from mlsysim.cases.training_memory import MODES, on_device, training_held
from mlsysim.models.base import Workload
from mlsysim.systems.types import Fleet
from mlsysim.units.registry import to_si
from mlsysim.zoo.constants import constant


def first_fitting_layout(
    model: Workload, fleet: Fleet, batch: int, seq_len: int, precision: str
) -> dict[str, Any] | None:
    """Keyword arguments for DistributedModel of the first layout that fits, or None."""
    accelerators, per_node = fleet.total_accelerators, fleet.node.accelerators_per_node
    capacity = to_si(fleet.node.accelerator.memory.capacity, "byte")
    headroom = constant("allocator_overhead_fraction").number
    heads = getattr(model, "heads", None) or 1
    layers = getattr(model, "layers", None) or 1
    tps = [t for t in divisors(per_node) if heads % t == 0]
    for pp in (p for p in divisors(accelerators) if p <= layers):
        for mode in MODES:
            for zero in (0, 1, 2, 3):
                for tp in tps:
                    if accelerators % (tp * pp) or batch % (accelerators // (tp * pp)):
                        continue
                    dp = accelerators // (tp * pp)
                    local = batch // dp
                    count = choose_micro_batches(local, pp) if pp > 1 else local
                    layout = Layout(dp, tp, pp, 1, 1, count, local)
                    job = Job(model, precision, seq_len, recompute=mode, zero=zero, headroom=headroom)
                    if on_device(training_held(job, layout)) <= capacity:
                        return {
                            "tp_size": tp,
                            "pp_size": pp,
                            "zero_stage": zero,
                            "activation_recomputation": mode,
                            "microbatch_count": count,
                        }
    return None
