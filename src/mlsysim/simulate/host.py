"""What goes between a replica and its host: caches of requests that are put back, and adapters (LoRA) that are not resident.

    a cache of b bytes       b / L out when it is taken, b / L back when the request is let in again (vLLM's swapping), instead of reading again
    an adapter of a bytes    a / L when a request that names it is let in and it is not there; the least recently used makes room

b and a are those of the fullest device, all of whose replica move their parts at once, and L is the rate of its link one way. The engine waits
meanwhile, as vLLM's does. A request whose adapter has no place, because all that are there are in use, waits; those behind it whose adapters are there
are let in before it, as vLLM's scheduler has it (``max_loras``).
"""

from __future__ import annotations

from collections import OrderedDict


class Host:
    """The host of one replica, over a ``link`` in bytes a second; at most ``places`` adapters of so many bytes are on the device."""

    def __init__(self, link: float, swaps: bool = False, places: int | None = None, adapter_bytes: float = 0.0) -> None:
        self.link, self.swaps, self.places, self.adapter_bytes = link, swaps, places, adapter_bytes
        self.resident: OrderedDict[str, int] = OrderedDict()
        """Adapters on the device, and how many requests use each."""
        self.loaded = self.idle = 0
        """Adapters that came, and those on the device that nobody uses."""
        self.changes = 0
        """How often it changed which adapters have a place."""

    def forget(self) -> None:
        """The device is empty."""
        self.resident.clear()
        self.idle = 0
        self.changes += 1

    def seconds(self, size: float) -> float:
        """Of so many bytes, one way."""
        return size / self.link

    def has_place(self, adapter: str | None) -> bool:
        """Whether an adapter is there or can be."""
        if adapter is None or self.places is None or adapter in self.resident:
            return True
        return self.idle > 0 or len(self.resident) < self.places

    def enters(self, adapter: str | None, away: float) -> float:
        """Seconds until an adapter, and a cache that was put away, are there."""
        found = self.seconds(away)
        if adapter is None or self.places is None:
            return found
        if adapter not in self.resident:
            if len(self.resident) >= self.places:
                del self.resident[next(name for name, users in self.resident.items() if not users)]
                self.idle -= 1
            self.resident[adapter] = 0
            self.loaded += 1
            self.idle += 1
            self.changes += 1
            found += self.seconds(self.adapter_bytes)
        self.idle -= not self.resident[adapter]
        self.resident[adapter] += 1
        self.resident.move_to_end(adapter)
        return found

    def leaves(self, adapter: str | None) -> None:
        """A request does not use its adapter any more."""
        if adapter is not None and self.places is not None:
            self.resident[adapter] -= 1
            if not self.resident[adapter]:
                self.idle += 1
                self.changes += 1
