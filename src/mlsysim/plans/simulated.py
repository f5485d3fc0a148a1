"""A way to serve as a simulation of its requests saw it: means, percentiles and a ledger of what their time went on.

The closed form ranks layouts; the last few are played. An interval is what the same play gives with every step as much shorter or longer
as the interval of a token's time says, since a queue multiplies errors of steps: near saturation 2 % of a step are 15 to 45 % of a
first token. (Steps that are f times as long are the same as requests that come f times as fast, on a clock that runs f times as slow.)
The first token has an error of its own beside that, combined as independent; of clients that wait for their answers what Little's law leaves
of it (:attr:`mlsysim.plans.served.Served.looped`). No percentile's interval is narrower than what published ones of its level were off by
when they were played: a server's tail has pauses of its host that no step has. Sampling error is apart from it, with the percentiles.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from typing import Any

from mlsysim.cases.failures import interruption_rate
from mlsysim.cases.ledger import Ledger, Part
from mlsysim.cases.request import (
    ANSWER,
    BATCHING,
    FIRST,
    FRONT_END,
    HAND_OVER,
    OTHERS,
    QUEUE,
    RUNNING,
    SERVING,
    SOFTWARE,
    TAIL,
    scaled,
    work_of,
)
from mlsysim.errors import InputError
from mlsysim.plans.arrivals import Arrivals
from mlsysim.plans.served import Served
from mlsysim.plans.targets import parse_targets, percent
from mlsysim.simulate.record import LEVELS, Percentiles
from mlsysim.simulate.requests import Request
from mlsysim.simulate.routers import router_class
from mlsysim.simulate.serving import Settings, Simulated, simulate
from mlsysim.simulate.settings import Backlog, Failures, Scaling
from mlsysim.units.registry import to_si
from mlsysim.units.text import compact_time, plainly
from mlsysim.zoo.constants import constant
from mlsysim.zoo.intervals import Factors, independent, interval, measured

PUT_BACK = f"{ANSWER}: put back for want of caches"
_WAITS = (
    ("running steps", RUNNING, SERVING, "t = rest of the running step"),
    ("queue for prompts", QUEUE, TAIL, "t = prompts before it"),
    ("slots", f"{FIRST}: waiting for a slot", BATCHING, "t = until a request ends"),
    ("KV capacity", f"{FIRST}: waiting for room in the caches", BATCHING, "t = until caches are free"),
    ("adapters", f"{FIRST}: waiting for its adapter", BATCHING, "t = until another is not used"),
    ("router", f"{FIRST}: a longer queue than others have (router)", TAIL, "t = queue beyond the mean of replicas"),
    ("cold start", f"{FIRST}: replicas that start", TAIL, "t = until one is up"),
)
"""Causes of a simulation (:mod:`mlsysim.simulate.series`) as parts of the first token: names, walls, forms."""
_AIM = 0.7
"""Of the highest rate that a replica answers, where a service grows."""
_GROWS = 0.05
"""Share of a play that requests wait on average, above which their queue grows."""
_SENSITIVE = 3.0
"""Times as much as a step's error that the first token's must be, to be called sensitive."""
_KEPT = ("ttft", "tpot", "e2e")
_PUBLISHED = ("p50", "p90", "p99")
"""Levels that servers under load are published at; a level between two has the interval of the higher one, since tails err more."""


class Played(Served):
    """One way to serve, simulated. Means are those of the requests that were counted."""

    simulated = True

    def __init__(self, served: Served, arrivals: Arrivals, quick: bool = False, sure: bool = True) -> None:
        self.__dict__.update(served.__dict__)
        self.sure = sure
        self.closed, self.arrivals, self.quick = served, arrivals, quick
        self.come = served.come or arrivals.rate
        self.drawing = arrivals.drawing(self.come or 1.0, quick, self._lasts, *self._alike, self._again, self._looks)
        self.seen = seen = self._play()
        self.traffic = replace(served.traffic, batch=served.traffic.batch * served.writers / self.up[1])
        self.ttft, self.tpot = seen.percentiles["ttft"].mean, seen.percentiles["tpot"].mean
        if math.isnan(self.tpot):
            self.tpot = served.tpot
        self.latency = seen.percentiles["e2e"].mean
        self.mean_output = seen.output_tokens / seen.requests
        self.overloaded = served.overloaded and not arrivals.ends
        self.carries = not self.overloaded
        self.requests = self._answered(seen)
        if self.come is not None:
            self.clients = max(1, round(min(self.requests, self.come) * self.latency))
        self.output_rate = self.requests * self.mean_output
        self.limits = self.limits_of(self.value)
        self.over = max((value / limit for _, value, limit in self.limits), default=0.0)
        self.within = bool(served.result.feasible) and not self.overloaded and self.over <= 1

    def value(self, name: str, seen: Simulated | None = None) -> float:
        """A mean or percentile by the name of its metric, in seconds; of another play where one is given."""
        if seen is None and name in ("ttft", "tpot", "latency"):
            return float(getattr(self, name))
        kind, _, level = name.rpartition("_")
        kind, level = (kind, level) if kind else ({"latency": "e2e"}.get(name, name), "mean")
        return (seen or self.seen).percentiles[kind].values[level]

    def _play(self, slower: float = 1.0) -> Simulated:
        result, part, come = self.result, self.server.part, self.come
        targets = sorted(parse_targets(part.slo), key=lambda target: target.seconds)
        # Of several limits on a time the longest is each request's.
        limits = {target.kind: target.seconds / slower for target in targets if target.kind in _KEPT}
        asked = {target.level: percent(target.level) for target in targets if target.level != "mean"}
        rate = come or 1.0
        requests = self.arrivals.requests(rate, self.drawing)
        settings = Settings(
            scheduler=part.scheduler,
            limits=limits,
            levels=dict(sorted((LEVELS | asked).items(), key=lambda each: each[1])),
            skip=self.drawing.skip / slower,
            block_tokens=self.arrivals.blocks,
            clients=part.concurrency if self.arrivals.trace is None else None,
            router=part.router or Settings.router,
            scaling=self._scaling(slower),
            failures=self._failures(slower),
            backlog=_backlog(part.backlog),
            preempts=part.preemption or Settings.preempts,
            host_memory=0.0 if part.offload_memory is None else to_si(part.offload_memory, "byte"),
            seed=part.seed or 0,
            **self._disk,
        )
        machine, traffic = result.named("machine"), result.named("clients")
        played = requests if slower == 1.0 else _faster(requests, slower)
        if self.drawing.share == 1:
            return simulate(machine, traffic, played, self.drawing.requests, settings)
        sizes = [round(self.drawing.share * many) for many in (traffic.replicas, traffic.prefills)]
        some = replace(traffic, replicas=sizes[0], prefill_replicas=sizes[1])
        settings = replace(settings, devices=int(result.devices))
        if settings.clients is not None:
            settings = replace(settings, clients=settings.clients * self.drawing.times, router=Settings.router)
        seen = simulate(machine, some, played, self.drawing.requests, settings)
        return seen._replace(over_time=seen.over_time and seen.over_time.times_more(1 / self.drawing.share))

    @property
    def _lasts(self) -> float:
        """Seconds of a request by the closed form; nothing where they have no end."""
        return float(self.closed.latency) if math.isfinite(self.closed.latency) else 0.0

    @property
    def _alike(self) -> tuple[int, int]:
        """Replicas whose requests are alike, and those that write for them; the service as one where they come and go or keep what was said."""
        part = self.server.part
        other = part.failures or part.autoscale is not None or part.backlog is not None or self.arrivals.turns > 1
        if other or (self._looks and self.arrivals.blocks):
            return 1, 0
        return self.replicas, self.writers if self.result.named("machine").apart else 0

    @property
    def _again(self) -> bool:
        """Whether clients may ask from the beginning on a service of their own: of replicas that do not know of each other."""
        return not self.result.named("machine").apart and (self.replicas == 1 or not self._looks)

    @property
    def _looks(self) -> bool:
        """Whether a router chooses replicas by what they do."""
        return router_class(self.server.part.router or Settings.router).looks

    @property
    def beside(self) -> float:
        """Tokens a second of the backlog."""
        return self.seen.jobs[2] / (self.seen.seconds + self.drawing.skip)

    @property
    def up(self) -> tuple[float, float]:
        if self.seen.paid is None or not self.seen.seconds > 0:
            return super().up
        there = [seconds / self.seen.seconds for seconds in self.seen.paid]
        return there[0], there[-1]

    def _scaling(self, slower: float) -> Scaling | None:
        """How the service grows and shrinks, on a clock that runs so many times as slow."""
        text = self.server.part.autoscale
        if text is None:
            return None
        least, most = map(int, text.split(":"))
        # At the beginning as many as the mean load needs.
        first = math.ceil((self.come or 0.0) / self.rate_each)
        own = Scaling(most, least, self.rate_each * slower, "rate", start=self._restart, first=first)
        start = None if own.start is None else own.start / slower
        return replace(own, interval=own.interval / slower, settle=own.settle / slower, start=start)

    @property
    def _restart(self) -> float | None:
        """Seconds until a replica that starts is up, where the plan says."""
        given = self.server.plan.ops.restart_time
        return None if given is None else to_si(given, "s")

    @cached_property
    def fails(self) -> Failures | None:
        """How often a replica fails, and when it is back: by the plan, else by its chips and as a run of training is restarted."""
        server = self.server
        if not server.part.failures:
            return None
        given, each = server.plan.ops.mtbf, self.split.devices
        total = self.result.devices
        hours = interruption_rate(server.chip).hours / each if given is None else to_si(given, "h") * total / each
        notice = to_si(constant("recovery_time").quantity, "s")
        return Failures(hours * 3600, notice if self._restart is None else self._restart, server.part.spare or 0)

    def _failures(self, slower: float) -> Failures | None:
        found = self.fails
        return found and replace(found, every=found.every / slower, repair=found.repair / slower)

    @property
    def _disk(self) -> dict[str, Any]:
        """Room for prefixes on disk, and how fast it is read, for each accelerator."""
        server, size = self.server, self.server.part.offload_disk
        if size is None:
            return {}
        if server.plan.ops.storage_bandwidth is not None:
            rate = to_si(server.plan.ops.storage_bandwidth, "byte/s") / self.result.devices
        elif server.chip.storage is not None:
            rate = to_si(server.chip.storage.bandwidth, "byte/s")
        else:
            words = f"No disk of {server.chip.name} is known: give storage_bandwidth, of all accelerators together."
            raise InputError(words, field="offload_disk")
        return {"disk": to_si(size, "byte"), "disk_rate": rate}

    @property
    def rate_each(self) -> float:
        """Requests a second of a replica that a service which grows aims at: a share of the highest rate that it answers."""
        return _AIM * self.closed.most / self.replicas

    @cached_property
    def ends(self) -> tuple[tuple[Simulated, float], ...]:
        """The same play with steps as short and as long as the interval of a token's time has them, and by what factor."""
        factors = self.slower if self.sure else None
        return tuple((self._play(factor), factor) for factor in reversed(factors or ()))

    def interval(self, name: str) -> tuple[float, float] | None:
        """Ends of the 90 % interval of a mean or percentile, in seconds."""
        if not self.ends:
            return None
        kind, _, level = name.rpartition("_")
        kind, level = (kind, level) if kind else ({"latency": "e2e"}.get(name, name), "mean")
        middle = self.seen.percentiles[kind].values[level]
        found = tuple(seen.percentiles[kind].values[level] * factor for seen, factor in self.ends)
        if not middle > 0:
            return None
        factors: Any = (found[0] / middle, found[1] / middle)
        if self.looped is not None and kind in ("ttft", "e2e"):
            factors = self.looped[kind == "e2e"]
        elif kind == "ttft":
            factors = independent(factors, self._own("ttft"))
        seen = published(kind, level)
        return middle * min(factors[0], seen[0]), middle * max(factors[1], seen[1])

    def delivered(self, slower: float = 1.0) -> float:
        """As many as the play with such steps answers; of the intervals' ends, which are played."""
        if self.server.part.qps is None or slower == 1.0:
            return self.requests / slower
        return self._answered(next(seen for seen, factor in self.ends if factor == slower), slower)

    def most_answered(self, slower: float = 1.0) -> float:
        """What the closed form says; less where a play without an end answers less than comes, and no less than it answers."""
        most, rate = self.closed.most_answered(slower), self.delivered(slower)
        if self.arrivals.ends:
            # The last answers of a number of requests have the server for themselves, which an endless load never has.
            return max(most, rate)
        return max(most, rate) if rate >= (self.server.part.qps or 0.0) * 0.999 else min(most, rate)

    def _answered(self, seen: Simulated, slower: float = 1.0) -> float:
        """Requests a second that a play answers whose steps are so many times as long."""
        clients = self.server.part.concurrency
        if clients is not None and not self.arrivals.ends:
            # Each has a request all the time, until the last ones end.
            return clients / (seen.percentiles["e2e"].mean * slower)
        rate = seen.requests / (seen.seconds * slower) / self.drawing.share
        if self.come is None or self.arrivals.ends:
            return rate
        # Where requests wait for a good part of the play a queue grows, whatever a closed form says.
        waits = math.fsum(seen.spent.waits.values()) / max(seen.spent.ended, 1)
        grows = waits * slower > _GROWS * seen.requests / (self.come * self.drawing.share)
        found = self.closed.delivered(slower)
        return min(found, rate) if grows else found

    def span(self, slower: float = 1.0) -> float | None:
        """As it was played."""
        return self.seen.seconds if self.come is not None and self.arrivals.ends else None

    @property
    def near_saturation(self) -> str:
        """A sentence where errors of steps that lie inside their interval decide whether a queue grows; else nothing."""
        if not self.ends:
            return ""
        slow, factor = self.ends[-1]
        first = slow.percentiles["ttft"].mean * factor
        if first < _SENSITIVE * factor * self.ttft:
            return ""
        longer = f"with steps {factor - 1:.0%} longer, which is inside their interval, the first token takes"
        few = ""
        if self.server.part.autoscale is not None and factor * _AIM > 1:
            each = self.rate_each
            few = f": a replica is added for every {plainly(each, 3)} requests a second, and would answer {plainly(each / _AIM / factor, 3)}"
        return f"Near saturation: {longer} {compact_time(first)} on average, and a queue grows{few}."

    @cached_property
    def percentiles(self) -> dict[str, Percentiles]:
        return self.seen.percentiles

    @property
    def ledger(self) -> Ledger:
        """What the time of a request went on, on average: waits as they were seen, work in the parts that the case has."""
        base, spent, count = self.closed.ledger, self.seen.spent, max(self.seen.spent.ended, 1)
        engine = self.result.named("machine").writer.engine
        front = engine.front_end + engine.tokenise * self.seen.prompt_tokens / self.seen.requests
        if self.server.part.offline:
            front = 0.0
        back, lost = spent.waits["put back"], dict(self.seen.lost or {})
        lost["KV capacity"] -= back
        first = [
            Part(name, wall, "", form, lost[cause] / count) for cause, name, wall, form in _WAITS if lost[cause] > 0
        ]
        first.append(Part(FRONT_END, SOFTWARE, "host", "t = t_front + t_token I", front))
        first += scaled([part for part in base.parts if part.name == HAND_OVER], spent.handed / count)
        first += work_of(base, FIRST, spent.reading / count, FRONT_END, HAND_OVER)
        answer = [
            Part(name, wall, "", form, value / count)
            for name, wall, form, value in (
                (OTHERS, SERVING, "t = sum of t_m - t_d", spent.disturbed),
                (PUT_BACK, BATCHING, "t = until caches are free again", back),
            )
            if value > 0
        ]
        answer += work_of(base, ANSWER, spent.writing / count)
        phases = [scaled(first, self.ttft), scaled(answer, max(self.latency - self.ttft, 0.0))]
        if not all(any(part.resource for part in phase) for phase in phases):
            # Answers that only wait while prompts are read have nothing that is made faster but these.
            phases = [phases[0] + phases[1]]
        parts = [part for phase in phases for part in _elastic(phase)]
        whole = math.fsum(part.exposed for part in parts)
        return replace(base, seconds=whole, parts=tuple(parts))


