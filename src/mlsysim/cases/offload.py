"""State and activations in host memory: what they free on the device, and what they cost each step.

A fraction f of the optimizer state S of a device (12 bytes for each parameter that it owns under mixed precision with
Adam: master weight and both moments) rests in the memory of its host. The device computes the update, so each step that
part comes in over the host link and goes back changed:

    T_host = f S / L        both directions at once: the link is full duplex and L is its rate in one direction

in chunks through a small buffer, after gradients are final, so nothing of it is hidden. The device then holds (1 - f) S.

Weights W that rest with the host come in for the forward and again for the backward pass of every micro-batch; activations A of a
micro-batch go out in the one and come back in the other. Both run beside computing, which waits where they take longer:

    t = max(W, A) / L + (W + A) / L        forward, then backward

Where the host computes the update (``host_update``; Ren et al., "ZeRO-Offload", ATC 2021), gradients go out in 16 bits during the backward pass and wait there,
16-bit weights come back while others are updated, 2 + 2 bytes for each of P parameters instead of 12 + 12. The update reads the gradient, reads and
writes the state and writes the weight in the memory of the host, whose bandwidth M its accelerators share:

    T_host = max( (2 f S + 4 P) / (k M), 2 P / L )        28 bytes a parameter with Adam; k the share of M that such an update reaches

A device that has no room for gradients has none for their sum either: beside the computing of every micro-batch the sum comes in, is added to
and goes out again, one after the other through one buffer, t = 4 P / L (DeepSpeed, stage_1_and_2.py, async_accumulate_grad_in_cpu_via_gpu).

Left out: the buffer (tens of MB), a host whose memory is too small, links that several devices share, that only the backward pass hides gradients,
updates delayed by a step, and prefetching of state during the backward pass, which would hide up to half where memory allows.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from mlsysim.cases.job import Job
from mlsysim.errors import InputError
from mlsysim.hardware.types import HardwareNode
from mlsysim.systems.types import Node
from mlsysim.units.kernel import kernel
from mlsysim.units.ops import maximum
from mlsysim.units.registry import to_si
from mlsysim.vocabulary import Setting, worded


@kernel("state: byte [1e6, 1e12], link: byte/s [1e9, 1e12] -> time: s")
def host_round_trip(state: Any, link: Any) -> Any:
    """Time for state to come from the host and return to it; ``link`` is the rate in one direction of a duplex link."""
    return state / link


@kernel(
    "state: byte [1e6, 1e12], halves: byte [1e6, 1e12], link: byte/s [1e9, 1e12], memory: byte/s [1e9, 1e12] -> time: s"
)
def updated_by_host(state: Any, halves: Any, link: Any, memory: Any) -> Any:
    """Time of an update in host memory; ``halves`` are the bytes of its parameters in 16 bits."""
    return maximum((2 * state + 2 * halves) / memory, halves / link)


@kernel("weights: byte [0, 1e12], activations: byte [0, 1e12], link: byte/s [1e9, 1e12] -> time: s")
def beside_computing(weights: Any, activations: Any, link: Any) -> Any:
    """Time of a micro-batch's weights and activations over the host link, forward and backward."""
    return maximum(weights, activations) / link + (weights + activations) / link


class HostBytes(NamedTuple):
    """Bytes of a device with its host: optimizer state, weights, and activations of one micro-batch."""

    optimizer: Any = 0.0
    weights: Any = 0.0
    activations: Any = 0.0


class HostTimes(NamedTuple):
    """Seconds over the host link: of optimizer state once a step, and beside the computing of each micro-batch."""

    state: Any = 0.0
    beside: Any = None


RESIDENT = HostTimes()
"""Where nothing is with the host."""


def of_state(job: Job) -> tuple[str, int, str, str]:
    """What the part of a step is called that the state with the host takes."""
    if job.host_update:
        return "optimizer update on the host", 2, "host memory", "host update"
    return "optimizer state over the host link", 2, "host link", "host round trip"


def host_memory(node: Node, share: float) -> float:
    """Bytes a second of the host's memory that the update of one accelerator has; a node that states none cannot update there."""
    if node.host_bandwidth is None:
        text = f"{node.name} states no memory bandwidth of its host, so the host cannot be said to update; leave "
        raise InputError(worded(text, Setting("host_update"), " out."), field="host_update")
    return share * to_si(node.host_bandwidth, "byte/s") / node.accelerators_per_node


def host_link(chip: HardwareNode, setting: str = "optimizer_offload") -> float:
    """Bytes a second between a chip and its host, one direction; a chip that states none cannot offload."""
    if chip.interconnect is None:
        raise InputError(
            worded(
                f"{chip.name} states no link to its host, so nothing can rest there; use ", Setting(setting, 0), "."
            ),
            field=setting,
        )
    return to_si(chip.interconnect.bandwidth, "byte/s")
