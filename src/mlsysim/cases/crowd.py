"""The wait for room: requests that come at random at a rate, where caches or slots hold N of them at a time.

Below the limit requests do not wait: they share the steps, and n of them are there on average. How far chance drives their number is what fills a server:

    variance of n / n     V = (1 + (D - 1) G)/e + s,    D = (c + u^2 cv^2)/(1 - u)^2

c is 1, or cv^2 of the gaps between those that one of many replicas is dealt; u is the share of the time that prompts take of the answers. In the time that is left answers end as in a queue of as many servers as requests, into which
requests come in bunches: those whose prompts come while prompts are read. A bunch is what a busy period of M/G/1 serves, with <X^2>/<X> = D (Takacs
1962), and bunches of M^X/G/inf vary n by 1 + (D - 1) G, with G = Int (1 - F)^2/<O> of the answers' lengths F, 1 for equal ones and erfc(sigma/2) for lognormal
ones (Liu, Kashyap and Templeton 1990; G is 1 less Gini's coefficient). Steps that grow with n hold its number less: e is the elasticity of n/t_d(n). Caches vary
by contexts too, s.

An arrival waits with the probability that the limit is reached. As a diffusion that returns to n below N and drains above it, its number is that of Erlang's queue of
as many servers as give the same distance to the limit in deviations, so that

    P = C(N/V, n/N),    W = P (<w^2>/<w>^2 - 1 + c)/2 / (f - r)

for a rate r where f are answered at most. The second is the heavy-traffic limit of any queue (Kingman 1962), and that of M/G/1 exactly for N = 1: w, the time that a
request takes of a full server, is that of its prompt and its share of the room, O (I + O/2) token-steps (O (I + O) where whole answers are reserved, O of a slot), whose
lengths vary independently, lognormal. With n = N r/f and equal lengths it is M/M/N of half the wait, as M/D/N is.

Beside the play of 20,000 to 60,000 requests on the same steps (8B and 70B, 512 + 256 to 20,000 + 100 tokens) mean first tokens are 0.8 to 1.35 of it at a load of 0.95,
with equal lengths and with cv 1. Fewer requests see less: long waits are rare and come together. Left out: full caches that are put back and read again answer
fewer than f, so that what fills them by chance stays longer (70B, 2,000 + 300 equal tokens at 0.95: 0.61 s, played 0.54 until it happens, 1.5 with it).
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from mlsysim.cases.algebra import Algebra
from mlsysim.cases.request import BATCHING, PLACE, QUEUE, TAIL, value_of
from mlsysim.cases.traffic import Traffic
from mlsysim.physics.queueing import erlang_c
from mlsysim.units.ops import log, maximum, minimum, sqrt, where

ALMOST = 0.999
"""Of the rate that is answered at most, what queues as in a steady state."""


class Crowd(NamedTuple):
    """Room for so many ``places``, of caches or ``slots``. ``grows``: a step of all of them, over one of half."""

    t: Traffic
    places: Any
    slots: Any
    reserves: bool
    grows: Any
    read: Any = 0.0
    """Share of the time that prompts take where all places are taken."""

    def waits(self, n: Any, read: Any = 0.0) -> Any:
        """The probability that there is no room, where n are there on average and prompts take such a share of the time."""
        cv2, least = self.t.habits.cv**2, 1 / self.places
        elastic = maximum(1 - log(self.grows) / math.log(2), least)
        bunches = (self.t.dealt.varied + read**2 * cv2) / maximum(1 - read, least) ** 2
        alike = math.erfc(math.sqrt(math.log1p(cv2)) / 2)
        varied = (1 + (bunches - 1) * alike) / elastic + where(self.slots, 0.0, self.t.spread_of_contexts)
        return erlang_c(maximum(self.places / varied, 1.0), minimum(n / self.places, ALMOST))

    @property
    def squares(self) -> Any:
        """<w^2>/<w>^2 of what requests take of a full server; <x^k> of lognormal lengths is (1 + cv^2)^(k (k - 1)/2)."""
        t, v, u = self.t, 1 + self.t.habits.cv**2, self.read
        half = 1.0 if self.reserves else 0.5
        own, grown = t.mean_prompt * t.mean_answer, half * t.mean_answer**2
        room = own + grown * v
        with_prompt = where(self.slots, 1.0, (own + grown) * v / room)
        squared = (own**2 * v**2 + 2 * own * grown * v**3 + grown**2 * v**6) / room**2
        return u**2 * v + 2 * u * (1 - u) * with_prompt + (1 - u) ** 2 * where(self.slots, v, squared)

    def waiting(self, waits: Any, rate: Any, fastest: Any, length: Any, a: Algebra) -> Any:
        """The mean wait for room. The queue of R requests that find none is at most that of chance alone at full load, whose mean grows to
        sqrt(2 R <w^2>/pi)/<w> (a random walk, reflected)."""
        varied, sent = self.squares - 1 + self.t.dealt.varied, self.t.habits.sent
        wait = waits * varied / (2 * (fastest - rate))
        if sent is not None:
            walked = sqrt(2 / math.pi * maximum(sent - self.places, 0.0) * varied)
            wait = minimum(wait, 2 / 3 * walked / fastest)
        return a.loss(PLACE, BATCHING, "t = P (<w^2>/<w>^2 - 1 + c)/2 / (f - r)", length * (wait / value_of(length)))


def carried_of(t: Traffic, fastest: Any) -> Any:
    """The rate of others, which queue as in a steady state; a number of them has not the time for the queue of a load nearer to 1 than 1/sqrt(R)."""
    if t.habits.sent is None:
        return minimum(t.rate, fastest * ALMOST)
    sent = maximum(t.habits.sent, 1.0)
    return minimum(t.rate * (1 - 1 / sent), fastest * minimum(ALMOST, 1 - 1 / (1 + sqrt(sent))))


def endless(t: Traffic, fastest: Any) -> Any:
    """Whether requests come faster than they are answered, and without end."""
    return t.rate >= fastest if t.habits.sent is None else False


def met_by(t: Traffic, fastest: Any, most: Any, pace: Any) -> Any:
    """The rate at which prompts of a number of requests queue: those that find a place come as they are sent, others as room is left, and neither has
    the time for the queue of a load nearer to 1 than 1/sqrt(R)."""
    placed = minimum(most / t.habits.sent, 1.0)
    return carried_of(t, fastest + placed * maximum(1 / pace - fastest, 0.0))


def backlog(wait: Any, length: Any, a: Algebra) -> Any:
    """The mean ``wait`` of a number of requests that come faster than they are answered, or than prompts are read."""
    return a.loss(QUEUE, TAIL, "t = Int (r t - M) dt / R", length * (wait / value_of(length)))
