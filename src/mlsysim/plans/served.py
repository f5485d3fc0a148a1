"""One way to serve a plan, and what its requests see."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from mlsysim.cases.deployment import Degrees
from mlsysim.cases.ledger import Ledger
from mlsysim.cases.machines import drafting
from mlsysim.cases.passing import longest
from mlsysim.errors import InputError
from mlsysim.plans.targets import parse_targets
from mlsysim.units.registry import to_si
from mlsysim.units.text import many, plainly
from mlsysim.walls.node.serving import ServingResult
from mlsysim.zoo.intervals import Factors

if TYPE_CHECKING:
    from mlsysim.plans.serving_load import Server


_IDLE = 0.5
ANY_RATE = 1e6
"""More requests a second than are answered anywhere."""


_ALIKE = 1.001
"""Rates as near as that are the same."""


class Layout(NamedTuple):
    """A replica's degrees, and how many there are of it; the same of the pool that writes answers, where it is one of its own."""

    split: Degrees
    replicas: int
    writing: Degrees | None = None
    writers: int | None = None


def split_text(split: Degrees) -> str:
    """Degrees as people write them, such as TP1 EP16 with 16 groups of attention."""
    widths = (("TP", split.tp), ("PP", split.pp), ("EP", split.experts))
    found = " ".join(f"{name}{width}" for name, width in widths if width > 1 or name == "TP")
    return found if split.groups == 1 else f"{found} attention-DP{split.groups}"


