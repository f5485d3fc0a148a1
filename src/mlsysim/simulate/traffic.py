"""A load that is drawn: how often requests come, how long they are, what they share.

Arrivals are a renewal process that is stationary from time zero on: gaps are gamma-distributed with the given coefficient of
variation (1 is Poisson; 0 is a metronome), and the first one is the rest of a gap that began before zero, or a bursty load would have
(cv^2 - 1) / 2 requests too many (Cox 1962, Renewal Theory, chapter 4). Hours of the day stretch and shrink the clock of that process,
so that bursts keep their shape and the mean over all hours is the rate.

The same seed gives the same bytes on every platform and in the browser: numbers are drawn without the C library (``draws.py``), and
arrivals are whole nanoseconds. Arrivals, lengths and people are three streams, so that another length does not change the arrivals.

Left out: the next turn of a conversation follows its last one by a time that does not depend on how fast the answer was; lengths of
prompt and answer are independent (rank correlations in Azure's and Mooncake's traces are -0.02 to 0.07).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import field
from heapq import heappop, heappush
from itertools import count, cycle, islice, repeat, takewhile
from math import floor, fsum, inf, isfinite, sqrt
from typing import Any, NamedTuple, Protocol

from mlsysim.errors import InputError, unknown_name
from mlsysim.simulate.draws import LN2, NEAR, Draws, log
from mlsysim.simulate.requests import Request
from mlsysim.units.records import dataclass
from mlsysim.zoo.files import shipped

__all__ = ["Even", "Fixed", "Lengths", "Load", "Observed", "Spread", "Tenant", "profiles"]

_HOUR = 3600.0
_OWN = 1 << 32
"""Hashes of blocks: those of conversation s begin at (s + 1) times this; those of shared texts are negative."""


class Lengths(Protocol):
    """Tokens of prompts or answers."""

    @property
    def mean(self) -> float: ...

    def draw(self, draws: Draws) -> int: ...


@dataclass(frozen=True)
class Fixed:
    """Each has as many."""

    tokens: int

    def __post_init__(self) -> None:
        _refuse(
            self.tokens < 1 or self.tokens != int(self.tokens), f"A length is a whole number from 1, got {self.tokens}"
        )

    @property
    def mean(self) -> float:
        return float(self.tokens)

    def draw(self, draws: Draws) -> int:
        return self.tokens


@dataclass(frozen=True)
class Spread:
    """Log-normal above the first token, with this mean and coefficient of variation.

    A real number becomes a whole one by chance, up or down, so that the mean is exact however short the texts are; the
    variance that this adds (1/6 on average) is taken off before.
    """

    mean: float
    cv: float
    _mu: float = field(init=False, repr=False, compare=False)
    _sigma: float = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _refuse(
            not (isfinite(self.mean) and self.mean >= 1), f"The mean of lengths is 1 token or more, got {self.mean}"
        )
        _refuse(not 0 <= self.cv <= 20, f"The cv of lengths lies between 0 and 20, got {self.cv}")
        above = max(self.mean - 1.0, 1e-300)
        spread = max(0.0, self.cv * self.mean * self.cv * self.mean - 1 / 6) / above / above
        # One token at least, and one on average, is one always.
        squares = log(1.0 + spread) if self.mean > 1.0 else 0.0
        object.__setattr__(self, "_sigma", sqrt(squares))
        object.__setattr__(self, "_mu", log(above) - squares / 2)

    def draw(self, draws: Draws) -> int:
        if self._sigma:
            return 1 + draws.whole(self._mu, self._sigma)
        return 1 + floor(self.mean - 1.0 + draws.uniform())


@dataclass(frozen=True)
class Even:
    """Whole numbers from ``range_ratio`` times the largest to the largest, each as often: what benchmarks' random prompts are."""

    largest: int
    range_ratio: float

    def __post_init__(self) -> None:
        _refuse(self.largest < 1, f"The largest length is 1 token or more, got {self.largest}")
        _refuse(not 0 <= self.range_ratio <= 1, f"range_ratio lies between 0 and 1, got {self.range_ratio}")

    @property
    def smallest(self) -> int:
        return max(1, floor(self.range_ratio * self.largest))

    @property
    def mean(self) -> float:
        return (self.smallest + self.largest) / 2

    def draw(self, draws: Draws) -> int:
        low = self.smallest
        return low + floor(draws.uniform() * (self.largest - low + 1))


