"""Rollouts of post-training: every sample of a step begins at once, lengths have a long tail, and the last one ends the rollout.

    X    = min(lognormal(mu, s), M)         s^2 = ln(1 + cv^2), mu such that E[X] is the mean that was given (after clipping)
    S(l) = P(X > l)                         survival, n(l) = N S(l) samples that a replica still writes after l tokens
    G    = sum over l < M of P(l) tau(max(n(l), 1), prompt + l) + prefill,     P(l) = 1 - (1 - S(l))^samples

tau is the decode step of the one serving case (:mod:`mlsysim.simulate.steps`), N the samples of a replica, and P the probability that any sample of
*all* replicas still runs, since the step waits for the slowest. The sum is taken where all caches have room at once; where they do not, late
starters run to their full length and caches that were taken are read again, so replicas are played event by event
(:mod:`mlsysim.simulate.replica`) with lengths at the even quantiles of X, dealt out by a fixed shuffle: of all replicas those with most to
write and those with the longest responses, one of which ends last. The prompt is read once for its samples,
and its cache is shared by them.

Fixed lengths (cv 0) and one sample are the request of the serving case alone. Left out: the spread of N over replicas in the closed form (it lies 1 to 6 %
below the events), and groups of samples that a framework deals out unevenly.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from heapq import heapreplace
from random import Random
from statistics import NormalDist
from typing import NamedTuple

from mlsysim.cases.machines import Engines
from mlsysim.cases.traffic import Traffic
from mlsysim.errors import InputError
from mlsysim.simulate.live import Ended
from mlsysim.simulate.prefixes import Prefixes
from mlsysim.simulate.replicas import Kind, kind_of
from mlsysim.simulate.requests import Request
from mlsysim.simulate.settings import Settings
from mlsysim.simulate.steps import Contexts

_NORMAL = NormalDist()
_POINTS = 400
_NOBODY = 1e-6
_ROUNDS = 100
_DEALS, _TRIED, _MANY = 8, 2, 8192
"""Points of the sum, the least probability that counts, halvings until mu is known, shuffles of a mini-batch, replicas of a kind, samples that are dealt out in all."""


@dataclass(frozen=True)
class Lengths:
    """Tokens of responses: a mean (after clipping), a coefficient of variation (before it), and the most."""

    mean: float
    cv: float
    most: float

    def __post_init__(self) -> None:
        if self.mean > self.most:
            raise InputError(
                f"Responses of {self.mean:,.0f} tokens on average are longer than the {self.most:,.0f} that they may have.",
                field="max_response",
            )

    @cached_property
    def spread(self) -> float:
        """s of the lognormal; 0 where all are alike, as they are where the mean is the most."""
        return 0.0 if self.mean >= self.most else math.sqrt(math.log1p(self.cv * self.cv))

    @cached_property
    def middle(self) -> float:
        """mu, by halving: the mean after clipping grows with it."""
        s, low, high = self.spread, math.log(self.mean) - self.spread**2 - 1.0, math.log(self.most) + 12.0
        if not s:
            return math.log(self.mean)
        for _ in range(_ROUNDS):
            mu = (low + high) / 2
            low, high = (mu, high) if self._clipped_mean(mu) < self.mean else (low, mu)
        return (low + high) / 2

    def _clipped_mean(self, mu: float) -> float:
        s, far = self.spread, math.log(self.most) - mu
        whole = math.exp(mu + s * s / 2) * _NORMAL.cdf(far / s - s)
        return whole + self.most * (1 - _NORMAL.cdf(far / s))

    def survival(self, tokens: float) -> float:
        """The share that is longer."""
        if tokens >= self.most:
            return 0.0
        if not self.spread:
            return 1.0 if tokens < self.mean else 0.0
        return 1.0 if tokens <= 0 else 1.0 - _NORMAL.cdf((math.log(tokens) - self.middle) / self.spread)

    def quantile(self, share: float) -> float:
        """The length that a share of responses does not exceed."""
        return self._at(_NORMAL.inv_cdf(share))

    def _at(self, away: float) -> float:
        """The length so many deviations from the middle."""
        return min(self.most, math.exp(self.middle + self.spread * away)) if self.spread else self.mean

    @property
    def far(self) -> float:
        """Standard deviations of the logarithm from its middle to the most tokens; 0 where all lengths are alike."""
        return (math.log(self.most) - self.middle) / self.spread if self.spread else 0.0

    @property
    def clipped(self) -> float:
        """The share of responses that end at the most."""
        return self.survival(self.most * (1 - 1e-12)) if self.spread else 0.0

    @cached_property
    def seen_cv(self) -> float:
        """The coefficient of variation after clipping."""
        drawn = self.drawn(1024)
        mean = sum(drawn) / len(drawn)
        return math.sqrt(sum((each - mean) ** 2 for each in drawn) / len(drawn)) / mean

    def drawn(self, many: int) -> list[float]:
        """Lengths at even quantiles: of many responses the same mean and tail for every seed."""
        return [self._at(away) for away in _even_quantiles(many)]

    def shuffled(self, many: int) -> list[float]:
        """The same in a fixed random order."""
        return [self._at(away) for away in _shuffled_quantiles(many)]

    @property
    def even(self) -> Lengths:
        """All of the mean length."""
        return Lengths(self.mean, 0.0, self.most)


@lru_cache(8)
def _even_quantiles(many: int) -> tuple[float, ...]:
    """Even quantiles of the normal distribution, whatever the lengths."""
    return tuple(_NORMAL.inv_cdf((number + 0.5) / many) for number in range(many))


@lru_cache(8)
def _shuffled_quantiles(many: int) -> tuple[float, ...]:
    drawn = list(_even_quantiles(many))
    Random("0 lengths").shuffle(drawn)
    return tuple(drawn)


class Samples(NamedTuple):
    """What a step asks for: prompts, samples of each, tokens of a prompt, and lengths of the responses."""

    prompts: int
    each: int
    prompt: int
    lengths: Lengths

    @property
    def all(self) -> int:
        return self.prompts * self.each


class Rollout(NamedTuple):
    """Seconds of a rollout, of the same if all responses had the mean length, of reading prompts; most samples of a replica, and whether caches had room."""

    seconds: float
    even: float
    reading: float
    each: float
    fits: bool

    @property
    def tail(self) -> float:
        """What the long tail adds."""
        return max(self.seconds - self.even, 0.0)


def rollout(machine: Engines, traffic: Traffic, asked: Samples, longest: float = math.inf) -> Rollout:
    """How long all samples of a step take, when all begin at once on the replicas of a machine. One that would take ``longest`` even if all caches had
    room is not played."""
    kind = _sharing(kind_of(machine, traffic, Settings()), asked)
    each = max(asked.all / kind.many, 1.0)
    reading = _reading(kind, asked, each)
    even = asked._replace(lengths=asked.lengths.even)
    fits = each <= kind.plan.slots and _fills(kind, asked, each) <= kind.room.bytes
    seconds, alike = (reading + _written(kind, want, each) for want in (asked, even))
    if not fits:
        _has_room(kind, asked)
    if not fits and seconds < longest:
        # What caches cost, they cost long and short responses alike.
        grown = max(_played(machine, traffic, asked) / seconds, 1.0)
        seconds, alike = grown * seconds, grown * alike
    return Rollout(seconds, min(alike, seconds), reading, each, fits)


def _sharing(kind: Kind, asked: Samples) -> Kind:
    """Replicas whose samples hold their share of the prompt's cache alone."""
    room = kind.room
    own = room.contexts
    if asked.each == 1 or own.breaks:
        return kind
    saved = (own.at(asked.prompt)[0] - own.first) * (1 - 1 / asked.each)

    class _Shared(Contexts):
        def at(self, context: float) -> tuple[float, float]:
            found, slope = super().at(context)
            return (found - saved if context >= asked.prompt else found), slope

    shared = _Shared(lambda context: own.at(context)[0], list(own.breaks))
    made = object.__new__(type(room))
    made.__dict__.update(room.__dict__)
    made.contexts = shared
    return kind._replace(room=made)


