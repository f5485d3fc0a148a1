"""State and activations in host memory: what they free on the device, and what they cost each step.

A fraction f of the optimizer state S of a device (12 bytes for each parameter that it owns under mixed precision with
Adam: master weight and both moments) rests in the memory of its host. The device computes the update, so each step that
part comes in over the host link and goes back changed:

    T_host = f S / L        both directions at once: the link is full duplex and L is its rate in one direction

in chunks through a small buffer, after gradients are final, so nothing of it is hidden. The device then holds (1 - f) S.

Weights W that rest with the host come in for the forward and again for the backward pass of every micro-batch; activations A of a
micro-batch go out in the one and come back in the other. Both run beside computing, which waits where they take longer:

    t = max(W, A) / L + (W + A) / L        forward, then backward

The alternative (Ren et al., "ZeRO-Offload", ATC 2021) updates on the host and moves a gradient out and a weight in, 2 + 2
bytes for each parameter instead of 12 + 12; it is bound by the memory bandwidth of the host, which servers seldom
state, and is not modelled. Left out: the buffer (tens of MB), a host whose memory is too small, links that several
devices share, and prefetching of state during the backward pass, which would hide up to half where memory allows.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from mlsysim.errors import InputError
from mlsysim.hardware.types import HardwareNode
from mlsysim.units.kernel import kernel
from mlsysim.units.ops import maximum
from mlsysim.units.registry import to_si
from mlsysim.vocabulary import Setting, worded


@kernel("state: byte [1e6, 1e12], link: byte/s [1e9, 1e12] -> time: s")
def host_round_trip(state: Any, link: Any) -> Any:
    """Time for state to come from the host and return to it; ``link`` is the rate in one direction of a duplex link."""
    return state / link


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


def host_link(chip: HardwareNode, setting: str = "optimizer_offload") -> float:
    """Bytes a second between a chip and its host, one direction; a chip that states none cannot offload."""
    if chip.interconnect is None:
        raise InputError(
            worded(
                f"{chip.name} states no link to its host, so nothing can rest there; use ",
                Setting(setting, 0),
                ".",
            ),
            field=setting,
        )
    return to_si(chip.interconnect.bandwidth, "byte/s")
