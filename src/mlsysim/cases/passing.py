"""A number of requests at a rate, as a fluid that fills a server and leaves it: what waits, how long steps are meanwhile, and the last answer.

R requests that come at a rate r are let in as they come, as room is left and as prompts are read. Counted in steps v, with M(v) of them let in, those whose answers
have O steps are in flight while v - O < their step < v, and time passes as

    N(v) = Int P(O > v - u) dM(u),    dt/dv = T(N, dM/dv),    M <= r t,    dM/dv <= K,    room: Int b(v - u) P(O > v - u) dM(u) <= B

with the step T of N sequences beside so many prompts (:meth:`mlsysim.cases.turns.Turns.cycle`), K prompts of a full step, and the room b of a request, which grows with what
is written of it; engines that reserve take all of it at once. While the server fills, steps are short and requests young, so that more find room than on average. Where
those that were let in outgrow the room, the last are put back, and read again before others are let in. Then

    wait  Int (r t - M) dt / R,    token  Int (N + those put back) dt / Int N dv,    end  the time at which e^-N is a half

Limits: R without end is the steady state N = r O T(N), or where none answers r a wait of R/2 (1/f - 1/r); all at once is a batch; one request is alone. Where an answer's steps
repeat those of the one before, those that follow are counted and not walked.

C clients who ask again come as others are answered, M <= C + those. Answers of one length end in waves: of what x answers a step leave others are let in, and put back as
those who write grow until the next one ends, so that a step reads min(N, x (I + O)) tokens again, over 1 + 0.4 x (:mod:`mlsysim.cases.turns`).

R requests that begin together and whose answers have lengths L of mean O leave one by one: N(k) = R P(L > k) are in flight at token k, and with steps a + b N all
of them end after

    Sum a + b N(k) = a L_R + b R O = O (a + b R) + a (L_R - O)

the batch of equal answers, and the longest of them, L_R, alone for the rest of its way.

Left out: chance (:mod:`mlsysim.cases.crowd`), but for what a step reads; lengths are lognormal, or equal.
"""

from __future__ import annotations

import math
import sys
from bisect import bisect_left
from collections.abc import Callable, Iterable
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

if sys.version_info >= (3, 12):
    from math import sumprod
else:
    from operator import mul

    def sumprod(one: Iterable[float], other: Iterable[float], /) -> float:
        """The sum of products, which later versions of Python have of their own."""
        return sum(map(mul, one, other))


if TYPE_CHECKING:
    from statistics import NormalDist

_ALIKE, _SURE, _MOST_ANSWERS, _TRIES, _FEWEST, _HALVES = 3e-4, 3.5, 60, 12, 1e-9, 9
_SELDOM = 16
"""Parts after which those that are answered are looked for."""
PARTS = 32
"""Steps of the walk in an answer."""


class Server(NamedTuple):
    """What requests pass through: ``step`` gives the seconds of a step with n sequences, that have written such a share of an answer on average, beside so many prompts, that wait for room or come at random."""

    step: Callable[[float, float, float, bool], float]
    steps: float
    """Of an answer."""
    room: float
    young: float
    old: float
    """The room, and what a request takes of it when it is let in and with its mean answer written."""
    full: float = math.inf
    """Prompts that a step reads at most."""
    pace: float = 0.0
    """Seconds a prompt, at least, of those who only read."""
    slots: float = math.inf
    cv: float = 0.0
    longer: float = 0.0
    """An answer over a prompt, in tokens that are read again."""
    again: Callable[[float], float] = lambda ended: 1.0
    """What is read for a prompt where the room is full and so many answers end in a step."""
    clients: float = math.inf
    """Who ask again when they are answered; beyond as many nobody comes."""
    parts: int = PARTS
    """Steps of the walk in an answer."""


class Passed(NamedTuple):
    """The mean wait, a step on average over tokens, how many times as long tokens take with those of requests that were put back, and seconds until the last answer."""

    wait: float
    step: float
    held: float
    span: float


