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
    seed: int = 0
    """Of what routers and failures draw."""
