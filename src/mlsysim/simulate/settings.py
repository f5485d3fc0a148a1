"""How a service is run beside what the case says of its machine and its clients."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Settings:
    """How replicas are run beside what the case says. ``limits`` in seconds by kind of time: what a request must keep to count as good."""

    scheduler: str | None = None
    limits: dict[str, float] | None = None
    block_tokens: int | None = None
    """Tokens of a hashed block where requests name theirs; None: no cache of prefixes."""
    clients: int | None = None
    """Requests are sent one after another by so many clients, each when its last one is answered; their arrivals are not looked at."""
    skip: float = 0.0
    """Seconds at the start whose requests are not counted."""
    router: str = "round_robin"
    """Who chooses the replica of a request: a name of :data:`mlsysim.simulate.routers.ROUTERS`."""
    overload: float = 1.5
    """Times as many requests as the idlest replica has, beyond which a router does not send more for a prefix."""
    preempts: str = "recompute"
    """What becomes of a cache that is taken: "recompute", its tokens are read again, or "swap", it goes to the host and comes back."""
    host_memory: float = 0.0
    """Bytes of the host's memory, for each device, for prefixes that the device forgets; over ``host_link`` bytes a second, the chip's own
    unless given."""
    host_link: float | None = None
    disk: float = 0.0
    """Bytes of disk, for each device, for prefixes that the host forgets, which are read at ``disk_rate`` bytes a second."""
    disk_rate: float | None = None
    adapters: int | None = None
    """Adapters that are on a device at a time; all of the machine's unless given."""
    seed: int = 0
    """Of what routers and failures draw."""
