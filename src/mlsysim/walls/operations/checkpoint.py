"""Wall 19, checkpoint: how long it takes to save a model in training, and how much of the machine that costs.

    size = P (b_weight + b_optimizer)                                           14 byte each for Adam in mixed precision
    T_write = size / min(n B_writer, B_filesystem)
    penalty = T_stall / interval                                                (Eisenman et al., NSDI 2022)

P parameters, n writers that each send at B_writer, a file system that takes in B_filesystem. Gradients are not saved. A
synchronous checkpoint stalls the run for the whole write; an asynchronous one only for the copy to host memory, size / n over
each writer's host link, while the write goes on in the background and must end before the next one begins.

Assumed: the state is spread evenly over the writers and each byte is written once (no data-parallel copies). Left out: the
time to open files (it counts where shares are small), compression, the state of the data loader, host memory
for the copy, and the slow-down of training by the background write. Reading a checkpoint after a failure takes about as
long as writing it; that belongs to the recovery time of wall 15.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from mlsysim.cases.assumptions import CHIP
from mlsysim.cases.checkpoint import Checkpoint, checkpoint_size, saved_bytes, stall_share
from mlsysim.errors import InputError
from mlsysim.physics.training_memory import OPTIMIZERS
from mlsysim.units.registry import conversion_factor, to_si
from mlsysim.walls.base import Assumptions, Binding, Inputs, Resolver, declared, wall_says, written
from mlsysim.walls.result import Memory, MemoryRate, Result, Time

CARDS = """
19 Checkpoint: storage bandwidth in bursts
penalty = T_write / T_interval (Eisenman et al. 2022)
How long does saving the run take, and what does that cost?
"""

_HOUR = conversion_factor("h", "s")


class CheckpointResult(Result):
    """Size and time of a checkpoint, and what it costs."""

    checkpoint_size: Annotated[Memory, "size"]
    bytes_per_parameter: float
    write_time_seconds: Annotated[Time, "write"]
    stall_time: Time
    snapshot_time: Time
    write_bandwidth: Annotated[MemoryRate, "rate"]
    max_bandwidth_required: Annotated[MemoryRate, "burst"]
    storage_bottleneck: bool
    bottleneck: str
    mfu_penalty_pct: float


class CheckpointModel(Resolver[CheckpointResult]):
    """Size of a checkpoint, time to write it, and the share of the run that it takes."""

    walls = (19,)
    inputs = declared(f"""
        model, hardware
        optimizer = adam | one of {", ".join(OPTIMIZERS)}, none | optimizer whose state is saved; none for weights alone
        checkpoint_interval_hours = constant checkpoint_interval | (0, inf) h, plain | time between two checkpoints | 4 h
        n_writers = 1 | whole [1, 1e7] | accelerators or hosts that write at once
        filesystem_limit_gbs = constant filesystem_bandwidth | (0, inf) byte/s, plain GB/s | what the file system takes in from \
            all writers | 500 GB/s
        precision
        asynchronous = no | flag | write in the background after a copy to host memory
        writer_bandwidth? | (0, inf) byte/s, plain GB/s | what one writer sends; the storage bandwidth of the chip where none \
            is given | 7 GB/s
        bytes_per_parameter? | (0, 64] | bytes saved for each parameter, instead of optimizer and precision
    """)
    equations = written(r"""
        checkpoint_size: size = P (b_weight + b_optimizer)
            S = P\,(b_w + b_o)
            P = parameters, b_weight = weight in byte, b_optimizer = optimizer in byte
        write_time_seconds: T_write = size / min(n B_writer, B_filesystem)
            T_{\mathrm{write}} = \frac{S}{\min(n\,B_w, B_{\mathrm{fs}})}
            size = checkpoint_size in byte, n = n_writers, B_writer = writer in byte/s, B_filesystem = filesystem_limit_gbs in byte/s
        mfu_penalty_pct: penalty = 100 T_stall / interval
            \mathrm{penalty} = 100\,\frac{T_{\mathrm{stall}}}{T_{\mathrm{interval}}}
            T_stall = stall_time in s, interval = checkpoint_interval_hours in s
    """)
    known_fallacies = (
        "More writers make checkpoints faster: only until the file system is saturated.",
        "A checkpoint is as large as the model: with Adam it is seven times as large.",
        "Asynchronous checkpoints are free: the copy stalls the run, and the write must end before the next begins.",
    )

    def _solve(self, x: Inputs, assumed: Assumptions) -> CheckpointResult:
        """Size, write time and cost of checkpoints."""
        chip = x.hardware
        weight, optimizer = saved_bytes(x.precision, x.optimizer, x.model)
        if x.bytes_per_parameter is not None:
            weight, optimizer = float(x.bytes_per_parameter), 0.0
            assumed.pop("optimizer", None)
            assumed.pop("precision", None)
        writer = x.writer_bandwidth
        if writer is None:
            if chip.storage is None:
                words = "does not state a storage bandwidth; pass writer_bandwidth=... (such as '7 GB/s')"
                raise InputError(f"{chip.name} {words}.", field="writer_bandwidth")
            writer = to_si(chip.storage.bandwidth, "byte/s")
            assumed.say("writer_bandwidth", writer, CHIP, f"{writer / 1e9:g} GB/s (storage of {chip.name})")
        size = checkpoint_size(x.model.parameter_count, weight, optimizer)
        saved, snapshot = Checkpoint(size, x.n_writers, writer, x.filesystem_limit_gbs), None
        if x.asynchronous:
            if chip.interconnect is None:
                remedy = "give the chip an 'interconnect', or write synchronously"
                lacks = f"{chip.name} has no host link to copy the state over"
                raise InputError(f"{lacks}; {remedy}.", field="asynchronous")
            saved = replace(saved, host=to_si(chip.interconnect.bandwidth, "byte/s"), mode="asynchronous")
            snapshot = saved.stall
        stall, interval = saved.stall, x.checkpoint_interval_hours * _HOUR
        full = saved.burst > saved.filesystem
        return CheckpointResult.of(
            assumed,
            saved,
            x,
            feasible=saved.write < interval,
            binding=_binding(saved, stall, interval),
            bytes_per_parameter=weight + optimizer,
            stall_time=stall,
            snapshot_time=snapshot,
            storage_bottleneck=full,
            bottleneck="Filesystem" if full else "Writers",
            mfu_penalty_pct=100 * stall_share(stall, interval),
            shown={"parameters": x.model.parameter_count, "weight": weight, "optimizer": optimizer},
        )


def _binding(saved: Checkpoint, stall: float, interval: float) -> Binding:
    writing, burst, filesystem = saved.write, saved.burst, saved.filesystem
    side, sets = ("the file system", "sets") if burst > filesystem else ("the writers", "set")
    margin = max(burst, filesystem) / min(burst, filesystem)
    if writing >= interval:
        late = f"a write takes {writing:,.0f} s and the next begins after {interval:,.0f} s"
        return wall_says(19, margin, f" binds: {late}; save less often, or widen {side}.")
    stalls = f"which stalls the run for {stall:,.3g} s, {stall / interval:.2%} of an interval"
    return wall_says(19, margin, f": {side} {sets} a write of {writing:,.3g} s, {stalls}.")