def _fills(kind: Kind, asked: Samples, each: float) -> float:
    """Bytes of caches when a replica has most of them."""
    at = kind.room.contexts.at
    return max(each * asked.lengths.survival(tokens) * at(asked.prompt + tokens)[0] for tokens, *_ in _running(asked))


def _grid(asked: Samples) -> list[float]:
    """Tokens written, closer together where responses are short; the end is where hardly any sample is longer."""
    lengths = asked.lengths
    end = lengths.quantile(max(1 - _NOBODY / asked.all, 0.5)) if lengths.spread else lengths.mean
    first, last = 0.5, max(end - 0.5, 0.5)
    ratio = math.log(max(last / first, 1.0))
    return [first * math.exp(ratio * place / _POINTS) for place in range(_POINTS + 1)]


@lru_cache(16)
def _running(asked: Samples) -> tuple[tuple[float, float, float], ...]:
    """Of places of the grid the tokens written, the share of samples that are still written, and the probability that any is; of any replicas."""
    lengths, many, found = asked.lengths, asked.all, []
    for tokens in _grid(asked):
        alive = lengths.survival(tokens if lengths.spread else min(tokens, lengths.mean - 0.5))
        found.append((tokens, alive, 1.0 if alive >= 1.0 else -math.expm1(many * math.log1p(-alive))))
    return tuple(found)