class _Sums(NamedTuple):
    """Of the walk so far: seconds, requests that came and were let in, and over time those that wait, write and were put back; tokens."""

    time: float = 0.0
    came: float = 0.0
    let_in: float = 0.0
    waited: float = 0.0
    flown: float = 0.0
    held: float = 0.0
    tokens: float = 0.0

    @property
    def waiting(self) -> float:
        return self.came - self.let_in


class _Walk:
    """Requests in groups that were let in together, the last of them last: their ``many``, and the part of the walk before which they were let in, ``born``, from
    which their age in parts of an answer follows; those put back, (number, age), the next to be read last."""

    def __init__(self, server: Server, sent: float, rate: float) -> None:
        self.server, self.sent, self.rate = server, sent, rate
        self.part, parts = server.steps / server.parts, server.parts
        width = math.sqrt(math.log1p(server.cv**2))
        longest = math.ceil(parts * math.exp(_SURE * width)) + 1
        # Those that were let in within a part are half of one old at its end, on average.
        ages = [0.0, *((k - 0.5) / parts for k in range(1, longest + 3 + _SELDOM))]
        self.left = [_outlives(age, width) for age in ages[: longest + 1]] + [0.0] * (len(ages) - longest - 1)
        self.ages = ages
        self.takes = [server.young + (server.old - server.young) * age for age in ages]
        self.written = [left * age for left, age in zip(self.left, ages, strict=True)]
        # The oldest first, as groups are.
        self.left_now, self.written_now = self.left[::-1], self.written[::-1]
        self.many: list[float] = []
        self.born: list[int] = []
        self.in_a_row = True
        self.back: list[tuple[float, int]] = []
        self.sums, self.walked = _Sums(), 0
        self.here = self.wrote = 0.0
        self.look()

    def over(self, known: list[float], older: int) -> float:
        """A sum over those that are there of what is known of each age, the oldest first, when they are so many parts ``older``."""
        if not self.born:
            return 0.0
        last = len(known) - 1 - self.walked - older
        if self.in_a_row:
            return sumprod(self.many, known[last + self.born[0] : last + self.born[-1] + 1])
        return sumprod(self.many, [known[last + born] for born in self.born])

    def look(self) -> None:
        """Counts those that will be there at the end of the part, what they have written then, and their room."""
        young, old = self.server.young, self.server.old
        self.staying, self.will_have = self.over(self.left_now, 1), self.over(self.written_now, 1)
        self.used = young * self.staying + (old - young) * self.will_have

    def look_again(self) -> None:
        """The same after others were put back or let in, and those that are there now."""
        self.here, self.wrote = self.over(self.left_now, 0), self.over(self.written_now, 0)
        self.look()

    def drop(self) -> None:
        """Those that are answered leave."""
        groups = zip(self.many, self.born, strict=True)
        held = [(many, born) for many, born in groups if many * self.left[self.walked - born] > _FEWEST]
        self.many, self.born = [many for many, _ in held], [born for _, born in held]
        row = self.born[-1] - self.born[0] + 1 == len(self.born) if self.born else True
        self.in_a_row = row and (self.in_a_row or all(later == born + 1 for born, later in pairwise(self.born)))

    def outgrown(self) -> bool:
        """Those that were let in last are put back for the others; whether any were."""
        over = self.used - self.server.room * (1 + _FEWEST)
        if over <= 0:
            return False
        self.drop()
        while over > 0 and self.many:
            many, k = self.many.pop(), self.walked - self.born.pop()
            each = self.left[k + 1] * self.takes[k + 1]
            gone = min(many, over / each) if each > 0 else 0.0
            over -= gone * each
            if gone > 0:
                self.back.append((gone * self.left[k], k))
            if gone < many:
                self.join(many - gone, k)
                break
        self.look_again()
        return True

    def join(self, many: float, age: int) -> None:
        born = self.walked - age
        self.in_a_row &= not self.born or born == self.born[-1] + 1
        self.many.append(many)
        self.born.append(born)

    def returned(self) -> float:
        """Those put back come again while there is room; prompts that are read for it."""
        if not self.back:
            return 0.0
        s, read = self.server, 0.0
        free, places = s.room - self.used, s.slots - self.staying
        while self.back:
            many, k = self.back[-1]
            stays = self.left[k + 1] / self.left[k]
            work, each = 1 + s.longer * self.ages[k], stays * self.takes[k + 1]
            come = min(many, free / each if each > 0 else math.inf, places, (s.full * self.part - read) / work)
            if come > 0:
                self.join(come / self.left[k], k)
                free, places, read = free - come * each, places - come, read + come * work
            self.back.pop()
            if come < many:
                self.back.append((many - max(come, 0.0), k))
                break
        self.look_again()
        return read

    def walk(self) -> None:
        """A part of an answer."""
        s, sums, part = self.server, self.sums, self.part
        outgrown = self.outgrown()
        read = 0.0 if outgrown else self.returned()
        here, stay, written = self.here, self.staying, self.wrote
        room = max(min((s.room - self.used) / self.takes[1], s.slots - stay), 0.0)
        # Clients ask again within the part in which they are answered.
        held = sum([many for many, _ in self.back])
        ended = sums.let_in - stay - held
        left, queue = max(min(self.sent, s.clients + ended) - sums.came, 0.0), sums.waiting
        waits, over, again = queue > 1 and room < queue, here - stay, 1.0
        if waits and s.clients < math.inf:
            # Waves end together: what is let in there is put back as others grow until the next answer ends.
            read += (s.again(over / part) - 1) * min(here * part / s.steps, over * (1 + 1 / s.longer))
        elif waits:
            again = s.again(here / s.steps)
        most = 0.0 if self.back or outgrown else max(min(s.full * part - read, room, queue + left), 0.0)

        @cache
        def lasts(come: float) -> float:
            n = (here + stay + come) / 2
            share = written / max(here + come, _FEWEST) + 0.5 / s.parts
            return part * s.step(min(n + 1, self.sent), share, min((come * again + read) / part, s.full), waits)

        def missing(come: float) -> float:
            seconds = lasts(come)
            return min(queue + min(self.rate * seconds, left), seconds / s.pace if s.pace else math.inf) - come

        come = _root(missing, max(most, 0.0))
        seconds = lasts(come)
        new = min(self.rate * seconds, left)
        come = min(come, queue + new)
        # Until when they are read: those that wait for room come as it is left.
        reading = seconds
        if come < room:
            whole = (
                lasts(come) - lasts(0.0)
                if math.isinf(s.full)
                else come * s.step(max(come, 1.0), 0.0, s.full, True) / s.full
            )
            reading = min(whole, seconds)
        waited = max((queue + new - come) * seconds + come * reading / 2 - new * new / self.rate / 2, 0.0)
        n = (here + stay + come) / 2
        self.walked += 1
        if come * self.left[1] > _FEWEST:
            self.join(come, 1)
        if not self.walked % _SELDOM:
            self.drop()
        self.here, self.wrote = stay + come * self.left[1], self.will_have + come * self.written[1]
        self.look()
        self.sums = _Sums(
            sums.time + seconds,
            sums.came + new,
            sums.let_in + come,
            sums.waited + waited,
            sums.flown + n * seconds,
            sums.held + held * seconds,
            sums.tokens + n * part,
        )

    def leap(self, before: _Sums, many: int) -> None:
        """As many answers' steps as are alike, which were walked once since ``before``."""
        now = self.sums
        each = [b - a for a, b in zip(before, now, strict=True)]
        grows = now.waiting - before.waiting
        then = [b + many * d for b, d in zip(now, each, strict=True)]
        then[3] += each[0] * grows * many * (many + 1) / 2
        self.sums = _Sums(*then)

    def alike(self, marks: list[_Sums]) -> int:
        """Answers' steps that follow and are as the last ones were: until no more come, or nobody waits."""
        one, other = ([b - a for a, b in zip(*each, strict=True)] for each in pairwise(marks[-3:]))
        same = all(abs(a - b) <= _ALIKE * b for a, b in zip(one[:5], other[:5], strict=True))
        if not (same and not self.back) and len(marks) < _MOST_ANSWERS:
            return 0
        (_, come, let_in, *_), now = other, marks[-1]
        ends = [(self.sent - now.came) / come] if come > 0 else [now.waiting / let_in] if let_in > 0 else []
        ends += [now.waiting / (let_in - come)] if let_in > come > 0 and now.waiting > 1 else []
        return max(math.floor(min(ends, default=0.0)) - 1, 0)