class Served:
    """One way to serve: a replica's layout, the clients, and what they see. Rates are of the whole fleet, times in seconds."""

    simulated: ClassVar[bool] = False

    def __init__(
        self, server: Server, result: ServingResult, layout: Layout, clients: int | None, rate: float | None = None
    ) -> None:
        part = server.part
        self.server, self.result = server, result
        # Requests that come a second, given or found; None where clients ask when they are answered.
        self.come = part.qps if rate is None else rate
        self.layout = layout
        self.split, self.replicas, self.writing, writers = layout
        # Replicas that write answers: the same that read prompts, unless they are a pool of their own.
        self.writers: int = writers or self.replicas
        # What they are at work on; those that have a client are at work on one at least.
        active = (result.active_requests or clients or 1) / self.writers
        active = active if clients is None else max(active, 1.0)
        machine, asked = result.named("machine"), result.named("traffic")
        self.traffic = replace(drafting(machine, asked), batch=active)
        self.mean_output = float(self.traffic.mean_answer)
        first = result.ttft_at_concurrency
        # Without a steady state there is no time to the first token, nor of a request.
        self.ttft = math.inf if first is None else to_si(first, "s")
        self.tpot = to_si(result.tpot, "s")
        # Of the gaps between two tokens the one in the middle, where the engine's steps say so and a request has several.
        self.middle = None if result.itl_p50 is None or not self.further else to_si(result.itl_p50, "s")
        # The mean time of a whole request.
        self.latency = self.ttft + (self.mean_output - 1) * self.tpot
        answered = to_si(result.output_tokens_per_sec, "1/s") / self.mean_output
        if clients is None:
            # Requests that come at random, in flight by Little's law.
            flying = active * self.writers if first is None else answered * self.latency
            self.clients = max(1, round(min(flying, part.requests or math.inf)))
            self.requests = answered
        else:
            # Requests that are answered while all clients keep asking.
            self.clients, self.requests = clients, answered
        self.output_rate = self.requests * self.mean_output
        self.carries = part.qps is not None and self.requests >= part.qps * 0.999 and math.isfinite(self.ttft)
        # Requests that end some day are all answered, however late.
        ends = (part.requests is not None or part.trace is not None) and self.server.calibrated
        self.overloaded = part.qps is not None and result.feasible and not self.carries and not ends
        if self.overloaded:
            self.ttft = self.latency = math.inf
        # Requests that all replicas hold at once; None where the size of a cache is not known.
        self.places = None if result.max_batch_size is None else result.max_batch_size * self.writers
        if rate is None and clients is None and (span := self.span()) is not None and part.requests:
            # Of a number of requests the mean until the last answer.
            self.clients = max(1, round(part.requests * self.latency / span))
        # Names of the plan's limits on means, what they are held against, and the limits; percentiles are simulated.
        self.limits = self.limits_of(lambda name: float(getattr(self, name, 0.0)))
        # How many times as long as its limit the time is that misses its limit most; at most 1 where all hold.
        self.over = max((value / limit for _, value, limit in self.limits), default=0.0)
        self.within = result.feasible and not self.overloaded and self.over <= 1

    def limits_of(self, value: Callable[[str], float]) -> list[tuple[str, float, float]]:
        """The plan's limits on times of requests: the metric, its value, and the limit in seconds."""
        part = self.server.part
        given = [(name, getattr(part, name)) for name in ("ttft", "tpot", "latency")]
        found = [(name, to_si(limit, "s")) for name, limit in given if limit is not None]
        found += [(target.metric, target.seconds) for target in parse_targets(part.slo)]
        for name, _ in found:
            if name.startswith(("tpot", "itl")) and not self.further:
                raise InputError(
                    f"{name} limits tokens after the first, and an answer of 1 token has none.", field="slo"
                )
        return [(name, value(name), limit) for name, limit in found]

    @property
    def further(self) -> bool:
        """Whether an answer has tokens after its first, whose time can be asked."""
        return self.mean_output > 1

    @property
    def asking(self) -> int | None:
        """Clients that wait for their answers, of which a replica has one at least to be at work; None of requests that come by themselves."""
        return self.clients if self.come is None else None

    @property
    def flying(self) -> str:
        """How many requests are in flight, in words; of a server that is idle most of the time the mean, by Little's law."""
        mean = self.requests * self.latency if self.come is not None else math.inf
        idle = mean < _IDLE and self.server.part.requests is None
        return f"{plainly(mean, 2)} requests" if idle else many(self.clients, "request")

    def delivered(self, slower: float = 1.0) -> float:
        """Requests a second that are answered: no more than come; of a number of requests that many over the time from the first of them to
        the last answer (:meth:`span`), which is what benchmarks publish.
        ``slower`` is for intervals: were every step so many times as long. What comes at a rate is the same as what comes so many times as
        fast, on a clock that runs so many times as slow: it is answered as it comes while the most that is answered is so many times that."""
        part, span = self.server.part, self.span(slower)
        if part.output_rate is not None:
            return part.output_rate / self.mean_output
        if part.qps is None:
            return self._together() / slower
        return self._of_those(part.qps, slower) if span is None else (part.requests or 0) / span

    def _together(self) -> float:
        """Requests a second of clients; of those that ask once, at the same time, the last to end is the one with the longest answer."""
        part = self.server.part
        if part.length_cv is None or part.requests != self.clients or self.clients > (self.places or 0):
            return self.requests
        more = longest(self.mean_output, part.length_cv, self.clients) - self.mean_output
        alone = self.server.at(self.layout, self.replicas).tpot
        return self.clients / (self.clients / self.requests + more * alone)

    def _of_those(self, come: float, slower: float) -> float:
        """Requests a second that are answered of so many: all, while they are fewer than the most, else what a full server answers."""
        if slower == 1.0:
            return min(self.requests, come)
        return come if come * slower < self.most else min(self.saturated.requests / slower, come)

    def span(self, slower: float = 1.0) -> float | None:
        """Seconds from the first of a number of requests at a rate to the last answer; None of those that come without end."""
        part = self.server.part
        if part.qps is None or part.requests is None:
            return None
        # What comes at a rate to steps that are so many times as long is what comes so many times as fast, on a slower clock.
        seen = self if slower == 1.0 else self.server.at(self.layout, None, part.qps * slower)
        looped = seen.result.named("looped")
        if looped is not None and looped.span is not None:
            return float(looped.span) * slower
        last = seen.latency if math.isfinite(seen.latency) else self.mean_output * seen.tpot
        return (part.requests - 1) / self._of_those(part.qps, slower) + last * slower

    @cached_property
    def saturated(self) -> Served:
        """The same where more requests come than are answered."""
        return self.server.at(self.layout, None, ANY_RATE)

    @property
    def most(self) -> float:
        """Requests a second that are answered as they come, at most, whatever times they take; a server with full caches may answer fewer."""
        if not self.server.calibrated:
            return self.requests
        full = self.saturated
        looped = full.result.named("looped")
        cold = full.requests if looped is None or looped.most is None else float(looped.most)
        return cold if self.warm is None else max(cold, self.warm.requests)

    @cached_property
    def warm(self) -> Served | None:
        """The same at the highest rate that is answered as it comes with what is found in caches beside those in flight; None where nothing is.

        Requests whose beginnings are found are in flight for a shorter time and leave more room for beginnings; in a server that is full nothing is found.
        What turns of a conversation find is pushed out before that rate, since every answer is kept for the next one.
        """
        arrivals = self.server.arrivals
        given = self.server.part.prefix_hits and (arrivals is None or arrivals.repeated is None)
        asked = given and self.come is not None and self.server.calibrated
        if not asked or not self.result.feasible or not self.saturated.requests > 0:
            return None
        found, low, high = None, self.saturated.requests, math.inf
        while high > low * _ALIKE:
            rate = 2 * low if high == math.inf else math.sqrt(low * high)
            seen = self.server.at(self.layout, None, rate)
            if seen.result.ttft_at_concurrency is not None and seen.requests >= rate * 0.999:
                found, low = seen, rate
            else:
                high = rate
        return found

    def most_answered(self, slower: float = 1.0) -> float:
        """The same, were every step so many times as long."""
        return self.most / slower

    @property
    def slower(self) -> tuple[float, float] | None:
        """How many times as long a step takes at the ends of the interval of a token's time, the slow one first; None without one."""
        own = self._own("itl")
        return own and (own[1], own[0])

    @cached_property
    def ends_of_times(self) -> tuple[tuple[float, float], tuple[float, float], tuple[float, float]] | None:
        """Ends of the intervals of the times of the first token, of a further one and of a request, the fast one first; None without them.

        Where clients wait for their answers the batch is theirs, and the factors are those of a batch and of a loop (:attr:`looped`). Of
        requests at a rate r more are in flight where steps are s times as long: a token takes s tau(r s), with tau(r) its time at that rate.
        The first token has an error e of its own in place of a step's: e T(r s). In a queue that grows without end it has no time, so that it
        has no upper end (infinite), while the batch of a further one is full.
        """
        first, steps = (self._own(name) for name in ("ttft", "itl"))
        if first is None or steps is None:
            return None
        if self.looped is not None:
            found = zip((self.ttft, self.tpot, self.latency), (self.looped[0], steps, self.looped[1]), strict=True)
            one, each, all_of_it = ((time * fast, time * slow) for time, (fast, slow) in found)
            return one, each, all_of_it
        seen = [self.server.at(self.layout, None, (self.come or 0.0) * step) for step in steps]
        waits = [each.result.ttft_at_concurrency for each in seen]
        firsts = [math.inf if wait is None else e * to_si(wait, "s") for e, wait in zip(first, waits, strict=True)]
        further = [s * each.tpot for s, each in zip(steps, seen, strict=True)]
        whole = [one + (self.mean_output - 1) * each for one, each in zip(firsts, further, strict=True)]
        return (firsts[0], firsts[1]), (further[0], further[1]), (whole[0], whole[1])

    @property
    def looped(self) -> tuple[Factors, Factors] | None:
        """Ends of the intervals of the first token and of a whole request over them, where clients wait for their answers.

        Little's law holds whatever is wrong: C clients with an answer of n further tokens are answered at X = C / L, L = F + n d. Two things may
        be wrong. Steps that are s times as long make all times so and answer X / s. How a request's time is shared between its first token
        and the others moves one at the cost of the others, and answers as many. The error e that first tokens had is of both together,
        that of the others, s, nearly of steps alone. So that L has of F what is common to both, and of the first token nothing is left that
        the other two do not leave room for:

            L s' = F min(e, s) + n d s,    F e' = min(F e, L s' - n d / s)

        and the same with 1/e, 1/s and a maximum below. Of answers of one token all of L is F, and it is as sure as the rate is; of long ones
        F is as sure as it was measured to be.
        """
        first, steps = (self._own(name) for name in ("ttft", "itl"))
        if self.come is not None or first is None or steps is None or not self.ttft > 0:
            return None
        rest = max(self.latency - self.ttft, 0.0)
        ends = [self.ttft * nearer(e, s) + rest * s for nearer, e, s in zip((max, min), first, steps, strict=True)]
        room = [end - rest * other for end, other in zip(ends, reversed(steps), strict=True)]
        own = max(first[0], room[0] / self.ttft), min(first[1], room[1] / self.ttft)
        return own, (ends[0] / self.latency, ends[1] / self.latency)

    def _own(self, name: str) -> tuple[float, float] | None:
        """The ends of the interval of a batch's time, over it, the fast one first; None without one."""
        band, alone = getattr(self.result, f"{name}_interval"), to_si(getattr(self.result, name), "s")
        if band is None or not alone > 0:
            return None
        fast, slow = (float(to_si(side, "s") / alone) for side in band)
        return fast, slow

    @property
    def near_saturation(self) -> str:
        """A sentence where errors of steps that lie inside their interval decide whether a queue grows; else nothing."""
        if self.slower is None or self.come is None or math.isfinite((self.ends_of_times or ((0.0, 0.0),))[0][1]):
            return ""
        longer = f"with steps {self.slower[0] - 1:.0%} longer, which is inside their interval,"
        return f"Near saturation, as far as is known: {longer} more requests come than are answered, and the first token has no upper end."

    @property
    def beside(self) -> float:
        """Output tokens a second of other work."""
        return 0.0

    @property
    def up(self) -> tuple[float, float]:
        """Replicas that are there on average, and those that write answers."""
        return self.replicas, self.writers

    @property
    def devices(self) -> float:
        """Accelerators of those."""
        width, (readers, writers) = self.split.devices, self.up
        if self.server.decode_fleet is None:
            return width * readers
        return width * readers + (self.result.devices - width * self.replicas) // self.writers * writers

    @property
    def too_many(self) -> str:
        """What is answered and what comes, in words."""
        who, come = f"{many(self.replicas, 'replica')} answer{'s' * (self.replicas == 1)}", self.server.part.qps
        coming = plainly(come or 0.0)
        # As many digits as tell them apart.
        most = next((text for d in range(4, 10) if (text := plainly(self.most, d)) != coming), coming)
        return f"{who} at most {most} requests a second and {coming} {'arrives' if come == 1 else 'arrive'}"

    @property
    def suffices(self) -> bool:
        """Whether it fits and answers as many requests as come."""
        return bool(self.result.feasible) and (self.server.part.qps is None or self.carries)

    @property
    def rank(self) -> tuple[Any, ...]:
        """What fits before what does not, what keeps the rate and the limits before what does not, then what is fastest for the rate or
        gives most; of equals more replicas, which wait less. Where the queue grows without end no limit is kept by any, and what gives most
        is nearest to keeping them."""
        part = self.server.part
        stated = any(each is not None for each in (part.qps, part.concurrency, part.trace, part.requests))
        best = -self.latency if self.carries and stated else self.output_rate
        missed = 0.0 if self.overloaded else max(self.over, 1.0)
        return -max(self.result.memory_utilization, 1.0), self.carries, -missed, best, self.replicas

    @property
    def ledger(self) -> Ledger:
        """Parts of a request, and what the fullest device holds."""
        assert self.result.ledger is not None
        return self.result.ledger
