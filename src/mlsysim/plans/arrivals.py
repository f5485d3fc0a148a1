"""Requests of a serving plan that is simulated: drawn at its rate, or recorded.

A plan is simulated where it asks for what a steady state does not have: a percentile, a trace, bursts, another scheduler. A
trace at a ``qps`` of its own is played that much faster or slower, so that its bursts keep their shape.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

from mlsysim.cases.traffic import CLIENT_ROUNDS
from mlsysim.errors import InputError, unknown_name
from mlsysim.plans.plan_parts import ServingPart
from mlsysim.plans.targets import parse_targets, percent
from mlsysim.simulate.requests import Request
from mlsysim.simulate.traces import Trace, read_trace, shipped_traces
from mlsysim.simulate.traffic import Even, Fixed, Lengths, Load, Spread, Tenant
from mlsysim.timing.engines import DEFAULT_ENGINE, engine
from mlsysim.units.records import dataclass
from mlsysim.units.registry import to_si
from mlsysim.units.text import many, plainly
from mlsysim.zoo.writing import files_allowed

SAMPLE, QUICK = 10_000, 2_500
"""Requests that are drawn unless a plan says how many; fewer where designs are compared."""
_ABOVE, _MOST = 50, 100_000
"""Requests above a percentile that more are drawn for, up to a most."""
_TIMES = 4
"""Times that clients ask from the beginning at least, where that is of no more than a most."""
_CLIENTS = 1_000_000
"""Clients that are played at most."""
_QUICK_MOST, _FILLS = 10 * QUICK, 4
"""The most where designs are compared, unless they last fewer than so many times of a request."""
_WARM = 0.05
"""Share of drawn requests that fill the server and are not counted."""
_ALIKE = 0.005
"""Share by which the load of replicas may change where a part of them is played."""
_LOOKED = 16
"""Replicas among which a router looks, where a part of the service is played: so many that one of them is as good as always free where one of more is."""
_LASTS = 1 / _WARM
"""Times of a request, and of a turn of all replicas, that a drawn play lasts at least, so that those that fill the server take one of them."""
_SIMULATED = (
    *("trace", "burst", "scheduler", "router", "autoscale", "seed", "failures", "backlog", "preemption"),
    *("offload_disk", "resident_adapters", "turns"),
)
_THINK = 60.0


def is_simulated(part: ServingPart) -> bool:
    """Whether a plan asks for what only a simulation has."""
    percentiles = any(target.level != "mean" or target.kind in ("itl", "queue") for target in parse_targets(part.slo))
    return percentiles or any(
        value is not None and value is not False for value in (getattr(part, name) for name in _SIMULATED)
    )


def grows_to(part: ServingPart) -> int:
    """The most replicas that a service grows to; 1 of one that does not."""
    return int((part.autoscale or "1:1").partition(":")[2])


def check_played(part: ServingPart, limited: bool) -> None:
    """Refuse what is played where there is nothing to play, and policies of other names."""
    from mlsysim.simulate.routers import router_class
    from mlsysim.simulate.scheduling import scheduling

    if part.scheduler is not None:
        scheduling(engine(DEFAULT_ENGINE), part.scheduler)
    if part.router is not None:
        router_class(part.router)
    if part.qps is None and part.concurrency is None and part.trace is None and not limited:
        name = next(each for each in _SIMULATED if getattr(part, each) is not None)
        words = f"Requests are played where their load is known: beside {name} give qps, concurrency or a trace."
        raise InputError(words, field=name)


class Drawing(NamedTuple):
    """What is played of a service: how many requests, seconds at the start that are not counted, and of how many of its replicas."""

    requests: int
    skip: float = 0.0
    dealt: tuple[int, int] = (1, 1)
    """Replicas that are played, of those that take turns or are looked at."""
    looked: bool = False
    """Whether a router looks at those that are played: they have their share of the rate, not every so many of the requests."""
    times: int = 1
    """Times that clients ask from the beginning, each on a service of their own."""

    @property
    def share(self) -> float:
        """Of all requests."""
        return self.times * self.dealt[0] / self.dealt[1]


def _is_alike(replicas: float) -> bool:
    """Whether a whole number of replicas is as good as this one."""
    return abs(round(replicas) - replicas) <= _ALIKE * replicas


@dataclass(frozen=True)
class Arrivals:
    """The requests of a plan: drawn ones of these lengths, or a trace."""

    part: ServingPart
    prompt: int
    answer: int
    trace: Trace | None = None
    context: int | None = None

    @classmethod
    def of(cls, part: ServingPart, prompt: int, answer: int, model: Any) -> Arrivals:
        """Of a plan whose lengths are these unless it has a trace."""
        context = getattr(model, "max_context", None)
        if part.trace is None:
            return cls(part, prompt, answer, context=context)._checked()
        for name in ("prompt_tokens", "output_tokens", "length_cv", "range_ratio", "burst", "concurrency", "turns"):
            if getattr(part, name) is not None:
                raise InputError(f"{name} is what a trace says itself; leave it out, or the trace.", field=name)
        if part.trace not in shipped_traces() and not files_allowed():
            raise unknown_name("shipped trace", part.trace, shipped_traces())
        trace = read_trace(part.trace, context=context)
        if part.requests is not None:
            trace = trace.part(requests=part.requests)
        if part.qps is not None:
            if not trace.summary.duration:
                words = (
                    f"All requests of {trace.name} come at the same time, which no other rate changes; leave qps out."
                )
                raise InputError(words, field="qps")
            trace = trace.scaled(rate=part.qps)
        return cls(part, max(1, round(trace.summary.prompt)), max(1, round(trace.summary.answer)), trace)

    @property
    def rate(self) -> float | None:
        """Requests a second; None where the plan has no rate, or all come at once."""
        if self.trace is None:
            return self.part.qps
        return self.trace.summary.rate if self.trace.summary.duration else None

    @property
    def ends(self) -> bool:
        """Whether a last request comes, so that all are answered some day."""
        return self.trace is not None or self.part.requests is not None

    @property
    def length_cv(self) -> float | None:
        """Coefficient of variation of the answers."""
        return self.part.length_cv if self.trace is None else self.trace.summary.answer_cv

    @property
    def blocks(self) -> int | None:
        """Tokens of a block of prompts, where requests name theirs."""
        if self.trace is None:
            return Load.block_tokens if self.turns > 1 or self.prefixes else None
        return None if self.trace.summary.shared is None else self.trace.block_tokens

    @property
    def turns(self) -> int:
        return self.part.turns or 1

    @property
    def prefixes(self) -> int:
        """Texts that prompts begin with: as many as the tokens of all make, each of the share of a prompt that is found."""
        part = self.part
        if self.trace is not None or not part.prefix_hits or part.prefix_tokens is None:
            return 0
        return max(1, round(part.prefix_tokens / (part.prefix_hits * self.prompt)))

    @property
    def added(self) -> float:
        """Tokens that a turn adds to its conversation, whose prompts have the plan's mean: I = a (T + 1)/2 + O (T - 1)/2."""
        return (2 * self.prompt - self.answer * (self.turns - 1)) / (self.turns + 1)

    @property
    def repeated(self) -> float | None:
        """Share of prompts that was said before; None where nothing is."""
        return 1 - self.added / self.prompt if self.turns > 1 else None

    @property
    def said_meanwhile(self) -> int:
        """Tokens of what is said from a turn to the next, r t (I + O): what a cache has to keep (least recently used) to find what was said before. Of each
        replica, where its requests stay with it."""
        stays = self.part.replicas or 1 if self.part.router in ("session", "prefix") else 1
        return max(1, round((self.rate or 0.0) * self.think * (self.prompt + self.answer) / stays))

    def _checked(self) -> Arrivals:
        if self.added < 1:
            least = self.answer * (self.turns - 1) / 2 + (self.turns + 1) / 2
            words = f"A conversation of {self.turns} turns with answers of {self.answer:,} tokens has prompts of"
            raise InputError(
                f"{words} {least:,.0f} on average or more; prompt_tokens are {self.prompt:,}.", field="turns"
            )
        if self.turns > 1 and self.part.concurrency is not None:
            raise InputError("Turns of a conversation come at a rate: give qps, not concurrency.", field="turns")
        if (self.part.concurrency or 0) > _CLIENTS:
            words = f"Percentiles of {self.part.concurrency:,} clients are not played, which are {_CLIENTS:,} at most"
            raise InputError(f"{words}: ask for fewer replicas with their share of the clients.", field="concurrency")
        return self

    def count(self, quick: bool = False) -> int:
        """How many requests are played; of clients that come again as many as they send."""
        if self.trace is not None:
            return self.trace.summary.count
        drawn = QUICK if quick else max(SAMPLE, min(_MOST, self._beyond))
        return self.part.requests or (CLIENT_ROUNDS * self.part.concurrency if self.part.concurrency else drawn)

    @property
    def _beyond(self) -> int:
        """Requests of which enough are above the highest percentile that is asked for."""
        levels = [percent(each.level) for each in parse_targets(self.part.slo) if each.level != "mean"]
        return round(_ABOVE / (1 - max(levels, default=0.0) / 100))

    def drawing(
        self,
        rate: float,
        quick: bool = False,
        latency: float = 0.0,
        replicas: int = 1,
        writers: int = 0,
        again: bool = True,
        looked: bool = False,
    ) -> Drawing:
        """What is played at a rate, where a request takes about so long and so many replicas take turns or are ``looked`` at, and others that write for them; of
        clients ``again`` on services of their own.

        A service is as full as it will be when its first requests have been answered: a play that lasts as long as one of them sees it fill. So it
        lasts :data:`_LASTS` times as long, however many come a second; of replicas that take turns some are played, which are like the others,
        so that it is not of more requests for that. Others have as many more, and none has more than a most. Nothing is skipped of a trace or of a number of requests.
        Clients send as many as in the closed form, since their first come together and later ones do not: more requests are those of more such clients.
        """
        count = self.count(quick)
        if self.trace is not None or self.part.requests:
            return Drawing(count)
        if self.part.concurrency is not None:
            often = QUICK if quick else max(SAMPLE, min(_TIMES * count, _MOST))
            times = max(1, often // count) if again else 1
            return Drawing(times * count, times=times)
        latency *= 1 + (self.part.length_cv or 0.0)
        # Replicas that take turns have one request each, before the first of them has its second.
        seconds = max(count / rate, _LASTS * max(latency, replicas / rate))
        least = math.ceil(replicas * count / (rate * seconds) * (1 - 1e-9))
        parts = (
            each
            for each in range(max(least, _LOOKED if looked else 1), replicas)
            if _is_alike(writers * each / replicas)
        )
        taken = next(parts, replicas)
        drawn = round(rate * seconds * taken / replicas)
        most = max(count, _MOST)
        if quick:
            most = min(most, max(_QUICK_MOST, round(_FILLS / _LASTS * drawn)))
        if drawn > most:
            drawn, seconds = most, most / rate * replicas / taken
        return Drawing(drawn, max(_WARM * seconds, min(latency, seconds / 2)), (taken, replicas), looked)

    def requests(self, rate: float, drawing: Drawing) -> Iterator[Request]:
        if self.trace is not None:
            return iter(self.trace)
        burst = 1.0 if self.part.burst is None else self.part.burst
        prompt, answer = self._lengths(round(self.added)), self._lengths(self.answer)
        more: dict[str, Any] = {}
        if self.turns > 1:
            more |= {"turns": self.turns, "think": self.think, "context": self.context}
        if self.prefixes:
            more |= {"prefixes": self.prefixes, "prefix_share": self.part.prefix_hits}
        if self.part.resident_adapters is not None:
            more["tenants"] = tuple(Tenant(f"t{k}", 1.0, adapter=f"a{k}") for k in range(self.part.adapters or 1))
        if drawing.looked:
            rate *= drawing.share
        else:
            more["dealt"] = drawing.dealt
        load = Load(rate, prompt, answer, burst, count=drawing.requests, **more)
        return load.requests(self.part.seed or 0)

    @property
    def think(self) -> float:
        """Seconds from a turn to the next."""
        return _THINK if self.part.think_time is None else to_si(self.part.think_time, "s")

    def _lengths(self, nominal: int) -> Lengths:
        if self.part.length_cv is not None:
            return Spread(float(nominal), self.part.length_cv)
        return Fixed(nominal) if self.part.range_ratio in (None, 1.0) else Even(nominal, self.part.range_ratio or 0.0)

    def described(self, rate: float, drawing: Drawing) -> list[str]:
        """What is played, in words: what it is first, then how."""
        count = many(drawing.requests, "request")
        if self.trace is not None:
            s = self.trace.summary
            how = f"{plainly(s.rate, 3)} a second, gaps with a cv of {s.burst:.3g}" if s.duration else "all at once"
            left = f" ({s.failed:,} that failed left out)" if s.failed else ""
            return [f"{count} of {self.trace.name}{left}", *([how] if drawing.requests > 1 else [])]
        if self.part.concurrency is not None:
            said = [count, f"one after another of {self.part.concurrency:,} clients"]
            if drawing.times > 1:
                said.append(f"{drawing.times:,} times from the beginning")
            return [*said, f"seed {self.part.seed or 0}"]
        gaps = "at random" if self.part.burst in (None, 1.0) else f"with a cv of {self.part.burst:g} of their gaps"
        said = [f"{count} {gaps}", f"{plainly(rate, 3)} a second"]
        if drawing.share < 1:
            said.append(f"those of {drawing.dealt[0]:,} of {drawing.dealt[1]:,} replicas, all of which are alike")
        if self.turns > 1:
            each = f"{self.added:,.0f} tokens added by a turn, {self.think:g} s from one to the next"
            said.append(f"in conversations of {self.turns} turns ({each})")
        if self.prefixes:
            said.append(f"{self.prefixes:,} texts that prompts begin with")
        return [*said, f"seed {self.part.seed or 0}"]