@cache
def _normal() -> NormalDist:
    """The normal distribution; its module is imported where answers are spread."""
    from statistics import NormalDist

    return NormalDist()


def _outlives(age: float, width: float) -> float:
    """The share of answers that are longer than ``age`` mean ones."""
    if not width:
        return 1.0 if age < 1 else 0.0
    return 1.0 - _normal().cdf((math.log(age) + width**2 / 2) / width) if age > 0 else 1.0


def _root(missing: Callable[[float], float], most: float) -> float:
    """The number at which nothing is missing, or the most: false position, where an end that stays counts half."""
    low, high, above = 0.0, most, missing(most)
    if above >= 0:
        return most
    below, stays, found = missing(0.0), 0, 0.0
    for _ in range(_TRIES):
        found = low + (high - low) * below / (below - above)
        off = missing(found)
        if abs(off) <= 1e-6 * found:
            break
        if off > 0:
            low, below, above, stays = found, off, above / 2 if stays > 0 else above, 1
        else:
            high, above, below, stays = found, off, below / 2 if stays < 0 else below, -1
    return found


def passing(server: Server, sent: float, rate: float) -> Passed:
    """``sent`` requests, at least one, that come at a rate."""
    walk, marks, since, parts = _Walk(server, max(sent, 1.0), rate), [_Sums()], 0, server.parts
    while since < parts or walk.here > math.log(2):
        for _ in range(parts):
            walk.walk()
            over = walk.sums.came >= walk.sent * (1 - _FEWEST) and walk.sums.waiting < _FEWEST * walk.sent
            since = since + 1 if over and not walk.back else 0
            if since >= parts and walk.here <= math.log(2):
                break
        marks.append(walk.sums)
        if len(marks) > 3 and not since and (many := walk.alike(marks)):
            walk.leap(marks[-2], many)
            marks = [walk.sums]
    end = walk.sums
    return Passed(
        end.waited / walk.sent, end.flown / end.tokens, 1 + end.held / end.flown, max(end.time - 1 / rate, 0.0)
    )


def tabled(time: Callable[[float], float], most: float) -> Callable[[float], float]:
    """A time of n up to ``most`` that is nearly straight between halves of it."""
    at = [0.0, *(most * 0.5**k for k in range(_HALVES, -1, -1))]
    known = [time(max(n, _FEWEST)) for n in at]
    slopes = [0.0, *((b - a) / (y - x) for (x, y), (a, b) in zip(pairwise(at), pairwise(known), strict=True))]
    last = len(at) - 1

    def found(n: float) -> float:
        k = bisect_left(at, n, 1, last)
        return known[k] + slopes[k] * (n - at[k])

    return found


def longest(mean: float, cv: float, count: int) -> float:
    """The longest of so many lengths that are spread as a lognormal, in the median: Phi(z)^count is a half at z standard deviations. No
    shorter than the mean, which the largest of a few may be in the median.

    >>> longest(230, 0, 200), round(longest(230, 0.64, 200))
    (230.0, 943)
    """
    width = math.sqrt(math.log1p(cv**2))
    return mean * max(1.0, math.exp(width * _normal().inv_cdf(0.5 ** (1 / count)) - width**2 / 2))