def _written(kind: Kind, asked: Samples, each: float) -> float:
    """The sum over tokens, by trapezoids."""
    steps, points, values = kind.steps, _running(asked), []
    for tokens, alive, waited in points:
        running = max(each * alive, 1.0)
        rank = max(1, round(running / steps.ranks))
        attended = steps.contexts.at(asked.prompt + tokens)[0] * running / steps.ranks
        values.append(waited * steps.decode_time(rank, attended) / steps.gain)
    pairs = zip(points, points[1:], values, values[1:], strict=False)
    return sum((b[0] - a[0]) * (va + vb) / 2 for a, b, va, vb in pairs)


def _reading(kind: Kind, asked: Samples, each: float) -> float:
    """Prompts of a replica, in steps as long as the scheduler's budget."""
    steps, budget = kind.steps, kind.plan.budget * kind.steps.ranks
    prompts = max(math.ceil(each / asked.each), 1)
    whole, rest = divmod(prompts * asked.prompt, budget)
    seconds = 0.0
    for tokens, many in ((budget, whole), (rest, 1 if rest else 0)):
        if many:
            parts = max(1, round(tokens / asked.prompt))
            rank = -(-tokens // steps.ranks)
            cost = parts * steps.chunk(min(tokens, asked.prompt), 0) / steps.ranks
            seconds += many * steps.mixed(0, 0.0, rank, max(1, parts // steps.ranks), cost, 1.0, asked.prompt)
    return seconds


class _Siblings(Prefixes):
    """The first sample of a prompt reads it for the others."""

    def __init__(self) -> None:
        super().__init__(1, 1.0)
        self.seen: set[str | None] = set()

    def find(self, request: Request, free: float) -> int:
        return request.prompt if request.session in self.seen else 0

    def hold(self, number: int, request: Request, found: int) -> None:
        self.seen.add(request.session)

    def keep(self, number: int, request: Request) -> None:
        pass

    def leave(self, number: int, request: Request, tokens: int) -> None:
        pass


def _has_room(kind: Kind, asked: Samples) -> None:
    """Refuses replicas in which the longest response has no room."""
    if not kind.room.holds(asked.prompt, math.ceil(asked.lengths.most if asked.lengths.spread else asked.lengths.mean)):
        raise InputError(
            f"A response of {asked.lengths.most:,.0f} tokens has no room in the caches of a generator: "
            "split it over more devices, or give a larger memory_fraction.",
            field="max_response",
        )


@lru_cache(32)
def _played(machine: Engines, traffic: Traffic, asked: Samples) -> float:
    """The slowest of all replicas, event by event; asked for again where trainers change, or what is beside a rollout."""
    kind = _sharing(kind_of(machine, traffic, Settings()), asked)

    def done(ended: Ended) -> None:
        pass

    slowest = 0.0
    for requests in _slowest(list(_dealt(asked, kind.many))):
        replica = kind.replica(done)
        replica.prefixes, replica.swift = _Siblings(), False
        for request in requests:
            replica.push(request)
        replica.finish()
        slowest = max(slowest, replica.time)
    return slowest


def _slowest(dealt: list[list[Request]]) -> list[list[Request]]:
    """Replicas one of which ends last: those with most to write, and those with the longest responses."""
    by_work = sorted(range(len(dealt)), key=lambda n: -sum(each.answer for each in dealt[n]))
    by_length = sorted(range(len(dealt)), key=lambda n: -max((each.answer for each in dealt[n]), default=0))
    return [dealt[n] for n in dict.fromkeys((*by_work[:_TRIED], *by_length[:_TRIED])) if dealt[n]]


def _dealt(asked: Samples, replicas: int) -> Iterator[list[Request]]:
    """The samples of each replica: those of a prompt together, where there are prompts enough."""
    drawn = asked.lengths.shuffled(asked.all)
    apart = asked.prompts < replicas
    own: list[list[Request]] = [[] for _ in range(replicas)]
    for number, tokens in enumerate(drawn):
        prompt = number // asked.each
        place = (number if apart else prompt) % replicas
        own[place].append(Request(0.0, asked.prompt, max(1, round(tokens)), session=str(prompt)))
    yield from own


@lru_cache(256)
def imbalance(lengths: Lengths, prompt: int, batch: int, ranks: int) -> float:
    """Tokens of the fullest of some ranks over the mean, of a mini-batch of samples that is dealt out longest first to the emptiest: what data-parallel
    ranks wait for each other. Mean over mini-batches drawn from a step's lengths; 1 where all are alike."""
    if ranks <= 1 or not lengths.spread or batch <= 0:
        return 1.0
    deals = max(1, min(_DEALS, _MANY // batch))
    pool, worst = lengths.shuffled(batch * deals), 0.0
    for deal in range(deals):
        full = [0.0] * ranks
        heap = [(0.0, rank) for rank in range(ranks)]
        for tokens in sorted(pool[deal * batch : (deal + 1) * batch], reverse=True):
            load, rank = heap[0]
            full[rank] = load + tokens + prompt
            heapreplace(heap, (full[rank], rank))
        worst += max(full) * ranks / sum(full)
    return worst / deals
