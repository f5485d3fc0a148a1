"""Replicas that nobody looks at, each played by itself: in this process or in others, the same to the last bit.

A router that does not look deals requests out as they come. What a replica does depends on its own requests only, and on the times up to which it
is advanced, since a jump that is cut in two is rounded twice; so those times go with the requests. What each saw is put together in the order of the
replicas.

A play is the same by its requests, so that nothing of it is written down on the way: replicas whose process died are played again here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import BrokenExecutor, Executor
from dataclasses import replace
from typing import NamedTuple

from mlsysim.cases.machines import Engines
from mlsysim.cases.traffic import Traffic
from mlsysim.simulate.bags import LATER
from mlsysim.simulate.live import NEVER, Spent
from mlsysim.simulate.record import EXACT, Record
from mlsysim.simulate.replica import Replica
from mlsysim.simulate.replicas import Kind, kind_of
from mlsysim.simulate.requests import TOGETHER, Request
from mlsysim.simulate.routers import router
from mlsysim.simulate.scheduling import Scheduling
from mlsysim.simulate.series import Series
from mlsysim.simulate.settings import Settings

Block = tuple[float, list[Request]]
"""Requests of one replica, and the time up to which it goes on when it has them."""


class Alone(NamedTuple):
    """What one replica did."""

    spent: Spent
    peak: float
    hits: list[int]
    series: Series
    scheduling: Scheduling
    jobs: tuple[int, int, int]
    """Requests of jobs that ended, tokens of theirs that were read and written."""
    groups: int = 1
    """Groups of a pipeline that are one replica."""


class Player:
    """One replica that is played by itself."""

    def __init__(self, kind: Kind, expected: int, many: int) -> None:
        chosen = kind.settings
        self.record = Record(-(-expected // many), chosen.limits, chosen.skip, EXACT // many, chosen.levels)
        self.replica, self.series = kind.replica(self.record.teller(), self.record, 1 / many), Series()

    def go(self, block: Block) -> None:
        """Some more requests."""
        until, requests = block
        self.replica.come(requests)
        noted(self.replica, self.series, until)
        self.record.settle(LATER)

    def finish(self, told: Callable[[], None] | None = None) -> tuple[Record, Alone]:
        """When no more come."""
        replica = self.replica
        replica.scheduling = replica.scheduling.flushed
        noted(replica, self.series, NEVER, told)
        replica.finish()
        return self.record, result(replica, self.series)


def noted(replica: Replica, series: Series, until: float, told: Callable[[], None] | None = None) -> None:
    """Advance a replica, and note its state on the way."""
    fills = replica.jobs is not None and until < NEVER
    while series.next < until and (fills or replica.outstanding):
        replica.advance(series.next)
        series.note(replica)
        if told is not None:
            told()
    replica.advance(until)


def result(replica: Replica, series: Series) -> Alone:
    """What is kept of a replica."""
    hits = [] if replica.prefixes is None else replica.prefixes.hits
    jobs = (0, 0, 0) if replica.jobs is None else (replica.jobs.ended, replica.jobs.read, replica.jobs.wrote)
    peak, groups = replica.peak_held / replica.room.bytes, int(replica.steps.iterations.groups)
    return Alone(replica.spent, peak, hits, series, replica.scheduling, jobs, groups)


def _play(
    machine: Engines, t: Traffic, settings: Settings, expected: int, many: int, blocks: list[Block]
) -> tuple[Record, Alone]:
    player = Player(kind_of(machine, t, settings), expected, many)
    for block in blocks:
        player.go(block)
    return player.finish()


def each_alone(
    machines: Sequence[tuple[Engines, Traffic]], blocks: Iterable[list[Request]], expected: int, settings: Settings
) -> tuple[Record, list[Alone]]:
    """Requests, some together, dealt out to the replicas of some machines."""
    kinds = [(kind_of(machine, t, settings), machine, t) for machine, t in machines]
    owners = [(machine, t) for kind, machine, t in kinds for _ in range(kind.many)]
    many, executor = len(owners), settings.executor
    players = [Player(kind, expected, many) for kind, _, _ in kinds for _ in range(kind.many)]
    chosen = router(settings)([player.replica for player in players])
    everyone, dealt = range(many), [list[Request]() for _ in range(many)]
    kept: list[list[Block]] = [[] for _ in range(many)]
    tell = settings.progress

    def told() -> None:
        if tell is not None and executor is None:
            tell(sum(player.record.answered for player in players), expected)

    def on(until: float) -> None:
        for number, own in enumerate(dealt):
            if executor is None:
                players[number].go((until, own))
            else:
                kept[number].append((until, own))
            dealt[number] = []

    size = 1
    for block in blocks:
        if many == 1:
            dealt[0] = block
        else:
            for request in block:
                dealt[chosen.choose(request, everyone, request.arrival)].append(request)
        on(block[-1].arrival if len(block) == size else 0.0)
        told()
        size = TOGETHER
    if executor is None:
        found = [player.finish(told) for player in players]
    else:
        found = _elsewhere(executor, owners, replace(settings, executor=None, progress=None), expected, kept)
    record = found[0][0]
    for other, _ in found[1:]:
        record.join(other)
    if tell is not None:
        tell(record.answered, expected)
    return record, [alone for _, alone in found]


def _elsewhere(
    executor: Executor,
    owners: list[tuple[Engines, Traffic]],
    settings: Settings,
    expected: int,
    kept: list[list[Block]],
) -> list[tuple[Record, Alone]]:
    many = len(owners)
    tasks = [(*owner, settings, expected, many, blocks) for owner, blocks in zip(owners, kept, strict=True)]
    try:
        asked = [executor.submit(_play, *task) for task in tasks]
    except BrokenExecutor:
        asked = []
    found = []
    for number, task in enumerate(tasks):
        try:
            found.append(asked[number].result())
        except (BrokenExecutor, IndexError):
            found.append(_play(*task))
    return found
