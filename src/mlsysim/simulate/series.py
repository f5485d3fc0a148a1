"""Batch, queue and caches over time, and what requests lost to which cause; a few hundred points however long it was.

State is noted at times s, 2 s, 3 s, ... When there are ``MOST`` of them every other one is forgotten and s doubles, so that replicas that are played
apart have the same times, and a week takes no more memory than a minute.

    router       requests that wait where others of the pool have fewer waiting, beyond the mean:  sum over i of (q_i - ceil(mean q))+
    cold start   requests that wait while a replica starts, and those for which none is up

both integrated over the points, and taken from the waits that they are part of, so that all causes add up to the time of requests.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from mlsysim.simulate.live import Spent
    from mlsysim.simulate.replica import Replica

MOST, _FINEST = 400, 2.0**-6
QUEUES = ("prompts", "slots", "caches")


class Series:
    """Answers that are written and prompts that are read, requests that wait, and the share of the caches' room, of one replica."""

    def __init__(self) -> None:
        self.step, self.rows = _FINEST, list[tuple[int, int, float]]()

    @property
    def next(self) -> float:
        """When it is noted next."""
        return (len(self.rows) + 1) * self.step

    def note(self, replica: Replica) -> None:
        """The state of a replica that is as far as the next time."""
        batch = replica.n + len(replica.reading)
        self.rows.append((batch, replica.waiting.size, replica.taken(self.next)))
        if len(self.rows) == MOST:
            self.coarser()

    def coarser(self) -> None:
        """Half as many points."""
        self.rows, self.step = self.rows[1::2], 2 * self.step


class OverTime(NamedTuple):
    """All replicas at some times: requests that are worked on, that wait, the mean share of the caches' room, and replicas up."""

    times: list[float]
    batch: list[int]
    queue: list[int]
    caches: list[float]
    up: list[int]

    def times_more(self, factor: float) -> OverTime:
        """Of so many times as many replicas like these."""
        more = {name: [round(each * factor) for each in getattr(self, name)] for name in ("batch", "queue", "up")}
        return self._replace(**more)


def together(
    all_series: Sequence[Series], up: Sequence[int] | None = None, share: float = 1.0
) -> tuple[OverTime, float]:
    """Replicas side by side, each a ``share`` of one that people count, and the seconds that requests waited because they were not dealt out evenly."""
    step = max(each.step for each in all_series)
    for each in all_series:
        while each.step < step:
            each.coarser()
    many, length = len(all_series), max(len(each.rows) for each in all_series)
    found, uneven = OverTime([], [], [], [], []), 0.0
    for index in range(length):
        rows = [each.rows[index] for each in all_series if index < len(each.rows)]
        there = up[index] if up is not None and index < len(up) else many
        queue = sum(row[1] for row in rows)
        even = math.ceil(queue / max(there, 1))
        uneven += step * sum(max(row[1] - even, 0) for row in rows)
        found.times.append((index + 1) * step)
        found.batch.append(sum(row[0] for row in rows))
        found.queue.append(queue)
        found.caches.append(math.fsum(row[2] for row in rows) / max(there, 1))
        found.up.append(round(there * share))
    return found, uneven


def losses(spent: Spent, uneven: float = 0.0, starting: float = 0.0, homeless: float = 0.0) -> dict[str, float]:
    """Seconds of all requests by cause; they add up to ``spent.of_requests`` and to those in which no replica was up."""
    waits = spent.waits
    queues = sum(waits[each] for each in QUEUES)
    starting = min(starting, queues)
    uneven = min(uneven, queues - starting)
    left = 1.0 - (starting + uneven) / queues if queues else 1.0
    return {
        "decode": spent.writing,
        "prefill": spent.reading,
        "prompts of others": spent.disturbed,
        "queue for prompts": left * waits["prompts"],
        "slots": left * waits["slots"],
        "KV capacity": left * waits["caches"] + waits["put back"],
        "adapters": waits["adapters"],
        "running steps": waits["running"],
        "hand-over": spent.handed,
        "router": uneven,
        "cold start": starting + homeless,
    }
