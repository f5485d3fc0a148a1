"""A checkpoint: what is saved, and how long that takes.

    size = P (b_weight + b_optimizer)                                           14 byte each for Adam in mixed precision
    T_write = size / min(n B_writer, B_filesystem)

P parameters that are trained, n writers that each send at B_writer, a file system that takes in B_filesystem. Gradients are not
saved, nor are weights that do not change. The state is spread evenly over the writers and each byte is written once.

How long a run stands still for it (delta), how long a checkpoint then is of no use (L), and how long it takes to read one depends on the mode:

| mode | who writes, and where to | delta | L | read |
|---|---|---|---|---|
| sharded | every accelerator its share, to the file system | T_write | 0 | T_write |
| synchronous | those of one replica, to the file system | T_write | 0 | T_write |
| asynchronous | copied to the host, then as sharded in the background | size / (n B_host) | T_write | T_write |
| in_memory | copied to the host, then to the host of another node over the fabric | size / (n B_host) | size / (n B_port) | size / (n B_port) |
| object_store | copied to the host, then to an object store in the background, as fast as nodes reach it | size / (n B_host) | T_write | T_write |

A writer sends as fast as its port of the fabric and its storage (that of the chip, else a default) allow, up to the file system's rate (that of the
fleet, else a default); a node sends ``object_store_bandwidth`` to an object store, which takes all unless the plan says what. Left out: the time to open files (it counts where shares are small), compression, the state of the data
loader, the slow-down of training by a background write, and both copies in memory being lost at once.
"""

from __future__ import annotations

import math
from typing import Any

from mlsysim.errors import InputError
from mlsysim.models.adapters import adapter_parameters
from mlsysim.models.base import Workload
from mlsysim.models.keeping import state_bytes
from mlsysim.physics.precision import bytes_per_element
from mlsysim.systems.types import Fleet
from mlsysim.units.kernel import kernel
from mlsysim.units.ops import minimum
from mlsysim.units.records import dataclass
from mlsysim.units.registry import quantity, to_si
from mlsysim.zoo.constants import constant

MODES = ("sharded", "synchronous", "asynchronous", "in_memory", "object_store")
"""How a checkpoint is written; the first unless a plan says otherwise."""

_TRAINED_WEIGHT = 2.0
"""Bytes of the narrowest weight that training keeps: 8-bit training holds 16-bit weights, as in wall 2."""


@kernel("parameters [1e6, 1e13], weight: byte [1, 8], optimizer: byte [1, 12] -> size: byte")
def checkpoint_size(parameters: Any, weight: Any, optimizer: Any) -> Any:
    """Weights and optimizer state."""
    return parameters * (weight + optimizer)


@kernel("writers whole [1, 1e5], writer: byte/s [1e8, 1e13], filesystem: byte/s [1e8, 1e13] -> rate: byte/s")
def storage_rate(writers: Any, writer: Any, filesystem: Any) -> Any:
    """What writers send together, up to what the file system takes in."""
    return minimum(writers * writer, filesystem)


@kernel("size: byte [1e6, 1e14], rate: byte/s [1e8, 1e13] -> time: s")
def write_time(size: Any, rate: Any) -> Any:
    """Time to write a checkpoint."""
    return size / rate


@kernel("stall: s [0.01, 1e3], interval: s [60, 1e5] -> share")
def stall_share(stall: Any, interval: Any) -> Any:
    """Part of the time that a run stands still to be saved."""
    return stall / interval


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Bytes saved, by how many writers, at how many bytes a second each, into what takes how many; bytes a second between an accelerator
    and its host, and the mode."""

    size: Any
    writers: Any
    writer: Any
    filesystem: Any
    host: Any = math.inf
    mode: str = MODES[0]

    @property
    def burst(self) -> Any:
        """What the writers send together."""
        return self.writers * self.writer

    @property
    def rate(self) -> Any:
        """Bytes a second that arrive."""
        return storage_rate(self.writers, self.writer, self.filesystem)

    @property
    def write(self) -> Any:
        """Seconds of the write."""
        return write_time(self.size, self.burst if self.mode == "in_memory" else self.rate)

    @property
    def stall(self) -> Any:
        """Seconds that the run stands still for it."""
        return self.write if self.mode in MODES[:2] else write_time(self.size, self.writers * self.host)

    @property
    def lag(self) -> Any:
        """Seconds that it is written in the background, and is no use until then."""
        return 0.0 if self.mode in MODES[:2] else self.write


def saved_bytes(precision: str, optimizer: str, model: Workload) -> tuple[float, float]:
    """Bytes of a weight and of its optimizer state; ``none`` saves weights alone."""
    if optimizer == "none":
        return bytes_per_element(precision), 0.0
    weight = max(bytes_per_element(precision), _TRAINED_WEIGHT)
    return weight, state_bytes(model, optimizer, weight)


def writer_rate(fleet: Fleet) -> float:
    """Bytes a second that one accelerator of a fleet can write: its port, and its storage or the default."""
    storage = fleet.node.accelerator.storage
    stored = constant("storage_bandwidth").quantity if storage is None else storage.bandwidth
    return min(float(to_si(rate, "byte/s")) for rate in (fleet.bandwidth_per_accelerator, stored))


def run_checkpoint(
    model: Workload,
    fleet: Fleet,
    accelerators: Any,
    precision: str,
    optimizer: str,
    lora_rank: int | None = None,
    mode: str | None = None,
    lora_targets: str = "attention",
) -> Checkpoint:
    """The checkpoint of a training run; ``accelerators``, which may be an array, write it."""
    trained = model.parameter_count if lora_rank is None else adapter_parameters(model, lora_rank, lora_targets)
    size = checkpoint_size(trained, *saved_bytes(precision, optimizer, model))
    stored = fleet.storage_bandwidth or constant("filesystem_bandwidth").quantity
    chip, host, writer = fleet.node.accelerator, math.inf, writer_rate(fleet)
    if mode in MODES[2:]:
        if chip.interconnect is None:
            raise InputError(
                f"{chip.name} states no link to its host, so a checkpoint cannot be copied there; use sharded or synchronous.",
                field="checkpoint_mode",
            )
        host = to_si(chip.interconnect.bandwidth, "byte/s")
    if mode == "in_memory":
        writer = min(host, float(to_si(fleet.bandwidth_per_accelerator, "byte/s")))
    if mode == "object_store":
        writer = min(
            writer, to_si(constant("object_store_bandwidth").quantity, "byte/s") / fleet.node.accelerators_per_node
        )
        stored = fleet.storage_bandwidth or quantity(math.inf, "byte/s")
    return Checkpoint(size, accelerators, writer, to_si(stored, "byte/s"), host, mode or MODES[0])
