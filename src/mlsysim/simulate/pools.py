"""Pools apart: some replicas read prompts, others write answers, and caches go from port to port in between.

    read at t     the cache leaves when both ports are free,    s = max(t, sender free, receiver free)
    there at      s + KV / W + t_0                              KV / W as the case has it, t_0 the engine's own time for it
    first token   the next step of the decode replica that begins then, and that step

A transfer has both ports for itself until it has ended; those that wait for them are sent in the order in which prompts were read. One
request alone takes what :mod:`mlsysim.cases.apart` says. Left out, as there: layers that are sent while later ones are computed. A cache
leaves room on its reader when the prompt is read, before it has been sent.
"""

from __future__ import annotations

from heapq import heappop, heappush

from mlsysim.cases.apart import fullest_port
from mlsysim.cases.machines import Engines
from mlsysim.cases.traffic import Traffic
from mlsysim.simulate.live import Done, Ended
from mlsysim.simulate.replicas import Kind
from mlsysim.simulate.requests import Request


class Between:
    """Caches on their way between two pools."""

    def __init__(self, machine: Engines, t: Traffic, readers: Kind, writers: Kind, whole: int | None = None) -> None:
        self.readers, self.writers, self.rate = readers, writers, t.network
        self.network, self.start = machine.writer.network, float(machine.writer.engine.hand_over)
        devices = machine.reader.deployment.devices * t.prefills + machine.writer.deployment.devices * t.replicas
        self.near = (whole or devices) <= self.network.domain
        self.sending = [0.0] * (-(-readers.many // readers.groups))
        self.receiving = [0.0] * (-(-writers.many // writers.groups))
        self.read: list[tuple[float, int, int, Request, float]] = []
        self.seconds = 0.0
        """Of all requests, between the pools."""
        self._numbered = 0
        self._known: dict[int, float] = {}

    def told(self, reader: int) -> Done:
        """What a reader does with a prompt that it has read."""

        def done(ended: Ended) -> None:
            request, begun, _, finish = ended
            self._numbered += 1
            heappush(self.read, (finish, self._numbered, reader, request, begun))

        return done

    def next(self, until: float) -> tuple[float, int, Request, float] | None:
        """The next prompt that was read by then: when, where, which, and since when it was read."""
        if not self.read or self.read[0][0] > until:
            return None
        at, _, reader, request, begun = heappop(self.read)
        return at, reader, request, begun

    def transfer(self, tokens: int) -> float:
        """Seconds of a cache of so many tokens, from port to port."""
        found = self._known.get(tokens)
        if found is None:
            reader, writer = self.readers.iterations, self.writers.iterations
            size = fullest_port(reader, writer, tokens) if self.rate is None else reader.cache_bytes(tokens)
            found = self._known[tokens] = float(self.network.hand_over(size, self.rate, self.near))
        return found

    def send(self, at: float, reader: int, writer: int, tokens: int) -> float:
        """When a cache that is sent from ``at`` on can be written to."""
        sender, receiver = reader // self.readers.groups, writer // self.writers.groups
        end = max(at, self.sending[sender], self.receiving[receiver]) + self.transfer(tokens)
        self.sending[sender] = self.receiving[receiver] = end
        self.seconds += end + self.start - at
        return end + self.start