def _elastic(parts: list[Part]) -> Iterator[Part]:
    """Parts of a phase; a loss is made of steps, so that what makes the work faster makes it shorter in proportion."""
    work, whole = (math.fsum(part.exposed for part in parts if part.resource or each) for each in (False, True))
    return (replace(part, elastic=part.exposed * whole / work if part.resource else 0.0) for part in parts)


def _backlog(text: str | None) -> Backlog | None:
    """The job in a text such as 2000+500, or 64x2000+500 where so many of a replica are worked on at a time."""
    if text is None:
        return None
    most, _, lengths = text.rpartition("x")
    prompt, answer = map(int, lengths.split("+"))
    return Backlog(prompt, answer, at_once=int(most)) if most else Backlog(prompt, answer)


def _faster(requests: Iterator[Request], by: float) -> Iterator[Request]:
    return (request._replace(arrival=request.arrival / by) for request in requests)


def published(kind: str, level: str) -> Factors:
    """Ends of the interval of percentiles like this that were published, over what a play gave; of a mean, or where none were, nothing."""
    if level == "mean" or not measured(f"simulated {kind}"):
        return 1.0, 1.0
    highest = _PUBLISHED[-1]
    return interval(
        f"simulated {kind} {next((each for each in _PUBLISHED if percent(each) >= percent(level)), highest)}"
    ).factors