@dataclass(frozen=True)
class Observed:
    """Drawn from lengths that were seen, each as often."""

    values: tuple[int, ...]

    def __post_init__(self) -> None:
        _refuse(not self.values or min(self.values) < 1, "Lengths that were seen are a list of whole numbers from 1")

    @property
    def mean(self) -> float:
        return sum(self.values) / len(self.values)

    def draw(self, draws: Draws) -> int:
        return self.values[floor(draws.uniform() * len(self.values))]


class Tenant(NamedTuple):
    """Somebody whose requests are a share of all."""

    name: str
    share: float
    priority: int = 0
    adapter: str | None = None


@dataclass(frozen=True)
class Load:
    """Requests to draw. ``requests(seed)`` hands them out one by one; without ``count`` and ``duration`` there is no end.

    With ``turns`` above 1, a conversation comes as often as its turns make ``rate`` requests a second. ``prompt`` is then what a
    turn adds: its prompt holds all earlier prompts and answers before that, and blocks of both are shared. The next turn comes
    ``think`` seconds after this one on average (exponential), from arrival to arrival. Conversations have been going on before time
    zero. With ``prefixes``, that share of each prompt (of a conversation's first) is the beginning of one of so many texts.
    """

    rate: float
    """Requests a second, the mean over the hours of the profile."""
    prompt: Lengths
    answer: Lengths
    burst: float = 1.0
    """Coefficient of variation of the gaps between arrivals."""
    hours: tuple[float, ...] = ()
    """One factor an hour, repeated: 24 are a day, 168 a week. Their mean does not matter."""
    count: int | None = None
    duration: float | None = None
    """Seconds; what comes later is left out."""
    turns: int = 1
    think: float = 0.0
    prefixes: int = 0
    prefix_share: float = 0.0
    tenants: tuple[Tenant, ...] = ()
    context: int | None = None
    """Most tokens of prompt and answer; a prompt that does not fit is cut, as benchmarks do, which lowers the means."""
    block_tokens: int = 16
    dealt: tuple[int, int] = (1, 1)
    """Of every so many requests (the second number) the first ones are handed out: what some of the replicas get that take turns.
    The gaps of those between are drawn as one, whose shape is theirs together."""

    def __post_init__(self) -> None:
        _refuse(
            not (isfinite(self.rate) and self.rate > 0), f"A load's rate is above 0 requests a second, got {self.rate}"
        )
        _refuse(not 0 <= self.burst <= 100, f"burst, the cv of the gaps, lies between 0 and 100, got {self.burst}")
        _refuse(
            any(not (isfinite(hour) and hour >= 0) for hour in self.hours)
            or (bool(self.hours) and not any(self.hours)),
            "Factors of hours are 0 or more, and one of them is above 0",
        )
        _refuse(self.count is not None and self.count < 1, f"A load has 1 request or more, got {self.count}")
        _refuse(
            self.duration is not None and not self.duration > 0, f"A load's duration is above 0 s, got {self.duration}"
        )
        _refuse(self.turns < 1, f"A conversation has 1 turn or more, got {self.turns}")
        _refuse(
            self.turns > 1 and not 0 < self.think < 1e9, "Turns need think, the seconds from one to the next, above 0"
        )
        _refuse(not 0 <= self.prefix_share <= 1, f"prefix_share lies between 0 and 1, got {self.prefix_share}")
        _refuse(
            self.prefixes < 0 or (self.prefixes > 0) != (self.prefix_share > 0),
            "Shared prefixes are given by both: prefixes, how many there are, and prefix_share, how much of a prompt is one",
        )
        _refuse(any(not tenant.share > 0 for tenant in self.tenants), "The share of each tenant is above 0")
        _refuse(
            self.context is not None and self.context < 2,
            f"A context has room for 2 tokens or more, got {self.context}",
        )
        _refuse(
            not 1 <= self.dealt[0] <= self.dealt[1] or (self.turns > 1 and self.dealt[0] < self.dealt[1]),
            f"Of requests that are dealt out 1 or more are handed out, of single turns, got {self.dealt}",
        )
        _refuse(self.block_tokens < 1, f"A block has 1 token or more, got {self.block_tokens}")

    @property
    def mean_prompt(self) -> float:
        """Tokens of a prompt, the earlier turns with it; before ``context`` cuts any."""
        return self.prompt.mean * (self.turns + 1) / 2 + self.answer.mean * (self.turns - 1) / 2

    def requests(self, seed: int = 0) -> Iterator[Request]:
        """In order of arrival."""
        end = inf if self.duration is None else float(self.duration)
        if self.turns == 1:
            return islice(self._single(seed, end), self.count)
        return islice(takewhile(lambda request: request[0] < end, self._conversations(seed)), self.count)

    def _single(self, seed: int, end: float) -> Iterator[Request]:
        arrivals = self._arrivals(seed, self.rate, 0.0, end)
        if self.prefixes or self.tenants or self.context is not None:
            return self._shared(seed, arrivals)
        # Lengths come in turn, of the prompt and of the answer.
        lengths, others = self._lengths(seed), map(repeat, Request._field_defaults.values())
        return map(tuple.__new__, repeat(Request), zip(arrivals, lengths, lengths, *others, strict=False))

    def _lengths(self, seed: int) -> Iterator[int]:
        """Tokens of a prompt, of its answer, of the next prompt, and so on."""
        lengths, prompt, answer = Draws(seed, "lengths"), self.prompt, self.answer
        spread = (*_logarithmic(prompt), *_logarithmic(answer))
        if len(spread) == 4:
            return lengths.pairs(*spread)
        return (each.draw(lengths) for each in cycle((prompt, answer)))

    def _shared(self, seed: int, arrivals: Iterator[float]) -> Iterator[Request]:
        """Requests of people who share texts, or are cut."""
        lengths, people, whole = self._lengths(seed), Draws(seed, "people"), self.block_tokens
        for time in arrivals:
            read, write = self._cut(next(lengths), next(lengths))
            first = self._prefix(people)
            blocks = None if first is None else tuple(range(first, first + floor(self.prefix_share * read) // whole))
            yield Request(time, read, write, None, blocks, *self._tenant(people))

    def _conversations(self, seed: int) -> Iterator[Request]:
        """Turns that are to come wait in a heap, at most those of the conversations that are going on."""
        lengths, people = Draws(seed, "lengths"), Draws(seed, "people")
        # The longest conversation, as good as: mean and eight deviations of the sum of its thinking.
        before = self.think * (self.turns - 1 + 8 * sqrt(self.turns - 1))
        waiting: list[tuple[Any, ...]] = []
        for number, start in enumerate(self._arrivals(seed, self.rate / self.turns, -before)):
            while waiting and waiting[0][0] <= start:
                yield from self._turn(heappop(waiting), waiting, lengths, people)
            first, tenant = self._prefix(people), self._tenant(people)
            heappush(waiting, (start, number, self.turns, 0, first, 0, tenant))

    def _turn(self, turn: tuple[Any, ...], waiting: list[Any], lengths: Draws, people: Draws) -> Iterator[Request]:
        time, number, left, said, first, shared, tenant = turn
        read, write = said + self.prompt.draw(lengths), self.answer.draw(lengths)
        if not said and first is not None:
            shared = floor(self.prefix_share * read) // self.block_tokens
        cut, wrote = self._cut(read, write)
        own = (number + 1) * _OWN
        common = tuple(range(first, first + shared)) if first is not None else ()
        many = (cut + wrote) // self.block_tokens
        blocks = (common + tuple(range(own + shared, own + many)))[:many]
        if left > 1:
            later = _nanoseconds(time + self.think * people.exponential())
            heappush(waiting, (later, number, left - 1, cut + wrote, first, shared, tenant))
        if time >= 0:
            yield Request(time, cut, wrote, f"s{number}", blocks, *tenant)

    def _arrivals(self, seed: int, rate: float, start: float, until: float = inf) -> Iterator[float]:
        """Times from ``start`` on, before ``until``, in whole nanoseconds."""
        draws = Draws(seed, "arrivals")
        uniform, gap, random = (
            draws.uniform,
            self._gaps(draws, rate),
            self.burst == 1.0 and self.dealt[0] == self.dealt[1],
        )
        mean = fsum(self.hours) / len(self.hours) if self.hours else 1.0
        factors, many, low, high = (
            [hour / mean for hour in self.hours],
            len(self.hours),
            1 - 1e-2 * NEAR,
            1 + 1e-2 * NEAR,
        )
        time, end, factor, drawn, log2 = start, -inf if self.hours else inf, 1.0, 0.0, math.log2
        mean_gap = LN2 / rate
        while True:
            if random:
                drawn = 1.0 - uniform()
                ahead = -log2(drawn) * mean_gap / factor
                later = time + ahead
                if later < end and time + ahead * low == time + ahead * high:
                    time = later
                    if (came := floor(time * 1e9 + 0.5) / 1e9) >= until:
                        return
                    yield came
                    continue
            # At the end of an hour, early on, and where the last bits of a logarithm matter.
            ahead = -log(drawn) / rate if random else next(gap)
            if self.hours:
                slot = floor(time / _HOUR)
                factor = factors[slot % many]
                while not factor or ahead > ((slot + 1) * _HOUR - time) * factor:
                    ahead -= ((slot + 1) * _HOUR - time) * factor
                    slot += 1
                    time, factor = slot * _HOUR, factors[slot % many]
                end = (slot + 1) * _HOUR - 1.0
            time += ahead / factor
            if (came := _nanoseconds(time)) >= until:
                return
            yield came

    def _gaps(self, draws: Draws, rate: float) -> Iterator[float]:
        """Seconds between arrivals at an even rate, that are not at random. The first is the rest of a gap: a length-biased one times a uniform number."""
        shape = 1.0 / self.burst / self.burst if self.burst else inf
        scale = 1.0 / rate / shape if self.burst else 1.0 / rate
        yield draws.uniform() * (draws.gamma(shape + 1.0) if self.burst else 1.0) * scale
        taken, of = self.dealt
        for handed in count(1):
            many = 1 if handed % taken else 1 + of - taken
            yield (draws.gamma(many * shape) if self.burst else many) * scale

    def _cut(self, read: int, write: int) -> tuple[int, int]:
        if self.context is None or read + write <= self.context:
            return read, write
        write = min(write, self.context - 1)
        return min(read, self.context - write), write

    def _prefix(self, people: Draws) -> int | None:
        """Hash of the first block of one of the shared texts."""
        return -1 - floor(people.uniform() * self.prefixes) << 20 if self.prefixes else None

    def _tenant(self, people: Draws) -> tuple[str | None, int, str | None]:
        if not self.tenants:
            return None, 0, None
        left = people.uniform() * fsum(tenant.share for tenant in self.tenants)
        for tenant in self.tenants:
            left -= tenant.share
            if left < 0:
                break
        return tenant.name, tenant.priority, tenant.adapter


def profiles(name: str) -> tuple[float, ...]:
    """Factors of the hours of a day by their name in ``data/profiles.toml``, for ``Load(hours=...)``."""
    table = shipped(__package__, "data/profiles.toml")
    if name not in table:
        raise unknown_name("profile of a day", name, table, f"known are {', '.join(table)}.")
    return tuple(table[name]["hours"])


def _logarithmic(lengths: Lengths) -> tuple[float, ...]:
    """Mean and deviation of the logarithm of lengths above the first token, where they are spread."""
    return (lengths._mu, lengths._sigma) if isinstance(lengths, Spread) and lengths._sigma else ()


def _nanoseconds(time: float) -> float:
    return floor(time * 1e9 + 0.5) / 1e9


def _refuse(wrong: bool, sentence: str) -> None:
    if wrong:
        raise InputError(sentence + ".")
